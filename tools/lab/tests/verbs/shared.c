/*
 * A context of two processes, by libibverbs: what examples/shared.rs does, so that either end may be that program.
 * `shared export SOCKET DEVICE`: opens the device, and gives it, a protection domain, a memory region and device memory
 * to another process. `shared import SOCKET`: imports them, does RC traffic with them, and unimports them.
 *
 * On the socket go the context's descriptor with the handles, and then single letters: whose turn it is.
 */
#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <errno.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "pair.h"

#define HALF (sizeof(memory) / 2)
#define ON_CARD 256
#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

/* Big-endian, as examples/shared.rs sends it. */
struct handles {
	uint32_t pd, region, dm, dm_region;
	uint64_t addr;
};

union descriptor {
	struct cmsghdr header;
	char room[CMSG_SPACE(sizeof(int))];
};

static char expected[sizeof(memory)];

static const char *pattern(size_t length, int seed)
{
	for (size_t i = 0; i < length; i++)
		expected[i] = i * 5 + (i >> 8) + seed * 37 + 1;
	return expected;
}

static struct sockaddr_un place(const char *path)
{
	struct sockaddr_un there = { .sun_family = AF_UNIX };

	CHECK(strlen(path) < sizeof(there.sun_path));
	strcpy(there.sun_path, path);
	return there;
}

static void say(int peer, char turn)
{
	CHECK(write(peer, &turn, 1) == 1);
}

static void hear(int peer, char turn)
{
	char said = 0;

	CHECK(read(peer, &said, 1) == 1 && said == turn);
}

/* As rdma-core's tests/test_mlx5_dm_ops.py has them; numbers are big-endian. */
enum { INCREMENT, TEST_AND_SET };

static void add(struct ibv_dm *dm, uint32_t by)
{
	volatile uint32_t *addresses = mlx5dv_dm_map_op_addr(dm, INCREMENT);

	CHECK(addresses);
	*addresses = htobe32(by);
}

static void test_and_set(struct ibv_dm *dm, uint32_t expected)
{
	volatile uint32_t *addresses = mlx5dv_dm_map_op_addr(dm, TEST_AND_SET);

	CHECK(addresses && be32toh(*addresses) == expected && be32toh(*addresses) == 1);
}

static void give(int peer, struct handles *handles)
{
	union descriptor descriptor;
	struct iovec bytes = { .iov_base = handles, .iov_len = sizeof(*handles) };
	struct msghdr message = { .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = &descriptor,
				  .msg_controllen = sizeof(descriptor) };

	descriptor.header = (struct cmsghdr){ .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
					      .cmsg_len = CMSG_LEN(sizeof(int)) };
	memcpy(CMSG_DATA(&descriptor.header), &device->cmd_fd, sizeof(int));
	CHECK(sendmsg(peer, &message, 0) == sizeof(*handles));
}

static int take(int peer, struct handles *handles)
{
	union descriptor descriptor;
	struct iovec bytes = { .iov_base = handles, .iov_len = sizeof(*handles) };
	struct msghdr message = { .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = &descriptor,
				  .msg_controllen = sizeof(descriptor) };
	int fd;

	CHECK(recvmsg(peer, &message, MSG_WAITALL) == sizeof(*handles));
	CHECK(message.msg_controllen && descriptor.header.cmsg_type == SCM_RIGHTS);
	memcpy(&fd, CMSG_DATA(&descriptor.header), sizeof(int));
	return fd;
}

static void export(const char *path, char *name)
{
	char *arguments[] = { "", name, "0" };
	struct ibv_alloc_dm_attr length = { .length = ON_CARD };
	struct sockaddr_un here = place(path);
	int listener = socket(AF_UNIX, SOCK_STREAM, 0), peer;
	char loaded[ON_CARD];

	open_device(3, arguments, ACCESS);
	struct ibv_dm *dm = ibv_alloc_dm(device, &length);
	CHECK(dm);
	struct ibv_mr *card = ibv_reg_dm_mr(pd, dm, 0, ON_CARD, ACCESS | IBV_ACCESS_ZERO_BASED);
	struct handles handles = {
		.pd = htobe32(pd->handle), .region = htobe32(mr->handle), .dm = htobe32(dm->handle),
		.dm_region = htobe32(card ? card->handle : 0), .addr = htobe64((uintptr_t)memory),
	};

	CHECK(card && !ibv_memcpy_to_dm(dm, 0, pattern(ON_CARD, 3), ON_CARD));
	CHECK(!bind(listener, (struct sockaddr *)&here, sizeof(here)) && !listen(listener, 1));
	CHECK((peer = accept(listener, NULL, NULL)) >= 0);
	give(peer, &handles);
	hear(peer, 'w');
	CHECK(!memcmp(memory, pattern(HALF, 1), HALF));
	memcpy(memory + HALF, pattern(HALF, 2), HALF);
	say(peer, 'r');
	hear(peer, 'd');
	CHECK(!ibv_memcpy_from_dm(loaded, dm, 0, ON_CARD) && !memcmp(loaded, pattern(ON_CARD, 4), ON_CARD));
	/* Both count at one place, without a queue pair. */
	CHECK(!ibv_memcpy_to_dm(dm, 0, (char[4]){ 0 }, 4));
	add(dm, 0x1fffe);
	say(peer, 'o');
	hear(peer, 'p');
	CHECK(!ibv_memcpy_from_dm(loaded, dm, 0, 4) && !memcmp(loaded, (char[4]){ 0, 0, 0, 1 }, 4));
	CHECK(!ibv_dereg_mr(mr) && !ibv_dereg_mr(card) && !ibv_free_dm(dm));
	/* The importer uses the domain. */
	CHECK(ibv_dealloc_pd(pd));
	say(peer, 'x');
	hear(peer, 'u');
	CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(device));
	printf("exported, and read what was written\n");
}

static void moves(struct pair *pair, enum ibv_wr_opcode opcode, struct ibv_sge sge, uint64_t remote, uint32_t rkey)
{
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = opcode, .wr.rdma = { .remote_addr = remote, .rkey = rkey },
	};

	CHECK(!ibv_post_send(pair->qp[0], &wr, &bad));
}

static struct ibv_sge own(size_t offset, size_t length)
{
	return (struct ibv_sge){ .addr = (uintptr_t)memory + offset, .length = length, .lkey = mr->lkey };
}

static void import(const char *path)
{
	struct sockaddr_un there = place(path);
	int peer = socket(AF_UNIX, SOCK_STREAM, 0);
	struct handles handles;
	char loaded[ON_CARD];

	CHECK(!connect(peer, (struct sockaddr *)&there, sizeof(there)));
	CHECK((device = ibv_import_device(take(peer, &handles))));
	CHECK(!ibv_import_pd(device, 77777) && !ibv_query_gid(device, 1, gid_index, &gid));
	CHECK((pd = ibv_import_pd(device, be32toh(handles.pd))));
	struct ibv_mr *region = ibv_import_mr(pd, be32toh(handles.region));
	struct ibv_dm *dm = ibv_import_dm(device, be32toh(handles.dm));
	struct ibv_mr *card = ibv_import_mr(pd, be32toh(handles.dm_region));
	uint64_t addr = be64toh(handles.addr);

	CHECK(region && dm && card && region->length == sizeof(memory));
	CHECK((mr = ibv_reg_mr(pd, memory, sizeof(memory), ACCESS)));
	struct pair pair = new_pair(16, NULL);

	/* Into the other process's memory, by its remote key. */
	memcpy(memory, pattern(HALF, 1), HALF);
	moves(&pair, IBV_WR_RDMA_WRITE, own(0, HALF), addr, region->rkey);
	ends_in(&pair, IBV_WC_SUCCESS);
	say(peer, 'w');
	hear(peer, 'r');
	/* Out of it, by its local key. */
	struct ibv_sge in = own(0, HALF);
	struct ibv_recv_wr *bad, receive = { .sg_list = &in, .num_sge = 1 };

	CHECK(!ibv_post_recv(pair.qp[1], &receive, &bad));
	struct ibv_sge theirs = { .addr = addr + HALF, .length = HALF, .lkey = region->lkey };

	moves(&pair, IBV_WR_SEND, theirs, 0, 0);
	ends_in(&pair, IBV_WC_SUCCESS);
	ends_in(&pair, IBV_WC_SUCCESS);
	CHECK(!memcmp(memory, pattern(HALF, 2), HALF));
	/* Memory on the card, by loads and by key. */
	CHECK(!ibv_memcpy_from_dm(loaded, dm, 0, ON_CARD) && !memcmp(loaded, pattern(ON_CARD, 3), ON_CARD));
	memcpy(memory, pattern(ON_CARD, 4), ON_CARD);
	moves(&pair, IBV_WR_RDMA_WRITE, own(0, ON_CARD), 0, card->rkey);
	ends_in(&pair, IBV_WC_SUCCESS);
	CHECK(!ibv_memcpy_from_dm(loaded, dm, 0, ON_CARD) && !memcmp(loaded, pattern(ON_CARD, 4), ON_CARD));
	say(peer, 'd');
	hear(peer, 'o');
	add(dm, 3);
	test_and_set(dm, 0x20001);
	say(peer, 'p');
	hear(peer, 'x');
	/* Its owner has deregistered it. */
	moves(&pair, IBV_WR_RDMA_WRITE, own(0, 64), addr, region->rkey);
	ends_in(&pair, IBV_WC_REM_ACCESS_ERR);
	end(&pair);
	ibv_unimport_mr(region);
	ibv_unimport_mr(card);
	ibv_unimport_dm(dm);
	CHECK(!ibv_dereg_mr(mr));
	ibv_unimport_pd(pd);
	CHECK(!ibv_close_device(device));
	say(peer, 'u');
	printf("imported, and a deregistered key is refused\n");
}

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], "export"))
		export(argv[2], argv[3]);
	else if (argc == 3 && !strcmp(argv[1], "import"))
		import(argv[2]);
	else
		return 2;
	return 0;
}
