/*
 * Causes every asynchronous event that a libibverbs program can cause by itself, between two queue pairs of one device,
 * and waits for it. `events DEVICE GID-INDEX`; exits with 0 if all arrived, and no others.
 */
#include "pair.h"

/* More sends than the small completion queue holds, but no more than a queue pair does. */
#define SENDS 48

/* Waits for the next event, which must be `expected` for the object `what`. */
static void expect_event(enum ibv_event_type expected, const void *what)
{
	struct pollfd fd = { .fd = device->async_fd, .events = POLLIN };
	struct ibv_async_event event;

	printf("waiting for %s\n", ibv_event_type_str(expected));
	fflush(stdout);
	CHECK(poll(&fd, 1, PATIENCE_MS) == 1);
	CHECK(!ibv_get_async_event(device, &event));
	/* The element's pointer is in the same place for each type of event. */
	const void *about = event.element.qp;

	ibv_ack_async_event(&event);
	if (event.event_type == expected && about == what)
		return;
	fprintf(stderr, "events: %s came%s\n", ibv_event_type_str(event.event_type),
		event.event_type == expected ? ", about something else" : "");
	exit(1);
}

/* Checks that no further event has arrived. */
static void expect_no_event(void)
{
	struct pollfd fd = { .fd = device->async_fd, .events = POLLIN };
	struct ibv_async_event event;

	if (poll(&fd, 1, 0) == 0)
		return;
	CHECK(!ibv_get_async_event(device, &event));
	fprintf(stderr, "events: %s came unasked\n", ibv_event_type_str(event.event_type));
	exit(1);
}

static void test_comm_established(void)
{
	struct pair pair = new_pair(32, NULL);

	receive(pair.qp[1]);
	post(pair.qp[0], IBV_WR_SEND, 0);
	expect_event(IBV_EVENT_COMM_EST, pair.qp[1]);
	end(&pair);
}

/* A remote key that does not exist; then a write to a queue pair without remote write access. */
static void test_refused_writes(void)
{
	struct pair pair = new_pair(32, NULL);

	to_rts(pair.qp[1]);
	post(pair.qp[0], IBV_WR_RDMA_WRITE, mr->rkey ^ 0x7fff00);
	expect_event(IBV_EVENT_QP_ACCESS_ERR, pair.qp[1]);
	end(&pair);

	pair = new_pair(32, NULL);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7 };

	CHECK(!ibv_modify_qp(pair.qp[1], &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_ACCESS_FLAGS));
	post(pair.qp[0], IBV_WR_RDMA_WRITE, mr->rkey);
	expect_event(IBV_EVENT_QP_REQ_ERR, pair.qp[1]);
	end(&pair);
}

static void test_shared_receives(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = RECEIVES, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &init);

	CHECK(srq);
	struct pair pair = new_pair(32, srq);

	to_rts(pair.qp[1]);
	for (int i = 0; i < RECEIVES; i++) {
		struct ibv_sge sge = somewhere();
		struct ibv_recv_wr *bad, wr = { .sg_list = &sge, .num_sge = 1 };

		CHECK(!ibv_post_srq_recv(srq, &wr, &bad));
	}
	struct ibv_srq_attr limit = { .srq_limit = RECEIVES - 1 };

	CHECK(!ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT));
	post(pair.qp[0], IBV_WR_SEND, 0);
	post(pair.qp[0], IBV_WR_SEND, 0);
	expect_event(IBV_EVENT_SRQ_LIMIT_REACHED, srq);

	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	CHECK(!ibv_modify_qp(pair.qp[1], &attr, IBV_QP_STATE));
	expect_event(IBV_EVENT_QP_LAST_WQE_REACHED, pair.qp[1]);
	end(&pair);
	CHECK(!ibv_destroy_srq(srq));
}

/* More completions than entries: CQ overrun. The queue pair moves to the error state. */
static void test_cq_overrun(void)
{
	struct pair pair = new_pair(3, NULL);

	to_rts(pair.qp[1]);
	for (int i = 0; i < SENDS; i++)
		post(pair.qp[0], IBV_WR_RDMA_WRITE, mr->rkey);
	expect_event(IBV_EVENT_CQ_ERR, pair.cq);
	expect_event(IBV_EVENT_QP_FATAL, pair.qp[0]);
	end(&pair);
}

int main(int argc, char **argv)
{
	open_device(argc, argv, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	test_comm_established();
	test_refused_writes();
	test_shared_receives();
	expect_no_event();
	test_cq_overrun();
	printf("all came\n");
	return 0;
}
