//! Streams of dynamically connected initiators. Each message names a stream. Those of one stream are executed in order;
//! those of several at once, each by a channel: a hidden queue pair that only requests, with PSNs and a connection of
//! its own. Completions come in the order of the send queue. PRM "DCI Stream Channels".
//!
//! A work request that fails puts its stream into error, and not the initiator: later ones of the stream are flushed,
//! until software resets it. With `2^log_num_dci_errored_streams` streams in error, the initiator is in error, too. So
//! says rdma-core's manual, at `mlx5dv_dci_stream_id_reset`; the PRM that is public does not describe streams.

use mlx5_prm::cqe::CqeSyndrome;
use mlx5_prm::values::QpState;

use super::charge::charge;
use super::rc::channel;
use super::{completion, dynamic, flush, wqe};
use crate::function::{Function, Nic};
use crate::objects::{Qp, Queues, RcState, Streamed, Streams, Table};

/// An initiator comes to RTS.
pub(super) fn begin(qp: &mut Qp) {
    let context = &qp.context;
    if context.log_num_dci_stream_channels() != 0 || context.log_num_dci_errored_streams() != 0 {
        qp.rc.send.streams = Some(Box::default());
    }
}

/// Hands up to `budget` posted work requests of an initiator to the channels of their streams.
pub(super) fn hand_out(queues: &mut Queues, nic: &mut Nic, qpn: u32, budget: u32) {
    let Queues { qps, connections, .. } = queues;
    let Some(qp) = qps.get_mut(qpn).filter(|qp| qp.state == QpState::Rts) else { return };
    for _ in 0..budget {
        if qp.rc.send.fetched == qp.rc.send.posted {
            return;
        }
        let Some(work) = charge(qp, nic, wqe::fetch_send) else { return };
        let channels = 1u32 << qp.context.log_num_dci_stream_channels();
        let place = (u32::from(work.stream) % channels) as u16;
        let number = number(qp, connections, place);
        let Some(streams) = &mut qp.rc.send.streams else { return };
        let mut streamed = Streamed { index: work.index, opcode: work.opcode, ended: None };
        match connections.get_mut(number.unwrap_or_default()) {
            Some(channel) if !streams.errored.contains(&work.stream) => channel::begin(channel, nic, work),
            Some(_) => streamed.ended = Some((work, Some(completion::flushed()))),
            None => streamed.ended = Some((work, Some(wqe::bad_operation()))),
        }
        streams.work.push_back(streamed);
        nic.scheduler.streaming.insert(qpn);
    }
    nic.scheduler.set_ready(qp);
}

/// The number of the channel at `place`. `None` if there is no room for another.
fn number(qp: &mut Qp, connections: &mut Table<Qp>, place: u16) -> Option<u32> {
    let known = qp.rc.send.streams.as_ref()?.channels.get(&place).copied();
    if known.is_some() {
        return known;
    }
    let number = connections.insert(new_channel(qp)).ok()?;
    connections.get_mut(number)?.hidden = Some(number);
    qp.rc.send.streams.as_mut()?.channels.insert(place, number);
    Some(number)
}

/// A channel of the initiator `qp`: the same without rings.
fn new_channel(qp: &Qp) -> Qp {
    Qp {
        qpn: qp.qpn,
        hidden: None,
        state: QpState::Rts,
        service: qp.service,
        pd: qp.pd,
        uar: qp.uar,
        user_index: qp.user_index,
        send: None,
        recv: None,
        srqn: None,
        xrcd: 0,
        cqn_send: qp.cqn_send,
        cqn_recv: qp.cqn_recv,
        doorbell: Default::default(),
        path: qp.path.clone(),
        mtu: qp.mtu,
        remote_qpn: 0,
        retry_count: qp.retry_count,
        rnr_retry: qp.rnr_retry,
        min_rnr_nak: 0,
        log_sra_max: qp.log_sra_max,
        log_rra_max: 0,
        remote_write: false,
        remote_read: false,
        remote_atomic: false,
        counter_set_id: qp.counter_set_id,
        ece: 0,
        umem: None,
        doorbell_umem: None,
        traffic: Default::default(),
        context: qp.context,
        rc: RcState::default(),
    }
}

/// Completes what has ended of the streams of all initiators, each in its order. Returns true if there was any.
pub(super) fn complete_ended(f: &mut Function) -> bool {
    let (queues, nic) = (&mut f.queues, &mut f.nic);
    let initiators = std::mem::take(&mut nic.scheduler.streaming);
    for qpn in &initiators {
        let Some(qp) = queues.qps.get_mut(*qpn) else { continue };
        gather(qp, &mut queues.connections);
        charge(qp, nic, complete);
        if qp.state == QpState::Err {
            close_channels(qp, &mut queues.connections, nic);
        }
    }
    !initiators.is_empty()
}

/// Takes from its channels what has ended.
fn gather(qp: &mut Qp, connections: &mut Table<Qp>) {
    let Some(streams) = &mut qp.rc.send.streams else { return };
    let Streams { work: waiting, channels, errored } = &mut **streams;
    for number in channels.values() {
        let Some(channel) = connections.get_mut(*number) else { continue };
        qp.traffic += std::mem::take(&mut channel.traffic);
        for (work, failure) in channel.rc.send.ended.drain(..) {
            if failure.is_some() {
                errored.insert(work.stream);
            }
            if let Some(waiting) = waiting.iter_mut().find(|waiting| waiting.index == work.index) {
                waiting.ended = Some((work, failure));
            }
        }
    }
}

/// Completes the oldest work requests as far as they have ended.
fn complete(qp: &mut Qp, nic: &mut Nic) {
    let most = 1usize << qp.context.log_num_dci_errored_streams();
    while let Some(streams) = &mut qp.rc.send.streams {
        let errored = streams.errored.len();
        let Some(oldest) = streams.work.pop_front_if(|oldest| oldest.ended.is_some()) else { return };
        let failure = flush::complete(qp, nic, oldest);
        // A request that makes no sense says nothing of its stream.
        let is_fatal = failure.is_some_and(|failure| failure.syndrome == CqeSyndrome::LocalQpOperation);
        if is_fatal || failure.is_some() && errored >= most {
            return flush::to_error(qp, nic);
        }
    }
}

/// Ends all channels of an initiator.
pub(super) fn close_channels(qp: &mut Qp, connections: &mut Table<Qp>, nic: &mut Nic) {
    let Some(streams) = &mut qp.rc.send.streams else { return };
    for number in std::mem::take(&mut streams.channels).into_values() {
        dynamic::forget(number, connections, nic);
    }
}
