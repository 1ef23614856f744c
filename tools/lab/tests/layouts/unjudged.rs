//! What no header can confirm, and why. A row that a header has come to know fails, and so does one of something gone.

/// What, and the reason.
pub type Row = (&'static str, &'static str);

/// Layout, or `Layout.field`, that no header has, and why.
pub const UNJUDGED: &[Row] = &[
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
    ("EthSeg.inline_hdr_sz", "ten bits; the headers have 16, and nothing that says so"),
    ("Cqe.outer_l3_type", "in DPDK; the kernel names its byte after it"),
    ("Cqe.grh", PATH),
    ("Cqe.sl", PATH),
    ("Cqe.ip_frag", "in DPDK; the headers name no bit of it"),
    ("Cqe.l3_hdr_type", "rdma-core's providers/mlx5 shifts by number; values are judged"),
    ("Cqe.ip_ext_opts", "in DPDK; the headers name no bit of it"),
    ("ShampoCqe", "bit fields of C in mlx5_cqe64, whose places C does not tell"),
    ("MiniCqeFlowTag", "in DPDK; the kernel does not ask for this format"),
    ("MiniCqeHeaderType", "in DPDK; the kernel does not ask for this format"),
    ("ErrorCqe.wqe_id", ERROR_IN_DPDK),
    ("ErrorCqe.ib_stride_index", ERROR_IN_DPDK),
    ("ErrorCqe.byte_cnt", ERROR_IN_DPDK),
    ("ErrorCqe.hw_error_syndrome", "reserved in both headers; rdma-core's providers/mlx5 names it"),
    ("ErrorCqe.hw_syndrome_type", "reserved in both headers; rdma-core's providers/mlx5 names it"),
    ("HostEndianness", "a structure inside the kernel's main.c"),
    ("NodeDesc", "64 plain bytes in the kernel's mlx5_ib, which declares no structure for them"),
    ("HealthBuffer.valid", "a mask in the kernel's health.c, not in a header"),
    ("HealthBuffer.severity", "a mask in the kernel's health.c, not in a header"),
    ("FlowTableContext.sws_or_hws", "without a name in the header; its arms are judged"),
    ("ExtendedFlowCounterList", "the union of extended destination and counter, as a counter"),
];
const PATH: &str = "the kernel's mlx5_ib and rdma-core's providers/mlx5 shift flags_rqpn by number";
const ERROR_IN_DPDK: &str = "reserved in both headers; in DPDK";
const UMEM: &str = "reserved in the kernel's header, which has no umems of its own; in rdma-core's and DPDK's copy";

/// Enumerations, or values of one, that no header has, and why.
pub const UNJUDGED_VALUES: &[Row] = &[
    ("DeliveryStatus", "an enumeration inside the kernel's cmd.c"),
    ("MiniCqeFormat.HASH", "zero, which the header does not name"),
    ("MiniCqeFormat.FTAG_STRIDX", "in DPDK; the kernel does not ask for this format"),
    ("MiniCqeFormat.L34H_STRIDX", "in DPDK; the kernel does not ask for this format"),
    ("TrailerAssociation.NONE", "zero, which the header does not name"),
    ("McqiInfo", "an enumeration inside the kernel's fw.c"),
    ("AtomicMode.NONE", "zero, which the header does not name"),
    ("CompletionMode.CQE_ON_CQE_ERROR", "zero, which the headers do not name"),
    ("CompletionMode.CQE_ON_FIRST_CQE_ERROR", "used by neither the kernel nor rdma-core"),
    ("HealthSyndrome.NO_ERROR", "zero, which the header does not name"),
    ("ModifyActionType.INSERT", HWS),
    ("ModifyActionType.REMOVE", HWS),
    ("ModifyActionType.NOP", HWS),
    ("ModifyActionType.REMOVE_WORDS", HWS),
    ("ModifyActionType.ADD_FIELD", HWS),
    ("SetFteOpMod", "plain numbers in the kernel's fs_cmd.c"),
];
const HWS: &str = "in a header inside the kernel's driver, steering/hws";

/// Layout, `Layout.field` or `Values.NAME` that the newest kernel's header has elsewhere than the older one's, and why
/// ours is the newest's. What only grew needs no row.
pub const CHANGED: &[Row] = &[
    ("NicVportContext.allowed_list_size", "12 bits became 16 where four were reserved"),
    ("EtsTcnConfigReg.max_bw_value", "8 bits became 16 where eight were reserved"),
];
