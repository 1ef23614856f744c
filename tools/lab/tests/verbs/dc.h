/*
 * Dynamically connected targets, and initiators.
 */
#include "pair.h"
#include <infiniband/mlx5dv.h>

/* Of each target. */
#define KEY 0x0123456789abcdef
#define SENDS 16

/* Of this device's port. */
static struct ibv_ah_attr path;

struct target {
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
};

/* One whose initiators have the rights `access`. */
static struct target new_target(int access)
{
	struct ibv_srq_init_attr receives = { .attr = { .max_wr = RECEIVES, .max_sge = 1 } };
	struct target target = { .cq = ibv_create_cq(device, RECEIVES, NULL, NULL, 0) };

	CHECK(target.cq && (target.srq = ibv_create_srq(pd, &receives)));
	struct ibv_qp_init_attr_ex init = {
		.comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd, .send_cq = target.cq, .recv_cq = target.cq,
		.srq = target.srq, .qp_type = IBV_QPT_DRIVER,
	};
	struct mlx5dv_qp_init_attr dv = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC,
		.dc_init_attr = { .dc_type = MLX5DV_DCTYPE_DCT, .dct_access_key = KEY },
	};
	CHECK((target.qp = mlx5dv_create_qp(device, &init, &dv)));
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access,
	};
	CHECK(!ibv_modify_qp(target.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .min_rnr_timer = 12, .ah_attr = path,
	};
	CHECK(!ibv_modify_qp(target.qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER));
	return target;
}

/* `mask` says whether it has `streams`. NULL if there is none. */
static struct ibv_qp *create_initiator(struct ibv_cq *cq, uint64_t mask, struct mlx5dv_dci_streams streams)
{
	struct ibv_qp_init_attr_ex init = {
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .pd = pd, .send_cq = cq,
		.recv_cq = cq, .qp_type = IBV_QPT_DRIVER, .sq_sig_all = 1,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ |
				  IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
		.cap = { .max_send_wr = SENDS, .max_send_sge = 1 },
	};
	struct mlx5dv_qp_init_attr dv = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC | mask,
		.dc_init_attr = { .dc_type = MLX5DV_DCTYPE_DCI, .dci_streams = streams },
	};

	return mlx5dv_create_qp(device, &init, &dv);
}

static void start(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT));
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024 };
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PATH_MTU));
	to_rts(qp);
}

/* Opens the device, as open_device of pair.h. */
static void open_dc(int argc, char **argv, int access)
{
	open_device(argc, argv, access);
	path = (struct ibv_ah_attr){
		.is_global = 1, .port_num = 1, .grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 1 },
	};
}
