/*
 * PTP hardware clocks: sets, shifts and slews the clock of a network device, and checks hardware timestamps of packets
 * sent and received, between two network namespaces with a device eth0 each. `packet_clock NAMESPACE NAMESPACE ADDRESS`
 * with the second one's address; exits with 0 if the clocks follow the adjustments, and every timestamp is between two
 * reads of its device's clock.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/errqueue.h>
#include <linux/ethtool.h>
#include <linux/net_tstamp.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_MS 60000
#define PORT 3190
#define ROUNDS 10
/* Difference of two conversions of ticks to nanoseconds. */
#define ROUNDING 2
/* The device reads its clock with a delay, and Linux calibrates the CPU clock at boot: neither is exact on a busy
 * host. */
#define TOLERANCE_NS 20000000

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

#define CHECK(what) do { if (!(what)) fail(#what); } while (0)

/* Largest frequency adjustment that Linux allows, in parts per million. */
#define MAX_PPM 50000

/* A socket in a namespace, and the PTP clock of its device. */
struct end {
	int socket;
	clockid_t clock;
};

static void device_ioctl(int socket, unsigned long request, void *data)
{
	struct ifreq ifr = { .ifr_name = "eth0", .ifr_data = data };

	CHECK(!ioctl(socket, request, &ifr));
}

static struct end open_end(const char *namespace, int flags)
{
	struct ethtool_ts_info info = { .cmd = ETHTOOL_GET_TS_INFO };
	struct hwtstamp_config all = { .tx_type = HWTSTAMP_TX_ON, .rx_filter = HWTSTAMP_FILTER_ALL };
	struct end end;
	char path[64];

	snprintf(path, sizeof(path), "/run/netns/%s", namespace);
	CHECK(!setns(open(path, O_RDONLY), CLONE_NEWNET));
	CHECK((end.socket = socket(AF_INET, SOCK_DGRAM, 0)) >= 0);
	device_ioctl(end.socket, SIOCSHWTSTAMP, &all);
	CHECK(all.tx_type == HWTSTAMP_TX_ON && all.rx_filter == HWTSTAMP_FILTER_ALL);
	device_ioctl(end.socket, SIOCETHTOOL, &info);
	CHECK((info.so_timestamping & flags) == (unsigned)flags && info.phc_index >= 0);
	CHECK(!setsockopt(end.socket, SOL_SOCKET, SO_TIMESTAMPING, &flags, sizeof(flags)));

	snprintf(path, sizeof(path), "/dev/ptp%d", info.phc_index);
	int clock = open(path, O_RDWR);

	CHECK(clock >= 0);
	/* The clock ID of a descriptor: see clock_gettime(2). */
	end.clock = ~(clockid_t)clock << 3 | 3;
	return end;
}

static int64_t nanoseconds(struct timespec at)
{
	return at.tv_sec * 1000000000ll + at.tv_nsec;
}

static int64_t now(struct end *end)
{
	struct timespec at;

	CHECK(!clock_gettime(end->clock, &at));
	return nanoseconds(at);
}

static void check_between(const char *what, int64_t before, int64_t at, int64_t after)
{
	if (before - ROUNDING <= at && at <= after + ROUNDING)
		return;
	fprintf(stderr, "packet_clock: %s at %ld, not between %ld and %ld\n", what, at, before, after);
	exit(1);
}

static int64_t monotonic(void)
{
	struct timespec at;

	CHECK(!clock_gettime(CLOCK_MONOTONIC_RAW, &at));
	return nanoseconds(at);
}

/* Checks a clock that was set to `wanted`, not before `before` of the monotonic clock. */
static void check_time(struct end *end, int64_t wanted, int64_t before)
{
	int64_t at = now(end);

	check_between("set time", wanted, at, wanted + monotonic() - before + TOLERANCE_NS);
}

/* Adjusts the clock's frequency by `ppm`, and measures it. */
static void check_frequency(struct end *end, int64_t ppm)
{
	struct timex faster = { .modes = ADJ_FREQUENCY, .freq = ppm * 65536 };

	CHECK(clock_adjtime(end->clock, &faster) >= 0);
	int64_t outer = monotonic(), first = now(end), inner = monotonic();

	poll(NULL, 0, 700);
	int64_t shorter = monotonic() - inner, gone = now(end) - first, longer = monotonic() - outer;

	check_between("elapsed time", shorter * (1000000 + ppm) / 1000000 - TOLERANCE_NS, gone,
		     longer * (1000000 + ppm) / 1000000 + TOLERANCE_NS);
}

/* Sets, shifts and slews the clock. The last frequency stays. */
static void check_adjustments(struct end *end, int64_t seconds, int64_t ppm)
{
	struct timespec begin = { .tv_sec = seconds };
	struct timex back = { .modes = ADJ_SETOFFSET | ADJ_NANO, .time = { .tv_sec = -100, .tv_usec = 500000000 } };
	int64_t before = monotonic();

	CHECK(!clock_settime(end->clock, &begin));
	check_time(end, nanoseconds(begin), before);
	CHECK(clock_adjtime(end->clock, &back) >= 0);
	check_time(end, nanoseconds(begin) - 99500000000, before);
	check_frequency(end, -ppm);
	check_frequency(end, ppm);
}

/* Hardware timestamp of the next packet of the socket, or of its error queue. */
static int64_t read_timestamp(struct end *end, int flags)
{
	struct pollfd fd = { .fd = end->socket, .events = flags ? 0 : POLLIN };
	char data[256], control[512];
	struct iovec vector = { .iov_base = data, .iov_len = sizeof(data) };
	struct msghdr message = {
		.msg_iov = &vector, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control),
	};

	CHECK(poll(&fd, 1, PATIENCE_MS) == 1);
	CHECK(recvmsg(end->socket, &message, flags) >= 0);
	for (struct cmsghdr *part = CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part))
		if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_TIMESTAMPING)
			return nanoseconds(((struct scm_timestamping *)CMSG_DATA(part))->ts[2]);
	fprintf(stderr, "packet_clock: no timestamp\n");
	exit(1);
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(PORT) };

	if (argc != 4)
		return 2;
	struct end from = open_end(argv[1], SOF_TIMESTAMPING_TX_HARDWARE | SOF_TIMESTAMPING_RAW_HARDWARE);
	struct end to = open_end(argv[2], SOF_TIMESTAMPING_RX_HARDWARE | SOF_TIMESTAMPING_RAW_HARDWARE);

	check_adjustments(&from, 1000000000, MAX_PPM);
	check_adjustments(&to, 2000000000, -MAX_PPM);
	CHECK(!bind(to.socket, (struct sockaddr *)&address, sizeof(address)));
	CHECK(inet_pton(AF_INET, argv[3], &address.sin_addr) == 1);
	for (int i = 0; i < ROUNDS; i++) {
		int64_t here = now(&from), there = now(&to);

		CHECK(sendto(from.socket, "tick", 4, 0, (struct sockaddr *)&address, sizeof(address)) == 4);
		int64_t received = read_timestamp(&to, 0), sent = read_timestamp(&from, MSG_ERRQUEUE);

		check_between("sent", here, sent, now(&from));
		check_between("received", there, received, now(&to));
	}
	printf("both obey and stamp\n");
	return 0;
}
