//! Scheduling elements and rate limits.

use crate::layout::{Info, Layout};

layout! {
    /// A scheduling element. `element_type` selects `element_attributes`. PRM `scheduling_context`.
    pub struct SchedulingContext: 0x40, "mlx5_ifc_scheduling_context_bits" {
        0x00 [31:24] element_type: u8 as ElementType,
        0x04 element_attributes: ElementAttributes where attributes,
        0x08 [31:0] parent_element_id: u32,
        0x14 [31:0] bw_share: u32,
        0x18 [31:0] max_average_bw: u32,
        0x1c [31:0] max_bw_obj_id: u32,
    }

    /// What the element schedules. PRM `element_attributes`.
    pub union ElementAttributes: 0x4, "mlx5_ifc_element_attributes_bits" {
        0x00 tsar: TsarElement,
        0x00 vport: VportElement,
        0x00 vport_tc: VportTcElement,
    }

    /// A transmit scheduling arbiter. PRM `tsar_element`.
    pub struct TsarElement: 0x4, "mlx5_ifc_tsar_element_bits" {
        0x00 [31:28] traffic_class: u8,
        0x00 [23:16] tsar_type: u8 as TsarType,
    }

    /// A vport. PRM `vport_element`.
    pub struct VportElement: 0x4, "mlx5_ifc_vport_element_bits" {
        0x00 [27] eswitch_owner_vhca_id_valid: bool,
        0x00 [26:16] eswitch_owner_vhca_id: u16,
        0x00 [15:0] vport_number: u16,
    }

    /// A traffic class of a vport. PRM `vport_tc_element`.
    pub struct VportTcElement: 0x4, "mlx5_ifc_vport_tc_element_bits" {
        0x00 [31:28] traffic_class: u8,
        0x00 [27] eswitch_owner_vhca_id_valid: bool,
        0x00 [26:16] eswitch_owner_vhca_id: u16,
        0x00 [15:0] vport_number: u16,
    }

    /// A packet pacing rate. PRM `set_pp_rate_limit_context`.
    pub struct SetPpRateLimitContext: 0x30, "mlx5_ifc_set_pp_rate_limit_context_bits" {
        0x00 [31:0] rate_limit: u32,
        0x04 [31:0] burst_upper_bound: u32,
        0x08 [15:0] typical_packet_size: u16,
    }
}

values! {
    /// What a scheduling element is. PRM `scheduling_context.element_type`.
    pub enum ElementType: 8 {
        /// An arbiter, [`TsarElement`].
        Tsar = 0x0 "TSAR",
        /// A vport, [`VportElement`].
        Vport = 0x1 "VPORT",
        /// A traffic class of a vport, [`VportTcElement`].
        VportTc = 0x2 "VPORT_TC",
        /// A traffic class of a paravirtual port.
        ParaVportTc = 0x3 "PARA_VPORT_TC",
        /// A group of queues.
        QueueGroup = 0x4 "QUEUE_GROUP",
        /// A rate limit, which elements share.
        RateLimit = 0x5 "RATE_LIMIT",
    }

    /// Which hierarchy an element is in. PRM `scheduling_hierarchy`.
    pub enum SchedulingHierarchy: 8 {
        /// That of the e-switch.
        ESwitch = 2 "E_SWITCH",
        /// That of the NIC.
        Nic = 3 "NIC",
    }

    /// How an arbiter chooses. PRM `tsar_element.tsar_type`.
    pub enum TsarType: 8 {
        /// By deficit weighted round robin.
        Dwrr = 0x0 "DWRR",
        /// By round robin.
        RoundRobin = 0x1 "ROUND_ROBIN",
        /// By enhanced transmission selection.
        Ets = 0x2 "ETS",
        /// By traffic class.
        TcArb = 0x3 "TC_ARB",
    }
}

impl SchedulingContext {
    fn attributes(bytes: &[u8], _index: usize) -> Option<&'static Info> {
        match ElementType::from_number(SchedulingContext::read(bytes)?.element_type().into()) {
            ElementType::Tsar => Some(&TsarElement::INFO),
            ElementType::Vport => Some(&VportElement::INFO),
            ElementType::VportTc => Some(&VportTcElement::INFO),
            _ => None,
        }
    }
}
