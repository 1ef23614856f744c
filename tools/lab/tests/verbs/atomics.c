/*
 * The client executes fetch-and-add and compare-and-swap on a number of the server, by libibverbs: as
 * examples/atomics.rs does, so that either end may be that program. `atomics DEVICE N [HOST]`: the server, or with HOST
 * the client, which adds N times.
 *
 * They exchange addresses as ibv_rc_pingpong does, for GID 0. Then the server sends the address of its number; at the
 * end the client sends the expected value. Exits with 0 if each value was as expected.
 */
#define SEND_OPS (IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)
#include "peer.h"

#define FIRST UINT64_C(0x01020304050607f0)
#define LAST UINT64_C(0xf1e2d3c4b5a69788)

#define NUMBER ((volatile uint64_t *)memory.own)

static void expect(const char *what, uint64_t found, uint64_t expected)
{
	if (found == expected)
		return;
	fprintf(stderr, "%s: %#" PRIx64 " instead of %#" PRIx64 "\n", what, found, expected);
	exit(1);
}

/* Posts an atomic by the extended verbs; returns the previous value. */
static uint64_t atomic(int is_swap, uint64_t compare, uint64_t swap_add)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	uint64_t remote = be64toh(memory.in[0]);
	uint32_t rkey = be64toh(memory.in[1]);

	ibv_wr_start(ex);
	if (is_swap)
		ibv_wr_atomic_cmp_swp(ex, rkey, remote, compare, swap_add);
	else
		ibv_wr_atomic_fetch_add(ex, rkey, remote, swap_add);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory.own, sizeof(*NUMBER));
	CHECK(!ibv_wr_complete(ex));
	completes(is_swap ? IBV_WC_COMP_SWAP : IBV_WC_FETCH_ADD);
	return *NUMBER;
}

static void run_server(void)
{
	*NUMBER = FIRST;
	accept_peer();
	send_words((uintptr_t)memory.own, mr->rkey);
	completes(IBV_WC_RECV);
	expect("the number", *NUMBER, be64toh(memory.in[0]));
	printf("the client changed it to %#" PRIx64 "\n", *NUMBER);
}

static void run_client(const char *host, uint64_t count)
{
	call_peer(host);
	completes(IBV_WC_RECV);
	for (uint64_t i = 0; i < count; i++)
		expect("an addition", atomic(0, 0, 1), FIRST + i);
	expect("a swap with the wrong compare value", atomic(1, ~(FIRST + count), 0), FIRST + count);
	expect("a swap with the right compare value", atomic(1, FIRST + count, LAST), FIRST + count);
	expect("an addition of 0", atomic(0, 0, 0), LAST);
	send_words(LAST, 0);
	printf("%" PRIu64 " additions, and a swap\n", count);
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	open_device(argv[1], IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_ATOMIC);
	if (argc > 3)
		run_client(argv[3], strtoull(argv[2], NULL, 0));
	else
		run_server();
	return 0;
}
