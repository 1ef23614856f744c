/*
 * The datagrams of several inline parts that examples/datagrams.rs sends, received by libmlx5: `datagrams DEVICE
 * GID-INDEX` waits for that program. It compares length, sender, immediate data, both GIDs and every byte.
 */
#include "pair.h"
#include "meet.h"
#include <endian.h>

#define QKEY 0x11111111
#define SENDERS 3
/* The first fills its work request. Each goes twice: without and with immediate data. */
static const uint32_t lengths[] = { 124, 90, 20 };
#define LENGTHS (sizeof(lengths) / sizeof(lengths[0]))
#define DATAGRAMS (SENDERS * LENGTHS * 2)
/* What a byte is that nobody has written. */
#define UNTOUCHED 0xee

struct slot {
	struct ibv_grh grh;
	uint8_t data[128];
};

static struct slot *const slots = (struct slot *)memory;
_Static_assert(sizeof(memory) >= DATAGRAMS * sizeof(struct slot), "a datagram has no room");

static struct pair receives;

static struct ibv_qp *create_qp(void)
{
	struct ibv_qp_init_attr init = {
		.send_cq = receives.cq, .recv_cq = receives.cq, .qp_type = IBV_QPT_UD,
		.cap = { .max_send_wr = 1, .max_recv_wr = DATAGRAMS, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	CHECK(qp && !ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	attr.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	return qp;
}

static void post_receives(struct ibv_qp *qp)
{
	memset(memory, UNTOUCHED, sizeof(memory));
	for (size_t slot = 0; slot < DATAGRAMS; slot++) {
		struct ibv_sge sge = { .addr = (uintptr_t)&slots[slot], .length = sizeof(slots[slot]), .lkey = mr->lkey };
		struct ibv_recv_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .wr_id = slot };

		CHECK(!ibv_post_recv(qp, &wr, &bad));
	}
}

/* The datagram `number` is the next, and `sender` sent it from `from`. */
static void hear(uint32_t number, unsigned sender, const union ibv_gid *from)
{
	struct ibv_wc wc = ends_in(&receives, IBV_WC_SUCCESS);
	const struct slot *slot = &slots[number];
	uint32_t length = lengths[number / 2 % LENGTHS];

	CHECK(wc.opcode == IBV_WC_RECV && wc.wr_id == number && wc.src_qp == sender);
	CHECK(wc.wc_flags & IBV_WC_GRH && wc.byte_len == sizeof(slot->grh) + length);
	CHECK(!(wc.wc_flags & IBV_WC_WITH_IMM) == !(number % 2));
	CHECK(!(number % 2) || wc.imm_data == htobe32(0x01020300 + number));
	CHECK(!memcmp(&slot->grh.sgid, from, sizeof(*from)) && !memcmp(&slot->grh.dgid, &gid, sizeof(gid)));
	for (uint32_t i = 0; i < sizeof(slot->data); i++)
		CHECK(slot->data[i] == (i < length ? (uint8_t)(i * 7 + number * 31 + 1) : UNTOUCHED));
}

int main(int argc, char **argv)
{
	unsigned senders[SENDERS], psn;
	union ibv_gid from;

	open_device(argc, argv, IBV_ACCESS_LOCAL_WRITE);
	CHECK((receives.cq = ibv_create_cq(device, DATAGRAMS, NULL, NULL, 0)));

	struct ibv_qp *qp = create_qp();

	post_receives(qp);

	int peer = accept_client();

	for (int i = 0; i < SENDERS; i++)
		hear_address(peer, &senders[i], &psn, &from);
	for (int i = 0; i < SENDERS; i++)
		tell_address(peer, qp->qp_num, 0, &gid);
	hear_done(peer);
	for (uint32_t number = 0; number < DATAGRAMS; number++)
		hear(number, senders[number / (2 * LENGTHS)], &from);
	printf("%zu datagrams of several parts heard\n", DATAGRAMS);
	return 0;
}
