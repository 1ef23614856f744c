/*
 * The source port of a connection's packets, changed while it works: `source_port DEVICE GID-INDEX`; exits with 0 if
 * libmlx5 changes it, and the card tells it again.
 */
#include "ifc.h"
#include "pair.h"
#include <errno.h>
#include <infiniband/mlx5dv.h>

/* The port that the card has for `qp`. */
static unsigned int port_of(struct ibv_qp *qp)
{
	uint32_t in[DEVX_ST_SZ_DW(query_qp_in)] = {}, out[DEVX_ST_SZ_DW(query_qp_out)] = {};

	DEVX_SET(query_qp_in, in, opcode, MLX5_CMD_OP_QUERY_QP);
	DEVX_SET(query_qp_in, in, qpn, qp->qp_num);
	CHECK(!mlx5dv_devx_qp_query(qp, in, sizeof(in), out, sizeof(out)));
	return DEVX_GET(query_qp_out, out, qpc.primary_address_path.udp_sport);
}

static void write_once(struct pair *pair)
{
	post(pair->qp[0], IBV_WR_RDMA_WRITE, mr->rkey);
	ends_in(pair, IBV_WC_SUCCESS);
}

int main(int argc, char **argv)
{
	static const uint16_t ports[] = { 0xc123, 0xffff, 0xc000 };

	open_device(argc, argv, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct pair pair = new_pair(15, NULL);
	unsigned int others = port_of(pair.qp[1]);

	write_once(&pair);
	for (unsigned int i = 0; i < sizeof(ports) / sizeof(*ports); i++) {
		CHECK(!mlx5dv_modify_qp_udp_sport(pair.qp[0], ports[i]));
		CHECK(port_of(pair.qp[0]) == ports[i] && port_of(pair.qp[1]) == others);
		write_once(&pair);
	}
	/* It is in RTR. */
	CHECK(mlx5dv_modify_qp_udp_sport(pair.qp[1], ports[0]) == EOPNOTSUPP);
	printf("libmlx5 changed the source port three times\n");
	end(&pair);
	return 0;
}
