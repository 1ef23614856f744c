//! Many connections of one thread: one UAR page, one completion queue, one shared receive queue.

pub(in crate::queue) mod members;
pub(in crate::queue) mod options;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use mlx5_prm::eqe::{EventType, QpEvent};
use mlx5_prm::layout::Layout;

use super::in_flight::{Done, InFlight, Refused, RefusedReason, Ticket};
use super::receives::Receives;
use super::setup::{self, Peer};
use crate::access::AsyncEvent;
use crate::deadline::Deadline;
use crate::error::{Error, Invalid};
use crate::memory::{DataSegment, RemoteAddress};
use crate::objects::{
    AccessFlags, AnyDoorbell, Buffer, CqOptions, DestroyReason, InitAttributes, MemoryRegion, Pd, QpOptions, QpStatus,
    QueuePair, Srq, SrqOptions, Uar,
};
use crate::queue::completion::CompletionQueue;
use crate::queue::completion::decode::Side;
use crate::queue::error::{PostError, RetireError};
use crate::queue::receive::shared::SharedReceiveQueue;
use crate::queue::send::wqe::WrFlags;
use crate::queue::send::{SendBatch, SendQueue};

use members::{ConnectionId, MOST, Members};
use options::{HubDone, HubOptions, Left};

#[derive(Debug)]
struct Member<C> {
    context: C,
    qpn: u32,
    psn: u32,
    in_flight: InFlight,
    /// Whether the card has said that it takes no more receives.
    has_ended: bool,
    /// Once it is connected.
    send: Option<SendQueue<AnyDoorbell>>,
    qp: Arc<QueuePair>,
}

/// Hundreds of reliable connections on one thread, which share a UAR page, a completion queue and receives.
///
/// Connections [join](Self::join) and [leave](Self::leave) while others run; an error of one leaves the others alone.
/// What [`poll`](Self::poll) hands out names its connection, and brings what that [joined](Self::join) with, found in
/// constant time however many there are. Posting and polling make no system call, take no lock and allocate nothing.
///
/// A received message comes in a [`Buffer`] of the hub, without a copy. Reading it copies, which is sound whatever the
/// card does meanwhile; it can be sent on as it is. Then it goes [back](Self::recycle).
///
/// Belongs to one thread at a time. Dropped, it takes its connections down.
pub struct Hub<C> {
    members: Members<Member<C>>,
    /// By queue pair number, for events.
    by_qpn: HashMap<u32, ConnectionId>,
    /// What was met while a connection left.
    met: VecDeque<(ConnectionId, Done)>,
    spare: Vec<Buffer>,
    shared: SharedReceiveQueue,
    /// After the queue, which holds the object too.
    receives: Receives,
    cq: CompletionQueue,
    events: mpsc::Receiver<AsyncEvent>,
    options: HubOptions,
    region: Arc<MemoryRegion>,
    uar: Arc<Uar>,
    pd: Arc<Pd>,
}

impl<C> fmt::Debug for Hub<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hub({} connections, {:?}, {} spare buffers)", self.members.len(), self.shared, self.spare.len())
    }
}

/// How long a connection that leaves is waited for to give back what it has under way.
const FLUSH: Duration = Duration::from_secs(1);
/// Between two looks.
const LOOK: Duration = Duration::from_micros(50);

impl<C> Hub<C> {
    /// A hub without connections, its receives posted.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the options exceed a capability; [`Error::Memory`], [`Error::Command`].
    pub fn new(pd: &Arc<Pd>, options: HubOptions) -> Result<Self, Error> {
        at_most(options.connections)?;
        let device = pd.device();
        let events = device.async_events();
        let uar = Uar::alloc(device)?;
        let srq = Srq::create(pd, SrqOptions::default().wqes(options.receives))?;
        let shared = srq.receive_queue()?;
        let mut cq_options = CqOptions::default()
            .entries(entries(&options, &shared))
            .moderation(options.each.moderation)
            .vector(options.each.vector);
        cq_options.events = options.each.events;
        let cq = CompletionQueue::create(&uar, cq_options)?;
        let buffers = shared.capacity() + options.spares as usize;
        let bytes = buffers.saturating_mul(options.message_bytes);
        let region = MemoryRegion::allocate(pd, bytes, AccessFlags::LOCAL_WRITE)?;
        let buffer = |at: usize| region.buffer(at * options.message_bytes..(at + 1) * options.message_bytes);
        let mut hub = Hub {
            members: Members::new(options.connections),
            by_qpn: HashMap::new(),
            met: VecDeque::new(),
            receives: Receives { in_flight: InFlight::new(0, shared.capacity() as u32), srq },
            // The last ones first, as they are popped.
            spare: (0..buffers).rev().map(buffer).collect::<Result<_, _>>()?,
            shared,
            cq,
            events,
            region: Arc::clone(&region),
            options,
            uar,
            pd: Arc::clone(pd),
        };
        hub.refill();
        Ok(hub)
    }

    /// Makes room for `connections` in all, while those that are there go on: its completion queue is resized. For no
    /// more than it has room for nothing changes.
    ///
    /// # Errors
    /// [`Error::Invalid`] for more than 16384, or more than a completion queue serves (`log_max_cq_sz`);
    /// [`Error::Unsupported`] where the card cannot resize one (`cq_resize`); [`Error::Memory`], [`Error::Command`].
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

    /// Posts receives from the spare buffers until all are posted.
    fn refill(&mut self) {
        while self.shared.free() > 0
            && let Some(buffer) = self.spare.pop()
        {
            self.post_receive(buffer);
        }
    }

    /// Posts `buffer`, or keeps it as a spare one.
    #[inline]
    fn post_receive(&mut self, buffer: Buffer) {
        let posted = self.receives.in_flight.next(Side::Receive).and_then(|wr_id| {
            let mut batch = self.shared.batch();
            // SAFETY: `InFlight::keep` puts the buffer, and with it its region, into the table next; it leaves it with
            // the completion, or after the shared receive queue was destroyed.
            unsafe { batch.receive(wr_id, &[buffer.segment()])? };
            batch.ring();
            Ok(())
        });
        if let Err(refused) =
            self.receives.in_flight.keep(posted.map_err(RefusedReason::from), Side::Receive, Some(buffer))
        {
            self.spare.extend(refused.buffer);
        }
    }

    /// A buffer to send from; `None` where all are in flight, or with the user.
    pub fn buffer(&mut self) -> Option<Buffer> {
        self.spare.pop()
    }

    /// Takes a buffer back, for the next receive or send.
    ///
    /// # Errors
    /// [`Refused`] for one that is not this hub's.
    pub fn recycle(&mut self, mut buffer: Buffer) -> Result<(), Refused> {
        let is_ours = Arc::ptr_eq(buffer.region(), &self.region) && buffer.capacity() == self.options.message_bytes;
        if !is_ours {
            return Err(Refused { buffer: Some(buffer), reason: RefusedReason::ForeignBuffer });
        }
        buffer.set_len(buffer.capacity());
        self.post_receive(buffer);
        Ok(())
    }

    /// Buffers that are posted for receives, and spare ones.
    pub fn buffers(&self) -> (usize, usize) {
        (self.receives.in_flight.in_flight().1, self.spare.len())
    }

    /// How many connections there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The connections there are.
    pub fn connections(&self) -> impl Iterator<Item = ConnectionId> {
        self.members.ids()
    }

    /// What `connection` joined with; `None` once it has left.
    pub fn context(&mut self, connection: ConnectionId) -> Option<&mut C> {
        self.members.get_mut(connection).map(|member| &mut member.context)
    }

    fn member(&self, connection: ConnectionId) -> Result<&Member<C>, Error> {
        self.members.get(connection).ok_or_else(has_left)
    }

    /// A new connection, whose queue pair is in INIT. `context` comes with all that is done on it.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the hub has as many as it was made for, or the options exceed a capability;
    /// [`Error::Memory`], [`Error::Command`].
    pub fn join(&mut self, context: C) -> Result<ConnectionId, Error> {
        let id = self.members.next().ok_or_else(|| {
            let (entries, mend) = (self.options.connections.into(), "let one leave, or Hub::grow");
            Invalid::NoRoom { object: "the hub".into(), entries, mend }
        })?;
        let each = &self.options.each;
        let options = QpOptions::default()
            .wqes(each.send_depth, 0)
            .inline_bytes(each.inline_bytes)
            .srq(self.shared.srq())
            .user_index(id.user_index());
        let qp = QueuePair::create(&self.pd, &self.uar, self.cq.cq(), self.cq.cq(), options)?;
        qp.init(&InitAttributes { remote_access: each.remote_access, ..InitAttributes::default() })?;
        let (qpn, psn) = (qp.qpn(), setup::first_psn(&qp, each));
        let in_flight = InFlight::new(each.send_depth, 0);
        self.by_qpn.insert(qpn, id);
        self.members.insert(Member { context, qpn, psn, in_flight, has_ended: false, send: None, qp });
        Ok(id)
    }

    /// What to tell the remote. Errors: [`Error::Invalid`] where our GID index names none, or it has left.
    pub fn local(&self, connection: ConnectionId) -> Result<Peer, Error> {
        let member = self.member(connection)?;
        setup::local(&member.qp, &self.options.each, member.psn)
    }

    /// Connects to `peer`: INIT to RTR to RTS.
    ///
    /// # Errors
    /// As for [`Connection::connect`](crate::queue::Connection::connect); [`Error::Invalid`] where it has left.
    pub fn connect(&mut self, connection: ConnectionId, peer: &Peer) -> Result<(), Error> {
        let member = self.member(connection)?;
        let send = setup::connect(&member.qp, &self.options.each, member.psn, peer)?;
        if let Some(member) = self.members.get_mut(connection) {
            member.send = send;
        }
        Ok(())
    }

    /// What the card says of its queue pair. Errors: [`Error::Command`], [`Error::Invalid`] where it has left.
    pub fn query(&self, connection: ConnectionId) -> Result<QpStatus, Error> {
        self.member(connection)?.qp.query()
    }

    /// Posts one send work request by `post`, and rings.
    #[inline(always)]
    fn post_send(
        &mut self,
        connection: ConnectionId,
        buffer: Option<Buffer>,
        post: impl FnOnce(&mut SendBatch<'_, AnyDoorbell>, u64, &[DataSegment]) -> Result<(), PostError>,
    ) -> Result<Ticket, Refused> {
        let Some(member) = self.members.get_mut(connection) else {
            return Err(Refused { buffer, reason: RefusedReason::HasLeft });
        };
        let segment = buffer.as_ref().map(Buffer::segment);
        let posted = member.in_flight.next(Side::Send).map_err(RefusedReason::from).and_then(|wr_id| {
            let queue = member.send.as_mut().ok_or(RefusedReason::NotConnected)?;
            let mut batch = queue.batch();
            post(&mut batch, wr_id, segment.as_slice())?;
            batch.ring();
            Ok(())
        });
        member.in_flight.keep(posted, Side::Send, buffer)
    }

    /// SEND of `buffer`. Errors: [`Refused`], with the buffer.
    #[inline]
    pub fn send(&mut self, connection: ConnectionId, buffer: Buffer) -> Result<Ticket, Refused> {
        self.post_send(connection, Some(buffer), |batch, id, elements| {
            // SAFETY: `post_send` keeps the buffer until its completion, or until the queue pair is gone.
            unsafe { batch.send(id, WrFlags::SIGNALLED, elements) }
        })
    }

    /// SEND of `buffer` with an immediate, waking a receiver that waits for solicited completions. Errors: [`Refused`].
    #[inline]
    pub fn send_imm(&mut self, connection: ConnectionId, buffer: Buffer, imm: u32) -> Result<Ticket, Refused> {
        self.post_send(connection, Some(buffer), |batch, id, elements| {
            // SAFETY: as in `send`.
            unsafe { batch.send_imm(id, WrFlags::SIGNALLED | WrFlags::SOLICITED, imm, elements) }
        })
    }

    /// SEND of `buffer` that invalidates the remote's key `rkey`. Errors: [`Refused`], with the buffer.
    #[inline]
    pub fn send_invalidate(&mut self, connection: ConnectionId, buffer: Buffer, rkey: u32) -> Result<Ticket, Refused> {
        self.post_send(connection, Some(buffer), |batch, id, elements| {
            // SAFETY: as in `send`.
            unsafe { batch.send_invalidate(id, WrFlags::SIGNALLED | WrFlags::SOLICITED, rkey, elements) }
        })
    }

    /// RDMA WRITE of `buffer` to `remote`. Errors: [`Refused`], with the buffer.
    #[inline]
    pub fn write(
        &mut self,
        connection: ConnectionId,
        buffer: Buffer,
        remote: RemoteAddress,
    ) -> Result<Ticket, Refused> {
        self.post_send(connection, Some(buffer), |batch, id, elements| {
            // SAFETY: as in `send`.
            unsafe { batch.write(id, WrFlags::SIGNALLED, remote, elements) }
        })
    }

    /// RDMA READ from `remote` into `buffer`. Errors: [`Refused`], with the buffer.
    #[inline]
    pub fn read(&mut self, connection: ConnectionId, buffer: Buffer, remote: RemoteAddress) -> Result<Ticket, Refused> {
        self.post_send(connection, Some(buffer), |batch, id, elements| {
            // SAFETY: as in `send`.
            unsafe { batch.read(id, WrFlags::SIGNALLED, remote, elements) }
        })
    }

    /// SEND of `data`, which is copied and free at once. Errors: [`Refused`].
    #[inline]
    pub fn send_inline(&mut self, connection: ConnectionId, data: &[u8]) -> Result<Ticket, Refused> {
        self.post_send(connection, None, |batch, id, _| batch.send_inline(id, WrFlags::SIGNALLED, data))
    }

    /// The next work request that is done, of whatever connection; `None` while there is none.
    ///
    /// # Errors
    /// [`RetireError`] where the card names a work request that is not in flight: a card, or a driver, that is broken.
    #[inline]
    pub fn poll(&mut self) -> Result<Option<HubDone<'_, C>>, RetireError> {
        let next = match self.met.pop_front() {
            None => self.poll_card()?,
            met => met,
        };
        let Some((connection, done)) = next else { return Ok(None) };
        let context = self.members.get_mut(connection).map(|member| &mut member.context);
        Ok(context.map(|context| HubDone { connection, context, done }))
    }

    /// What is done next on a connection that is there. What one that has left received comes back as room.
    #[inline]
    fn poll_card(&mut self) -> Result<Option<(ConnectionId, Done)>, RetireError> {
        loop {
            let Some(result) = self.cq.poll() else { return Ok(None) };
            let (work, user_index) = match &result {
                Ok(completion) => (completion.work, completion.user_index),
                Err(error) => (error.work, error.user_index),
            };
            // The number too: what the card says is not believed.
            let found = self.members.find(user_index).filter(|(_, member)| member.qpn == work.qpn);
            match work.side {
                Side::Send => {
                    let (id, member) = found.ok_or_else(|| RetireError::nothing_in_flight(work))?;
                    let queue = member.send.as_mut().ok_or_else(|| RetireError::nothing_in_flight(work))?;
                    let wr_id = queue.retire(&work)?;
                    return member.in_flight.done(wr_id, result).map(|done| Some((id, done)));
                }
                Side::Receive => {
                    let wr_id = self.shared.retire(&work)?;
                    let done = self.receives.in_flight.done(wr_id, result)?;
                    if let Some((id, _)) = found {
                        return Ok(Some((id, done)));
                    }
                    if let Some(buffer) = done.buffer {
                        self.post_receive(buffer);
                    }
                }
            }
        }
    }

    /// Returns when [`poll`](Self::poll) may have something: at once, or after sleeping where the hub was made with
    /// `events`.
    ///
    /// # Errors
    /// [`Error::Timeout`] after `timeout`, of which [`Duration::MAX`] is for ever; [`Error::CompletionQueue`] where the
    /// completion queue overran, [`Error::Dead`].
    pub fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        if !self.met.is_empty() {
            return Ok(());
        }
        if self.options.each.events {
            return self.cq.wait(timeout);
        }
        let deadline = Deadline::after(self.cq.cq().clock(), timeout);
        while !self.cq.is_ready() {
            if deadline.has_passed() {
                return Err(self.cq.cq().death().unwrap_or_else(|| self.cq.cq().why_nothing_came(timeout)));
            }
            self.cq.give_way(&deadline)?;
        }
        Ok(())
    }

    /// As [`wait`](Self::wait), for tasks of any executor; the hub was made with `events`. `readable` is as for
    /// [`CompletionQueue::ready`], and so are the errors.
    pub async fn ready(&mut self, readable: impl AsyncFnMut() -> io::Result<()>) -> Result<(), Error> {
        if self.met.is_empty() { self.cq.ready(readable).await } else { Ok(()) }
    }

    /// The eventfd that becomes readable when an event comes that [`ready`](Self::ready) or [`wait`](Self::wait) has
    /// asked for; `None` for a hub without `events`.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.cq.fd()
    }

    /// Ends a connection: takes its queue pair to ERR, waits until the card has given back what was under way, and
    /// destroys it. What others have done meanwhile comes from later polls.
    ///
    /// # Errors
    /// [`Error::Invalid`] where it has left already, [`Error::Command`] where the card refuses: then it is still there.
    /// [`Error::InvalidResponse`] as for [`poll`](Self::poll).
    pub fn leave(&mut self, connection: ConnectionId) -> Result<Left<C>, Error> {
        match self.member(connection)?.qp.to_error() {
            // A dead card has been kept from memory before its death was known.
            Err(error) if !error.is_dead() => return Err(error),
            _ => self.drain(connection)?,
        }
        let mut done = vec![];
        for (id, met) in std::mem::take(&mut self.met) {
            match id == connection {
                true => done.push(met),
                false => self.met.push_back((id, met)),
            }
        }
        let member = self.members.remove(connection);
        let Some(Member { context, qpn, mut in_flight, send, qp, .. }) = member else {
            return Err(has_left());
        };
        self.by_qpn.remove(&qpn);
        drop(send);
        if let Err(error) = QueuePair::destroy(qp) {
            in_flight.leak();
            return Err(match error.reason {
                DestroyReason::Command(error) => error.into(),
                DestroyReason::InUse(_) => {
                    let (what, by) = (format!("QP {qpn:#x}"), "another holder".into());
                    Invalid::Taken { what, by, mend: "drop that first" }.into()
                }
            });
        }
        let buffers = in_flight.drain().collect();
        Ok(Left { context, done, buffers })
    }

    /// Ends a connection as [`leave`](Self::leave), and has another join in its place with the same context, to be
    /// connected anew: it, and what the old one had done or under way.
    ///
    /// # Errors
    /// As for [`leave`](Self::leave) and [`join`](Self::join).
    pub fn reset(&mut self, connection: ConnectionId) -> Result<(ConnectionId, Left<()>), Error> {
        let Left { context, done, buffers } = self.leave(connection)?;
        Ok((self.join(context)?, Left { context: (), done, buffers }))
    }

    /// Polls until the queue pair of `connection`, which is in error, has given back its sends and takes no more
    /// receives, [`FLUSH`] long at most: a card that lost an event is not waited for any longer.
    fn drain(&mut self, connection: ConnectionId) -> Result<(), Error> {
        let clock = self.cq.cq().clock().clone();
        let deadline = Deadline::after(&clock, FLUSH);
        loop {
            self.take_events();
            // After the event: what it says is the last has completed before.
            while let Some(met) = self.poll_card()? {
                self.met.push_back(met);
            }
            let member = self.member(connection)?;
            let is_done = member.has_ended && member.in_flight.is_empty();
            if is_done || deadline.has_passed() || self.cq.cq().death().is_some() {
                return Ok(());
            }
            clock.pause(LOOK);
        }
    }

    fn take_events(&mut self) {
        for event in self.events.try_iter().filter(|event| event.event_type == EventType::SrqLastWqe) {
            let qpn = QpEvent::read(&event.data).map_or(0, |event| event.qp_srq_n());
            if let Some(member) = self.by_qpn.get(&qpn).and_then(|id| self.members.get_mut(*id)) {
                member.has_ended = true;
            }
        }
    }
}

/// Completions that a hub of `options` must hold: of the receives all complete in its queue, each once until it is
/// posted again; of each connection all its sends.
fn entries(options: &HubOptions, shared: &SharedReceiveQueue) -> u32 {
    let sends = options.connections.saturating_mul(options.each.send_depth);
    sends.saturating_add(shared.capacity() as u32)
}

/// `Ok` for as many connections as a hub can have.
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

impl<C> Drop for Hub<C> {
    fn drop(&mut self) {
        for id in self.members.ids().collect::<Vec<_>>() {
            let Some(Member { mut in_flight, send, qp, .. }) = self.members.remove(id) else { continue };
            drop(send);
            // Until the queue pair is gone the card may still use the buffers.
            if let Err(error) = QueuePair::destroy(qp) {
                tracing::error!(%error, "a hub's queue pair was not destroyed; its buffers in flight are leaked");
                in_flight.leak();
            }
        }
    }
}
