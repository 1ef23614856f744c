/*
 * On-demand paging: regions whose pages come by page faults and go by MADV_DONTNEED between messages.
 * `page_faults DEVICE GID-INDEX`; exits with 0 if every byte arrived, and the kernel counted what must have happened.
 */
#include "pair.h"
#include "counted.h"

#include <sys/mman.h>

#define PAGE 4096
#define PAGES 16
#define LENGTH (PAGES * PAGE)
/* Not the start of a page. */
#define SKEW 200
#define BYTES (LENGTH - 2 * SKEW)
#define ROUNDS 6
#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ON_DEMAND)

static unsigned char *source, *target;

static unsigned char *map(void)
{
	void *at = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(at != MAP_FAILED);
	/* One page each, or nothing would come and go. */
	CHECK(!madvise(at, LENGTH, MADV_NOHUGEPAGE));
	return at;
}

static void let_go(void *at)
{
	CHECK(!madvise(at, LENGTH, MADV_DONTNEED));
}

static unsigned char byte_of(int round, int at)
{
	return (unsigned char)(at * 31 + (at >> 8) + round * 7 + 1);
}

static void fill(unsigned char *at, int round)
{
	for (int i = 0; i < BYTES; i++)
		at[SKEW + i] = byte_of(round, i);
}

static void check(const unsigned char *at, int round, const char *what)
{
	for (int i = 0; i < BYTES; i++)
		if (at[SKEW + i] != byte_of(round, i)) {
			fprintf(stderr, "%s, round %d: byte %d is %d\n", what, round, i, at[SKEW + i]);
			exit(1);
		}
}

static void start(struct ibv_qp *qp, enum ibv_wr_opcode opcode, void *local, uint32_t lkey, void *remote, uint32_t rkey)
{
	struct ibv_sge sge = { (uintptr_t)local + SKEW, BYTES, lkey };
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = opcode,
		.wr.rdma = { .remote_addr = (uintptr_t)remote + SKEW, .rkey = rkey },
	};

	CHECK(!ibv_post_send(qp, &wr, &bad));
}

static void await(struct pair *pair, int completions)
{
	while (completions--)
		ends_in(pair, IBV_WC_SUCCESS);
}

/* Sends, writes and reads from pages that come into others that come, all gone again after each. */
static void messages(struct pair *pair, uint32_t from, uint32_t to)
{
	struct ibv_sge sge = { (uintptr_t)target + SKEW, BYTES, to };
	struct ibv_recv_wr *bad, wr = { .sg_list = &sge, .num_sge = 1 };

	for (int round = 0; round < ROUNDS; round++) {
		fill(source, round);
		let_go(target);
		start(pair->qp[0], IBV_WR_RDMA_WRITE, source, from, target, to);
		await(pair, 1);
		check(target, round, "write");
		let_go(target);
		let_go(source);
		fill(source, round + 1);
		CHECK(!ibv_post_recv(pair->qp[1], &wr, &bad));
		start(pair->qp[0], IBV_WR_SEND, source, from, NULL, 0);
		await(pair, 2);
		check(target, round + 1, "send");
		let_go(target);
		let_go(source);
		/* The other way: from what is remote. */
		fill(source, round + 2);
		start(pair->qp[0], IBV_WR_RDMA_READ, target, to, source, from);
		await(pair, 1);
		check(target, round + 2, "read");
		let_go(source);
	}
}

int main(int argc, char **argv)
{
	const uint32_t all = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ |
			     IBV_ODP_SUPPORT_ATOMIC | IBV_ODP_SUPPORT_SRQ_RECV;
	struct ibv_device_attr_ex attr;
	struct ibv_mr *from, *to;
	struct pair pair;
	long faults;

	open_device(argc, argv, IBV_ACCESS_LOCAL_WRITE);
	CHECK(!ibv_query_device_ex(device, NULL, &attr));
	CHECK(attr.odp_caps.general_caps == (IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT));
	CHECK(attr.odp_caps.per_transport_caps.rc_odp_caps == all && attr.xrc_odp_caps == all);
	CHECK(attr.odp_caps.per_transport_caps.ud_odp_caps == IBV_ODP_SUPPORT_SEND);

	pair = new_pair(64, NULL);
	source = map();
	target = map();
	CHECK((from = ibv_reg_mr(pd, source, LENGTH, ACCESS)) && (to = ibv_reg_mr(pd, target, LENGTH, ACCESS)));
	messages(&pair, from->lkey, to->lkey);
	faults = counted("page_faults");
	CHECK(faults >= ROUNDS * 2 * PAGES && counted("page_invalidations") >= ROUNDS * 2 * PAGES);
	CHECK(!ibv_dereg_mr(from) && !ibv_dereg_mr(to));

	end(&pair);
	printf("pages came and went\n");
	return 0;
}
