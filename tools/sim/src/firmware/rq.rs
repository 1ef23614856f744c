//! Receive queues of Ethernet frames. PRM "Receive Queue Context".

use mlx5_prm::cmd::*;
use mlx5_prm::ctx::{MemRqType, QueueState, Rqc};

use super::answer::Answer;
use super::caps::room_below;
use super::pages;
use super::syndromes::Syndrome;
use super::{clock, memory, wq};
use crate::engine;
use crate::function::{Context, Function};
use crate::objects::{Dispatch, RecvRing, Rq};

/// `modify_bitmask`: VLAN stripping disabled.
const MODIFY_VSD: u64 = 1 << 1;

/// `CREATE_RQ`.
pub(super) fn create(f: &mut Function, command: &CreateRqIn, list: &[u8]) -> Answer<CreateRqOut> {
    let context = *command.ctx();
    check_context(f, &context)?;
    let queue = wq::take(f, context.wq(), wq::receive_strides(&f.nic.firmware.caps), true, list)?;
    let pd = context.wq().pd();
    f.nic.objects.cqs.get(context.cqn()).ok_or(Syndrome::NoSuchCq)?;
    // Protection domain 0 has no keys: such a queue cannot receive, as intended.
    if pd != 0 {
        f.nic.objects.pds.get(pd).ok_or(Syndrome::NoSuchPd)?;
    }
    let counter = context.counter_set_id();
    if counter != 0 {
        f.nic.objects.queue_counters.get(counter.into()).ok_or(Syndrome::NoSuchCounter)?;
    }
    room_below(&f.queues.rqs, f.nic.firmware.caps.general().log_max_rq()).ok_or(Syndrome::TooManyRqs)?;
    pages::reserve(f, Context::Queue)?;
    let rqn = f.queues.rqs.next_number().ok_or(Syndrome::TooManyRqs)?;
    let umems = [queue.umem, queue.doorbell_umem];
    let rq = Rq {
        rqn,
        state: QueueState::Rst,
        ring: RecvRing::new(queue.memory, queue.log_size, queue.log_stride),
        doorbell: queue.doorbell,
        cqn: context.cqn(),
        pd,
        user_index: context.user_index(),
        counter_set_id: counter,
        striding: queue.striding,
        joined: None,
        strips_vlan: !context.vsd(),
        fetched: 0,
        posted: 0,
        consumed: Default::default(),
        held: Default::default(),
        umem: queue.umem,
        doorbell_umem: queue.doorbell_umem,
        traffic: Default::default(),
        context,
    };
    use_parents(f, &rq, true);
    f.queues.rqs.insert(rq).map_err(|_| Syndrome::TooManyRqs)?;
    memory::use_umems(f, umems, true);
    let bears = clock::bears_real_time(f.nic.firmware.caps.general().rq_ts_format(), context.ts_format());
    f.nic.firmware.real_time.enlist(rqn, bears == Some(true));
    let mut output = CreateRqOut::ZERO;
    output.w().rqn(rqn);
    Ok(output)
}

fn check_context(f: &Function, context: &Rqc) -> Result<(), Syndrome> {
    if context.state() != QueueState::Rst {
        return Err(Syndrome::QueueState);
    }
    let unannounced = context.delay_drop_en()
        || context.scatter_fcs() && !f.nic.firmware.caps.ethernet().scatter_fcs()
        || context.mem_rq_type() != MemRqType::Inline
        || context.hairpin()
        || clock::bears_real_time(f.nic.firmware.caps.general().rq_ts_format(), context.ts_format()).is_none()
        || context.rmpn() != 0
        || context.reservation_timeout() != 0;
    if unannounced { Err(Syndrome::WqFeature) } else { Ok(()) }
}

fn use_parents(f: &mut Function, rq: &Rq, more: bool) {
    if let Some(cq) = f.nic.objects.cqs.get_mut(rq.cqn) {
        memory::count(&mut cq.users, more);
    }
    if let Some(pd) = f.nic.objects.pds.get_mut(rq.pd) {
        memory::count(&mut pd.users, more);
    }
}

/// `MODIFY_RQ`: state, and VLAN stripping.
pub(super) fn modify(f: &mut Function, command: &ModifyRqIn, _: &[u8]) -> Answer<ModifyRqOut> {
    let rq = f.queues.rqs.get_mut(command.rqn()).ok_or(Syndrome::NoSuchRq)?;
    if command.modify_bitmask() & !MODIFY_VSD != 0 {
        return Err(Syndrome::WqFeature.into());
    }
    let (from, to) = (rq.state, wq::next_state(rq.state, command.rq_state(), command.ctx().state())?);
    if command.modify_bitmask() & MODIFY_VSD != 0 {
        let vsd = command.ctx().vsd();
        rq.strips_vlan = !vsd;
        rq.context.w().vsd(vsd);
    }
    rq.state = to;
    engine::rq_state_changed(f, command.rqn(), from, to);
    Ok(ModifyRqOut::ZERO)
}

/// `QUERY_RQ`.
pub(super) fn query(f: &mut Function, command: &QueryRqIn) -> Answer<QueryRqOut> {
    let rq = f.queues.rqs.get(command.rqn()).ok_or(Syndrome::NoSuchRq)?;
    let mut context = rq.context;
    let mut wq = *context.wq();
    wq.w().hw_counter(rq.fetched.into()).sw_counter(rq.posted.into());
    context.w().state(rq.state).wq(&wq);
    let mut output = QueryRqOut::ZERO;
    output.w().rq_context(&context);
    Ok(output)
}

/// `DESTROY_RQ`, in any state, if no TIR or RQT uses it.
pub(super) fn destroy(f: &mut Function, command: &DestroyRqIn) -> Answer<DestroyRqOut> {
    let rqn = command.rqn();
    f.queues.rqs.get(rqn).ok_or(Syndrome::NoSuchRq)?;
    let in_tir = f.nic.objects.tirs.iter().any(|(_, tir)| matches!(tir.dispatch, Dispatch::Direct(to) if to == rqn));
    if in_tir || f.nic.objects.rqts.iter().any(|(_, rqt)| rqt.rqs.contains(&rqn)) {
        return Err(Syndrome::RqInUse.into());
    }
    let Some(rq) = f.queues.rqs.remove(rqn) else { return Err(Syndrome::NoSuchRq.into()) };
    use_parents(f, &rq, false);
    memory::use_umems(f, [rq.umem, rq.doorbell_umem], false);
    pages::release(f, Context::Queue);
    engine::rq_destroyed(f, rqn);
    Ok(DestroyRqOut::ZERO)
}
