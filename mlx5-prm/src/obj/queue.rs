//! Objects that queue pairs use: addresses, rates. libmlx5 has their layouts.

use crate::ctx::{SchedulingContext, SchedulingHierarchy};

layout! {
    /// The queue pair that datagrams to an address leave by. PRM `av_qp_mapping`.
    pub struct AvQpMapping: 0x40, "mlx5_ifc_av_qp_mapping_bits" {
        0x00 [63:0] modify_field_select: u64,
        0x0c [31:0] qpn: u32,
        0x10 remote_address_vector: UdAv,
    }

    /// An address, as far as it matters there. PRM `ud_av`.
    pub struct UdAv: 0x30, "mlx5_ifc_ud_av_bits" {
        0x0c [27:24] sl_or_eth_prio: u8,
        0x1c [27:20] src_addr_index: u8,
        0x20 rgid_or_rip: [u8; 16],
    }

    /// A scheduling element. PRM `sched_elem`.
    pub struct SchedElem: 0x80, "mlx5_ifc_sched_elem_bits" {
        0x00 [63:0] modify_field_select: u64,
        0x08 [31:24] scheduling_hierarchy: SchedulingHierarchy,
        0x20 sched_context: SchedulingContext,
    }
}
