/*
 * Two connected queue pairs of one device, and calls to post to them.
 */
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Emulated processors are slow. */
#define PATIENCE_MS 60000
#define RECEIVES 8

static struct ibv_context *device;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static union ibv_gid gid;
static int gid_index;
static char memory[4096];

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

#define CHECK(what) do { if (!(what)) fail(#what); } while (0)

struct pair {
	struct ibv_cq *cq;
	struct ibv_qp *qp[2];
};

static struct ibv_qp *new_qp(struct ibv_cq *cq, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = 64, .max_recv_wr = srq ? 0 : RECEIVES, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	CHECK(qp);
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1,
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	return qp;
}

static void to_rtr(struct ibv_qp *qp, struct ibv_qp *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qp_num, .min_rnr_timer = 12,
		.max_dest_rd_atomic = 1,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 1 } },
	};

	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
}

static void to_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1,
	};

	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

/* Both complete in `cq`. The second one stays in RTR: it receives only. */
static struct pair new_pair_on(struct ibv_cq *cq, struct ibv_srq *srq)
{
	struct pair pair = { .cq = cq };

	CHECK(pair.cq);
	pair.qp[0] = new_qp(pair.cq, NULL);
	pair.qp[1] = new_qp(pair.cq, srq);
	to_rtr(pair.qp[0], pair.qp[1]);
	to_rtr(pair.qp[1], pair.qp[0]);
	to_rts(pair.qp[0]);
	return pair;
}

/* The second one receives from `srq`, if not NULL. */
static inline struct pair new_pair(int entries, struct ibv_srq *srq)
{
	return new_pair_on(ibv_create_cq(device, entries, NULL, NULL, 0), srq);
}

static inline void end(struct pair *pair)
{
	CHECK(!ibv_destroy_qp(pair->qp[0]) && !ibv_destroy_qp(pair->qp[1]) && !ibv_destroy_cq(pair->cq));
}

static struct ibv_sge somewhere(void)
{
	return (struct ibv_sge){ .addr = (uintptr_t)memory, .length = 64, .lkey = mr->lkey };
}

static inline void receive(struct ibv_qp *qp)
{
	struct ibv_sge sge = somewhere();
	struct ibv_recv_wr *bad, wr = { .sg_list = &sge, .num_sge = 1 };

	CHECK(!ibv_post_recv(qp, &wr, &bad));
}

/* Sends 64 bytes of `memory`, writes them to `remote`, or reads them from there. */
static inline void post_to(struct ibv_qp *qp, enum ibv_wr_opcode opcode, uint64_t remote, uint32_t rkey)
{
	struct ibv_sge sge = somewhere();
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = opcode,
		.wr.rdma = { .remote_addr = remote, .rkey = rkey },
	};

	CHECK(!ibv_post_send(qp, &wr, &bad));
}

static inline void post(struct ibv_qp *qp, enum ibv_wr_opcode opcode, uint32_t rkey)
{
	post_to(qp, opcode, (uintptr_t)memory, rkey);
}

static inline struct ibv_wc next_completion(struct pair *pair)
{
	struct ibv_wc wc;
	int found;

	for (int tries = 0; !(found = ibv_poll_cq(pair->cq, 1, &wc)); tries++) {
		CHECK(tries < PATIENCE_MS);
		poll(NULL, 0, 1);
	}
	CHECK(found == 1);
	return wc;
}

/* The next completion of `pair`; its status must be `expected`. */
static inline struct ibv_wc ends_in(struct pair *pair, enum ibv_wc_status expected)
{
	struct ibv_wc wc = next_completion(pair);

	if (wc.status != expected) {
		fprintf(stderr, "%s instead of %s\n", ibv_wc_status_str(wc.status), ibv_wc_status_str(expected));
		exit(1);
	}
	return wc;
}

/* Opens device argv[1], reads its GID at index argv[2], and registers `memory`. */
static void open_device(int argc, char **argv, int access)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);

	if (argc != 3 || !devices)
		exit(2);
	gid_index = atoi(argv[2]);
	for (int i = 0; devices[i]; i++)
		if (!strcmp(ibv_get_device_name(devices[i]), argv[1]))
			device = ibv_open_device(devices[i]);
	CHECK(device);
	CHECK(!ibv_query_gid(device, 1, gid_index, &gid));
	CHECK((pd = ibv_alloc_pd(device)));
	CHECK((mr = ibv_reg_mr(pd, memory, sizeof(memory), access)));
}
