/*
 * Cost of 64-byte frames with DPDK's driver: packets_dpdk EAL-ARGUMENTS -- COLUMN
 *
 * Does the same as ours.rs, in the same order, and prints the same lines: "row column instructions-per-frame". The
 * time stamp counter serves as an instruction counter, as it does under QEMU's -icount. Port 0 is measured, port 1
 * sends what it receives and takes what it sends.
 */
#include <rte_config.h>
/* Its headers are not needed: DPDK has its own in its place. */
#undef RTE_USE_LIBBSD
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../common/ticks.h"

enum {
	TESTED = 0,
	FAR = 1,
	FRAME = 60,		/* without the FCS, which makes it 64 */
	ROUND = 256,		/* frames of a round */
	WARM_UP = 2,
	ROUNDS = 9,
	MOST = 64,		/* frames of the largest burst */
	DEPTH = 1024,		/* descriptors of each queue */
	MBUFS = 8191,
	CACHE = 512,
	PATIENCE = 100000,	/* pauses of 100 us */
};

enum operation { FORWARD, RECEIVE, SEND };

static const char *const names[] = { "forward", "receive", "send" };
static const unsigned bursts[] = { 1, 8, 32, 64 };

static struct rte_mempool *pools[2];
static uint64_t nothing;

static void fail(const char *what)
{
	fprintf(stderr, "packets_dpdk: %s\n", what);
	exit(1);
}

#define CHECK(ok) ((ok) ? (void)0 : fail(#ok))

/* Both ports of one queue each way, without offloads but the one that makes freeing cheaper. */
static void start_port(uint16_t port)
{
	struct rte_eth_conf conf = { .txmode.offloads = RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE };
	struct rte_eth_dev_info info;
	struct rte_eth_txconf txconf;

	CHECK(!rte_eth_dev_info_get(port, &info));
	conf.txmode.offloads &= info.tx_offload_capa;
	txconf = info.default_txconf;
	txconf.offloads = conf.txmode.offloads;
	CHECK(!rte_eth_dev_configure(port, 1, 1, &conf));
	CHECK(!rte_eth_rx_queue_setup(port, 0, DEPTH, 0, NULL, pools[port]));
	CHECK(!rte_eth_tx_queue_setup(port, 0, DEPTH, 0, &txconf));
	CHECK(!rte_eth_dev_start(port));
	CHECK(!rte_eth_promiscuous_enable(port));
}

/* Frames of experimental type to an address that nobody has, each with a number in it. */
static void make(uint16_t port, struct rte_mbuf **frames, unsigned count, uint32_t number)
{
	static const uint8_t head[14] = { 2, 0, 0, 0, 0, 0x99, 2, 0, 0, 0, 0, 0x98, 0x88, 0xb5 };

	CHECK(!rte_pktmbuf_alloc_bulk(pools[port], frames, count));
	for (unsigned i = 0; i < count; i++) {
		char *bytes = rte_pktmbuf_append(frames[i], FRAME);

		CHECK(bytes);
		memset(bytes, 0x5a, FRAME);
		memcpy(bytes, head, sizeof(head));
		number++;
		memcpy(bytes + sizeof(head), &number, sizeof(number));
	}
}

/* Takes exactly so many frames at the far port, and looks at each. */
static void take(unsigned count, uint32_t number)
{
	struct rte_mbuf *frames[MOST];

	for (unsigned tries = 0; count; tries++) {
		uint16_t got = rte_eth_rx_burst(FAR, 0, frames, MOST);

		CHECK(got <= count);
		for (unsigned i = 0; i < got; i++) {
			uint32_t found;

			number++;
			memcpy(&found, rte_pktmbuf_mtod_offset(frames[i], char *, 14), sizeof(found));
			CHECK(found == number && frames[i]->pkt_len == FRAME);
		}
		rte_pktmbuf_free_bulk(frames, got);
		count -= got;
		CHECK(tries < PATIENCE);
		if (count && !got)
			usleep(100);
	}
}

/* Sends frames from the far port, and waits until all are there. */
static void offer(unsigned count, uint32_t number)
{
	struct rte_mbuf *frames[MOST];
	unsigned sent = 0;

	make(FAR, frames, count, number);
	for (unsigned tries = 0; sent < count; tries++) {
		sent += rte_eth_tx_burst(FAR, 0, frames + sent, count - sent);
		CHECK(tries < PATIENCE);
	}
	for (unsigned tries = 0; rte_eth_rx_queue_count(TESTED, 0) < (int)count; tries++) {
		CHECK(tries < PATIENCE);
		usleep(100);
	}
}

/* All of a burst that is there. A vectorised burst may take several calls. */
static inline __attribute__((always_inline)) bool receive(struct rte_mbuf **frames, unsigned burst)
{
	unsigned got = 0;

	do {
		uint16_t more = rte_eth_rx_burst(TESTED, 0, frames + got, MOST - got);

		if (!more)
			return false;
		got += more;
	} while (got < burst);
	return got == burst;
}

static __attribute__((noinline)) uint64_t forward_burst(unsigned burst)
{
	struct rte_mbuf *frames[MOST];
	uint64_t start = ticks();

	if (!receive(frames, burst) || rte_eth_tx_burst(TESTED, 0, frames, burst) != burst)
		fail("a short burst");
	return ticks() - start;
}

static __attribute__((noinline)) uint64_t receive_burst(unsigned burst)
{
	struct rte_mbuf *frames[MOST];
	uint64_t start = ticks();

	if (!receive(frames, burst))
		fail("a short burst");
	rte_pktmbuf_free_bulk(frames, burst);
	return ticks() - start;
}

static __attribute__((noinline)) uint64_t send_burst(struct rte_mbuf **frames, unsigned burst)
{
	uint64_t start = ticks();

	if (rte_eth_tx_burst(TESTED, 0, frames, burst) != burst)
		fail("a short burst");
	return ticks() - start;
}

/* Ticks of a round. */
static uint64_t round_of(enum operation operation, unsigned burst)
{
	static uint32_t number;
	uint64_t sum = 0;

	for (unsigned done = 0; done < ROUND; done += burst) {
		struct rte_mbuf *frames[MOST];

		if (operation == SEND) {
			make(TESTED, frames, burst, number);
			sum += send_burst(frames, burst) - nothing;
		} else {
			offer(burst, number);
			sum += (operation == FORWARD ? forward_burst : receive_burst)(burst) - nothing;
		}
		if (operation != RECEIVE)
			take(burst, number);
		number += burst;
	}
	return sum;
}

static int compare(const void *one, const void *other)
{
	const uint64_t *a = one, *b = other;

	return *a < *b ? -1 : *a > *b;
}

/* Says that a row starts or ends, and waits until what crossed PCIe was read. */
static void mark(const char *what, enum operation operation, unsigned burst)
{
	char line[16];

	printf("%s %s/%u %u\n", what, names[operation], burst, ROUNDS * ROUND);
	fflush(stdout);
	CHECK(fgets(line, sizeof(line), stdin));
}

static void measure(enum operation operation, unsigned burst, const char *column)
{
	uint64_t samples[ROUNDS];

	for (unsigned i = 0; i < WARM_UP; i++)
		round_of(operation, burst);
	mark("begin", operation, burst);
	for (unsigned i = 0; i < ROUNDS; i++)
		samples[i] = round_of(operation, burst);
	mark("end", operation, burst);
	qsort(samples, ROUNDS, sizeof(samples[0]), compare);
	printf("%s/%u %s %.2f\n", names[operation], burst, column, (double)samples[ROUNDS / 2] / ROUND);
}

int main(int argc, char **argv)
{
	int taken = rte_eal_init(argc, argv);
	uint64_t start;

	CHECK(taken >= 0 && argc - taken == 2 && rte_eth_dev_count_avail() == 2);
	for (uint16_t port = 0; port < 2; port++) {
		pools[port] = rte_pktmbuf_pool_create(port ? "far" : "tested", MBUFS, CACHE, 0,
						      RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
		CHECK(pools[port]);
	}
	for (uint16_t port = 0; port < 2; port++)
		start_port(port);
	start = ticks();
	nothing = ticks() - start;
	for (enum operation operation = FORWARD; operation <= SEND; operation++)
		for (unsigned i = 0; i < sizeof(bursts) / sizeof(bursts[0]); i++)
			measure(operation, bursts[i], argv[argc - 1]);
	printf("done\n");
	return 0;
}
