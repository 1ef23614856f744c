/*
 * Messages of many connections on one completion queue: what hub.rs does with a hub. The program finds the connection
 * of a completion in a table of its own, by the queue pair's number.
 */

enum { PLACES = 4096 }; /* of the table: a power of two, and several times as many as queue pairs */

struct connection {
	struct ibv_qp *qp;
	struct ibv_qp_ex *ex;
	uint64_t context;
	uint32_t qp_num; /* 0 in an empty place */
};

static struct connection table[PLACES];
static struct connection *turn[POSTS]; /* those of a round */

/* The place of `qp_num`, or the empty one where it would be. Numbers are given out in order: they hardly meet. */
ALWAYS struct connection *find_connection(uint32_t qp_num)
{
	unsigned at = qp_num % PLACES;

	while (table[at].qp_num != qp_num && table[at].qp_num)
		at = (at + 1) % PLACES;
	return &table[at];
}

static void take_turns(struct ibv_qp **many, unsigned count, unsigned first)
{
	for (unsigned i = 0; i < POSTS; i++)
		turn[i] = find_connection(many[(first + i) % count]->qp_num);
}

static __attribute__((noinline)) uint64_t post_hub_classic(void)
{
	uint64_t start = ticks();

	for (unsigned i = 0; i < POSTS; i++) {
		struct ibv_send_wr *bad, *wr = &send_list[0];

		wr->wr_id = i;
		wr->send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
		send_sges[0].addr = (uintptr_t)requests[i % REQUESTS].data;
		CHECK(!ibv_post_send(turn[i]->qp, wr, &bad));
	}
	return ticks() - start;
}

static __attribute__((noinline)) uint64_t post_hub_wr(void)
{
	uint64_t start = ticks();

	for (unsigned i = 0; i < POSTS; i++) {
		struct ibv_qp_ex *qp = turn[i]->ex;

		ibv_wr_start(qp);
		qp->wr_id = i;
		qp->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_send(qp);
		ibv_wr_set_inline_data(qp, requests[i % REQUESTS].data, BYTES);
		CHECK(!ibv_wr_complete(qp));
	}
	return ticks() - start;
}

/* As poll_classic() and poll_ex(), one at a time, with the context of each. */

static __attribute__((noinline)) uint64_t poll_hub_classic(struct ibv_cq_ex *cq, int width)
{
	struct ibv_cq *classic_cq = ibv_cq_ex_to_cq(cq);
	uint64_t sum = 0, start = ticks();
	struct ibv_wc wc;

	for (polled = 0; polled < POSTS; polled += width) {
		struct connection *connection;

		if (ibv_poll_cq(classic_cq, 1, &wc) != 1 || wc.status != IBV_WC_SUCCESS)
			return 0;
		connection = find_connection(wc.qp_num);
		if (!connection->qp_num)
			return 0;
		sum += connection->context + wc.byte_len;
	}
	sink = sum;
	return ticks() - start;
}

static __attribute__((noinline)) uint64_t poll_hub_ex(struct ibv_cq_ex *cq, int width)
{
	struct ibv_poll_cq_attr attr = { 0 };
	uint64_t sum = 0, start = ticks();

	for (polled = 0; polled < POSTS; polled += width) {
		struct connection *connection;

		if (ibv_start_poll(cq, &attr))
			return 0;
		connection = find_connection(ibv_wc_read_qp_num(cq));
		if (cq->status != IBV_WC_SUCCESS || !connection->qp_num) {
			ibv_end_poll(cq);
			polled++;
			return 0;
		}
		sum += connection->context + ibv_wc_read_byte_len(cq);
		ibv_end_poll(cq);
	}
	sink = sum;
	return ticks() - start;
}

static void measure_hub_post(struct ibv_qp **many, unsigned count, const char *api, uint64_t (*post)(void))
{
	uint64_t samples[WARM_UP + ROUNDS];
	unsigned first = 0;
	char row[64];

	prepare(SEND_INLINE, 1);
	for (int round = 0; round < WARM_UP + ROUNDS; round++) {
		post_receives(1);
		take_turns(many, count, first);
		first = (first + POSTS) % count;
		samples[round] = post();
		drain_any(sent, POSTS);
		drain_any(received, POSTS);
	}
	snprintf(row, sizeof(row), "hub_post/%u", count);
	report(row, api, samples + WARM_UP);
}

static void measure_hub(unsigned count)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = DEPTH - 1, .max_sge = 1 } };
	struct ibv_qp **many;

	shared = ibv_create_srq(own, &attr);
	CHECK(shared);
	post_receives = receives_of_srq;
	many = create_many(count);
	memset(table, 0, sizeof(table));
	for (unsigned i = 0; i < count; i++)
		*find_connection(many[i]->qp_num) = (struct connection){
			.qp = many[i], .ex = ibv_qp_to_qp_ex(many[i]), .context = i, .qp_num = many[i]->qp_num,
		};
	/* All are used before anything is measured. */
	for (unsigned first = 0; first < count; first += POSTS) {
		post_to_many(many, count, first);
		drain_any(sent, POSTS);
	}
	measure_hub_post(many, count, "classic", post_hub_classic);
	measure_hub_post(many, count, "wr", post_hub_wr);
	measure_many("hub_poll", many, count, "classic", poll_hub_classic);
	measure_many("hub_poll", many, count, "wr", poll_hub_ex);
	for (unsigned i = 0; i < count; i++)
		CHECK(!ibv_destroy_qp(many[i]));
	CHECK(!ibv_destroy_srq(shared));
	free(many);
	shared = NULL;
}
