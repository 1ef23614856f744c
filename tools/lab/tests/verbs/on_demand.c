/*
 * On-demand paging, which the card has not: it says so, and memory is not registered that way. `on_demand DEVICE
 * GID-INDEX`; ends with 0 when both is so.
 */
#include "pair.h"
#include <errno.h>

static void is_refused(void *start, size_t length)
{
	errno = 0;
	CHECK(!ibv_reg_mr(pd, start, length, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND) && errno == EOPNOTSUPP);
}

int main(int argc, char **argv)
{
	struct ibv_device_attr_ex attr;

	/* Registers `memory` as usual. */
	open_device(argc, argv, IBV_ACCESS_LOCAL_WRITE);
	CHECK(!ibv_query_device_ex(device, NULL, &attr) && !attr.odp_caps.general_caps);
	is_refused(memory, sizeof(memory));
	/* All there is. */
	is_refused(NULL, SIZE_MAX);
	printf("pages stay where they are\n");
	return 0;
}
