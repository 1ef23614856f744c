/*
 * libmlx5's VFIO driver, without a kernel driver: brings the function up, creates queues by DevX, and connects two
 * reliable queue pairs of it: SENDs, writes with and without immediate, reads, atomics. `vfio PCI-ADDRESS`; exits with
 * 0 on success.
 */
#include "ifc.h"
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE_MS 60000
#define LOG_ENTRIES 6
#define ENTRIES (1 << LOG_ENTRIES)
#define LENGTH 3000

/* Umem fields of the PRM that mlx5_ifc.h does not declare: byte offsets of dwords in the inputs. */
#define CQ_DBR_UMEM_ID (0x10 + 0x04)
#define CQ_UMEM_ID 0x58
#define QPC 0x18
#define QP_DBR_UMEM_ID (QPC + 0xe4)
/* `roce_l3_type`, `roce_version`, `atomic_mode`. */
#define IPV6 1
#define ROCE_V2 2
#define IB_SPEC 1
#define IMMEDIATE 0x1234abcd

/* Rings and doorbell records, in one umem. A queue pair's receives come before its sends. */
static struct {
	uint8_t cqes[ENTRIES][64];
	struct {
		uint8_t receives[ENTRIES][64], sends[ENTRIES][64];
	} qps[2] __attribute__((aligned(4096)));
	__be32 cq_record[16], qp_records[2][16];
} queues __attribute__((aligned(4096)));
static uint8_t from[4096] __attribute__((aligned(4096))), to[4096] __attribute__((aligned(4096)));

static struct ibv_context *device;
static struct ibv_mr *mr_from, *mr_to;
static struct mlx5dv_devx_uar *uar;
static uint32_t pdn, umem_id, cqn, qpns[2];
static uint16_t posted[2], receives[2];
static uint32_t consumed;
static uint8_t mac[6], gid[16];

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

#define CHECK(what) do { if (!(what)) fail(#what); } while (0)

static void set_dword(void *input, int at, uint32_t value)
{
	*(__be32 *)((uint8_t *)input + at) = htobe32(value);
}

/* Executes a command without an object. */
static void execute(const char *what, void *input, size_t length)
{
	uint8_t output[16] = { 0 };

	if (mlx5dv_devx_general_cmd(device, input, length, output, sizeof(output))) {
		fprintf(stderr, "%s: status %#x, syndrome %#x\n", what, output[0], be32toh(*(__be32 *)(output + 4)));
		exit(1);
	}
}

static struct mlx5dv_devx_obj *create_object(const char *what, void *input, size_t length, uint32_t *number)
{
	uint8_t output[16] = { 0 };
	struct mlx5dv_devx_obj *made = mlx5dv_devx_obj_create(device, input, length, output, sizeof(output));

	if (!made) {
		fprintf(stderr, "%s: status %#x, syndrome %#x\n", what, output[0], be32toh(*(__be32 *)(output + 4)));
		exit(1);
	}
	*number = be32toh(*(__be32 *)(output + 8)) & 0xffffff;
	return made;
}

static void open_device(const char *name)
{
	struct mlx5dv_vfio_context_attr attr = { .pci_name = name };
	struct ibv_device **devices = mlx5dv_get_vfio_device_list(&attr);

	CHECK(devices && devices[0]);
	device = ibv_open_device(devices[0]);
	CHECK(device);
	ibv_free_device_list(devices);
}

/* Writes the function's MAC address to the L2 table of the port's switch, and to the GID table. */
static void configure_address(void)
{
	uint32_t query[DEVX_ST_SZ_DW(query_nic_vport_context_in)] = { 0 };
	uint32_t context[DEVX_ST_SZ_DW(query_nic_vport_context_out)] = { 0 };
	uint32_t entry[DEVX_ST_SZ_DW(set_l2_table_entry_in)] = { 0 };
	uint32_t address[DEVX_ST_SZ_DW(set_roce_address_in)] = { 0 };

	DEVX_SET(query_nic_vport_context_in, query, opcode, MLX5_CMD_OP_QUERY_NIC_VPORT_CONTEXT);
	CHECK(!mlx5dv_devx_general_cmd(device, query, sizeof(query), context, sizeof(context)));
	memcpy(mac, (uint8_t *)DEVX_ADDR_OF(query_nic_vport_context_out, context, nic_vport_context.permanent_address) + 2, 6);
	DEVX_SET(set_l2_table_entry_in, entry, opcode, MLX5_CMD_OP_SET_L2_TABLE_ENTRY);
	memcpy((uint8_t *)DEVX_ADDR_OF(set_l2_table_entry_in, entry, mac_address) + 2, mac, 6);
	execute("SET_L2_TABLE_ENTRY", entry, sizeof(entry));
	memcpy(gid, "\xfe\x80\0\0\0\0\0\0\x02\0\0\xff\xfe\0\0\x01", 16);
	DEVX_SET(set_roce_address_in, address, opcode, MLX5_CMD_OP_SET_ROCE_ADDRESS);
	memcpy(DEVX_ADDR_OF(set_roce_address_in, address, roce_address.source_l3_address), gid, 16);
	DEVX_SET(set_roce_address_in, address, roce_address.source_mac_47_32, mac[0] << 8 | mac[1]);
	DEVX_SET(set_roce_address_in, address, roce_address.source_mac_31_0,
		 (uint32_t)mac[2] << 24 | mac[3] << 16 | mac[4] << 8 | mac[5]);
	DEVX_SET(set_roce_address_in, address, roce_address.roce_l3_type, IPV6);
	DEVX_SET(set_roce_address_in, address, roce_address.roce_version, ROCE_V2);
	execute("SET_ROCE_ADDRESS", address, sizeof(address));
}

/* Before TEARDOWN_HCA the L2 table must be empty. */
static void remove_address(void)
{
	uint32_t entry[DEVX_ST_SZ_DW(delete_l2_table_entry_in)] = { 0 };

	DEVX_SET(delete_l2_table_entry_in, entry, opcode, MLX5_CMD_OP_DELETE_L2_TABLE_ENTRY);
	execute("DELETE_L2_TABLE_ENTRY", entry, sizeof(entry));
}

static struct mlx5dv_devx_obj *create_cq(void)
{
	uint32_t input[DEVX_ST_SZ_DW(create_cq_in)] = { 0 }, eqn;

	for (int i = 0; i < ENTRIES; i++)
		queues.cqes[i][63] = 0xf0;
	CHECK(!mlx5dv_devx_query_eqn(device, 0, &eqn));
	DEVX_SET(create_cq_in, input, opcode, MLX5_CMD_OP_CREATE_CQ);
	DEVX_SET(create_cq_in, input, cq_context.dbr_umem_valid, 1);
	DEVX_SET(create_cq_in, input, cq_context.log_cq_size, LOG_ENTRIES);
	DEVX_SET(create_cq_in, input, cq_context.uar_page, uar->page_id);
	DEVX_SET(create_cq_in, input, cq_context.c_eqn_or_apu_element, eqn);
	DEVX_SET64(create_cq_in, input, cq_context.dbr_addr, (uint8_t *)queues.cq_record - (uint8_t *)&queues);
	DEVX_SET(create_cq_in, input, cq_umem_valid, 1);
	set_dword(input, CQ_DBR_UMEM_ID, umem_id);
	set_dword(input, CQ_UMEM_ID, umem_id);
	return create_object("CREATE_CQ", input, sizeof(input), &cqn);
}

static uint64_t offset_of(void *place)
{
	return (uint8_t *)place - (uint8_t *)&queues;
}

static struct mlx5dv_devx_obj *create_qp(int qp)
{
	uint32_t input[DEVX_ST_SZ_DW(create_qp_in)] = { 0 };

	DEVX_SET(create_qp_in, input, opcode, MLX5_CMD_OP_CREATE_QP);
	DEVX_SET(create_qp_in, input, qpc.st, MLX5_QPC_ST_RC);
	DEVX_SET(create_qp_in, input, qpc.pm_state, MLX5_QPC_PM_STATE_MIGRATED);
	DEVX_SET(create_qp_in, input, qpc.pd, pdn);
	DEVX_SET(create_qp_in, input, qpc.uar_page, uar->page_id);
	DEVX_SET(create_qp_in, input, qpc.user_index, 0xffffff);
	DEVX_SET(create_qp_in, input, qpc.log_sq_size, LOG_ENTRIES);
	/* Strides of 64 bytes. */
	DEVX_SET(create_qp_in, input, qpc.log_rq_size, LOG_ENTRIES);
	DEVX_SET(create_qp_in, input, qpc.log_rq_stride, 2);
	DEVX_SET(create_qp_in, input, qpc.cqn_snd, cqn);
	DEVX_SET(create_qp_in, input, qpc.cqn_rcv, cqn);
	DEVX_SET(create_qp_in, input, qpc.dbr_umem_valid, 1);
	DEVX_SET64(create_qp_in, input, qpc.dbr_addr, offset_of(queues.qp_records[qp]));
	DEVX_SET64(create_qp_in, input, wq_umem_offset, offset_of(&queues.qps[qp]));
	DEVX_SET(create_qp_in, input, wq_umem_id, umem_id);
	DEVX_SET(create_qp_in, input, wq_umem_valid, 1);
	set_dword(input, QP_DBR_UMEM_ID, umem_id);
	return create_object("CREATE_QP", input, sizeof(input), &qpns[qp]);
}

static void modify_qp(const char *what, struct mlx5dv_devx_obj *qp, void *input, size_t length)
{
	uint8_t output[16] = { 0 };

	if (mlx5dv_devx_obj_modify(qp, input, length, output, sizeof(output))) {
		fprintf(stderr, "%s: status %#x, syndrome %#x\n", what, output[0], be32toh(*(__be32 *)(output + 4)));
		exit(1);
	}
}

/* Moves a queue pair to RTS, connected to the other. */
static void connect_qp(struct mlx5dv_devx_obj *qp, uint32_t qpn, uint32_t remote_qpn)
{
	uint32_t init[DEVX_ST_SZ_DW(rst2init_qp_in)] = { 0 };
	uint32_t rtr[DEVX_ST_SZ_DW(init2rtr_qp_in)] = { 0 };
	uint32_t rts[DEVX_ST_SZ_DW(rtr2rts_qp_in)] = { 0 };

	DEVX_SET(rst2init_qp_in, init, opcode, MLX5_CMD_OP_RST2INIT_QP);
	DEVX_SET(rst2init_qp_in, init, qpn, qpn);
	DEVX_SET(rst2init_qp_in, init, qpc.pm_state, MLX5_QPC_PM_STATE_MIGRATED);
	DEVX_SET(rst2init_qp_in, init, qpc.primary_address_path.vhca_port_num, 1);
	DEVX_SET(rst2init_qp_in, init, qpc.rre, 1);
	DEVX_SET(rst2init_qp_in, init, qpc.rwe, 1);
	DEVX_SET(rst2init_qp_in, init, qpc.rae, 1);
	DEVX_SET(rst2init_qp_in, init, qpc.atomic_mode, IB_SPEC);
	modify_qp("RST2INIT_QP", qp, init, sizeof(init));

	DEVX_SET(init2rtr_qp_in, rtr, opcode, MLX5_CMD_OP_INIT2RTR_QP);
	DEVX_SET(init2rtr_qp_in, rtr, qpn, qpn);
	DEVX_SET(init2rtr_qp_in, rtr, qpc.mtu, IBV_MTU_1024);
	DEVX_SET(init2rtr_qp_in, rtr, qpc.log_msg_max, 30);
	DEVX_SET(init2rtr_qp_in, rtr, qpc.remote_qpn, remote_qpn);
	DEVX_SET(init2rtr_qp_in, rtr, qpc.min_rnr_nak, 12);
	DEVX_SET(init2rtr_qp_in, rtr, qpc.primary_address_path.vhca_port_num, 1);
	DEVX_SET(init2rtr_qp_in, rtr, qpc.primary_address_path.hop_limit, 1);
	DEVX_SET(init2rtr_qp_in, rtr, qpc.primary_address_path.udp_sport, 0xc000);
	DEVX_SET(init2rtr_qp_in, rtr, qpc.primary_address_path.rmac_47_32, mac[0] << 8 | mac[1]);
	DEVX_SET(init2rtr_qp_in, rtr, qpc.primary_address_path.rmac_31_0,
		 (uint32_t)mac[2] << 24 | mac[3] << 16 | mac[4] << 8 | mac[5]);
	memcpy(DEVX_ADDR_OF(init2rtr_qp_in, rtr, qpc.primary_address_path.rgid_rip), gid, 16);
	modify_qp("INIT2RTR_QP", qp, rtr, sizeof(rtr));

	DEVX_SET(rtr2rts_qp_in, rts, opcode, MLX5_CMD_OP_RTR2RTS_QP);
	DEVX_SET(rtr2rts_qp_in, rts, qpn, qpn);
	DEVX_SET(rtr2rts_qp_in, rts, qpc.retry_count, 7);
	DEVX_SET(rtr2rts_qp_in, rts, qpc.rnr_retry, 7);
	DEVX_SET(rtr2rts_qp_in, rts, qpc.primary_address_path.ack_timeout, 18);
	modify_qp("RTR2RTS_QP", qp, rts, sizeof(rts));
}

/* Posts a receive into `mr`. */
static void post_receive(int qp, struct ibv_mr *mr)
{
	struct mlx5_wqe_data_seg *data = (void *)queues.qps[qp].receives[receives[qp]++ % ENTRIES];

	mlx5dv_set_data_seg(data, LENGTH, mr->lkey, (uintptr_t)mr->addr);
	/* No more elements. */
	mlx5dv_set_data_seg(data + 1, 0, 0x100, 0);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	queues.qp_records[qp][MLX5_RCV_DBR] = htobe32(receives[qp]);
}

/* Posts a message of `opcode`: of `length` bytes of `local`, to or from `remote`; adds 5 in case of an atomic. */
static void post(int qp, uint8_t opcode, struct ibv_mr *local, struct ibv_mr *remote, uint32_t length)
{
	uint8_t *wqe = queues.qps[qp].sends[posted[qp] % ENTRIES], *next = wqe + 16;
	struct mlx5_wqe_ctrl_seg *ctrl = (void *)wqe;

	memset(wqe, 0, 64);
	if (remote) {
		struct mlx5_wqe_raddr_seg *raddr = (void *)next;

		raddr->raddr = htobe64((uintptr_t)remote->addr);
		raddr->rkey = htobe32(remote->rkey);
		next += 16;
	}
	if (opcode == MLX5_OPCODE_ATOMIC_FA) {
		((struct mlx5_wqe_atomic_seg *)next)->swap_add = htobe64(5);
		next += 16;
	}
	mlx5dv_set_data_seg((void *)next, length, local->lkey, (uintptr_t)local->addr);
	mlx5dv_set_ctrl_seg(ctrl, posted[qp]++, opcode, 0, qpns[qp], MLX5_WQE_CTRL_CQ_UPDATE, (next - wqe) / 16 + 1, 0,
			    htobe32(IMMEDIATE));
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	queues.qp_records[qp][MLX5_SND_DBR] = htobe32(posted[qp]);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	*(volatile uint64_t *)uar->reg_addr = *(uint64_t *)wqe;
}

/* Waits for the next completion. */
static struct mlx5_cqe64 *next_completion(void)
{
	struct mlx5_cqe64 *cqe = (void *)queues.cqes[consumed % ENTRIES];
	volatile uint8_t *own = &cqe->op_own;

	for (int tries = 0; *own >> 4 == MLX5_CQE_INVALID || (*own & 1) != (consumed >> LOG_ENTRIES & 1); tries++) {
		CHECK(tries < PATIENCE_MS);
		CHECK(!mlx5dv_vfio_process_events(device));
		poll(NULL, 0, 1);
	}
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return cqe;
}

/* Takes the next completion, which must be of queue pair `qp` and of this opcode. */
static struct mlx5_cqe64 take_completion(int qp, uint8_t opcode)
{
	struct mlx5_cqe64 cqe = *next_completion();
	uint32_t qpn = be32toh(cqe.sop_drop_qpn) & 0xffffff;

	if (cqe.op_own >> 4 != opcode || qpn != qpns[qp]) {
		fprintf(stderr, "opcode %#x of QP %#x, not %#x of %#x; syndrome %#x\n", cqe.op_own >> 4, qpn, opcode, qpns[qp],
			((struct mlx5_err_cqe *)&cqe)->syndrome);
		exit(1);
	}
	consumed++;
	queues.cq_record[0] = htobe32(consumed & 0xffffff);
	return cqe;
}

/* Takes the completions of a message of `qp` and of the receive that it used, of this opcode; returns the latter. */
static struct mlx5_cqe64 take_both(int qp, uint8_t opcode)
{
	if (next_completion()->op_own >> 4 == MLX5_CQE_REQ) {
		take_completion(qp, MLX5_CQE_REQ);
		return take_completion(!qp, opcode);
	}
	struct mlx5_cqe64 cqe = take_completion(!qp, opcode);

	take_completion(qp, MLX5_CQE_REQ);
	return cqe;
}

static void fill(uint8_t *with, uint8_t *without, int seed)
{
	for (int i = 0; i < LENGTH; i++)
		with[i] = i * 7 + seed;
	memset(without, 0, sizeof(from));
}

static void check_equal(void)
{
	CHECK(!memcmp(from, to, LENGTH) && !from[LENGTH] && !to[LENGTH]);
}

/* Each kind of message from queue pair `qp` to the other. */
static void exchange(int qp, int seed)
{
	struct mlx5_cqe64 cqe;
	uint64_t found, number = seed * 0x0101010101ull;

	fill(from, to, seed);
	post(qp, MLX5_OPCODE_RDMA_WRITE, mr_from, mr_to, LENGTH);
	take_completion(qp, MLX5_CQE_REQ);
	check_equal();
	fill(to, from, seed + 1);
	post(qp, MLX5_OPCODE_RDMA_READ, mr_from, mr_to, LENGTH);
	take_completion(qp, MLX5_CQE_REQ);
	check_equal();

	fill(from, to, seed + 2);
	post_receive(!qp, mr_to);
	post(qp, MLX5_OPCODE_SEND, mr_from, NULL, LENGTH);
	cqe = take_both(qp, MLX5_CQE_RESP_SEND);
	CHECK(be32toh(cqe.byte_cnt) == LENGTH && be16toh(cqe.wqe_counter) == (uint16_t)(receives[!qp] - 1));
	check_equal();
	fill(from, to, seed + 3);
	post_receive(!qp, mr_from);
	post(qp, MLX5_OPCODE_RDMA_WRITE_IMM, mr_from, mr_to, LENGTH);
	cqe = take_both(qp, MLX5_CQE_RESP_WR_IMM);
	CHECK(be32toh(cqe.imm_inval_pkey) == IMMEDIATE);
	check_equal();

	/* Numbers in memory are in the host's order; the requester, who did not ask for that, is told a big-endian one. */
	memcpy(to, &number, sizeof(number));
	post(qp, MLX5_OPCODE_ATOMIC_FA, mr_from, mr_to, sizeof(number));
	take_completion(qp, MLX5_CQE_REQ);
	memcpy(&found, from, sizeof(found));
	CHECK(be64toh(found) == number);
	number += 5;
	CHECK(!memcmp(to, &number, sizeof(number)));
}

int main(int argc, char **argv)
{
	struct mlx5dv_pd pd_out;
	struct mlx5dv_obj what = { .pd.out = &pd_out };
	struct mlx5dv_devx_obj *cq, *qps[2];

	if (argc != 2)
		exit(2);
	open_device(argv[1]);
	struct ibv_pd *pd = ibv_alloc_pd(device);
	int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

	CHECK(pd);
	what.pd.in = pd;
	CHECK(!mlx5dv_init_obj(&what, MLX5DV_OBJ_PD));
	pdn = pd_out.pdn;
	CHECK((mr_from = ibv_reg_mr(pd, from, sizeof(from), all)) && (mr_to = ibv_reg_mr(pd, to, sizeof(to), all)));
	CHECK((uar = mlx5dv_devx_alloc_uar(device, MLX5DV_UAR_ALLOC_TYPE_NC)));
	struct mlx5dv_devx_umem *umem = mlx5dv_devx_umem_reg(device, &queues, sizeof(queues), IBV_ACCESS_LOCAL_WRITE);

	CHECK(umem);
	umem_id = umem->umem_id;
	configure_address();
	cq = create_cq();
	for (int qp = 0; qp < 2; qp++)
		qps[qp] = create_qp(qp);
	for (int qp = 0; qp < 2; qp++)
		connect_qp(qps[qp], qpns[qp], qpns[!qp]);
	/* More than one lap of the rings. */
	for (int round = 0; round < 3 * ENTRIES / 2; round++)
		exchange(round % 2, 4 * round);
	remove_address();
	for (int qp = 0; qp < 2; qp++)
		CHECK(!mlx5dv_devx_obj_destroy(qps[qp]));
	CHECK(!mlx5dv_devx_obj_destroy(cq) && !mlx5dv_devx_umem_dereg(umem));
	mlx5dv_devx_free_uar(uar);
	CHECK(!ibv_dereg_mr(mr_from) && !ibv_dereg_mr(mr_to) && !ibv_dealloc_pd(pd) && !ibv_close_device(device));
	printf("up, written, read, and down\n");
	return 0;
}
