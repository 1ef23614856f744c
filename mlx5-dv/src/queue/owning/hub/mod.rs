//! Many connections on one thread, with one UAR page, one completion queue and one shared receive queue.

pub(in crate::queue) mod members;
pub(in crate::queue) mod options;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use mlx5_prm::eqe::{EventType, QpEvent};
use mlx5_prm::layout::Layout;
use mlx5_prm::values::QpState;

use super::batch::{ConnectionBatch, alone};
use super::in_flight::{Done, InFlight, Kept, Refused, RefusedReason, Ticket, UNREPORTED_CQES};
use super::queues::{MOST_SKIPPED, NoReceives};
use super::receives::Receives;
use super::setup::{self, Peer};
use super::work_queues::{Take, WorkQueues, if_taken};
use crate::access::AsyncEvents;
use crate::deadline::Deadline;
use crate::error::{Error, Invalid};
use crate::memory::RemoteAddress;
use crate::objects::{
    AnyDoorbell, Buffer, CqOptions, DestroyReason, DoorbellKind, DoorbellMode, ExclusiveRegion, InitAttributes, Leased,
    OfOwner, Pd, QpOptions, QpStatus, QueuePair, Srq, SrqOptions, Uar,
};
use crate::queue::completion::CompletionQueue;
use crate::queue::completion::decode::{Completion, Side, WorkError, user_index_of, work_of};
use crate::queue::error::RetireError;
use crate::queue::events::{EventSource, event_source};
use crate::queue::receive::shared::SharedReceiveQueue;
use crate::queue::send::service::Messages;

use members::{ConnectionId, MOST, Members};
use options::{HubDone, HubOptions, Left};

#[derive(Debug)]
struct Member<C> {
    context: C,
    qpn: u32,
    psn: u32,
    /// With a send queue once it is connected.
    work: WorkQueues<Messages, NoReceives, InFlight, OfOwner>,
    /// Whether the card has reported its last receive (SRQ_LAST_WQE).
    has_ended: bool,
    /// Whether it may have, by an event that was lost.
    may_have_ended: bool,
}

/// What a completion took out, of a connection.
pub(in crate::queue) struct Taken<C> {
    id: ConnectionId,
    /// That of the connection. A pointer: with a borrow of the members in what is returned, they could not be used
    /// where nothing was taken.
    context: NonNull<C>,
    ticket: Ticket,
    buffer: Option<Buffer>,
}

/// Hundreds of reliable connections on one thread, with a common UAR page, completion queue and shared receive queue.
///
/// Connections [join](Self::join) and [leave](Self::leave) while others run; an error of one does not affect the
/// others. [`poll`](Self::poll) returns completions with their connection's ID and context, found in constant time.
/// Posting and polling make no system call, take no lock and allocate nothing.
///
/// A received message is in a [`Buffer`] of the hub, and read there ([`Done::received`]); it can also be sent as it is.
/// Afterwards return it by [`recycle`](Self::recycle).
///
/// A hub belongs to one thread at a time. Dropping it destroys its connections.
pub struct Hub<C> {
    members: Members<Member<C>>,
    /// Of all connections: they are on one thread, and need no lock.
    doorbell: Leased<AnyDoorbell>,
    /// Keyed by queue pair number, for events.
    by_qpn: HashMap<u32, ConnectionId>,
    /// Completions polled while a connection left.
    deferred: VecDeque<(ConnectionId, Done)>,
    /// What completed with the completion being polled.
    later: VecDeque<Done>,
    spare: Vec<Buffer>,
    shared: SharedReceiveQueue,
    /// After the queue, which holds the object, too.
    receives: Receives,
    cq: CompletionQueue,
    events: AsyncEvents,
    lost_events: u64,
    options: HubOptions,
    region: ExclusiveRegion,
    uar: Arc<Uar>,
    pd: Arc<Pd>,
}

impl<C> Take for Hub<C> {
    type Taken = Taken<C>;

    #[inline(always)]
    fn take_sent(&mut self, completion: &Completion) -> Option<Taken<C>> {
        let (id, Member { work, context, .. }) = self.members.find(completion.user_index)?;
        // It checks the queue pair's number, too: the user index comes from the card and is not trusted.
        let send = work.queues.send.as_mut()?;
        let (ticket, buffer) =
            send.retire_if(&completion.work, |wr_id| work.in_flight.take_alone(Side::Send, wr_id))?;
        Some(Taken { id, context: NonNull::from(context), ticket, buffer })
    }

    #[inline(always)]
    fn take_received(&mut self, completion: &Completion) -> Option<Taken<C>> {
        let (id, Member { qpn, context, .. }) = self.members.find(completion.user_index)?;
        if *qpn != completion.work.qpn {
            return None;
        }
        let receives = &mut self.receives.in_flight;
        let taken = self.shared.retire_if(&completion.work, |wr_id| receives.take_alone(Side::Receive, wr_id));
        let (ticket, buffer) = taken?;
        Some(Taken { id, context: NonNull::from(context), ticket, buffer })
    }
}

impl<C> fmt::Debug for Hub<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hub({} connections, {:?}, {} spare buffers)", self.members.len(), self.shared, self.spare.len())
    }
}

/// Longest wait for a leaving connection's work in flight.
const FLUSH: Duration = Duration::from_secs(1);
/// Polling interval of that wait.
const LOOK: Duration = Duration::from_micros(50);

impl<C> Hub<C> {
    /// Creates a hub without connections, and posts its receives.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the options exceed a capability; [`Error::Unsupported`] for [`Copying::Always`] on a card
    /// without BlueFlame; [`Error::Memory`], [`Error::Command`].
    ///
    /// [`Copying::Always`]: crate::objects::Copying::Always
    pub fn new(pd: &Arc<Pd>, options: HubOptions) -> Result<Self, Error> {
        at_most(options.connections)?;
        let device = pd.device();
        setup::qp_options(&options.each, QpOptions::default()).check(device.caps())?;
        let events = device.async_events();
        let uar = Uar::alloc_for_one_queue(device, options.each.copying)?;
        let srq = Srq::create(pd, SrqOptions::default().wqes(options.receives))?;
        let shared = srq.receive_queue()?;
        let mut cq_options = CqOptions::default()
            .entries(entries(&options, &shared))
            .moderation(options.each.moderation)
            .vector(options.each.vector);
        cq_options.events = options.each.events;
        let cq = CompletionQueue::create(&uar, cq_options.beside(pd))?;
        let buffers = shared.capacity() + options.spares as usize;
        let bytes = buffers.saturating_mul(options.message_bytes);
        let region = ExclusiveRegion::allocate(pd, bytes)?;
        let at_once = options.each.send_depth as usize * usize::from(options.each.send_sges.max(1));
        let buffer = |at: usize| region.buffer(at * options.message_bytes..(at + 1) * options.message_bytes);
        let mut hub = Hub {
            members: Members::new(options.connections),
            doorbell: AnyDoorbell::of(&uar)?,
            by_qpn: HashMap::new(),
            deferred: VecDeque::with_capacity(at_once),
            later: VecDeque::with_capacity(at_once),
            receives: Receives::new(&shared, srq),
            // In reverse order, since buffers are popped from the end.
            spare: (0..buffers).rev().map(buffer).collect::<Result<_, _>>()?,
            shared,
            cq,
            events,
            lost_events: 0,
            region,
            options,
            uar,
            pd: Arc::clone(pd),
        };
        // The others are spare.
        let _full = hub.receives.post_each(&mut hub.shared, &mut hub.spare);
        Ok(hub)
    }

    /// Raises the maximum number of connections to `connections`, while others run: the completion queue is resized. A
    /// smaller number changes nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] for more than 16384, or more than a completion queue serves (`log_max_cq_sz`);
    /// [`Error::Unsupported`] if the card cannot resize it (`cq_resize`); [`Error::Memory`], [`Error::Command`].
    pub fn grow(&mut self, connections: u32) -> Result<(), Error> {
        at_most(connections)?;
        if connections <= self.options.connections {
            return Ok(());
        }
        let options = HubOptions { connections, ..self.options.clone() };
        let entries = entries(&options, &self.shared);
        if entries > self.cq.cq().capacity() {
            self.cq.resize(entries)?;
        }
        self.members.grow(connections);
        self.options = options;
        Ok(())
    }

    /// Posts `buffer`, or keeps it as a spare.
    #[inline]
    fn post_receive(&mut self, buffer: Buffer) {
        if let Err(refused) = self.receives.post(&mut self.shared, buffer) {
            self.spare.extend(refused.buffer);
        }
    }

    /// A buffer to send from, which is [filled in place](Buffer::as_mut_slice); `None` if none is spare.
    pub fn buffer(&mut self) -> Option<Buffer> {
        self.spare.pop()
    }

    /// Returns a buffer to the hub, for the next receive or send.
    ///
    /// # Errors
    /// [`Refused`] for a buffer of another owner.
    pub fn recycle(&mut self, mut buffer: Buffer) -> Result<(), Refused> {
        let is_ours = self.region.owns(&buffer) && buffer.capacity() == self.options.message_bytes;
        if !is_ours {
            return Err(Refused { buffer: Some(buffer), reason: RefusedReason::ForeignBuffer });
        }
        buffer.set_len(buffer.capacity());
        self.post_receive(buffer);
        Ok(())
    }

    /// Number of buffers posted for receives, and of spare ones.
    pub fn buffers(&self) -> (usize, usize) {
        (self.receives.in_flight.in_flight().1, self.spare.len())
    }

    /// Number of the card's asynchronous events that were lost since the hub exists, as it was not called for too long
    /// while there were many. Connections are none the worse: one that ended meanwhile is asked for its state when it
    /// [leaves](Self::leave).
    pub fn lost_events(&self) -> u64 {
        self.lost_events
    }

    /// Number of connections.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there are no connections.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// IDs of all connections.
    pub fn connections(&self) -> impl Iterator<Item = ConnectionId> {
        self.members.ids()
    }

    /// The context of `connection`; `None` once it has left.
    pub fn context(&mut self, connection: ConnectionId) -> Option<&mut C> {
        self.members.get_mut(connection).map(|member| &mut member.context)
    }

    fn member(&self, connection: ConnectionId) -> Result<&Member<C>, Error> {
        self.members.get(connection).ok_or_else(has_left)
    }

    /// Creates a connection with its queue pair in INIT. `context` is returned with each of its completions.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the hub is full, or the options exceed a capability; [`Error::Memory`],
    /// [`Error::Command`].
    pub fn join(&mut self, context: C) -> Result<ConnectionId, Error> {
        let id = self.members.next().ok_or_else(|| {
            let (entries, mend) = (self.options.connections.into(), "let one leave, or Hub::grow");
            Invalid::NoRoom { object: "the hub".into(), entries, mend }
        })?;
        let qp = self.create_queue_pair(id)?;
        self.admit(id, qp, context);
        Ok(id)
    }

    /// The queue pair of the connection that will be `id`, in INIT.
    fn create_queue_pair(&self, id: ConnectionId) -> Result<Arc<QueuePair>, Error> {
        let each = &self.options.each;
        let options = QpOptions::default().srq(self.shared.srq()).user_index(id.user_index());
        let options = setup::qp_options(each, options);
        let qp = QueuePair::create(&self.pd, &self.uar, self.cq.cq(), self.cq.cq(), options)?;
        qp.init(&InitAttributes { remote_access: each.remote_access, ..InitAttributes::default() })?;
        Ok(qp)
    }

    /// Adds the member that is to be `id`.
    fn admit(&mut self, id: ConnectionId, qp: Arc<QueuePair>, context: C) {
        let each = &self.options.each;
        let (qpn, psn) = (qp.qpn(), setup::first_psn(&qp, each));
        let in_flight = InFlight::of_several((each.send_depth, each.send_sges), (0, 1));
        // What they say of this number was an earlier queue pair's.
        self.take_events();
        self.by_qpn.insert(qpn, id);
        let work = WorkQueues::new(qp, in_flight);
        self.members.insert(Member { context, qpn, psn, work, has_ended: false, may_have_ended: false });
    }

    /// The data that the remote needs to connect. Errors: [`Error::Invalid`] if `gid_index` is not in the GID table, or
    /// the connection has left.
    pub fn local(&self, connection: ConnectionId) -> Result<Peer, Error> {
        let member = self.member(connection)?;
        setup::local(&member.work.qp, &self.options.each, member.psn)
    }

    /// Connects to `peer`: INIT to RTR to RTS.
    ///
    /// # Errors
    /// As for [`Connection::connect`](crate::queue::Connection::connect); [`Error::Invalid`] if the connection has
    /// left.
    pub fn connect(&mut self, connection: ConnectionId, peer: &Peer) -> Result<(), Error> {
        let member = self.member(connection)?;
        let send = setup::connect(&member.work.qp, &self.options.each, member.psn, peer)?;
        if let Some(member) = self.members.get_mut(connection) {
            member.work.queues.send = send;
        }
        Ok(())
    }

    /// How its sends ring the doorbell; `None` before it is connected, and once it has left.
    pub fn doorbell_kind(&self, connection: ConnectionId) -> Option<DoorbellKind> {
        self.members.get(connection)?.work.queues.send.as_ref().map(|_| self.doorbell.kind())
    }

    /// Queries its queue pair. Errors: [`Error::Command`], [`Error::Invalid`] if the connection has left.
    pub fn query(&self, connection: ConnectionId) -> Result<QpStatus, Error> {
        self.member(connection)?.work.qp.query()
    }

    /// Starts a batch of work requests of `connection`, with one doorbell; `None` if it has left. By a batch go those,
    /// too, that the hub has no call of its own for: atomics, fast registrations, memory windows.
    #[inline(always)]
    pub fn batch(&mut self, connection: ConnectionId) -> Option<ConnectionBatch<'_>> {
        Some(self.members.get_mut(connection)?.work.batch_by(self.doorbell.get()))
    }

    /// The buffer of a [kept send](ConnectionBatch::send_kept) of `connection`, once polls have met its completion;
    /// `None` before, when it is back already, and when the connection has left.
    #[inline]
    pub fn reclaim(&mut self, connection: ConnectionId, kept: &Kept) -> Option<Buffer> {
        self.members.get_mut(connection)?.work.in_flight.reclaim(kept)
    }

    /// SEND of `buffer`. Errors: [`Refused`], with the buffer.
    #[inline]
    pub fn send(&mut self, connection: ConnectionId, buffer: Buffer) -> Result<Ticket, Refused> {
        match self.batch(connection) {
            Some(batch) => alone!(batch, send(buffer)),
            None => Err(Refused { buffer: Some(buffer), reason: RefusedReason::HasLeft }),
        }
    }

    /// SEND of `buffer` with immediate data and the solicited bit. Errors: [`Refused`], with the buffer.
    #[inline]
    pub fn send_imm(&mut self, connection: ConnectionId, buffer: Buffer, imm: u32) -> Result<Ticket, Refused> {
        match self.batch(connection) {
            Some(batch) => alone!(batch, send_imm(buffer, imm)),
            None => Err(Refused { buffer: Some(buffer), reason: RefusedReason::HasLeft }),
        }
    }

    /// SEND of `buffer` that invalidates the remote's key `rkey`. Errors: [`Refused`], with the buffer.
    #[inline]
    pub fn send_invalidate(&mut self, connection: ConnectionId, buffer: Buffer, rkey: u32) -> Result<Ticket, Refused> {
        match self.batch(connection) {
            Some(batch) => alone!(batch, send_invalidate(buffer, rkey)),
            None => Err(Refused { buffer: Some(buffer), reason: RefusedReason::HasLeft }),
        }
    }

    /// RDMA WRITE of `buffer` to `remote`. Errors: [`Refused`], with the buffer.
    #[inline]
    pub fn write(
        &mut self,
        connection: ConnectionId,
        buffer: Buffer,
        remote: RemoteAddress,
    ) -> Result<Ticket, Refused> {
        match self.batch(connection) {
            Some(batch) => alone!(batch, write(buffer, remote)),
            None => Err(Refused { buffer: Some(buffer), reason: RefusedReason::HasLeft }),
        }
    }

    /// RDMA READ from `remote` into `buffer`. Errors: [`Refused`], with the buffer.
    #[inline]
    pub fn read(&mut self, connection: ConnectionId, buffer: Buffer, remote: RemoteAddress) -> Result<Ticket, Refused> {
        match self.batch(connection) {
            Some(batch) => alone!(batch, read(buffer, remote)),
            None => Err(Refused { buffer: Some(buffer), reason: RefusedReason::HasLeft }),
        }
    }

    /// SEND of `data`, which is copied at once. Errors: [`Refused`].
    #[inline(always)]
    pub fn send_inline(&mut self, connection: ConnectionId, data: &[u8]) -> Result<Ticket, Refused> {
        match self.batch(connection) {
            Some(batch) => alone!(batch, send_inline(data)),
            None => Err(Refused { buffer: None, reason: RefusedReason::HasLeft }),
        }
    }

    /// The next completed work request of any connection; `None` if there is none.
    ///
    /// # Errors
    /// [`RetireError`] if a completion does not match any work request in flight: the card or the driver is faulty.
    // Inlined, and no call gets the address of what it returns: so that is never stored, and what the caller does not
    // use is not even made. What takes calls is deferred first.
    #[inline(always)]
    pub fn poll(&mut self) -> Result<Option<HubDone<'_, C>>, RetireError> {
        if self.deferred.is_empty() {
            let Some(cqe) = self.cq.peek_entry() else { return Ok(None) };
            if_taken!(self, cqe, |Taken { id, mut context, ticket, buffer }, completion| {
                self.cq.pass_entry();
                // SAFETY: it is of a member, of which nothing else has a reference, and which stays where it is while
                // the hub is borrowed by what is returned.
                let context = unsafe { context.as_mut() };
                return Ok(Some(HubDone { connection: id, context, done: Done::of(ticket, buffer, Ok(completion)) }));
            });
            self.defer()?;
        }
        let Some((id, done)) = self.next_deferred() else { return Ok(None) };
        Ok(self.of(id, done))
    }

    /// The first of what was deferred.
    #[cold]
    #[inline(never)]
    fn next_deferred(&mut self) -> Option<(ConnectionId, Done)> {
        self.deferred.pop_front()
    }

    /// `done` of the connection `id`, with its context.
    #[inline(always)]
    fn of(&mut self, id: ConnectionId, done: Done) -> Option<HubDone<'_, C>> {
        let member = self.members.get_mut(id)?;
        Some(HubDone { connection: id, context: &mut member.context, done })
    }

    /// Defers all that the card has completed next.
    #[cold]
    #[inline(never)]
    fn defer(&mut self) -> Result<(), RetireError> {
        let next = self.poll_card()?;
        // Before those that completed with it.
        next.into_iter().for_each(|next| self.deferred.push_front(next));
        Ok(())
    }

    /// The next completion of a present connection.
    fn poll_card(&mut self) -> Result<Option<(ConnectionId, Done)>, RetireError> {
        for _ in 0..MOST_SKIPPED {
            let Some(result) = self.cq.poll() else { return Ok(None) };
            if let Some(next) = self.finish(result)? {
                return Ok(Some(next));
            }
        }
        Ok(None)
    }

    /// What completed with `result`. `None` for a receive of a connection that has left, which is posted again, and for
    /// a send that is not to be reported.
    fn finish(&mut self, result: Result<Completion, WorkError>) -> Result<Option<(ConnectionId, Done)>, RetireError> {
        if result.is_err() {
            // When many connections end at once, not all their events have room in the channel.
            self.take_events();
        }
        let work = work_of(&result);
        // Check the number, too: the user index comes from the card and is not trusted.
        let found = self.members.find(user_index_of(&result)).filter(|(_, member)| member.qpn == work.qpn);
        match work.side {
            Side::Send => {
                let (id, member) = found.ok_or_else(|| RetireError::nothing_in_flight(work))?;
                let wr_id = member.work.queues.retire(&work)?;
                self.complete(Some(id), wr_id, result)
            }
            Side::Receive => {
                let id = found.map(|(id, _)| id);
                let wr_id = self.shared.retire(&work)?;
                self.complete(id, wr_id, result)
            }
        }
    }

    /// As [`finish`](Self::finish), of what was retired.
    fn complete(
        &mut self,
        connection: Option<ConnectionId>,
        wr_id: u64,
        result: Result<Completion, WorkError>,
    ) -> Result<Option<(ConnectionId, Done)>, RetireError> {
        let work = work_of(&result);
        if work.side == Side::Receive {
            let done = self.receives.in_flight.done(wr_id, result)?;
            return Ok(match connection {
                Some(id) => Some((id, done)),
                None => {
                    done.buffer.into_iter().for_each(|buffer| self.post_receive(buffer));
                    None
                }
            });
        }
        let found = connection.and_then(|id| Some((id, self.members.get_mut(id)?)));
        let (id, member) = found.ok_or_else(|| RetireError::nothing_in_flight(work))?;
        let done = member.work.in_flight.complete(wr_id, result, &mut self.later)?;
        // Empty, but after quiet work requests and those of several buffers.
        self.deferred.extend(self.later.drain(..).map(|done| (id, done)));
        Ok(done.map(|done| (id, done)))
    }

    /// Waits until [`poll`](Self::poll) may have something: returns at once, or sleeps if `events` is set.
    ///
    /// # Errors
    /// [`Error::Timeout`] after `timeout`; [`Error::CompletionQueue`] if the completion queue overran; [`Error::Dead`].
    pub fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        if !self.deferred.is_empty() {
            return Ok(());
        }
        self.cq.wait_or_yield(timeout)
    }

    /// As [`wait`](Self::wait), for tasks of any executor. `readable` and the errors are those of
    /// [`CompletionQueue::ready`]. The hub needs `events`.
    pub async fn ready(&mut self, readable: impl AsyncFnMut() -> io::Result<()>) -> Result<(), Error> {
        if self.deferred.is_empty() { self.cq.ready(readable).await } else { Ok(()) }
    }

    /// The eventfd that becomes readable at an event that [`ready`](Self::ready) or [`wait`](Self::wait) requested;
    /// `None` for a hub without `events`.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.cq.fd()
    }

    /// Takes the queue pair of `connection` to ERR without waiting: all that it has posted, and whatever is posted from
    /// now on, completes with a flush error. A last send, a beacon, tells by its completion that all before it are
    /// done; [`leave`](Self::leave) then has no sends to wait for.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it has left; [`Error::Command`].
    pub fn to_error(&mut self, connection: ConnectionId) -> Result<(), Error> {
        self.member(connection)?.work.qp.to_error()
    }

    /// Ends a connection: takes its queue pair to ERR, waits until the card has completed its work in flight, and
    /// destroys it. Later polls return completions of other connections.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it has left already; [`Error::Command`] if firmware refuses to take it to ERR: then it
    /// stays. If firmware refuses to destroy the queue pair, or somebody else holds it, the connection has left, and
    /// its buffers in flight, which the card may still have, are leaked. [`Error::InvalidResponse`] as for
    /// [`poll`](Self::poll).
    pub fn leave(&mut self, connection: ConnectionId) -> Result<Left<C>, Error> {
        self.find_out_whether_it_ended(connection)?;
        match self.member(connection)?.work.qp.to_error() {
            // The DMA of a dead card was stopped before its death became known.
            Err(error) if !error.is_dead() => return Err(error),
            _ => {
                self.report_quiet(connection);
                self.drain(connection)?;
            }
        }
        let mut done = vec![];
        for (id, deferred) in std::mem::take(&mut self.deferred) {
            match id == connection {
                true => done.push(deferred),
                false => self.deferred.push_back((id, deferred)),
            }
        }
        let member = self.members.remove(connection);
        let Some(Member { context, qpn, work, .. }) = member else {
            return Err(has_left());
        };
        self.by_qpn.remove(&qpn);
        match work.destroy() {
            Ok(buffers) => Ok(Left { context, done, buffers }),
            Err(error) => {
                // Of received messages, which nobody gets now.
                done.into_iter().filter_map(|done: Done| done.buffer).for_each(|buffer| self.post_receive(buffer));
                Err(match error.reason {
                    DestroyReason::Command(error) => error.into(),
                    DestroyReason::InUse(_) => {
                        let (what, by) = (format!("QP {qpn:#x}"), "another holder".into());
                        Invalid::Taken { what, by, mend: "drop that first" }.into()
                    }
                })
            }
        }
    }

    /// Removes a connection as [`leave`](Self::leave) does, and adds a new, unconnected one with the same context.
    /// Returns its ID, and the completions and buffers of the old one.
    ///
    /// # Errors
    /// As for [`leave`](Self::leave), and for a queue pair that cannot be created: then the old connection stays.
    pub fn reset(&mut self, connection: ConnectionId) -> Result<(ConnectionId, Left<()>), Error> {
        let id = self.members.renewed(connection).ok_or_else(has_left)?;
        let qp = self.create_queue_pair(id)?;
        let Left { context, done, buffers } = self.leave(connection)?;
        self.admit(id, qp, context);
        Ok((id, Left { context: (), done, buffers }))
    }

    /// Asks the card for the state of a connection whose last event may have been lost: in ERR it was, and `drain` must
    /// not wait for it; in another state it is still to come.
    fn find_out_whether_it_ended(&mut self, connection: ConnectionId) -> Result<(), Error> {
        self.take_events();
        let member = self.member(connection)?;
        if member.may_have_ended && !member.has_ended {
            let is_in_error = member.work.qp.query().is_ok_and(|status| status.state == QpState::Err);
            if let Some(member) = self.members.get_mut(connection) {
                (member.has_ended, member.may_have_ended) = (is_in_error, false);
            }
        }
        Ok(())
    }

    /// Posts a work request, which is flushed, if quiet ones of `connection`, which is in error, may be done: the card
    /// does not report those.
    fn report_quiet(&mut self, connection: ConnectionId) {
        if self.members.get(connection).is_some_and(|member| member.work.in_flight.has_quiet())
            && let Some(mut batch) = self.batch(connection)
            && let Err(refused) = batch.nop()
        {
            // `drain` then waits in vain, and the buffers come back without completions.
            tracing::debug!(%refused, "quiet work requests of a connection that leaves are not reported");
        }
    }

    /// Polls until the queue pair of `connection`, which is in error, has completed its sends and reported its last
    /// receive. Waits at most [`FLUSH`], in case the card lost the event.
    fn drain(&mut self, connection: ConnectionId) -> Result<(), Error> {
        let clock = self.cq.cq().clock().clone();
        let deadline = Deadline::after(&clock, FLUSH);
        loop {
            self.take_events();
            // Poll after the event: what it refers to has completed before. Not with `poll_card`: a card that completes
            // receives of connections that have left, which are posted again, would keep it for ever.
            while !deadline.has_passed()
                && let Some(result) = self.cq.poll()
            {
                let at = self.deferred.len();
                let first = self.finish(result)?;
                // Before those that completed with it.
                first.into_iter().for_each(|first| self.deferred.insert(at, first));
            }
            let member = self.member(connection)?;
            let is_done = member.has_ended && member.work.in_flight.is_empty();
            if is_done || deadline.has_passed() || self.cq.cq().death().is_some() {
                return Ok(());
            }
            clock.pause(LOOK);
        }
    }

    fn take_events(&mut self) {
        for event in self.events.events.try_iter().filter(|event| event.event_type == EventType::SrqLastWqe) {
            let qpn = QpEvent::read(&event.data).map_or(0, |event| event.qp_srq_n());
            if let Some(member) = self.by_qpn.get(&qpn).and_then(|id| self.members.get_mut(*id)) {
                member.has_ended = true;
            }
        }
        let lost = self.events.take_lost();
        if lost > 0 {
            self.lost_events += lost;
            self.members.each_mut(|member| member.may_have_ended = true);
        }
    }
}

/// Maximum number of completions at once in a hub with `options`: one for each receive, which completes once until it
/// is posted again, one for each send of each connection, and some for its unreported ones.
fn entries(options: &HubOptions, shared: &SharedReceiveQueue) -> u32 {
    let sends = options.connections.saturating_mul(options.each.send_depth.saturating_add(UNREPORTED_CQES));
    sends.saturating_add(shared.capacity() as u32)
}

/// `Ok` if a hub can have that many connections.
fn at_most(connections: u32) -> Result<(), Invalid> {
    if connections <= MOST {
        return Ok(());
    }
    Err(Invalid::out_of_range("connections", connections.into(), 0..=MOST.into(), "a hub"))
}

/// The error of calls that name a connection.
fn has_left() -> Error {
    Invalid::Unknown { what: "connection", of: "the hub".into(), mend: "it has left" }.into()
}

event_source!(Hub<C>, C; cq);

impl<C> Drop for Hub<C> {
    fn drop(&mut self) {
        for id in self.members.ids().collect::<Vec<_>>() {
            if let Some(Err(error)) = self.members.remove(id).map(|member| member.work.destroy()) {
                tracing::error!(%error, "a hub's queue pair was not destroyed; its buffers in flight are leaked");
            }
        }
    }
}
