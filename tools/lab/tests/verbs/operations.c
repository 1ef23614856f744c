/*
 * Every operation on the memory of another end, by libmlx5: what examples/operations.rs does, so that either end may be
 * that program. `operations DEVICE GID-INDEX rc|uc|xrc [HOST]`: the server, or the client.
 *
 * The server sends the address of its memory. In each round the client writes a pattern there and, if the service has
 * them, reads it back and changes two numbers behind it by atomics; else it writes the numbers. Then it sends a message
 * with immediate data. The server checks pattern and numbers, and answers.
 */
#include "pair.h"
#include "meet.h"
#include <endian.h>
#include <fcntl.h>

#define ROUNDS 8
/* Bytes that the client writes: more than a packet. The two numbers lie behind them. */
#define LENGTH 1536
#define RECEIVES_POSTED 4
#define ACCESS (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

/* Where in `memory` the numbers lie, the client's own bytes, a message, and the receives. */
static uint64_t *const numbers = (uint64_t *)(memory + LENGTH);
static char *const own = memory + 2048;
static uint64_t *const out = (uint64_t *)(memory + 3712);
static uint64_t (*const in)[2] = (uint64_t (*)[2])(memory + 3840);

static enum ibv_qp_type type;
/* The one that receives is the same, but for XRC. */
static struct ibv_qp *sender, *receiver;
static struct ibv_srq *srq;
static struct pair sends, receives;
static uint32_t remote_srqn;

static int is_unreliable(void)
{
	return type == IBV_QPT_UC;
}

static void pattern(char *to, int round)
{
	for (int i = 0; i < LENGTH; i++)
		to[i] = i * 7 + (i >> 8) + round * 31 + 1;
}

static void post_receive(int slot)
{
	struct ibv_sge sge = { .addr = (uintptr_t)in[slot], .length = sizeof(in[slot]), .lkey = mr->lkey };
	struct ibv_recv_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .wr_id = slot };

	CHECK(!(srq ? ibv_post_srq_recv(srq, &wr, &bad) : ibv_post_recv(receiver, &wr, &bad)));
}

/* Posts `wr` with `length` bytes at `start`, and waits for it. */
static void posts(struct ibv_send_wr *wr, void *start, size_t length)
{
	struct ibv_sge sge = { .addr = (uintptr_t)start, .length = length, .lkey = mr->lkey };
	struct ibv_send_wr *bad;

	wr->sg_list = &sge;
	wr->num_sge = 1;
	wr->qp_type.xrc.remote_srqn = remote_srqn;
	CHECK(!ibv_post_send(sender, wr, &bad));
	ends_in(&sends, IBV_WC_SUCCESS);
}

static void rdma(enum ibv_wr_opcode opcode, void *start, size_t length, uint64_t addr, uint32_t rkey)
{
	struct ibv_send_wr wr = { .opcode = opcode, .wr.rdma = { .remote_addr = addr, .rkey = rkey } };

	posts(&wr, start, length);
}

/* Returns what it found. */
static uint64_t atomic(enum ibv_wr_opcode opcode, uint64_t first, uint64_t second, uint64_t addr, uint32_t rkey)
{
	struct ibv_send_wr wr = {
		.opcode = opcode,
		.wr.atomic = { .remote_addr = addr, .rkey = rkey, .compare_add = first, .swap = second },
	};

	posts(&wr, own, 8);
	return *(uint64_t *)own;
}

static void send_words(uint32_t imm, uint64_t first, uint64_t second)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND_WITH_IMM, .imm_data = htobe32(imm) };

	out[0] = htobe64(first);
	out[1] = htobe64(second);
	posts(&wr, out, 16);
}

static void hear_words(uint32_t imm, uint64_t words[2])
{
	struct ibv_wc wc = ends_in(&receives, IBV_WC_SUCCESS);

	CHECK(wc.opcode == IBV_WC_RECV && wc.byte_len == 16);
	CHECK(wc.wc_flags & IBV_WC_WITH_IMM && wc.imm_data == htobe32(imm));
	for (int i = 0; i < 2; i++)
		words[i] = be64toh(in[wc.wr_id][i]);
	post_receive(wc.wr_id);
}

static void to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = is_unreliable() ? IBV_ACCESS_REMOTE_WRITE : ACCESS,
	};

	CHECK(qp);
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
}

static void connect_qp(struct ibv_qp *qp, unsigned remote, unsigned psn, const union ibv_gid *to, int is_target)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = remote, .rq_psn = psn,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .dgid = *to, .sgid_index = gid_index, .hop_limit = 1 } },
	};
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	int is_initiator = qp->qp_type == IBV_QPT_XRC_SEND;

	/* An initiator answers nothing, and a target asks nothing. */
	if (!is_unreliable() && !is_initiator)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	CHECK(!ibv_modify_qp(qp, &attr, mask));
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 18;
	attr.retry_cnt = attr.rnr_retry = 7;
	attr.max_rd_atomic = 1;
	mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (!is_unreliable())
		mask |= IBV_QP_TIMEOUT;
	if (!is_unreliable() && !is_target)
		mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	CHECK(!ibv_modify_qp(qp, &attr, mask));
}

static void open_connection(void)
{
	struct ibv_qp_init_attr init = {
		.send_cq = sends.cq, .recv_cq = receives.cq, .qp_type = type, .sq_sig_all = 1,
		.cap = { .max_send_wr = 4, .max_recv_wr = RECEIVES_POSTED, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	sender = receiver = ibv_create_qp(pd, &init);
	to_init(sender);
}

static void open_extended(void)
{
	struct ibv_xrcd_init_attr domain = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT,
	};
	struct ibv_xrcd *xrcd = ibv_open_xrcd(device, &domain);

	CHECK(xrcd);
	struct ibv_srq_init_attr_ex shared = {
		.attr = { .max_wr = RECEIVES_POSTED, .max_sge = 1 }, .srq_type = IBV_SRQT_XRC, .xrcd = xrcd, .pd = pd,
		.cq = receives.cq,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD,
	};

	CHECK((srq = ibv_create_srq_ex(device, &shared)));
	struct ibv_qp_init_attr_ex target = {
		.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = xrcd,
	};
	struct ibv_qp_init_attr_ex initiator = {
		.qp_type = IBV_QPT_XRC_SEND, .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd, .send_cq = sends.cq,
		.sq_sig_all = 1, .cap = { .max_send_wr = 4, .max_send_sge = 1 },
	};

	to_init(receiver = ibv_create_qp_ex(device, &target));
	to_init(sender = ibv_create_qp_ex(device, &initiator));
}

static void tell_addresses(int peer)
{
	uint32_t srqn = 0;

	if (srq)
		CHECK(!ibv_get_srq_num(srq, &srqn));
	tell_address(peer, sender->qp_num, 0, &gid);
	tell_address(peer, receiver->qp_num, 0, &gid);
	tell_address(peer, srqn, 0, &gid);
}

static void hear_addresses(int peer)
{
	unsigned initiator, target, psn, ignored;
	union ibv_gid to, none;

	hear_address(peer, &initiator, &psn, &to);
	hear_address(peer, &target, &ignored, &none);
	hear_address(peer, &remote_srqn, &ignored, &none);
	connect_qp(sender, target, psn, &to, 0);
	if (receiver != sender)
		connect_qp(receiver, initiator, psn, &to, 1);
}

static void serve(void)
{
	int peer = accept_client();
	uint64_t words[2];
	char expected[LENGTH];

	hear_addresses(peer);
	tell_addresses(peer);
	hear_done(peer);
	send_words(0, (uintptr_t)memory, mr->rkey);
	for (int round = 0; round < ROUNDS; round++) {
		hear_words(round, words);
		CHECK(words[0] == (uint64_t)round && words[1] == (uint64_t)round);
		pattern(expected, round);
		CHECK(!memcmp(memory, expected, LENGTH));
		for (int i = 0; i < 2; i++)
			CHECK(numbers[i] == (uint64_t)round + 1);
		send_words(round, round, round + 1);
	}
	printf("%d rounds answered\n", ROUNDS);
}

static void write_and_read(uint64_t addr, uint32_t rkey, int round)
{
	char expected[LENGTH];

	pattern(expected, round);
	memcpy(own, expected, LENGTH);
	rdma(IBV_WR_RDMA_WRITE, own, LENGTH, addr, rkey);
	if (is_unreliable())
		return;
	memset(own, 0, LENGTH);
	rdma(IBV_WR_RDMA_READ, own, LENGTH, addr, rkey);
	CHECK(!memcmp(own, expected, LENGTH));
}

/* Makes both numbers, which are `round`, one more. */
static void change(uint64_t addr, uint32_t rkey, uint64_t round)
{
	if (is_unreliable()) {
		for (int i = 0; i < 2; i++) {
			*(uint64_t *)own = round + 1;
			rdma(IBV_WR_RDMA_WRITE, own, 8, addr + 8 * i, rkey);
		}
		return;
	}
	CHECK(atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, addr, rkey) == round);
	CHECK(atomic(IBV_WR_ATOMIC_CMP_AND_SWP, round, round + 1, addr + 8, rkey) == round);
}

static void call(const char *host)
{
	int peer = connect_server(host);
	uint64_t at[2], answer[2];

	tell_addresses(peer);
	hear_addresses(peer);
	tell_done(peer);
	hear_words(0, at);
	for (int round = 0; round < ROUNDS; round++) {
		write_and_read(at[0], at[1], round);
		change(at[0] + LENGTH, at[1], round);
		send_words(round, round, round);
		hear_words(round, answer);
		CHECK(answer[0] == (uint64_t)round && answer[1] == (uint64_t)round + 1);
	}
	printf("%d rounds by libmlx5\n", ROUNDS);
}

int main(int argc, char **argv)
{
	if (argc < 4 || argc > 5)
		return 2;
	type = !strcmp(argv[3], "uc") ? IBV_QPT_UC : !strcmp(argv[3], "xrc") ? IBV_QPT_XRC_SEND : IBV_QPT_RC;
	open_device(3, argv, IBV_ACCESS_LOCAL_WRITE | ACCESS);
	CHECK((sends.cq = ibv_create_cq(device, 4, NULL, NULL, 0)));
	CHECK((receives.cq = ibv_create_cq(device, RECEIVES_POSTED, NULL, NULL, 0)));
	if (type == IBV_QPT_XRC_SEND)
		open_extended();
	else
		open_connection();
	for (int slot = 0; slot < RECEIVES_POSTED; slot++)
		post_receive(slot);
	if (argc == 5)
		call(argv[4]);
	else
		serve();
	return 0;
}
