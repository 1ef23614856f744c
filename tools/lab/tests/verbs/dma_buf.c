/*
 * A dma-buf of memory that this process has: `dma_buf SOCKET` hands it to another process (examples/dma_buf.rs), whose
 * card writes and reads it. Contents are compared by loads.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/udmabuf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define CHECK(what) do { if (!(what)) fail(#what); } while (0)

#define SIZE 65536
/* As in examples/dma_buf.rs. */
#define FIRST (4096 + 512)
#define HALF 20000

static char expected[HALF];

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static const char *pattern(size_t length, int seed)
{
	for (size_t i = 0; i < length; i++)
		expected[i] = i * 5 + (i >> 8) + seed * 37 + 1;
	return expected;
}

static char *make(int *fd)
{
	int memory_fd = memfd_create("dma-buf", MFD_ALLOW_SEALING), maker = open("/dev/udmabuf", O_RDWR);

	CHECK(memory_fd >= 0 && maker >= 0);
	CHECK(!ftruncate(memory_fd, SIZE) && !fcntl(memory_fd, F_ADD_SEALS, F_SEAL_SHRINK));
	struct udmabuf_create create = { .memfd = memory_fd, .flags = UDMABUF_FLAGS_CLOEXEC, .size = SIZE };

	*fd = ioctl(maker, UDMABUF_CREATE, &create);
	CHECK(*fd >= 0);
	char *bytes = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd, 0);

	CHECK(bytes != MAP_FAILED);
	return bytes;
}

static void give(int peer, int fd)
{
	union { struct cmsghdr header; char room[CMSG_SPACE(sizeof(int))]; } descriptor;
	char byte = 0;
	struct iovec bytes = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr message = { .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = &descriptor,
				  .msg_controllen = sizeof(descriptor) };

	descriptor.header = (struct cmsghdr){ .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
					      .cmsg_len = CMSG_LEN(sizeof(int)) };
	memcpy(CMSG_DATA(&descriptor.header), &fd, sizeof(int));
	CHECK(sendmsg(peer, &message, 0) == 1);
}

static void hear(int peer, char turn)
{
	char said = 0;

	CHECK(read(peer, &said, 1) == 1 && said == turn);
}

int main(int argc, char **argv)
{
	struct sockaddr_un here = { .sun_family = AF_UNIX };
	int listener = socket(AF_UNIX, SOCK_STREAM, 0), peer, fd;
	char *bytes = make(&fd);

	if (argc != 2)
		return 2;
	strncpy(here.sun_path, argv[1], sizeof(here.sun_path) - 1);
	CHECK(!bind(listener, (struct sockaddr *)&here, sizeof(here)) && !listen(listener, 1));
	CHECK((peer = accept(listener, NULL, NULL)) >= 0);
	give(peer, fd);
	hear(peer, 'w');
	CHECK(!memcmp(bytes + FIRST, pattern(HALF, 1), HALF));
	memcpy(bytes + FIRST + HALF, pattern(HALF, 2), HALF);
	CHECK(write(peer, "r", 1) == 1);
	hear(peer, 'd');
	printf("handed over, and what was written is there\n");
	return 0;
}
