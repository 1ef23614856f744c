/*
 * Reserved numbers of queue pairs: those of several objects of the card's, none twice and none a queue pair's, given
 * back and reserved again. `reserved_qpns DEVICE GID-INDEX`; exits with 0 if all is as the manual pages require.
 */
#include "pair.h"
#include <errno.h>
#include <infiniband/mlx5dv.h>

/* More than one object has. */
#define NUMBERS 100

static uint32_t numbers[NUMBERS];

static void reserve(void)
{
	for (int i = 0; i < NUMBERS; i++)
		CHECK(!mlx5dv_reserved_qpn_alloc(device, &numbers[i]));
}

static void give_back(void)
{
	for (int i = 0; i < NUMBERS; i++)
		CHECK(!mlx5dv_reserved_qpn_dealloc(device, numbers[i]));
}

int main(int argc, char **argv)
{
	open_device(argc, argv, IBV_ACCESS_LOCAL_WRITE);

	struct ibv_cq *cq = ibv_create_cq(device, 15, NULL, NULL, 0);

	CHECK(cq);
	reserve();
	struct ibv_qp *qp = new_qp(cq, NULL);

	for (int i = 0; i < NUMBERS; i++) {
		CHECK(numbers[i] < 1 << 24 && numbers[i] != qp->qp_num);
		CHECK(i == 0 || numbers[i] > numbers[i - 1]);
	}
	printf("libmlx5 reserved %#x to %#x\n", numbers[0], numbers[NUMBERS - 1]);
	CHECK(mlx5dv_reserved_qpn_dealloc(device, numbers[NUMBERS - 1] + 1) == EINVAL);
	give_back();
	CHECK(mlx5dv_reserved_qpn_dealloc(device, numbers[0]) == EINVAL);
	reserve();
	give_back();
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq));
	return 0;
}
