/*
 * Counters of a flow rule: datagrams from another namespace that the rule directs to a raw packet queue pair.
 * `flow_counters DEVICE GID-INDEX NAMESPACE ADDRESS` with the device's own address; exits with 0 if each datagram
 * arrived and was counted.
 */
#define _GNU_SOURCE
#include "pair.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>

#define PORT 3191
#define LENGTH 100
/* With Ethernet, IPv4 and UDP headers. */
#define FRAME (14 + 20 + 8 + LENGTH)

/* Sends one datagram per posted receive, from `namespace`. */
static void send_datagrams(const char *namespace, struct in_addr to)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(PORT), .sin_addr = to };
	char path[64], data[LENGTH] = {};

	snprintf(path, sizeof(path), "/run/netns/%s", namespace);
	CHECK(!setns(open(path, O_RDONLY), CLONE_NEWNET));
	int from = socket(AF_INET, SOCK_DGRAM, 0);

	for (int i = 0; i < RECEIVES; i++)
		CHECK(sendto(from, data, LENGTH, 0, (struct sockaddr *)&address, sizeof(address)) == LENGTH);
}

int main(int argc, char **argv)
{
	struct in_addr address;

	if (argc != 5 || inet_pton(AF_INET, argv[4], &address) != 1)
		return 2;
	open_device(3, argv, IBV_ACCESS_LOCAL_WRITE);
	struct pair queue = { .cq = ibv_create_cq(device, 2 * RECEIVES, NULL, NULL, 0) };

	CHECK(queue.cq);
	struct ibv_qp_init_attr init = {
		.send_cq = queue.cq, .recv_cq = queue.cq, .qp_type = IBV_QPT_RAW_PACKET,
		.cap = { .max_send_wr = 1, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	CHECK(qp);
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT));
	attr.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	for (int i = 0; i < RECEIVES; i++) {
		struct ibv_sge sge = { .addr = (uintptr_t)memory + 256 * i, .length = 256, .lkey = mr->lkey };
		struct ibv_recv_wr *bad, wr = { .sg_list = &sge, .num_sge = 1 };

		CHECK(!ibv_post_recv(qp, &wr, &bad));
	}

	struct ibv_counters_init_attr no_more = {};
	struct ibv_counters *counters = ibv_create_counters(device, &no_more);
	struct ibv_counter_attach_attr bytes = { .counter_desc = IBV_COUNTER_BYTES, .index = 0 };
	struct ibv_counter_attach_attr packets = { .counter_desc = IBV_COUNTER_PACKETS, .index = 1 };

	CHECK(counters);
	CHECK(!ibv_attach_counters_point_flow(counters, &bytes, NULL));
	CHECK(!ibv_attach_counters_point_flow(counters, &packets, NULL));
	/* The specs must follow each other without gaps. */
	struct __attribute__((packed, aligned(8))) {
		struct ibv_flow_attr attr;
		struct ibv_flow_spec_eth eth;
		struct ibv_flow_spec_ipv4 ipv4;
		struct ibv_flow_spec_tcp_udp udp;
		struct ibv_flow_spec_counter_action count;
	} rule = {
		.attr = { .type = IBV_FLOW_ATTR_NORMAL, .size = sizeof(rule), .num_of_specs = 4, .port = 1 },
		.eth = { .type = IBV_FLOW_SPEC_ETH, .size = sizeof(rule.eth),
			 .val.ether_type = htons(0x0800), .mask.ether_type = 0xffff },
		.ipv4 = { .type = IBV_FLOW_SPEC_IPV4, .size = sizeof(rule.ipv4),
			  .val.dst_ip = address.s_addr, .mask.dst_ip = 0xffffffff },
		.udp = { .type = IBV_FLOW_SPEC_UDP, .size = sizeof(rule.udp),
			 .val.dst_port = htons(PORT), .mask.dst_port = 0xffff },
		.count = { .type = IBV_FLOW_SPEC_ACTION_COUNT, .size = sizeof(rule.count), .counters = counters },
	};
	struct ibv_flow *flow = ibv_create_flow(qp, (struct ibv_flow_attr *)&rule);

	CHECK(flow);
	send_datagrams(argv[3], address);
	for (int i = 0; i < RECEIVES; i++) {
		struct ibv_wc wc = ends_in(&queue, IBV_WC_SUCCESS);

		CHECK(wc.byte_len == FRAME);
	}
	uint64_t counted[2];

	CHECK(!ibv_read_counters(counters, counted, 2, 0));
	if (counted[0] != RECEIVES * FRAME || counted[1] != RECEIVES) {
		fprintf(stderr, "%lu bytes in %lu packets\n", counted[0], counted[1]);
		return 1;
	}
	CHECK(!ibv_destroy_flow(flow) && !ibv_destroy_counters(counters) && !ibv_destroy_qp(qp));
	CHECK(!ibv_destroy_cq(queue.cq));
	printf("counted each\n");
	return 0;
}
