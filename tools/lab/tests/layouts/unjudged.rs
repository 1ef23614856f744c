//! What no header can confirm, and why. A row that a header has come to know fails, and so does one of something gone.

/// What, and the reason.
pub type Row = (&'static str, &'static str);

/// A reason, and what it holds for, with spaces between.
pub type Group = (&'static str, &'static str);

/// The groups' rows.
pub fn rows(groups: &[Group]) -> Vec<Row> {
    groups.iter().flat_map(|(reason, whats)| whats.split_whitespace().map(|what| (what, *reason))).collect()
}

/// Layout, or `Layout.field`, that no header has, and why.
pub const UNJUDGED: &[Group] = &[
    (
        "in a header inside the kernel's driver, which Debian's packages of headers lack",
        "VhcaStateContext VhcaStateFieldSelect QueryVhcaStateIn QueryVhcaStateOut ModifyVhcaStateIn \
         ModifyVhcaStateOut GenerateWqeIn GenerateWqeOut HeaderModifyPatternIn Rtc Ste Stc StcParam \
         StcSteParamSteTable StcSteParamTir StcSteParamTable StcSteParamFlowCounter StcSteParamHeaderModifyList \
         StcSteParamExecuteAso StcSteParamRemove StcSteParamRemoveWords StcSteParamInsert StcSteParamVport \
         StcSteParamIpsecEncrypt StcSteParamIpsecDecrypt StcSteParamTrailer",
    ),
    (
        "an opcode without a public layout",
        "QueryXrqDcParamsEntryIn QueryXrqDcParamsEntryOut QueryXrqErrorParamsIn QueryXrqErrorParamsOut \
         ReleaseXrqErrorIn ReleaseXrqErrorOut ModifyXrqIn ModifyXrqOut QueryRateLimitIn QueryRateLimitOut \
         CreateQosParaVportIn CreateQosParaVportOut DestroyQosParaVportIn DestroyQosParaVportOut \
         QueryModifyHeaderContextOut",
    ),
    (
        "structures inside the kernel's nv_param.c",
        "MnvdaReg ConfigItem ConfigItemTypeAuto ConfigItemTypeGlobal ConfigItemTypePerHostPf NvGlobalPciConf \
         NvGlobalPciCap NvSwOffloadConf NvPfPciConf",
    ),
    (
        "reserved in the kernel's header, which has no umems of its own; in rdma-core's and DPDK's copy",
        "CreateCqIn.cq_umem_offset CreateCqIn.cq_umem_id ModifyCqIn.cq_umem_offset ModifyCqIn.cq_umem_id \
         CreateMkeyIn.mkey_umem_id CreateMkeyIn.mkey_umem_offset Cqc.dbr_umem_id Qpc.dbr_umem_id",
    ),
    ("in DPDK; the kernel does not wait", "WaitCqSeg SendEnableSeg WaitSeg"),
    ("reserved in both headers; in DPDK", "ErrorCqe.wqe_id ErrorCqe.ib_stride_index ErrorCqe.byte_cnt"),
    (
        "the header puts each type of object into a structure of its own",
        "CreateGeneralObjectIn.obj_context ModifyGeneralObjectIn.obj_context QueryGeneralObjectOut.obj_context",
    ),
    ("in rdma-core's providers/mlx5 and in DPDK, not in a header they install", "CryptoBsf MmoMetadataSeg"),
    ("the kernel's mlx5_ib and rdma-core's providers/mlx5 shift flags_rqpn by number", "Cqe.grh Cqe.sl"),
    ("in DPDK; the headers name no bit of it", "Cqe.ip_frag Cqe.ip_ext_opts"),
    ("in DPDK; the kernel does not ask for this format", "MiniCqeFlowTag MiniCqeHeaderType"),
    (
        "reserved in both headers; rdma-core's providers/mlx5 names it",
        "ErrorCqe.hw_error_syndrome ErrorCqe.hw_syndrome_type",
    ),
    ("a mask in the kernel's health.c, not in a header", "HealthBuffer.valid HealthBuffer.severity"),
    ("in UCX's ib_mlx5_ifc.h alone", "SetXrqDcParamsEntryIn SetXrqDcParamsEntryOut"),
    ("what all inputs have in common; every command is judged by itself", "InputHeader"),
    ("what all outputs have in common; every command is judged by itself", "OutputHeader"),
    ("ten bits; the headers have 16, and nothing that says so", "EthSeg.inline_hdr_sz"),
    ("a list, which the kernel does not declare; it begins where the structure ends", "RepeatBlockSeg.entries"),
    ("in DPDK", "BsfBasic.p_type"),
    ("in the kernel's lib/aso.h, which is not among its headers", "AsoCtrlSeg"),
    ("in DPDK; the kernel names its byte after it", "Cqe.outer_l3_type"),
    ("rdma-core's providers/mlx5 shifts by number; values are judged", "Cqe.l3_hdr_type"),
    ("bit fields of C in mlx5_cqe64, whose places C does not tell", "ShampoCqe"),
    ("64 plain bytes in the kernel's mlx5_ib, which declares no structure for them", "NodeDesc"),
    ("without a name in the header; its arms are judged", "FlowTableContext.sws_or_hws"),
    ("the union of extended destination and counter, as a counter", "ExtendedFlowCounterList"),
    ("ends where its list starts, which the header counts into its size", "QueryEswFunctionsOut"),
    ("in a union's arm in the header", "QueryQpOut.pas"),
    ("pages, as the header's list of them, which has no size", "QpPasList"),
];

/// Enumerations, or values of one, that no header has, and why.
pub const UNJUDGED_VALUES: &[Group] = &[
    (
        "zero, which the header does not name",
        "MiniCqeFormat.HASH TrailerAssociation.NONE UmrCheck.NONE AtomicMode.NONE HealthSyndrome.NO_ERROR \
         EswFunctionsOpMod.HOST_PARAMS",
    ),
    (
        "in a header inside the kernel's driver, steering/hws",
        "ModifyActionType.INSERT ModifyActionType.REMOVE ModifyActionType.NOP ModifyActionType.REMOVE_WORDS \
         ModifyActionType.ADD_FIELD StcActionType",
    ),
    ("in DPDK; the kernel does not wait", "WqeOpcode.WAIT WqeOpcode.SEND_EN WaitOpmod WaitCondition"),
    ("in DPDK", "MmoOpmod BlockSize EncryptionOrder"),
    ("in the kernel's lib/aso.h, which is not among its headers", "AsoOpmod AsoDataMask AsoCondition"),
    ("in DPDK; the kernel does not ask for this format", "MiniCqeFormat.FTAG_STRIDX MiniCqeFormat.L34H_STRIDX"),
    ("in rdma-core's providers/mlx5 and in DPDK, not in a header they install", "BsfSize BsfType"),
    ("in the kernel's en_accel/ktls_utils.h, which is not among its headers", "TlsRecordTracker TlsAuthState"),
    ("in the kernel's lib/events.h, which is not among its headers", "ModuleStatus ModuleError"),
    ("an enumeration inside the kernel's cmd.c", "DeliveryStatus"),
    ("an enumeration inside the kernel's fw.c", "McqiInfo"),
    ("inside the kernel's ktls_txrx.c", "TlsVersion"),
    ("zero, which the headers do not name", "CompletionMode.CQE_ON_CQE_ERROR"),
    ("used by neither the kernel nor rdma-core", "CompletionMode.CQE_ON_FIRST_CQE_ERROR"),
    ("plain numbers in the kernel's fs_cmd.c", "SetFteOpMod"),
    ("an enumeration inside the kernel's mlx5_ib, cong.c", "CongProtocol"),
];

/// Layout, `Layout.field` or `Values.NAME` that the newest kernel's header has elsewhere than the older one's, and why
/// ours is the newest's. What only grew needs no row.
pub const CHANGED: &[Row] = &[
    ("NicVportContext.allowed_list_size", "12 bits became 16 where four were reserved"),
    ("EtsTcnConfigReg.max_bw_value", "8 bits became 16 where eight were reserved"),
];
