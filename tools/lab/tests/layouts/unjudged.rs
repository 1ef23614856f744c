//! What no header can confirm, and why. A row that is no longer needed, or whose name does not exist, is an error.

/// Name and reason.
pub type Row = (&'static str, &'static str);

/// A reason, and the names it applies to, separated by spaces.
pub type Group = (&'static str, &'static str);

/// The rows of all groups.
pub fn rows(groups: &[Group]) -> Vec<Row> {
    groups.iter().flat_map(|(reason, whats)| whats.split_whitespace().map(|what| (what, *reason))).collect()
}

/// Layouts, or `Layout.field`s, that no header has, and why.
pub const UNJUDGED: &[Group] = &[
    (
        "in DPDK's copy of mlx5_ifc.h, for whose users there are umems; the kernel's and libmlx5's reserve it",
        "CreateCqIn.cq_umem_offset CreateCqIn.cq_umem_id ModifyCqIn.cq_umem_offset ModifyCqIn.cq_umem_id \
         CreateMkeyIn.mkey_umem_id CreateMkeyIn.mkey_umem_offset Cqc.dbr_umem_id",
    ),
    (
        "in DPDK: neither the kernel nor libmlx5 waits",
        "WaitCqSeg SendEnableSeg WaitSeg CmdHcaCap.wait_on_data CmdHcaCap.wait_on_time",
    ),
    (
        "in DPDK: the kernel and libmlx5 reserve the bits of samplers of frames",
        "FlowTablePropLayout.log_max_ft_sampler_num",
    ),
    (
        "in DPDK: the kernel reserves the bits, and libmlx5 asks for the granularity alone",
        "CmdHcaCap2.log_max_num_reserved_qpn CmdHcaCap2.log_reserved_qpn_max_alloc",
    ),
    (
        "in DPDK: neither the kernel nor libmlx5 asks for the least WQE of a striding queue",
        "CmdHcaCap2.log_min_stride_wqe_sz",
    ),
    (
        "commands that DPDK alone sends",
        "QueryMatchSampleInfoIn QueryMatchSampleInfoOut QueryRegexpParamsIn QueryRegexpParamsOut RegexpParams \
         QueryRegexpRegisterIn QueryRegexpRegisterOut",
    ),
    (
        "in DPDK: neither the kernel nor libmlx5 asks for these formats",
        "MiniCqeFlowTag MiniCqeHeaderType Cqc.mini_cqe_res_format_ext CmdHcaCap.mini_cqe_resp_l3_l4_tag \
         CmdHcaCap.mini_cqe_resp_flow_tag",
    ),
    (
        "in DPDK: the kernel and libmlx5 reserve it, or have no name for the bits",
        "Cqe.ip_frag Cqe.ip_ext_opts Cqe.outer_l3_type ErrorCqe.wqe_id ErrorCqe.ib_stride_index ErrorCqe.byte_cnt \
         BsfBasic.p_type CryptoBsf.p_type FlowTableFieldsSupported2.inner_ipv4_ihl \
         FlowTableFieldsSupported2.outer_ipv4_ihl",
    ),
    (
        "rdma-core's test_mlx5_dm_ops.py reads them; the kernel's and libmlx5's headers reserve the bits",
        "DeviceMemCap.increment_size_sup DeviceMemCap.test_and_set_size_sup",
    ),
    ("in UCX's own headers alone", "SetXrqDcParamsEntryIn SetXrqDcParamsEntryOut Qpc.full_handshake"),
    (
        "in FreeBSD's driver alone",
        "CreateQosParaVportIn CreateQosParaVportOut DestroyQosParaVportIn DestroyQosParaVportOut Cqe.lro_timestamp_valid",
    ),
    (
        "in DPDK: the kernel and libmlx5 take it for granted to be 0",
        "PerProtocolNetworkingOffloadCaps.lro_max_msg_sz_mode",
    ),
    (
        "in DPDK, which reads the register as a user: the kernel's headers reserve it",
        "CmdHcaCap.access_register_user MtutcReg.time_stamp_mode MtutcReg.time_stamp_state",
    ),
    ("ten bits; the headers have 16, and nothing that says so", "EthSeg.inline_hdr_sz"),
    (
        "24 bits that the kernel's headers have no mask for; tshark reads them in packets (test `tshark`)",
        "Bth.psn CnpBth.psn Xrceth.xrcsrq",
    ),
    ("one arm of a union of the header, alone", "ExtendedFlowCounterList QpPasList"),
];

/// Enumerations, or single values, that no header has, and why.
pub const UNJUDGED_VALUES: &[Group] = &[
    (
        "zero, which the headers do not name",
        "MiniCqeFormat.HASH TrailerAssociation.NONE UmrCheck.NONE AtomicMode.NONE HealthSyndrome.NO_ERROR \
         EswFunctionsOpMod.HOST_PARAMS CompletionMode.CQE_ON_CQE_ERROR BsfType.SIGNATURE \
         AethSyndrome.ACK",
    ),
    ("on no wire of the kernel's own; tshark reads it in packets (test `tshark`)", "BthService.XRC"),
    ("in DPDK: neither the kernel nor libmlx5 waits", "WqeOpcode.WAIT WqeOpcode.SEND_EN WaitOpmod WaitCondition"),
    (
        "in DPDK: neither the kernel nor libmlx5 asks for it",
        "MiniCqeFormat.FTAG_STRIDX MiniCqeFormat.L34H_STRIDX MmoOpmod.COMP MmoOpmod.DECOMP MmoOpmod.REGEX \
         MmoOpmod.CRYPTO TlsVersion.TLS_1_3",
    ),
    ("in DPDK: the kernel and libmlx5 take the first for granted", "LroMaxMsgSzMode"),
    ("in DPDK: the kernel's headers reserve the bits", "TimestampMode"),
    ("a MiB in DPDK, which uses it; the kernel's wr.c has the number for a GiB", "BlockSize.1MB"),
    ("in the PRM alone: nobody uses it", "CompletionMode.CQE_ON_FIRST_CQE_ERROR CongProtocol.802_1QAU_RP"),
    ("plain numbers in the kernel's fs_cmd.c", "SetFteOpMod"),
    ("plain numbers in the kernel's cm.c", "CmTransport"),
    ("plain numbers in rdma-core's test_mlx5_dm_ops.py", "MemicOperation"),
    ("in drivers of other systems: Linux's fwctl has the number of its query", "Opcode.MODIFY_OTHER_HCA_CAP"),
];

/// Layouts, `Layout.field`s or `Values.NAME`s that differ between the newest kernel's header and the older one's or
/// libmlx5's, and why ours follows the newest. Structures that only grew need no row.
pub const CHANGED: &[Row] = &[
    ("NicVportContext.allowed_list_size", "12 bits became 16 where four were reserved"),
    ("EtsTcnConfigReg.max_bw_value", "8 bits became 16 where eight were reserved"),
    ("QueryQpOut.pas", "libmlx5 does not know of the context's extension"),
    ("Eqc.intr", "8 bits in libmlx5, which has a copy older than both kernels'"),
    ("Mkc.log_page_size", "5 bits in libmlx5, the same"),
    ("PacketReformatContextIn.reformat_type", "3 bits in libmlx5, the same"),
    ("CmdHcaCap.fast_teardown", "libmlx5 has it beside force_teardown, and does not use it"),
];
