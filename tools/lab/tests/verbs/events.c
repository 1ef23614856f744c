/*
 * Provokes every asynchronous event that a program on libibverbs can provoke by itself, and waits for it to come:
 * between two queue pairs of one device. `events DEVICE GID-INDEX`; ends with 0 when all came, and none besides.
 */
#include "pair.h"

/* More sends than the small completion queue holds, but no more than a queue pair does. */
#define SENDS 48

/* The next event, which must be `expected`, about `what`. */
static void comes(enum ibv_event_type expected, const void *what)
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

/* There are no further events. */
static void nothing_comes(void)
{
	struct pollfd fd = { .fd = device->async_fd, .events = POLLIN };
	struct ibv_async_event event;

	if (poll(&fd, 1, 0) == 0)
		return;
	CHECK(!ibv_get_async_event(device, &event));
	fprintf(stderr, "events: %s came unasked\n", ibv_event_type_str(event.event_type));
	exit(1);
}

static void first_message(void)
{
	struct pair pair = new_pair(32, NULL);

	receive(pair.qp[1]);
	post(pair.qp[0], IBV_WR_SEND, 0);
	comes(IBV_EVENT_COMM_EST, pair.qp[1]);
	end(&pair);
}

/* A remote key that does not exist, then a write without the right to write. */
static void refused_writes(void)
{
	struct pair pair = new_pair(32, NULL);

	to_rts(pair.qp[1]);
	post(pair.qp[0], IBV_WR_RDMA_WRITE, mr->rkey ^ 0x7fff00);
	comes(IBV_EVENT_QP_ACCESS_ERR, pair.qp[1]);
	end(&pair);

	pair = new_pair(32, NULL);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7 };

	CHECK(!ibv_modify_qp(pair.qp[1], &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_ACCESS_FLAGS));
	post(pair.qp[0], IBV_WR_RDMA_WRITE, mr->rkey);
	comes(IBV_EVENT_QP_REQ_ERR, pair.qp[1]);
	end(&pair);
}

static void shared_receives(void)
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
	comes(IBV_EVENT_SRQ_LIMIT_REACHED, srq);

	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	CHECK(!ibv_modify_qp(pair.qp[1], &attr, IBV_QP_STATE));
	comes(IBV_EVENT_QP_LAST_WQE_REACHED, pair.qp[1]);
	end(&pair);
	CHECK(!ibv_destroy_srq(srq));
}

/* More completions than there is room for. Both queue pairs move to the error state, in any order. */
static void full_completion_queue(void)
{
	struct pair pair = new_pair(3, NULL);

	to_rts(pair.qp[1]);
	for (int i = 0; i < SENDS; i++)
		post(pair.qp[0], IBV_WR_RDMA_WRITE, mr->rkey);
	comes(IBV_EVENT_CQ_ERR, pair.cq);
	comes(IBV_EVENT_QP_FATAL, pair.qp[0]);
	end(&pair);
}

int main(int argc, char **argv)
{
	open_device(argc, argv, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	first_message();
	refused_writes();
	shared_receives();
	nothing_comes();
	full_completion_queue();
	printf("all came\n");
	return 0;
}
