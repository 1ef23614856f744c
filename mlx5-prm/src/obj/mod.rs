//! General objects, which `CREATE_GENERAL_OBJECT` makes: one layout per type. PRM "General Objects".

use crate::ctx::AliasContext;
use crate::layout::files::files;
use crate::layout::{Info, Layout};

files! {
    crypto: layouts values;
    definer: layouts;
    queue: layouts;
    rule: layouts values;
    steering: layouts values;
    virtio: layouts values;
    watch: layouts values;
}

values! {
    /// Type of an object. Those from 0xff01 on have commands of their own; the types are used to grant access to other
    /// functions. PRM `general_obj_in_cmd_hdr.obj_type`.
    pub enum ObjType: 16 {
        /// Steering memory.
        SwIcm = 0x0008 "SW_ICM",
        /// A flow meter, before those of [`FlowMeterAso`](Self::FlowMeterAso). Of libmlx5.
        FlowMeter = 0x000a "FLOW_METER",
        /// A Geneve option.
        GeneveTlvOpt = 0x000b "GENEVE_TLV_OPT",
        /// An encryption key.
        EncryptionKey = 0x000c "ENCRYPTION_KEY",
        /// A virtio queue.
        VirtioNetQ = 0x000d "VIRTIO_NET_Q",
        /// An IPsec security association.
        Ipsec = 0x0013 "IPSEC",
        /// A match definer.
        MatchDefiner = 0x0018 "MATCH_DEFINER",
        /// Counters of a virtio queue.
        VirtioQCounters = 0x001c "VIRTIO_Q_COUNTERS",
        /// A login that lets keys be used. Of libmlx5.
        CryptoLogin = 0x001f "CRYPTO_LOGIN",
        /// A sampler.
        Sampler = 0x0020 "SAMPLER",
        /// Arguments of actions.
        HeaderModifyArgument = 0x0023 "HEADER_MODIFY_ARGUMENT",
        /// Flow meters.
        FlowMeterAso = 0x0024 "FLOW_METER_ASO",
        /// Bits that the first packet sets. Of libmlx5.
        AsoFirstHit = 0x0025 "ASO_FIRST_HIT",
        /// A scheduling element. Of libmlx5.
        SchedulingElement = 0x0026 "SCHEDULING_ELEMENT",
        /// A MACsec security association.
        Macsec = 0x0027 "MACSEC",
        /// Numbers of queue pairs that none will get. Of libmlx5.
        ReservedQpn = 0x002c "RESERVED_QPN",
        /// States of connections. Of libmlx5.
        AsoCt = 0x0031 "ASO_CT",
        /// The queue pair for an address. Of libmlx5.
        AvQpMapping = 0x003a "AV_QP_MAPPING",
        /// What rules do.
        Stc = 0x0040 "STC",
        /// A table of rules.
        Rtc = 0x0041 "RTC",
        /// Entries of rules.
        Ste = 0x0042 "STE",
        /// Actions without arguments.
        ModifyHdrPattern = 0x0043 "MODIFY_HDR_PATTERN",
        /// A page tracker.
        PageTrack = 0x0046 "PAGE_TRACK",
        /// A key of keys.
        IntKek = 0x0047 "INT_KEK",
        /// Control over RDMA devices: an object without fields.
        RdmaCtrl = 0x0053 "RDMA_CTRL",
        /// Watches PCI Express.
        PcieCongEvent = 0x0058 "PCIE_CONG_EVENT",
        /// A memory key.
        Mkey = 0xff01 "MKEY",
        /// A queue pair.
        Qp = 0xff02 "QP",
        /// A protection signature value.
        Psv = 0xff03 "PSV",
        /// A receive memory pool.
        Rmp = 0xff04 "RMP",
        /// A shared receive queue of an XRC domain.
        XrcSrq = 0xff05 "XRC_SRQ",
        /// A receive queue.
        Rq = 0xff06 "RQ",
        /// A send queue.
        Sq = 0xff07 "SQ",
        /// A transport interface receive.
        Tir = 0xff08 "TIR",
        /// A transport interface send.
        Tis = 0xff09 "TIS",
        /// A dynamically connected target.
        Dct = 0xff0a "DCT",
        /// An extended shared receive queue.
        Xrq = 0xff0b "XRQ",
        /// A table of receive queues.
        Rqt = 0xff0e "RQT",
        /// A flow counter.
        FlowCounter = 0xff0f "FLOW_COUNTER",
        /// A completion queue.
        Cq = 0xff10 "CQ",
        /// A flow table of another function.
        FtAlias = 0xff15 "FT_ALIAS",
    }
}

impl ObjType {
    /// The layout of the object's context, for a type of general objects.
    pub const fn layout(self) -> Option<&'static Info> {
        Some(match self {
            ObjType::SwIcm => &SwIcm::INFO,
            ObjType::GeneveTlvOpt => &GeneveTlvOption::INFO,
            ObjType::FlowMeter => &FlowMeter::INFO,
            ObjType::EncryptionKey => &EncryptionKeyObj::INFO,
            ObjType::VirtioNetQ => &VirtioNetQObject::INFO,
            ObjType::Ipsec => &IpsecObj::INFO,
            ObjType::MatchDefiner => &MatchDefiner::INFO,
            ObjType::VirtioQCounters => &VirtioQCounters::INFO,
            ObjType::CryptoLogin => &CryptoLoginObj::INFO,
            ObjType::SchedulingElement => &SchedElem::INFO,
            ObjType::AvQpMapping => &AvQpMapping::INFO,
            ObjType::Sampler => &SamplerObj::INFO,
            ObjType::HeaderModifyArgument => &ModifyHeaderArg::INFO,
            ObjType::FlowMeterAso => &FlowMeterAsoObj::INFO,
            ObjType::Macsec => &MacsecOffloadObj::INFO,
            ObjType::Stc => &Stc::INFO,
            ObjType::Rtc => &Rtc::INFO,
            ObjType::Ste => &Ste::INFO,
            ObjType::ModifyHdrPattern => &HeaderModifyPatternIn::INFO,
            ObjType::PageTrack => &PageTrack::INFO,
            ObjType::IntKek => &IntKekObj::INFO,
            ObjType::PcieCongEvent => &PcieCongEventObj::INFO,
            ObjType::FtAlias => &AliasContext::INFO,
            _ => return None,
        })
    }
}
