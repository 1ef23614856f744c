/*
 * Streams of a DC initiator: one that waits or fails stops no other, one in error is reset, enough of them put the
 * initiator into error. `streams DEVICE GID-INDEX`; exits with 0 if all that holds.
 */
#include "dc.h"
#include <errno.h>

#define LOG_CHANNELS 2
#define LOG_ERRORED 1

static struct ibv_cq *cq;
static struct ibv_ah *ah;

static void receive_of(struct target *target)
{
	struct ibv_sge sge = somewhere();
	struct ibv_recv_wr *bad, wr = { .sg_list = &sge, .num_sge = 1 };

	CHECK(!ibv_post_srq_recv(target->srq, &wr, &bad));
}

static enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	CHECK(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
	return attr.qp_state;
}

/* Sends 64 bytes by `stream`, or writes them to `remote`. */
static void post_by(struct ibv_qp *qp, struct target *to, uint64_t key, uint16_t stream, void *remote)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);

	ibv_wr_start(ex);
	ex->wr_id = stream;
	if (remote)
		ibv_wr_rdma_write(ex, mr->rkey, (uintptr_t)remote);
	else
		ibv_wr_send(ex);
	mlx5dv_wr_set_dc_addr_stream(mlx5dv_qp_ex_from_ibv_qp_ex(ex), ah, to->qp->qp_num, key, stream);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory, 64);
	CHECK(!ibv_wr_complete(ex));
}

/* The next completion is of `stream` and `expected`. */
static void ends(uint16_t stream, enum ibv_wc_status expected)
{
	struct pair pair = { .cq = cq };
	struct ibv_wc wc = ends_in(&pair, expected);

	CHECK(wc.wr_id == stream);
}

static void waits_alone(struct ibv_qp *qp, struct target *busy, struct target *idle)
{
	volatile char *remote = memory + 2048;
	struct ibv_wc wc;

	memory[0] = 42;
	post_by(qp, idle, KEY, 1, NULL);
	post_by(qp, busy, KEY, 2, (void *)remote);
	for (int tries = 0; *remote != 42; tries++) {
		CHECK(tries < PATIENCE_MS);
		poll(NULL, 0, 1);
	}
	/* Completions come in the order of the send queue. */
	CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
	receive_of(idle);
	ends(1, IBV_WC_SUCCESS);
	ends(2, IBV_WC_SUCCESS);
}

static void fails_alone(struct ibv_qp *qp, struct target *target)
{
	post_by(qp, target, KEY + 1, 1, NULL);
	post_by(qp, target, KEY, 1, memory + 1024);
	/* It shares a channel with 1. */
	post_by(qp, target, KEY, 1 + (1 << LOG_CHANNELS), memory + 1024);
	post_by(qp, target, KEY, 2, memory + 1024);
	ends(1, IBV_WC_REM_ACCESS_ERR);
	ends(1, IBV_WC_WR_FLUSH_ERR);
	ends(1 + (1 << LOG_CHANNELS), IBV_WC_SUCCESS);
	ends(2, IBV_WC_SUCCESS);
	CHECK(state_of(qp) == IBV_QPS_RTS);
	CHECK(!mlx5dv_dci_stream_id_reset(qp, 1));
	post_by(qp, target, KEY, 1, memory + 1024);
	ends(1, IBV_WC_SUCCESS);
}

static void fail_together(struct ibv_qp *qp, struct target *target)
{
	for (uint16_t stream = 0; stream < 1 << LOG_ERRORED; stream++) {
		CHECK(state_of(qp) == IBV_QPS_RTS);
		post_by(qp, target, KEY + 1, stream, NULL);
		ends(stream, IBV_WC_REM_ACCESS_ERR);
	}
	CHECK(state_of(qp) == IBV_QPS_ERR);
	post_by(qp, target, KEY, 9, memory + 1024);
	ends(9, IBV_WC_WR_FLUSH_ERR);
	CHECK(!ibv_modify_qp(qp, &(struct ibv_qp_attr){ .qp_state = IBV_QPS_RESET }, IBV_QP_STATE));
	start(qp);
	post_by(qp, target, KEY, 1, memory + 1024);
	ends(1, IBV_WC_SUCCESS);
}

int main(int argc, char **argv)
{
	struct mlx5dv_context caps = { .comp_mask = MLX5DV_CONTEXT_MASK_DCI_STREAMS };

	open_dc(argc, argv, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(!mlx5dv_query_device(device, &caps) && caps.dci_streams_caps.max_log_num_concurent >= LOG_CHANNELS);
	CHECK(caps.dci_streams_caps.max_log_num_errored >= LOG_ERRORED);
	CHECK((ah = ibv_create_ah(pd, &path)) && (cq = ibv_create_cq(device, SENDS, NULL, NULL, 0)));
	struct target busy = new_target(IBV_ACCESS_REMOTE_WRITE), idle = new_target(IBV_ACCESS_REMOTE_WRITE);
	struct mlx5dv_dci_streams streams = { .log_num_concurent = LOG_CHANNELS, .log_num_errored = LOG_ERRORED };
	struct ibv_qp *qp = create_initiator(cq, MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS, streams);
	struct ibv_qp *plain = create_initiator(cq, 0, (struct mlx5dv_dci_streams){});

	CHECK(qp && plain);
	start(qp);
	start(plain);
	waits_alone(qp, &busy, &idle);
	fails_alone(qp, &busy);
	fail_together(qp, &busy);
	/* One without streams is in error at once, and has none to reset. */
	CHECK(mlx5dv_dci_stream_id_reset(plain, 1));
	post_by(plain, &busy, KEY + 1, 1, NULL);
	ends(1, IBV_WC_REM_ACCESS_ERR);
	CHECK(state_of(plain) == IBV_QPS_ERR);
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_qp(plain) && !ibv_destroy_qp(busy.qp) && !ibv_destroy_qp(idle.qp));
	printf("each stream for itself\n");
	return 0;
}
