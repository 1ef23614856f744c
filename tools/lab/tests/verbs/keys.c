/*
 * Memory keys for lists and for interleaved memory, configured by UMR (mlx5dv_wr_mr_list, mlx5dv_wr_mr_interleaved,
 * mlx5dv_wr_mkey_configure), and used remotely and locally; none with a signature. The null region; regions at address
 * 0, with relaxed ordering, and changed afterwards. `keys DEVICE GID-INDEX`; exits with 0 if all is as the manual page
 * requires.
 */
#include "pair.h"

#include <infiniband/mlx5dv.h>

/* Bytes of a key: the length that post_to() sends. */
#define LENGTH 64
#define AT(byte) ((uintptr_t)memory + (byte))
#define ALL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)
/* Offsets in `memory`: two ranges that keys cover, and one that they do not. */
#define FIRST 1024
#define SECOND 2048
#define TARGET 3072

/* A queue pair that can post UMR WQEs, connected to itself. */
static struct pair loopback_qp(void)
{
	struct pair pair = { .cq = ibv_create_cq(device, 32, NULL, NULL, 0) };
	struct ibv_qp_init_attr_ex init = {
		.send_cq = pair.cq, .recv_cq = pair.cq, .qp_type = IBV_QPT_RC, .pd = pd, .sq_sig_all = 1,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ,
		.cap = { .max_send_wr = 64, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 512 },
	};
	struct mlx5dv_qp_init_attr builder = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS,
		.send_ops_flags = MLX5DV_QP_EX_WITH_MR_LIST | MLX5DV_QP_EX_WITH_MR_INTERLEAVED |
				  MLX5DV_QP_EX_WITH_MKEY_CONFIGURE,
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ALL };

	CHECK(pair.cq);
	pair.qp[0] = mlx5dv_create_qp(device, &init, &builder);
	CHECK(pair.qp[0]);
	CHECK(!ibv_modify_qp(pair.qp[0], &attr,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	to_rtr(pair.qp[0], pair.qp[0]);
	to_rts(pair.qp[0]);
	return pair;
}

static struct mlx5dv_qp_ex *start_umr(struct pair *pair, struct ibv_qp_ex **qp)
{
	*qp = ibv_qp_to_qp_ex(pair->qp[0]);
	ibv_wr_start(*qp);
	(*qp)->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
	return mlx5dv_qp_ex_from_ibv_qp_ex(*qp);
}

/* By which call a key is configured: one for a layout each, or one call for each property. */
enum call { AT_ONCE, BY_SETTERS };

/* Starts a configuration of rights and layout. */
static void configure(struct mlx5dv_qp_ex *qp, struct mlx5dv_mkey *key)
{
	struct mlx5dv_mkey_conf_attr nothing_else = { 0 };

	mlx5dv_wr_mkey_configure(qp, key, 2, &nothing_else);
	mlx5dv_wr_set_mkey_access_flags(qp, ALL);
}

/* 40 bytes of the first range, 24 of the second. */
static void make_list_key(struct pair *pair, struct mlx5dv_mkey *key, enum call call)
{
	struct ibv_sge parts[] = { { AT(FIRST), 40, mr->lkey }, { AT(SECOND), 24, mr->lkey } };
	struct ibv_qp_ex *qp;
	struct mlx5dv_qp_ex *own = start_umr(pair, &qp);

	if (call == BY_SETTERS) {
		configure(own, key);
		mlx5dv_wr_set_mkey_layout_list(own, 2, parts);
	} else {
		mlx5dv_wr_mr_list(own, key, ALL, 2, parts);
	}
	CHECK(!ibv_wr_complete(qp));
	ends_in(pair, IBV_WC_SUCCESS);
}

static int list_offset(int byte)
{
	return byte < 40 ? FIRST + byte : SECOND + byte - 40;
}

/* Four times: 12 bytes of the first range and a gap of 4; 4 bytes of the second and a gap of 12. */
static void make_interleaved_key(struct pair *pair, struct mlx5dv_mkey *key, enum call call)
{
	struct mlx5dv_mr_interleaved parts[] = {
		{ AT(FIRST), 12, 4, mr->lkey }, { AT(SECOND), 4, 12, mr->lkey },
	};
	struct ibv_qp_ex *qp;
	struct mlx5dv_qp_ex *own = start_umr(pair, &qp);

	if (call == BY_SETTERS) {
		configure(own, key);
		mlx5dv_wr_set_mkey_layout_interleaved(own, 4, 2, parts);
	} else {
		mlx5dv_wr_mr_interleaved(own, key, ALL, 4, 2, parts);
	}
	CHECK(!ibv_wr_complete(qp));
	ends_in(pair, IBV_WC_SUCCESS);
}

static int interleaved_offset(int byte)
{
	int round = byte / 16, rest = byte % 16;

	return rest < 12 ? FIRST + round * 16 + rest : SECOND + round * 16 + rest - 12;
}

/* Writes from the key's memory to the third range. */
static void write_from_key(struct pair *pair, struct mlx5dv_mkey *key)
{
	struct ibv_sge sge = { .addr = 0, .length = LENGTH, .lkey = key->lkey };
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = { .remote_addr = AT(TARGET), .rkey = mr->rkey },
	};

	CHECK(!ibv_post_send(pair->qp[0], &wr, &bad));
	ends_in(pair, IBV_WC_SUCCESS);
}

/* Writes to the key, reads from it, and uses it as the local key; `offset_of` maps its bytes to `memory`. */
static void check_key(struct pair *pair, struct mlx5dv_mkey *key, int (*offset_of)(int), char seed)
{
	char sent[LENGTH];

	memset(memory + LENGTH, 0, sizeof(memory) - LENGTH);
	for (int i = 0; i < LENGTH; i++)
		sent[i] = memory[i] = seed + i;
	post_to(pair->qp[0], IBV_WR_RDMA_WRITE, 0, key->rkey);
	ends_in(pair, IBV_WC_SUCCESS);
	for (int i = 0; i < LENGTH; i++) {
		CHECK(memory[offset_of(i)] == sent[i]);
		memory[offset_of(i)] = 0;
	}
	/* No other byte has changed. */
	for (unsigned i = LENGTH; i < sizeof(memory); i++)
		CHECK(!memory[i]);

	for (int i = 0; i < LENGTH; i++)
		memory[offset_of(i)] = sent[i] = ~sent[i];
	post_to(pair->qp[0], IBV_WR_RDMA_READ, 0, key->rkey);
	ends_in(pair, IBV_WC_SUCCESS);
	CHECK(!memcmp(memory, sent, LENGTH));
	write_from_key(pair, key);
	CHECK(!memcmp(memory + TARGET, sent, LENGTH));
}

/* The null region discards what is read into it, and gives zeros. */
static void check_null_region(struct pair *pair)
{
	struct ibv_mr *null = ibv_alloc_null_mr(pd);

	CHECK(null);
	struct ibv_sge sge = { .addr = 0, .length = LENGTH, .lkey = null->lkey };
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ,
		.wr.rdma = { .remote_addr = AT(TARGET), .rkey = mr->rkey },
	};

	memset(memory, 0x5a, sizeof(memory));
	CHECK(!ibv_post_send(pair->qp[0], &wr, &bad));
	ends_in(pair, IBV_WC_SUCCESS);
	wr.opcode = IBV_WR_RDMA_WRITE;
	CHECK(!ibv_post_send(pair->qp[0], &wr, &bad));
	ends_in(pair, IBV_WC_SUCCESS);
	for (unsigned i = 0; i < sizeof(memory); i++)
		CHECK(memory[i] == (i >= TARGET && i < TARGET + LENGTH ? 0 : 0x5a));
	CHECK(!ibv_dereg_mr(null));
}

/* A region at address 0, and one whose writes may pass each other. */
static void check_registrations(struct pair *pair)
{
	static char page[4096] __attribute__((aligned(4096)));
	struct ibv_mr *zero_based = ibv_reg_mr_iova(pd, page, sizeof(page), 0, ALL);
	struct ibv_mr *relaxed = ibv_reg_mr(pd, page, sizeof(page), ALL | IBV_ACCESS_RELAXED_ORDERING);

	CHECK(zero_based && relaxed);
	for (int i = 0; i < LENGTH; i++)
		memory[i] = i + 1;
	post_to(pair->qp[0], IBV_WR_RDMA_WRITE, 256, zero_based->rkey);
	ends_in(pair, IBV_WC_SUCCESS);
	CHECK(!memcmp(page + 256, memory, LENGTH));
	post_to(pair->qp[0], IBV_WR_RDMA_WRITE, (uintptr_t)page + 100, relaxed->rkey);
	ends_in(pair, IBV_WC_SUCCESS);
	CHECK(!memcmp(page + 100, memory, LENGTH));
	CHECK(!ibv_dereg_mr(zero_based) && !ibv_dereg_mr(relaxed));
}

/* A registered region gets other rights, other memory, another protection domain. */
static void check_rereg(struct pair *pair)
{
	static char pages[2][4096] __attribute__((aligned(4096)));
	struct ibv_mr *region = ibv_reg_mr(pd, pages[0], sizeof(pages[0]), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_pd *other = ibv_alloc_pd(device);

	CHECK(region && other);
	for (int i = 0; i < LENGTH; i++)
		memory[i] = i + 3;
	CHECK(!ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL));
	post_to(pair->qp[0], IBV_WR_RDMA_WRITE, (uintptr_t)pages[0] + 64, region->rkey);
	ends_in(pair, IBV_WC_SUCCESS);
	CHECK(!memcmp(pages[0] + 64, memory, LENGTH));

	CHECK(!ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, pages[1], sizeof(pages[1]), 0));
	post_to(pair->qp[0], IBV_WR_RDMA_WRITE, (uintptr_t)pages[1] + 128, region->rkey);
	ends_in(pair, IBV_WC_SUCCESS);
	CHECK(!memcmp(pages[1] + 128, memory, LENGTH) && !pages[0][128 + LENGTH]);

	/* Its domain is used by it, and by nothing else. */
	CHECK(!ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_PD, other, NULL, 0, 0));
	CHECK(ibv_dealloc_pd(other) && !ibv_dereg_mr(region) && !ibv_dealloc_pd(other));
}

int main(int argc, char **argv)
{
	open_device(argc, argv, ALL);
	struct pair pair = loopback_qp();
	struct mlx5dv_mkey_init_attr init = {
		.pd = pd, .create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT, .max_entries = 4,
	};
	struct mlx5dv_mkey *key = mlx5dv_create_mkey(&init), *other = mlx5dv_create_mkey(&init);

	CHECK(key && other);
	/* Each is configured anew as the other kind. */
	for (enum call call = AT_ONCE; call <= BY_SETTERS; call++) {
		make_list_key(&pair, key, call);
		make_interleaved_key(&pair, other, call);
		check_key(&pair, key, list_offset, 4 * call + 1);
		check_key(&pair, other, interleaved_offset, 4 * call + 2);
		make_interleaved_key(&pair, key, call);
		make_list_key(&pair, other, call);
		check_key(&pair, key, interleaved_offset, 4 * call + 3);
		check_key(&pair, other, list_offset, 4 * call + 4);
	}
	/* The card has no signature offload. */
	init.create_flags |= MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE;
	CHECK(!mlx5dv_create_mkey(&init));
	check_null_region(&pair);
	check_registrations(&pair);
	check_rereg(&pair);
	CHECK(!ibv_destroy_qp(pair.qp[0]) && !ibv_destroy_cq(pair.cq));
	CHECK(!mlx5dv_destroy_mkey(key) && !mlx5dv_destroy_mkey(other));
	CHECK(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd) && !ibv_close_device(device));
	printf("keys of every shape\n");
	return 0;
}
