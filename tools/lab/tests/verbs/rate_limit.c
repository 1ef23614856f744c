/*
 * Rate limits of a raw packet queue pair: that frames keep their distance, bursts their bound, and that a limit goes.
 * `rate_limit DEVICE GID-INDEX`; exits with 0 if so.
 */
#include "pair.h"
#include <time.h>

#define FRAME 60
#define FRAMES 30
/* In kbit/s: a frame takes 96 ms. */
#define RATE 5
#define FRAME_MS (FRAME * 8 / RATE)
#define BURST 10

static long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* How long the frames take to be sent. */
static long send_all(struct pair *pair)
{
	long begin = now_ms();

	for (int i = 0; i < FRAMES; i++) {
		struct ibv_sge sge = { .addr = (uintptr_t)memory, .length = FRAME, .lkey = mr->lkey };
		struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };

		CHECK(!ibv_post_send(pair->qp[0], &wr, &bad));
	}
	for (int i = 0; i < FRAMES; i++)
		ends_in(pair, IBV_WC_SUCCESS);
	return now_ms() - begin;
}

static void hold(struct ibv_qp *qp, uint32_t rate, uint32_t burst)
{
	struct ibv_qp_rate_limit_attr attr = {
		.rate_limit = rate, .max_burst_sz = burst, .typical_pkt_sz = burst ? FRAME : 0,
	};

	CHECK(!ibv_modify_qp_rate_limit(qp, &attr));
}

int main(int argc, char **argv)
{
	open_device(argc, argv, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_device_attr_ex caps;

	CHECK(!ibv_query_device_ex(device, NULL, &caps));
	CHECK(caps.packet_pacing_caps.supported_qpts & 1 << IBV_QPT_RAW_PACKET);
	CHECK(caps.packet_pacing_caps.qp_rate_limit_min <= RATE && caps.packet_pacing_caps.qp_rate_limit_max >= RATE);

	struct pair pair = { .cq = ibv_create_cq(device, 2 * FRAMES, NULL, NULL, 0) };

	CHECK(pair.cq);
	struct ibv_qp_init_attr init = {
		.send_cq = pair.cq, .recv_cq = pair.cq, .qp_type = IBV_QPT_RAW_PACKET, .sq_sig_all = 1,
		.cap = { .max_send_wr = FRAMES, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	pair.qp[0] = ibv_create_qp(pd, &init);
	CHECK(pair.qp[0]);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	CHECK(!ibv_modify_qp(pair.qp[0], &attr, IBV_QP_STATE | IBV_QP_PORT));
	attr.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(pair.qp[0], &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(pair.qp[0], &attr, IBV_QP_STATE));
	/* To a unicast address of nobody, from one that is local; an Ethernet type for experiments. */
	memcpy(memory, "\x02\xfe\xfe\xfe\xfe\x01\x02\xfe\xfe\xfe\xfe\x02\x88\xb5", 14);

	long free = send_all(&pair);

	hold(pair.qp[0], RATE, 0);
	long held = send_all(&pair), of_all = (FRAMES - 1) * FRAME_MS;

	hold(pair.qp[0], RATE, BURST * FRAME);
	/* What was sent at the old rate has had its time. */
	poll(NULL, 0, BURST * FRAME_MS);
	long burst = send_all(&pair), of_rest = (FRAMES - BURST) * FRAME_MS;

	hold(pair.qp[0], 0, 0);
	long freed = send_all(&pair);

	printf("%d frames in %ld, %ld, %ld, %ld ms\n", FRAMES, free, held, burst, freed);
	/* No frame early; late by what a busy machine takes. */
	CHECK(held >= of_all && held < 2 * of_all);
	CHECK(burst >= of_rest && burst < of_all);
	CHECK(free < of_rest && freed < of_rest);
	CHECK(!ibv_destroy_qp(pair.qp[0]) && !ibv_destroy_cq(pair.cq));
	printf("frames keep their rate\n");
	return 0;
}
