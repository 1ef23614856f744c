/*
 * A number of the server's, which the client adds to and swaps, by libibverbs: what examples/atomics.rs does, so that
 * either end may be that program. `atomics DEVICE N [HOST]`: the server, or the client that adds N times.
 *
 * The two find each other as in ibv_rc_pingpong, by GID 0. Then the server sends where its number is, and at the end
 * the client what it must have become. Ends with 0 when each number was what it had to be.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PORT 18515
#define FIRST UINT64_C(0x01020304050607f0)
#define LAST UINT64_C(0xf1e2d3c4b5a69788)
#define PSN 0x123456
/* Emulated processors are slow. */
#define PATIENCE_MS 60000
/* lid:qpn:psn:gid, and the zero that ends it. */
#define ADDRESS sizeof("0000:000000:000000:00000000000000000000000000000000")

#define CHECK(what) do { if (!(what)) { perror(#what); exit(1); } } while (0)

/* The number, and on cache lines of their own what is sent and received. */
static struct {
	_Alignas(64) uint64_t number;
	_Alignas(64) uint64_t out[2];
	_Alignas(64) uint64_t in[2];
} memory;

static struct ibv_context *device;
static struct ibv_mr *mr;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static union ibv_gid gid;

static struct ibv_sge at(const void *start, size_t length)
{
	return (struct ibv_sge){ .addr = (uintptr_t)start, .length = length, .lkey = mr->lkey };
}

static void post_receive(void)
{
	struct ibv_sge sge = at(memory.in, sizeof(memory.in));
	struct ibv_recv_wr *bad, wr = { .sg_list = &sge, .num_sge = 1 };

	CHECK(!ibv_post_recv(qp, &wr, &bad));
}

/* Waits for the next completion. */
static void completes(enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc;

	for (int tries = 0; !ibv_poll_cq(cq, 1, &wc); tries++) {
		CHECK(tries < PATIENCE_MS);
		poll(NULL, 0, 1);
	}
	if (wc.status != IBV_WC_SUCCESS || wc.opcode != opcode) {
		fprintf(stderr, "%s, of opcode %d instead of %d\n", ibv_wc_status_str(wc.status), wc.opcode, opcode);
		exit(1);
	}
}

static void open_device(const char *name)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_pd *pd;

	CHECK(devices);
	for (int i = 0; devices[i]; i++)
		if (!strcmp(ibv_get_device_name(devices[i]), name))
			device = ibv_open_device(devices[i]);
	CHECK(device);
	CHECK(!ibv_query_gid(device, 1, 0, &gid));
	CHECK((pd = ibv_alloc_pd(device)));
	CHECK((mr = ibv_reg_mr(pd, &memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC)));
	CHECK((cq = ibv_create_cq(device, 16, NULL, NULL, 0)));

	struct ibv_qp_init_attr_ex init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1, .pd = pd,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
				  IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1,
				    .qp_access_flags = IBV_ACCESS_REMOTE_ATOMIC };

	CHECK((qp = ibv_create_qp_ex(device, &init)));
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	post_receive();
}

static void connect_qp(uint32_t qpn, uint32_t psn, union ibv_gid to)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qpn, .rq_psn = psn,
		.min_rnr_timer = 12, .max_dest_rd_atomic = 1, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7,
		.max_rd_atomic = 1, .sq_psn = PSN,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = to, .hop_limit = 1 } },
	};

	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void tell(int peer)
{
	char text[ADDRESS];
	int length = sprintf(text, "0000:%06x:%06x:", qp->qp_num, PSN);

	for (int i = 0; i < 16; i++)
		length += sprintf(text + length, "%02x", gid.raw[i]);
	CHECK(write(peer, text, ADDRESS) == ADDRESS);
}

/* Receives the other end's address, and connects to it. */
static void hear(int peer)
{
	char text[ADDRESS];
	union ibv_gid to;
	unsigned qpn, psn;
	int start;

	for (size_t have = 0; have < ADDRESS;) {
		ssize_t some = read(peer, text + have, ADDRESS - have);

		CHECK(some > 0);
		have += some;
	}
	CHECK(sscanf(text, "%*4x:%6x:%6x:%n", &qpn, &psn, &start) == 2);
	for (int i = 0; i < 16; i++)
		CHECK(sscanf(text + start + 2 * i, "%2hhx", &to.raw[i]) == 1);
	connect_qp(qpn, psn, to);
}

static void send_words(uint64_t first, uint64_t second)
{
	struct ibv_sge sge = at(memory.out, sizeof(memory.out));
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };

	memory.out[0] = htobe64(first);
	memory.out[1] = htobe64(second);
	CHECK(!ibv_post_send(qp, &wr, &bad));
	completes(IBV_WC_SEND);
}

static void is(const char *what, uint64_t found, uint64_t expected)
{
	if (found == expected)
		return;
	fprintf(stderr, "%s: %#" PRIx64 " instead of %#" PRIx64 "\n", what, found, expected);
	exit(1);
}

/* An atomic by the extended interface; returns the previous value. */
static uint64_t atomic(int swaps, uint64_t compare, uint64_t swap_add)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	uint64_t remote = be64toh(memory.in[0]);
	uint32_t rkey = be64toh(memory.in[1]);

	ibv_wr_start(ex);
	if (swaps)
		ibv_wr_atomic_cmp_swp(ex, rkey, remote, compare, swap_add);
	else
		ibv_wr_atomic_fetch_add(ex, rkey, remote, swap_add);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)&memory.number, sizeof(memory.number));
	CHECK(!ibv_wr_complete(ex));
	completes(swaps ? IBV_WC_COMP_SWAP : IBV_WC_FETCH_ADD);
	return *(volatile uint64_t *)&memory.number;
}

static void serve(void)
{
	struct sockaddr_in here = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	int yes = 1, listener = socket(AF_INET, SOCK_STREAM, 0), peer;
	char done[5];

	CHECK(!setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)));
	CHECK(!bind(listener, (struct sockaddr *)&here, sizeof(here)) && !listen(listener, 1));
	CHECK((peer = accept(listener, NULL, NULL)) >= 0);
	hear(peer);
	memory.number = FIRST;
	tell(peer);
	CHECK(read(peer, done, sizeof(done)) > 0);
	send_words((uintptr_t)&memory.number, mr->rkey);
	completes(IBV_WC_RECV);
	is("the number", *(volatile uint64_t *)&memory.number, be64toh(memory.in[0]));
	printf("the client changed it to %#" PRIx64 "\n", memory.number);
}

static void call(const char *host, uint64_t count)
{
	struct sockaddr_in there = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	int peer = socket(AF_INET, SOCK_STREAM, 0);

	CHECK(inet_pton(AF_INET, host, &there.sin_addr) == 1);
	CHECK(!connect(peer, (struct sockaddr *)&there, sizeof(there)));
	tell(peer);
	hear(peer);
	CHECK(write(peer, "done", 5) == 5);
	completes(IBV_WC_RECV);
	for (uint64_t i = 0; i < count; i++)
		is("an addition", atomic(0, 0, 1), FIRST + i);
	is("a swap of what it is not", atomic(1, ~(FIRST + count), 0), FIRST + count);
	is("a swap of what it is", atomic(1, FIRST + count, LAST), FIRST + count);
	is("an addition of nothing", atomic(0, 0, 0), LAST);
	send_words(LAST, 0);
	printf("%" PRIu64 " additions, and a swap\n", count);
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	open_device(argv[1]);
	if (argc > 3)
		call(argv[3], strtoull(argv[2], NULL, 0));
	else
		serve();
	return 0;
}
