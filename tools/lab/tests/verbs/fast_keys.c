/*
 * Keys that are opened to the client for one transfer, and closed again, by libibverbs: what examples/fast_keys.rs
 * does, so that either end may be that program. `fast_keys DEVICE [HOST]`: the server, or the client.
 *
 * In each round the server opens LENGTH bytes to the client, and sends it address and key: here by a memory window of
 * type 2. The client writes them, reads them back, and sends a message. In even rounds that message invalidates the
 * key, in odd rounds the server closes it: in every round if bit 32 of the key says that it changes by commands, which
 * may give the same number again. At last the client tries a key that is closed. Ends with 0 when all was as it had to
 * be.
 */
#define SEND_OPS (IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ)
#include "peer.h"

#define LENGTH 1024
#define ROUNDS 8

static void pattern(char *to, int round)
{
	for (int i = 0; i < LENGTH; i++)
		to[i] = i * 7 + (i >> 8) + round * 31 + 1;
}

static struct ibv_wc posted(struct ibv_send_wr *wr, enum ibv_wc_opcode opcode)
{
	struct ibv_send_wr *bad;

	CHECK(!ibv_post_send(qp, wr, &bad));
	return completes(opcode);
}

/* Opens the bytes; the key is the window's. */
static void opens(struct ibv_mw *mw)
{
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_BIND_MW,
		.bind_mw = { .mw = mw, .rkey = ibv_inc_rkey(mw->rkey),
			     .bind_info = { .mr = mr, .addr = (uintptr_t)memory.own, .length = LENGTH,
					    .mw_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ } },
	};

	posted(&wr, IBV_WC_BIND_MW);
	mw->rkey = wr.bind_mw.rkey;
}

static void closes(struct ibv_mw *mw)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = mw->rkey };

	posted(&wr, IBV_WC_LOCAL_INV);
}

static void serve(void)
{
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	char expected[LENGTH];

	CHECK(mw);
	accept_peer();
	for (int round = 0; round < ROUNDS; round++) {
		memset(memory.own, 0, LENGTH);
		opens(mw);
		send_words((uintptr_t)memory.own, mw->rkey);
		struct ibv_wc wc = completes(IBV_WC_RECV);

		CHECK(!!(wc.wc_flags & IBV_WC_WITH_INV) == (round % 2 == 0));
		if (round % 2)
			closes(mw);
		else
			CHECK(wc.invalidated_rkey == mw->rkey);
		pattern(expected, round);
		CHECK(!memcmp(memory.own, expected, LENGTH));
		post_receive();
	}
	send_words(0, 0);
	/* The client's attempt moves the connection to the error state. */
	CHECK(next_completion().status == IBV_WC_WR_FLUSH_ERR);
	printf("%d rounds, and a closed key is refused\n", ROUNDS);
}

static void moves(enum ibv_wr_opcode opcode, enum ibv_wc_opcode done, uint64_t remote, uint32_t rkey)
{
	struct ibv_sge sge = at(memory.own, LENGTH);
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = opcode, .wr.rdma = { .remote_addr = remote, .rkey = rkey },
	};

	posted(&wr, done);
}

static void call(const char *host)
{
	uint64_t remote = 0;
	uint32_t rkey = 0;
	char expected[LENGTH];

	call_peer(host);
	for (int round = 0;; round++) {
		completes(IBV_WC_RECV);
		uint64_t key = be64toh(memory.in[1]);
		int by_commands = key >> 32;

		if (!key)
			break;
		remote = be64toh(memory.in[0]);
		CHECK(by_commands || rkey != (uint32_t)key);
		rkey = key;
		pattern(expected, round);
		memcpy(memory.own, expected, LENGTH);
		moves(IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE, remote, rkey);
		memset(memory.own, 0, LENGTH);
		moves(IBV_WR_RDMA_READ, IBV_WC_RDMA_READ, remote, rkey);
		CHECK(!memcmp(memory.own, expected, LENGTH));

		struct ibv_sge sge = at(memory.out, sizeof(memory.out));
		struct ibv_send_wr wr = {
			.sg_list = &sge, .num_sge = 1, .invalidate_rkey = rkey,
			.opcode = round % 2 || by_commands ? IBV_WR_SEND : IBV_WR_SEND_WITH_INV,
		};

		post_receive();
		posted(&wr, IBV_WC_SEND);
	}
	struct ibv_sge sge = at(memory.own, LENGTH);
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = { .remote_addr = remote, .rkey = rkey },
	};

	CHECK(!ibv_post_send(qp, &wr, &bad));
	CHECK(next_completion().status == IBV_WC_REM_ACCESS_ERR);
	printf("a closed key is refused\n");
}

int main(int argc, char **argv)
{
	const int remote = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

	if (argc < 2)
		return 2;
	open_device(argv[1], IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND, remote);
	if (argc > 2)
		call(argv[2]);
	else
		serve();
	return 0;
}
