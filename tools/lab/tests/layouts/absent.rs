//! What the newest kernel's headers have and mlx5-prm omits, and why. A row that is no longer needed is an error.
//!
//! A name ending in `*` stands for all names with that prefix.

use crate::unjudged::Row;

/// The kernel for which these lists were made. Additions of newer kernels are printed, and are no error.
pub const COMPLETE_FOR: &str = "7.3";

/// Structures, and `structure.member`s, of `mlx5_ifc.h` and of the drivers.
pub const ABSENT: &[Row] = &[
    // the same under other names
    ("cmd_if_box.next_pointer_*", ADDRESS),
    ("cmd_queue_entry.input_mailbox_pointer_*", ADDRESS),
    ("cmd_queue_entry.output_mailbox_pointer_*", ADDRESS),
    ("alias_context.access_key_raw", WORDS),
    ("allow_other_vhca_access_in.access_key_raw", WORDS),
    ("cmd_in.command", REST),
    ("cmd_out.command_output", REST),
    ("create_definer_in", SAME),
    ("definer", SAME),
    ("dest_format", "one arm of what a flow's destination is, whose arms are judged"),
    ("match_definer.match_mask_format", "the match mask, as a definer's format reads it"),
    ("modify_field_select", NUMBER),
    ("modify_field_select_resize_field_select_auto", NUMBER),
    ("qp_pas_or_qpc_ext_and_pas", "the tail of CREATE_QP's input, of two kinds"),
    ("qpc_extension_and_pas_list_in", "the tail of CREATE_QP's input, of two kinds"),
    ("resize_field_select", NUMBER),
    ("rqtc.rq_vhca", "the list rq_num, of which rq_vhca_id_format tells"),
    ("uint64", "a number of 64 bits here"),
    // reserved
    ("mcam_access_reg.regs_*", SPARE),
    ("pcam_regs_5000_to_507f.port_access_reg_cap_mask_*", SPARE),
    ("pcam_enhanced_features.resereved_at_54", "reserved, misspelt"),
    ("dropped_packet_logged", "an event without any field"),
    ("event_auto", "an event's data, one layout a type: Eqe.event_data tells which"),
    ("qpdpm_dscp_reg", "one entry of QPDPM, 16 bits long, which no layout can be"),
];
const REST: &str = "the rest of any command, each of which is judged by itself";
const SAME: &str = "match_definer, as hardware steering in the kernel's driver has it";
const ADDRESS: &str = "one address of 64 bits here, as in device.h";
const WORDS: &str = "the same bytes as access_key, without its words";
const NUMBER: &str = "a dword, whose bits differ by command";
const SPARE: &str = "bits of registers that have no name";

/// Enumerators with the prefix of one of our enumerations.
pub const UNNAMED: &[Row] = &[
    ("CQE_RSS_HTYPE_IP", MASK),
    ("CQE_RSS_HTYPE_L4", MASK),
    ("CQE_RSS_RESERVED", "reserved"),
    ("MLX5_CAP_NUM", END),
    ("MLX5_CAP_RESERVED_*", "reserved"),
    ("MLX5_CMD_OP_GENERAL_*", END),
    ("MLX5_CMD_OP_MAX", END),
    ("MLX5_CMD_OP_MOD_UPDATE_HEADER_MODIFY_ARGUMENT", "an op_mod"),
    ("MLX5_CQE_OPCODE_*", "of the InfiniBand cards before mlx5"),
    ("MLX5_CQE_OWNER_MASK", MASK),
    ("MLX5_CQE_SYND_FLUSHED_IN_ERROR", "the same as MLX5_CQE_SYNDROME_WR_FLUSH_ERR"),
    ("MLX5_EVENT_TYPE_MAX", END),
    ("MLX5_EVENT_TYPE_NOTIFY_ANY", KERNEL),
    ("MLX5_INITIAL_SEG_NIC_INTERFACE_SUPPORTED_*", "bits of nic_interface_supported"),
    ("MLX5_MCAM_REGS_NUM", END),
    ("MLX5_QPC_MTU_RAW_ETHERNET_QP", "no path MTU"),
    ("MLX5_QPC_PM_STATE_RESERVED", "reserved"),
    ("MLX5_QP_STATE_BAD", KERNEL),
    ("MLX5_QP_ST_MAX", END),
    ("MLX5_ROCE_L3_TYPE_IPV*", "bits of a capability"),
];
const MASK: &str = "a mask, whose field is judged";
const END: &str = "where a list ends, no member of it";
const KERNEL: &str = "the kernel's own, on no wire";
