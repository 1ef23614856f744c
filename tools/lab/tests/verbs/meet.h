/*
 * How two programs find each other: they tell numbers of queue pairs over TCP, as ibv_rc_pingpong does. Whoever
 * includes it has CHECK.
 */
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <unistd.h>

#define PORT 18515
/* lid:qpn:psn:gid, and the zero that ends it. */
#define ADDRESS sizeof("0000:000000:000000:00000000000000000000000000000000")

static void tell_address(int peer, uint32_t qpn, uint32_t psn, const union ibv_gid *gid)
{
	char text[ADDRESS];
	int length = sprintf(text, "0000:%06x:%06x:", qpn, psn);

	for (int i = 0; i < 16; i++)
		length += sprintf(text + length, "%02x", gid->raw[i]);
	CHECK(write(peer, text, ADDRESS) == ADDRESS);
}

static void hear_address(int peer, unsigned *qpn, unsigned *psn, union ibv_gid *gid)
{
	char text[ADDRESS];
	int start;

	for (size_t have = 0; have < ADDRESS;) {
		ssize_t some = read(peer, text + have, ADDRESS - have);

		CHECK(some > 0);
		have += some;
	}
	CHECK(sscanf(text, "%*4x:%6x:%6x:%n", qpn, psn, &start) == 2);
	for (int i = 0; i < 16; i++)
		CHECK(sscanf(text + start + 2 * i, "%2hhx", &gid->raw[i]) == 1);
}

/* The client's last word: both ends are ready. */
static inline void tell_done(int peer)
{
	CHECK(write(peer, "done", 5) == 5);
}

static void hear_done(int peer)
{
	char done[5];

	CHECK(read(peer, done, sizeof(done)) > 0);
}

/* Waits for a client. */
static int accept_client(void)
{
	struct sockaddr_in here = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	int yes = 1, listener = socket(AF_INET, SOCK_STREAM, 0), peer;

	CHECK(!setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)));
	CHECK(!bind(listener, (struct sockaddr *)&here, sizeof(here)) && !listen(listener, 1));
	CHECK((peer = accept(listener, NULL, NULL)) >= 0);
	return peer;
}

/* Connects to the server on `host`. */
static inline int connect_server(const char *host)
{
	struct sockaddr_in there = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	int peer = socket(AF_INET, SOCK_STREAM, 0);

	CHECK(inet_pton(AF_INET, host, &there.sin_addr) == 1);
	CHECK(!connect(peer, (struct sockaddr *)&there, sizeof(there)));
	return peer;
}
