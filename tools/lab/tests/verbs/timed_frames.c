/*
 * Frames of testpmd's txonly mode that say when they are to leave: `timed_frames NAMESPACE CLOCK COUNT` receives COUNT
 * of them by eth0 of the namespace, and prints for each its queue, that time, and the hardware timestamp with which it
 * arrived. In the end it prints how far the clock of eth0 is ahead of CLOCK, a PTP clock: two limits.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <fcntl.h>
#include <linux/errqueue.h>
#include <linux/ethtool.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
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
/* Reads of both clocks. */
#define READS 200
/* Ethernet, IPv4 and UDP headers. */
#define HEADERS 42
#define SIGNATURE 0xbeefc0de

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

#define CHECK(what) do { if (!(what)) fail(#what); } while (0)

/* What testpmd writes behind the headers, big-endian. */
struct mark {
	uint32_t signature;
	uint16_t packet;
	uint16_t queue;
	uint64_t time;
} __attribute__((packed));

static clockid_t open_clock(const char *path)
{
	int clock = open(path, O_RDONLY);

	CHECK(clock >= 0);
	/* The clock ID of a descriptor: see clock_gettime(2). */
	return ~(clockid_t)clock << 3 | 3;
}

static int64_t nanoseconds(struct timespec at)
{
	return at.tv_sec * 1000000000ll + at.tv_nsec;
}

static int64_t now(clockid_t clock)
{
	struct timespec at;

	CHECK(!clock_gettime(clock, &at));
	return nanoseconds(at);
}

static void device_ioctl(int socket, unsigned long request, void *data)
{
	struct ifreq ifr = { .ifr_name = "eth0", .ifr_data = data };

	CHECK(!ioctl(socket, request, &ifr));
}

/* A socket for all IPv4 frames of eth0 in the namespace, with hardware timestamps; *clock is the device's. */
static int open_socket(const char *namespace, clockid_t *clock)
{
	struct hwtstamp_config all = { .rx_filter = HWTSTAMP_FILTER_ALL };
	struct ethtool_ts_info info = { .cmd = ETHTOOL_GET_TS_INFO };
	int stamps = SOF_TIMESTAMPING_RX_HARDWARE | SOF_TIMESTAMPING_RAW_HARDWARE, room = 8 << 20;
	char path[64];

	snprintf(path, sizeof(path), "/run/netns/%s", namespace);
	CHECK(!setns(open(path, O_RDONLY), CLONE_NEWNET));
	int end = socket(AF_PACKET, SOCK_RAW, 0);

	CHECK(end >= 0);
	device_ioctl(end, SIOCSHWTSTAMP, &all);
	CHECK(all.rx_filter == HWTSTAMP_FILTER_ALL);
	device_ioctl(end, SIOCETHTOOL, &info);
	snprintf(path, sizeof(path), "/dev/ptp%d", info.phc_index);
	*clock = open_clock(path);
	CHECK(!setsockopt(end, SOL_SOCKET, SO_TIMESTAMPING, &stamps, sizeof(stamps)));
	CHECK(!setsockopt(end, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room)));
	struct sockaddr_ll address = {
		.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IP), .sll_ifindex = if_nametoindex("eth0"),
	};

	CHECK(!bind(end, (struct sockaddr *)&address, sizeof(address)));
	return end;
}

/* Receives a frame. Returns whether it is one of those, and prints it. */
static int receive(int end)
{
	struct pollfd fd = { .fd = end, .events = POLLIN };
	char data[2048], control[512];
	struct iovec vector = { .iov_base = data, .iov_len = sizeof(data) };
	struct msghdr message = {
		.msg_iov = &vector, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control),
	};
	struct mark mark;

	CHECK(poll(&fd, 1, PATIENCE_MS) == 1);
	ssize_t len = recvmsg(end, &message, 0);

	CHECK(len >= 0);
	if (len < (ssize_t)(HEADERS + sizeof(mark)))
		return 0;
	memcpy(&mark, data + HEADERS, sizeof(mark));
	if (ntohl(mark.signature) != SIGNATURE)
		return 0;
	for (struct cmsghdr *part = CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part)) {
		if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_TIMESTAMPING)
			continue;
		struct timespec at = ((struct scm_timestamping *)CMSG_DATA(part))->ts[2];

		printf("%u %lu %ld\n", ntohs(mark.queue), be64toh(mark.time), nanoseconds(at));
		return 1;
	}
	fprintf(stderr, "timed_frames: no timestamp\n");
	exit(1);
}

int main(int argc, char **argv)
{
	int64_t least = INT64_MIN, most = INT64_MAX;
	clockid_t ours;

	if (argc != 4)
		return 2;
	clockid_t theirs = open_clock(argv[2]);
	int end = open_socket(argv[1], &ours);

	printf("ready\n");
	fflush(stdout);
	for (int left = atoi(argv[3]); left > 0; left -= receive(end))
		;
	for (int i = 0; i < READS; i++) {
		int64_t before = now(theirs), at = now(ours), after = now(theirs);

		least = at - after > least ? at - after : least;
		most = at - before < most ? at - before : most;
	}
	printf("ahead from %ld to %ld\n", least, most);
	return 0;
}
