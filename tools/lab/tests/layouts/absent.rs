//! What the newest kernel's headers have and mlx5-prm leaves out, and why. A row that has become needless is told.
//!
//! A name that ends in `*` stands for all that begin alike.

use crate::unjudged::Row;

/// Structures, and `structure.member`s, of `mlx5_ifc.h`.
pub const ABSENT: &[Row] = &[
    ("cmd_if_box.next_pointer_*", ADDRESS),
    ("cmd_queue_entry.input_mailbox_pointer_*", ADDRESS),
    ("cmd_queue_entry.output_mailbox_pointer_*", ADDRESS),
    ("mcam_access_reg.regs_*", SPARE),
    ("pcam_regs_5000_to_507f.port_access_reg_cap_mask_*", SPARE),
    ("pcam_enhanced_features.resereved_at_54", "reserved, misspelt"),
];
const ADDRESS: &str = "one address of 64 bits here, as in device.h";
const SPARE: &str = "bits of registers that have no name";

/// Enumerators that begin as the names of an enumeration of ours do.
pub const UNNAMED: &[Row] = &[
    ("CQE_RSS_HTYPE_IP", MASK),
    ("CQE_RSS_HTYPE_L4", MASK),
    ("CQE_RSS_RESERVED", "reserved"),
    ("MLX5_CAP_NUM", END),
    ("MLX5_CAP_RESERVED_*", "reserved"),
    ("MLX5_CMD_OP_GENERAL_*", END),
    ("MLX5_CMD_OP_MAX", END),
    ("MLX5_CMD_OP_MOD_UPDATE_HEADER_MODIFY_ARGUMENT", "an op_mod"),
    ("MLX5_CQE_COMPRESS_LAYOUT_*", "of a capability, not of a CQE"),
    ("MLX5_CQE_OPCODE_*", "of the InfiniBand cards before mlx5"),
    ("MLX5_CQE_OWNER_MASK", MASK),
    ("MLX5_CQE_SYND_FLUSHED_IN_ERROR", "the same as MLX5_CQE_SYNDROME_WR_FLUSH_ERR"),
    ("MLX5_EVENT_TYPE_CODING_*", "the same events under other names"),
    ("MLX5_EVENT_TYPE_MAX", END),
    ("MLX5_EVENT_TYPE_NOTIFY_ANY", KERNEL),
    ("MLX5_INITIAL_SEG_NIC_INTERFACE_SUPPORTED_*", "bits of nic_interface_supported"),
    ("MLX5_MCAM_REGS_NUM", END),
    ("MLX5_PORT_CHANGE_SUBTYPE_*", "of an event, though they begin as the states of a port"),
    ("MLX5_QPC_MTU_RAW_ETHERNET_QP", "no path MTU"),
    ("MLX5_QPC_PM_STATE_RESERVED", "reserved"),
    ("MLX5_QP_STATE_BAD", KERNEL),
    ("MLX5_QP_ST_MAX", END),
    ("MLX5_ROCE_L3_TYPE_IPV*", "bits of a capability"),
];
const MASK: &str = "a mask, whose field is judged";
const END: &str = "where a list ends, no member of it";
const KERNEL: &str = "the kernel's own, on no wire";
