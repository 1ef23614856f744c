//! Commands without a structure in the headers, or with one that leaves a part unnamed.

use super::Counterpart;
use crate::claims::Header::{Drivers, Kernel};

/// The part of any XRQ command that uverbs reads.
const XRQ_HEAD: &[(&str, &str, &str)] = &[
    ("opcode", "opcode", ""),
    ("uid", "reserved_at_10", ""),
    ("op_mod", "op_mod", ""),
    ("xrqn", "xrqn", ""),
    ("unpublished", "reserved_at_60", ""),
];

pub const ROWS: &[Counterpart] = &[
    Counterpart {
        layout: "InputHeader",
        header: Drivers,
        c: "mlx5_ifc_mbox_in_bits",
        sized: true,
        fields: &[("opcode", "opcode", ""), ("uid", "uid", ""), ("op_mod", "op_mod", "")],
    },
    Counterpart {
        layout: "OutputHeader",
        header: Drivers,
        c: "mlx5_ifc_mbox_out_bits",
        sized: true,
        fields: &[("status", "status", ""), ("syndrome", "syndrome", "")],
    },
    Counterpart {
        layout: "InputHeader",
        header: Kernel,
        c: "mlx5_ifc_cmd_in_bits",
        sized: false,
        fields: &[("opcode", "opcode", ""), ("op_mod", "op_mod", "")],
    },
    Counterpart {
        layout: "OutputHeader",
        header: Kernel,
        c: "mlx5_ifc_cmd_out_bits",
        sized: false,
        fields: &[("status", "status", ""), ("syndrome", "syndrome", "")],
    },
    Counterpart {
        layout: "UnpublishedIn",
        header: Drivers,
        c: "mlx5_ifc_mbox_in_bits",
        sized: false,
        fields: &[
            ("opcode", "opcode", ""),
            ("uid", "uid", ""),
            ("op_mod", "op_mod", ""),
            ("unpublished", "reserved_at_40", ""),
        ],
    },
    Counterpart {
        layout: "UnpublishedOut",
        header: Drivers,
        c: "mlx5_ifc_mbox_out_bits",
        sized: false,
        fields: &[("status", "status", ""), ("syndrome", "syndrome", ""), ("unpublished", "reserved_at_40", "")],
    },
    // uverbs reads the queue's number in these as in the related commands.
    Counterpart {
        layout: "QueryXrqDcParamsEntryIn",
        header: Kernel,
        c: "mlx5_ifc_query_xrq_in_bits",
        sized: false,
        fields: XRQ_HEAD,
    },
    Counterpart {
        layout: "QueryXrqErrorParamsIn",
        header: Kernel,
        c: "mlx5_ifc_query_xrq_in_bits",
        sized: false,
        fields: XRQ_HEAD,
    },
    Counterpart {
        layout: "ReleaseXrqErrorIn",
        header: Kernel,
        c: "mlx5_ifc_arm_xrq_in_bits",
        sized: false,
        fields: XRQ_HEAD,
    },
    Counterpart {
        layout: "ModifyXrqIn",
        header: Kernel,
        c: "mlx5_ifc_arm_xrq_in_bits",
        sized: false,
        fields: XRQ_HEAD,
    },
    // One type of object represents all: their structures consist of this head and the object.
    Counterpart {
        layout: "CreateGeneralObjectIn",
        header: Kernel,
        c: "mlx5_ifc_create_encryption_key_in_bits",
        sized: false,
        fields: &[("obj_context", "encryption_key_object", "")],
    },
    Counterpart {
        layout: "ModifyGeneralObjectIn",
        header: Kernel,
        c: "mlx5_ifc_modify_page_track_obj_in_bits",
        sized: false,
        fields: &[("obj_context", "obj_context", "")],
    },
    Counterpart {
        layout: "QueryGeneralObjectOut",
        header: Kernel,
        c: "mlx5_ifc_query_page_track_obj_out_bits",
        sized: false,
        fields: &[("obj_context", "obj_context", "")],
    },
    Counterpart {
        layout: "QueryEswFunctionsOut",
        header: Kernel,
        c: "mlx5_ifc_query_esw_functions_out_bits",
        sized: false,
        fields: &[
            ("status", "status", ""),
            ("syndrome", "syndrome", ""),
            ("net_function_num", "net_function_num", ""),
            ("net_function_params", "net_function_params", ""),
        ],
    },
    Counterpart {
        layout: "QueryQpOut",
        header: Kernel,
        c: "mlx5_ifc_query_qp_out_bits",
        sized: false,
        fields: &[("pas", "qp_pas_or_qpc_ext_and_pas.qpc_ext_and_pas_list.pas", "")],
    },
    Counterpart {
        layout: "FlowTableContext",
        header: Kernel,
        c: "mlx5_ifc_flow_table_context_bits",
        sized: true,
        fields: &[("sws_or_hws", "sws", "")],
    },
];
