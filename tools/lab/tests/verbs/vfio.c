/*
 * libmlx5's VFIO driver, without a kernel driver: brings the function up, creates queues by DevX, and writes and reads
 * over a reliable connection to itself. `vfio PCI-ADDRESS`; exits with 0 on success.
 */
#include <stdint.h>

/* Definitions that mlx5_ifc.h takes from other kernel headers. */
typedef uint8_t u8;
#define BIT(number) (1 << (number))
#define BIT_ULL(number) (1ull << (number))
#define DECLARE_FLEX_ARRAY(type, name) type name[0]

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mlx5_ifc.h"

#define PATIENCE_MS 60000
#define LOG_ENTRIES 6
#define ENTRIES (1 << LOG_ENTRIES)
#define LENGTH 3000

/* Umem fields of the PRM that mlx5_ifc.h does not declare: byte offsets of dwords in the inputs. */
#define CQ_DBR_UMEM_ID (0x10 + 0x04)
#define CQ_UMEM_ID 0x58
#define QPC 0x18
#define QP_DBR_UMEM_ID (QPC + 0xe4)
/* `roce_l3_type`, `roce_version`, `rq_type`. */
#define IPV6 1
#define ROCE_V2 2
#define NO_RECEIVES 3

/* Rings and doorbell records, in one umem. */
static struct {
	uint8_t cqes[ENTRIES][64];
	uint8_t wqes[ENTRIES][64];
	__be32 cq_record[16], qp_record[16];
} queues __attribute__((aligned(4096)));
static uint8_t from[4096] __attribute__((aligned(4096))), to[4096] __attribute__((aligned(4096)));

static struct ibv_context *device;
static struct ibv_mr *mr_from, *mr_to;
static struct mlx5dv_devx_uar *uar;
static uint32_t pdn, umem_id, cqn, qpn;
static uint16_t posted;
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

static struct mlx5dv_devx_obj *create_qp(void)
{
	uint32_t input[DEVX_ST_SZ_DW(create_qp_in)] = { 0 };

	DEVX_SET(create_qp_in, input, opcode, MLX5_CMD_OP_CREATE_QP);
	DEVX_SET(create_qp_in, input, qpc.st, MLX5_QPC_ST_RC);
	DEVX_SET(create_qp_in, input, qpc.pm_state, MLX5_QPC_PM_STATE_MIGRATED);
	DEVX_SET(create_qp_in, input, qpc.pd, pdn);
	DEVX_SET(create_qp_in, input, qpc.uar_page, uar->page_id);
	DEVX_SET(create_qp_in, input, qpc.user_index, 0xffffff);
	DEVX_SET(create_qp_in, input, qpc.log_sq_size, LOG_ENTRIES);
	DEVX_SET(create_qp_in, input, qpc.rq_type, NO_RECEIVES);
	DEVX_SET(create_qp_in, input, qpc.cqn_snd, cqn);
	DEVX_SET(create_qp_in, input, qpc.cqn_rcv, cqn);
	DEVX_SET(create_qp_in, input, qpc.dbr_umem_valid, 1);
	DEVX_SET64(create_qp_in, input, qpc.dbr_addr, (uint8_t *)queues.qp_record - (uint8_t *)&queues);
	DEVX_SET64(create_qp_in, input, wq_umem_offset, (uint8_t *)queues.wqes - (uint8_t *)&queues);
	DEVX_SET(create_qp_in, input, wq_umem_id, umem_id);
	DEVX_SET(create_qp_in, input, wq_umem_valid, 1);
	set_dword(input, QP_DBR_UMEM_ID, umem_id);
	return create_object("CREATE_QP", input, sizeof(input), &qpn);
}

static void modify_qp(const char *what, struct mlx5dv_devx_obj *qp, void *input, size_t length)
{
	uint8_t output[16] = { 0 };

	if (mlx5dv_devx_obj_modify(qp, input, length, output, sizeof(output))) {
		fprintf(stderr, "%s: status %#x, syndrome %#x\n", what, output[0], be32toh(*(__be32 *)(output + 4)));
		exit(1);
	}
}

/* Moves the queue pair to RTS, connected to itself. */
static void connect_loopback(struct mlx5dv_devx_obj *qp)
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
	modify_qp("RST2INIT_QP", qp, init, sizeof(init));

	DEVX_SET(init2rtr_qp_in, rtr, opcode, MLX5_CMD_OP_INIT2RTR_QP);
	DEVX_SET(init2rtr_qp_in, rtr, qpn, qpn);
	DEVX_SET(init2rtr_qp_in, rtr, qpc.mtu, IBV_MTU_1024);
	DEVX_SET(init2rtr_qp_in, rtr, qpc.log_msg_max, 30);
	DEVX_SET(init2rtr_qp_in, rtr, qpc.remote_qpn, qpn);
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

/* Posts a write to, or a read from, `remote`. */
static void post(uint8_t opcode, struct ibv_mr *local, struct ibv_mr *remote)
{
	uint8_t *wqe = queues.wqes[posted % ENTRIES];
	struct mlx5_wqe_ctrl_seg *ctrl = (void *)wqe;
	struct mlx5_wqe_raddr_seg *raddr = (void *)(wqe + 16);
	struct mlx5_wqe_data_seg *data = (void *)(wqe + 32);

	memset(wqe, 0, 64);
	mlx5dv_set_ctrl_seg(ctrl, posted, opcode, 0, qpn, MLX5_WQE_CTRL_CQ_UPDATE, 3, 0, 0);
	raddr->raddr = htobe64((uintptr_t)remote->addr);
	raddr->rkey = htobe32(remote->rkey);
	mlx5dv_set_data_seg(data, LENGTH, local->lkey, (uintptr_t)local->addr);
	posted++;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	queues.qp_record[MLX5_SND_DBR] = htobe32(posted);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	*(volatile uint64_t *)uar->reg_addr = *(uint64_t *)wqe;
}

static void wait_completion(void)
{
	struct mlx5_cqe64 *cqe = (void *)queues.cqes[consumed % ENTRIES];
	volatile uint8_t *own = &cqe->op_own;

	for (int tries = 0; *own >> 4 == MLX5_CQE_INVALID || (*own & 1) != (consumed >> LOG_ENTRIES & 1); tries++) {
		CHECK(tries < PATIENCE_MS);
		CHECK(!mlx5dv_vfio_process_events(device));
		poll(NULL, 0, 1);
	}
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (*own >> 4 != MLX5_CQE_REQ) {
		fprintf(stderr, "opcode %#x, syndrome %#x\n", *own >> 4, ((struct mlx5_err_cqe *)cqe)->syndrome);
		exit(1);
	}
	consumed++;
	queues.cq_record[0] = htobe32(consumed & 0xffffff);
}

int main(int argc, char **argv)
{
	struct mlx5dv_pd pd_out;
	struct mlx5dv_obj what = { .pd.out = &pd_out };

	if (argc != 2)
		exit(2);
	open_device(argv[1]);
	struct ibv_pd *pd = ibv_alloc_pd(device);
	int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

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
	struct mlx5dv_devx_obj *cq = create_cq(), *qp = create_qp();

	connect_loopback(qp);
	/* More than one lap of the rings. */
	for (int round = 0; round < 2 * ENTRIES; round++) {
		for (int i = 0; i < LENGTH; i++)
			from[i] = i * 7 + round;
		memset(to, 0, sizeof(to));
		post(MLX5_OPCODE_RDMA_WRITE, mr_from, mr_to);
		wait_completion();
		CHECK(!memcmp(from, to, LENGTH) && !to[LENGTH]);
		memset(from, 0, sizeof(from));
		post(MLX5_OPCODE_RDMA_READ, mr_from, mr_to);
		wait_completion();
		CHECK(!memcmp(from, to, LENGTH) && !from[LENGTH]);
	}
	remove_address();
	CHECK(!mlx5dv_devx_obj_destroy(qp) && !mlx5dv_devx_obj_destroy(cq) && !mlx5dv_devx_umem_dereg(umem));
	mlx5dv_devx_free_uar(uar);
	CHECK(!ibv_dereg_mr(mr_from) && !ibv_dereg_mr(mr_to) && !ibv_dealloc_pd(pd) && !ibv_close_device(device));
	printf("up, written, read, and down\n");
	return 0;
}
