//! Receive queue tables. PRM `rqtc`.

use mlx5_prm::cmd::*;
use mlx5_prm::ctx::{ListQType, Rqtc};

use super::answer::Answer;
use super::caps::next_below;
use super::pages;
use super::syndromes::Syndrome;
use crate::function::{Context, Function};
use crate::objects::{Dispatch, Rqt};

/// `CREATE_RQT`.
pub(super) fn create(f: &mut Function, command: &CreateRqtIn, list: &[u8]) -> Answer<CreateRqtOut> {
    let context = *command.rqt_context();
    let caps = f.nic.firmware.caps.general();
    if u32::from(context.rqt_max_size()) > 1 << caps.log_max_rqt_size() {
        return Err(Syndrome::RqtSize.into());
    }
    let rqs = queues(f, &context, context.rqt_max_size(), list)?;
    next_below(&f.nic.objects.rqts, caps.log_max_rqt()).ok_or(Syndrome::TooManyRqts)?;
    pages::reserve(f, Context::Queue)?;
    let rqt = Rqt { rqs, max_size: context.rqt_max_size(), context };
    let rqtn = f.nic.objects.rqts.insert(rqt).map_err(|_| Syndrome::TooManyRqts)?;
    let mut output = CreateRqtOut::ZERO;
    output.w().rqtn(rqtn);
    Ok(output)
}

fn queues(f: &Function, context: &Rqtc, most: u16, list: &[u8]) -> Result<Vec<u32>, Syndrome> {
    if context.list_q_type() != ListQType::Rq || context.rq_vhca_id_format() {
        return Err(Syndrome::CapabilityNotAnnounced);
    }
    let size = usize::from(context.rqt_actual_size());
    if size == 0 || size > usize::from(most) {
        return Err(Syndrome::RqtSize);
    }
    let (numbers, _) = list.as_chunks::<4>();
    let numbers = numbers.get(..size).ok_or(Syndrome::InputListLength)?;
    let rqs: Vec<u32> = numbers.iter().map(|number| u32::from_be_bytes(*number)).collect();
    if rqs.iter().any(|rqn| f.queues.rqs.get(*rqn).is_none()) {
        return Err(Syndrome::NoSuchRq);
    }
    Ok(rqs)
}

/// `MODIFY_RQT`: replaces the queues.
pub(super) fn modify(f: &mut Function, command: &ModifyRqtIn, list: &[u8]) -> Answer<ModifyRqtOut> {
    let rqt = f.nic.objects.rqts.get(command.rqtn()).ok_or(Syndrome::NoSuchRqt)?;
    if !command.bitmask().rqn_list() {
        return Ok(ModifyRqtOut::ZERO);
    }
    let rqs = queues(f, command.ctx(), rqt.max_size, list)?;
    if let Some(rqt) = f.nic.objects.rqts.get_mut(command.rqtn()) {
        rqt.context.w().rqt_actual_size(rqs.len() as u16);
        rqt.rqs = rqs;
    }
    Ok(ModifyRqtOut::ZERO)
}

/// `QUERY_RQT`: the context, and as many queue numbers as fit.
pub(super) fn query(f: &mut Function, command: &QueryRqtIn, _: &[u8], room: usize) -> Answer<(QueryRqtOut, Vec<u8>)> {
    let rqt = f.nic.objects.rqts.get(command.rqtn()).ok_or(Syndrome::NoSuchRqt)?;
    let mut output = QueryRqtOut::ZERO;
    output.w().rqt_context(&rqt.context);
    let mut list: Vec<u8> = rqt.rqs.iter().flat_map(|rqn| rqn.to_be_bytes()).collect();
    list.truncate(room / 4 * 4);
    Ok((output, list))
}

/// `DESTROY_RQT`, if no TIR uses it.
pub(super) fn destroy(f: &mut Function, command: &DestroyRqtIn) -> Answer<DestroyRqtOut> {
    let rqtn = command.rqtn();
    f.nic.objects.rqts.get(rqtn).ok_or(Syndrome::NoSuchRqt)?;
    if f.nic.objects.tirs.iter().any(|(_, tir)| matches!(tir.dispatch, Dispatch::Indirect(to, _) if to == rqtn)) {
        return Err(Syndrome::RqtInUse.into());
    }
    f.nic.objects.rqts.remove(rqtn);
    pages::release(f, Context::Queue);
    Ok(DestroyRqtOut::ZERO)
}
