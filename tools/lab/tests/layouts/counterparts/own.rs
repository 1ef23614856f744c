//! Declarations in the sources of the kernel and of libmlx5, outside of headers.

use super::Counterpart;
use crate::claims::Header::{Drivers, Provider};

pub const ROWS: &[Counterpart] = &[
    Counterpart {
        layout: "SteCtrlSeg",
        header: Drivers,
        c: "mlx5hws_wqe_gta_ctrl_seg",
        sized: true,
        fields: &[
            ("op", "op_dirix", "0xf0000000"),
            ("direct_index", "op_dirix", "0x0fffffff"),
            ("stc_index", "stc_ix", ""),
        ],
    },
    Counterpart {
        layout: "SteDataSeg",
        header: Drivers,
        c: "mlx5hws_wqe_gta_data_seg_ste",
        sized: true,
        fields: &[
            ("counter_id", "rsvd0_ctr_id", ""),
            ("definer_id", "rsvd1_definer", "0xffffff00"),
            ("action", "action", ""),
            ("tag", "tag", ""),
        ],
    },
    Counterpart {
        layout: "AsoCtrlSeg",
        header: Drivers,
        c: "mlx5_wqe_aso_ctrl_seg",
        sized: true,
        fields: &[
            ("va_h", "va_h", ""),
            ("va_l", "va_l", "0xfffffff8"),
            ("read_enable", "va_l", "ASO_CTRL_READ_EN"),
            ("l_key", "l_key", ""),
            ("data_mask_mode", "data_mask_mode", "3 << 6"),
            ("condition_1_operand", "condition_1_0_operand", "0xf << 4"),
            ("condition_0_operand", "condition_1_0_operand", "0xf"),
            ("condition_operand", "data_offset_condition_operand", "3 << 6"),
            ("data_offset", "data_offset_condition_operand", "0x3f"),
            ("condition_1_0_offset", "condition_1_0_offset", ""),
            ("condition_0_data", "condition_0_data", ""),
            ("condition_0_mask", "condition_0_mask", ""),
            ("condition_1_data", "condition_1_data", ""),
            ("condition_1_mask", "condition_1_mask", ""),
            ("bitwise_data", "bitwise_data", ""),
            ("data_mask", "data_mask", ""),
        ],
    },
    Counterpart {
        layout: "CryptoBsf",
        header: Provider,
        c: "mlx5_crypto_bsf",
        sized: true,
        fields: &[
            ("bsf_size", "bsf_size_type", "MLX5_BSF_SIZE_SIG_AND_CRYPTO << MLX5_BSF_SIZE_SHIFT"),
            ("encryption_order", "enc_order", "0x0f"),
            ("encryption_standard", "enc_standard", "0x0f"),
            ("raw_data_size", "raw_data_size", ""),
            ("crypto_block_size_pointer", "bs_pointer", ""),
            ("xts_initial_tweak", "xts_init_tweak", ""),
            ("dek_pointer", "rsvd_dek_ptr", "0x00ffffff"),
            ("keytag", "keytag", ""),
        ],
    },
    Counterpart {
        layout: "SetPsvSeg",
        header: Provider,
        c: "mlx5_wqe_set_psv_seg",
        sized: true,
        fields: &[("psv_num", "psv_index", "0x00ffffff"), ("syndrome", "syndrome", "")],
    },
    Counterpart {
        layout: "MmoMetadataSeg",
        header: Provider,
        c: "mlx5_mmo_metadata_seg",
        sized: true,
        fields: &[
            ("mmo_control_31_0", "mmo_control_31_0", ""),
            ("local_key", "local_key", ""),
            ("local_address", "local_address", ""),
        ],
    },
    Counterpart {
        layout: "Cqe",
        header: Provider,
        c: "mlx5_cqe64",
        sized: true,
        fields: &[(
            "l3_hdr_type",
            "l4_hdr_type_etc",
            "READ_BY(struct mlx5_cqe64, l4_hdr_type_etc, get_cqe_l3_hdr_type)",
        )],
    },
    Counterpart {
        layout: "QpContextExtension",
        header: Provider,
        c: "mlx5_ifc_qpc_ext_bits",
        sized: true,
        fields: &[
            ("mmo", "mmo", ""),
            ("dci_stream_channel_id", "dci_stream_channel_id", ""),
            ("qos_queue_group_id_requester", "qos_queue_group_id_requester", ""),
            ("qos_queue_group_id_responder", "qos_queue_group_id_responder", ""),
        ],
    },
    // Only libmlx5 declares the length of these.
    Counterpart { layout: "AvQpMapping", header: Provider, c: "mlx5_ifc_av_qp_mapping_bits", sized: true, fields: &[] },
    Counterpart { layout: "UdAv", header: Provider, c: "mlx5_ifc_ud_av_bits", sized: true, fields: &[] },
    Counterpart { layout: "SchedElem", header: Provider, c: "mlx5_ifc_sched_elem_bits", sized: true, fields: &[] },
    Counterpart {
        layout: "CryptoLoginObj",
        header: Provider,
        c: "mlx5_ifc_crypto_login_obj_bits",
        sized: true,
        fields: &[],
    },
    Counterpart { layout: "FlowMeter", header: Provider, c: "mlx5_ifc_flow_meter_bits", sized: true, fields: &[] },
];
