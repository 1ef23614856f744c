//! Commands that safe code may send: those that cannot make the card access memory.

use mlx5_prm::cmd::*;

mod sealed {
    /// Limits [`SafeCommand`](super::SafeCommand) to the commands reviewed here.
    pub trait Sealed {}
}

/// A command that no program can misuse to make the card read or write memory: what [`Device::execute`] takes.
///
/// Sealed: each entry is a judgement, and the soundness of the safe interface depends on it. A command qualifies if all
/// of this holds for any field values and any objects it names:
/// * It names no memory: no address, umem, memory key, doorbell record or UAR page.
/// * It neither takes memory from the card, nor destroys or changes an object that something else keeps memory for.
/// * It does not change the meaning of the driver's other commands (page sizes, interface step, life cycle of the
///   function).
///
/// Included: all queries of published layout; NOP; allocations that yield only a number (protection and transport
/// domains, counters); steering, which selects among existing queues with buffers that their owners posted (flow
/// tables, groups and entries, TIRs, TISs, RQTs, header rewrites and reformats, UDP ports of VXLAN; multicast groups);
/// the port's addresses, state and rates.
///
/// Excluded, and available through [`Device::execute_raw`] or the types of [`objects`](crate::objects):
/// * What names memory: CREATE_MKEY, CREATE_UMEM, CREATE_EQ, CREATE_CQ, CREATE_QP and its transitions, CREATE_SQ,
///   CREATE_RQ, CREATE_RMP, CREATE_SRQ and variants, CREATE_DCT, MODIFY_CQ, MANAGE_PAGES, SAVE_VHCA_STATE and
///   LOAD_VHCA_STATE, GENERATE_WQE, general objects (some have keys), ALLOC_MEMIC and variants, CREATE_PSV.
/// * What reaches memory indirectly: ACCESS_REG (the tracer's registers take a memory key), MAD_IFC, PAGE_FAULT_RESUME,
///   GEN_EQE.
/// * What destroys or changes objects: every DESTROY and DEALLOC, MODIFY_SQ and MODIFY_RQ, UARs, user contexts.
/// * What changes global state: ENABLE_HCA, INIT_HCA, TEARDOWN_HCA, DISABLE_HCA, SET_HCA_CAP, SET_ISSI, and VHCA
///   states.
///
/// ```compile_fail,E0277
/// // A key that exposes a heap page to the card is not a safe command:
/// fn open_the_heap(device: &mlx5_dv::Device, key: &mlx5_prm::cmd::CreateMkeyIn) {
///     let _ = device.execute(key, "");
/// }
/// ```
///
/// ```compile_fail,E0603
/// // and no other crate can declare it safe:
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
// The list has the command's own type, and `RawCommand::safe` takes the opcode from that.
impl<C: SafeCommand, T> SafeCommand for WithTail<C, T> where WithTail<C, T>: Command {}

// Queries: they return their output in the command's own mailboxes.
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

// Delivers datagrams to a queue pair, which takes those of its Q_Key into receives that its owner posted.
safe! { AttachToMcgIn }

// Objects that are only a number.
safe! { AllocPdIn AllocTransportDomainIn AllocXrcdIn AllocQCounterIn AllocFlowCounterIn AllocUarIn }

// Steering.
safe! {
    CreateFlowTableIn ModifyFlowTableIn SetFlowTableRootIn CreateFlowGroupIn SetFteIn
    CreateTirIn CreateTisIn CreateRqtIn AllocModifyHeaderContextIn AllocPacketReformatContextIn SyncSteeringIn
    AddVxlanUdpDportIn
}

// The port.
safe! {
    SetRoceAddressIn SetL2TableEntryIn DeleteL2TableEntryIn ModifyNicVportContextIn ModifyVportStateIn SetPpRateLimitIn
    ModifyCongStatusIn ModifyCongParamsIn SetDriverVersionIn
}
