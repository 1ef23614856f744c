/*
 * Packets are stamped with their network device's clock, when they are sent and when they come: between two network namespaces
 * in each of which a device is called eth0. `packet_clock NAMESPACE NAMESPACE ADDRESS`, the address being the second one's;
 * ends with 0 when every stamp lies between two looks at its device's clock.
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
#include <time.h>
#include <unistd.h>

#define PATIENCE_MS 60000
#define PORT 3190
#define ROUNDS 10
/* Two ways to turn ticks into nanoseconds may round differently. */
#define ROUNDING 2

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

#define CHECK(what) do { if (!(what)) fail(#what); } while (0)

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
	int clock = open(path, O_RDONLY);

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

static void lies_between(const char *what, int64_t before, int64_t at, int64_t after)
{
	if (before - ROUNDING <= at && at <= after + ROUNDING)
		return;
	fprintf(stderr, "packet_clock: %s at %ld, not between %ld and %ld\n", what, at, before, after);
	exit(1);
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(PORT) };

	if (argc != 4)
		return 2;
	struct end from = enter(argv[1], SOF_TIMESTAMPING_TX_HARDWARE | SOF_TIMESTAMPING_RAW_HARDWARE);
	struct end to = enter(argv[2], SOF_TIMESTAMPING_RX_HARDWARE | SOF_TIMESTAMPING_RAW_HARDWARE);

	CHECK(!bind(to.socket, (struct sockaddr *)&address, sizeof(address)));
	CHECK(inet_pton(AF_INET, argv[3], &address.sin_addr) == 1);
	for (int i = 0; i < ROUNDS; i++) {
		int64_t here = now(&from), there = now(&to);

		CHECK(sendto(from.socket, "tick", 4, 0, (struct sockaddr *)&address, sizeof(address)) == 4);
		int64_t received = stamp(&to, 0), sent = stamp(&from, MSG_ERRQUEUE);

		lies_between("sent", here, sent, now(&from));
		lies_between("received", there, received, now(&to));
	}
	printf("stamped by both\n");
	return 0;
}
