//! A queue of commands over one connection.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use mlx5_dv::clock::Clock;
use mlx5_dv::objects::{
    AccessFlags, Buffer, ExclusiveRegion, Pd, QueuePair, RtrAttributes, RtsAttributes, UmrKeyOptions,
};
use mlx5_dv::queue::{
    Completion as WorkCompletion, Connection, Done, FastKey, Kept, Operation, RefusedReason, Side, Ticket, WorkError,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::buffer::{HEADROOM, IoBuffer};
use crate::error::{HostError, Refused, SubmitError};
use crate::link::Link;
use crate::status::Status;
use crate::wire::{COMPLETION, Command, Completion, KeyedSgl, OffsetSgl, sgl_type};

/// Bytes of each receive: a completion, aligned.
const RECEIVE: usize = 64;
/// Bits of a command ID that name the slot; the others tell one use of it from the last.
const SLOT_BITS: u32 = 12;
/// How long a broken connection may take to return its buffers.
const FLUSH: Duration = Duration::from_secs(2);

/// How the remote gets at the data of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DataPlacement {
    /// By the key of the buffer's region, which the remote knows from then on: no work request but the capsule.
    #[default]
    StandingKey,
    /// By a key registered for each command and invalidated with its answer: the remote can reach a buffer only while
    /// its command is under way.
    FastKey,
}

/// Which way the data goes.
#[derive(Debug)]
pub(super) enum Data {
    None,
    /// To the host.
    In(IoBuffer),
    /// To the target.
    Out(IoBuffer),
}

impl Data {
    fn into_buffer(self) -> Option<IoBuffer> {
        match self {
            Data::None => None,
            Data::In(buffer) | Data::Out(buffer) => Some(buffer),
        }
    }
}

/// A command that the target has answered.
#[derive(Debug)]
pub struct Completed {
    /// The number that the program gave the command.
    pub user: u64,
    /// Its buffer.
    pub buffer: Option<IoBuffer>,
    /// What became of it.
    pub status: Status,
    /// What it returns.
    pub result: u64,
}

/// A command whose connection ended before the target answered: whether it was done is not known.
#[derive(Debug)]
pub struct Unfinished {
    /// The number that the program gave the command.
    pub user: u64,
    /// Its buffer; `None` where it had none.
    pub buffer: Option<IoBuffer>,
}

/// A command under way.
#[derive(Debug)]
struct Pending {
    user: u64,
    /// The buffer, unless a work request or a key has it.
    buffer: Option<IoBuffer>,
    /// The work request that still has the buffer.
    sending: Option<Kept>,
    answer: Option<(Status, u64)>,
}

impl Pending {
    /// The work request that had the buffer is done, or was flushed.
    fn returned(&mut self, buffer: Option<Buffer>) {
        (self.buffer, self.sending) = (buffer.map(IoBuffer::of), None);
    }
}

#[derive(Debug)]
struct Slot {
    generation: u16,
    pending: Option<Pending>,
    key: Option<FastKey>,
}

#[derive(Debug)]
pub(super) struct Queue {
    connection: Connection,
    link: Arc<Link>,
    qid: u16,
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// Slots whose keys are being closed, in order. Nothing else that is sent is reported: the answer says that its
    /// capsule has arrived, and its key was opened.
    closing: VecDeque<(Ticket, usize)>,
    /// Slots that were answered, in order, but whose capsules are not known to have arrived.
    unsent: VecDeque<usize>,
    /// Longest data in a capsule, in bytes.
    in_capsule: usize,
    /// The number of the last command of set-up: each has one of its own, as the answer to one that was given up may
    /// come later.
    pub(super) last_call: u64,
    /// When the keep-alive was sent that is not answered yet.
    pub(super) unanswered_since: Option<Duration>,
    broken: Option<WorkError>,
    clock: Clock,
}

impl Queue {
    /// Of a connection in INIT; its receives are posted here.
    pub(super) fn new(
        mut connection: Connection,
        link: Arc<Link>,
        qid: u16,
        depth: u16,
        placement: DataPlacement,
    ) -> Result<Self, HostError> {
        let pd = Arc::clone(connection.queue_pair().pd());
        let receives = usize::from(depth) + 1;
        let region = ExclusiveRegion::allocate(&pd, receives * RECEIVE)?;
        for buffer in region.buffers(RECEIVE)?.into_iter().take(receives) {
            connection.receive(buffer).map_err(|refused| HostError::Post { queue: qid, reason: refused.reason })?;
        }
        let mut keys = match placement {
            DataPlacement::StandingKey => Vec::new(),
            DataPlacement::FastKey => FastKey::pool(&pd, depth.into(), UmrKeyOptions::default().entries(1))?,
        };
        let slots = (0..depth).map(|_| Slot { generation: 0, pending: None, key: keys.pop() });
        Ok(Queue {
            clock: pd.device().clock().clone(),
            slots: slots.collect(),
            free: (0..depth.into()).rev().collect(),
            closing: VecDeque::with_capacity(depth.into()),
            unsent: VecDeque::with_capacity(depth.into()),
            connection,
            link,
            qid,
            in_capsule: 0,
            last_call: 0,
            unanswered_since: None,
            broken: None,
        })
    }

    pub(super) fn queue_pair(&self) -> &Arc<QueuePair> {
        self.connection.queue_pair()
    }

    pub(super) fn qpn(&self) -> u32 {
        self.queue_pair().qpn()
    }

    pub(super) fn qid(&self) -> u16 {
        self.qid
    }

    pub(super) fn pd(&self) -> &Arc<Pd> {
        self.connection.queue_pair().pd()
    }

    pub(super) fn connect_by(&mut self, rtr: &RtrAttributes, rts: &RtsAttributes) -> Result<(), HostError> {
        Ok(self.connection.connect_by(rtr, rts)?)
    }

    /// Data of up to `bytes` goes in the capsule from now on.
    pub(super) fn set_in_capsule(&mut self, bytes: usize) {
        self.in_capsule = bytes;
    }

    /// Commands under way.
    pub(super) fn under_way(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn depth(&self) -> usize {
        self.slots.len()
    }

    /// Whether the connection is broken or ended.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.is_some() || self.link.has_ended()
    }

    /// Why the queue carries no more commands, if it does not.
    fn check(&self) -> Result<(), HostError> {
        match self.broken {
            Some(error) => Err(HostError::Broken { queue: self.qid, error }),
            None if self.link.has_ended() => Err(HostError::Disconnected { queue: self.qid }),
            None => Ok(()),
        }
    }

    /// Submits `command`, whose ID and data pointer are set here.
    pub(super) fn submit(&mut self, command: Command, data: Data, user: u64) -> Result<(), Refused> {
        let queue = self.qid;
        let refused = |reason, data: Data| Refused { buffer: data.into_buffer(), reason };
        if self.is_broken() {
            return Err(refused(SubmitError::Broken { queue }, data));
        }
        let Some(&slot) = self.free.last() else {
            return Err(refused(SubmitError::Full { queue, depth: self.slots.len() }, data));
        };
        let command = Command { command_id: self.command_id(slot).into(), ..command };
        let pending = match data {
            Data::None => self.send(command.without_data(), None),
            Data::Out(buffer) if buffer.len() <= self.in_capsule => self.send_in_capsule(command, buffer),
            Data::In(buffer) => self.send_keyed(slot, command, buffer, AccessFlags::REMOTE_WRITE),
            Data::Out(buffer) => self.send_keyed(slot, command, buffer, AccessFlags::REMOTE_READ),
        }?;
        self.free.pop();
        self.slots[slot].pending = Some(Pending { user, ..pending });
        Ok(())
    }

    fn command_id(&self, slot: usize) -> u16 {
        self.slots[slot].generation << SLOT_BITS | slot as u16
    }

    /// Sends a capsule without data; `buffer` stays with the command.
    fn send(&mut self, command: Command, buffer: Option<IoBuffer>) -> Result<Pending, Refused> {
        match self.connection.send_inline_unreported(command.as_bytes()) {
            Ok(()) => Ok(Pending { user: 0, buffer, sending: None, answer: None }),
            Err(reason) => Err(Refused { buffer, reason: reason.into() }),
        }
    }

    fn send_in_capsule(&mut self, command: Command, mut buffer: IoBuffer) -> Result<Pending, Refused> {
        let length = (buffer.len() as u32).into();
        let sgl = OffsetSgl { length, kind: sgl_type::IN_CAPSULE, ..OffsetSgl::default() };
        buffer.put_command(command.data(&sgl).as_bytes());
        match self.connection.send_kept(buffer.into_inner()) {
            Ok(kept) => Ok(Pending { user: 0, buffer: None, sending: Some(kept), answer: None }),
            Err(refused) => Err(Refused { buffer: refused.buffer.map(IoBuffer::of), reason: refused.reason.into() }),
        }
    }

    /// Sends a capsule that says where the remote finds the data.
    fn send_keyed(
        &mut self,
        slot: usize,
        command: Command,
        buffer: IoBuffer,
        access: AccessFlags,
    ) -> Result<Pending, Refused> {
        if let Some(key) = &mut self.slots[slot].key {
            return send_registered(&mut self.connection, key, command, buffer, access);
        }
        if let Some(lacks) = lacks(&buffer, access) {
            return Err(Refused { buffer: Some(buffer), reason: SubmitError::Access(lacks) });
        }
        let (length, remote) = (buffer.len() as u32, buffer.inner().remote());
        let sgl = KeyedSgl::new(remote.addr + HEADROOM as u64, length, remote.rkey, sgl_type::KEYED);
        self.send(command.data(&sgl), Some(buffer))
    }

    /// The next command that the target has answered; `None` while there is none.
    pub(super) fn poll(&mut self) -> Result<Option<Completed>, HostError> {
        while let Some(done) = self.connection.poll().map_err(mlx5_dv::Error::from)? {
            let slot = match done.result {
                Ok(completion) if completion.work.side == Side::Receive => self.answered(done, &completion)?,
                Ok(_) => self.closed(&done)?,
                Err(error) => {
                    self.broken.get_or_insert(error);
                    self.flushed(done);
                    break;
                }
            };
            if let Some(completed) = self.finish(slot) {
                return Ok(Some(completed));
            }
        }
        match self.sent_late() {
            Some(completed) => Ok(Some(completed)),
            None => self.check().map(|()| None),
        }
    }

    /// The next command whose capsule is known to have arrived after its answer came.
    fn sent_late(&mut self) -> Option<Completed> {
        let slot = self.unsent.pop_front()?;
        let completed = self.finish(slot);
        if completed.is_none() {
            // `finish` put it last.
            self.unsent.rotate_right(1);
        }
        completed
    }

    /// A key was closed: its slot.
    fn closed(&mut self, done: &Done) -> Result<usize, HostError> {
        let Some((_, slot)) = self.closing.pop_front().filter(|(ticket, _)| *ticket == done.ticket) else {
            return Err(self.protocol("a work request that completed out of order".into()));
        };
        self.settle(slot, done);
        Ok(slot)
    }

    /// A work request changed the key of a slot, or failed to.
    fn settle(&mut self, slot: usize, done: &Done) {
        if let Some(key) = &mut self.slots[slot].key {
            key.settle(done);
        }
    }

    /// An answer came: its slot. Inlined: what is done is large, and would be copied.
    #[inline(always)]
    fn answered(&mut self, mut done: Done, completion: &WorkCompletion) -> Result<usize, HostError> {
        let Some(buffer) = done.buffer.take() else {
            return Err(self.protocol("a receive without a buffer".into()));
        };
        let answer = buffer.as_slice().first_chunk::<COMPLETION>().copied().unwrap_or_default();
        if let Err(refused) = self.connection.receive(buffer) {
            return Err(HostError::Post { queue: self.qid, reason: refused.reason });
        }
        if completion.byte_len as usize != COMPLETION || matches!(completion.operation, Operation::WrittenImm(_)) {
            return Err(self.protocol(format!("an answer of {} bytes", completion.byte_len)));
        }
        let answer = Completion::read_from_bytes(&answer).unwrap_or_default();
        let id = answer.command_id.get();
        let index = usize::from(id & ((1 << SLOT_BITS) - 1));
        let slot = self.slots.get_mut(index).filter(|slot| slot.generation == id >> SLOT_BITS);
        let has_key = slot.as_ref().is_some_and(|slot| slot.key.is_some());
        let pending = slot.and_then(|slot| slot.pending.as_mut());
        let Some(pending) = pending.filter(|pending| pending.answer.is_none()) else {
            return Err(self.protocol(format!("an answer to command {id:#x}, which is not under way")));
        };
        pending.answer = Some((Status::from_word(answer.status.get()), answer.result.get()));
        if has_key {
            self.close_key(index, &done)?;
        }
        Ok(index)
    }

    /// Closes the key of a slot that was answered, unless the target has.
    fn close_key(&mut self, slot: usize, answer: &Done) -> Result<(), HostError> {
        let Some(key) = self.slots[slot].key.as_mut().filter(|key| !key.is_free()) else { return Ok(()) };
        if key.settle(answer) {
            return Ok(());
        }
        let posted = self.connection.invalidate(key);
        let ticket = posted.map_err(|reason| HostError::Post { queue: self.qid, reason })?;
        self.closing.push_back((ticket, slot));
        Ok(())
    }

    /// The command of a slot, if nothing of it is under way any more.
    #[inline(always)]
    fn finish(&mut self, index: usize) -> Option<Completed> {
        let slot = &mut self.slots[index];
        let pending = slot.pending.as_mut()?;
        let (status, result) = pending.answer?;
        if slot.key.as_ref().is_some_and(|key| !key.is_free()) {
            return None;
        }
        if let Some(kept) = pending.sending {
            match self.connection.reclaim(&kept) {
                Some(buffer) => pending.returned(Some(buffer)),
                None => {
                    self.unsent.push_back(index);
                    return None;
                }
            }
        }
        let Pending { user, buffer, .. } = slot.pending.take()?;
        slot.generation = (slot.generation + 1) & (u16::MAX >> SLOT_BITS);
        let buffer = match &mut slot.key {
            Some(key) if buffer.is_none() => key.parts().next().map(IoBuffer::of),
            _ => buffer,
        };
        self.free.push(index);
        Some(Completed { user, buffer, status, result })
    }

    /// A work request of a broken connection is back: its slot gets its buffer.
    fn flushed(&mut self, done: Done) {
        if let Some((_, slot)) = self.closing.pop_front_if(|(ticket, _)| *ticket == done.ticket) {
            return self.settle(slot, &done);
        }
        let sent = |pending: &&mut Pending| pending.sending.is_some_and(|kept| kept.ticket() == done.ticket);
        // A capsule without a buffer is not among them.
        if let Some(pending) = self.slots.iter_mut().filter_map(|slot| slot.pending.as_mut()).find(sent) {
            pending.returned(done.buffer);
        }
    }

    /// Gives slots the buffers of capsules that have arrived, though no answer came.
    fn reclaim(&mut self) {
        for pending in self.slots.iter_mut().filter_map(|slot| slot.pending.as_mut()) {
            if let Some(buffer) = pending.sending.and_then(|kept| self.connection.reclaim(&kept)) {
                pending.returned(Some(buffer));
            }
        }
    }

    /// Ends the connection: commands that were not answered, with their buffers.
    pub(super) fn close(mut self) -> Vec<Unfinished> {
        let deadline = self.clock.now() + FLUSH;
        let mut error = self.connection.queue_pair().to_error().err();
        self.reclaim();
        while error.is_none() && self.connection.in_flight() != (0, 0) && self.clock.now() < deadline {
            match self.connection.poll() {
                Ok(Some(done)) => self.flushed(done),
                Ok(None) => {
                    self.reclaim();
                    self.clock.pause(Duration::from_micros(100));
                }
                Err(broken) => error = Some(broken.into()),
            }
        }
        if let Some(error) = error {
            tracing::debug!(%error, queue = self.qid, "buffers of a broken queue are freed with its queue pair");
        }
        // The queue pair is in ERR: the remote reaches nothing by it any more.
        std::mem::take(&mut self.slots).into_iter().filter_map(unfinished).collect()
    }

    fn protocol(&self, what: String) -> HostError {
        HostError::Protocol { queue: self.qid, what }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // Others may keep the queue pair: the remote must reach nothing by it.
        if let Err(error) = self.queue_pair().to_error() {
            tracing::debug!(%error, queue = self.qid, "a queue pair was not taken to ERR");
        }
        self.link.close();
    }
}

/// Registers `buffer` by `key`, and sends a capsule that says so.
fn send_registered(
    connection: &mut Connection,
    key: &mut FastKey,
    command: Command,
    buffer: IoBuffer,
    access: AccessFlags,
) -> Result<Pending, Refused> {
    let length = buffer.len() as u32;
    let refused = |buffer: Option<Buffer>, reason: RefusedReason| Refused {
        buffer: buffer.map(IoBuffer::of),
        reason: reason.into(),
    };
    key.push(buffer.into_inner()).map_err(|buffer| refused(Some(buffer), RefusedReason::KeyInUse))?;
    let mut batch = connection.batch();
    // A key that lets the remote write must let this side write, too.
    let remote = match batch.register_unreported(key, access | AccessFlags::LOCAL_WRITE) {
        Ok(remote) => remote,
        Err(reason) => return Err(refused(key.parts().next(), reason)),
    };
    let sgl = KeyedSgl::new(remote.addr + HEADROOM as u64, length, remote.rkey, sgl_type::KEYED_INVALIDATE);
    match batch.send_inline_unreported(command.data(&sgl).as_bytes()) {
        Ok(()) => Ok(Pending { user: 0, buffer: None, sending: None, answer: None }),
        // The key is open, and only a command closes it: the queue has room for all commands, so it is broken.
        Err(reason) => Err(refused(None, reason)),
    }
}

/// The command of a slot whose connection is gone.
fn unfinished(mut slot: Slot) -> Option<Unfinished> {
    let pending = slot.pending.take()?;
    let of_key = slot.key.as_mut().and_then(|key| {
        // The remote may have the key still: only a command closes it now.
        let is_free = key.is_free() || key.renew().is_ok();
        is_free.then(|| key.parts().next()).flatten().map(IoBuffer::of)
    });
    Some(Unfinished { user: pending.user, buffer: pending.buffer.or(of_key) })
}

/// What the region of `buffer` does not grant the remote.
fn lacks(buffer: &IoBuffer, access: AccessFlags) -> Option<&'static str> {
    let granted = buffer.inner().access();
    match () {
        () if granted.contains(access) => None,
        () if access == AccessFlags::REMOTE_WRITE => Some("writes"),
        () => Some("reads"),
    }
}
