/*
 * Options of a connection (ECE): what the card offers, what it drops, and that a connection works with the rest.
 * `ece DEVICE GID-INDEX`; exits with 0 if all is as the manual pages require.
 */
#include "pair.h"
#include <errno.h>

#define MELLANOX 0x15b3
/* Version 1, which libmlx5 asks for. */
#define VERSION 0x10000000

static uint32_t options(struct ibv_qp *qp)
{
	struct ibv_ece ece = {};

	CHECK(!ibv_query_ece(qp, &ece) && ece.vendor_id == MELLANOX && !ece.comp_mask);
	return ece.options;
}

static int set_options(struct ibv_qp *qp, uint32_t vendor, uint32_t options)
{
	struct ibv_ece ece = { .vendor_id = vendor, .options = options };

	return ibv_set_ece(qp, &ece);
}

int main(int argc, char **argv)
{
	open_device(argc, argv, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);

	struct pair pair = { .cq = ibv_create_cq(device, 15, NULL, NULL, 0) };

	CHECK(pair.cq);
	pair.qp[0] = new_qp(pair.cq, NULL);
	pair.qp[1] = new_qp(pair.cq, NULL);
	CHECK((options(pair.qp[0]) & 0xf0000000) == VERSION);
	CHECK(set_options(pair.qp[1], 0x1234, VERSION) == EINVAL);
	/* As the passive end: with options that no card has. It drops them. */
	CHECK(!set_options(pair.qp[1], MELLANOX, options(pair.qp[0]) | 0x08000000));
	to_rtr(pair.qp[1], pair.qp[0]);

	uint32_t agreed = options(pair.qp[1]);

	CHECK(agreed == options(pair.qp[0]));
	/* As the active end. */
	CHECK(!set_options(pair.qp[0], MELLANOX, agreed));
	to_rtr(pair.qp[0], pair.qp[1]);
	CHECK(options(pair.qp[0]) == agreed);
	to_rts(pair.qp[0]);
	post(pair.qp[0], IBV_WR_RDMA_WRITE, mr->rkey);
	ends_in(&pair, IBV_WC_SUCCESS);
	end(&pair);
	printf("both ends agreed on %#x\n", agreed);
	return 0;
}
