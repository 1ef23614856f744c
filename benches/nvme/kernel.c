/*
 * Cost of I/O by the kernel's nvme-rdma: `kernel MODE DEVICE read|write DEPTH ROUNDS`.
 *
 * Does the same as ours.rs, and prints the same: instructions for each I/O. A round is DEPTH I/Os. The modes:
 *
 * interrupt    io_uring on a block device. Counted is all that the processor does but to be idle.
 * poll         io_uring on a block device, IORING_SETUP_IOPOLL. Submitting and reaping are counted, waiting is not.
 * passthrough  As poll, but NVMe commands on a character device.
 *
 * `kernel check` counts known instructions in both ways, and what a call costs that does nothing.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <linux/io_uring.h>
#include <linux/nvme_ioctl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "../common/check.h"
#include "../common/ticks.h"

#define BYTES 4096
#define BLOCK 512
#define MOST 64 /* I/Os under way */
#define PLACES 4096 /* of the disk that are used */
#define WARM_UP 5 /* rounds */
#define WAIT_US 20000
#define CALLS 2 /* that reap: by the second one, what the first one polled is there in passthrough, too */
#define LATE 10 /* rounds in which a completion may be late, for each that is counted */

enum mode { INTERRUPT, POLL, PASSTHROUGH };

static struct {
	int fd, registered; /* number of the file, and of the registered file */
	unsigned *sq_tail, sq_mask, *cq_head, *cq_tail, cq_mask;
	char *sqes, *cqes;
	size_t sqe_bytes, cqe_bytes;
} ring;
static char *memory; /* MOST buffers, registered */
static enum mode mode;
static int is_write;
static unsigned depth, place;

static int64_t now(void)
{
	struct timespec time;

	CHECK(!clock_gettime(CLOCK_MONOTONIC, &time));
	return time.tv_sec * 1000000000 + time.tv_nsec;
}

/* How long the processor was idle so far, in nanoseconds of the same clock. */
static int64_t idle(void)
{
	FILE *list = fopen("/proc/timer_list", "r");
	int64_t nanoseconds, sum = 0;
	int found = 0;
	char line[256];

	CHECK(list);
	while (fgets(line, sizeof(line), list)) {
		if (sscanf(line, " .idle_sleeptime : %" SCNd64 " nsecs", &nanoseconds) != 1 &&
		    sscanf(line, " .iowait_sleeptime : %" SCNd64 " nsecs", &nanoseconds) != 1)
			continue;
		sum += nanoseconds;
		found++;
	}
	CHECK(found == 2); /* of one processor */
	fclose(list);
	return sum;
}

ALWAYS int enter(unsigned submit, unsigned await, unsigned flags)
{
	return syscall(SYS_io_uring_enter, ring.registered, submit, await, flags | IORING_ENTER_REGISTERED_RING, NULL, 0);
}

static void set_up(unsigned flags)
{
	struct io_uring_params with = { .flags = flags | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN };
	struct io_uring_rsrc_update itself = { .offset = -1u };
	unsigned *indices;
	size_t bytes;
	char *rings;
	int fd;

	ring.sqe_bytes = flags & IORING_SETUP_SQE128 ? 128 : 64;
	ring.cqe_bytes = flags & IORING_SETUP_CQE32 ? 32 : 16;
	fd = syscall(SYS_io_uring_setup, MOST, &with);
	CHECK(fd >= 0);
	bytes = with.cq_off.cqes + with.cq_entries * ring.cqe_bytes;
	rings = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, IORING_OFF_SQ_RING);
	CHECK(rings != MAP_FAILED);
	bytes = with.sq_entries * ring.sqe_bytes;
	ring.sqes = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, IORING_OFF_SQES);
	CHECK(ring.sqes != MAP_FAILED);
	ring.sq_tail = (unsigned *)(rings + with.sq_off.tail);
	ring.sq_mask = with.sq_entries - 1;
	ring.cq_head = (unsigned *)(rings + with.cq_off.head);
	ring.cq_tail = (unsigned *)(rings + with.cq_off.tail);
	ring.cq_mask = with.cq_entries - 1;
	ring.cqes = rings + with.cq_off.cqes;
	indices = (unsigned *)(rings + with.sq_off.array);
	for (unsigned at = 0; at < with.sq_entries; at++)
		indices[at] = at;
	itself.data = fd;
	CHECK(syscall(SYS_io_uring_register, fd, IORING_REGISTER_RING_FDS, &itself, 1) == 1);
	ring.fd = fd;
	ring.registered = itself.offset;
	memory = mmap(NULL, MOST * BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	CHECK(memory != MAP_FAILED);
	CHECK(!syscall(SYS_io_uring_register, fd, IORING_REGISTER_BUFFERS,
		       &(struct iovec){ memory, MOST * BYTES }, 1));
}

static void open_disk(const char *path)
{
	int disk = open(path, mode == PASSTHROUGH ? O_RDWR : O_RDWR | O_DIRECT);
	unsigned flags[] = { 0, IORING_SETUP_IOPOLL,
			     IORING_SETUP_IOPOLL | IORING_SETUP_SQE128 | IORING_SETUP_CQE32 };

	CHECK(disk >= 0);
	set_up(flags[mode]);
	CHECK(!syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_FILES, &disk, 1));
}

/* A work request for buffer `number`, at the next place of the disk. */
ALWAYS void prepare(unsigned number)
{
	struct io_uring_sqe *sqe = (void *)(ring.sqes + ((*ring.sq_tail + number) & ring.sq_mask) * ring.sqe_bytes);
	uint64_t address = (uintptr_t)memory + number * BYTES;
	struct nvme_uring_cmd *command;

	place = (place + 7) % PLACES;
	sqe->flags = IOSQE_FIXED_FILE;
	sqe->fd = 0;
	sqe->buf_index = 0;
	sqe->user_data = number;
	if (mode != PASSTHROUGH) {
		sqe->opcode = is_write ? IORING_OP_WRITE_FIXED : IORING_OP_READ_FIXED;
		sqe->addr = address;
		sqe->len = BYTES;
		sqe->off = (uint64_t)place * BYTES;
		return;
	}
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->cmd_op = NVME_URING_CMD_IO;
	sqe->uring_cmd_flags = IORING_URING_CMD_FIXED;
	/* The rest of it is zero from the start. */
	command = (void *)((char *)sqe + 48);
	command->opcode = is_write ? 1 : 2;
	command->nsid = 1;
	command->addr = address;
	command->data_len = BYTES;
	command->cdw10 = place * (BYTES / BLOCK);
	command->cdw12 = BYTES / BLOCK - 1;
}

ALWAYS void submit(unsigned await, unsigned flags)
{
	for (unsigned number = 0; number < depth; number++)
		prepare(number);
	__atomic_store_n(ring.sq_tail, *ring.sq_tail + depth, __ATOMIC_RELEASE);
	CHECK(enter(depth, await, flags) == (int)depth);
}

/* Takes the completions that are there, and adds the numbers of their buffers to `sum`. Returns how many there are. */
ALWAYS unsigned take(unsigned *sum)
{
	unsigned head = *ring.cq_head, count = __atomic_load_n(ring.cq_tail, __ATOMIC_ACQUIRE) - head;

	for (unsigned number = 0; number < count; number++, head++) {
		struct io_uring_cqe *cqe = (void *)(ring.cqes + (head & ring.cq_mask) * ring.cqe_bytes);

		CHECK(cqe->res == (mode == PASSTHROUGH ? 0 : BYTES));
		*sum += cqe->user_data;
	}
	__atomic_store_n(ring.cq_head, head, __ATOMIC_RELEASE);
	return count;
}

/* Whether the completions taken are those of a round. */
ALWAYS int is_round(unsigned taken, unsigned sum)
{
	return taken == depth && sum == depth * (depth - 1) / 2;
}

static int compare(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return (a > b) - (a < b);
}

/* Instructions for each I/O of a round; 0 if one was late. The processor is idle between submitting and reaping. */
static double round_of_polls(uint64_t nothing)
{
	uint64_t start = ticks(), counted;
	unsigned taken = 0, sum = 0, is_late;

	submit(0, 0);
	counted = ticks() - start - nothing;
	usleep(WAIT_US);
	start = ticks();
	for (int calls = 0; calls < CALLS && taken < depth; calls++) {
		/* Polls once, without waiting. */
		CHECK(enter(0, 0, IORING_ENTER_GETEVENTS) >= 0);
		taken += take(&sum);
	}
	counted += ticks() - start - nothing;
	is_late = taken < depth;
	while (taken < depth) {
		CHECK(enter(0, 1, IORING_ENTER_GETEVENTS) >= 0);
		taken += take(&sum);
	}
	CHECK(is_round(taken, sum));
	return is_late ? 0 : (double)counted / depth;
}

/* Instructions for each I/O: the median round. */
static double polled(unsigned rounds)
{
	double *samples = calloc(rounds, sizeof(*samples));
	uint64_t nothing = ticks();
	unsigned count = 0;

	nothing = ticks() - nothing;
	CHECK(samples);
	for (unsigned round = 0; count < rounds; round++) {
		double sample = round_of_polls(nothing);

		CHECK(round < WARM_UP + rounds * LATE);
		if (round >= WARM_UP && sample > 0)
			samples[count++] = sample;
	}
	qsort(samples, rounds, sizeof(*samples), compare);
	return samples[rounds / 2];
}

/* Instructions for each I/O, of all that the processor did meanwhile. */
static double interrupted(unsigned rounds)
{
	int64_t start = 0, idle_before = 0, end;

	for (unsigned round = 0; round < WARM_UP + rounds; round++) {
		unsigned taken, sum = 0;

		if (round == WARM_UP) {
			idle_before = idle();
			start = now();
		}
		submit(depth, IORING_ENTER_GETEVENTS);
		taken = take(&sum);
		CHECK(is_round(taken, sum));
	}
	end = now();
	return (double)(end - start - (idle() - idle_before)) / rounds / depth;
}

/* A million instructions. */
static void million(void)
{
	unsigned count = 500000;

	__asm__ volatile("1: dec %0\n\tjnz 1b" : "+r"(count)::"cc");
}

static void nothing_at_all(void)
{
}

/* What the processor does but to be idle while `work` and a sleep take turns. */
static double beside_idle(void (*work)(void), unsigned rounds, unsigned sleep_us)
{
	int64_t idle_before = idle(), start = now(), end;

	for (unsigned round = 0; round < rounds; round++) {
		work();
		usleep(sleep_us);
	}
	end = now();
	return (double)(end - start - (idle() - idle_before)) / rounds;
}

static void empty_call(void)
{
	CHECK(!enter(0, 0, 0));
}

/* The least ticks of `work`: nothing interrupted it. */
static uint64_t least(void (*work)(void))
{
	uint64_t found = UINT64_MAX;

	for (unsigned round = 0; round < 20; round++) {
		uint64_t start = ticks(), counted;

		work();
		counted = ticks() - start;
		found = counted < found ? counted : found;
	}
	return found;
}

static void check(void)
{
	set_up(IORING_SETUP_IOPOLL);
	printf("a million instructions, by the counter: %" PRIu64 "\n", least(million));
	printf("a million instructions and a sleep, less idle: %.0f\n", beside_idle(million, 200, 1000));
	printf("a sleep, less idle: %.0f\n", beside_idle(nothing_at_all, 200, 1000));
	printf("a second's sleep, less idle: %.0f\n", beside_idle(nothing_at_all, 1, 1000000));
	printf("a call of io_uring_enter that does nothing: %" PRIu64 "\n", least(empty_call));
}

int main(int argc, char **argv)
{
	static const char *const modes[] = { "interrupt", "poll", "passthrough" };
	unsigned rounds;

	if (argc == 2 && !strcmp(argv[1], "check")) {
		check();
		return 0;
	}
	if (argc != 6) {
		fprintf(stderr, "usage: kernel interrupt|poll|passthrough DEVICE read|write DEPTH ROUNDS\n");
		return 2;
	}
	while (strcmp(argv[1], modes[mode]))
		CHECK(++mode <= PASSTHROUGH);
	is_write = !strcmp(argv[3], "write");
	depth = atoi(argv[4]);
	rounds = atoi(argv[5]);
	CHECK(depth > 0 && depth <= MOST && rounds > 0);
	open_disk(argv[2]);
	printf("%.1f\n", mode == INTERRUPT ? interrupted(rounds) : polled(rounds));
	return 0;
}
