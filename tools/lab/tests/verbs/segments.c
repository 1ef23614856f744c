/*
 * Receives the frames into which a card has divided packets of TCP, and checks headers, checksums and contents.
 * `segments INTERFACE PACKETS BYTES MSS`: packets to port 7007, as examples/segments.rs sends them; exits with 0 once
 * all have come. Their interface must not join them (`ethtool -K INTERFACE gro off`).
 */
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#define PORT 7007
#define FIRST 1000

#define CHECK(what) do { if (!(what)) fail(#what); } while (0)

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static uint32_t sum(uint32_t start, const void *bytes, size_t len)
{
	const uint8_t *at = bytes;

	for (size_t i = 0; i < len; i++)
		start += i % 2 ? at[i] : at[i] << 8;
	return start;
}

static uint16_t fold(uint32_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* The TCP header of a frame to our port, and its length with the payload; NULL for any other frame. */
static const struct tcphdr *segment(const uint8_t *frame, size_t len, size_t *tcp_len, uint16_t *id)
{
	const struct ether_header *ethernet = (const void *)frame;
	const struct ip *ip = (const void *)(ethernet + 1);
	const struct ip6_hdr *ip6 = (const void *)ip;
	const struct tcphdr *tcp;
	uint32_t pseudo;

	if (len < sizeof(*ethernet) + sizeof(*ip6) + sizeof(*tcp))
		return NULL;
	if (ethernet->ether_type == htons(ETHERTYPE_IP) && ip->ip_p == IPPROTO_TCP) {
		tcp = (const void *)(ip + 1);
		*tcp_len = ntohs(ip->ip_len) - sizeof(*ip);
		*id = ntohs(ip->ip_id);
		pseudo = sum(0, &ip->ip_src, 8);
		if (tcp->dest == htons(PORT))
			CHECK(ip->ip_hl == 5 && fold(sum(0, ip, sizeof(*ip))) == 0xffff);
	} else if (ethernet->ether_type == htons(ETHERTYPE_IPV6) && ip6->ip6_nxt == IPPROTO_TCP) {
		tcp = (const void *)(ip6 + 1);
		*tcp_len = ntohs(ip6->ip6_plen);
		*id = 0;
		pseudo = sum(0, &ip6->ip6_src, 32);
	} else {
		return NULL;
	}
	if (tcp->dest != htons(PORT))
		return NULL;
	CHECK((const uint8_t *)tcp + *tcp_len <= frame + len);
	CHECK(fold(sum(pseudo + IPPROTO_TCP + *tcp_len, tcp, *tcp_len)) == 0xffff);
	return tcp;
}

int main(int argc, char **argv)
{
	static uint8_t frame[65536];
	struct sockaddr_ll at = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL) };
	struct timeval patience = { .tv_sec = 120 };
	uint32_t packets, bytes, mss, frames = 0;
	int fd = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));

	if (argc != 5)
		exit(2);
	packets = atoi(argv[2]);
	bytes = atoi(argv[3]);
	mss = atoi(argv[4]);
	CHECK(fd >= 0 && (at.sll_ifindex = if_nametoindex(argv[1])));
	CHECK(!bind(fd, (struct sockaddr *)&at, sizeof(at)));
	CHECK(!setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)));
	printf("listening\n");
	fflush(stdout);
	for (uint32_t packet = 0, got = 0, number = 0; packet < packets;) {
		ssize_t len = recv(fd, frame, sizeof(frame), 0);
		const struct tcphdr *tcp;
		size_t tcp_len;
		uint16_t id;

		CHECK(len > 0);
		tcp = segment(frame, len, &tcp_len, &id);
		if (!tcp)
			continue;
		const uint8_t *payload = (const uint8_t *)(tcp + 1);
		uint32_t here = tcp_len - sizeof(*tcp), rest = bytes - got;
		int last = here == rest;

		CHECK(tcp->doff == 5 && here == (rest < mss ? rest : mss));
		CHECK(ntohl(tcp->seq) == FIRST + packet * bytes + got);
		CHECK(!id || id == 0x1234 + number);
		CHECK(tcp->ack && !tcp->fin && tcp->psh == last);
		for (uint32_t i = 0; i < here; i++)
			CHECK(payload[i] == (uint8_t)((got + i) * 7 + packet));
		got = last ? 0 : got + here;
		number = last ? 0 : number + 1;
		packet += last;
		frames++;
	}
	printf("%u packets of %u bytes in %u frames, every checksum right\n", packets, bytes, frames);
	return 0;
}
