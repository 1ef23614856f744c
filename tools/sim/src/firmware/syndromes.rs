//! Why a command was refused: every syndrome of this firmware, its status, and the reason in words. PRM "Command
//! Completion Status".
//!
//! The numbers are this model's own and stable. Syndromes of real cards differ between firmware versions and are not
//! published. The upper half is always [`PREFIX`], so a syndrome of the model can be recognised.

use mlx5_prm::cmd::CmdStatus;

/// The upper half of every syndrome of this model.
pub const PREFIX: u32 = 0x51e0;

macro_rules! syndromes {
    ($( $number:literal $Name:ident $status:ident $reason:literal, )*) => {
        /// A reason to refuse a command.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Syndrome {
            $( #[doc = $reason] $Name, )*
        }

        impl Syndrome {
            /// Every syndrome.
            pub const ALL: &'static [Syndrome] = &[ $( Syndrome::$Name ),* ];

            /// The number in `syndrome` of the output.
            pub const fn number(self) -> u32 {
                PREFIX << 16 | match self { $( Syndrome::$Name => $number ),* }
            }

            /// The status returned with it.
            pub const fn status(self) -> CmdStatus {
                match self { $( Syndrome::$Name => CmdStatus::$status ),* }
            }

            /// The reason in words.
            pub const fn reason(self) -> &'static str {
                match self { $( Syndrome::$Name => $reason ),* }
            }
        }
    };
}

syndromes! {
    // The command as such.
    0x0001 UnknownOpcode BadOpcode "no such command",
    0x0002 UnknownOpMod BadOpcode "the command has no such op_mod",
    0x0003 InputTooShort BadInputLength "the input is shorter than the fixed part of a command with a list, or than 16 bytes",
    0x0004 InputTooLong BadInputLength "the input is longer than the command, and what follows is not zero",
    0x0005 InputListLength BadInputLength "the list after the fixed part is not as long as the command states",
    0x0006 OutputTooShort BadOutputLength "no room for the output",
    0x0007 ReservedSet BadParameter "a reserved field is set",
    0x0008 NoUserContext BadParameter "uid names no user context",
    0x000c RawSend BadParameter "CREATE_SQ: the user context was created without RAW_TX in its cap",
    0x000b NotForUsers BadParameter "the command is reserved to the driver; user contexts may not send it",
    0x0009 OtherFunction BadParameter "the command is for another function, and this function does not manage others",
    0x000a InternalFailure InternalError "internal firmware error",

    // The function's state.
    0x0101 NotEnabled NotReady "the function is not enabled: ENABLE_HCA comes first",
    0x0102 NotInitialized BadSystemState "the HCA is not initialised: INIT_HCA comes first",
    0x0103 AlreadyEnabled BadSystemState "the function is enabled already",
    0x0104 AlreadyInitialized BadSystemState "the command must come before INIT_HCA",
    0x0105 StillInitialized BadSystemState "the HCA is initialised: TEARDOWN_HCA comes first",
    0x0106 BootPagesMissing BadSystemState "boot pages are missing: QUERY_PAGES op_mod 1, then MANAGE_PAGES",
    0x0107 InitPagesMissing BadSystemState "init pages are missing: QUERY_PAGES op_mod 2, then MANAGE_PAGES",
    0x0108 UnknownIssi BadParameter "SET_ISSI: not in supported_issi",
    0x0109 UnknownTeardownProfile BadParameter "TEARDOWN_HCA: no such profile, or not announced",

    // Capabilities.
    0x0201 UnknownCapabilityPage BadParameter "no such capability page, or not available on this function",
    0x0202 CapabilityAboveMaximum BadParameter "SET_HCA_CAP: a capability is above its maximum",
    0x0204 RateIndex BadParameter "the index of a rate is not below packet_pacing_rate_table_size",
    0x0205 RateRange BadParameter "rate_limit is not from packet_pacing_min_rate to packet_pacing_max_rate",
    0x0203 CapabilityNotAnnounced BadParameter "the field needs a capability that the function does not announce",

    // Pages.
    0x0301 PageCount BadParameter "MANAGE_PAGES: input_num_entries does not match the list",
    0x0302 PageMisaligned BadParameter "MANAGE_PAGES: an address is not page-aligned",
    0x0303 PageGivenTwice BadParameter "MANAGE_PAGES: an address was given already",
    0x0304 PageUnreachable BadParameter "MANAGE_PAGES: an address cannot be reached by DMA",
    0x0305 PagesRefused NoResources "the driver did not give the pages that the object needs",
    0x0306 PagesUnasked NoResources "the object needs pages, and no EQ is subscribed to page requests",

    // Numbers of objects.
    0x0401 NoSuchPd BadResource "no such protection domain",
    0x0402 NoSuchUar BadResource "no such UAR page",
    0x0403 NoSuchUmem BadResource "no such umem",
    0x0404 NoSuchMkey BadResource "no such memory key",
    0x0405 NoSuchEq BadResource "no such event queue",
    0x0406 NoSuchCq BadResource "no such completion queue",
    0x0407 NoSuchQp BadResource "no such queue pair",
    0x0408 NoSuchTransportDomain BadResource "no such transport domain",
    0x0409 NoSuchCounter BadResource "no such queue counter",
    0x040a NoSuchXrcd BadResource "no such XRC domain",
    0x040b NoSuchSrq BadResource "no such shared receive queue of this kind",
    0x040c NoSuchGeneralObject BadResource "no such general object of this type",

    0x044a NoSuchSq BadResource "no such send queue",
    0x044b NoSuchRq BadResource "no such receive queue",
    0x044c NoSuchTis BadResource "no such TIS",
    0x044d NoSuchTir BadResource "no such TIR",
    0x044e NoSuchRqt BadResource "no such RQT",
    0x044f NoSuchFlowTable BadResource "no such flow table",
    0x0450 NoSuchFlowGroup BadResource "no such flow group in the table",
    0x0451 NoSuchFlowEntry BadResource "no entry at flow_index",
    0x0452 NoSuchFlowCounter BadResource "no such flow counter",
    0x0453 NoSuchModifyHeader BadResource "no such modify header context for tables of this type",
    0x0455 NoSuchRate BadResource "no rate is set at the index, or it is another user context's; index 0 is no limit's",
    0x0454 NoSuchPacketReformat BadResource "no such packet reformat context",

    // Objects in use.
    0x0501 PdInUse ResourceBusy "memory keys or queue pairs use the protection domain",
    0x0502 UarInUse ResourceBusy "queues use the UAR page",
    0x0503 UmemInUse ResourceBusy "objects lie in the umem",
    0x0504 EqInUse ResourceBusy "completion queues report to the event queue",
    0x0505 CqInUse ResourceBusy "queue pairs complete to the completion queue",
    0x0506 CounterInUse ResourceBusy "queue pairs count on the queue counter",
    0x0507 XrcdInUse ResourceBusy "shared receive queues or queue pairs use the XRC domain",
    0x0509 UserContextInUse ResourceBusy "the user context has objects",
    0x0508 SrqInUse ResourceBusy "queue pairs take their receives from the shared receive queue",

    0x0547 TransportDomainInUse ResourceBusy "TISs or TIRs are in the transport domain",
    0x0548 TisInUse ResourceBusy "send queues use the TIS",
    0x0549 RqInUse ResourceBusy "a TIR or an RQT leads to the receive queue",
    0x054a RqtInUse ResourceBusy "a TIR leads to the RQT",
    0x054b TirInUse ResourceBusy "flow entries lead to the TIR",
    0x054c FlowTableInUse ResourceBusy "the flow table has groups, or another one or a sampler leads to it",
    0x054d FlowGroupInUse ResourceBusy "the flow group has entries",
    0x054e FlowCounterInUse ResourceBusy "flow entries count on the flow counter",
    0x0552 ModifyHeaderInUse ResourceBusy "flow entries use the modify header context",
    0x0553 PacketReformatInUse ResourceBusy "flow entries use the packet reformat context",

    // No more of a kind.
    0x0601 TooManyPds ExceedsLimit "more protection domains than log_max_pd allows",
    0x0602 TooManyUars ExceedsLimit "no free UAR page in BAR 0",
    0x0603 TooManyUmems ExceedsLimit "more umems than log_max_umem allows",
    0x0604 TooManyMkeys ExceedsLimit "more memory keys than log_max_mkey allows",
    0x0605 TooManyEqs ExceedsLimit "more event queues than max_num_eqs allows",
    0x0606 TooManyCqs ExceedsLimit "more completion queues than log_max_cq allows",
    0x0607 TooManyQps ExceedsLimit "more queue pairs than log_max_qp allows",
    0x0608 TooManyTransportDomains ExceedsLimit "more transport domains than log_max_transport_domain allows",
    0x0609 TooManyCounters ExceedsLimit "more queue counters than max_qp_cnt allows",
    0x060a TooManyXrcds ExceedsLimit "more XRC domains than log_max_xrcd allows",
    0x060c TooManyUserContexts ExceedsLimit "more user contexts than log_max_uctx allows",
    0x060b TooManySrqs ExceedsLimit "more shared receive queues than log_max_srq or log_max_rmp allows",
    0x060d TooManyReservedQpns ExceedsLimit "more reserved queue pair numbers than log_max_num_reserved_qpn allows",
    0x060e TooManyGeneveOptions ExceedsLimit "more GENEVE options than max_geneve_tlv_options allows",

    0x064a TooManySqs ExceedsLimit "more send queues than log_max_sq allows",
    0x064b TooManyRqs ExceedsLimit "more receive queues than log_max_rq allows",
    0x064c TooManyTiss ExceedsLimit "more TISs than log_max_tis allows",
    0x064d TooManyTirs ExceedsLimit "more TIRs than log_max_tir allows",
    0x064e TooManyRqts ExceedsLimit "more RQTs than log_max_rqt allows",
    0x064f TooManyFlowTables ExceedsLimit "more flow tables than log_max_ft_num allows",
    0x0650 TooManyFlowCounters ExceedsLimit "more flow counters than max_flow_counter allows",
    0x0651 TooManyFlowEntries ExceedsLimit "more flow entries than log_max_flow allows",
    0x0652 TooManyModifyHeaders ExceedsLimit "more modify header contexts than log_max_modify_header_context allows",
    0x0653 TooManyPacketReformats ExceedsLimit "more packet reformat contexts than log_max_packet_reformat_context allows",

    // Memory of an object.
    0x0701 PageSize BadParameter "log_page_size is too small or too large",
    0x0702 AddressMisaligned BadParameter "a page address is not aligned to the page size",
    0x0703 MemoryTooSmall BadParameter "fewer pages than the object needs",
    0x0704 OffsetTooLarge BadParameter "the offset is past the end of the memory, or misaligned",
    0x0705 DoorbellMisaligned BadParameter "dbr_addr is not aligned to 8 bytes",
    0x0706 DoorbellOutside BadParameter "dbr_addr is past the end of its umem",
    0x0707 UmemEmpty BadParameter "the umem has no pages",

    // Memory keys.
    0x0801 AccessMode BadParameter "access_mode: PA, MTT, KLMS, KSM and MEMIC are supported",
    0x0802 MkeyLength BadParameter "the key's length is zero and it is not MEMIC, overflows, or length64 is set and it is not PA, KSM or all absent",
    0x0803 TranslationsTooFew BadParameter "fewer translations than the key's length needs",
    0x0804 TranslationsOfPa BadParameter "a PA key has no translations",
    0x0805 TranslationCount BadInputLength "translations_octword_actual_size does not match the input's length",
    0x0806 TranslationRoom BadParameter "the key's translations_octword_size has no room for its translations",
    0x0807 KlmList ExceedsLimit "translations_octword_size is above log_max_klm_list_size",
    0x0808 KeyPattern BadParameter "a pattern of keys whose bcount_per_cycle is not the sum of its entries, or zero",
    0x080a MkeyRoom ExceedsLimit "translations_octword_size is above what a key of UMR can have",
    0x080b TranslationRights BadParameter "a translation has bits 11:0, which are rights if pg_access is set, and reserved otherwise",

    0x0809 NoSuchPageFault BadParameter "the token is of no page fault",

    // Event queues.
    0x0901 EqSize ExceedsLimit "log_eq_size is above log_max_eq_sz",
    0x0902 EqVector BadParameter "intr is not one of the function's MSI-X vectors",
    0x0903 EventTaken BadParameter "another EQ is already subscribed to an event type of event_bitmask",

    // Completion queues.
    0x0a01 CqSize ExceedsLimit "log_cq_size is above log_max_cq_sz",
    0x0a02 CqeSize BadParameter "cqe_sz: 64 bytes, 128 bytes, or 128 padded where cqe_128_always is announced",
    0x0a03 CqResize BadParameter "MODIFY_CQ: cq_resize is not announced",
    0x0a04 CqModify BadParameter "MODIFY_CQ: the select has a bit of what cannot be changed, or a resize not log_cq_size's",
    0x0a05 CqOverrun BadResourceState "the completion queue is in error",
    0x0a06 CqResizeRoom BadResourceState "MODIFY_CQ: no room in the old ring, or too little in the new, for what is not consumed",

    // Queue pairs.
    0x0b01 Service BadParameter "st: no such service, or not announced",
    0x0b02 QpSize ExceedsLimit "log_sq_size or log_rq_size is above log_max_qp_sz",
    0x0b03 RqStride ExceedsLimit "log_rq_stride is above max_wqe_sz_rq",
    0x0b04 RqType BadParameter "rq_type: neither a regular, a shared nor a zero-length receive queue",
    0x0b05 Migration BadParameter "pm_state must be MIGRATED: there is no path migration on Ethernet",
    0x0b06 InputQpn BadParameter "input_qpn must be zero",
    0x0b07 QpFeature BadParameter "qpc asks for a feature that the function does not announce",
    0x0b08 NoQueues BadParameter "the queue pair has neither a send nor a receive queue",
    0x0b09 MessageLimit ExceedsLimit "log_msg_max is above the capability",

    0x0b0a GsiTaken ResourceBusy "queue pair 1 (general services) exists already",

    // Multicast groups.
    0x0b41 GroupService BadParameter "only a UD queue pair can be in a multicast group",
    0x0b42 GroupAddress BadParameter "multicast_gid is not a multicast address",
    0x0b43 GroupMember BadParameter "the queue pair is in that group already",
    0x0b44 GroupRoom ExceedsLimit "more groups than log_max_mcg, or more queue pairs in one than max_qp_mcg",
    0x0b45 NotInGroup BadParameter "the queue pair is not in that group",
    0x0b46 QpInGroup ResourceBusy "the queue pair is in a multicast group",

    // Shared receive queues.
    0x1001 SrqState BadResourceState "a shared receive queue is always in state RDY",
    0x1002 SrqSize ExceedsLimit "the shared receive queue's size is above log_max_srq_sz",
    0x1003 SrqLimit BadParameter "lwm is above the size of the shared receive queue",

    // Dynamically connected targets.
    0x1041 NoSuchDct BadResource "no such dynamically connected target",
    0x1042 TooManyDcts NoResources "no dynamically connected target is free",
    0x1043 DctFeature BadParameter "dctc asks for a feature that the function does not announce",
    0x1044 DctState BadResourceState "the dynamically connected target is drained already",
    0x1045 DctNotDrained BadResourceState "DRAIN_DCT comes before DESTROY_DCT",

    // General objects.
    0x1301 ObjectType BadParameter "obj_type is not one of general_obj_types",
    0x1302 Alias BadParameter "alias_object: there are no aliases of other functions' objects",
    0x1303 ReservedQpnRange BadParameter "log_obj_range is not log_reserved_qpn_granularity, which is all that one object may have",
    0x1304 ObjectRange BadParameter "log_obj_range is not 0: objects of this type are made one by one",
    0x1305 GeneveOptionLength BadParameter "option_data_length is above max_geneve_tlv_option_data_len",
    0x1306 GeneveOptionEmpty BadParameter "option_data_length is 0: there would be no data to match",
    0x1307 FlowMeterRange BadParameter "log_obj_range is not from log_meter_aso_granularity to log_meter_aso_max_alloc",
    0x1308 FlowMeterInUse ResourceBusy "flow entries run a meter of the object",
    0x1309 TooManyFlowMeters ExceedsLimit "more flow meters than log_max_num_meter_aso allows",
    0x130a FlowMetering BadParameter "execute_aso is to name one flow meter, and a register c that gets the colour",
    0x130b SampleRatio BadParameter "sample_ratio is 0: one of how many frames is to be sampled?",
    0x130c TooManySamplers ExceedsLimit "more samplers for tables of the type than log_max_ft_sampler_num allows",
    0x130d SamplerInUse ResourceBusy "flow entries lead to the sampler",

    // State changes of queue pairs.
    0x0c01 WrongState BadQpState "the queue pair is not in the state that the transition starts from",
    0x0c02 OptParamMask BadParameter "opt_param_mask has a bit that the transition does not allow",
    0x0c03 Mtu BadParameter "mtu is not one of 256, 512, 1024, 2048, 4096 bytes",
    0x0c04 ReadsResponder ExceedsLimit "log_rra_max is above log_max_ra_res_qp",
    0x0c05 ReadsRequester ExceedsLimit "log_sra_max is above log_max_ra_req_qp",
    0x0c06 PortNumber BadParameter "vhca_port_num is not the function's port",
    0x0c07 SourceAddress BadIndex "src_addr_index is past the end of the GID table, or its entry is empty",
    0x0c08 PkeyIndex BadIndex "pkey_index must be 0: the P_Key table has one entry on Ethernet",
    0x0c09 Atomics BadParameter "rae is set, but atomic is not announced",
    0x0c0a RemoteMac BadParameter "rmac is zero or a multicast address",
    0x0c0b AlternatePath BadParameter "an alternate path is given, but there is no path migration on Ethernet",
    0x0c0c PortMtu BadParameter "mtu, with its headers, does not fit the port's (PMTU)",
    0x0c0d RoceDisabled BadParameter "roce_en of the vport is not set, or the roce capability was cleared",
    0x0c0e AtomicMode BadParameter "rae is set, but atomic_mode is not one of the announced sizes (atomic_size_qp)",
    0x0c0f GsiLimits BadParameter "mtu above 256 bytes or log_msg_max above 8, but management datagrams have 256 bytes",

    // Vport.
    0x0d01 OtherVport BadParameter "other_vport is set, but the function manages no other vports",
    0x0d02 VportMtu BadParameter "mtu is not between 68 and 10000",
    0x0d03 VportList ExceedsLimit "more addresses than the vport's list holds",
    0x0d04 VportListType BadParameter "allowed_list_type: no such list",
    0x0d05 VportAdminState BadParameter "admin_state: 0 down, 1 up, 2 auto",
    0x0d06 VportListAddress BadParameter "the list mixes unicast and multicast addresses, or has an invalid one",
    0x0d07 PkeyTable BadIndex "pkey_index must be 0: the P_Key table has one entry on Ethernet",
    0x0d08 PkeyPort BadParameter "port_num is not the function's port",
    0x0d09 NotEthernet BadOpcode "the port is InfiniBand: it has no NIC vport context",
    0x0d0a NotInfiniband BadOpcode "the port is Ethernet: it has no InfiniBand vport context",

    // The L2 table.
    0x0d41 NoL2Table BadOpcode "the function does not manage the e-switch: it has no L2 table",
    0x0d42 L2Index BadIndex "table_index is past the end of the L2 table, or its entry is empty",
    0x0d43 L2Mac BadParameter "mac_address is zero or a multicast address",
    0x0d44 L2Vlan BadParameter "vlan_valid or vlan is set: the L2 table matches MAC addresses only",

    // Memory on the card.
    0x0d61 MemicSize BadParameter "memic_size is 0, not a multiple of 64, or above max_memic_size",
    0x0d62 MemicAlignment BadParameter "log_memic_addr_alignment is above log_max_memic_addr_alignment",
    0x0d63 MemicRange BadParameter "the range is not whole pages of device memory, or shorter than memic_size",
    0x0d64 MemicTaken NoResources "memory in the range is already allocated",
    0x0d65 NoSuchMemic BadResource "no such ALLOC_MEMIC allocation",
    0x0d66 MemicInUse ResourceBusy "a memory key or an operation's address uses the device memory",
    0x0d67 MemicOperation BadParameter "the operation is not in memic_operations",
    0x0d68 MemicOperationThere BadParameter "the memory has an address for this operation already",
    0x0d69 NoSuchMemicOperation BadResource "the memory has no address for this operation",
    0x0d6a MemicOpMod BadParameter "op_mod is neither ALLOC nor DEALLOC",

    // RoCE addresses.
    0x0e01 RoceIndex BadIndex "roce_address_index is past the end of the GID table",
    0x0e02 RoceVersion BadParameter "roce_version: only v2 is supported",
    0x0e03 RoceL3Type BadParameter "roce_l3_type does not fit the address",
    0x0e04 RoceMac BadParameter "the source MAC is zero or a multicast address",

    // Ethernet queues.
    0x1101 WqType BadParameter "wq_type: only a cyclic work queue is supported",
    0x1102 WqFeature BadParameter "the context asks for a feature that the function does not announce",
    0x1103 WqSize ExceedsLimit "log_wq_sz is above log_max_wq_sz",
    0x1104 WqStride ExceedsLimit "log_wq_stride is not within log_min_stride_sz and log_max_stride_sz",
    0x1105 QueueState BadResourceState "the queue is not in the state that the command gives, or is created in a state other than RST",
    0x1106 QueueTransition BadResourceState "no such state, or not reachable from the current state",
    0x1107 RqtSize ExceedsLimit "rqt_actual_size is 0 or above rqt_max_size, or that is above log_max_rqt_size",
    0x1108 TirDispatch BadParameter "disp_type is neither direct nor indirect",
    0x1109 TirHash BadParameter "rx_hash_fn or selected_fields: not supported",
    0x110a LroSize BadParameter "packet_merge_mask is set, but lro_max_ip_payload_size is 0",
    0x110b LroTimeout BadParameter "lro_timeout_period_usecs is not one of lro_timer_supported_periods",
    0x110c TooManyVxlanPorts NoResources "max_vxlan_udp_ports ports are ports of VXLAN already",
    0x110d NoSuchVxlanPort BadParameter "the port is not one of VXLAN",
    0x110e StridingWqeSize BadParameter "the strides of a WQE have fewer bytes than log_min_stride_wqe_sz",

    // Flow tables.
    0x1201 FlowTableType BadParameter "table_type: only NIC_RX and NIC_TX are supported",
    0x1202 FlowTableLevel BadParameter "level is above max_ft_level, or leads to a table or a sampler that is not of a higher level",
    0x1203 FlowTableSize ExceedsLimit "log_size is above log_max_ft_size",
    0x1204 FlowTableMiss BadParameter "table_miss_action is neither default nor forward",
    0x1205 FlowGroupRange BadParameter "the group's range is empty, past the table's end, or overlaps another group's",
    0x1206 FlowCriteria BadParameter "match_criteria has a field that ft_field_support does not announce",
    0x1207 FlowEntryTaken BadParameter "flow_index already has an entry",
    0x1208 FlowEntryRange BadIndex "flow_index is not in the group's range",
    0x1209 FlowAction BadParameter "action must be one of drop, forward and, in NIC_TX, allow, with actions that the tables of this type announce",
    0x120a FlowDestinations BadParameter "the destinations or counters do not fit the action, exceed the announced number, or have an unknown type",
    0x120b ModifyHeaderCount BadParameter "num_of_actions is 0, or above max_modify_header_actions",
    0x120c ModifyHeaderAction BadParameter "an action is none of set, add and copy, or its field or bits are unknown",
    0x120d ReformatType BadParameter "reformat_type: only L2_TO_VXLAN, L2_TO_NVGRE, L2_TO_L2_TUNNEL, L2_TO_L3_TUNNEL and L3_TUNNEL_TO_L2 are supported",
    0x120e ReformatSize BadParameter "reformat_data_size is 0 or above max_encap_header_size, or for L3_TUNNEL_TO_L2 neither 14 nor 18",

    // Registers.
    0x0f01 UnknownRegister BadParameter "ACCESS_REGISTER: no such register",
    0x0f02 RegisterReadOnly BadParameter "ACCESS_REGISTER: the register, or this value of it, cannot be written",
    0x0f03 RegisterPort BadParameter "ACCESS_REGISTER: local_port is not the function's port",
    0x0f04 PortMtuRange BadParameter "PMTU: admin_mtu is not between 68 and max_mtu",
    0x0f06 CounterGroup BadParameter "PPCNT, MPCNT: no such group of counters",
    0x0f07 ClockAdjustment BadParameter "the operation is unknown, or sets, moves or steers the real-time clock by more than it allows",
    0x0f08 NoSuchComponent BadParameter "ACCESS_REGISTER: component_index must be 0, the only component",
    0x0f09 ComponentInfo BadParameter "ACCESS_REGISTER: MCQI has only the running VERSION",
}

/// The syndrome with that number, as it stands in an output.
pub fn lookup(number: u32) -> Option<Syndrome> {
    Syndrome::ALL.iter().copied().find(|syndrome| syndrome.number() == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_syndrome_has_a_number_of_its_own() {
        for (at, syndrome) in Syndrome::ALL.iter().enumerate() {
            assert_eq!(lookup(syndrome.number()), Some(*syndrome));
            assert!(
                Syndrome::ALL[at + 1..].iter().all(|other| other.number() != syndrome.number()),
                "{syndrome:?} shares its number"
            );
            assert_ne!(syndrome.status(), CmdStatus::Ok);
        }
        assert_eq!(lookup(0), None);
    }
}
