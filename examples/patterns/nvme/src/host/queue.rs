//! A queue of commands over one connection.

use std::collections::VecDeque;
use std::mem;
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
/// So many answers that were read are posted again at once.
const REPOST: usize = 16;
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

/// A command's place, an element of an array that its answer names.
#[derive(Debug)]
struct Slot {
    /// ID of the command under way, or of the next one: the slot's index, and above it a count of its uses.
    id: u16,
    state: State,
    user: u64,
    data: Held,
}

/// What has become of a command.
#[derive(Debug, Clone, Copy)]
enum State {
    /// There is none.
    Free,
    UnderWay,
    /// It was answered, but the card may have its buffer still.
    Answered {
        status: Status,
        result: u64,
    },
}

/// Where the buffer of a command is meanwhile.
#[derive(Debug)]
enum Held {
    /// There is none.
    Nothing,
    /// Here: the remote gets at it by the key of its region.
    Here(IoBuffer),
    /// With the work request of the capsule that it is a part of.
    InCapsule(Kept),
    /// With the key of the slot.
    ByKey,
}

impl Held {
    fn of(buffer: Option<Buffer>) -> Self {
        buffer.map_or(Held::Nothing, |buffer| Held::Here(IoBuffer::of(buffer)))
    }

    fn into_buffer(self) -> Option<IoBuffer> {
        if let Held::Here(buffer) = self { Some(buffer) } else { None }
    }

    /// The work request that has the buffer.
    fn kept(&self) -> Option<Kept> {
        if let Held::InCapsule(kept) = self { Some(*kept) } else { None }
    }
}

#[derive(Debug)]
pub(super) struct Queue {
    connection: Connection,
    link: Arc<Link>,
    qid: u16,
    slots: Vec<Slot>,
    free: Vec<u16>,
    /// A key for each slot, where each command has its own.
    keys: Vec<FastKey>,
    /// Slots whose keys are being closed, in order. Nothing else that is sent is reported: the answer says that its
    /// capsule has arrived, and its key was opened.
    closing: VecDeque<(Ticket, usize)>,
    /// Slots that were answered, in order, but whose capsules are not known to have arrived.
    unsent: VecDeque<usize>,
    /// Buffers of answers that were read, to be posted again.
    answers: Vec<Buffer>,
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
    /// Receives of a queue for `depth` commands. Some are waiting to be posted again, but never so many that there is
    /// none for a command's answer.
    pub(super) fn receives(depth: u16) -> u32 {
        u32::from(depth) + REPOST as u32
    }

    /// Of a connection in INIT, with room for the [receives](Self::receives), which are posted here.
    pub(super) fn new(
        mut connection: Connection,
        link: Arc<Link>,
        qid: u16,
        depth: u16,
        placement: DataPlacement,
    ) -> Result<Self, HostError> {
        let pd = Arc::clone(connection.queue_pair().pd());
        let receives = Self::receives(depth) as usize;
        let mut answers = ExclusiveRegion::allocate(&pd, receives * RECEIVE)?.buffers(RECEIVE)?;
        answers.truncate(receives);
        let posted = connection.receives().receive_each(&mut answers);
        posted.map_err(|reason| HostError::Post { queue: qid, reason })?;
        let keys = match placement {
            DataPlacement::StandingKey => Vec::new(),
            DataPlacement::FastKey => FastKey::pool(&pd, depth.into(), UmrKeyOptions::default().entries(1))?,
        };
        let slots = (0..depth).map(|id| Slot { id, state: State::Free, user: 0, data: Held::Nothing });
        Ok(Queue {
            clock: pd.device().clock().clone(),
            slots: slots.collect(),
            free: (0..depth).rev().collect(),
            keys,
            closing: VecDeque::with_capacity(depth.into()),
            unsent: VecDeque::with_capacity(depth.into()),
            answers,
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
    // Inlined, as are those below: a command and its buffer would be copied from caller to caller.
    #[inline(always)]
    pub(super) fn submit(&mut self, command: Command, data: Data, user: u64) -> Result<(), Refused> {
        let Some(index) = self.free_slot() else { return Err(self.refuse(data)) };
        let command = Command { command_id: self.slots[index].id.into(), ..command };
        let data = match data {
            Data::None => self.send(&command.without_data(), Held::Nothing),
            Data::Out(buffer) if buffer.len() <= self.in_capsule => self.send_in_capsule(command, buffer),
            Data::In(buffer) => self.send_keyed(index, command, buffer, AccessFlags::REMOTE_WRITE),
            Data::Out(buffer) => self.send_keyed(index, command, buffer, AccessFlags::REMOTE_READ),
        }?;
        self.free.pop();
        let slot = &mut self.slots[index];
        (slot.user, slot.data, slot.state) = (user, data, State::UnderWay);
        Ok(())
    }

    /// The slot of the next command, if there may be one.
    #[inline(always)]
    fn free_slot(&self) -> Option<usize> {
        let slot = *self.free.last()?;
        (!self.is_broken()).then_some(slot.into())
    }

    /// Why there is no slot.
    #[cold]
    fn refuse(&self, data: Data) -> Refused {
        let queue = self.qid;
        let reason = match self.is_broken() {
            true => SubmitError::Broken { queue },
            false => SubmitError::Full { queue, depth: self.slots.len() },
        };
        Refused { buffer: data.into_buffer(), reason }
    }

    /// Sends a capsule without data.
    #[inline(always)]
    fn send(&mut self, command: &Command, data: Held) -> Result<Held, Refused> {
        match self.connection.send_inline_unreported(command.as_bytes()) {
            Ok(()) => Ok(data),
            Err(reason) => Err(Refused { buffer: data.into_buffer(), reason: reason.into() }),
        }
    }

    #[inline(always)]
    fn send_in_capsule(&mut self, command: Command, mut buffer: IoBuffer) -> Result<Held, Refused> {
        let length = (buffer.len() as u32).into();
        let sgl = OffsetSgl { length, kind: sgl_type::IN_CAPSULE, ..OffsetSgl::default() };
        buffer.put_command(command.data(sgl).as_bytes());
        match self.connection.send_kept(buffer.into_inner()) {
            Ok(kept) => Ok(Held::InCapsule(kept)),
            Err(refused) => Err(Refused { buffer: refused.buffer.map(IoBuffer::of), reason: refused.reason.into() }),
        }
    }

    /// Sends a capsule that says where the remote finds the data.
    #[inline(always)]
    fn send_keyed(
        &mut self,
        index: usize,
        command: Command,
        buffer: IoBuffer,
        access: AccessFlags,
    ) -> Result<Held, Refused> {
        if let Some(key) = self.keys.get_mut(index) {
            return send_registered(&mut self.connection, key, &command, buffer, access);
        }
        if let Some(lacks) = lacks(&buffer, access) {
            return Err(Refused { buffer: Some(buffer), reason: SubmitError::Access(lacks) });
        }
        let (length, remote) = (buffer.len() as u32, buffer.inner().remote());
        let sgl = KeyedSgl::new(remote.addr + HEADROOM as u64, length, remote.rkey, sgl_type::KEYED);
        self.send(&command.data(sgl), Held::Here(buffer))
    }

    /// The next command that the target has answered; `None` while there is none.
    pub(super) fn poll(&mut self) -> Result<Option<Completed>, HostError> {
        loop {
            let done = match self.connection.poll() {
                Ok(Some(done)) => done,
                Ok(None) => break,
                Err(error) => return Err(mlx5_dv::Error::from(error).into()),
            };
            let index = match done.result {
                Ok(completion) if completion.work.side == Side::Receive => self.answered(done, &completion)?,
                Ok(_) => self.closed(done)?,
                Err(error) => {
                    self.broken.get_or_insert(error);
                    self.flushed(done);
                    break;
                }
            };
            if let Some(completed) = self.finish(index) {
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
        let index = self.unsent.pop_front()?;
        let completed = self.finish(index);
        if completed.is_none() {
            // `finish` put it last.
            self.unsent.rotate_right(1);
        }
        completed
    }

    /// A key was closed: its slot.
    #[inline(never)]
    fn closed(&mut self, done: Done) -> Result<usize, HostError> {
        let Some((_, index)) = self.closing.pop_front().filter(|(ticket, _)| *ticket == done.ticket) else {
            return Err(self.protocol("a work request that completed out of order".into()));
        };
        self.settle(index, &done);
        Ok(index)
    }

    /// A work request changed the key of a slot, or failed to.
    fn settle(&mut self, index: usize, done: &Done) {
        if let Some(key) = self.keys.get_mut(index) {
            key.settle(done);
        }
    }

    /// An answer came: its slot.
    // Inlined, so that the parts of what is done stay in registers.
    #[inline(always)]
    fn answered(&mut self, mut done: Done, completion: &WorkCompletion) -> Result<usize, HostError> {
        let Some(buffer) = done.buffer.take() else {
            return Err(self.protocol("a receive without a buffer".into()));
        };
        let answer = Completion::read_from_prefix(buffer.as_slice()).map(|(answer, _)| answer).unwrap_or_default();
        self.receive_again(buffer)?;
        if completion.byte_len as usize != COMPLETION || matches!(completion.operation, Operation::WrittenImm(_)) {
            return Err(self.protocol(format!("an answer of {} bytes", completion.byte_len)));
        }
        let id = answer.command_id.get();
        let index = usize::from(id & ((1 << SLOT_BITS) - 1));
        let slot = self.slots.get_mut(index).filter(|slot| slot.id == id);
        let Some(slot) = slot.filter(|slot| matches!(slot.state, State::UnderWay)) else {
            return Err(self.protocol(format!("an answer to command {id:#x}, which is not under way")));
        };
        slot.state = State::Answered { status: Status::from_word(answer.status.get()), result: answer.result.get() };
        if matches!(slot.data, Held::ByKey) {
            self.close_key(index, completion)?;
        }
        Ok(index)
    }

    /// Posts `buffer` for another answer, together with others: one doorbell record serves them all.
    #[inline(always)]
    fn receive_again(&mut self, buffer: Buffer) -> Result<(), HostError> {
        self.answers.push(buffer);
        if self.answers.len() < REPOST { Ok(()) } else { self.repost() }
    }

    #[inline(never)]
    fn repost(&mut self) -> Result<(), HostError> {
        let posted = self.connection.receives().receive_each(&mut self.answers);
        posted.map_err(|reason| HostError::Post { queue: self.qid, reason })
    }

    /// Closes the key of a slot that was answered, unless the target has.
    #[inline(always)]
    fn close_key(&mut self, index: usize, answer: &WorkCompletion) -> Result<(), HostError> {
        let is_closed = self.keys.get_mut(index).is_none_or(|key| key.settle_message(answer));
        if is_closed { Ok(()) } else { self.invalidate(index) }
    }

    #[cold]
    fn invalidate(&mut self, index: usize) -> Result<(), HostError> {
        let Some(key) = self.keys.get_mut(index) else { return Ok(()) };
        let posted = self.connection.invalidate(key);
        let ticket = posted.map_err(|reason| HostError::Post { queue: self.qid, reason })?;
        self.closing.push_back((ticket, index));
        Ok(())
    }

    /// The command of a slot, if it was answered, and its buffer is back.
    #[inline(always)]
    fn finish(&mut self, index: usize) -> Option<Completed> {
        let slot = self.slots.get_mut(index)?;
        let State::Answered { status, result } = slot.state else { return None };
        let buffer = match mem::replace(&mut slot.data, Held::Nothing) {
            Held::Nothing => None,
            Held::Here(buffer) => Some(buffer),
            Held::InCapsule(kept) => match self.connection.reclaim(&kept) {
                Some(buffer) => Some(IoBuffer::of(buffer)),
                None => {
                    slot.data = Held::InCapsule(kept);
                    self.unsent.push_back(index);
                    return None;
                }
            },
            Held::ByKey => match self.keys.get_mut(index).filter(|key| key.is_free()) {
                Some(key) => key.pop().map(IoBuffer::of),
                None => {
                    slot.data = Held::ByKey;
                    return None;
                }
            },
        };
        slot.state = State::Free;
        // The upper bits count, and begin again.
        slot.id = slot.id.wrapping_add(1 << SLOT_BITS);
        self.free.push(index as u16);
        Some(Completed { user: slot.user, buffer, status, result })
    }

    /// A work request of a broken connection is back: its slot gets its buffer.
    #[cold]
    fn flushed(&mut self, done: Done) {
        if let Some((_, index)) = self.closing.pop_front_if(|(ticket, _)| *ticket == done.ticket) {
            return self.settle(index, &done);
        }
        let is_of = |slot: &&mut Slot| slot.data.kept().is_some_and(|kept| kept.ticket() == done.ticket);
        // A capsule without a buffer is not among them.
        if let Some(slot) = self.slots.iter_mut().find(is_of) {
            slot.data = Held::of(done.buffer);
        }
    }

    /// Gives slots the buffers of capsules that have arrived, though no answer came.
    fn reclaim(&mut self) {
        for slot in &mut self.slots {
            if let Some(buffer) = slot.data.kept().and_then(|kept| self.connection.reclaim(&kept)) {
                slot.data = Held::of(Some(buffer));
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
        let mut keys = mem::take(&mut self.keys).into_iter();
        let slots = mem::take(&mut self.slots).into_iter().map(|slot| (slot, keys.next()));
        slots.filter_map(|(slot, key)| unfinished(slot, key)).collect()
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
#[inline(never)]
fn send_registered(
    connection: &mut Connection,
    key: &mut FastKey,
    command: &Command,
    buffer: IoBuffer,
    access: AccessFlags,
) -> Result<Held, Refused> {
    let length = buffer.len() as u32;
    let refused = |buffer: Option<Buffer>, reason: RefusedReason| Refused {
        buffer: buffer.map(IoBuffer::of),
        reason: reason.into(),
    };
    key.push(buffer.into_inner()).map_err(|buffer| refused(Some(buffer), RefusedReason::KeyInUse))?;
    let mut batch = connection.batch();
    // A key that lets the remote write must let this side write, too.
    let sent = match batch.register_unreported(key, access | AccessFlags::LOCAL_WRITE) {
        Ok(remote) => {
            let sgl = KeyedSgl::new(remote.addr + HEADROOM as u64, length, remote.rkey, sgl_type::KEYED_INVALIDATE);
            batch.send_inline_unreported(command.data(sgl).as_bytes())
        }
        refused => refused.map(drop),
    };
    batch.ring();
    // If it was registered and not sent, the key is open, and only a command closes it: the queue has room for all
    // commands, so it is broken.
    sent.map(|()| Held::ByKey).map_err(|reason| refused(key.pop(), reason))
}

/// The command of a slot whose connection is gone.
fn unfinished(slot: Slot, key: Option<FastKey>) -> Option<Unfinished> {
    let buffer = match (slot.state, slot.data) {
        (State::Free, _) => return None,
        (_, Held::Here(buffer)) => Some(buffer),
        (_, Held::ByKey) => key.and_then(|mut key| {
            // The remote may have the key still: only a command closes it now.
            let is_free = key.is_free() || key.renew().is_ok();
            is_free.then(|| key.pop()).flatten().map(IoBuffer::of)
        }),
        (_, Held::Nothing | Held::InCapsule(_)) => None,
    };
    Some(Unfinished { user: slot.user, buffer })
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
