/*
 * Whether libmlx5 says that bytes come in order, and whether they do: who sees the last one has all.
 * `data_in_order DEVICE GID-INDEX`; exits with 0 if so.
 */
#include "pair.h"

#define SIZE 2048
#define MESSAGES 100

int main(int argc, char **argv)
{
	open_device(argc, argv, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);

	struct pair pair = new_pair(15, NULL);
	struct ibv_qp *in_rts = pair.qp[0], *in_rtr = pair.qp[1];

	CHECK(ibv_query_qp_data_in_order(in_rts, IBV_WR_RDMA_WRITE, 0) == 1);
	CHECK(ibv_query_qp_data_in_order(in_rts, IBV_WR_SEND, IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS) &
	      IBV_QUERY_QP_DATA_IN_ORDER_WHOLE_MSG);
	CHECK(ibv_query_qp_data_in_order(in_rtr, IBV_WR_RDMA_WRITE, 0) == 0);
	for (int number = 0; number < MESSAGES; number++) {
		struct ibv_sge sge = { .addr = (uintptr_t)memory, .length = SIZE, .lkey = mr->lkey };
		struct ibv_send_wr *bad, wr = {
			.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
			.wr.rdma = { .remote_addr = (uintptr_t)memory + SIZE, .rkey = mr->rkey },
		};
		char mark = number + 1;

		memset(memory, mark, SIZE);
		CHECK(!ibv_post_send(in_rts, &wr, &bad));
		for (int tries = 0; __atomic_load_n(&memory[2 * SIZE - 1], __ATOMIC_ACQUIRE) != mark; tries++) {
			CHECK(tries < PATIENCE_MS);
			poll(NULL, 0, tries > 1000);
		}
		for (int at = 0; at < SIZE; at++)
			CHECK(memory[SIZE + at] == mark);
		ends_in(&pair, IBV_WC_SUCCESS);
	}
	end(&pair);
	printf("libmlx5 polled %d messages in order\n", MESSAGES);
	return 0;
}
