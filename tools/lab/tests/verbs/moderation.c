/*
 * Times completion events, with moderation and without. `moderation DEVICE GID-INDEX`; exits with 0 if each of the
 * moderated ones has waited for the period after the one before.
 */
#include "pair.h"
#include <time.h>

#define EVENTS 20
#define PERIOD_US 4095

static uint64_t microseconds(void)
{
	struct timespec now;

	CHECK(!clock_gettime(CLOCK_MONOTONIC, &now));
	return now.tv_sec * 1000000ull + now.tv_nsec / 1000;
}

/* Time until EVENTS writes, one after the other, have completed, each by an event of its own. */
static uint64_t time_of_events(struct pair *pair, struct ibv_comp_channel *channel)
{
	uint64_t begin = microseconds();

	for (int i = 0; i < EVENTS; i++) {
		struct pollfd readable = { .fd = channel->fd, .events = POLLIN };
		struct ibv_cq *cq;
		void *context;

		CHECK(!ibv_req_notify_cq(pair->cq, 0));
		post(pair->qp[0], IBV_WR_RDMA_WRITE, mr->rkey);
		CHECK(poll(&readable, 1, PATIENCE_MS) == 1);
		CHECK(!ibv_get_cq_event(channel, &cq, &context) && cq == pair->cq);
		ibv_ack_cq_events(cq, 1);
		ends_in(pair, IBV_WC_SUCCESS);
	}
	return microseconds() - begin;
}

int main(int argc, char **argv)
{
	uint64_t least = (EVENTS - 1) * PERIOD_US, free, held;
	struct ibv_modify_cq_attr attr = {
		.attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = { .cq_count = 100, .cq_period = PERIOD_US },
	};

	open_device(argc, argv, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(device);

	CHECK(channel);
	struct pair pair = new_pair_on(ibv_create_cq(device, 15, NULL, channel, 0), NULL);
	uint64_t begin = microseconds();

	/* Others may hold this process up, so that one attempt says nothing. */
	do {
		free = time_of_events(&pair, channel);
		CHECK(microseconds() - begin < PATIENCE_MS * 1000ull);
	} while (free >= least);
	CHECK(!ibv_modify_cq(pair.cq, &attr));
	held = time_of_events(&pair, channel);
	CHECK(held >= least);
	end(&pair);
	printf("%d events in %lu us, and moderated in %lu us\n", EVENTS, free, held);
	return 0;
}
