/*
 * A dynamically connected initiator and target (DC) of this port.
 */

static struct ibv_qp *create_initiator(void)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = ibv_cq_ex_to_cq(sent),
		.recv_cq = ibv_cq_ex_to_cq(received),
		.cap = { .max_send_wr = DEPTH, .max_send_sge = 1, .max_inline_data = BYTES },
		.qp_type = IBV_QPT_DRIVER,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = own,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ,
	};
	struct mlx5dv_qp_init_attr dc = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC,
		.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI,
	};
	struct ibv_qp *qp = mlx5dv_create_qp(context, &attr, &dc);
	struct ibv_qp_attr to = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	CHECK(qp);
	CHECK(!ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT));
	to.qp_state = IBV_QPS_RTR;
	to.path_mtu = IBV_MTU_1024;
	to.ah_attr.is_global = 1;
	to.ah_attr.port_num = 1;
	to.ah_attr.grh.hop_limit = 64;
	to.ah_attr.grh.sgid_index = ipv4_gid(context, &to.ah_attr.grh.dgid);
	CHECK(!ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_AV));
	to.qp_state = IBV_QPS_RTS;
	to.timeout = 14;
	to.retry_cnt = 7;
	to.rnr_retry = 7;
	to.max_rd_atomic = 16;
	CHECK(!ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				      IBV_QP_MAX_QP_RD_ATOMIC));
	return qp;
}

static struct ibv_qp *create_target(void)
{
	struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = DEPTH - 1, .max_sge = 1 } };
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = ibv_cq_ex_to_cq(received),
		.recv_cq = ibv_cq_ex_to_cq(received),
		.srq = ibv_create_srq(own, &srq_attr),
		.qp_type = IBV_QPT_DRIVER,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = own,
	};
	struct mlx5dv_qp_init_attr dc = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC,
		.dc_init_attr = { .dc_type = MLX5DV_DCTYPE_DCT, .dct_access_key = ACCESS_KEY },
	};
	struct ibv_qp_attr to = { .qp_state = IBV_QPS_INIT, .port_num = 1,
				  .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };
	struct ibv_qp *qp;

	CHECK(attr.srq);
	qp = mlx5dv_create_qp(context, &attr, &dc);
	CHECK(qp);
	CHECK(!ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	to.qp_state = IBV_QPS_RTR;
	to.path_mtu = IBV_MTU_1024;
	to.min_rnr_timer = 12;
	to.ah_attr.is_global = 1;
	to.ah_attr.port_num = 1;
	to.ah_attr.grh.hop_limit = 64;
	to.ah_attr.grh.sgid_index = ipv4_gid(context, &to.ah_attr.grh.dgid);
	CHECK(!ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU));
	return qp;
}

static void use_dynamic_connections(void)
{
	receiver = create_target();
	sender = create_initiator();
	for (int i = 0; i < REQUESTS; i++)
		requests[i].qpn = receiver->qp_num;
}
