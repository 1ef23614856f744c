//! Which commands any program may send: those that cannot direct the card at memory.

use mlx5_prm::cmd::*;

mod sealed {
    /// Keeps [`SafeCommand`](super::SafeCommand) to the commands that are judged here.
    pub trait Sealed {}
}

/// A command that no program can misuse to make the card read or write memory: what [`Device::execute`] takes.
///
/// Sealed: the list is a judgement on each command, and part of what makes the safe interface sound. A command is on it
/// if all of this holds, whatever its fields say and whosever objects they name:
/// * It names no memory: no address, no umem, no memory key, no doorbell record, no UAR page.
/// * It neither takes memory from the card nor ends or moves an object that something else keeps memory for.
/// * It does not change what the driver's other commands mean (page sizes, the interface's step, the function's life).
///
/// What is on it: all queries of published layout; NOP; allocations that yield a number alone (protection and transport
/// domains, counters); steering, which picks among queues that exist and whose buffers their owners posted (flow
/// tables, groups and entries, TIRs, TISs, RQTs, header rewrites and reformats); the port's addresses, state and rates.
///
/// What is not, and goes by [`Device::execute_raw`] or the types of [`objects`](crate::objects):
/// * What names memory: CREATE_MKEY, CREATE_UMEM, CREATE_EQ, CREATE_CQ, CREATE_QP and its transitions, CREATE_SQ,
///   CREATE_RQ, CREATE_RMP, CREATE_SRQ and its kin, CREATE_DCT, MODIFY_CQ, MANAGE_PAGES, SAVE_VHCA_STATE and
///   LOAD_VHCA_STATE, GENERATE_WQE, general objects (some have keys), ALLOC_MEMIC and its kin, CREATE_PSV.
/// * What reaches memory indirectly: ACCESS_REG (registers of the tracer take a memory key), MAD_IFC,
///   PAGE_FAULT_RESUME, GEN_EQE.
/// * What ends or moves objects: every DESTROY and DEALLOC, MODIFY_SQ and MODIFY_RQ, UARs, user contexts.
/// * What changes the rules: ENABLE_HCA, INIT_HCA, TEARDOWN_HCA, DISABLE_HCA, SET_HCA_CAP, SET_ISSI, and VHCA states.
///
/// ```compile_fail,E0277
/// // A key that opens a heap page to the card is no safe command:
/// fn open_the_heap(device: &mlx5_dv::Device, key: &mlx5_prm::cmd::CreateMkeyIn) {
///     let _ = device.execute(key, "");
/// }
/// ```
///
/// ```compile_fail,E0603
/// // and nobody can declare it one:
/// impl mlx5_dv::access::safe::sealed::Sealed for mlx5_prm::cmd::CreateMkeyIn {}
/// ```
///
/// [`Device::execute`]: crate::Device::execute
/// [`Device::execute_raw`]: crate::Device::execute_raw
pub trait SafeCommand: Command + sealed::Sealed {}

macro_rules! safe {
    ($($Command:ident)*) => { $(
        impl sealed::Sealed for $Command {}
        impl SafeCommand for $Command {}
    )* };
}

impl<C: SafeCommand, T> sealed::Sealed for WithTail<C, T> where WithTail<C, T>: Command {}
// The list is of the command's own kind, and `RawCommand::safe` holds the opcode.
impl<C: SafeCommand, T> SafeCommand for WithTail<C, T> where WithTail<C, T>: Command {}

// Queries: they answer into the command's own mailboxes.
safe! {
    NopIn
    QueryAdapterIn QueryIssiIn QueryPagesIn QueryHcaCapIn QueryOtherHcaCapIn QuerySpecialContextsIn QueryVuidIn
    QueryCongStatusIn QueryCongParamsIn QueryCongStatisticsIn QueryQCounterIn QueryVnicEnvIn
    QueryCqIn QueryDctIn QueryEqIn QueryMkeyIn QueryQpIn QueryRmpIn QueryRqIn QueryRqtIn QuerySqIn QuerySrqIn QueryXrcSrqIn
    QueryTirIn QueryTisIn QueryXrqIn QueryXrqDcParamsEntryIn QueryXrqErrorParamsIn
    QueryEswVportContextIn QueryDelegatedVhcaIn QueryEswFunctionsIn QueryVhcaStateIn QueryVhcaMigrationStateIn
    QueryFlowCounterIn QueryFteIn QueryFlowGroupIn QueryFlowTableIn QueryMatchSampleInfoIn QueryModifyHeaderContextIn
    QueryPacketReformatContextIn QuerySchedulingElementIn QueryLagIn QueryL2TableEntryIn
    QueryHcaVportContextIn QueryHcaVportGidIn QueryHcaVportPkeyIn QueryMadDemuxIn
    QueryVportStateIn QueryNicVportContextIn QueryRoceAddressIn QueryVportCounterIn QueryWolRolIn
}

// Numbers.
safe! { AllocPdIn AllocTransportDomainIn AllocXrcdIn AllocQCounterIn AllocFlowCounterIn AllocUarIn }

// Steering.
safe! {
    CreateFlowTableIn ModifyFlowTableIn SetFlowTableRootIn CreateFlowGroupIn SetFteIn
    CreateTirIn CreateTisIn CreateRqtIn AllocModifyHeaderContextIn AllocPacketReformatContextIn SyncSteeringIn
}

// The port.
safe! {
    SetRoceAddressIn SetL2TableEntryIn DeleteL2TableEntryIn ModifyNicVportContextIn ModifyVportStateIn SetPpRateLimitIn
    ModifyCongStatusIn ModifyCongParamsIn SetDriverVersionIn
}
