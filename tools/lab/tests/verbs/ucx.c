/*
 * Two workers of UCX, which has its own code for the card's queues (rc_mlx5, dc_mlx5, ud_mlx5): messages, and with
 * `rma` puts, gets and atomics by the card, contents compared. `UCX_TLS=dc_x UCX_NET_DEVICES=mlx5_0:1 ucx [rma]`; exits
 * with 0 on success.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucp/api/ucp.h>

#define PATIENCE 120
#define LARGEST (1 << 20)
/* Around what is written, which must not change. */
#define MARGIN 64

enum { NEAR, FAR };

static ucp_context_h context;
static struct side {
	ucp_worker_h worker;
	ucp_ep_h ep;
	ucp_mem_h handle;
	/* The other side's memory. */
	ucp_rkey_h remote;
	uint8_t *memory;
} sides[2];

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "failed: %s, line %d\n", #what, __LINE__); exit(1); } } while (0)
#define OK(call) do { \
	ucs_status_t status = (call); \
	if (status != UCS_OK) { \
		fprintf(stderr, "%s: %s, line %d\n", #call, ucs_status_string(status), __LINE__); \
		exit(1); \
	} } while (0)

static void progress(void)
{
	ucp_worker_progress(sides[NEAR].worker);
	ucp_worker_progress(sides[FAR].worker);
}

static void wait_for(ucs_status_ptr_t request)
{
	time_t end = time(NULL) + PATIENCE;

	if (!UCS_PTR_IS_PTR(request)) {
		OK(UCS_PTR_STATUS(request));
		return;
	}
	while (ucp_request_check_status(request) == UCS_INPROGRESS) {
		CHECK(time(NULL) < end);
		progress();
	}
	OK(ucp_request_check_status(request));
	ucp_request_free(request);
}

/* Waits until all that an endpoint has started is done at the other side, too. */
static void flush(struct side *side)
{
	ucp_request_param_t param = { 0 };

	wait_for(ucp_ep_flush_nbx(side->ep, &param));
}

/* No data in CQEs: the card does not announce that (sctr_data_cqe), and UCX does not ask. */
static void leave_cqes_alone(void)
{
	static const char *const names[] = {
		"UCX_RC_MLX5_RX_INLINE", "UCX_RC_MLX5_TX_INLINE_RESP", "UCX_DC_MLX5_RX_INLINE", "UCX_DC_MLX5_TX_INLINE_RESP",
	};

	for (unsigned i = 0; i < sizeof(names) / sizeof(*names); i++)
		CHECK(!setenv(names[i], "0", 1));
	/* Each transport knows its own. */
	CHECK(!setenv("UCX_WARN_UNUSED_ENV_VARS", "n", 1));
}

static void set_up(int rma)
{
	ucp_params_t params = { .field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG };
	ucp_config_t *config;

	if (rma)
		params.features |= UCP_FEATURE_RMA | UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64;
	OK(ucp_config_read(NULL, NULL, &config));
	OK(ucp_init(&params, config, &context));
	ucp_config_release(config);
	for (int i = NEAR; i <= FAR; i++) {
		ucp_worker_params_t worker = { 0 };
		ucp_mem_map_params_t map = {
			.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
			.length = LARGEST + 2 * MARGIN,
		};

		OK(ucp_worker_create(context, &worker, &sides[i].worker));
		CHECK(!posix_memalign((void **)&sides[i].memory, 4096, map.length));
		map.address = sides[i].memory;
		OK(ucp_mem_map(context, &map, &sides[i].handle));
	}
}

static void connect_sides(int rma)
{
	for (int i = NEAR; i <= FAR; i++) {
		struct side *side = &sides[i], *other = &sides[!i];
		ucp_ep_params_t params = { .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS };
		ucp_address_t *address;
		size_t length;
		void *packed;

		OK(ucp_worker_get_address(other->worker, &address, &length));
		params.address = address;
		OK(ucp_ep_create(side->worker, &params, &side->ep));
		ucp_worker_release_address(other->worker, address);
		if (!rma)
			continue;
		OK(ucp_rkey_pack(context, other->handle, &packed, &length));
		OK(ucp_ep_rkey_unpack(side->ep, packed, &side->remote));
		ucp_rkey_buffer_release(packed);
	}
	flush(&sides[NEAR]);
	flush(&sides[FAR]);
	/* Which of UCX's transports does what. */
	ucp_ep_print_info(sides[NEAR].ep, stdout);
}

static void fill(struct side *side, size_t length, int seed)
{
	for (size_t i = 0; i < length; i++)
		side->memory[MARGIN + i] = i * 7 + (i >> 8) + seed;
	memset(side->memory, 0x11, MARGIN);
	memset(side->memory + MARGIN + length, 0x22, MARGIN);
}

/* Both sides hold the same after operation number `seed`. */
static void compare(const char *what, size_t length, int seed)
{
	const uint8_t *near = sides[NEAR].memory, *far = sides[FAR].memory;

	for (size_t i = 0; i < length + 2 * MARGIN; i++)
		if (near[i] != far[i]) {
			fprintf(stderr, "%s of %zu bytes, number %d: byte %zd is %#x at one side, %#x at the other\n",
				what, length, seed, (ssize_t)i - MARGIN, near[i], far[i]);
			exit(1);
		}
}

static const size_t lengths[] = { 1, 8, 60, 200, 1000, 4096, 8192, 20000, 70000, LARGEST };
#define LENGTHS (sizeof(lengths) / sizeof(*lengths))

static void send_message(struct side *from, struct side *to, size_t length, int seed)
{
	ucp_request_param_t param = { 0 };
	ucs_status_ptr_t request;

	fill(to, length, ~seed);
	fill(from, length, seed);
	request = ucp_tag_recv_nbx(to->worker, to->memory + MARGIN, length, seed, UINT64_MAX, &param);
	wait_for(ucp_tag_send_nbx(from->ep, from->memory + MARGIN, length, seed, &param));
	wait_for(request);
	compare("message", length, seed);
}

static void move(struct side *here, struct side *there, int puts, size_t length, int seed)
{
	uint64_t remote = (uintptr_t)there->memory + MARGIN;
	ucp_request_param_t param = { 0 };

	fill(here, length, puts ? seed : ~seed);
	fill(there, length, puts ? ~seed : seed);
	if (puts)
		wait_for(ucp_put_nbx(here->ep, here->memory + MARGIN, length, remote, here->remote, &param));
	else
		wait_for(ucp_get_nbx(here->ep, here->memory + MARGIN, length, remote, here->remote, &param));
	flush(here);
	compare(puts ? "put" : "get", length, seed);
}

static uint64_t result_of(ucp_atomic_op_t operation, uint64_t found, uint64_t operand, uint64_t swap)
{
	switch (operation) {
	case UCP_ATOMIC_OP_ADD:
		return found + operand;
	case UCP_ATOMIC_OP_SWAP:
		return operand;
	case UCP_ATOMIC_OP_CSWAP:
		return found == operand ? swap : found;
	case UCP_ATOMIC_OP_AND:
		return found & operand;
	case UCP_ATOMIC_OP_OR:
		return found | operand;
	default:
		return found ^ operand;
	}
}

/* One atomic of `width` bytes on a number between others; `fetches` for its old value. */
static void one_atomic(ucp_atomic_op_t operation, size_t width, int fetches, uint64_t found, uint64_t operand)
{
	const uint64_t swap = 0x0123456789abcdef, around = 0xa5a5a5a5a5a5a5a5;
	struct side *here = &sides[NEAR], *there = &sides[FAR];
	uint8_t *place = there->memory + MARGIN + 16, expected[40];
	uint64_t reply = swap, result = result_of(operation, found, operand, swap);
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | (fetches ? UCP_OP_ATTR_FIELD_REPLY_BUFFER : 0),
		.datatype = ucp_dt_make_contig(width), .reply_buffer = &reply,
	};

	memset(expected, around & 0xff, sizeof(expected));
	memcpy(there->memory + MARGIN, expected, sizeof(expected));
	/* On a little-endian machine a shorter number is the first bytes of a longer one. */
	memcpy(place, &found, width);
	wait_for(ucp_atomic_op_nbx(here->ep, operation, &operand, 1, (uintptr_t)place, here->remote, &param));
	flush(here);
	memcpy(expected + 16, &result, width);
	CHECK(!memcmp(there->memory + MARGIN, expected, sizeof(expected)));
	if (fetches)
		CHECK(!memcmp(&reply, &found, width));
}

static void atomics(size_t width)
{
	/* A carry out of the lower half and out of the number; equal and unequal for a compare. */
	static const uint64_t numbers[][2] = {
		{ 0x00000001ffffffff, 0x0000000000000001 }, { 0xfedcba9876543210, 0x0f0f0f0f0f0f0f0f },
		{ 0xffffffffffffffff, 0xffffffffffffffff }, { 0x8000000080000000, 0x8000000080000000 },
	};

	for (unsigned i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
		uint64_t mask = width == 8 ? UINT64_MAX : UINT32_MAX;
		uint64_t found = numbers[i][0] & mask, operand = numbers[i][1] & mask;

		for (int operation = UCP_ATOMIC_OP_ADD; operation < UCP_ATOMIC_OP_LAST; operation++) {
			one_atomic(operation, width, 1, found, operand);
			if (operation != UCP_ATOMIC_OP_SWAP && operation != UCP_ATOMIC_OP_CSWAP)
				one_atomic(operation, width, 0, found, operand);
		}
	}
}

static void close_all(int rma)
{
	ucp_request_param_t force = { 0 };

	for (int i = NEAR; i <= FAR; i++) {
		if (rma)
			ucp_rkey_destroy(sides[i].remote);
		wait_for(ucp_ep_close_nbx(sides[i].ep, &force));
	}
	for (int i = NEAR; i <= FAR; i++) {
		OK(ucp_mem_unmap(context, sides[i].handle));
		ucp_worker_destroy(sides[i].worker);
	}
	ucp_cleanup(context);
}

int main(int argc, char **argv)
{
	int rma = argc > 1 && !strcmp(argv[1], "rma"), seed = 1;

	leave_cqes_alone();
	set_up(rma);
	connect_sides(rma);
	for (unsigned i = 0; i < LENGTHS; i++) {
		send_message(&sides[NEAR], &sides[FAR], lengths[i], seed++);
		send_message(&sides[FAR], &sides[NEAR], lengths[i], seed++);
		for (int puts = 0; rma && puts < 2; puts++) {
			move(&sides[NEAR], &sides[FAR], puts, lengths[i], seed++);
			move(&sides[FAR], &sides[NEAR], puts, lengths[i], seed++);
		}
	}
	if (rma) {
		atomics(4);
		atomics(8);
	}
	close_all(rma);
	printf("UCX's contents are right\n");
	return 0;
}
