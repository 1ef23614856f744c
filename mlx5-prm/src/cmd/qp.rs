//! Queue pairs and their state changes.

use super::command::commands;
use super::{CmdStatus, Opcode};
use crate::ctx::Qpc;
use crate::layout::{Be64, Info, Layout};

layout! {
    /// Input of `CREATE_QP`: makes a queue pair in state RST; the pages of its rings follow unless they lie in a umem.
    pub struct CreateQpIn: 0x110, "mlx5_ifc_create_qp_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::CreateQp,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [31] qpc_ext: bool,
        0x08 [23:0] input_qpn: u32,
        0x10 [31:0] opt_param_mask: u32,
        0x14 [31:0] ece: u32,
        0x18 qpc: Qpc,
        0x100 [63:0] wq_umem_offset: u64,
        0x108 [31:0] wq_umem_id: u32,
        0x10c [31] wq_umem_valid: bool,
        .. pas: [Be64],
    }

    /// Output of `CREATE_QP`.
    pub struct CreateQpOut: 0x10, "mlx5_ifc_create_qp_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [23:0] qpn: u32,
        0x0c [31:0] ece: u32,
    }

    /// Input of `DESTROY_QP`: ends a queue pair.
    pub struct DestroyQpIn: 0x10, "mlx5_ifc_destroy_qp_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::DestroyQp,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] qpn: u32,
    }

    /// Output of `DESTROY_QP`.
    pub struct DestroyQpOut: 0x10, "mlx5_ifc_destroy_qp_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `QUERY_QP`: reads a queue pair's context.
    pub struct QueryQpIn: 0x10, "mlx5_ifc_query_qp_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryQp,
        0x04 [15:0] op_mod: u16,
        0x08 [31] qpc_ext: bool,
        0x08 [23:0] qpn: u32,
    }

    /// Output of `QUERY_QP`.
    pub struct QueryQpOut: 0x1d0, "mlx5_ifc_query_qp_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 [31:0] opt_param_mask: u32,
        0x14 [31:0] ece: u32,
        0x18 qpc: Qpc,
        0x110 qp_pas_or_qpc_ext_and_pas: [u8; 0xc0],
        .. pas: [Be64],
    }

    /// Pages of the rings, where no extension of the context is asked for. PRM `query_qp_out.pas`.
    pub struct QpPasList: 0xc0, "none" {
        0x00 pas: [Be64; 24],
    }

    /// The extension of the context. PRM `qp_context_extension`.
    pub struct QpContextExtension: 0xc0, "mlx5_ifc_qp_context_extension_bits" {
        /// Work requests may be memory to memory operations.
        0x00 [29] mmo: bool,
        0x00 [15:0] dci_stream_channel_id: u16,
        0x04 [31:0] qos_queue_group_id_requester: u32,
        0x08 [31:0] qos_queue_group_id_responder: u32,
        0x0c error_syndrome: CqeErrorSyndrome,
    }

    /// Why a queue pair failed. PRM `cqe_error_syndrome`.
    pub struct CqeErrorSyndrome: 0x4, "mlx5_ifc_cqe_error_syndrome_bits" {
        0x00 [31:24] hw_error_syndrome: u8,
        0x00 [23:20] hw_syndrome_type: u8,
        0x00 [15:8] vendor_error_syndrome: u8,
        0x00 [7:0] syndrome: u8,
    }

    /// Input of `RST2INIT_QP`: from reset to initialised: port and rights are set, receives may be posted.
    pub struct Rst2initQpIn: 0x110, "mlx5_ifc_rst2init_qp_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::Rst2initQp,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] qpn: u32,
        0x10 [31:0] opt_param_mask: u32,
        0x14 [31:0] ece: u32,
        0x18 qpc: Qpc,
    }

    /// Output of `RST2INIT_QP`.
    pub struct Rst2initQpOut: 0x10, "mlx5_ifc_rst2init_qp_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x0c [31:0] ece: u32,
    }

    /// Input of `INIT2INIT_QP`: changes what `RST2INIT_QP` set.
    pub struct Init2initQpIn: 0x110, "mlx5_ifc_init2init_qp_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::Init2initQp,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] qpn: u32,
        0x10 [31:0] opt_param_mask: u32,
        0x14 [31:0] ece: u32,
        0x18 qpc: Qpc,
    }

    /// Output of `INIT2INIT_QP`.
    pub struct Init2initQpOut: 0x10, "mlx5_ifc_init2init_qp_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x0c [31:0] ece: u32,
    }

    /// Input of `INIT2RTR_QP`: to ready-to-receive: the peer's address, number and first PSN are set.
    pub struct Init2rtrQpIn: 0x110, "mlx5_ifc_init2rtr_qp_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::Init2rtrQp,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] qpn: u32,
        0x10 [31:0] opt_param_mask: u32,
        0x14 [31:0] ece: u32,
        0x18 qpc: Qpc,
    }

    /// Output of `INIT2RTR_QP`.
    pub struct Init2rtrQpOut: 0x10, "mlx5_ifc_init2rtr_qp_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x0c [31:0] ece: u32,
    }

    /// Input of `RTR2RTS_QP`: to ready-to-send: own PSN, timeouts and retries are set.
    pub struct Rtr2rtsQpIn: 0x110, "mlx5_ifc_rtr2rts_qp_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::Rtr2rtsQp,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] qpn: u32,
        0x10 [31:0] opt_param_mask: u32,
        0x14 [31:0] ece: u32,
        0x18 qpc: Qpc,
    }

    /// Output of `RTR2RTS_QP`.
    pub struct Rtr2rtsQpOut: 0x10, "mlx5_ifc_rtr2rts_qp_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x0c [31:0] ece: u32,
    }

    /// Input of `RTS2RTS_QP`: changes a queue pair that is at work. With `qpc_ext`, the context's extension follows.
    pub struct Rts2rtsQpIn: 0x110, "mlx5_ifc_rts2rts_qp_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::Rts2rtsQp,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        /// In libmlx5's header, not in the kernel's; so is what it leads to.
        0x08 [31] qpc_ext: bool,
        0x08 [23:0] qpn: u32,
        0x10 [31:0] opt_param_mask: u32,
        0x14 [31:0] ece: u32,
        0x18 qpc: Qpc,
        /// Which further fields are set: bit 0 the extension's `dci_stream_channel_id`, bit 2 the path's `udp_sport`.
        0x108 [63:0] opt_param_mask_95_32: u64,
        .. qpc_data_ext: [QpContextExtension],
    }

    /// Output of `RTS2RTS_QP`.
    pub struct Rts2rtsQpOut: 0x10, "mlx5_ifc_rts2rts_qp_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x0c [31:0] ece: u32,
    }

    /// Input of `SQERR2RTS_QP`: takes a send queue out of error.
    pub struct Sqerr2rtsQpIn: 0x110, "mlx5_ifc_sqerr2rts_qp_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::Sqerr2rtsQp,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] qpn: u32,
        0x10 [31:0] opt_param_mask: u32,
        0x18 qpc: Qpc,
    }

    /// Output of `SQERR2RTS_QP`.
    pub struct Sqerr2rtsQpOut: 0x10, "mlx5_ifc_sqerr2rts_qp_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `SQD2RTS_QP`: ends the drain of a send queue.
    pub struct Sqd2rtsQpIn: 0x110, "mlx5_ifc_sqd2rts_qp_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::SqdRtsQp,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] qpn: u32,
        0x10 [31:0] opt_param_mask: u32,
        0x18 qpc: Qpc,
    }

    /// Output of `SQD2RTS_QP`.
    pub struct Sqd2rtsQpOut: 0x10, "mlx5_ifc_sqd2rts_qp_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `QP_2ERR`: to the error state, from any: what is posted is flushed.
    pub struct Qp2errIn: 0x10, "mlx5_ifc_qp_2err_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::Qp2err,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] qpn: u32,
    }

    /// Output of `QP_2ERR`.
    pub struct Qp2errOut: 0x10, "mlx5_ifc_qp_2err_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `QP_2RST`: to reset, from any: what is posted is forgotten.
    pub struct Qp2rstIn: 0x10, "mlx5_ifc_qp_2rst_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::Qp2rst,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] qpn: u32,
    }

    /// Output of `QP_2RST`.
    pub struct Qp2rstOut: 0x10, "mlx5_ifc_qp_2rst_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

commands! {
    CreateQp: CreateQpIn => CreateQpOut,
    DestroyQp: DestroyQpIn => DestroyQpOut,
    QueryQp: QueryQpIn => QueryQpOut { qp_pas_or_qpc_ext_and_pas: QueryQpIn::rest_layout },
    Rst2initQp: Rst2initQpIn => Rst2initQpOut,
    Init2initQp: Init2initQpIn => Init2initQpOut,
    Init2rtrQp: Init2rtrQpIn => Init2rtrQpOut,
    Rtr2rtsQp: Rtr2rtsQpIn => Rtr2rtsQpOut,
    Rts2rtsQp: Rts2rtsQpIn => Rts2rtsQpOut,
    Sqerr2rtsQp: Sqerr2rtsQpIn => Sqerr2rtsQpOut,
    SqdRtsQp: Sqd2rtsQpIn => Sqd2rtsQpOut,
    Qp2err: Qp2errIn => Qp2errOut,
    Qp2rst: Qp2rstIn => Qp2rstOut,
}

impl QpContextExtension {
    /// The bit of `opt_param_mask_95_32` of [`Rts2rtsQpIn`] that takes stream `dci_stream_channel_id` out of error.
    pub const DCI_STREAM_CHANNEL_ID: u64 = 1 << 0;
}

impl Rts2rtsQpIn {
    /// The bit of `opt_param_mask_95_32` that changes `udp_sport` of the primary path; no extension follows for it.
    pub const UDP_SPORT: u64 = 1 << 2;
}

impl QueryQpIn {
    /// What lies after the context in the output.
    fn rest_layout(input: &[u8], _index: usize) -> Option<&'static Info> {
        Some(if QueryQpIn::read(input)?.qpc_ext() { &QpContextExtension::INFO } else { &QpPasList::INFO })
    }
}
