/*
 * Memory windows of both types between two queue pairs of one device: what they permit, what they do not, and their
 * invalidation. `windows DEVICE GID-INDEX`; exits with 0 if all is as the IBTA specification requires.
 */
#include "pair.h"

/* The window: this part of `memory`. */
#define START 1024
#define LENGTH 512
#define AT(byte) ((uintptr_t)memory + (byte))

static struct pair connected_pair(void)
{
	struct pair pair = new_pair(32, NULL);

	to_rts(pair.qp[1]);
	return pair;
}

/* Writes 64 bytes to `remote`, which is byte `at` of `memory`, with `rkey`. Checks status and memory. */
static void check_write_at(struct pair *pair, uint64_t remote, int at, uint32_t rkey, enum ibv_wc_status expected)
{
	memset(memory, 0x5a, 64);
	memset(memory + at, 0, 64);
	post_to(pair->qp[0], IBV_WR_RDMA_WRITE, remote, rkey);
	ends_in(pair, expected);
	CHECK((memcmp(memory, memory + at, 64) == 0) == (expected == IBV_WC_SUCCESS));
}

static void check_write(struct pair *pair, int at, uint32_t rkey)
{
	check_write_at(pair, AT(at), at, rkey, IBV_WC_SUCCESS);
}

/* The error moves the connection to the error state, so it is destroyed. */
static void check_refused(struct pair *pair, int at, uint32_t rkey)
{
	check_write_at(pair, AT(at), at, rkey, IBV_WC_REM_ACCESS_ERR);
	end(pair);
}

static struct ibv_mw_bind_info bind_info_of(struct ibv_mr *of, int length, int access)
{
	return (struct ibv_mw_bind_info){ .mr = of, .addr = AT(START), .length = length, .mw_access_flags = access };
}

/* Binds a window of type 2 at the second queue pair, which must complete with `expected`. */
static void bind_window(struct pair *pair, struct ibv_mw *mw, struct ibv_mw_bind_info to, enum ibv_wc_status expected)
{
	struct ibv_send_wr *bad, wr = {
		.opcode = IBV_WR_BIND_MW,
		.bind_mw = { .mw = mw, .rkey = ibv_inc_rkey(mw->rkey), .bind_info = to },
	};

	CHECK(!ibv_post_send(pair->qp[1], &wr, &bad));
	struct ibv_wc wc = ends_in(pair, expected);

	if (expected == IBV_WC_SUCCESS) {
		CHECK(wc.opcode == IBV_WC_BIND_MW);
		mw->rkey = wr.bind_mw.rkey;
	}
}

static void open_window(struct pair *pair, struct ibv_mw *mw)
{
	bind_window(pair, mw, bind_info_of(mr, LENGTH, IBV_ACCESS_REMOTE_WRITE), IBV_WC_SUCCESS);
}

/* A window of type 2 permits only what was bound, and only on its queue pair. */
static void test_bound_range(void)
{
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	struct pair pair = connected_pair(), other = connected_pair();

	CHECK(mw);
	open_window(&pair, mw);
	check_write(&pair, START, mw->rkey);
	check_write(&pair, START + LENGTH - 64, mw->rkey);
	check_refused(&other, START, mw->rkey);
	check_refused(&pair, START + LENGTH - 32, mw->rkey);
	CHECK(!ibv_dealloc_mw(mw));
}

/* After a local invalidate a window can be bound again, with another key. While bound it cannot, not even after its
 * queue pair was destroyed. */
static void test_local_invalidate(void)
{
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	struct pair pair = connected_pair();

	CHECK(mw);
	open_window(&pair, mw);
	struct ibv_send_wr *bad, close = { .opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = mw->rkey };

	CHECK(!ibv_post_send(pair.qp[1], &close, &bad));
	CHECK(ends_in(&pair, IBV_WC_SUCCESS).opcode == IBV_WC_LOCAL_INV);
	check_refused(&pair, START, mw->rkey);

	pair = connected_pair();
	uint32_t old = mw->rkey;

	open_window(&pair, mw);
	check_write(&pair, START, mw->rkey);
	check_refused(&pair, START, old);

	pair = connected_pair();
	bind_window(&pair, mw, bind_info_of(mr, LENGTH, IBV_ACCESS_REMOTE_WRITE), IBV_WC_MW_BIND_ERR);
	end(&pair);
	CHECK(!ibv_dealloc_mw(mw));
}

/* Sends the second queue pair a message that invalidates `rkey`. */
static void send_with_invalidate(struct pair *pair, uint32_t rkey)
{
	struct ibv_sge sge = somewhere();
	struct ibv_send_wr *bad, message = {
		.opcode = IBV_WR_SEND_WITH_INV, .sg_list = &sge, .num_sge = 1, .invalidate_rkey = rkey,
	};

	receive(pair->qp[1]);
	CHECK(!ibv_post_send(pair->qp[0], &message, &bad));
}

/* The remote side can invalidate a window, but not through another queue pair. */
static void test_remote_invalidate(void)
{
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	struct pair pair = connected_pair(), other = connected_pair();

	CHECK(mw);
	open_window(&pair, mw);
	send_with_invalidate(&other, mw->rkey);
	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc = next_completion(&other);

		CHECK(wc.status == IBV_WC_REM_ACCESS_ERR || wc.status == IBV_WC_LOC_ACCESS_ERR);
	}
	end(&other);
	check_write(&pair, START, mw->rkey);

	send_with_invalidate(&pair, mw->rkey);
	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc = ends_in(&pair, IBV_WC_SUCCESS);

		if (wc.opcode == IBV_WC_RECV)
			CHECK(wc.wc_flags & IBV_WC_WITH_INV && wc.invalidated_rkey == mw->rkey);
	}
	check_refused(&pair, START, mw->rkey);
	CHECK(!ibv_dealloc_mw(mw));
}

/* A window can be zero-based. It allows no write that its region does not allow. */
static void test_addresses_and_rights(void)
{
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	struct pair pair = connected_pair();

	CHECK(mw);
	bind_window(&pair, mw, bind_info_of(mr, LENGTH, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED),
		    IBV_WC_SUCCESS);
	check_write_at(&pair, 0, START, mw->rkey, IBV_WC_SUCCESS);
	check_write_at(&pair, LENGTH - 64, START + LENGTH - 64, mw->rkey, IBV_WC_SUCCESS);
	check_refused(&pair, START, mw->rkey);
	CHECK(!ibv_dealloc_mw(mw));

	struct ibv_mr *unwritable = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_MW_BIND);

	CHECK(unwritable && (mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2)));
	pair = connected_pair();
	bind_window(&pair, mw, bind_info_of(unwritable, LENGTH, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE),
		    IBV_WC_SUCCESS);
	memset(memory + START, 0x77, 64);
	memset(memory, 0, 64);
	post_to(pair.qp[0], IBV_WR_RDMA_READ, AT(START), mw->rkey);
	ends_in(&pair, IBV_WC_SUCCESS);
	CHECK(!memcmp(memory, memory + START, 64));
	check_refused(&pair, START, mw->rkey);
	CHECK(!ibv_dealloc_mw(mw));

	/* A right that it was not bound with is refused. */
	CHECK((mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2)));
	pair = connected_pair();
	bind_window(&pair, mw, bind_info_of(mr, LENGTH, IBV_ACCESS_REMOTE_READ), IBV_WC_SUCCESS);
	check_refused(&pair, START, mw->rkey);
	CHECK(!ibv_dealloc_mw(mw) && !ibv_dereg_mr(unwritable));
}

static void bind_type_1(struct pair *pair, struct ibv_mw *mw, int length)
{
	struct ibv_mw_bind bind = {
		.send_flags = IBV_SEND_SIGNALED, .bind_info = bind_info_of(mr, length, IBV_ACCESS_REMOTE_WRITE),
	};

	CHECK(!ibv_bind_mw(pair->qp[1], mw, &bind));
	CHECK(ends_in(pair, IBV_WC_SUCCESS).opcode == IBV_WC_BIND_MW);
}

/* A type 1 window is valid for all queue pairs of its protection domain. Binding it again invalidates the old key;
 * binding it to length 0 invalidates it. */
static void test_type_1(void)
{
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	struct pair pair = connected_pair(), other = connected_pair();

	CHECK(mw);
	bind_type_1(&pair, mw, LENGTH);
	uint32_t old = mw->rkey;

	check_write(&pair, START, old);
	check_write(&other, START, old);
	bind_type_1(&pair, mw, LENGTH / 2);
	check_write(&pair, START, mw->rkey);
	check_refused(&other, START, old);
	other = connected_pair();
	check_refused(&other, START + LENGTH / 2, mw->rkey);
	bind_type_1(&pair, mw, 0);
	check_refused(&pair, START, mw->rkey);
	CHECK(!ibv_dealloc_mw(mw));
}

int main(int argc, char **argv)
{
	struct ibv_device_attr attr;

	open_device(argc, argv, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_MW_BIND);
	CHECK(!ibv_query_device(device, &attr) && attr.max_mw > 0);
	CHECK(attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW && attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B);
	test_bound_range();
	test_local_invalidate();
	test_remote_invalidate();
	test_addresses_and_rights();
	test_type_1();
	printf("windows open and close\n");
	return 0;
}
