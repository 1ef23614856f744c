/*
 * Resizes a completion queue while its queue pair writes: no completion is lost or duplicated.
 * `resize DEVICE GID-INDEX`; exits with 0 if all is as the manual page requires.
 */
#include "pair.h"

/* Completions not polled yet when the queue is resized. */
#define LEFT 5

int main(int argc, char **argv)
{
	static const int sizes[] = { 63, 15, 1023, 7, 31 };
	struct ibv_wc wc;

	open_device(argc, argv, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct pair pair = new_pair(15, NULL);

	for (unsigned round = 0; round < 2 * sizeof(sizes) / sizeof(*sizes); round++) {
		int size = sizes[round % (sizeof(sizes) / sizeof(*sizes))];

		for (int i = 0; i < LEFT; i++)
			post(pair.qp[0], IBV_WR_RDMA_WRITE, mr->rkey);
		/* In every second round all have arrived; otherwise they arrive during the resize. */
		if (round % 2)
			poll(NULL, 0, 50);
		CHECK(!ibv_resize_cq(pair.cq, size) && pair.cq->cqe >= size);
		for (int i = 0; i < LEFT; i++)
			ends_in(&pair, IBV_WC_SUCCESS);
		CHECK(!ibv_poll_cq(pair.cq, 1, &wc));
		/* More than one lap of the new ring. */
		for (int i = 0; i < 100; i++) {
			post(pair.qp[0], IBV_WR_RDMA_WRITE, mr->rkey);
			ends_in(&pair, IBV_WC_SUCCESS);
		}
		CHECK(!ibv_poll_cq(pair.cq, 1, &wc));
	}
	end(&pair);
	printf("grew and shrank\n");
	return 0;
}
