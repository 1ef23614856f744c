//! Transport domains.

use super::command::commands;
use super::{CmdStatus, Opcode};

layout! {
    /// Input of `ALLOC_TRANSPORT_DOMAIN`: makes a transport domain.
    pub struct AllocTransportDomainIn: 0x10, "mlx5_ifc_alloc_transport_domain_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::AllocTransportDomain,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
    }

    /// Output of `ALLOC_TRANSPORT_DOMAIN`.
    pub struct AllocTransportDomainOut: 0x10, "mlx5_ifc_alloc_transport_domain_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [23:0] transport_domain: u32,
    }

    /// Input of `DEALLOC_TRANSPORT_DOMAIN`: ends a transport domain.
    pub struct DeallocTransportDomainIn: 0x10, "mlx5_ifc_dealloc_transport_domain_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::DeallocTransportDomain,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] transport_domain: u32,
    }

    /// Output of `DEALLOC_TRANSPORT_DOMAIN`.
    pub struct DeallocTransportDomainOut: 0x10, "mlx5_ifc_dealloc_transport_domain_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

commands! {
    AllocTransportDomain: AllocTransportDomainIn => AllocTransportDomainOut,
    DeallocTransportDomain: DeallocTransportDomainIn => DeallocTransportDomainOut,
}
