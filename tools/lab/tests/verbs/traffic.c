/*
 * Known traffic between two queue pairs of one device, to check counters: `traffic DEVICE GID-INDEX` executes a fixed
 * number of writes, reads and sends of 64 bytes, and finally a send that must wait for its receive. The queue pairs
 * stay until standard input ends.
 */
#include "pair.h"

#define WRITES 10
#define READS 5
#define SENDS 3

int main(int argc, char **argv)
{
	open_device(argc, argv, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	struct pair pair = new_pair(32, NULL);

	to_rts(pair.qp[1]);
	for (int i = 0; i < WRITES + READS; i++) {
		post(pair.qp[0], i < WRITES ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, mr->rkey);
		ends_in(&pair, IBV_WC_SUCCESS);
	}
	for (int i = 0; i < SENDS + 1; i++) {
		if (i < SENDS)
			receive(pair.qp[1]);
		post(pair.qp[0], IBV_WR_SEND, 0);
		if (i == SENDS) {
			poll(NULL, 0, 50);
			receive(pair.qp[1]);
		}
		ends_in(&pair, IBV_WC_SUCCESS);
		ends_in(&pair, IBV_WC_SUCCESS);
	}
	printf("sent\n");
	fflush(stdout);
	while (getchar() != EOF)
		;
	end(&pair);
	return 0;
}
