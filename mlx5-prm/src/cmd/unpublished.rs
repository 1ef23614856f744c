//! Commands with public opcodes whose layouts are in no public header: neither in those of the kernel, rdma-core, DPDK
//! and UCX, nor in the parts of FreeBSD's that were read. Only the common header is declared here; the rest is plain
//! dwords.

use super::{CmdStatus, Command, CommandInfo, Opcode};
use crate::layout::{Be32, Layout};

layout! {
    /// Common part of the input of an unpublished command. PRM "Command Reference".
    pub struct UnpublishedIn: 0x8, "none" {
        0x00 [31:16] opcode: Opcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        .. unpublished: [Be32],
    }

    /// Common part of the output of an unpublished command. PRM "Command Reference".
    pub struct UnpublishedOut: 0x8, "none" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        .. unpublished: [Be32],
    }
}

/// An unpublished command, by its opcode. Its body, if known, is the tail of a [`WithTail`](super::WithTail).
///
/// ```
/// use mlx5_prm::cmd::{Command, Opcode, Unpublished};
///
/// let query = Unpublished::<{ Opcode::QueryRateLimit.number() }>::new(0, 1);
/// assert_eq!(query.head(), [0x07, 0x81, 0, 0, 0, 0, 0, 1]);
/// ```
#[derive(Debug, Clone)]
pub struct Unpublished<const OPCODE: u32> {
    input: UnpublishedIn,
}

impl<const OPCODE: u32> Unpublished<OPCODE> {
    /// The command, of user context `uid` (0 for none).
    pub fn new(uid: u16, op_mod: u16) -> Self {
        const { assert!(is_unpublished(OPCODE), "no opcode, or one that has layouts of its own") };
        let mut input = UnpublishedIn::default();
        input.w().opcode(Self::OPCODE).uid(uid).op_mod(op_mod);
        Unpublished { input }
    }
}

impl<const OPCODE: u32> Command for Unpublished<OPCODE> {
    const OPCODE: Opcode = Opcode::from_number(OPCODE);
    type Out = UnpublishedOut;

    fn head(&self) -> &[u8] {
        self.input.as_bytes()
    }
}

const fn is_unpublished(number: u32) -> bool {
    let mut i = 0;
    while i < COMMANDS.len() && COMMANDS[i].opcode.number() != number {
        i += 1;
    }
    i < COMMANDS.len()
}

const fn of(opcode: Opcode) -> CommandInfo {
    CommandInfo { opcode, input: &UnpublishedIn::INFO, output: &UnpublishedOut::INFO, told: None }
}

/// What this module declares.
pub(crate) const COMMANDS: &[CommandInfo] = &[
    // The counterpart of SET_PP_RATE_LIMIT, which no driver uses.
    of(Opcode::QueryRateLimit),
    // Linux's fwctl permits them by their numbers.
    of(Opcode::QueryDriverVersion),
    of(Opcode::QueryRdb),
    of(Opcode::QueryPsv),
    of(Opcode::QueryDcCnakTrace),
    of(Opcode::QueryNvmfBackendController),
    of(Opcode::QueryNvmfNamespaceContext),
    of(Opcode::QueryAdjacentFunctionsId),
    of(Opcode::DelegateVhcaManagement),
    of(Opcode::QueryBurstSize),
    of(Opcode::QueryDiagnosticParams),
    of(Opcode::SetDiagnosticParams),
    of(Opcode::QueryDiagnosticCounters),
    of(Opcode::QueryDelayDropParams),
    of(Opcode::QueryAfu),
    of(Opcode::QueryCapiPec),
    of(Opcode::QueryUctx),
    of(Opcode::QueryUmem),
    of(Opcode::QueryNvmfCcResponse),
    of(Opcode::QueryEmulatedFunctionsInfo),
    of(Opcode::UserQueryXrqDcParamsEntry),
    of(Opcode::UserQueryXrqErrorParams),
    of(Opcode::QueryEmulationDeviceEqMsixMapping),
    of(Opcode::QueryCryptoState),
    of(Opcode::QueryDpaPartition),
    of(Opcode::QueryDpaPartitions),
    of(Opcode::PostponeConnectedQpTimeout),
    of(Opcode::QueryEmulatedResourcesInfo),
    of(Opcode::QueryRsvResources),
    of(Opcode::QueryMtt),
    of(Opcode::QuerySchedQueue),
];
