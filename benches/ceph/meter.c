/*
 * meter SERVER COMMAND...: runs COMMAND, and prints the processor time that it took, and the process SERVER while it
 * ran, in nanoseconds: under QEMU's -icount, instructions, with those of the kernel on their behalf.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

/* Processor time of another process, all threads. */
static int64_t processor_time(pid_t process)
{
	clockid_t clock;
	struct timespec time;

	if (clock_getcpuclockid(process, &clock) || clock_gettime(clock, &time))
		fail("the server's processor time");
	return time.tv_sec * 1000000000ll + time.tv_nsec;
}

static int64_t nanoseconds(struct timeval time)
{
	return time.tv_sec * 1000000000ll + time.tv_usec * 1000ll;
}

int main(int count, char **arguments)
{
	pid_t server = count > 2 ? atoi(arguments[1]) : 0;
	struct rusage usage;
	int64_t before;
	int status;
	pid_t child;

	if (server <= 0) {
		fprintf(stderr, "usage: meter SERVER COMMAND...\n");
		return 2;
	}
	before = processor_time(server);
	child = fork();
	if (child < 0)
		fail("fork");
	if (child == 0) {
		execvp(arguments[2], arguments + 2);
		fail(arguments[2]);
	}
	if (wait4(child, &status, 0, &usage) != child)
		fail("wait4");
	if (!WIFEXITED(status) || WEXITSTATUS(status)) {
		fprintf(stderr, "the client ended with status %#x\n", status);
		return 1;
	}
	printf("meter: client %lld server %lld\n",
	       (long long)(nanoseconds(usage.ru_utime) + nanoseconds(usage.ru_stime)),
	       (long long)(processor_time(server) - before));
	return 0;
}
