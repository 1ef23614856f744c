/*
 * Cost of ibv_reg_mr and ibv_dereg_mr: `verbs DEVICE FILE BYTES RUNS`.
 *
 * Does the same as ours.rs, and prints the same lines, one for each run: "instructions to register, nanoseconds of it,
 * instructions to deregister, nanoseconds of it". The thread's processor time serves as instruction count, as it does
 * under QEMU's -icount; the nanoseconds include waiting for the card.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "../common/verbs.h"

struct instant {
	int64_t instructions, nanoseconds;
};

static int64_t now(clockid_t clock)
{
	struct timespec time;

	CHECK(!clock_gettime(clock, &time));
	return time.tv_sec * 1000000000 + time.tv_nsec;
}

static struct instant instant(void)
{
	return (struct instant){ now(CLOCK_THREAD_CPUTIME_ID), now(CLOCK_MONOTONIC) };
}

/* The file's mapped and populated memory. */
static char *map(const char *path, size_t bytes)
{
	int file = open(path, O_RDWR);
	char *memory;

	CHECK(file >= 0);
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
	CHECK(memory != MAP_FAILED);
	for (size_t at = 0; at < bytes; at += 4096)
		memory[at] = 1;
	return memory;
}

int main(int argc, char **argv)
{
	struct ibv_context *context;
	struct ibv_pd *pd;
	size_t bytes;
	char *memory;

	if (argc != 5) {
		fprintf(stderr, "usage: verbs DEVICE FILE BYTES RUNS\n");
		return 2;
	}
	context = open_device(argv[1]);
	CHECK(context);
	pd = ibv_alloc_pd(context);
	CHECK(pd);
	bytes = strtoull(argv[3], NULL, 10);
	memory = map(argv[2], bytes);
	for (int run = atoi(argv[4]); run > 0; run--) {
		struct instant start, registered, gone;
		struct ibv_mr *mr;

		start = instant();
		mr = ibv_reg_mr(pd, memory, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
		registered = instant();
		CHECK(mr);
		CHECK(!ibv_dereg_mr(mr));
		gone = instant();
		printf("%" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 "\n", registered.instructions - start.instructions,
		       registered.nanoseconds - start.nanoseconds, gone.instructions - registered.instructions,
		       gone.nanoseconds - registered.nanoseconds);
	}
	return 0;
}
