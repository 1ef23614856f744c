/*
 * What the kernel counts of memory regions. Whoever includes it has CHECK.
 */
#include <stdio.h>
#include <string.h>

/*
 * A counter of all regions together: page_faults, page_invalidations or page_prefetch. What an implicit region lost
 * counts with its parts.
 */
static long counted(const char *name)
{
	FILE *said = popen("rdma statistic show mr", "r");
	char word[64];
	long sum = 0, number;

	CHECK(said);
	while (fscanf(said, "%63s", word) == 1)
		if (!strcmp(word, name) && fscanf(said, "%ld", &number) == 1)
			sum += number;
	CHECK(!pclose(said));
	return sum;
}
