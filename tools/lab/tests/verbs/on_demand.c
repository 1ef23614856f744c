/*
 * On-demand paging, which the card does not support: its capabilities say so, and registration is refused.
 * `on_demand DEVICE GID-INDEX`; exits with 0 if both hold.
 */
#include "pair.h"
#include <errno.h>

static void check_refused(void *start, size_t length)
{
	errno = 0;
	CHECK(!ibv_reg_mr(pd, start, length, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND) && errno == EOPNOTSUPP);
}

int main(int argc, char **argv)
{
	struct ibv_device_attr_ex attr;

	/* This registers `memory` without on-demand paging. */
	open_device(argc, argv, IBV_ACCESS_LOCAL_WRITE);
	CHECK(!ibv_query_device_ex(device, NULL, &attr) && !attr.odp_caps.general_caps);
	check_refused(memory, sizeof(memory));
	/* The whole address space. */
	check_refused(NULL, SIZE_MAX);
	printf("pages stay where they are\n");
	return 0;
}
