/*
 * Device memory: data that the CPU stores there is read remotely, and data written remotely is loaded by the CPU.
 * `memory DEVICE GID-INDEX`; exits with 0 on success.
 */
#include "pair.h"

#define LENGTH 4096
/* The key covers the second half and is zero-based. */
#define START 2048

int main(int argc, char **argv)
{
	struct ibv_device_attr_ex attr;
	struct ibv_alloc_dm_attr wanted = { .length = LENGTH };
	char found[64], stored[64];

	open_device(argc, argv, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(!ibv_query_device_ex(device, NULL, &attr) && attr.max_dm_size >= LENGTH);
	wanted.length = attr.max_dm_size * 2;
	CHECK(!ibv_alloc_dm(device, &wanted));
	wanted.length = LENGTH;
	struct ibv_dm *dm = ibv_alloc_dm(device, &wanted), *other = ibv_alloc_dm(device, &wanted);

	CHECK(dm && other);
	struct ibv_mr *on_card = ibv_reg_dm_mr(pd, dm, START, LENGTH - START, IBV_ACCESS_ZERO_BASED |
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);

	CHECK(on_card);
	struct pair pair = new_pair(32, NULL);

	to_rts(pair.qp[1]);
	memset(stored, 0x11, sizeof(stored));
	CHECK(!ibv_memcpy_to_dm(other, START, stored, sizeof(stored)));
	memset(memory, 0x22, sizeof(stored));
	post_to(pair.qp[0], IBV_WR_RDMA_WRITE, 0, on_card->rkey);
	ends_in(&pair, IBV_WC_SUCCESS);
	CHECK(!ibv_memcpy_from_dm(found, dm, START, sizeof(found)) && !memcmp(found, memory, sizeof(found)));
	CHECK(!ibv_memcpy_from_dm(found, other, START, sizeof(found)) && !memcmp(found, stored, sizeof(found)));

	/* Remote read of what was stored. */
	for (unsigned i = 0; i < sizeof(stored); i++)
		stored[i] = i;
	CHECK(!ibv_memcpy_to_dm(dm, START + 128, stored, sizeof(stored)));
	post_to(pair.qp[0], IBV_WR_RDMA_READ, 128, on_card->rkey);
	ends_in(&pair, IBV_WC_SUCCESS);
	CHECK(!memcmp(memory, stored, sizeof(stored)));

	/* As source of a send, and as destination of a receive. */
	struct ibv_sge sge = { .addr = 128, .length = 64, .lkey = on_card->lkey };
	struct ibv_sge to = { .addr = 1024, .length = 64, .lkey = on_card->lkey };
	struct ibv_recv_wr *bad_recv, recv = { .sg_list = &to, .num_sge = 1 };
	struct ibv_send_wr *bad, send = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };

	CHECK(!ibv_post_recv(pair.qp[1], &recv, &bad_recv) && !ibv_post_send(pair.qp[0], &send, &bad));
	ends_in(&pair, IBV_WC_SUCCESS);
	ends_in(&pair, IBV_WC_SUCCESS);
	CHECK(!ibv_memcpy_from_dm(found, dm, START + 1024, sizeof(found)) && !memcmp(found, stored, sizeof(found)));

	/* A region of length zero. */
	struct ibv_mr *empty = ibv_reg_dm_mr(pd, dm, START, 0, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE);

	CHECK(empty && !ibv_dereg_mr(empty));

	/* Beyond its end. */
	post_to(pair.qp[0], IBV_WR_RDMA_WRITE, LENGTH - START - 32, on_card->rkey);
	ends_in(&pair, IBV_WC_REM_ACCESS_ERR);
	end(&pair);
	CHECK(!ibv_dereg_mr(on_card) && !ibv_free_dm(dm) && !ibv_free_dm(other));
	printf("stored and loaded\n");
	return 0;
}
