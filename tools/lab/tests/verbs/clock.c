/*
 * Completion timestamps, and the frequency of the device's clock, with two queue pairs of one device.
 * `clock DEVICE GID-INDEX`; exits with 0 if every timestamp is in its range.
 */
#include "pair.h"
#include <time.h>

#define ROUNDS 20

/* Current value of the device's clock, in ticks. */
static uint64_t ticks(void)
{
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };

	CHECK(!ibv_query_rt_values_ex(device, &values));
	CHECK(values.comp_mask & IBV_VALUES_MASK_RAW_CLOCK);
	return values.raw_clock.tv_sec * 1000000000ull + values.raw_clock.tv_nsec;
}

static uint64_t nanoseconds(void)
{
	struct timespec now;

	CHECK(!clock_gettime(CLOCK_MONOTONIC_RAW, &now));
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

/* Reads both clocks twice. The device's clock must advance at its frequency: at least for the time between the two
 * inner reads of the host's clock, at most for that between the outer ones. One percent is tolerance for the host's
 * clock, which Linux calibrates at boot on a busy host. */
static void check_frequency(uint64_t khz)
{
	uint64_t before = nanoseconds(), first = ticks(), after = nanoseconds();

	poll(NULL, 0, 1000);
	uint64_t again = nanoseconds(), gone = ticks() - first, end = nanoseconds();

	CHECK(gone * 1000000 >= (again - after) * khz / 100 * 99);
	CHECK(gone * 1000000 <= (end - before) * khz / 100 * 101);
}

/* Timestamp of the next completion. */
static uint64_t read_timestamp(struct ibv_cq_ex *cq)
{
	struct ibv_poll_cq_attr attr = {};
	int status;

	for (int tries = 0; (status = ibv_start_poll(cq, &attr)) == ENOENT; tries++) {
		CHECK(tries < PATIENCE_MS);
		poll(NULL, 0, 1);
	}
	CHECK(!status && cq->status == IBV_WC_SUCCESS);
	uint64_t at = ibv_wc_read_completion_ts(cq);

	ibv_end_poll(cq);
	return at;
}

int main(int argc, char **argv)
{
	struct ibv_device_attr_ex attr;
	struct ibv_cq_init_attr_ex init = { .cqe = 32, .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP };

	open_device(argc, argv, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(!ibv_query_device_ex(device, NULL, &attr) && attr.hca_core_clock && attr.completion_timestamp_mask);
	check_frequency(attr.hca_core_clock);

	struct ibv_cq_ex *cq = ibv_create_cq_ex(device, &init);

	CHECK(cq);
	struct pair pair = new_pair_on(ibv_cq_ex_to_cq(cq), NULL);

	for (int i = 0; i < ROUNDS; i++) {
		uint64_t before = ticks();

		/* One completion for the send, one for the receive. */
		receive(pair.qp[1]);
		post(pair.qp[0], IBV_WR_SEND, 0);
		uint64_t first = read_timestamp(cq), second = read_timestamp(cq), after = ticks();

		CHECK(before <= first && first <= second && second <= after);
	}
	end(&pair);
	printf("stamped at %lu kHz\n", attr.hca_core_clock);
	return 0;
}
