/* The time stamp counter, which counts instructions under QEMU's -icount. */
#include <stdint.h>

#define ALWAYS static inline __attribute__((always_inline))

ALWAYS uint64_t ticks(void)
{
	uint64_t now;

	__asm__ volatile("" ::: "memory");
	now = __builtin_ia32_rdtsc();
	__asm__ volatile("" ::: "memory");
	return now;
}
