/*
 * Cost of posting and polling with libibverbs and libmlx5: `verbs DEVICE`.
 *
 * Does the same as ours.rs, in the same order, and prints the same lines: "row api instructions-per-operation". The
 * time stamp counter serves as an instruction counter, as it does under QEMU's -icount.
 *
 * The fastest that libmlx5 offers: a thread domain, completion queues of a single thread, inline data; run it with
 * MLX5_SINGLE_THREADED=1. It copies work requests by BlueFlame, unless MLX5_SHUT_UP_BF=1. The constant parts of work
 * requests are filled in before anything is counted.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <infiniband/mlx5dv.h>
#include <time.h>
#include <unistd.h>

#include "../common/ticks.h"
#include "../common/verbs.h"

enum {
	POSTS = 64,    /* work requests of a round */
	REQUESTS = 16, /* different ones, used in turn */
	BYTES = 64,    /* of a message */
	WARM_UP = 3,
	ROUNDS = 15,
	DEPTH = 128,
	PATIENCE = 60, /* seconds */
	GRH = 40,      /* bytes before the data of a datagram received */
	QKEY = 0x11111111,
	ACCESS_KEY = 0x1234567, /* of a dynamically connected target */
	ETHERTYPE = 0x88b5, /* of frames: one for experiments */
	REMOTE = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
};

enum op {
	WRITE_INLINE, WRITE, SEND_INLINE, SEND, READ, FETCH_ADD, COMPARE_SWAP, UD_INLINE, UD, FRAME_INLINE, FRAME,
	DC_INLINE, DC, XRC_INLINE, XRC, OPS
};

static const char *const names[OPS] = { "write_inline", "write", "send_inline", "send", "read", "fetch_add",
					"compare_swap", "ud_inline", "ud", "frame_inline", "frame", "dc_inline", "dc",
					"xrc_inline", "xrc" };

/* One message: source and destination. */
struct request {
	uint64_t remote, local;
	uint32_t rkey, lkey;
	struct ibv_ah *ah;
	uint32_t qpn;
	void *data;
};

static struct request requests[REQUESTS];
/* The queues in use: RC, whose receives may be shared, UD, or frames, which a work queue receives. */
static struct ibv_qp *sender, *receiver;
static struct ibv_wq *work_queue;
static struct ibv_srq *shared;
static uint32_t srqn; /* that XRC messages name */
static struct ibv_cq_ex *sent, *received;
static uint64_t nothing; /* ticks between two reads of the counter */
static useconds_t pause_us = 1000;
static volatile uint64_t sink;

/* The classic interface: a list of structures, with the variable fields set for each work request. */

static struct ibv_send_wr send_list[POSTS];
static struct ibv_recv_wr recv_list[POSTS];
static struct ibv_sge send_sges[POSTS], recv_sges[POSTS];

ALWAYS int is_inline(enum op op)
{
	return op == WRITE_INLINE || op == SEND_INLINE || op == UD_INLINE || op == FRAME_INLINE || op == DC_INLINE ||
	       op == XRC_INLINE;
}

ALWAYS int is_datagram(enum op op)
{
	return op == UD_INLINE || op == UD;
}

ALWAYS int is_frame(enum op op)
{
	return op == FRAME_INLINE || op == FRAME;
}

ALWAYS int is_dynamic(enum op op)
{
	return op == DC_INLINE || op == DC;
}

ALWAYS int is_extended(enum op op)
{
	return op == XRC_INLINE || op == XRC;
}

ALWAYS int is_rdma(enum op op)
{
	return op == WRITE_INLINE || op == WRITE || op == READ || is_dynamic(op);
}

ALWAYS int is_atomic(enum op op)
{
	return op == FETCH_ADD || op == COMPARE_SWAP;
}

static void prepare(enum op op, unsigned batch)
{
	static const enum ibv_wr_opcode opcodes[OPS] = {
		[WRITE_INLINE] = IBV_WR_RDMA_WRITE, [WRITE] = IBV_WR_RDMA_WRITE, [SEND_INLINE] = IBV_WR_SEND,
		[SEND] = IBV_WR_SEND, [READ] = IBV_WR_RDMA_READ, [FETCH_ADD] = IBV_WR_ATOMIC_FETCH_AND_ADD,
		[COMPARE_SWAP] = IBV_WR_ATOMIC_CMP_AND_SWP, [UD_INLINE] = IBV_WR_SEND, [UD] = IBV_WR_SEND,
		[FRAME_INLINE] = IBV_WR_SEND, [FRAME] = IBV_WR_SEND, [DC_INLINE] = IBV_WR_RDMA_WRITE,
		[DC] = IBV_WR_RDMA_WRITE, [XRC_INLINE] = IBV_WR_SEND, [XRC] = IBV_WR_SEND,
	};

	memset(send_list, 0, sizeof(send_list));
	for (unsigned i = 0; i < POSTS; i++) {
		int last = i % batch == batch - 1;

		send_sges[i].length = is_atomic(op) ? sizeof(uint64_t) : BYTES;
		recv_sges[i].length = is_datagram(op) ? GRH + BYTES : BYTES;
		send_sges[i].lkey = recv_sges[i].lkey = requests[0].lkey;
		send_list[i].sg_list = &send_sges[i];
		send_list[i].num_sge = 1;
		send_list[i].opcode = opcodes[op];
		send_list[i].next = last ? NULL : &send_list[i + 1];
		if (is_rdma(op))
			send_list[i].wr.rdma.rkey = requests[0].rkey;
		if (is_atomic(op)) {
			send_list[i].wr.atomic.rkey = requests[0].rkey;
			send_list[i].wr.atomic.compare_add = 1;
			send_list[i].wr.atomic.swap = 2;
		}
		if (is_datagram(op))
			send_list[i].wr.ud.remote_qkey = QKEY;
		if (is_extended(op))
			send_list[i].qp_type.xrc.remote_srqn = srqn;
		recv_list[i].sg_list = &recv_sges[i];
		recv_list[i].num_sge = 1;
		recv_list[i].next = last ? NULL : &recv_list[i + 1];
	}
}

ALWAYS uint64_t post_classic(enum op op, unsigned batch, unsigned unsignalled)
{
	uint64_t start = ticks();

	for (unsigned first = 0; first < POSTS; first += batch) {
		struct ibv_send_wr *bad;

		for (unsigned i = first; i < first + batch; i++) {
			const struct request *request = &requests[i % REQUESTS];
			struct ibv_send_wr *wr = &send_list[i - first];

			wr->wr_id = i;
			wr->send_flags = (i & unsignalled) == unsignalled ? IBV_SEND_SIGNALED : 0;
			if (is_inline(op))
				wr->send_flags |= IBV_SEND_INLINE;
			send_sges[i - first].addr = is_inline(op) ? (uintptr_t)request->data : request->local;
			if (is_rdma(op))
				wr->wr.rdma.remote_addr = request->remote;
			if (is_atomic(op))
				wr->wr.atomic.remote_addr = request->remote;
			if (is_datagram(op)) {
				wr->wr.ud.ah = request->ah;
				wr->wr.ud.remote_qpn = request->qpn;
			}
		}
		CHECK(!ibv_post_send(sender, send_list, &bad));
	}
	return ticks() - start;
}

/* The extended interface: one call for each property of a work request. */
ALWAYS uint64_t post_wr(enum op op, unsigned batch, unsigned unsignalled)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(sender);
	struct mlx5dv_qp_ex *dc = is_dynamic(op) ? mlx5dv_qp_ex_from_ibv_qp_ex(qp) : NULL;
	uint64_t start = ticks();

	for (unsigned first = 0; first < POSTS; first += batch) {
		ibv_wr_start(qp);
		for (unsigned i = first; i < first + batch; i++) {
			const struct request *request = &requests[i % REQUESTS];

			qp->wr_id = i;
			qp->wr_flags = (i & unsignalled) == unsignalled ? IBV_SEND_SIGNALED : 0;
			if (op == WRITE || op == WRITE_INLINE || is_dynamic(op))
				ibv_wr_rdma_write(qp, request->rkey, request->remote);
			else if (op == READ)
				ibv_wr_rdma_read(qp, request->rkey, request->remote);
			else if (op == FETCH_ADD)
				ibv_wr_atomic_fetch_add(qp, request->rkey, request->remote, 1);
			else if (op == COMPARE_SWAP)
				ibv_wr_atomic_cmp_swp(qp, request->rkey, request->remote, 1, 2);
			else
				ibv_wr_send(qp);
			if (is_datagram(op))
				ibv_wr_set_ud_addr(qp, request->ah, request->qpn, QKEY);
			if (is_extended(op))
				ibv_wr_set_xrc_srqn(qp, srqn);
			if (is_dynamic(op))
				mlx5dv_wr_set_dc_addr(dc, request->ah, request->qpn, ACCESS_KEY);
			if (is_inline(op))
				ibv_wr_set_inline_data(qp, request->data, BYTES);
			else
				ibv_wr_set_sge(qp, request->lkey, request->local, is_atomic(op) ? sizeof(uint64_t) : BYTES);
		}
		CHECK(!ibv_wr_complete(qp));
	}
	return ticks() - start;
}

enum receiver { OF_QP, OF_WQ, OF_SRQ };

ALWAYS uint64_t receives(enum receiver of, unsigned batch)
{
	uint64_t start = ticks();

	for (unsigned first = 0; first < POSTS; first += batch) {
		struct ibv_recv_wr *bad;

		for (unsigned i = first; i < first + batch; i++) {
			recv_list[i - first].wr_id = i;
			recv_sges[i - first].addr = requests[i % REQUESTS].remote;
		}
		CHECK(!(of == OF_WQ ? ibv_post_wq_recv(work_queue, recv_list, &bad) :
			of == OF_SRQ ? ibv_post_srq_recv(shared, recv_list, &bad) :
				       ibv_post_recv(receiver, recv_list, &bad)));
	}
	return ticks() - start;
}

static __attribute__((noinline)) uint64_t receives_of_qp(unsigned batch)
{
	return receives(OF_QP, batch);
}

static __attribute__((noinline)) uint64_t receives_of_wq(unsigned batch)
{
	return receives(OF_WQ, batch);
}

static __attribute__((noinline)) uint64_t receives_of_srq(unsigned batch)
{
	return receives(OF_SRQ, batch);
}

/* The receiver in use. */
static uint64_t (*post_receives)(unsigned batch) = receives_of_qp;

typedef uint64_t (*post_function)(unsigned batch, unsigned unsignalled);

#define POST(api, op) \
	static __attribute__((noinline)) uint64_t api##_##op(unsigned batch, unsigned unsignalled) \
	{ \
		return post_##api(op, batch, unsignalled); \
	}

#define POSTS_OF(api) \
	POST(api, WRITE_INLINE) POST(api, WRITE) POST(api, SEND_INLINE) POST(api, SEND) POST(api, READ) \
	POST(api, FETCH_ADD) POST(api, COMPARE_SWAP) POST(api, UD_INLINE) POST(api, UD) POST(api, FRAME_INLINE) POST(api, FRAME) \
	POST(api, DC_INLINE) POST(api, DC) POST(api, XRC_INLINE) POST(api, XRC) \
	static const post_function api[OPS] = { api##_WRITE_INLINE, api##_WRITE, api##_SEND_INLINE, api##_SEND, api##_READ, \
						api##_FETCH_ADD, api##_COMPARE_SWAP, api##_UD_INLINE, api##_UD, \
						api##_FRAME_INLINE, api##_FRAME, api##_DC_INLINE, api##_DC, api##_XRC_INLINE, api##_XRC };

/* The classic interface has no dynamic connections: those two are not called. */
POSTS_OF(classic)
POSTS_OF(wr)

/* Polls: ticks of POSTS completions, 0 if one was not there yet, or failed; then `polled` is the number of others. */

static int polled;

static __attribute__((noinline)) uint64_t poll_classic(struct ibv_cq_ex *cq, int width)
{
	struct ibv_cq *classic_cq = ibv_cq_ex_to_cq(cq);
	struct ibv_wc wcs[16];
	uint64_t sum = 0, start = ticks();

	for (int left = POSTS; left > 0; left -= width) {
		int found = ibv_poll_cq(classic_cq, width, wcs);

		if (found != width) {
			polled = POSTS - left + found;
			return 0;
		}
		for (int i = 0; i < width; i++) {
			if (wcs[i].status != IBV_WC_SUCCESS)
				return 0;
			sum += wcs[i].wr_id + wcs[i].byte_len;
		}
	}
	sink = sum;
	return ticks() - start;
}

static __attribute__((noinline)) uint64_t poll_ex(struct ibv_cq_ex *cq, int width)
{
	struct ibv_poll_cq_attr attr = { 0 };
	uint64_t sum = 0, start = ticks();
	int left = POSTS, i = 0;

	for (; left > 0; left -= width) {
		i = 0;
		if (ibv_start_poll(cq, &attr))
			goto none;
		for (i = 1;; i++) {
			if (cq->status != IBV_WC_SUCCESS)
				goto incomplete;
			sum += cq->wr_id + ibv_wc_read_byte_len(cq);
			if (i == width)
				break;
			if (ibv_next_poll(cq))
				goto incomplete;
		}
		ibv_end_poll(cq);
	}
	sink = sum;
	return ticks() - start;
incomplete:
	ibv_end_poll(cq);
none:
	polled = POSTS - left + i;
	return 0;
}

typedef uint64_t (*poll_function)(struct ibv_cq_ex *cq, int width);

/* Work between the measured parts. */

/* Waits for a completion: its work request. */
static uint64_t drain_one(struct ibv_cq_ex *cq)
{
	time_t deadline = time(NULL) + PATIENCE;
	struct ibv_wc wc;
	int count;

	while (!(count = ibv_poll_cq(ibv_cq_ex_to_cq(cq), 1, &wc))) {
		CHECK(time(NULL) < deadline);
		usleep(100);
	}
	if (count < 0 || wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "verbs: a completion says %s\n", ibv_wc_status_str(wc.status));
		exit(1);
	}
	return wc.wr_id;
}

/* Polls until work request `last` has completed. */
static void drain(struct ibv_cq_ex *cq, uint64_t last)
{
	while (drain_one(cq) != last)
		;
}

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* The median of all rounds, for each operation. */
static void report(const char *row, const char *api, uint64_t *samples)
{
	qsort(samples, ROUNDS, sizeof(*samples), by_size);
	printf("%s %s %.2f\n", row, api, (double)(samples[ROUNDS / 2] - nothing) / POSTS);
	fflush(stdout);
}

static void measure_post(enum op op, unsigned batch, unsigned signal, const char *api, post_function post)
{
	uint64_t samples[WARM_UP + ROUNDS];
	int receives = !is_rdma(op) && !is_atomic(op);
	char row[64];

	prepare(op, batch);
	for (int round = 0; round < WARM_UP + ROUNDS; round++) {
		if (receives)
			post_receives(batch);
		samples[round] = post(batch, signal - 1);
		drain(sent, POSTS - 1);
		if (receives)
			drain(received, POSTS - 1);
	}
	snprintf(row, sizeof(row), "%s/%u/%u", names[op], batch, signal);
	report(row, api, samples + WARM_UP);
}

/* Receives, each used by an `op`. */
static void measure_receive(enum op op, const char *name, unsigned batch)
{
	uint64_t samples[WARM_UP + ROUNDS];
	char row[64];

	prepare(op, batch);
	for (int round = 0; round < WARM_UP + ROUNDS; round++) {
		samples[round] = post_receives(batch);
		wr[op](64, 0);
		drain(sent, POSTS - 1);
		drain(received, POSTS - 1);
	}
	snprintf(row, sizeof(row), "%s/%u", name, batch);
	report(row, "classic", samples + WARM_UP);
}

/* Completions of each `op`, on one side. Rounds in which one is late do not count. */
static void measure_poll(enum op op, const char *name, struct ibv_cq_ex *cq, int width, const char *api,
			 poll_function poll)
{
	uint64_t samples[WARM_UP + ROUNDS];
	time_t deadline = time(NULL) + PATIENCE;
	char row[64];

	for (int round = 0; round < WARM_UP + ROUNDS;) {
		prepare(op, 1);
		post_receives(1);
		wr[op](64, 0);
		usleep(pause_us);
		samples[round] = poll(cq, width);
		if (samples[round]) {
			round++;
		} else {
			CHECK(time(NULL) < deadline);
			drain(cq, POSTS - 1);
			pause_us *= pause_us < 100000 ? 2 : 1;
		}
		drain(cq == sent ? received : sent, POSTS - 1);
	}
	snprintf(row, sizeof(row), "%s/%d", name, width);
	report(row, api, samples + WARM_UP);
}

/* Set-up. */

static struct ibv_cq_ex *create_cq(struct ibv_context *context)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 2 * POSTS,
		.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_QP_NUM,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
		.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
	};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(context, &attr);

	CHECK(cq);
	return cq;
}

static struct ibv_qp *create_qp(struct ibv_context *context, struct ibv_pd *pd, enum ibv_qp_type type, unsigned depth)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = ibv_cq_ex_to_cq(sent),
		.recv_cq = ibv_cq_ex_to_cq(received),
		.cap = { .max_send_wr = depth, .max_recv_wr = depth, .max_send_sge = 1, .max_recv_sge = 1,
			 .max_inline_data = BYTES },
		.srq = shared,
		.qp_type = type,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};
	struct ibv_qp *qp;

	if (type == IBV_QPT_RC)
		attr.send_ops_flags |= IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ |
				       IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP;
	qp = ibv_create_qp_ex(context, &attr);
	CHECK(qp);
	return qp;
}

/* The first GID that is an IPv4 address: the kernel has a route to itself. */
static int ipv4_gid(struct ibv_context *context, union ibv_gid *gid)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	for (int index = 0; !ibv_query_gid(context, 1, index, gid); index++)
		if (!memcmp(gid->raw, mapped, sizeof(mapped)))
			return index;
	fail("a GID that is an IPv4 address");
	return -1;
}

static void connect_qp(struct ibv_context *context, struct ibv_qp *qp, uint32_t to)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1,
				    .qp_access_flags = REMOTE };

	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_1024;
	attr.dest_qp_num = to;
	attr.max_dest_rd_atomic = 16;
	attr.min_rnr_timer = 12;
	attr.ah_attr.is_global = 1;
	attr.ah_attr.grh.hop_limit = 64;
	attr.ah_attr.port_num = 1;
	attr.ah_attr.grh.sgid_index = ipv4_gid(context, &attr.ah_attr.grh.dgid);
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	attr.max_rd_atomic = 16;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				       IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void activate_datagrams(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };

	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	attr.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
}

static void activate_frames(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT));
	attr.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
}

/* The address handle of our own port. */
static struct ibv_ah *create_ah(struct ibv_context *context, struct ibv_pd *pd)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh.hop_limit = 64 };
	struct ibv_ah *ah;

	attr.grh.sgid_index = ipv4_gid(context, &attr.grh.dgid);
	ah = ibv_create_ah(pd, &attr);
	CHECK(ah);
	return ah;
}

/* A protection domain for one thread, with a doorbell register of its own. */
static struct ibv_pd *thread_s_own(struct ibv_context *context, struct ibv_pd *pd)
{
	struct ibv_td_init_attr td_attr = { 0 };
	struct ibv_parent_domain_init_attr attr = { .pd = pd, .td = ibv_alloc_td(context, &td_attr) };
	struct ibv_pd *own;

	CHECK(attr.td);
	own = ibv_alloc_parent_domain(context, &attr);
	CHECK(own);
	return own;
}

static struct ibv_context *context;
static struct ibv_pd *own;

static void set_up(const char *device)
{
	struct ibv_pd *pd;
	struct ibv_ah *ah;
	struct ibv_mr *mr;
	char *memory;

	context = open_device(device);
	CHECK(context);
	pd = ibv_alloc_pd(context);
	CHECK(pd);
	own = thread_s_own(context, pd);
	ah = create_ah(context, pd);
	memory = aligned_alloc(4096, 4096);
	CHECK(memory);
	for (int i = 0; i < 4096; i++)
		memory[i] = i;
	mr = ibv_reg_mr(pd, memory, 4096, IBV_ACCESS_LOCAL_WRITE | REMOTE);
	CHECK(mr);
	for (int i = 0; i < REQUESTS; i++)
		requests[i] = (struct request){
			.local = (uintptr_t)memory + i * BYTES,
			.remote = (uintptr_t)memory + 2048 + i * BYTES,
			.lkey = mr->lkey,
			.rkey = mr->rkey,
			.ah = ah,
			.data = memory + i * BYTES,
		};
	sent = create_cq(context);
	received = create_cq(context);
}

static void use_connection(void)
{
	sender = create_qp(context, own, IBV_QPT_RC, DEPTH);
	receiver = create_qp(context, own, IBV_QPT_RC, DEPTH);
	connect_qp(context, sender, receiver->qp_num);
	connect_qp(context, receiver, sender->qp_num);
}

/* Receives shared by the queue pairs that are made from now on. */
static void use_shared_receives(void)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = DEPTH - 1, .max_sge = 1 } };

	shared = ibv_create_srq(own, &attr);
	CHECK(shared);
	use_connection();
	post_receives = receives_of_srq;
}

static void use_datagrams(void)
{
	shared = NULL;
	post_receives = receives_of_qp;
	sender = create_qp(context, own, IBV_QPT_UD, DEPTH);
	receiver = create_qp(context, own, IBV_QPT_UD, DEPTH);
	activate_datagrams(sender);
	activate_datagrams(receiver);
	for (int i = 0; i < REQUESTS; i++)
		requests[i].qpn = receiver->qp_num;
}

/* This port's MAC address, from which its first GID is made. */
static void own_mac(uint8_t mac[6])
{
	union ibv_gid gid;

	CHECK(!ibv_query_gid(context, 1, 0, &gid));
	memcpy(mac, gid.raw + 8, 3);
	memcpy(mac + 3, gid.raw + 13, 3);
	mac[0] ^= 2;
}

/* A work queue, which takes less than a queue pair's receives, and the queue pair by which frames reach it: also
 * this process's own. */
static struct ibv_qp *create_work_queue(void)
{
	static uint8_t key[40];
	struct ibv_wq_init_attr wq_attr = { .wq_type = IBV_WQT_RQ, .max_wr = DEPTH, .max_sge = 1, .pd = own,
					    .cq = ibv_cq_ex_to_cq(received) };
	struct ibv_wq_attr ready = { .attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RDY };
	struct ibv_rwq_ind_table_init_attr table_attr = { .ind_tbl = &work_queue };
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RAW_PACKET,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH,
		.pd = own,
		.rx_hash_conf = { .rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ, .rx_hash_key_len = sizeof(key),
				  .rx_hash_key = key },
	};
	struct mlx5dv_qp_init_attr own_too = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS,
		.create_flags = MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_UC,
	};
	struct ibv_qp *qp;

	work_queue = ibv_create_wq(context, &wq_attr);
	CHECK(work_queue);
	CHECK(!ibv_modify_wq(work_queue, &ready));
	attr.rwq_ind_tbl = ibv_create_rwq_ind_table(context, &table_attr);
	CHECK(attr.rwq_ind_tbl);
	qp = mlx5dv_create_qp(context, &attr, &own_too);
	CHECK(qp);
	return qp;
}

/* From now on frames of the type that come to `mac` are for `qp`. */
static void steer(struct ibv_qp *qp, const uint8_t mac[6])
{
	struct {
		struct ibv_flow_attr attr;
		struct ibv_flow_spec_eth eth;
	} rule = {
		.attr = { .type = IBV_FLOW_ATTR_NORMAL, .size = sizeof(rule), .num_of_specs = 1, .port = 1 },
		.eth = { .type = IBV_FLOW_SPEC_ETH, .size = sizeof(rule.eth), .val.ether_type = htons(ETHERTYPE),
			 .mask.ether_type = 0xffff },
	};

	memcpy(rule.eth.val.dst_mac, mac, 6);
	memset(rule.eth.mask.dst_mac, 0xff, 6);
	CHECK(ibv_create_flow(qp, &rule.attr));
}

/* Builds frames to this port in memory. */
static void use_frames(void)
{
	uint16_t type = htons(ETHERTYPE);
	uint8_t mac[6];

	own_mac(mac);
	for (int i = 0; i < REQUESTS; i++) {
		memcpy(requests[i].data, mac, 6);
		memcpy((uint8_t *)requests[i].data + 6, mac, 6);
		memcpy((uint8_t *)requests[i].data + 12, &type, sizeof(type));
	}
	sender = create_qp(context, own, IBV_QPT_RAW_PACKET, DEPTH);
	activate_frames(sender);
	steer(create_work_queue(), mac);
	post_receives = receives_of_wq;
}

#include "dynamic.h"
#include "extended.h"
#include "keys.h"
#include "many.h"
#include "hub.h"

static void measure_posts(enum op first, enum op last)
{
	static const unsigned batches[] = { 1, 4, 16, 64 };

	for (int op = first; op <= (int)last; op++)
		for (int batch = 0; batch < 4; batch++)
			for (unsigned signal = 1; signal <= POSTS; signal *= POSTS) {
				if (!is_dynamic(op))
					measure_post(op, batches[batch], signal, "classic", classic[op]);
				measure_post(op, batches[batch], signal, "wr", wr[op]);
			}
}

static void measure_receives(enum op op, const char *name)
{
	for (unsigned batch = 1; batch <= POSTS; batch *= 4)
		measure_receive(op, name, batch);
}

static void measure_polls(enum op op, const char *name, struct ibv_cq_ex *cq)
{
	for (int width = 1; width <= 16; width *= 16) {
		measure_poll(op, name, cq, width, "classic", poll_classic);
		measure_poll(op, name, cq, width, "wr", poll_ex);
	}
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: verbs DEVICE\n");
		return 2;
	}
	set_up(argv[1]);
	nothing = ticks();
	nothing = ticks() - nothing;
	use_connection();
	measure_posts(WRITE_INLINE, COMPARE_SWAP);
	measure_receives(SEND, "receive");
	measure_polls(SEND, "poll_send", sent);
	measure_polls(SEND, "poll_receive", received);
	use_shared_receives();
	measure_receives(SEND, "receive_shared");
	measure_polls(SEND, "poll_receive_shared", received);
	use_datagrams();
	measure_posts(UD_INLINE, UD);
	use_frames();
	measure_posts(FRAME_INLINE, FRAME);
	measure_receives(FRAME, "receive_frame");
	measure_polls(FRAME, "poll_frame", received);
	use_dynamic_connections();
	measure_posts(DC_INLINE, DC);
	use_extended_connection();
	measure_posts(XRC_INLINE, XRC);
	measure_receives(XRC, "receive_extended");
	measure_polls(XRC, "poll_receive_extended", received);
	shared = NULL;
	measure_registrations();
	for (unsigned count = 1; count <= 1024; count *= count < 256 ? 16 : 4)
		measure_shared_queue(count);
	for (unsigned count = 1; count <= 1024; count *= count < 256 ? 16 : 4)
		measure_hub(count);
	return 0;
}
