//! A channel of a DC initiator's streams: how it begins and ends work requests. `streams` hands them out and completes
//! them.

use crate::engine::completion;
use crate::function::Nic;
use crate::objects::{Failure, Qp, SendWork};

/// Adds a work request to what a channel executes.
pub(crate) fn begin(channel: &mut Qp, nic: &mut Nic, mut work: SendWork) {
    let send = &mut channel.rc.send;
    work.first = send.assigned;
    send.assigned = work.end();
    send.work.push_back(work);
    nic.scheduler.set_ready(channel);
}

/// A channel has executed a work request.
pub(super) fn end(channel: &mut Qp, nic: &mut Nic, work: SendWork) {
    channel.rc.send.ended.push((work, None));
    nic.scheduler.streaming.insert(channel.qpn);
}

/// The oldest work request of a channel failed: all of its stream end, and the channel goes on with those of others by
/// a new connection. None of these has begun: a stream begins when all before it is acknowledged.
pub(super) fn fail(channel: &mut Qp, nic: &mut Nic, failure: Failure) {
    nic.scheduler.page_faults.forget(channel.scheduled());
    let send = &mut channel.rc.send;
    let Some(failed) = send.work.pop_front() else { return };
    let stream = failed.stream;
    let (flushed, others): (Vec<_>, Vec<_>) = send.work.drain(..).partition(|work| work.stream == stream);
    send.ended.push((failed, Some(failure)));
    send.ended.extend(flushed.into_iter().map(|work| (work, Some(completion::flushed()))));
    let first = send.sent;
    (send.assigned, send.next, send.unacked) = (first, first, first);
    (send.cursor, send.reads, send.retries, send.rnr_retries) = (0, 0, 0, 0);
    (send.deadline, send.pause, send.fault, send.gap, send.target) = (None, None, None, None, None);
    send.is_retransmitting = false;
    nic.scheduler.streaming.insert(channel.qpn);
    others.into_iter().for_each(|work| begin(channel, nic, work));
}
