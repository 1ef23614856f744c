//! InfiniBand headers, as in the kernel's `rdma/ib_hdrs.h`, `ib_pack.h`, `ib_verbs.h` and `ib_mad.h`.

use super::Counterpart;
use crate::claims::Header::Kernel;

/// The three high bits of the opcode: all set for manufacturer-specific opcodes.
const SERVICE: &str = "(unsigned)IB_OPCODE_MSP << IB_BTH_OPCODE_SHIFT";
const OPERATION: &str = "(IB_BTH_OPCODE_MASK & ~IB_OPCODE_MSP) << IB_BTH_OPCODE_SHIFT";
const SYNDROME: &str = "~(IB_AETH_CREDIT_MASK << IB_AETH_CREDIT_SHIFT | IB_MSN_MASK)";

pub const ROWS: &[Counterpart] = &[
    Counterpart {
        layout: "Grh",
        header: Kernel,
        c: "ib_grh",
        sized: true,
        fields: &[
            ("ip_ver", "version_tclass_flow", "(unsigned)IB_GRH_VERSION_MASK << IB_GRH_VERSION_SHIFT"),
            ("t_class", "version_tclass_flow", "IB_GRH_TCLASS_MASK << IB_GRH_TCLASS_SHIFT"),
            ("flow_label", "version_tclass_flow", "IB_GRH_FLOW_MASK << IB_GRH_FLOW_SHIFT"),
            ("pay_len", "paylen", ""),
            ("nxt_hdr", "next_hdr", ""),
            ("hop_lmt", "hop_limit", ""),
            ("sgid", "sgid", ""),
            ("dgid", "dgid", ""),
        ],
    },
    Counterpart {
        layout: "Bth",
        header: Kernel,
        c: "{ typeof(((struct ib_other_headers *)0)->bth) bth; }",
        sized: true,
        fields: BTH,
    },
    Counterpart {
        layout: "CnpBth",
        header: Kernel,
        c: "{ typeof(((struct ib_other_headers *)0)->bth) bth; }",
        sized: true,
        fields: BTH,
    },
    Counterpart {
        layout: "Deth",
        header: Kernel,
        c: "{ typeof(((union ib_ehdrs *)0)->ud.deth) deth; }",
        sized: true,
        fields: &[("q_key", "deth[0]", ""), ("src_qp", "deth[1]", "IB_QPN_MASK")],
    },
    Counterpart { layout: "Xrceth", header: Kernel, c: "{ char xrceth[IB_EXT_XRC_BYTES]; }", sized: true, fields: &[] },
    Counterpart {
        layout: "Reth",
        header: Kernel,
        c: "ib_reth",
        sized: true,
        fields: &[("va", "vaddr", ""), ("r_key", "rkey", ""), ("dma_len", "length", "")],
    },
    Counterpart {
        layout: "AtomicEth",
        header: Kernel,
        c: "ib_atomic_eth",
        sized: true,
        fields: &[
            ("va", "vaddr", ""),
            ("r_key", "rkey", ""),
            ("swap_or_add_dt", "swap_data", ""),
            ("cmp_dt", "compare_data", ""),
        ],
    },
    Counterpart {
        layout: "Aeth",
        header: Kernel,
        c: "{ typeof(((union ib_ehdrs *)0)->aeth) aeth; }",
        sized: true,
        fields: &[
            ("syndrome", "aeth", SYNDROME),
            ("value", "aeth", "IB_AETH_CREDIT_MASK << IB_AETH_CREDIT_SHIFT"),
            ("msn", "aeth", "IB_MSN_MASK"),
        ],
    },
    Counterpart {
        layout: "AtomicAckEth",
        header: Kernel,
        c: "{ typeof(((union ib_ehdrs *)0)->at.atomic_ack_eth) atomic_ack_eth; }",
        sized: true,
        fields: &[("orig_rem_dt", "atomic_ack_eth", "")],
    },
    Counterpart {
        layout: "ImmDt",
        header: Kernel,
        c: "{ typeof(((union ib_ehdrs *)0)->imm_data) imm_data; }",
        sized: true,
        fields: &[("imm_dt", "imm_data", "")],
    },
    Counterpart {
        layout: "Ieth",
        header: Kernel,
        c: "{ typeof(((union ib_ehdrs *)0)->ieth) ieth; }",
        sized: true,
        fields: &[("r_key", "ieth", "")],
    },
    Counterpart {
        layout: "MadHdr",
        header: Kernel,
        c: "ib_mad_hdr",
        sized: true,
        fields: &[
            ("base_version", "base_version", ""),
            ("mgmt_class", "mgmt_class", ""),
            ("class_version", "class_version", ""),
            ("method", "method", ""),
            ("status", "status", ""),
            ("class_specific", "class_specific", ""),
            ("transaction_id", "tid", ""),
            ("attribute_id", "attr_id", ""),
            ("attribute_modifier", "attr_mod", ""),
        ],
    },
];

const BTH: &[(&str, &str, &str)] = &[
    ("service", "bth[0]", SERVICE),
    ("operation", "bth[0]", OPERATION),
    ("se", "bth[0]", "IB_BTH_SE_MASK << IB_BTH_SE_SHIFT"),
    ("mig_req", "bth[0]", "IB_BTH_M_MASK << IB_BTH_M_SHIFT"),
    ("pad_cnt", "bth[0]", "IB_BTH_PAD_MASK << IB_BTH_PAD_SHIFT"),
    ("t_ver", "bth[0]", "IB_BTH_TVER_MASK << IB_BTH_TVER_SHIFT"),
    ("p_key", "bth[0]", "IB_BTH_PKEY_MASK"),
    ("fecn", "bth[1]", "IB_FECN_SMASK"),
    ("becn", "bth[1]", "IB_BECN_SMASK"),
    ("dest_qp", "bth[1]", "IB_QPN_MASK"),
    ("ack_req", "bth[2]", "IB_BTH_REQ_ACK"),
];
