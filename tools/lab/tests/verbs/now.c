/*
 * Prints the device's clock, in ticks, and its rate in kHz. `now DEVICE GID-INDEX`.
 */
#include "pair.h"

int main(int argc, char **argv)
{
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	struct ibv_device_attr_ex attr;

	open_device(argc, argv, IBV_ACCESS_LOCAL_WRITE);
	CHECK(!ibv_query_rt_values_ex(device, &values) && values.comp_mask & IBV_VALUES_MASK_RAW_CLOCK);
	CHECK(!ibv_query_device_ex(device, NULL, &attr));
	printf("now %llu at %lu kHz\n", values.raw_clock.tv_sec * 1000000000ull + values.raw_clock.tv_nsec,
	       attr.hca_core_clock);
	return 0;
}
