//! Dynamically connected targets. PRM "CREATE_DCT", "DRAIN_DCT", "DESTROY_DCT", "QUERY_DCT",
//! "ARM_DCT_FOR_KEY_VIOLATION".

use mlx5_prm::cmd::*;
use mlx5_prm::ctx::{DctState, Dctc};

use super::answer::Answer;
use super::ece;
use super::memory;
use super::pages;
use super::qp_state::{PORT, check_mtu_of, is_mode_announced};
use super::syndromes::Syndrome;
use crate::engine;
use crate::function::{Context, Function};
use crate::objects::Dct;

/// `CREATE_DCT`.
pub(super) fn create(f: &mut Function, command: &CreateDctIn) -> Answer<CreateDctOut> {
    let mut context = *command.dct_context_entry();
    check_features(f, &context)?;
    check_parents(f, &context)?;
    let ece = ece::reduce(f, context.ece())?;
    pages::reserve(f, Context::Qp)?;
    let dctn = f.queues.dcts.next_number().ok_or(Syndrome::TooManyDcts)?;
    context.w().ece(ece).state(DctState::Active).dc_access_key_violation_count(0);
    let (state, connections, by_age) = (DctState::Active, Default::default(), Default::default());
    let (is_armed, is_broken) = (false, false);
    let dct = Dct { dctn, state, context, is_armed, is_broken, violations: 0, connections, by_age, heard: 0 };
    f.queues.dcts.insert(dct).map_err(|_| Syndrome::TooManyDcts)?;
    use_parents(f, &context, true);
    let mut output = CreateDctOut::ZERO;
    output.w().dctn(dctn).ece(ece);
    Ok(output)
}

fn check_features(f: &Function, context: &Dctc) -> Result<(), Syndrome> {
    let caps = f.nic.firmware.caps.general();
    if !caps.dct() {
        return Err(Syndrome::CapabilityNotAnnounced);
    }
    let unannounced = context.dp_ordering_force()
        || context.dp_ordering_1()
        || context.atomic_like_write_en()
        || context.rlky()
        || context.cs_res() != 0;
    if unannounced || context.state() != DctState::Active {
        return Err(Syndrome::DctFeature);
    }
    if context.port() != PORT {
        return Err(Syndrome::PortNumber);
    }
    if context.pkey_index() != 0 {
        return Err(Syndrome::PkeyIndex);
    }
    if context.rae() && !caps.atomic() {
        return Err(Syndrome::Atomics);
    }
    let sizes = f.nic.firmware.caps.atomic().atomic_size_dc();
    if context.rae() && !is_mode_announced(f, context.atomic_mode(), sizes) {
        return Err(Syndrome::AtomicMode);
    }
    if !caps.roce() || !f.nic.objects.vport.roce_enabled() {
        return Err(Syndrome::RoceDisabled);
    }
    check_mtu_of(f, context.mtu())
}

fn check_parents(f: &Function, context: &Dctc) -> Result<(), Syndrome> {
    let objects = &f.nic.objects;
    objects.gids.get(u16::from(context.my_addr_index())).ok_or(Syndrome::SourceAddress)?;
    objects.pds.get(context.pd()).ok_or(Syndrome::NoSuchPd)?;
    objects.cqs.get(context.cqn()).ok_or(Syndrome::NoSuchCq)?;
    objects.srqs.get(context.srqn_xrqn()).filter(|srq| srq.xrc.is_none()).ok_or(Syndrome::NoSuchSrq)?;
    let counter = u32::from(context.counter_set_id());
    if counter != 0 && objects.queue_counters.get(counter).is_none() {
        return Err(Syndrome::NoSuchCounter);
    }
    Ok(())
}

fn use_parents(f: &mut Function, context: &Dctc, more: bool) {
    if let Some(pd) = f.nic.objects.pds.get_mut(context.pd()) {
        memory::count(&mut pd.users, more);
    }
    if let Some(cq) = f.nic.objects.cqs.get_mut(context.cqn()) {
        memory::count(&mut cq.users, more);
    }
    if let Some(srq) = f.nic.objects.srqs.get_mut(context.srqn_xrqn()) {
        memory::count(&mut srq.users, more);
    }
}

/// `QUERY_DCT`.
pub(super) fn query(f: &mut Function, command: &QueryDctIn) -> Answer<QueryDctOut> {
    let dct = f.queues.dcts.get(command.dctn()).ok_or(Syndrome::NoSuchDct)?;
    let mut context = dct.context;
    let in_order = f.nic.firmware.caps.general().qp_data_in_order();
    context.w().data_in_order(in_order).state(dct.state).dc_access_key_violation_count(dct.violations);
    let mut output = QueryDctOut::ZERO;
    output.w().dct_context_entry(&context);
    Ok(output)
}

/// `DRAIN_DCT`: its connections end, and an event says so.
pub(super) fn drain(f: &mut Function, command: &DrainDctIn) -> Answer<DrainDctOut> {
    let dct = f.queues.dcts.get(command.dctn()).ok_or(Syndrome::NoSuchDct)?;
    if dct.state != DctState::Active {
        return Err(Syndrome::DctState.into());
    }
    engine::dct_drained(f, command.dctn());
    Ok(DrainDctOut::ZERO)
}

/// `ARM_DCT_FOR_KEY_VIOLATION`.
pub(super) fn arm(f: &mut Function, command: &ArmDctIn) -> Answer<ArmDctOut> {
    f.queues.dcts.get_mut(command.dct_number()).ok_or(Syndrome::NoSuchDct)?.is_armed = true;
    Ok(ArmDctOut::ZERO)
}

/// `DESTROY_DCT`, of a drained one.
pub(super) fn destroy(f: &mut Function, command: &DestroyDctIn) -> Answer<DestroyDctOut> {
    let dct = f.queues.dcts.get(command.dctn()).ok_or(Syndrome::NoSuchDct)?;
    if dct.state != DctState::Drained {
        return Err(Syndrome::DctNotDrained.into());
    }
    if let Some(dct) = f.queues.dcts.remove(command.dctn()) {
        use_parents(f, &dct.context, false);
        pages::release(f, Context::Qp);
    }
    Ok(DestroyDctOut::ZERO)
}
