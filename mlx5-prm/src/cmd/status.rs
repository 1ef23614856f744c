//! Opcodes and completion statuses.

values! {
    /// A firmware command's number, `opcode`, and its PRM name.
    pub enum Opcode: 16 {
        /// `QUERY_HCA_CAP`.
        QueryHcaCap = 0x100 "QUERY_HCA_CAP",
        /// `QUERY_ADAPTER`.
        QueryAdapter = 0x101 "QUERY_ADAPTER",
        /// `INIT_HCA`.
        InitHca = 0x102 "INIT_HCA",
        /// `TEARDOWN_HCA`.
        TeardownHca = 0x103 "TEARDOWN_HCA",
        /// `ENABLE_HCA`.
        EnableHca = 0x104 "ENABLE_HCA",
        /// `DISABLE_HCA`.
        DisableHca = 0x105 "DISABLE_HCA",
        /// `QUERY_PAGES`.
        QueryPages = 0x107 "QUERY_PAGES",
        /// `MANAGE_PAGES`.
        ManagePages = 0x108 "MANAGE_PAGES",
        /// `SET_HCA_CAP`.
        SetHcaCap = 0x109 "SET_HCA_CAP",
        /// `QUERY_ISSI`.
        QueryIssi = 0x10a "QUERY_ISSI",
        /// `SET_ISSI`.
        SetIssi = 0x10b "SET_ISSI",
        /// `SET_DRIVER_VERSION`.
        SetDriverVersion = 0x10d "SET_DRIVER_VERSION",
        /// `QUERY_SF_PARTITION`.
        QuerySfPartition = 0x111 "QUERY_SF_PARTITION",
        /// `ALLOC_SF`.
        AllocSf = 0x113 "ALLOC_SF",
        /// `DEALLOC_SF`.
        DeallocSf = 0x114 "DEALLOC_SF",
        /// `SUSPEND_VHCA`.
        SuspendVhca = 0x115 "SUSPEND_VHCA",
        /// `RESUME_VHCA`.
        ResumeVhca = 0x116 "RESUME_VHCA",
        /// `QUERY_VHCA_MIGRATION_STATE`.
        QueryVhcaMigrationState = 0x117 "QUERY_VHCA_MIGRATION_STATE",
        /// `SAVE_VHCA_STATE`.
        SaveVhcaState = 0x118 "SAVE_VHCA_STATE",
        /// `LOAD_VHCA_STATE`.
        LoadVhcaState = 0x119 "LOAD_VHCA_STATE",
        /// `CREATE_MKEY`.
        CreateMkey = 0x200 "CREATE_MKEY",
        /// `QUERY_MKEY`.
        QueryMkey = 0x201 "QUERY_MKEY",
        /// `DESTROY_MKEY`.
        DestroyMkey = 0x202 "DESTROY_MKEY",
        /// `QUERY_SPECIAL_CONTEXTS`.
        QuerySpecialContexts = 0x203 "QUERY_SPECIAL_CONTEXTS",
        /// `PAGE_FAULT_RESUME`.
        PageFaultResume = 0x204 "PAGE_FAULT_RESUME",
        /// `ALLOC_MEMIC`.
        AllocMemic = 0x205 "ALLOC_MEMIC",
        /// `DEALLOC_MEMIC`.
        DeallocMemic = 0x206 "DEALLOC_MEMIC",
        /// `MODIFY_MEMIC`.
        ModifyMemic = 0x207 "MODIFY_MEMIC",
        /// `CREATE_EQ`.
        CreateEq = 0x301 "CREATE_EQ",
        /// `DESTROY_EQ`.
        DestroyEq = 0x302 "DESTROY_EQ",
        /// `QUERY_EQ`.
        QueryEq = 0x303 "QUERY_EQ",
        /// `GEN_EQE`.
        GenEqe = 0x304 "GEN_EQE",
        /// `CREATE_CQ`.
        CreateCq = 0x400 "CREATE_CQ",
        /// `DESTROY_CQ`.
        DestroyCq = 0x401 "DESTROY_CQ",
        /// `QUERY_CQ`.
        QueryCq = 0x402 "QUERY_CQ",
        /// `MODIFY_CQ`.
        ModifyCq = 0x403 "MODIFY_CQ",
        /// `CREATE_QP`.
        CreateQp = 0x500 "CREATE_QP",
        /// `DESTROY_QP`.
        DestroyQp = 0x501 "DESTROY_QP",
        /// `RST2INIT_QP`.
        Rst2initQp = 0x502 "RST2INIT_QP",
        /// `INIT2RTR_QP`.
        Init2rtrQp = 0x503 "INIT2RTR_QP",
        /// `RTR2RTS_QP`.
        Rtr2rtsQp = 0x504 "RTR2RTS_QP",
        /// `RTS2RTS_QP`.
        Rts2rtsQp = 0x505 "RTS2RTS_QP",
        /// `SQERR2RTS_QP`.
        Sqerr2rtsQp = 0x506 "SQERR2RTS_QP",
        /// `2ERR_QP`.
        Qp2err = 0x507 "2ERR_QP",
        /// `2RST_QP`.
        Qp2rst = 0x50a "2RST_QP",
        /// `QUERY_QP`.
        QueryQp = 0x50b "QUERY_QP",
        /// `SQD_RTS_QP`.
        SqdRtsQp = 0x50c "SQD_RTS_QP",
        /// `INIT2INIT_QP`.
        Init2initQp = 0x50e "INIT2INIT_QP",
        /// `CREATE_PSV`.
        CreatePsv = 0x600 "CREATE_PSV",
        /// `DESTROY_PSV`.
        DestroyPsv = 0x601 "DESTROY_PSV",
        /// `CREATE_SRQ`.
        CreateSrq = 0x700 "CREATE_SRQ",
        /// `DESTROY_SRQ`.
        DestroySrq = 0x701 "DESTROY_SRQ",
        /// `QUERY_SRQ`.
        QuerySrq = 0x702 "QUERY_SRQ",
        /// `ARM_RQ`.
        ArmRq = 0x703 "ARM_RQ",
        /// `CREATE_XRC_SRQ`.
        CreateXrcSrq = 0x705 "CREATE_XRC_SRQ",
        /// `DESTROY_XRC_SRQ`.
        DestroyXrcSrq = 0x706 "DESTROY_XRC_SRQ",
        /// `QUERY_XRC_SRQ`.
        QueryXrcSrq = 0x707 "QUERY_XRC_SRQ",
        /// `ARM_XRC_SRQ`.
        ArmXrcSrq = 0x708 "ARM_XRC_SRQ",
        /// `CREATE_DCT`.
        CreateDct = 0x710 "CREATE_DCT",
        /// `DESTROY_DCT`.
        DestroyDct = 0x711 "DESTROY_DCT",
        /// `DRAIN_DCT`.
        DrainDct = 0x712 "DRAIN_DCT",
        /// `QUERY_DCT`.
        QueryDct = 0x713 "QUERY_DCT",
        /// `ARM_DCT_FOR_KEY_VIOLATION`.
        ArmDctForKeyViolation = 0x714 "ARM_DCT_FOR_KEY_VIOLATION",
        /// `CREATE_XRQ`.
        CreateXrq = 0x717 "CREATE_XRQ",
        /// `DESTROY_XRQ`.
        DestroyXrq = 0x718 "DESTROY_XRQ",
        /// `QUERY_XRQ`.
        QueryXrq = 0x719 "QUERY_XRQ",
        /// `ARM_XRQ`.
        ArmXrq = 0x71a "ARM_XRQ",
        /// `QUERY_XRQ_DC_PARAMS_ENTRY`.
        QueryXrqDcParamsEntry = 0x725 "QUERY_XRQ_DC_PARAMS_ENTRY",
        /// `SET_XRQ_DC_PARAMS_ENTRY`.
        SetXrqDcParamsEntry = 0x726 "SET_XRQ_DC_PARAMS_ENTRY",
        /// `QUERY_XRQ_ERROR_PARAMS`.
        QueryXrqErrorParams = 0x727 "QUERY_XRQ_ERROR_PARAMS",
        /// `RELEASE_XRQ_ERROR`.
        ReleaseXrqError = 0x729 "RELEASE_XRQ_ERROR",
        /// `MODIFY_XRQ`.
        ModifyXrq = 0x72a "MODIFY_XRQ",
        /// `QUERY_DELEGATED_VHCA`.
        QueryDelegatedVhca = 0x732 "QUERY_DELEGATED_VHCA",
        /// `CREATE_ESW_VPORT`.
        CreateEswVport = 0x733 "CREATE_ESW_VPORT",
        /// `DESTROY_ESW_VPORT`.
        DestroyEswVport = 0x734 "DESTROY_ESW_VPORT",
        /// `QUERY_ESW_FUNCTIONS`.
        QueryEswFunctions = 0x740 "QUERY_ESW_FUNCTIONS",
        /// `QUERY_VPORT_STATE`.
        QueryVportState = 0x750 "QUERY_VPORT_STATE",
        /// `MODIFY_VPORT_STATE`.
        ModifyVportState = 0x751 "MODIFY_VPORT_STATE",
        /// `QUERY_ESW_VPORT_CONTEXT`.
        QueryEswVportContext = 0x752 "QUERY_ESW_VPORT_CONTEXT",
        /// `MODIFY_ESW_VPORT_CONTEXT`.
        ModifyEswVportContext = 0x753 "MODIFY_ESW_VPORT_CONTEXT",
        /// `QUERY_NIC_VPORT_CONTEXT`.
        QueryNicVportContext = 0x754 "QUERY_NIC_VPORT_CONTEXT",
        /// `MODIFY_NIC_VPORT_CONTEXT`.
        ModifyNicVportContext = 0x755 "MODIFY_NIC_VPORT_CONTEXT",
        /// `QUERY_ROCE_ADDRESS`.
        QueryRoceAddress = 0x760 "QUERY_ROCE_ADDRESS",
        /// `SET_ROCE_ADDRESS`.
        SetRoceAddress = 0x761 "SET_ROCE_ADDRESS",
        /// `QUERY_HCA_VPORT_CONTEXT`.
        QueryHcaVportContext = 0x762 "QUERY_HCA_VPORT_CONTEXT",
        /// `MODIFY_HCA_VPORT_CONTEXT`.
        ModifyHcaVportContext = 0x763 "MODIFY_HCA_VPORT_CONTEXT",
        /// `QUERY_HCA_VPORT_GID`.
        QueryHcaVportGid = 0x764 "QUERY_HCA_VPORT_GID",
        /// `QUERY_HCA_VPORT_PKEY`.
        QueryHcaVportPkey = 0x765 "QUERY_HCA_VPORT_PKEY",
        /// `QUERY_VNIC_ENV`.
        QueryVnicEnv = 0x76f "QUERY_VNIC_ENV",
        /// `QUERY_VPORT_COUNTER`.
        QueryVportCounter = 0x770 "QUERY_VPORT_COUNTER",
        /// `ALLOC_Q_COUNTER`.
        AllocQCounter = 0x771 "ALLOC_Q_COUNTER",
        /// `DEALLOC_Q_COUNTER`.
        DeallocQCounter = 0x772 "DEALLOC_Q_COUNTER",
        /// `QUERY_Q_COUNTER`.
        QueryQCounter = 0x773 "QUERY_Q_COUNTER",
        /// `SET_MONITOR_COUNTER`.
        SetMonitorCounter = 0x774 "SET_MONITOR_COUNTER",
        /// `ARM_MONITOR_COUNTER`.
        ArmMonitorCounter = 0x775 "ARM_MONITOR_COUNTER",
        /// `SET_PP_RATE_LIMIT`.
        SetPpRateLimit = 0x780 "SET_PP_RATE_LIMIT",
        /// `QUERY_RATE_LIMIT`.
        QueryRateLimit = 0x781 "QUERY_RATE_LIMIT",
        /// `CREATE_SCHEDULING_ELEMENT`.
        CreateSchedulingElement = 0x782 "CREATE_SCHEDULING_ELEMENT",
        /// `DESTROY_SCHEDULING_ELEMENT`.
        DestroySchedulingElement = 0x783 "DESTROY_SCHEDULING_ELEMENT",
        /// `QUERY_SCHEDULING_ELEMENT`.
        QuerySchedulingElement = 0x784 "QUERY_SCHEDULING_ELEMENT",
        /// `MODIFY_SCHEDULING_ELEMENT`.
        ModifySchedulingElement = 0x785 "MODIFY_SCHEDULING_ELEMENT",
        /// `CREATE_QOS_PARA_VPORT`.
        CreateQosParaVport = 0x786 "CREATE_QOS_PARA_VPORT",
        /// `DESTROY_QOS_PARA_VPORT`.
        DestroyQosParaVport = 0x787 "DESTROY_QOS_PARA_VPORT",
        /// `ALLOC_PD`.
        AllocPd = 0x800 "ALLOC_PD",
        /// `DEALLOC_PD`.
        DeallocPd = 0x801 "DEALLOC_PD",
        /// `ALLOC_UAR`.
        AllocUar = 0x802 "ALLOC_UAR",
        /// `DEALLOC_UAR`.
        DeallocUar = 0x803 "DEALLOC_UAR",
        /// `CONFIG_INT_MODERATION`.
        ConfigIntModeration = 0x804 "CONFIG_INT_MODERATION",
        /// `ACCESS_REG`.
        AccessReg = 0x805 "ACCESS_REG",
        /// `ATTACH_TO_MCG`.
        AttachToMcg = 0x806 "ATTACH_TO_MCG",
        /// `DETACH_FROM_MCG`.
        DetachFromMcg = 0x807 "DETACH_FROM_MCG",
        /// `GET_DROPPED_PACKET_LOG`.
        GetDroppedPacketLog = 0x80a "GET_DROPPED_PACKET_LOG",
        /// `MAD_IFC`.
        MadIfc = 0x50d "MAD_IFC",
        /// `QUERY_MAD_DEMUX`.
        QueryMadDemux = 0x80b "QUERY_MAD_DEMUX",
        /// `SET_MAD_DEMUX`.
        SetMadDemux = 0x80c "SET_MAD_DEMUX",
        /// `NOP`.
        Nop = 0x80d "NOP",
        /// `ALLOC_XRCD`.
        AllocXrcd = 0x80e "ALLOC_XRCD",
        /// `DEALLOC_XRCD`.
        DeallocXrcd = 0x80f "DEALLOC_XRCD",
        /// `ALLOC_TRANSPORT_DOMAIN`.
        AllocTransportDomain = 0x816 "ALLOC_TRANSPORT_DOMAIN",
        /// `DEALLOC_TRANSPORT_DOMAIN`.
        DeallocTransportDomain = 0x817 "DEALLOC_TRANSPORT_DOMAIN",
        /// `QUERY_CONG_STATUS`.
        QueryCongStatus = 0x822 "QUERY_CONG_STATUS",
        /// `MODIFY_CONG_STATUS`.
        ModifyCongStatus = 0x823 "MODIFY_CONG_STATUS",
        /// `QUERY_CONG_PARAMS`.
        QueryCongParams = 0x824 "QUERY_CONG_PARAMS",
        /// `MODIFY_CONG_PARAMS`.
        ModifyCongParams = 0x825 "MODIFY_CONG_PARAMS",
        /// `QUERY_CONG_STATISTICS`.
        QueryCongStatistics = 0x826 "QUERY_CONG_STATISTICS",
        /// `ADD_VXLAN_UDP_DPORT`.
        AddVxlanUdpDport = 0x827 "ADD_VXLAN_UDP_DPORT",
        /// `DELETE_VXLAN_UDP_DPORT`.
        DeleteVxlanUdpDport = 0x828 "DELETE_VXLAN_UDP_DPORT",
        /// `SET_L2_TABLE_ENTRY`.
        SetL2TableEntry = 0x829 "SET_L2_TABLE_ENTRY",
        /// `QUERY_L2_TABLE_ENTRY`.
        QueryL2TableEntry = 0x82a "QUERY_L2_TABLE_ENTRY",
        /// `DELETE_L2_TABLE_ENTRY`.
        DeleteL2TableEntry = 0x82b "DELETE_L2_TABLE_ENTRY",
        /// `SET_WOL_ROL`.
        SetWolRol = 0x830 "SET_WOL_ROL",
        /// `QUERY_WOL_ROL`.
        QueryWolRol = 0x831 "QUERY_WOL_ROL",
        /// `CREATE_LAG`.
        CreateLag = 0x840 "CREATE_LAG",
        /// `MODIFY_LAG`.
        ModifyLag = 0x841 "MODIFY_LAG",
        /// `QUERY_LAG`.
        QueryLag = 0x842 "QUERY_LAG",
        /// `DESTROY_LAG`.
        DestroyLag = 0x843 "DESTROY_LAG",
        /// `CREATE_VPORT_LAG`.
        CreateVportLag = 0x844 "CREATE_VPORT_LAG",
        /// `DESTROY_VPORT_LAG`.
        DestroyVportLag = 0x845 "DESTROY_VPORT_LAG",
        /// `CREATE_TIR`.
        CreateTir = 0x900 "CREATE_TIR",
        /// `MODIFY_TIR`.
        ModifyTir = 0x901 "MODIFY_TIR",
        /// `DESTROY_TIR`.
        DestroyTir = 0x902 "DESTROY_TIR",
        /// `QUERY_TIR`.
        QueryTir = 0x903 "QUERY_TIR",
        /// `CREATE_SQ`.
        CreateSq = 0x904 "CREATE_SQ",
        /// `MODIFY_SQ`.
        ModifySq = 0x905 "MODIFY_SQ",
        /// `DESTROY_SQ`.
        DestroySq = 0x906 "DESTROY_SQ",
        /// `QUERY_SQ`.
        QuerySq = 0x907 "QUERY_SQ",
        /// `CREATE_RQ`.
        CreateRq = 0x908 "CREATE_RQ",
        /// `MODIFY_RQ`.
        ModifyRq = 0x909 "MODIFY_RQ",
        /// `SET_DELAY_DROP_PARAMS`.
        SetDelayDropParams = 0x910 "SET_DELAY_DROP_PARAMS",
        /// `DESTROY_RQ`.
        DestroyRq = 0x90a "DESTROY_RQ",
        /// `QUERY_RQ`.
        QueryRq = 0x90b "QUERY_RQ",
        /// `CREATE_RMP`.
        CreateRmp = 0x90c "CREATE_RMP",
        /// `MODIFY_RMP`.
        ModifyRmp = 0x90d "MODIFY_RMP",
        /// `DESTROY_RMP`.
        DestroyRmp = 0x90e "DESTROY_RMP",
        /// `QUERY_RMP`.
        QueryRmp = 0x90f "QUERY_RMP",
        /// `CREATE_TIS`.
        CreateTis = 0x912 "CREATE_TIS",
        /// `MODIFY_TIS`.
        ModifyTis = 0x913 "MODIFY_TIS",
        /// `DESTROY_TIS`.
        DestroyTis = 0x914 "DESTROY_TIS",
        /// `QUERY_TIS`.
        QueryTis = 0x915 "QUERY_TIS",
        /// `CREATE_RQT`.
        CreateRqt = 0x916 "CREATE_RQT",
        /// `MODIFY_RQT`.
        ModifyRqt = 0x917 "MODIFY_RQT",
        /// `DESTROY_RQT`.
        DestroyRqt = 0x918 "DESTROY_RQT",
        /// `QUERY_RQT`.
        QueryRqt = 0x919 "QUERY_RQT",
        /// `SET_FLOW_TABLE_ROOT`.
        SetFlowTableRoot = 0x92f "SET_FLOW_TABLE_ROOT",
        /// `CREATE_FLOW_TABLE`.
        CreateFlowTable = 0x930 "CREATE_FLOW_TABLE",
        /// `DESTROY_FLOW_TABLE`.
        DestroyFlowTable = 0x931 "DESTROY_FLOW_TABLE",
        /// `QUERY_FLOW_TABLE`.
        QueryFlowTable = 0x932 "QUERY_FLOW_TABLE",
        /// `CREATE_FLOW_GROUP`.
        CreateFlowGroup = 0x933 "CREATE_FLOW_GROUP",
        /// `DESTROY_FLOW_GROUP`.
        DestroyFlowGroup = 0x934 "DESTROY_FLOW_GROUP",
        /// `QUERY_FLOW_GROUP`.
        QueryFlowGroup = 0x935 "QUERY_FLOW_GROUP",
        /// `SET_FLOW_TABLE_ENTRY`.
        SetFlowTableEntry = 0x936 "SET_FLOW_TABLE_ENTRY",
        /// `QUERY_FLOW_TABLE_ENTRY`.
        QueryFlowTableEntry = 0x937 "QUERY_FLOW_TABLE_ENTRY",
        /// `DELETE_FLOW_TABLE_ENTRY`.
        DeleteFlowTableEntry = 0x938 "DELETE_FLOW_TABLE_ENTRY",
        /// `ALLOC_FLOW_COUNTER`.
        AllocFlowCounter = 0x939 "ALLOC_FLOW_COUNTER",
        /// `DEALLOC_FLOW_COUNTER`.
        DeallocFlowCounter = 0x93a "DEALLOC_FLOW_COUNTER",
        /// `QUERY_FLOW_COUNTER`.
        QueryFlowCounter = 0x93b "QUERY_FLOW_COUNTER",
        /// `MODIFY_FLOW_TABLE`.
        ModifyFlowTable = 0x93c "MODIFY_FLOW_TABLE",
        /// `ALLOC_PACKET_REFORMAT_CONTEXT`.
        AllocPacketReformatContext = 0x93d "ALLOC_PACKET_REFORMAT_CONTEXT",
        /// `DEALLOC_PACKET_REFORMAT_CONTEXT`.
        DeallocPacketReformatContext = 0x93e "DEALLOC_PACKET_REFORMAT_CONTEXT",
        /// `QUERY_PACKET_REFORMAT_CONTEXT`.
        QueryPacketReformatContext = 0x93f "QUERY_PACKET_REFORMAT_CONTEXT",
        /// `ALLOC_MODIFY_HEADER_CONTEXT`.
        AllocModifyHeaderContext = 0x940 "ALLOC_MODIFY_HEADER_CONTEXT",
        /// `DEALLOC_MODIFY_HEADER_CONTEXT`.
        DeallocModifyHeaderContext = 0x941 "DEALLOC_MODIFY_HEADER_CONTEXT",
        /// `QUERY_MODIFY_HEADER_CONTEXT`.
        QueryModifyHeaderContext = 0x942 "QUERY_MODIFY_HEADER_CONTEXT",
        /// `FPGA_CREATE_QP`.
        FpgaCreateQp = 0x960 "FPGA_CREATE_QP",
        /// `FPGA_MODIFY_QP`.
        FpgaModifyQp = 0x961 "FPGA_MODIFY_QP",
        /// `FPGA_QUERY_QP`.
        FpgaQueryQp = 0x962 "FPGA_QUERY_QP",
        /// `FPGA_DESTROY_QP`.
        FpgaDestroyQp = 0x963 "FPGA_DESTROY_QP",
        /// `FPGA_QUERY_QP_COUNTERS`.
        FpgaQueryQpCounters = 0x964 "FPGA_QUERY_QP_COUNTERS",
        /// `CREATE_GENERAL_OBJECT`.
        CreateGeneralObject = 0xa00 "CREATE_GENERAL_OBJECT",
        /// `MODIFY_GENERAL_OBJECT`.
        ModifyGeneralObject = 0xa01 "MODIFY_GENERAL_OBJECT",
        /// `QUERY_GENERAL_OBJECT`.
        QueryGeneralObject = 0xa02 "QUERY_GENERAL_OBJECT",
        /// `DESTROY_GENERAL_OBJECT`.
        DestroyGeneralObject = 0xa03 "DESTROY_GENERAL_OBJECT",
        /// `CREATE_UCTX`.
        CreateUctx = 0xa04 "CREATE_UCTX",
        /// `DESTROY_UCTX`.
        DestroyUctx = 0xa06 "DESTROY_UCTX",
        /// `CREATE_UMEM`.
        CreateUmem = 0xa08 "CREATE_UMEM",
        /// `DESTROY_UMEM`.
        DestroyUmem = 0xa0a "DESTROY_UMEM",
        /// `SYNC_STEERING`.
        SyncSteering = 0xb00 "SYNC_STEERING",
        /// `QUERY_VHCA_STATE`.
        QueryVhcaState = 0xb0d "QUERY_VHCA_STATE",
        /// `MODIFY_VHCA_STATE`.
        ModifyVhcaState = 0xb0e "MODIFY_VHCA_STATE",
        /// `PSP_GEN_SPI`.
        PspGenSpi = 0xb10 "PSP_GEN_SPI",
        /// `PSP_ROTATE_KEY`.
        PspRotateKey = 0xb11 "PSP_ROTATE_KEY",
        /// `SYNC_CRYPTO`.
        SyncCrypto = 0xb12 "SYNC_CRYPTO",
        /// `ALLOW_OTHER_VHCA_ACCESS`.
        AllowOtherVhcaAccess = 0xb16 "ALLOW_OTHER_VHCA_ACCESS",
        /// `GENERATE_WQE`.
        GenerateWqe = 0xb17 "GENERATE_WQE",
        /// `QUERY_VUID`.
        QueryVuid = 0xb22 "QUERY_VUID",
        /// `QUERY_DRIVER_VERSION`.
        QueryDriverVersion = 0x10c "QUERY_DRIVER_VERSION",
        /// `QUERY_OTHER_HCA_CAP`.
        QueryOtherHcaCap = 0x10e "QUERY_OTHER_HCA_CAP",
        /// `MODIFY_OTHER_HCA_CAP`.
        ModifyOtherHcaCap = 0x10f "MODIFY_OTHER_HCA_CAP",
        /// `QUERY_RDB`.
        QueryRdb = 0x512 "QUERY_RDB",
        /// `QUERY_PSV`.
        QueryPsv = 0x602 "QUERY_PSV",
        /// `QUERY_DC_CNAK_TRACE`.
        QueryDcCnakTrace = 0x716 "QUERY_DC_CNAK_TRACE",
        /// `QUERY_NVMF_BACKEND_CONTROLLER`.
        QueryNvmfBackendController = 0x722 "QUERY_NVMF_BACKEND_CONTROLLER",
        /// `QUERY_NVMF_NAMESPACE_CONTEXT`.
        QueryNvmfNamespaceContext = 0x728 "QUERY_NVMF_NAMESPACE_CONTEXT",
        /// `QUERY_ADJACENT_FUNCTIONS_ID`.
        QueryAdjacentFunctionsId = 0x730 "QUERY_ADJACENT_FUNCTIONS_ID",
        /// `DELEGATE_VHCA_MANAGEMENT`.
        DelegateVhcaManagement = 0x731 "DELEGATE_VHCA_MANAGEMENT",
        /// `QUERY_BURST_SIZE`.
        QueryBurstSize = 0x813 "QUERY_BURST_SIZE",
        /// `QUERY_DIAGNOSTIC_PARAMS`.
        QueryDiagnosticParams = 0x819 "QUERY_DIAGNOSTIC_PARAMS",
        /// `SET_DIAGNOSTIC_PARAMS`.
        SetDiagnosticParams = 0x820 "SET_DIAGNOSTIC_PARAMS",
        /// `QUERY_DIAGNOSTIC_COUNTERS`.
        QueryDiagnosticCounters = 0x821 "QUERY_DIAGNOSTIC_COUNTERS",
        /// `QUERY_DELAY_DROP_PARAMS`.
        QueryDelayDropParams = 0x911 "QUERY_DELAY_DROP_PARAMS",
        /// `QUERY_AFU`.
        QueryAfu = 0x971 "QUERY_AFU",
        /// `QUERY_CAPI_PEC`.
        QueryCapiPec = 0x981 "QUERY_CAPI_PEC",
        /// `QUERY_UCTX`.
        QueryUctx = 0xa05 "QUERY_UCTX",
        /// `QUERY_UMEM`.
        QueryUmem = 0xa09 "QUERY_UMEM",
        /// `QUERY_NVMF_CC_RESPONSE`.
        QueryNvmfCcResponse = 0xb02 "QUERY_NVMF_CC_RESPONSE",
        /// `QUERY_EMULATED_FUNCTIONS_INFO`.
        QueryEmulatedFunctionsInfo = 0xb03 "QUERY_EMULATED_FUNCTIONS_INFO",
        /// `QUERY_REGEXP_PARAMS`.
        QueryRegexpParams = 0xb05 "QUERY_REGEXP_PARAMS",
        /// `QUERY_REGEXP_REGISTER`.
        QueryRegexpRegister = 0xb07 "QUERY_REGEXP_REGISTER",
        /// `USER_QUERY_XRQ_DC_PARAMS_ENTRY`.
        UserQueryXrqDcParamsEntry = 0xb08 "USER_QUERY_XRQ_DC_PARAMS_ENTRY",
        /// `USER_QUERY_XRQ_ERROR_PARAMS`.
        UserQueryXrqErrorParams = 0xb0a "USER_QUERY_XRQ_ERROR_PARAMS",
        /// `ACCESS_REGISTER_USER`.
        AccessRegisterUser = 0xb0c "ACCESS_REGISTER_USER",
        /// `QUERY_EMULATION_DEVICE_EQ_MSIX_MAPPING`.
        QueryEmulationDeviceEqMsixMapping = 0xb0f "QUERY_EMULATION_DEVICE_EQ_MSIX_MAPPING",
        /// `QUERY_MATCH_SAMPLE_INFO`.
        QueryMatchSampleInfo = 0xb13 "QUERY_MATCH_SAMPLE_INFO",
        /// `QUERY_CRYPTO_STATE`.
        QueryCryptoState = 0xb14 "QUERY_CRYPTO_STATE",
        /// `QUERY_DPA_PARTITION`.
        QueryDpaPartition = 0xb28 "QUERY_DPA_PARTITION",
        /// `QUERY_DPA_PARTITIONS`.
        QueryDpaPartitions = 0xb2a "QUERY_DPA_PARTITIONS",
        /// `POSTPONE_CONNECTED_QP_TIMEOUT`.
        PostponeConnectedQpTimeout = 0xb2e "POSTPONE_CONNECTED_QP_TIMEOUT",
        /// `QUERY_EMULATED_RESOURCES_INFO`.
        QueryEmulatedResourcesInfo = 0xb2f "QUERY_EMULATED_RESOURCES_INFO",
        /// `QUERY_RSV_RESOURCES`.
        QueryRsvResources = 0x8000 "QUERY_RSV_RESOURCES",
        /// `QUERY_MTT`.
        QueryMtt = 0x8001 "QUERY_MTT",
        /// `QUERY_SCHED_QUEUE`.
        QuerySchedQueue = 0x8006 "QUERY_SCHED_QUEUE",
    }

    /// A command's completion status, `status` of every output.
    pub enum CmdStatus: 8 {
        /// Done.
        Ok = 0x0 "OK",
        /// Internal firmware error.
        InternalError = 0x1 "INTERNAL_ERR",
        /// Unknown opcode or op_mod.
        BadOpcode = 0x2 "BAD_OP",
        /// A parameter is out of range, or a reserved field is set.
        BadParameter = 0x3 "BAD_PARAM",
        /// The function is not in the state that the command needs.
        BadSystemState = 0x4 "BAD_SYS_STATE",
        /// A named resource does not exist, or is of the wrong kind.
        BadResource = 0x5 "BAD_RESOURCE",
        /// Another object still uses the resource.
        ResourceBusy = 0x6 "RESOURCE_BUSY",
        /// The function is not enabled yet.
        NotReady = 0x7 "NOT_READY",
        /// A capability is exceeded.
        ExceedsLimit = 0x8 "EXCEED_LIM",
        /// The resource is in a state that forbids the command.
        BadResourceState = 0x9 "BAD_RES_STATE",
        /// The index is out of range.
        BadIndex = 0xa "BAD_INDEX",
        /// No free resources.
        NoResources = 0xf "NO_RESOURCES",
        /// The queue pair is not in the state that the transition needs.
        BadQpState = 0x10 "BAD_QP_STATE",
        /// A MAD was discarded.
        BadPacket = 0x30 "BAD_PKT",
        /// More outstanding CQEs than the new size holds.
        BadSize = 0x40 "BAD_SIZE",
        /// Wrong length of the input.
        BadInputLength = 0x50 "BAD_INPUT_LEN",
        /// The output buffer is too small.
        BadOutputLength = 0x51 "BAD_OUTPUT_LEN",
    }
}

impl CmdStatus {
    /// What it means, in words. PRM "Command Completion Status".
    pub const fn meaning(self) -> &'static str {
        match self {
            CmdStatus::Ok => "done",
            CmdStatus::InternalError => "internal firmware error",
            CmdStatus::BadOpcode => "firmware does not know this opcode or op_mod",
            CmdStatus::BadParameter => "a parameter is out of range or a reserved field is set",
            CmdStatus::BadSystemState => "the function is not in the state that this command needs",
            CmdStatus::BadResource => "a resource it names does not exist or is of the wrong kind",
            CmdStatus::ResourceBusy => "another object still uses the resource",
            CmdStatus::NotReady => "the function is not enabled yet",
            CmdStatus::ExceedsLimit => "a capability is exceeded",
            CmdStatus::BadResourceState => "the state of the resource forbids it",
            CmdStatus::BadIndex => "an index is out of range",
            CmdStatus::NoResources => "no free resources on the card",
            CmdStatus::BadQpState => "the queue pair is not in the state that the transition needs",
            CmdStatus::BadPacket => "a management packet was discarded",
            CmdStatus::BadSize => "more CQEs are outstanding than the new size holds",
            CmdStatus::BadInputLength => "wrong length of the input",
            CmdStatus::BadOutputLength => "the output buffer is too small",
            CmdStatus::Unknown(_) => "unknown status",
        }
    }
}
