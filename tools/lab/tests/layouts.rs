//! The judge of mlx5-prm: every layout and every enumeration is compared with what the C compiler makes of the Linux
//! kernel's headers and of rdma-core's `mlx5dv.h`.
//!
//! A layout whose `c_name` is a `mlx5_ifc_*_bits` structure is compared field by field, by name. [`COUNTERPARTS`] says
//! which member of which other structure, and which bits of it, a field is. What no header has is on [`UNJUDGED`], with
//! the reason; a row there that has become needless fails too.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use mlx5_lab::Headers;
use mlx5_prm::layout::Info;
use mlx5_prm::registry::{LAYOUTS, VALUES};

/// Whose header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Header {
    /// The kernel's `mlx5_ifc.h`, `device.h`, `qp.h` and `cq.h`.
    Kernel,
    /// rdma-core's `mlx5dv.h`.
    Verbs,
}
use Header::{Kernel, Verbs};

impl Header {
    const BOTH: [Header; 2] = [Kernel, Verbs];

    fn includes(self) -> &'static str {
        match self {
            Kernel => {
                "#include <linux/mlx5/device.h>\n#include <linux/mlx5/qp.h>\n#include <linux/mlx5/cq.h>\n\
                 #include <linux/mlx5/mlx5_ifc.h>\n"
            }
            Verbs => "#include <stddef.h>\n#include <stdio.h>\n#include <infiniband/mlx5dv.h>\n",
        }
    }
}

/// A C structure that says where fields of a layout lie.
struct Counterpart {
    layout: &'static str,
    header: Header,
    c: &'static str,
    /// Whether the whole size is the layout's too.
    sized: bool,
    /// Field; member; the bits of the member it is, as a C expression, or empty for all of them.
    fields: &'static [(&'static str, &'static str, &'static str)],
}

const COUNTERPARTS: &[Counterpart] = &[
    // WQE segments
    Counterpart {
        layout: "CtrlSeg",
        header: Kernel,
        c: "mlx5_wqe_ctrl_seg",
        sized: true,
        fields: &[
            ("opmod", "opmod_idx_opcode", "~(MLX5_WQE_CTRL_OPCODE_MASK | MLX5_WQE_CTRL_WQE_INDEX_MASK)"),
            ("wqe_index", "opmod_idx_opcode", "MLX5_WQE_CTRL_WQE_INDEX_MASK"),
            ("opcode", "opmod_idx_opcode", "MLX5_WQE_CTRL_OPCODE_MASK"),
            ("qp_or_sq", "qpn_ds", "MLX5_WQE_CTRL_QPN_MASK"),
            ("ds", "qpn_ds", "MLX5_WQE_CTRL_DS_MASK"),
            ("signature", "signature", ""),
            ("fm", "fm_ce_se", "MLX5_FENCE_MODE_STRONG_ORDERING | MLX5_FENCE_MODE_SMALL_AND_FENCE"),
            ("ce", "fm_ce_se", "MLX5_WQE_CTRL_CQ_UPDATE_AND_EQE"),
            ("se", "fm_ce_se", "MLX5_WQE_CTRL_SOLICITED"),
            ("imm", "imm", ""),
        ],
    },
    Counterpart {
        layout: "CtrlSeg",
        header: Verbs,
        c: "mlx5_wqe_ctrl_seg",
        sized: true,
        fields: &[
            ("signature", "signature", ""),
            ("fm", "fm_ce_se", "MLX5_WQE_CTRL_FENCE | MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE | 2 << 5"),
            ("se", "fm_ce_se", "MLX5_WQE_CTRL_SOLICITED"),
            ("imm", "imm", ""),
        ],
    },
    Counterpart {
        layout: "RaddrSeg",
        header: Kernel,
        c: "mlx5_wqe_raddr_seg",
        sized: true,
        fields: &[("raddr", "raddr", ""), ("rkey", "rkey", "")],
    },
    Counterpart {
        layout: "RaddrSeg",
        header: Verbs,
        c: "mlx5_wqe_raddr_seg",
        sized: true,
        fields: &[("raddr", "raddr", ""), ("rkey", "rkey", "")],
    },
    Counterpart {
        layout: "DataSeg",
        header: Kernel,
        c: "mlx5_wqe_data_seg",
        sized: true,
        fields: &[("byte_count", "byte_count", ""), ("lkey", "lkey", ""), ("addr", "addr", "")],
    },
    Counterpart {
        layout: "DataSeg",
        header: Verbs,
        c: "mlx5_wqe_data_seg",
        sized: true,
        fields: &[("byte_count", "byte_count", ""), ("lkey", "lkey", ""), ("addr", "addr", "")],
    },
    Counterpart {
        layout: "InlineSegHeader",
        header: Kernel,
        c: "mlx5_wqe_inline_seg",
        sized: true,
        fields: &[
            ("inline", "byte_count", "MLX5_INLINE_SEG"),
            ("byte_count", "byte_count", "MLX5_WQE_INLINE_SEG_BYTE_COUNT_MASK"),
        ],
    },
    Counterpart {
        layout: "InlineSegHeader",
        header: Verbs,
        c: "mlx5_wqe_inl_data_seg",
        sized: true,
        fields: &[("inline", "byte_count", "MLX5_INLINE_SEG")],
    },
    Counterpart {
        layout: "AtomicSeg",
        header: Kernel,
        c: "mlx5_wqe_atomic_seg",
        sized: true,
        fields: &[("swap_add", "swap_add", ""), ("compare", "compare", "")],
    },
    Counterpart {
        layout: "AtomicSeg",
        header: Verbs,
        c: "mlx5_wqe_atomic_seg",
        sized: true,
        fields: &[("swap_add", "swap_add", ""), ("compare", "compare", "")],
    },
    Counterpart {
        layout: "SrqNextSeg",
        header: Kernel,
        c: "mlx5_wqe_srq_next_seg",
        sized: true,
        fields: &[("next_wqe_index", "next_wqe_index", ""), ("signature", "signature", "")],
    },
    Counterpart {
        layout: "SrqNextSeg",
        header: Verbs,
        c: "mlx5_wqe_srq_next_seg",
        sized: true,
        fields: &[("next_wqe_index", "next_wqe_index", ""), ("signature", "signature", "")],
    },
    // CQEs. The headers name the dwords that hold a byte and a 24-bit number together after both.
    Counterpart {
        layout: "Cqe",
        header: Kernel,
        c: "mlx5_cqe64",
        sized: true,
        fields: &[
            ("wqe_id", "wqe_id", ""),
            ("rss_hash_result", "rss_hash_result", ""),
            ("rss_hash_type", "rss_hash_type", ""),
            ("ml_path", "ml_path", ""),
            ("check_sum", "check_sum", ""),
            ("slid", "slid", ""),
            ("flags", "flags_rqpn", "0xff000000"),
            ("rqpn", "flags_rqpn", "0x00ffffff"),
            ("hds_ip_ext", "hds_ip_ext", ""),
            ("l4_l3_hdr_type", "l4_l3_hdr_type", ""),
            ("vlan_info", "vlan_info", ""),
            ("lro_num_seg", "srqn", "0xff000000"),
            ("srqn", "srqn", "0x00ffffff"),
            ("immediate", "immediate", ""),
            ("byte_cnt", "byte_cnt", ""),
            ("send_wqe_opcode", "sop_drop_qpn", "0xff000000"),
            ("qpn", "sop_drop_qpn", "0x00ffffff"),
            ("wqe_counter", "wqe_counter", ""),
            ("signature", "signature", ""),
            ("opcode", "op_own", "READ_BY(struct mlx5_cqe64, op_own, get_cqe_opcode)"),
            ("cqe_format", "op_own", "READ_BY(struct mlx5_cqe64, op_own, mlx5_get_cqe_format)"),
            ("owner", "op_own", "MLX5_CQE_OWNER_MASK"),
        ],
    },
    Counterpart {
        layout: "Cqe",
        header: Verbs,
        c: "mlx5_cqe64",
        sized: true,
        fields: &[
            ("wqe_id", "wqe_id", ""),
            ("ml_path", "ml_path", ""),
            ("slid", "slid", ""),
            ("flags", "flags_rqpn", "0xff000000"),
            ("rqpn", "flags_rqpn", "0x00ffffff"),
            ("hds_ip_ext", "hds_ip_ext", ""),
            ("l4_l3_hdr_type", "l4_hdr_type_etc", ""),
            ("vlan_info", "vlan_info", ""),
            ("srqn", "srqn_uidx", "0x00ffffff"),
            ("immediate", "imm_inval_pkey", ""),
            ("byte_cnt", "byte_cnt", ""),
            ("timestamp", "timestamp", ""),
            ("send_wqe_opcode", "sop_drop_qpn", "0xff000000"),
            ("qpn", "sop_drop_qpn", "0x00ffffff"),
            ("wqe_counter", "wqe_counter", ""),
            ("signature", "signature", ""),
            ("opcode", "op_own", "READ_BY(struct mlx5_cqe64, op_own, mlx5dv_get_cqe_opcode)"),
            ("cqe_format", "op_own", "READ_BY(struct mlx5_cqe64, op_own, mlx5dv_get_cqe_format)"),
            ("se", "op_own", "READ_BY(struct mlx5_cqe64, op_own, mlx5dv_get_cqe_se)"),
            ("owner", "op_own", "READ_BY(struct mlx5_cqe64, op_own, mlx5dv_get_cqe_owner)"),
        ],
    },
    Counterpart { layout: "ErrorCqe", header: Kernel, c: "mlx5_err_cqe", sized: true, fields: ERROR_CQE },
    Counterpart { layout: "ErrorCqe", header: Verbs, c: "mlx5_err_cqe", sized: true, fields: ERROR_CQE },
    // EQEs: the kernel's structures, and the PRM's names in mlx5_ifc.h where ours are the kernel's
    Counterpart {
        layout: "Eqe",
        header: Kernel,
        c: "mlx5_eqe",
        sized: true,
        fields: &[
            ("event_type", "type", ""),
            ("event_sub_type", "sub_type", ""),
            ("event_data", "data", ""),
            ("signature", "signature", ""),
            ("owner", "owner", "1"),
        ],
    },
    Counterpart {
        layout: "CompletionEvent",
        header: Kernel,
        c: "mlx5_ifc_comp_event_bits",
        sized: true,
        fields: &[("cqn", "cq_number", "")],
    },
    Counterpart {
        layout: "QpEvent",
        header: Kernel,
        c: "mlx5_ifc_qp_events_bits",
        sized: true,
        fields: &[("type", "type", ""), ("qp_srq_n", "qpn_rqn_sqn", "")],
    },
    Counterpart {
        layout: "PortStateEvent",
        header: Kernel,
        c: "mlx5_ifc_port_state_change_event_bits",
        sized: true,
        fields: &[("port", "port_num", "")],
    },
    Counterpart {
        layout: "CommandEvent",
        header: Kernel,
        c: "mlx5_ifc_cmd_inter_comp_event_bits",
        sized: true,
        fields: &[("vector", "command_completion_vector", "")],
    },
    Counterpart {
        layout: "PageRequestEvent",
        header: Kernel,
        c: "mlx5_ifc_pages_req_event_bits",
        sized: true,
        fields: &[("func_id", "function_id", ""), ("num_pages", "num_pages", "")],
    },
    Counterpart {
        layout: "PageRequestEvent",
        header: Kernel,
        c: "mlx5_eqe_page_req",
        sized: true,
        fields: &[("ec_function", "ec_function", ""), ("func_id", "func_id", ""), ("num_pages", "num_pages", "")],
    },
    Counterpart {
        layout: "CompletionEvent",
        header: Kernel,
        c: "mlx5_eqe_comp",
        sized: true,
        fields: &[("cqn", "cqn", "0x00ffffff")],
    },
    Counterpart {
        layout: "QpEvent",
        header: Kernel,
        c: "mlx5_eqe_qp_srq",
        sized: true,
        fields: &[("type", "type", ""), ("qp_srq_n", "qp_srq_n", "0x00ffffff")],
    },
    Counterpart {
        layout: "CommandEvent",
        header: Kernel,
        c: "mlx5_eqe_cmd",
        sized: true,
        fields: &[("vector", "vector", "")],
    },
    Counterpart {
        layout: "PortStateEvent",
        header: Kernel,
        c: "mlx5_eqe_port_state",
        sized: false,
        fields: &[("port", "port", "0xf0")],
    },
    // command queue: mlx5_ifc.h splits the pointers, device.h does not
    Counterpart {
        layout: "CommandQueueEntry",
        header: Kernel,
        c: "mlx5_ifc_cmd_queue_entry_bits",
        sized: true,
        fields: &[
            ("type", "type", ""),
            ("input_length", "input_length", ""),
            ("command_input_inline_data", "command_input_inline_data", ""),
            ("command_output_inline_data", "command_output_inline_data", ""),
            ("output_length", "output_length", ""),
            ("token", "token", ""),
            ("signature", "signature", ""),
            ("status", "status", ""),
            ("ownership", "ownership", ""),
        ],
    },
    Counterpart {
        layout: "CommandQueueEntry",
        header: Kernel,
        c: "mlx5_cmd_layout",
        sized: true,
        fields: &[
            ("type", "type", ""),
            ("input_length", "inlen", ""),
            ("input_mailbox_pointer", "in_ptr", ""),
            ("command_input_inline_data", "in", ""),
            ("command_output_inline_data", "out", ""),
            ("output_mailbox_pointer", "out_ptr", ""),
            ("output_length", "outlen", ""),
            ("token", "token", ""),
            ("signature", "sig", ""),
        ],
    },
    Counterpart {
        layout: "MailboxBlock",
        header: Kernel,
        c: "mlx5_ifc_cmd_if_box_bits",
        sized: true,
        fields: &[
            ("mailbox_data", "mailbox_data", ""),
            ("block_number", "block_number", ""),
            ("token", "token", ""),
            ("ctrl_signature", "ctrl_signature", ""),
            ("signature", "signature", ""),
        ],
    },
    Counterpart {
        layout: "MailboxBlock",
        header: Kernel,
        c: "mlx5_cmd_prot_block",
        sized: true,
        fields: &[
            ("mailbox_data", "data", ""),
            ("next_pointer", "next", ""),
            ("block_number", "block_num", ""),
            ("token", "token", ""),
            ("ctrl_signature", "ctrl_sig", ""),
            ("signature", "sig", ""),
        ],
    },
    // init segment: mlx5_ifc.h has the small fields, device.h the late ones
    Counterpart {
        layout: "InitSegment",
        header: Kernel,
        c: "mlx5_ifc_initial_seg_bits",
        sized: false,
        fields: &[
            ("fw_rev_minor", "fw_rev_minor", ""),
            ("fw_rev_major", "fw_rev_major", ""),
            ("cmd_interface_rev", "cmd_interface_rev", ""),
            ("fw_rev_subminor", "fw_rev_subminor", ""),
            ("cmdq_phy_addr_63_32", "cmdq_phy_addr_63_32", ""),
            ("cmdq_phy_addr_31_12", "cmdq_phy_addr_31_12", ""),
            ("nic_interface", "nic_interface", ""),
            ("log_cmdq_size", "log_cmdq_size", ""),
            ("log_cmdq_stride", "log_cmdq_stride", ""),
            ("command_doorbell_vector", "command_doorbell_vector", ""),
            ("initializing", "initializing", ""),
            ("nic_interface_supported", "nic_interface_supported", ""),
            ("embedded_cpu", "embedded_cpu", ""),
            ("health_buffer", "health_buffer", ""),
            ("clear_int", "clear_int", ""),
            ("health_syndrome", "health_syndrome", ""),
            ("health_counter", "health_counter", ""),
        ],
    },
    Counterpart {
        layout: "InitSegment",
        header: Kernel,
        c: "mlx5_init_seg",
        sized: true,
        fields: &[
            ("cmdq_phy_addr_63_32", "cmdq_addr_h", ""),
            ("command_doorbell_vector", "cmd_dbell", ""),
            ("health_buffer", "health", ""),
            ("cmd_exec_to", "cmd_exec_to", ""),
            ("cmd_q_init_to", "cmd_q_init_to", ""),
            ("internal_timer_h", "internal_timer_h", ""),
            ("internal_timer_l", "internal_timer_l", ""),
            ("real_time_h", "real_time_h", ""),
            ("real_time_l", "real_time_l", ""),
            ("ieee1588_clk", "ieee1588_clk", ""),
            ("ieee1588_clk_type", "ieee1588_clk_type", ""),
            ("clr_intx", "clr_intx", ""),
        ],
    },
    Counterpart {
        layout: "HealthBuffer",
        header: Kernel,
        c: "health_buffer",
        sized: true,
        fields: &[
            ("assert_var", "assert_var", ""),
            ("assert_existptr", "assert_exit_ptr", ""),
            ("assert_callra", "assert_callra", ""),
            ("time", "time", ""),
            ("fw_version", "fw_ver", ""),
            ("hw_id", "hw_id", ""),
            ("rfr", "rfr_severity", "1 << MLX5_RFR_BIT_OFFSET"),
            ("irisc_index", "irisc_index", ""),
            ("synd", "synd", ""),
            ("ext_synd", "ext_synd", ""),
        ],
    },
];

const ERROR_CQE: &[(&str, &str, &str)] = &[
    ("srqn", "srqn", "0x00ffffff"),
    ("vendor_error_syndrome", "vendor_err_synd", ""),
    ("syndrome", "syndrome", ""),
    ("send_wqe_opcode", "s_wqe_opcode_qpn", "0xff000000"),
    ("qpn", "s_wqe_opcode_qpn", "0x00ffffff"),
    ("wqe_counter", "wqe_counter", ""),
    ("signature", "signature", ""),
    ("opcode", "op_own", "0xf0"),
    ("owner", "op_own", "MLX5_CQE_OWNER_MASK"),
];

/// Layout or `layout.field` without a counterpart in the headers, and why.
const UNJUDGED: &[(&str, &str)] = &[
    ("InputHeader", "what all inputs have in common; every command is judged by itself"),
    ("OutputHeader", "what all outputs have in common; every command is judged by itself"),
    ("CreateCqIn.cq_umem_offset", UMEM),
    ("CreateCqIn.cq_umem_id", UMEM),
    ("ModifyCqIn.cq_umem_offset", UMEM),
    ("ModifyCqIn.cq_umem_id", UMEM),
    ("CreateMkeyIn.mkey_umem_id", UMEM),
    ("CreateMkeyIn.mkey_umem_offset", UMEM),
    ("Cqc.dbr_umem_id", UMEM),
    ("Qpc.dbr_umem_id", UMEM),
    ("ErrorCqe.hw_error_syndrome", "reserved in both headers; rdma-core's providers/mlx5 names it"),
    ("ErrorCqe.hw_syndrome_type", "reserved in both headers; rdma-core's providers/mlx5 names it"),
    ("HostEndianness", "a structure inside the kernel's main.c"),
    ("NodeDesc", "64 plain bytes in the kernel's mlx5_ib, which declares no structure for them"),
    ("HealthBuffer.valid", "a mask in the kernel's health.c, not in a header"),
    ("HealthBuffer.severity", "a mask in the kernel's health.c, not in a header"),
];
const UMEM: &str = "reserved in the kernel's header, which has no umems of its own; in rdma-core's and DPDK's copy";

/// How an enumeration is named in C: the constant is `prefix` and the PRM name, but for the exceptions.
struct Constants {
    values: &'static str,
    header: Header,
    prefix: &'static str,
    /// PRM name; C expression, or empty where the header has none.
    otherwise: &'static [(&'static str, &'static str)],
}

const CONSTANTS: &[Constants] = &[
    Constants {
        values: "Opcode",
        header: Kernel,
        prefix: "MLX5_CMD_OP_",
        otherwise: &[("QUERY_VUID", "MLX5_CMD_OPCODE_QUERY_VUID")],
    },
    Constants {
        values: "CmdStatus",
        header: Kernel,
        prefix: "MLX5_CMD_STAT_",
        otherwise: &[
            ("INTERNAL_ERR", "MLX5_CMD_STAT_INT_ERR"),
            ("BAD_OP", "MLX5_CMD_STAT_BAD_OP_ERR"),
            ("BAD_PARAM", "MLX5_CMD_STAT_BAD_PARAM_ERR"),
            ("BAD_SYS_STATE", "MLX5_CMD_STAT_BAD_SYS_STATE_ERR"),
            ("BAD_RESOURCE", "MLX5_CMD_STAT_BAD_RES_ERR"),
            ("RESOURCE_BUSY", "MLX5_CMD_STAT_RES_BUSY"),
            ("EXCEED_LIM", "MLX5_CMD_STAT_LIM_ERR"),
            ("BAD_RES_STATE", "MLX5_CMD_STAT_BAD_RES_STATE_ERR"),
            ("BAD_INDEX", "MLX5_CMD_STAT_IX_ERR"),
            ("NO_RESOURCES", "MLX5_CMD_STAT_NO_RES_ERR"),
            ("BAD_QP_STATE", "MLX5_CMD_STAT_BAD_QP_STATE_ERR"),
            ("BAD_PKT", "MLX5_CMD_STAT_BAD_PKT_ERR"),
            ("BAD_SIZE", "MLX5_CMD_STAT_BAD_SIZE_OUTS_CQES_ERR"),
            ("BAD_INPUT_LEN", "MLX5_CMD_STAT_BAD_INP_LEN_ERR"),
            ("BAD_OUTPUT_LEN", "MLX5_CMD_STAT_BAD_OUTP_LEN_ERR"),
        ],
    },
    Constants { values: "CapPage", header: Kernel, prefix: "MLX5_CAP_", otherwise: &[] },
    Constants { values: "CqStatus", header: Kernel, prefix: "MLX5_CQC_STATUS_", otherwise: &[] },
    Constants {
        values: "CqeSize",
        header: Kernel,
        prefix: "MLX5_CQC_CQE_SZ_",
        otherwise: &[("128_BYTES_PAD", "CQE_STRIDE_128_PAD")],
    },
    Constants { values: "CqPeriodMode", header: Kernel, prefix: "MLX5_CQ_PERIOD_MODE_", otherwise: &[] },
    Constants { values: "CqState", header: Kernel, prefix: "MLX5_CQC_ST_", otherwise: &[] },
    Constants { values: "EqStatus", header: Kernel, prefix: "MLX5_EQC_STATUS_", otherwise: &[] },
    Constants { values: "EqState", header: Kernel, prefix: "MLX5_EQC_ST_", otherwise: &[] },
    Constants { values: "AccessMode", header: Kernel, prefix: "MLX5_MKC_ACCESS_MODE_", otherwise: &[] },
    Constants { values: "AtomicMode", header: Kernel, prefix: "MLX5_QPC_ATOMIC_MODE_", otherwise: &[("NONE", "")] },
    Constants { values: "EndPadding", header: Kernel, prefix: "MLX5_QPC_END_PADDING_MODE_", otherwise: &[] },
    Constants { values: "RqType", header: Kernel, prefix: "MLX5_", otherwise: &[] },
    Constants { values: "ScatterToRequester", header: Kernel, prefix: "MLX5_QPC_CS_REQ_", otherwise: &[] },
    Constants { values: "ScatterToResponder", header: Kernel, prefix: "MLX5_QPC_CS_RES_", otherwise: &[] },
    Constants { values: "StatRate", header: Kernel, prefix: "MLX5_ADS_STAT_RATE_", otherwise: &[] },
    Constants {
        values: "RoceVersion",
        header: Kernel,
        prefix: "",
        otherwise: &[("ROCE_V1", "MLX5_ROCE_VERSION_1"), ("ROCE_V2", "MLX5_ROCE_VERSION_2")],
    },
    Constants { values: "RoceL3Type", header: Kernel, prefix: "MLX5_ROCE_L3_TYPE_", otherwise: &[] },
    Constants { values: "AllowedListType", header: Kernel, prefix: "MLX5_NVPRT_LIST_TYPE_", otherwise: &[] },
    Constants { values: "VportState", header: Kernel, prefix: "VPORT_STATE_", otherwise: &[] },
    Constants { values: "VportAdminState", header: Kernel, prefix: "MLX5_VPORT_ADMIN_STATE_", otherwise: &[] },
    Constants { values: "NicInterface", header: Kernel, prefix: "MLX5_INITIAL_SEG_NIC_INTERFACE_", otherwise: &[] },
    Constants { values: "CqErrorSyndrome", header: Kernel, prefix: "MLX5_CQ_ERROR_SYNDROME_", otherwise: &[] },
    Constants { values: "PortType", header: Kernel, prefix: "MLX5_CAP_PORT_TYPE_", otherwise: &[] },
    Constants { values: "RegisterId", header: Kernel, prefix: "MLX5_REG_", otherwise: &[] },
    Constants { values: "QpState", header: Kernel, prefix: "MLX5_QP_STATE_", otherwise: &[] },
    Constants { values: "ServiceType", header: Kernel, prefix: "MLX5_QP_ST_", otherwise: &[] },
    Constants { values: "PathMigration", header: Kernel, prefix: "MLX5_QPC_PM_STATE_", otherwise: &[] },
    Constants { values: "PathMtu", header: Kernel, prefix: "MLX5_QPC_MTU_", otherwise: &[] },
    Constants { values: "WqeOpcode", header: Kernel, prefix: "MLX5_OPCODE_", otherwise: &[] },
    Constants {
        values: "WqeOpcode",
        header: Verbs,
        prefix: "MLX5_OPCODE_",
        otherwise: &[
            ("LSO", "MLX5_OPCODE_TSO"),
            ("BIND_MW", ""),
            ("GET_PSV", ""),
            ("CHECK_PSV", ""),
            ("DUMP", ""),
            ("RGET_PSV", ""),
            ("RCHECK_PSV", ""),
            ("ENHANCED_MPSW", ""),
            ("ACCESS_ASO", ""),
        ],
    },
    Constants {
        values: "Fence",
        header: Kernel,
        prefix: "",
        otherwise: &[
            ("NONE", "MLX5_FENCE_MODE_NONE >> 5"),
            ("INITIATOR_SMALL", "MLX5_FENCE_MODE_INITIATOR_SMALL >> 5"),
            ("FENCE", "MLX5_FENCE_MODE_FENCE >> 5"),
            ("STRONG_ORDERING", "MLX5_FENCE_MODE_STRONG_ORDERING >> 5"),
            ("FENCE_AND_INITIATOR_SMALL", "MLX5_FENCE_MODE_SMALL_AND_FENCE >> 5"),
        ],
    },
    Constants {
        values: "CompletionMode",
        header: Kernel,
        prefix: "",
        otherwise: &[
            ("CQE_ON_CQE_ERROR", ""),
            ("CQE_ON_FIRST_CQE_ERROR", ""),
            ("CQE_ALWAYS", "MLX5_WQE_CTRL_CQ_UPDATE >> 2"),
            ("CQE_AND_EQE", "MLX5_WQE_CTRL_CQ_UPDATE_AND_EQE >> 2"),
        ],
    },
    Constants { values: "CqeOpcode", header: Kernel, prefix: "MLX5_CQE_", otherwise: &[("NO_PACKET", "")] },
    Constants { values: "CqeOpcode", header: Verbs, prefix: "MLX5_CQE_", otherwise: &[] },
    Constants { values: "CqeSyndrome", header: Kernel, prefix: "MLX5_CQE_SYNDROME_", otherwise: &[] },
    Constants { values: "CqeSyndrome", header: Verbs, prefix: "MLX5_CQE_SYNDROME_", otherwise: &[] },
    Constants {
        values: "EventType",
        header: Kernel,
        prefix: "MLX5_EVENT_TYPE_",
        otherwise: &[
            ("COMPLETION", "MLX5_EVENT_TYPE_COMP"),
            ("PATH_MIGRATED", "MLX5_EVENT_TYPE_PATH_MIG"),
            ("COMM_ESTABLISHED", "MLX5_EVENT_TYPE_COMM_EST"),
        ],
    },
    Constants {
        values: "HealthSyndrome",
        header: Kernel,
        prefix: "MLX5_INITIAL_SEG_HEALTH_SYNDROME_",
        otherwise: &[
            ("NO_ERROR", ""),
            ("ASYNC_EQ_BUF_OVERRUN", "MLX5_INITIAL_SEG_HEALTH_SYNDROME_ASYNCHRONOUS_EQ_BUF_OVERRUN"),
        ],
    },
];

/// Enumerations, or values of one, that no header has, and why.
const UNJUDGED_VALUES: &[(&str, &str)] = &[
    ("DeliveryStatus", "an enumeration inside the kernel's cmd.c"),
    ("AtomicMode.NONE", "zero, which the header does not name"),
    ("CompletionMode.CQE_ON_CQE_ERROR", "zero, which the headers do not name"),
    ("CompletionMode.CQE_ON_FIRST_CQE_ERROR", "used by neither the kernel nor rdma-core"),
    ("HealthSyndrome.NO_ERROR", "zero, which the header does not name"),
];

/// Where a field, or a whole layout, lies: first bit and number of bits; or a number alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fact {
    Place(u64, u64),
    Number(i64),
}

/// What mlx5-prm says, and the line of C that asks the header.
#[derive(Debug, Clone)]
struct Claim {
    /// `Layout.field`, `Layout` for its size, `Values.NAME`.
    what: String,
    header: Header,
    question: String,
    says: Fact,
}

fn field_claim(info: &Info, name: &str, header: Header, c: &str, member: &str, mask: &str) -> Claim {
    let what = format!("{}.{name}", info.name);
    let field = info.field(name).unwrap_or_else(|| panic!("{what} is in the table here, not in mlx5-prm"));
    let question = match (c.starts_with("mlx5_ifc_"), mask) {
        (true, _) => format!("IFC(struct {c}, {member})"),
        (false, "") => format!("WHOLE(struct {c}, {member})"),
        (false, mask) => format!("MASKED(struct {c}, {member}, {mask})"),
    };
    Claim { what, header, question, says: Fact::Place(field.start_bit() as u64, field.bits() as u64) }
}

fn size_claim(info: &Info, header: Header, c: &str) -> Claim {
    let size = if c.starts_with("mlx5_ifc_") { "IFC_SIZE" } else { "SIZE" };
    let says = Fact::Place(0, info.size as u64 * 8);
    Claim { what: info.name.into(), header, question: format!("{size}(struct {c})"), says }
}

/// Everything mlx5-prm says of its layouts that some header can confirm.
fn layout_claims() -> Vec<Claim> {
    let mut claims = Vec::new();
    for info in LAYOUTS.iter().filter(|info| info.c_name.starts_with("mlx5_ifc_")) {
        claims.push(size_claim(info, Kernel, info.c_name));
        let judged = |name: &str| !is_listed(UNJUDGED, &format!("{}.{name}", info.name));
        for field in info.fields.iter().filter(|field| judged(field.name)) {
            claims.push(field_claim(info, field.name, Kernel, info.c_name, field.name, ""));
        }
    }
    for counterpart in COUNTERPARTS {
        let info = LAYOUTS.iter().find(|info| info.name == counterpart.layout).expect(counterpart.layout);
        if counterpart.sized {
            claims.push(size_claim(info, counterpart.header, counterpart.c));
        }
        for (field, member, mask) in counterpart.fields {
            claims.push(field_claim(info, field, counterpart.header, counterpart.c, member, mask));
        }
    }
    claims
}

/// Everything it says of its enumerations.
fn value_claims() -> Vec<Claim> {
    let mut claims = Vec::new();
    for constants in CONSTANTS {
        let values = VALUES.iter().find(|values| values.name == constants.values).expect(constants.values);
        for (name, number) in values.named {
            let otherwise = constants.otherwise.iter().find(|(prm, _)| prm == name).map(|(_, c)| *c);
            let c = otherwise.map_or_else(|| format!("{}{name}", constants.prefix), str::to_owned);
            if !c.is_empty() {
                claims.push(Claim {
                    what: format!("{}.{name}", values.name),
                    header: constants.header,
                    question: format!("NUMBER({c})"),
                    says: Fact::Number((*number).into()),
                });
            }
        }
    }
    claims
}

fn is_listed(list: &[(&str, &str)], what: &str) -> bool {
    list.iter().any(|(listed, _)| *listed == what)
}

/// The C compiler's answers, in the order of the questions.
fn ask(headers: &Headers, header: Header, questions: &[&str]) -> Vec<Fact> {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let judge = Path::new(env!("CARGO_MANIFEST_DIR")).join("judge");
    let (source, program) = (dir.path().join("judge.c"), dir.path().join("judge"));

    let mut text = header.includes().to_owned();
    text.push_str("#include \"place.h\"\n\nint main(void)\n{\n");
    for question in questions {
        writeln!(text, "\t{question};").unwrap();
    }
    text.push_str("\treturn 0;\n}\n");
    fs::write(&source, text).expect("write the C program");

    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-w", "-O1", "-o"]).arg(&program).arg("-I").arg(&judge);
    match header {
        Kernel => {
            // What the headers include is replaced by nothing, for judge/kernel.h has what is needed of it, but for the
            // register numbers, which are all that is used of driver.h.
            let empty = ["linux/types.h", "linux/bitfield.h", "linux/refcount.h", "rdma/ib_verbs.h"];
            let driver = fs::read_to_string(headers.kernel_include.join("linux/mlx5/driver.h")).expect("read driver.h");
            let registers = enumeration_with(&driver, "MLX5_REG_PTYS").expect("register numbers in driver.h");
            let replaced = empty.map(|name| (name, "")).into_iter().chain([("linux/mlx5/driver.h", registers)]);
            for (name, text) in replaced {
                let path = dir.path().join("replaced").join(name);
                fs::create_dir_all(path.parent().unwrap()).expect("a temporary folder");
                fs::write(path, format!("#pragma once\n{text}\n")).expect("write a header");
            }
            cc.arg("-include").arg(judge.join("kernel.h"));
            cc.arg("-I").arg(dir.path().join("replaced")).arg("-I").arg(&headers.kernel_include);
        }
        Verbs => {
            cc.arg("-I").arg(&headers.verbs_include);
        }
    }
    let made = cc.arg(&source).output().expect("a C compiler, `cc`: install gcc or clang");
    if !made.status.success() {
        let said = String::from_utf8_lossy(&made.stderr);
        let errors: Vec<_> = said.lines().filter(|line| line.contains("error")).collect();
        panic!("the {header:?} headers do not know what is asked:\n{}", errors.join("\n"));
    }
    let ran = Command::new(&program).output().expect("run the C program");
    assert!(ran.status.success(), "{header:?} headers: {}", ran.status);

    let fact = |line: &str| match line.split_once(' ') {
        Some((start, bits)) => Fact::Place(start.parse().unwrap(), bits.parse().unwrap()),
        None => Fact::Number(line.parse().unwrap()),
    };
    let facts: Vec<_> = String::from_utf8(ran.stdout).unwrap().lines().map(fact).collect();
    assert_eq!(facts.len(), questions.len());
    facts
}

/// The C enumeration that has `constant`, from `enum` to `;`.
fn enumeration_with<'a>(text: &'a str, constant: &str) -> Option<&'a str> {
    let at = text.find(constant)?;
    let (start, end) = (text[..at].rfind("enum")?, text[at..].find(';')?);
    text.get(start..=at + end)
}

/// Every claim the headers do not confirm, in words.
fn disagreements(headers: &Headers, claims: &[Claim]) -> Vec<String> {
    let mut found = Vec::new();
    for header in Header::BOTH {
        let claims: Vec<_> = claims.iter().filter(|claim| claim.header == header).collect();
        let questions: Vec<_> = claims.iter().map(|claim| claim.question.as_str()).collect();
        let facts = ask(headers, header, &questions);
        for (claim, fact) in claims.iter().zip(facts).filter(|(claim, fact)| claim.says != *fact) {
            found.push(format!("{}: mlx5-prm {:?}, {header:?} {fact:?} by {}", claim.what, claim.says, claim.question));
        }
    }
    found
}

/// What is neither judged nor excused, and excuses for what is judged or does not exist.
fn unaccounted(all: &BTreeSet<String>, judged: &BTreeSet<String>, excused: &[(&str, &str)]) -> Vec<String> {
    let covers = |excuse: &str, what: &str| {
        what == excuse || what.strip_prefix(excuse).is_some_and(|rest| rest.starts_with('.'))
    };
    let is_excused = |what: &String| excused.iter().any(|(excuse, _)| covers(excuse, what));
    let missing = all.iter().filter(|what| !judged.contains(*what) && !is_excused(what));
    let missing = missing.map(|what| format!("{what}: no counterpart and no reason"));
    let idle = excused.iter().filter(|(excuse, _)| {
        !all.iter().any(|what| covers(excuse, what)) || judged.iter().any(|what| covers(excuse, what))
    });
    missing.chain(idle.map(|(excuse, _)| format!("{excuse}: excused, but judged or not there"))).collect()
}

/// Says it even where the test runner keeps what passing tests print to itself.
fn report(line: &str) {
    let _ = writeln!(std::io::stderr(), "\nlayouts: {line}");
}

fn whats(claims: &[Claim]) -> BTreeSet<String> {
    claims.iter().map(|claim| claim.what.clone()).collect()
}

#[test]
fn every_layout_lies_as_the_headers_say() {
    if mlx5_lab::skipped("layouts") {
        return;
    }
    let headers = mlx5_lab::headers().unwrap_or_else(|error| panic!("{error}"));
    let claims = layout_claims();
    let fields = |info: &'static Info| info.fields.iter().map(move |field| format!("{}.{}", info.name, field.name));
    let mut all: BTreeSet<_> = LAYOUTS.iter().copied().flat_map(fields).collect();
    all.extend(LAYOUTS.iter().map(|info| info.name.to_owned()));

    let mut faults = disagreements(&headers, &claims);
    faults.extend(unaccounted(&all, &whats(&claims), UNJUDGED));
    for info in LAYOUTS.iter().filter(|info| info.c_name != "none" && !info.c_name.starts_with("mlx5_ifc_")) {
        if !COUNTERPARTS.iter().any(|counterpart| counterpart.layout == info.name && counterpart.c == info.c_name) {
            faults.push(format!("{}: says it is {}, which nothing here compares", info.name, info.c_name));
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));

    let (fields, layouts): (Vec<_>, Vec<_>) = whats(&claims).into_iter().partition(|what| what.contains('.'));
    report(&format!(
        "{} of {} layouts, {} of {} fields agree with the C compiler ({} comparisons)",
        layouts.len(),
        LAYOUTS.len(),
        fields.len(),
        LAYOUTS.iter().map(|info| info.fields.len()).sum::<usize>(),
        claims.len()
    ));
    for (what, reason) in UNJUDGED {
        println!("not judged: {what}: {reason}");
    }
}

#[test]
fn every_named_value_is_the_headers() {
    if mlx5_lab::skipped("layouts") {
        return;
    }
    let headers = mlx5_lab::headers().unwrap_or_else(|error| panic!("{error}"));
    let claims = value_claims();
    let named = |name: &'static str, values: &'static [(&'static str, u32)]| {
        values.iter().map(move |(value, _)| format!("{name}.{value}"))
    };
    let all: BTreeSet<_> = VALUES.iter().flat_map(|values| named(values.name, values.named)).collect();

    let mut faults = disagreements(&headers, &claims);
    faults.extend(unaccounted(&all, &whats(&claims), UNJUDGED_VALUES));
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    report(&format!(
        "{} of {} named values of {} enumerations agree with the C compiler",
        whats(&claims).len(),
        all.len(),
        VALUES.len()
    ));
    for (what, reason) in UNJUDGED_VALUES {
        println!("not judged: {what}: {reason}");
    }
}

/// The judge sees what is wrong: each way to be wrong, in one copy of what mlx5-prm says, is reported, and nothing else.
#[test]
fn a_wrong_claim_is_reported() {
    if mlx5_lab::skipped("layouts") {
        return;
    }
    let headers = mlx5_lab::headers().unwrap_or_else(|error| panic!("{error}"));
    let wrong = [
        ("Cqc.log_cq_size", Fact::Place(0xc * 8 + 4, 5)),
        ("Qpc.pd", Fact::Place(0x4 * 8 + 8, 23)),
        ("CreateQpIn", Fact::Place(0, 0x10c * 8)),
        ("Cqe.opcode", Fact::Place(0x3f * 8 + 1, 4)),
        ("CtrlSeg.wqe_index", Fact::Place(16, 16)),
        ("Opcode.CREATE_CQ", Fact::Number(0x401)),
    ];
    let mut claims = layout_claims();
    claims.extend(value_claims());
    let mut changed = BTreeSet::new();
    for claim in &mut claims {
        if let Some((what, says)) = wrong.iter().find(|(what, _)| *what == claim.what) {
            claim.says = *says;
            changed.insert((*what).to_owned());
        }
    }
    assert_eq!(changed.len(), wrong.len());
    let found = disagreements(&headers, &claims);
    let named: BTreeSet<_> = found.iter().map(|line| line.split(':').next().unwrap().to_owned()).collect();
    assert_eq!(named, changed, "{found:#?}");
}

#[test]
fn a_layout_without_counterpart_is_reported() {
    let set = |whats: &[&str]| whats.iter().map(|what| (*what).to_owned()).collect::<BTreeSet<_>>();
    let all = set(&["A", "A.x", "B", "B.y"]);
    assert_eq!(unaccounted(&all, &set(&["A", "A.x"]), &[("B", "why")]), [""; 0]);
    assert_eq!(unaccounted(&all, &set(&["A", "A.x", "B"]), &[]), ["B.y: no counterpart and no reason"]);
    assert_eq!(unaccounted(&all, &all, &[("B.y", "why")]), ["B.y: excused, but judged or not there"]);
    assert_eq!(unaccounted(&all, &all, &[("C", "why")]), ["C: excused, but judged or not there"]);
}
