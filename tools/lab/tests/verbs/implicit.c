/*
 * Implicit on-demand paging: one region of all addresses, through which memory is used that nobody registered, whose
 * pages come by faults and by ibv_advise_mr. RC with SEND, WRITE, READ, atomics and a shared receive queue, and UD
 * SENDs. `implicit DEVICE GID-INDEX`; exits with 0 if every byte arrived, and the kernel counted what must have
 * happened.
 */
#include "pair.h"
#include "counted.h"

#include <sys/mman.h>

#define PAGES 16
#define LENGTH (PAGES * 4096)
/* Apart by more than one of the keys that Linux makes for parts of the region. */
#define APART (3UL << 30)
/* Not the start of a page. */
#define SKEW 200
#define BYTES (LENGTH - 2 * SKEW)
#define ROUNDS 3
#define GRH 40
#define QKEY 0x1234
#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
		IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ON_DEMAND)

static struct ibv_mr *all;
static unsigned char *source, *target;

/* Pages that are not there yet, far from each other, with one more behind each range. */
static void map_memory(void)
{
	unsigned char *at = mmap(NULL, APART + LENGTH + 4096, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	CHECK(at != MAP_FAILED);
	CHECK(!madvise(at, APART + LENGTH + 4096, MADV_NOHUGEPAGE));
	source = at;
	target = at + APART;
}

static void let_go(void *at)
{
	CHECK(!madvise(at, LENGTH, MADV_DONTNEED));
}

static unsigned char byte_of(int round, int at)
{
	return (unsigned char)(at * 31 + (at >> 8) + round * 7 + 1);
}

static void fill(int round)
{
	let_go(target);
	let_go(source);
	for (int i = 0; i < BYTES; i++)
		source[SKEW + i] = byte_of(round, i);
}

static void check(const unsigned char *at, int bytes, int round, const char *what)
{
	for (int i = 0; i < bytes; i++)
		if (at[i] != byte_of(round, i)) {
			fprintf(stderr, "%s, round %d: byte %d is %d\n", what, round, i, at[i]);
			exit(1);
		}
}

static struct ibv_sge part(void *at, uint32_t length)
{
	return (struct ibv_sge){ (uintptr_t)at, length, all->lkey };
}

/*
 * Brings in the page behind each range, which stays. Linux takes the key of a part away once its last page is gone, by
 * and by, and refuses a fault that names the key in between (find_odp_mkey of odp.c finds none): nothing that a card
 * could help.
 */
static void keep_parts(void)
{
	struct ibv_sge pages[] = { part(source + LENGTH, 4096), part(target + LENGTH, 4096) };

	CHECK(!ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, pages, 2));
}

static void start(struct ibv_qp *qp, enum ibv_wr_opcode opcode, void *local, void *remote)
{
	struct ibv_sge sge = part(local, BYTES);
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = opcode,
		.wr.rdma = { .remote_addr = (uintptr_t)remote, .rkey = all->rkey },
	};

	CHECK(!ibv_post_send(qp, &wr, &bad));
}

static void await(struct pair *pair, int completions)
{
	while (completions--)
		ends_in(pair, IBV_WC_SUCCESS);
}

/* Each operation from pages that come into others that come. `srq`: where the second queue pair receives, if any. */
static void messages(struct pair *pair, struct ibv_srq *srq)
{
	struct ibv_sge sge = part(target + SKEW, BYTES);
	struct ibv_recv_wr *bad, wr = { .sg_list = &sge, .num_sge = 1 };

	for (int round = 0; round < ROUNDS; round++) {
		fill(round);
		CHECK(!(srq ? ibv_post_srq_recv(srq, &wr, &bad) : ibv_post_recv(pair->qp[1], &wr, &bad)));
		start(pair->qp[0], IBV_WR_SEND, source + SKEW, NULL);
		await(pair, 2);
		check(target + SKEW, BYTES, round, srq ? "send to a shared queue" : "send");
		/* Its faults have made the parts. */
		if (round == 0)
			keep_parts();
		fill(round + 1);
		start(pair->qp[0], IBV_WR_RDMA_WRITE, source + SKEW, target + SKEW);
		await(pair, 1);
		check(target + SKEW, BYTES, round + 1, "write");
		fill(round + 2);
		start(pair->qp[0], IBV_WR_RDMA_READ, target + SKEW, source + SKEW);
		await(pair, 1);
		check(target + SKEW, BYTES, round + 2, "read");
	}
}

/* Adds to a number whose page is not there, and finds it in one that was not there either. */
static void atomic(struct pair *pair)
{
	uint64_t *number = (uint64_t *)target, *found = (uint64_t *)source;
	struct ibv_sge sge = part(found, 8);
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
		.wr.atomic = { .remote_addr = (uintptr_t)number, .compare_add = 5, .rkey = all->rkey },
	};

	let_go(target);
	let_go(source);
	for (int round = 0; round < ROUNDS; round++) {
		CHECK(!ibv_post_send(pair->qp[0], &wr, &bad));
		await(pair, 1);
		CHECK(*found == 5 * (uint64_t)round && *number == 5 * (uint64_t)(round + 1));
		let_go(source);
	}
}

static struct ibv_qp *new_datagrams(struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD, .sq_sig_all = 1,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	CHECK(qp);
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	attr.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
	return qp;
}

/* Datagrams come from pages on demand, and go into memory that is registered as ever. */
static void datagrams(struct pair *pair)
{
	const uint32_t bytes = 1000;
	struct ibv_ah_attr path = { .is_global = 1, .port_num = 1,
				    .grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 1 } };
	struct ibv_qp *qp = new_datagrams(pair->cq);
	struct ibv_ah *ah = ibv_create_ah(pd, &path);
	struct ibv_sge to = { (uintptr_t)memory, sizeof(memory), mr->lkey }, from = part(source + SKEW, bytes);
	struct ibv_recv_wr *unposted, receive = { .sg_list = &to, .num_sge = 1 };
	struct ibv_send_wr *bad, send = {
		.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND,
		.wr.ud = { .ah = ah, .remote_qpn = qp->qp_num, .remote_qkey = QKEY },
	};

	CHECK(ah);
	for (int round = 0; round < ROUNDS; round++) {
		fill(round);
		CHECK(!ibv_post_recv(qp, &receive, &unposted) && !ibv_post_send(qp, &send, &bad));
		await(pair, 2);
		check((unsigned char *)memory + GRH, bytes, round, "datagram");
	}
	CHECK(!ibv_destroy_ah(ah) && !ibv_destroy_qp(qp));
}

/* What was brought in advance needs no fault: neither the card's nor the processor's. */
static void in_advance(struct pair *pair)
{
	struct ibv_sge both[] = { part(source, LENGTH), part(target, LENGTH) };
	long faults, before = counted("page_prefetch");

	fill(7);
	CHECK(!ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, both, 2));
	CHECK(counted("page_prefetch") - before >= 2 * PAGES);
	faults = counted("page_faults");
	start(pair->qp[0], IBV_WR_RDMA_WRITE, source + SKEW, target + SKEW);
	await(pair, 1);
	check(target + SKEW, BYTES, 7, "write to pages brought in advance");
	CHECK(counted("page_faults") == faults);
}

/* What is mapped nowhere stays out of reach. */
static void nowhere(struct pair *pair)
{
	CHECK(!munmap(target, LENGTH));
	start(pair->qp[0], IBV_WR_RDMA_WRITE, source + SKEW, target + SKEW);
	ends_in(pair, IBV_WC_REM_ACCESS_ERR);
}

static void allow_atomics(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR, .qp_access_flags = ACCESS & ~IBV_ACCESS_ON_DEMAND };

	to_rts(qp);
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS));
}

int main(int argc, char **argv)
{
	struct ibv_srq_init_attr shared = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_device_attr_ex attr;
	struct ibv_srq *srq;
	struct pair pair;

	open_device(argc, argv, IBV_ACCESS_LOCAL_WRITE);
	CHECK(!ibv_query_device_ex(device, NULL, &attr));
	CHECK(attr.odp_caps.general_caps == (IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT));
	CHECK(all = ibv_reg_mr(pd, NULL, SIZE_MAX, ACCESS));
	map_memory();

	pair = new_pair(64, NULL);
	allow_atomics(pair.qp[1]);
	messages(&pair, NULL);
	CHECK(counted("page_faults") >= ROUNDS * 3 * 2 * PAGES);
	atomic(&pair);
	datagrams(&pair);
	in_advance(&pair);
	nowhere(&pair);
	end(&pair);

	map_memory();
	CHECK(srq = ibv_create_srq(pd, &shared));
	pair = new_pair(64, srq);
	messages(&pair, srq);
	end(&pair);
	CHECK(!ibv_destroy_srq(srq) && !ibv_dereg_mr(all));
	printf("all addresses are one region\n");
	return 0;
}
