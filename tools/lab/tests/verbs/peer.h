/*
 * A connection to another program, on libibverbs: either end may be one of our examples. The two find each other as in
 * ibv_rc_pingpong, by GID 0. Whoever includes it says in SEND_OPS what else its queue pair sends by the extended
 * interface.
 */
#include <endian.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PSN 0x123456
/* Emulated processors are slow. */
#define PATIENCE_MS 60000

#define CHECK(what) do { if (!(what)) { perror(#what); exit(1); } } while (0)

#include "meet.h"

/* The program's own, and on cache lines of their own what is sent and received. */
static struct {
	_Alignas(64) char own[4096];
	_Alignas(64) uint64_t out[2];
	_Alignas(64) uint64_t in[2];
} memory;

static struct ibv_context *device;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static union ibv_gid gid;

static struct ibv_sge at(const void *start, size_t length)
{
	return (struct ibv_sge){ .addr = (uintptr_t)start, .length = length, .lkey = mr->lkey };
}

static void post_receive(void)
{
	struct ibv_sge sge = at(memory.in, sizeof(memory.in));
	struct ibv_recv_wr *bad, wr = { .sg_list = &sge, .num_sge = 1 };

	CHECK(!ibv_post_recv(qp, &wr, &bad));
}

/* The next completion. */
static struct ibv_wc next_completion(void)
{
	struct ibv_wc wc;

	for (int tries = 0; !ibv_poll_cq(cq, 1, &wc); tries++) {
		CHECK(tries < PATIENCE_MS);
		poll(NULL, 0, 1);
	}
	return wc;
}

/* The next completion, which must be a good one of `opcode`. */
static struct ibv_wc completes(enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc = next_completion();

	if (wc.status != IBV_WC_SUCCESS || wc.opcode != opcode) {
		fprintf(stderr, "%s, of opcode %d instead of %d\n", ibv_wc_status_str(wc.status), wc.opcode, opcode);
		exit(1);
	}
	return wc;
}

/* Opens the device, registers `memory` with `access`, and creates a queue pair whose remote may do `remote`. */
static void open_device(const char *name, int access, int remote)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);

	CHECK(devices);
	for (int i = 0; devices[i]; i++)
		if (!strcmp(ibv_get_device_name(devices[i]), name))
			device = ibv_open_device(devices[i]);
	CHECK(device);
	CHECK(!ibv_query_gid(device, 1, 0, &gid));
	CHECK((pd = ibv_alloc_pd(device)));
	CHECK((mr = ibv_reg_mr(pd, &memory, sizeof(memory), access)));
	CHECK((cq = ibv_create_cq(device, 16, NULL, NULL, 0)));

	struct ibv_qp_init_attr_ex init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1, .pd = pd,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | SEND_OPS,
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1,
				    .qp_access_flags = remote };

	CHECK((qp = ibv_create_qp_ex(device, &init)));
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	post_receive();
}

static void connect_qp(uint32_t qpn, uint32_t psn, union ibv_gid to)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qpn, .rq_psn = psn,
		.min_rnr_timer = 12, .max_dest_rd_atomic = 1, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7,
		.max_rd_atomic = 1, .sq_psn = PSN,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = to, .hop_limit = 1 } },
	};

	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void tell(int peer)
{
	tell_address(peer, qp->qp_num, PSN, &gid);
}

/* Receives the other end's address, and connects to it. */
static void hear(int peer)
{
	union ibv_gid to;
	unsigned qpn, psn;

	hear_address(peer, &qpn, &psn, &to);
	connect_qp(qpn, psn, to);
}

static void send_words(uint64_t first, uint64_t second)
{
	struct ibv_sge sge = at(memory.out, sizeof(memory.out));
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };

	memory.out[0] = htobe64(first);
	memory.out[1] = htobe64(second);
	CHECK(!ibv_post_send(qp, &wr, &bad));
	completes(IBV_WC_SEND);
}

/* Waits for a client, and connects to it. */
static void accept_peer(void)
{
	int peer = accept_client();

	hear(peer);
	tell(peer);
	hear_done(peer);
}

/* Connects to the server on `host`. */
static void call_peer(const char *host)
{
	int peer = connect_server(host);

	tell(peer);
	hear(peer);
	tell_done(peer);
}
