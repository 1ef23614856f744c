//! Declarations of programs outside of headers: cut out of the source, as including the file would need all others.

use std::fs;
use std::path::Path;

/// A file, and words that select the needed declarations: those that contain one of them.
type Cut = (&'static str, &'static [&'static str]);

/// In the kernel's `drivers`.
pub const OF_DRIVERS: &[Cut] = &[
    ("fwctl/mlx5/main.c", &["MLX5_CMD_OP_QUERY_DRIVER_VERSION ="]),
    ("net/ethernet/mellanox/mlx5/core/cmd.c", &["struct mlx5_ifc_", "MLX5_CMD_DELIVERY_STAT_OK\t"]),
    ("net/ethernet/mellanox/mlx5/core/fw.c", &["MCQI_INFO_TYPE_VERSION\t"]),
    ("net/ethernet/mellanox/mlx5/core/diag/fw_tracer.h", &["struct mlx5_ifc_"]),
    ("net/ethernet/mellanox/mlx5/core/en_accel/ktls_txrx.c", &["MLX5E_STATIC_PARAMS_CONTEXT_TLS_1_2"]),
    ("net/ethernet/mellanox/mlx5/core/en_accel/ktls_utils.h", &["MLX5E_TLS_PROGRESS_PARAMS_"]),
    (
        "net/ethernet/mellanox/mlx5/core/lib/aso.h",
        &["struct mlx5_wqe_aso_ctrl_seg {", "enum {", "define ASO_CTRL_READ_EN"],
    ),
    ("net/ethernet/mellanox/mlx5/core/lib/events.h", &["MLX5_MODULE_"]),
    ("net/ethernet/mellanox/mlx5/core/lib/nv_param.c", &["struct mlx5_ifc_"]),
    ("net/ethernet/mellanox/mlx5/core/sf/mlx5_ifc_vhca_event.h", &["struct mlx5_ifc_"]),
    (
        "net/ethernet/mellanox/mlx5/core/steering/hws/prm.h",
        &["struct mlx5_ifc_", "enum mlx5_ifc_", "MLX5_MODIFICATION_TYPE_SET", "MLX5_MAX_ACTIONS_DATA_IN_HEADER_MODIFY"],
    ),
    (
        "net/ethernet/mellanox/mlx5/core/steering/hws/send.h",
        &[
            "struct mlx5hws_wqe_gta_ctrl_seg {",
            "struct mlx5hws_wqe_gta_data_seg_ste {",
            "enum mlx5hws_wqe_gta_opmod {",
            "enum mlx5hws_wqe_gta_opcode {",
        ],
    ),
    ("infiniband/core/cm_msgs.h", &["enum cm_msg_response {", "define IB_CM_CLASS_VERSION"]),
    ("infiniband/core/cma.c", &["union cma_ip_addr {", "struct cma_hdr {"]),
    ("infiniband/hw/mlx5/cong.c", &["enum mlx5_ib_cong_node_type"]),
    ("infiniband/hw/mlx5/wr.c", &["static u8 bs_selector("]),
];

/// In rdma-core's `providers/mlx5`.
pub const OF_PROVIDER: &[Cut] =
    &[("cq.c", &["uint8_t get_cqe_l3_hdr_type("]), ("qp.c", &["uint8_t bs_to_bs_selector("])];

/// In the kernel's headers: what InfiniBand headers need of verbs.
pub const OF_VERBS: &[Cut] = &[("rdma/ib_verbs.h", &["union ib_gid {", "struct ib_grh {", "define IB_QPN_MASK"])];

/// In the kernel's headers: management datagrams.
pub const OF_MANAGEMENT: &[Cut] =
    &[("rdma/ib_mad.h", &["struct ib_mad_hdr {", "define IB_MGMT_CLASS_", "define IB_MGMT_METHOD_"])];

/// In the kernel's headers: the communication manager.
pub const OF_CM: &[Cut] = &[
    ("rdma/ib_cm.h", &["enum ib_cm_rej_reason {", "enum ib_cm_sidr_status {", "define CM_"]),
    ("uapi/rdma/rdma_user_cm.h", &["enum rdma_ucm_port_space {"]),
];

/// The declarations that `cuts` selects in the files of `folder`.
pub fn cut(folder: &Path, cuts: &[Cut]) -> String {
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let cut = |(name, words): &Cut| {
        let text = read(name);
        let found: Vec<_> = declarations(&text).filter(|found| words.iter().any(|word| found.contains(word))).collect();
        assert!(!found.is_empty(), "{name} has none of {words:?}");
        found.join("\n")
    };
    cuts.iter().map(cut).collect::<Vec<_>>().join("\n")
}

/// Declarations from the left margin to the closing brace there; and `#define`d numbers.
fn declarations(text: &str) -> impl Iterator<Item = String> {
    const STARTS: [&str; 5] = ["struct ", "union ", "enum ", "static ", "#define "];
    let mut lines = text.lines();
    std::iter::from_fn(move || {
        loop {
            let first = lines.by_ref().find(|line| STARTS.iter().any(|start| line.starts_with(start)))?;
            let mut found = first.to_owned();
            if first.starts_with('#') {
                return Some(found);
            }
            // A function's brace stands on a line of its own.
            let mut open = first.ends_with('{');
            for line in lines.by_ref() {
                found = found + "\n" + line;
                open |= line.ends_with('{');
                if !open || line.starts_with('}') {
                    break;
                }
            }
            if open {
                return Some(found);
            }
        }
    })
}

#[test]
fn declarations_are_cut_out_whole() {
    let text = "#define N 1\nstruct a;\nint f(void)\n{\n}\nenum {\n\tA,\n};\nstruct a b;\n\nstatic inline int g(struct a *a)\n{\n\treturn 1;\n}\n";
    let found: Vec<_> = declarations(text).collect();
    assert_eq!(found, ["#define N 1", "enum {\n\tA,\n};", "static inline int g(struct a *a)\n{\n\treturn 1;\n}"]);
}
