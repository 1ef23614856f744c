/*
 * Provokes every asynchronous event that a program on libibverbs can provoke by itself, and waits for it to come:
 * between two queue pairs of one device. `events DEVICE GID-INDEX`; ends with 0 when all came, and none besides.
 */
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Emulated processors are slow. */
#define PATIENCE_MS 60000
#define RECEIVES 8
/* More sends than the small completion queue has room for, and no more than a queue pair's. */
#define SENDS 48

static struct ibv_context *device;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static union ibv_gid gid;
static int gid_index;
static char memory[4096];

static void fail(const char *what)
{
	fprintf(stderr, "events: ");
	perror(what);
	exit(1);
}

#define CHECK(what) do { if (!(what)) fail(#what); } while (0)

/* Two queue pairs, each the other's peer. The second receives from `srq`, if there is one. */
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
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
	};
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	return qp;
}

static void to_rtr(struct ibv_qp *qp, struct ibv_qp *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qp_num, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 1 } },
	};

	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
}

static void to_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7 };

	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

/* The second one is left ready to receive: it hears, and does not speak. */
static struct pair new_pair(int entries, struct ibv_srq *srq)
{
	struct pair pair = { .cq = ibv_create_cq(device, entries, NULL, NULL, 0) };

	CHECK(pair.cq);
	pair.qp[0] = new_qp(pair.cq, NULL);
	pair.qp[1] = new_qp(pair.cq, srq);
	to_rtr(pair.qp[0], pair.qp[1]);
	to_rtr(pair.qp[1], pair.qp[0]);
	to_rts(pair.qp[0]);
	return pair;
}

static void end(struct pair *pair)
{
	CHECK(!ibv_destroy_qp(pair->qp[0]) && !ibv_destroy_qp(pair->qp[1]) && !ibv_destroy_cq(pair->cq));
}

static struct ibv_sge somewhere(void)
{
	return (struct ibv_sge){ .addr = (uintptr_t)memory, .length = 64, .lkey = mr->lkey };
}

static void receive(struct ibv_qp *qp)
{
	struct ibv_sge sge = somewhere();
	struct ibv_recv_wr *bad, wr = { .sg_list = &sge, .num_sge = 1 };

	CHECK(!ibv_post_recv(qp, &wr, &bad));
}

static void post(struct ibv_qp *qp, enum ibv_wr_opcode opcode, uint32_t rkey)
{
	struct ibv_sge sge = somewhere();
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = opcode,
		.wr.rdma = { .remote_addr = (uintptr_t)memory, .rkey = rkey },
	};

	CHECK(!ibv_post_send(qp, &wr, &bad));
}

/* The next event, which must be `expected`, about `what`. */
static void comes(enum ibv_event_type expected, const void *what)
{
	struct pollfd fd = { .fd = device->async_fd, .events = POLLIN };
	struct ibv_async_event event;

	printf("waiting for %s\n", ibv_event_type_str(expected));
	fflush(stdout);
	CHECK(poll(&fd, 1, PATIENCE_MS) == 1);
	CHECK(!ibv_get_async_event(device, &event));
	/* Whatever it is about, its address lies in the same place. */
	const void *about = event.element.qp;

	ibv_ack_async_event(&event);
	if (event.event_type == expected && about == what)
		return;
	fprintf(stderr, "events: %s came%s\n", ibv_event_type_str(event.event_type),
		event.event_type == expected ? ", about something else" : "");
	exit(1);
}

/* Nobody has asked for an event more than there were reasons. */
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

/* More completions than there is room for. Both queue pairs die of it, in whichever order. */
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
	struct ibv_device **devices = ibv_get_device_list(NULL);

	if (argc != 3 || !devices)
		return 2;
	gid_index = atoi(argv[2]);
	for (int i = 0; devices[i]; i++)
		if (!strcmp(ibv_get_device_name(devices[i]), argv[1]))
			device = ibv_open_device(devices[i]);
	CHECK(device);
	CHECK(!ibv_query_gid(device, 1, gid_index, &gid));
	CHECK((pd = ibv_alloc_pd(device)));
	CHECK((mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)));

	first_message();
	refused_writes();
	shared_receives();
	nothing_comes();
	full_completion_queue();
	printf("all came\n");
	return 0;
}
