/*
 * An extended reliable connection (XRC) of this port: initiator, target, and the shared receive queue that messages
 * name.
 */

static struct ibv_srq *create_extended_receives(struct ibv_xrcd *domain)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = DEPTH - 1, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ |
			     IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_XRC,
		.pd = own,
		.xrcd = domain,
		.cq = ibv_cq_ex_to_cq(received),
	};
	struct ibv_srq *srq = ibv_create_srq_ex(context, &attr);

	CHECK(srq && !ibv_get_srq_num(srq, &srqn));
	return srq;
}

static struct ibv_qp *create_extended_initiator(void)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = ibv_cq_ex_to_cq(sent),
		.cap = { .max_send_wr = DEPTH, .max_send_sge = 1, .max_inline_data = BYTES },
		.qp_type = IBV_QPT_XRC_SEND,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = own,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(context, &attr);

	CHECK(qp);
	return qp;
}

/* Takes `qp` from INIT to RTR, and with `sends` to RTS. */
static void connect_extended(struct ibv_qp *qp, uint32_t to, int sends)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	int receives = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;

	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_1024;
	attr.dest_qp_num = to;
	attr.max_dest_rd_atomic = 16;
	attr.min_rnr_timer = 12;
	attr.ah_attr.is_global = 1;
	attr.ah_attr.port_num = 1;
	attr.ah_attr.grh.hop_limit = 64;
	attr.ah_attr.grh.sgid_index = ipv4_gid(context, &attr.ah_attr.grh.dgid);
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				       (sends ? 0 : receives)));
	if (!sends)
		return;
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	attr.max_rd_atomic = 16;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				       IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void use_extended_connection(void)
{
	struct ibv_xrcd_init_attr alone = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT,
	};
	struct ibv_xrcd *domain = ibv_open_xrcd(context, &alone);
	struct ibv_qp_init_attr_ex target = {
		.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = domain,
	};

	CHECK(domain);
	shared = create_extended_receives(domain);
	receiver = ibv_create_qp_ex(context, &target);
	CHECK(receiver);
	sender = create_extended_initiator();
	connect_extended(receiver, sender->qp_num, 0);
	connect_extended(sender, receiver->qp_num, 1);
	post_receives = receives_of_srq;
}
