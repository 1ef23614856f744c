/* Code shared by the C programs. */
#include <infiniband/verbs.h>
#include <string.h>

#include "check.h"

/* The device of that name; NULL if there is none, or it does not open. */
static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	CHECK(list);
	for (int i = 0; list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			return ibv_open_device(list[i]);
	return NULL;
}
