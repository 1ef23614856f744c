//! Dispatches commands by opcode, and checks that the command is allowed in the current state. PRM "Command Interface".

use mlx5_prm::cmd::*;
use mlx5_prm::layout::Layout;

use super::answer::{Answer, Request, Stop};
use super::syndromes::Syndrome;
use super::{
    counter, cq, dct, eq, flow, flow_action, general_object, hca, l2_table, lag, memic, mkey, multicast, page_fault,
    pages, pd, qp, qp_state, rate, register, roce, rq, rqt, sq, srq, tir, tis, uar, uctx, umem, vport, vxlan, xrcd,
};
use crate::function::{Function, HcaState};
use crate::objects::{DRIVER, SHARED};

/// Executes the command in `input`. The output starts with its status, and is zero after its last field.
pub(super) fn execute(f: &mut Function, input: &[u8], room: usize) -> Answer<Vec<u8>> {
    let header = InputHeader::read(input).ok_or(Syndrome::InputTooShort)?;
    let opcode = header.opcode();
    let result = check(f, &header).and_then(|()| {
        // Every command may have a `uid`, even if its layout has no such field.
        let mut anonymous = input.to_vec();
        anonymous[2..4].fill(0);
        f.act_for(header.uid());
        let result = dispatch(f, opcode, &Request { input: &anonymous, room });
        f.act_for(DRIVER);
        result
    });
    if let Err(Stop::Refused(syndrome)) = &result {
        tracing::debug!(
            "{opcode} op_mod {:#x}: {} {:#x}: {}",
            header.op_mod(),
            syndrome.status(),
            syndrome.number(),
            syndrome.reason()
        );
    }
    result
}

fn check(f: &Function, header: &InputHeader) -> Answer<()> {
    let opcode = header.opcode();
    if !implemented(opcode) {
        return Err(Syndrome::UnknownOpcode.into());
    }
    f.nic.firmware.state.check(opcode)?;
    if header.op_mod() != 0 && !takes_op_mod(opcode) {
        return Err(Syndrome::UnknownOpMod.into());
    }
    check_user(f, header)
}

/// Whether the command's user context exists, and may send this command.
fn check_user(f: &Function, header: &InputHeader) -> Answer<()> {
    if matches!(header.uid(), DRIVER | SHARED) {
        return Ok(());
    }
    f.nic.objects.user_contexts.get(header.uid().into()).ok_or(Syndrome::NoUserContext)?;
    if uctx::may_give(header.opcode()) { Ok(()) } else { Err(Syndrome::NotForUsers.into()) }
}

impl HcaState {
    /// Whether the command is allowed in this state.
    fn check(self, opcode: Opcode) -> Answer<()> {
        use Opcode::*;
        let before_init = matches!(opcode, SetHcaCap | SetIssi | InitHca | DisableHca | QueryIssi);
        let always = matches!(
            opcode,
            QueryHcaCap | QueryPages | ManagePages | AccessReg | QueryAdapter | SetDriverVersion | Nop
        );
        match self {
            HcaState::Disabled if opcode == EnableHca => Ok(()),
            HcaState::Disabled => Err(Syndrome::NotEnabled.into()),
            _ if opcode == EnableHca => Err(Syndrome::AlreadyEnabled.into()),
            HcaState::Enabled if before_init || always => Ok(()),
            HcaState::Enabled => Err(Syndrome::NotInitialized.into()),
            HcaState::Initialized if opcode == DisableHca => Err(Syndrome::StillInitialized.into()),
            HcaState::Initialized if before_init && opcode != QueryIssi => Err(Syndrome::AlreadyInitialized.into()),
            HcaState::Initialized => Ok(()),
        }
    }
}

/// The commands for which `op_mod` has a meaning, or that have another field in its place; their handlers check it.
fn takes_op_mod(opcode: Opcode) -> bool {
    use Opcode::*;
    matches!(
        opcode,
        QueryHcaCap | SetHcaCap | QueryPages | ManagePages | AccessReg | ModifyCq | ArmXrcSrq | ModifyMemic
    ) || matches!(
        opcode,
        AccessRegisterUser | QueryVportState | ModifyVportState | SetFlowTableRoot | SetFlowTableEntry
    ) || matches!(opcode, CreateGeneralObject | QueryGeneralObject | DestroyGeneralObject)
}

/// A command of fixed length.
fn fixed<C>(f: &mut Function, request: &Request, run: fn(&mut Function, &C) -> Answer<C::Out>) -> Answer<Vec<u8>>
where
    C: Command + Layout,
    C::Out: Layout,
{
    let command = request.of_any_edition::<C>(&f.nic.strict)?;
    // A later version of a command may be longer; it is accepted if the additional bytes are zero.
    if request.tail::<C>().iter().any(|byte| *byte != 0) {
        return Err(Syndrome::InputTooLong.into());
    }
    let output = run(f, &command)?.as_bytes().to_vec();
    request.check_cut(C::OPCODE, &output, &f.nic.strict);
    Ok(output)
}

/// A command with a list in its input.
fn listed<C>(
    f: &mut Function,
    request: &Request,
    run: fn(&mut Function, &C, &[u8]) -> Answer<C::Out>,
) -> Answer<Vec<u8>>
where
    C: Command + Layout,
    C::Out: Layout,
{
    let command = request.fixed::<C>()?;
    Ok(run(f, &command, request.tail::<C>())?.as_bytes().to_vec())
}

/// Handler of a command with a list in its output: function, fixed part, input list, room for the output list.
type Lister<C> = fn(&mut Function, &C, &[u8], usize) -> Answer<(<C as Command>::Out, Vec<u8>)>;

/// A command with a list in its output. `run` gets the room for the list in bytes, and returns the whole list.
fn lists<C>(f: &mut Function, request: &Request, run: Lister<C>) -> Answer<Vec<u8>>
where
    C: Command + Layout,
    C::Out: Layout,
{
    let command = request.fixed::<C>()?;
    let (output, list) = run(f, &command, request.tail::<C>(), request.room.saturating_sub(C::Out::SIZE))?;
    let mut bytes = output.as_bytes().to_vec();
    bytes.extend_from_slice(&list);
    Ok(bytes)
}

macro_rules! commands {
    ($( $Opcode:ident => $kind:ident $handler:path, )*) => {
        /// Whether this firmware implements the command.
        pub(super) fn implemented(opcode: Opcode) -> bool {
            matches!(opcode, $( Opcode::$Opcode )|*)
        }

        fn dispatch(f: &mut Function, opcode: Opcode, request: &Request) -> Answer<Vec<u8>> {
            match opcode {
                $( Opcode::$Opcode => $kind(f, request, $handler), )*
                _ => Err(Syndrome::UnknownOpcode.into()),
            }
        }
    };
}

commands! {
    EnableHca => fixed hca::enable,
    DisableHca => fixed hca::disable,
    InitHca => fixed hca::init,
    TeardownHca => fixed hca::teardown,
    QueryIssi => fixed hca::query_issi,
    SetIssi => fixed hca::set_issi,
    QueryHcaCap => fixed hca::query_cap,
    SetHcaCap => fixed hca::set_cap,
    QueryAdapter => fixed hca::query_adapter,
    SetDriverVersion => fixed hca::set_driver_version,
    QuerySpecialContexts => fixed hca::query_special_contexts,
    Nop => fixed hca::nop,
    QueryPages => fixed pages::query,
    ManagePages => lists pages::manage,
    AccessReg => lists register::access,
    AccessRegisterUser => lists register::access_by_user,
    AllocPd => fixed pd::alloc,
    DeallocPd => fixed pd::dealloc,
    AllocTransportDomain => fixed pd::alloc_transport_domain,
    DeallocTransportDomain => fixed pd::dealloc_transport_domain,
    AllocUar => fixed uar::alloc,
    DeallocUar => fixed uar::dealloc,
    CreateUctx => fixed uctx::create,
    DestroyUctx => fixed uctx::destroy,
    CreateUmem => listed umem::create,
    DestroyUmem => fixed umem::destroy,
    CreateMkey => listed mkey::create,
    QueryMkey => fixed mkey::query,
    DestroyMkey => fixed mkey::destroy,
    PageFaultResume => fixed page_fault::resume,
    AllocMemic => fixed memic::alloc,
    ModifyMemic => fixed memic::modify,
    DeallocMemic => fixed memic::dealloc,
    CreateEq => listed eq::create,
    QueryEq => fixed eq::query,
    DestroyEq => fixed eq::destroy,
    CreateCq => listed cq::create,
    ModifyCq => listed cq::modify,
    QueryCq => fixed cq::query,
    DestroyCq => fixed cq::destroy,
    CreateQp => listed qp::create,
    QueryQp => lists qp::query,
    DestroyQp => fixed qp::destroy,
    Rst2initQp => fixed qp_state::rst2init,
    Init2initQp => fixed qp_state::init2init,
    Init2rtrQp => fixed qp_state::init2rtr,
    Rtr2rtsQp => fixed qp_state::rtr2rts,
    Rts2rtsQp => listed qp_state::rts2rts,
    Sqerr2rtsQp => fixed qp_state::sqerr2rts,
    SqdRtsQp => fixed qp_state::sqd2rts,
    Qp2err => fixed qp_state::to_err,
    Qp2rst => fixed qp_state::to_rst,
    AttachToMcg => fixed multicast::attach,
    DetachFromMcg => fixed multicast::detach,
    CreateDct => fixed dct::create,
    QueryDct => fixed dct::query,
    DrainDct => fixed dct::drain,
    ArmDctForKeyViolation => fixed dct::arm,
    DestroyDct => fixed dct::destroy,
    CreateGeneralObject => listed general_object::create,
    QueryGeneralObject => lists general_object::query,
    DestroyGeneralObject => fixed general_object::destroy,
    AllocXrcd => fixed xrcd::alloc,
    DeallocXrcd => fixed xrcd::dealloc,
    CreateRmp => listed srq::create_rmp,
    ModifyRmp => listed srq::modify_rmp,
    QueryRmp => lists srq::query_rmp,
    DestroyRmp => fixed srq::destroy_rmp,
    CreateXrcSrq => listed srq::create_xrc,
    ArmXrcSrq => fixed srq::arm_xrc,
    QueryXrcSrq => lists srq::query_xrc,
    DestroyXrcSrq => fixed srq::destroy_xrc,
    QueryNicVportContext => lists vport::query_context,
    ModifyNicVportContext => listed vport::modify_context,
    QueryVportState => fixed vport::query_state,
    ModifyVportState => fixed vport::modify_state,
    SetL2TableEntry => fixed l2_table::set,
    QueryL2TableEntry => fixed l2_table::query,
    DeleteL2TableEntry => fixed l2_table::delete,
    QueryVportCounter => fixed vport::query_counter,
    QueryHcaVportContext => fixed vport::query_hca_context,
    QueryHcaVportPkey => lists vport::query_pkey,
    QueryLag => fixed lag::query,
    QueryRoceAddress => fixed roce::query,
    SetRoceAddress => fixed roce::set,
    CreateTis => fixed tis::create,
    ModifyTis => fixed tis::modify,
    QueryTis => fixed tis::query,
    DestroyTis => fixed tis::destroy,
    CreateTir => fixed tir::create,
    ModifyTir => fixed tir::modify,
    QueryTir => fixed tir::query,
    DestroyTir => fixed tir::destroy,
    CreateRqt => listed rqt::create,
    ModifyRqt => listed rqt::modify,
    QueryRqt => lists rqt::query,
    DestroyRqt => fixed rqt::destroy,
    CreateRq => listed rq::create,
    ModifyRq => listed rq::modify,
    QueryRq => fixed rq::query,
    DestroyRq => fixed rq::destroy,
    CreateSq => listed sq::create,
    ModifySq => listed sq::modify,
    QuerySq => fixed sq::query,
    DestroySq => fixed sq::destroy,
    CreateFlowTable => fixed flow::create_table,
    ModifyFlowTable => fixed flow::modify_table,
    SetPpRateLimit => fixed rate::set,
    QueryFlowTable => fixed flow::query_table,
    DestroyFlowTable => fixed flow::destroy_table,
    SetFlowTableRoot => fixed flow::set_root,
    CreateFlowGroup => fixed flow::create_group,
    QueryFlowGroup => fixed flow::query_group,
    DestroyFlowGroup => fixed flow::destroy_group,
    SetFlowTableEntry => listed flow::set_entry,
    QueryFlowTableEntry => lists flow::query_entry,
    DeleteFlowTableEntry => fixed flow::delete_entry,
    AllocFlowCounter => fixed flow::alloc_counter,
    QueryFlowCounter => lists flow::query_counter,
    DeallocFlowCounter => fixed flow::dealloc_counter,
    AllocModifyHeaderContext => listed flow_action::alloc_modify_header,
    DeallocModifyHeaderContext => fixed flow_action::dealloc_modify_header,
    AllocPacketReformatContext => listed flow_action::alloc_packet_reformat,
    QueryPacketReformatContext => lists flow_action::query_packet_reformat,
    DeallocPacketReformatContext => fixed flow_action::dealloc_packet_reformat,
    AddVxlanUdpDport => fixed vxlan::add,
    DeleteVxlanUdpDport => fixed vxlan::delete,
    AllocQCounter => fixed counter::alloc,
    QueryQCounter => fixed counter::query,
    DeallocQCounter => fixed counter::dealloc,
}
