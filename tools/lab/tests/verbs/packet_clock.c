/*
 * A network device's clock can be set, put forward and back, and made to go faster and slower; packets are stamped with
 * it, when they are sent and when they come: between two network namespaces in each of which a device is called eth0.
 * `packet_clock NAMESPACE NAMESPACE ADDRESS`, the address being the second one's; ends with 0 when every stamp lies
 * between two looks at its device's clock, and that shows and goes as it was told.
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
/* Two ways to turn ticks into nanoseconds may round differently. */
#define ROUNDING 2
/* The device looks at its clock when it gets round to it, and the processor's clock is measured when Linux boots:
 * neither is exact on a busy host. */
#define DOUBT_NS 20000000

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

#define CHECK(what) do { if (!(what)) fail(#what); } while (0)

/* Millionths by which Linux lets the clock go faster or slower. */
#define FASTEST 50000

/* A socket in a namespace, and the clock of the device there. */
struct end {
	int socket;
	clockid_t clock;
};

static void ask(int socket, unsigned long request, void *data)
{
	struct ifreq ifr = { .ifr_name = "eth0", .ifr_data = data };

	CHECK(!ioctl(socket, request, &ifr));
}

static struct end enter(const char *namespace, int flags)
{
	struct ethtool_ts_info info = { .cmd = ETHTOOL_GET_TS_INFO };
	struct hwtstamp_config all = { .tx_type = HWTSTAMP_TX_ON, .rx_filter = HWTSTAMP_FILTER_ALL };
	struct end end;
	char path[64];

	snprintf(path, sizeof(path), "/run/netns/%s", namespace);
	CHECK(!setns(open(path, O_RDONLY), CLONE_NEWNET));
	CHECK((end.socket = socket(AF_INET, SOCK_DGRAM, 0)) >= 0);
	ask(end.socket, SIOCSHWTSTAMP, &all);
	CHECK(all.tx_type == HWTSTAMP_TX_ON && all.rx_filter == HWTSTAMP_FILTER_ALL);
	ask(end.socket, SIOCETHTOOL, &info);
	CHECK((info.so_timestamping & flags) == (unsigned)flags && info.phc_index >= 0);
	CHECK(!setsockopt(end.socket, SOL_SOCKET, SO_TIMESTAMPING, &flags, sizeof(flags)));

	snprintf(path, sizeof(path), "/dev/ptp%d", info.phc_index);
	int clock = open(path, O_RDWR);

	CHECK(clock >= 0);
	/* The clock of a descriptor, as clock_gettime(2) names it. */
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

static void lies_between(const char *what, int64_t before, int64_t at, int64_t after)
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

/* The clock was told to show `wanted`, no earlier than at `before` of the monotonic clock. */
static void shows(struct end *end, int64_t wanted, int64_t before)
{
	int64_t at = now(end);

	lies_between("told", wanted, at, wanted + monotonic() - before + DOUBT_NS);
}

/* Makes the clock go so many millionths faster than it does by itself, and looks whether it does. */
static void goes_faster_by(struct end *end, int64_t millionths)
{
	struct timex faster = { .modes = ADJ_FREQUENCY, .freq = millionths * 65536 };

	CHECK(clock_adjtime(end->clock, &faster) >= 0);
	int64_t outer = monotonic(), first = now(end), inner = monotonic();

	poll(NULL, 0, 700);
	int64_t shorter = monotonic() - inner, gone = now(end) - first, longer = monotonic() - outer;

	lies_between("gone", shorter * (1000000 + millionths) / 1000000 - DOUBT_NS, gone,
		     longer * (1000000 + millionths) / 1000000 + DOUBT_NS);
}

/* Sets the clock, shifts it and changes its pace, which it keeps. */
static void obeys(struct end *end, int64_t seconds, int64_t millionths)
{
	struct timespec begin = { .tv_sec = seconds };
	struct timex back = { .modes = ADJ_SETOFFSET | ADJ_NANO, .time = { .tv_sec = -100, .tv_usec = 500000000 } };
	int64_t before = monotonic();

	CHECK(!clock_settime(end->clock, &begin));
	shows(end, nanoseconds(begin), before);
	CHECK(clock_adjtime(end->clock, &back) >= 0);
	shows(end, nanoseconds(begin) - 99500000000, before);
	goes_faster_by(end, -millionths);
	goes_faster_by(end, millionths);
}

/* The hardware's stamp of what comes next to the socket, or to its queue of errors. */
static int64_t stamp(struct end *end, int flags)
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
	fprintf(stderr, "packet_clock: no stamp\n");
	exit(1);
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(PORT) };

	if (argc != 4)
		return 2;
	struct end from = enter(argv[1], SOF_TIMESTAMPING_TX_HARDWARE | SOF_TIMESTAMPING_RAW_HARDWARE);
	struct end to = enter(argv[2], SOF_TIMESTAMPING_RX_HARDWARE | SOF_TIMESTAMPING_RAW_HARDWARE);

	obeys(&from, 1000000000, FASTEST);
	obeys(&to, 2000000000, -FASTEST);
	CHECK(!bind(to.socket, (struct sockaddr *)&address, sizeof(address)));
	CHECK(inet_pton(AF_INET, argv[3], &address.sin_addr) == 1);
	for (int i = 0; i < ROUNDS; i++) {
		int64_t here = now(&from), there = now(&to);

		CHECK(sendto(from.socket, "tick", 4, 0, (struct sockaddr *)&address, sizeof(address)) == 4);
		int64_t received = stamp(&to, 0), sent = stamp(&from, MSG_ERRQUEUE);

		lies_between("sent", here, sent, now(&from));
		lies_between("received", there, received, now(&to));
	}
	printf("both obey and stamp\n");
	return 0;
}
