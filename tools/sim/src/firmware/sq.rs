//! Send queues of Ethernet frames. PRM "Send Queue Context".

use mlx5_prm::caps::PerProtocolNetworkingOffloadCaps;
use mlx5_prm::cmd::*;
use mlx5_prm::ctx::{InlineMode, QueueState, Sqc};

use super::answer::Answer;
use super::caps::room_below;
use super::pages;
use super::syndromes::Syndrome;
use super::{clock, memory, rate, uar, uctx, wq};
use crate::engine;
use crate::function::{Context, Function};
use crate::objects::{SendRing, SendsThrough, Sq};

/// `CREATE_SQ`.
pub(super) fn create(f: &mut Function, command: &CreateSqIn, list: &[u8]) -> Answer<CreateSqOut> {
    let context = *command.ctx();
    if !uctx::may_send_frames(f) {
        return Err(Syndrome::RawSend.into());
    }
    check_context(f, &context)?;
    rate::check(f, context.packet_pacing_rate_limit_index())?;
    let tis = tis(f, &context)?;
    let queue = wq::take(f, context.wq(), wq::send_strides(&f.nic.firmware.caps), false, list)?;
    let (pd, uar) = (context.wq().pd(), context.wq().uar_page());
    f.nic.objects.cqs.get(context.cqn()).ok_or(Syndrome::NoSuchCq)?;
    f.nic.objects.pds.get(pd).ok_or(Syndrome::NoSuchPd)?;
    f.nic.objects.uars.get(uar).ok_or(Syndrome::NoSuchUar)?;
    room_below(&f.queues.sqs, f.nic.firmware.caps.general().log_max_sq()).ok_or(Syndrome::TooManySqs)?;
    pages::reserve(f, Context::Queue)?;
    let sqn = f.queues.sqs.next_number().ok_or(Syndrome::TooManySqs)?;
    let umems = [queue.umem, queue.doorbell_umem];
    let sq = Sq {
        sqn,
        state: QueueState::Rst,
        ring: SendRing { memory: queue.memory, log_size: queue.log_size },
        doorbell: queue.doorbell,
        cqn: context.cqn(),
        pd,
        uar,
        tis,
        fetched: 0,
        copied: None,
        posted: 0,
        is_listed: false,
        pace: Default::default(),
        consumed: Default::default(),
        posted_in_error: 0,
        umem: queue.umem,
        doorbell_umem: queue.doorbell_umem,
        traffic: Default::default(),
        context,
    };
    use_parents(f, &sq, true);
    f.queues.sqs.insert(sq).map_err(|_| Syndrome::TooManySqs)?;
    memory::use_umems(f, umems, true);
    engine::sq_created(f, sqn);
    let bears = clock::bears_real_time(f.nic.firmware.caps.general().sq_ts_format(), context.ts_format());
    f.nic.firmware.real_time.enlist(sqn, bears == Some(true));
    let mut output = CreateSqOut::ZERO;
    output.w().sqn(sqn);
    Ok(output)
}

fn check_context(f: &Function, context: &Sqc) -> Result<(), Syndrome> {
    if context.state() != QueueState::Rst {
        return Err(Syndrome::QueueState);
    }
    let unannounced = context.cd_master()
        || context.fre()
        || context.allow_multi_pkt_send_wqe() && !has_multi_packet(f.nic.firmware.caps.ethernet())
        || context.min_wqe_inline_mode() != InlineMode::None
        || context.reg_umr() && !f.nic.firmware.caps.ethernet().reg_umr_sq()
        || context.allow_swp() && !f.nic.firmware.caps.ethernet().swp()
        || context.hairpin()
        || context.non_wire()
        || clock::bears_real_time(f.nic.firmware.caps.general().sq_ts_format(), context.ts_format()).is_none()
        || context.ts_cqe_to_dest_cqn() != 0
        || context.qos_queue_group_id() != 0
        || context.tis_lst_sz() > 1 << f.nic.firmware.caps.general().log_max_tis_per_sq();
    if unannounced { Err(Syndrome::WqFeature) } else { Ok(()) }
}

/// Whether there are multi-packet WQEs of either form.
fn has_multi_packet(caps: &PerProtocolNetworkingOffloadCaps) -> bool {
    caps.multi_pkt_send_wqe() != 0 || caps.enhanced_multi_pkt_send_wqe()
}

fn tis(f: &Function, context: &Sqc) -> Result<Option<SendsThrough>, Syndrome> {
    if context.tis_lst_sz() == 0 {
        return Ok(None);
    }
    let tisn = context.tis_num_0();
    let tis = f.nic.objects.tiss.get(tisn).ok_or(Syndrome::NoSuchTis)?;
    Ok(Some(SendsThrough { tisn, domain: tis.transport_domain }))
}

fn use_parents(f: &mut Function, sq: &Sq, more: bool) {
    if let Some(cq) = f.nic.objects.cqs.get_mut(sq.cqn) {
        memory::count(&mut cq.users, more);
    }
    if let Some(pd) = f.nic.objects.pds.get_mut(sq.pd) {
        memory::count(&mut pd.users, more);
    }
    uar::count(f, sq.uar, more);
    if let Some(tis) = sq.tis.and_then(|tis| f.nic.objects.tiss.get_mut(tis.tisn)) {
        memory::count(&mut tis.users, more);
    }
}

/// `modify_bitmask` of `MODIFY_SQ`: `packet_pacing_rate_limit_index`.
const SELECT_RATE: u64 = 1;

/// `MODIFY_SQ`: the state, and the rate limit.
pub(super) fn modify(f: &mut Function, command: &ModifySqIn, _: &[u8]) -> Answer<ModifySqOut> {
    if command.modify_bitmask() & !SELECT_RATE != 0 {
        return Err(Syndrome::WqFeature.into());
    }
    let index = command.ctx().packet_pacing_rate_limit_index();
    let rate = (command.modify_bitmask() & SELECT_RATE != 0).then_some(index);
    if let Some(index) = rate {
        rate::check(f, index)?;
    }
    let sq = f.queues.sqs.get_mut(command.sqn()).ok_or(Syndrome::NoSuchSq)?;
    let (from, to) = (sq.state, wq::next_state(sq.state, command.sq_state(), command.ctx().state())?);
    sq.state = to;
    if let Some(index) = rate {
        sq.context.w().packet_pacing_rate_limit_index(index);
        engine::sq_rate_changed(f, command.sqn());
    }
    engine::sq_state_changed(f, command.sqn(), from, to);
    Ok(ModifySqOut::ZERO)
}

/// `QUERY_SQ`.
pub(super) fn query(f: &mut Function, command: &QuerySqIn) -> Answer<QuerySqOut> {
    let sq = f.queues.sqs.get(command.sqn()).ok_or(Syndrome::NoSuchSq)?;
    let mut context = sq.context;
    let mut wq = *context.wq();
    wq.w().hw_counter(sq.fetched.into()).sw_counter(sq.posted.into());
    context.w().state(sq.state).wq(&wq);
    let mut output = QuerySqOut::ZERO;
    output.w().sq_context(&context);
    Ok(output)
}

/// `DESTROY_SQ`, in any state.
pub(super) fn destroy(f: &mut Function, command: &DestroySqIn) -> Answer<DestroySqOut> {
    let sq = f.queues.sqs.remove(command.sqn()).ok_or(Syndrome::NoSuchSq)?;
    use_parents(f, &sq, false);
    memory::use_umems(f, [sq.umem, sq.doorbell_umem], false);
    pages::release(f, Context::Queue);
    engine::sq_destroyed(f, sq.uar, command.sqn());
    Ok(DestroySqOut::ZERO)
}
