/*
 * Polls of one completion queue that many queue pairs share, used in turn.
 */

/* Creates `count` queue pairs, each connected to itself. */
static struct ibv_qp **create_many(unsigned count)
{
	struct ibv_qp **many = calloc(count, sizeof(*many));

	CHECK(many);
	for (unsigned i = 0; i < count; i++) {
		many[i] = create_qp(context, own, IBV_QPT_RC, count < 16 ? POSTS : POSTS / 16);
		connect_qp(context, many[i], many[i]->qp_num);
	}
	return many;
}

/* Posts a write to each of the next POSTS queue pairs. */
static void post_to_many(struct ibv_qp **many, unsigned count, unsigned first)
{
	for (unsigned i = 0; i < POSTS; i++) {
		const struct request *request = &requests[i % REQUESTS];
		struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(many[(first + i) % count]);

		ibv_wr_start(qp);
		qp->wr_id = i;
		qp->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_rdma_write(qp, request->rkey, request->remote);
		ibv_wr_set_inline_data(qp, request->data, BYTES);
		CHECK(!ibv_wr_complete(qp));
	}
}

/* As drain(), of any `count` completions: those of different queue pairs come in any order. */
static void drain_any(struct ibv_cq_ex *cq, int count)
{
	while (count--)
		drain_one(cq);
}

static void measure_many(const char *name, struct ibv_qp **many, unsigned count, const char *api,
			 poll_function poll)
{
	uint64_t samples[WARM_UP + ROUNDS];
	time_t deadline = time(NULL) + PATIENCE;
	unsigned first = 0;
	char row[64];

	for (int round = 0; round < WARM_UP + ROUNDS;) {
		post_to_many(many, count, first);
		first = (first + POSTS) % count;
		usleep(pause_us);
		samples[round] = poll(sent, 1);
		if (samples[round]) {
			round++;
		} else {
			CHECK(time(NULL) < deadline);
			drain_any(sent, POSTS - polled);
			pause_us *= pause_us < 100000 ? 2 : 1;
		}
	}
	snprintf(row, sizeof(row), "%s/%u", name, count);
	report(row, api, samples + WARM_UP);
}

static void measure_shared_queue(unsigned count)
{
	struct ibv_qp **many = create_many(count);

	/* All are used before anything is measured. */
	for (unsigned first = 0; first < count; first += POSTS) {
		post_to_many(many, count, first);
		drain_any(sent, POSTS);
	}
	measure_many("poll_many", many, count, "classic", poll_classic);
	measure_many("poll_many", many, count, "wr", poll_ex);
	for (unsigned i = 0; i < count; i++)
		CHECK(!ibv_destroy_qp(many[i]));
	free(many);
}
