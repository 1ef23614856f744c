/*
 * Dynamic connections, by libmlx5: what examples/dynamic.rs does, so that either end may be that program.
 * `dynamic DEVICE GID-INDEX [HOST]`: the server, or the client. Each has an initiator and a target.
 *
 * The server sends the address of its memory. In each round the client writes a pattern there, reads it back, adds one
 * to a number behind it, and sends a message; the server checks memory and number, and answers. At last the client
 * sends with a wrong access key, which must be refused: by another initiator, for this one is in error then.
 */
#include "dc.h"
#include "meet.h"
#include <endian.h>

#define ROUNDS 8
/* Bytes that the client writes: more than a packet. The number lies behind them. */
#define LENGTH 1536
#define ACCESS (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

/* Where in `memory` the number lies, the client's own bytes, a message, and the receives. */
static uint64_t *const number = (uint64_t *)(memory + LENGTH);
static char *const own = memory + 2048;
static uint64_t *const out = (uint64_t *)(memory + 3712);
static uint64_t (*const in)[2] = (uint64_t (*)[2])(memory + 3840);

static struct target target;
static struct pair sends;
static struct ibv_qp_ex *initiator;
static struct ibv_ah *ah;
static unsigned remote_dctn;

static void pattern(char *to, int round)
{
	for (int i = 0; i < LENGTH; i++)
		to[i] = i * 7 + (i >> 8) + round * 31 + 1;
}

static void post_receive(int slot)
{
	struct ibv_sge sge = { .addr = (uintptr_t)in[slot], .length = sizeof(in[slot]), .lkey = mr->lkey };
	struct ibv_recv_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .wr_id = slot };

	CHECK(!ibv_post_srq_recv(target.srq, &wr, &bad));
}

/* Posts what was begun, of `length` bytes at `start`, to the target by `key`. */
static void posts(void *start, size_t length, uint64_t key)
{
	mlx5dv_wr_set_dc_addr(mlx5dv_qp_ex_from_ibv_qp_ex(initiator), ah, remote_dctn, key);
	ibv_wr_set_sge(initiator, mr->lkey, (uintptr_t)start, length);
	CHECK(!ibv_wr_complete(initiator));
}

static void send_words(uint64_t first, uint64_t second, uint64_t key)
{
	out[0] = htobe64(first);
	out[1] = htobe64(second);
	ibv_wr_start(initiator);
	ibv_wr_send(initiator);
	posts(out, 16, key);
}

static void hear_words(uint64_t words[2])
{
	struct pair receives = { .cq = target.cq };
	struct ibv_wc wc = ends_in(&receives, IBV_WC_SUCCESS);

	CHECK(wc.opcode == IBV_WC_RECV && wc.byte_len == 16);
	for (int i = 0; i < 2; i++)
		words[i] = be64toh(in[wc.wr_id][i]);
	post_receive(wc.wr_id);
}

static struct ibv_qp_ex *new_initiator(void)
{
	struct ibv_qp *qp = create_initiator(sends.cq, 0, (struct mlx5dv_dci_streams){});

	CHECK(qp);
	start(qp);
	return ibv_qp_to_qp_ex(qp);
}

/* Creates both queues, and posts receives. */
static void open_end(char **argv)
{
	open_dc(3, argv, IBV_ACCESS_LOCAL_WRITE | ACCESS);
	target = new_target(ACCESS);
	for (int slot = 0; slot < 4; slot++)
		post_receive(slot);
	CHECK((sends.cq = ibv_create_cq(device, SENDS, NULL, NULL, 0)));
	initiator = new_initiator();
}

static void hear_target(int peer)
{
	unsigned psn;

	hear_address(peer, &remote_dctn, &psn, &path.grh.dgid);
	CHECK((ah = ibv_create_ah(pd, &path)));
}

static void serve(void)
{
	int peer = accept_client();
	uint64_t words[2];
	char expected[LENGTH];

	hear_target(peer);
	tell_address(peer, target.qp->qp_num, 0, &gid);
	hear_done(peer);
	send_words((uintptr_t)memory, mr->rkey, KEY);
	ends_in(&sends, IBV_WC_SUCCESS);
	for (int round = 0; round < ROUNDS; round++) {
		hear_words(words);
		CHECK(words[0] == (uint64_t)round && words[1] == (uint64_t)round);
		pattern(expected, round);
		CHECK(!memcmp(memory, expected, LENGTH) && *number == (uint64_t)round + 1);
		send_words(round, round + 1, KEY);
		ends_in(&sends, IBV_WC_SUCCESS);
	}
	hear_words(words);
	CHECK(words[0] == ROUNDS && words[1] == ROUNDS);
	printf("%d rounds answered\n", ROUNDS);
}

/* Returns what the number was. */
static uint64_t write_and_add(uint64_t addr, uint32_t rkey, int round)
{
	char expected[LENGTH];

	pattern(expected, round);
	memcpy(own, expected, LENGTH);
	ibv_wr_start(initiator);
	ibv_wr_rdma_write(initiator, rkey, addr);
	posts(own, LENGTH, KEY);
	ends_in(&sends, IBV_WC_SUCCESS);
	memset(own, 0, LENGTH);
	ibv_wr_start(initiator);
	ibv_wr_rdma_read(initiator, rkey, addr);
	posts(own, LENGTH, KEY);
	ends_in(&sends, IBV_WC_SUCCESS);
	CHECK(!memcmp(own, expected, LENGTH));
	ibv_wr_start(initiator);
	ibv_wr_atomic_fetch_add(initiator, rkey, addr + LENGTH, 1);
	posts(own, 8, KEY);
	ends_in(&sends, IBV_WC_SUCCESS);
	return *(uint64_t *)own;
}

static void call(const char *host)
{
	int peer = connect_server(host);
	uint64_t at[2], answer[2];

	tell_address(peer, target.qp->qp_num, 0, &gid);
	hear_target(peer);
	tell_done(peer);
	hear_words(at);
	for (int round = 0; round < ROUNDS; round++) {
		send_words(round, write_and_add(at[0], at[1], round), KEY);
		ends_in(&sends, IBV_WC_SUCCESS);
		hear_words(answer);
		CHECK(answer[0] == (uint64_t)round && answer[1] == (uint64_t)round + 1);
	}
	printf("%d rounds\n", ROUNDS);
	struct ibv_qp_ex *first = initiator;

	initiator = new_initiator();
	send_words(0, 0, KEY + 1);
	ends_in(&sends, IBV_WC_REM_ACCESS_ERR);
	printf("a wrong access key is refused\n");
	initiator = first;
	send_words(ROUNDS, ROUNDS, KEY);
	ends_in(&sends, IBV_WC_SUCCESS);
}

int main(int argc, char **argv)
{
	if (argc < 3 || argc > 4)
		return 2;
	open_end(argv);
	if (argc == 4)
		call(argv[3]);
	else
		serve();
	return 0;
}
