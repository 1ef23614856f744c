/*
 * An XRC domain of two processes, by libibverbs: what examples/xrc_domain.rs does, so that either end may be that
 * program. `xrc_domain make FILE SOCKET DEVICE` makes the domain that the file names, and a target in it;
 * `xrc_domain join FILE SOCKET DEVICE` joins it, opens the target, and receives by a shared receive queue of its own.
 *
 * On the socket go big-endian numbers.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Emulated processors are slow. */
#define PATIENCE_MS 60000
#define ROOM 64
#define PSN 0x123

#define CHECK(what) do { if (!(what)) { perror(#what); exit(1); } } while (0)

static const char *messages[2] = { "by a target of two processes", "by the other process's alone" };

static struct ibv_context *device;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static union ibv_gid gid;
static char memory[2][ROOM];

static void tell(int peer, uint32_t number)
{
	number = htonl(number);
	CHECK(write(peer, &number, sizeof(number)) == sizeof(number));
}

static uint32_t learn(int peer)
{
	uint32_t number;

	CHECK(recv(peer, &number, sizeof(number), MSG_WAITALL) == sizeof(number));
	return ntohl(number);
}

static struct sockaddr_un place(const char *path)
{
	struct sockaddr_un there = { .sun_family = AF_UNIX };

	CHECK(strlen(path) < sizeof(there.sun_path));
	strcpy(there.sun_path, path);
	return there;
}

static void open_device(const char *name)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);

	CHECK(devices);
	for (int i = 0; devices[i]; i++)
		if (!strcmp(ibv_get_device_name(devices[i]), name))
			device = ibv_open_device(devices[i]);
	CHECK(device && !ibv_query_gid(device, 1, 0, &gid));
	CHECK((pd = ibv_alloc_pd(device)));
	CHECK((cq = ibv_create_cq(device, 16, NULL, NULL, 0)));
	CHECK((mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE)));
}

static struct ibv_xrcd *open_domain(const char *file, int flags)
{
	struct ibv_xrcd_init_attr init = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = open(file, O_RDONLY),
		.oflags = flags,
	};

	CHECK(init.fd >= 0);
	struct ibv_xrcd *domain = ibv_open_xrcd(device, &init);

	CHECK(!close(init.fd));
	return domain;
}

static void connect_to(struct ibv_qp *qp, uint32_t remote, int is_target)
{
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = remote, .rq_psn = PSN,
		.min_rnr_timer = 12, .max_dest_rd_atomic = 1,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .hop_limit = 1 } },
	};
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7, .sq_psn = PSN,
		.max_rd_atomic = 1,
	};
	int sends = IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;

	CHECK(!ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	CHECK(!ibv_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			     (is_target ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)));
	CHECK(!ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN | (is_target ? 0 : sends)));
}

static struct ibv_wc completes(void)
{
	struct ibv_wc wc;

	for (int tries = 0; !ibv_poll_cq(cq, 1, &wc); tries++) {
		CHECK(tries < PATIENCE_MS);
		poll(NULL, 0, 1);
	}
	if (wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "%s\n", ibv_wc_status_str(wc.status));
		exit(1);
	}
	return wc;
}

static void send_to(struct ibv_qp *qp, uint32_t srqn, const char *message)
{
	struct ibv_sge sge = { .addr = (uintptr_t)memory[0], .length = strlen(message), .lkey = mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
		.qp_type.xrc.remote_srqn = srqn,
	};

	strcpy(memory[0], message);
	CHECK(!ibv_post_send(qp, &wr, &bad));
	completes();
}

static void make(const char *file, const char *path)
{
	int listener = socket(AF_UNIX, SOCK_STREAM, 0), peer;
	struct sockaddr_un here = place(path);
	struct ibv_xrcd *domain = open_domain(file, O_CREAT | O_EXCL);

	CHECK(domain);
	struct ibv_qp_init_attr_ex receives = {
		.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = domain,
	};
	struct ibv_qp_init_attr_ex sends = {
		.qp_type = IBV_QPT_XRC_SEND, .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd, .send_cq = cq,
		.cap = { .max_send_wr = 4, .max_send_sge = 1 },
	};
	struct ibv_qp *target = ibv_create_qp_ex(device, &receives), *initiator = ibv_create_qp_ex(device, &sends);

	CHECK(target && initiator);
	connect_to(target, initiator->qp_num, 1);
	connect_to(initiator, target->qp_num, 0);
	CHECK(!bind(listener, (struct sockaddr *)&here, sizeof(here)) && !listen(listener, 1));
	CHECK((peer = accept(listener, NULL, NULL)) >= 0);
	tell(peer, target->qp_num);
	tell(peer, initiator->qp_num);
	uint32_t srqn = learn(peer);

	send_to(initiator, srqn, messages[0]);
	CHECK(!ibv_destroy_qp(target));
	send_to(initiator, srqn, messages[1]);
	CHECK(!ibv_destroy_qp(initiator) && !ibv_close_xrcd(domain));
	tell(peer, 0);
	learn(peer);
	printf("made, and sent by a target of two processes\n");
}

static void join(const char *file, const char *path)
{
	struct sockaddr_un there = place(path);
	int peer = socket(AF_UNIX, SOCK_STREAM, 0);

	CHECK(!connect(peer, (struct sockaddr *)&there, sizeof(there)));
	uint32_t qpn = learn(peer), initiator = learn(peer);
	struct ibv_xrcd *domain = open_domain(file, 0);

	CHECK(domain);
	struct ibv_qp_open_attr what = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE, .qp_num = qpn,
		.xrcd = domain, .qp_type = IBV_QPT_XRC_RECV,
	};
	struct ibv_qp *target = ibv_open_qp(device, &what);
	struct ibv_qp_init_attr created;
	struct ibv_qp_attr attr;

	CHECK(target && !ibv_query_qp(target, &attr, IBV_QP_STATE | IBV_QP_DEST_QPN, &created));
	CHECK(attr.dest_qp_num == initiator && attr.qp_state == IBV_QPS_RTS);
	struct ibv_srq_init_attr_ex init = {
		.attr = { .max_wr = 3, .max_sge = 1 }, .srq_type = IBV_SRQT_XRC, .xrcd = domain, .cq = cq, .pd = pd,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ |
			     IBV_SRQ_INIT_ATTR_PD,
	};
	struct ibv_srq *srq = ibv_create_srq_ex(device, &init);
	uint32_t srqn;

	CHECK(srq && !ibv_get_srq_num(srq, &srqn));
	for (int i = 0; i < 2; i++) {
		struct ibv_sge sge = { .addr = (uintptr_t)memory[i], .length = ROOM, .lkey = mr->lkey };
		struct ibv_recv_wr *bad, wr = { .sg_list = &sge, .num_sge = 1 };

		CHECK(!ibv_post_srq_recv(srq, &wr, &bad));
	}
	tell(peer, srqn);
	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc = completes();

		CHECK(wc.byte_len == strlen(messages[i]) && !memcmp(memory[i], messages[i], wc.byte_len));
		printf("received: %s\n", messages[i]);
	}
	learn(peer);
	/*
	 * libmlx5 crashes in ibv_destroy_qp of what ibv_open_qp returned: it has no doorbell record to free. The end of
	 * the process closes target and domain.
	 */
	CHECK(!ibv_destroy_srq(srq));
	tell(peer, 0);
	printf("joined, and received by a target of two processes\n");
}

int main(int argc, char **argv)
{
	if (argc != 5)
		return 2;
	open_device(argv[4]);
	if (!strcmp(argv[1], "make"))
		make(argv[2], argv[3]);
	else
		join(argv[2], argv[3]);
	CHECK(!ibv_dereg_mr(mr) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(device));
	return 0;
}
