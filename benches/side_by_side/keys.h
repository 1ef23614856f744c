/*
 * Fast registration: memory keys that work requests configure (UMR), of a list in the work request.
 */

/* Parts of the longest list. */
#define PARTS 4

static struct mlx5dv_mkey *keys[POSTS];
static struct ibv_sge parts[REQUESTS][PARTS];

static struct ibv_qp *create_umr_qp(void)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = ibv_cq_ex_to_cq(sent),
		.recv_cq = ibv_cq_ex_to_cq(sent),
		.cap = { .max_send_wr = 4 * POSTS, .max_send_sge = 1, .max_inline_data = 512 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = own,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_LOCAL_INV,
	};
	struct mlx5dv_qp_init_attr lists = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS,
		.send_ops_flags = MLX5DV_QP_EX_WITH_MR_LIST,
	};
	struct ibv_qp *qp = mlx5dv_create_qp(context, &attr, &lists);

	CHECK(qp);
	connect_qp(context, qp, qp->qp_num);
	return qp;
}

static __attribute__((noinline)) uint64_t register_keys(struct mlx5dv_qp_ex *lists, unsigned count, unsigned batch)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(sender);
	uint64_t start = ticks();

	for (unsigned first = 0; first < POSTS; first += batch) {
		ibv_wr_start(qp);
		for (unsigned i = first; i < first + batch; i++) {
			qp->wr_id = i;
			qp->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
			mlx5dv_wr_mr_list(lists, keys[i],
					  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
					  count, parts[i % REQUESTS]);
		}
		CHECK(!ibv_wr_complete(qp));
	}
	return ticks() - start;
}

static void measure_registration(struct mlx5dv_qp_ex *lists, unsigned count, unsigned batch)
{
	uint64_t samples[WARM_UP + ROUNDS];
	char row[64];

	for (int round = 0; round < WARM_UP + ROUNDS; round++) {
		samples[round] = register_keys(lists, count, batch);
		drain(sent, POSTS - 1);
	}
	snprintf(row, sizeof(row), "register_%u/%u", count, batch);
	report(row, "wr", samples + WARM_UP);
}

static void measure_registrations(void)
{
	struct mlx5dv_mkey_init_attr attr = {
		.pd = own, .create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT, .max_entries = PARTS,
	};
	struct mlx5dv_qp_ex *lists;

	for (int i = 0; i < POSTS; i++)
		CHECK(keys[i] = mlx5dv_create_mkey(&attr));
	for (int i = 0; i < REQUESTS; i++)
		for (int part = 0; part < PARTS; part++)
			parts[i][part] = (struct ibv_sge){ .addr = requests[i].local + part * (BYTES / PARTS),
							   .length = BYTES / PARTS, .lkey = requests[i].lkey };
	shared = NULL;
	sender = create_umr_qp();
	lists = mlx5dv_qp_ex_from_ibv_qp_ex(ibv_qp_to_qp_ex(sender));
	for (unsigned count = 1; count <= PARTS; count *= PARTS)
		for (unsigned batch = 1; batch <= 16; batch *= 16)
			measure_registration(lists, count, batch);
	for (int i = 0; i < POSTS; i++)
		CHECK(!mlx5dv_destroy_mkey(keys[i]));
	CHECK(!ibv_destroy_qp(sender));
}
