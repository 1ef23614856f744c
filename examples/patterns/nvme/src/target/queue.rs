//! A queue of one host: its connection, and the commands that are under way on it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mlx5_dv::Error;
use mlx5_dv::objects::{AccessFlags, Buffer, ExclusiveRegion, Pd, QueuePair, RtrAttributes, RtsAttributes};
use mlx5_dv::queue::{
    Completion, Connection, ConnectionOptions, Done, PostError, Refused, RefusedReason, RemoteAddress, Side, Ticket,
    WorkError,
};
use zerocopy::{FromBytes, IntoBytes};

use super::controller::Answer;
use super::options::LONGEST;
use super::pool::Pool;
use crate::status::Status;
use crate::wire::{self, COMMAND, Command, KeyedSgl, OffsetSgl, fabric, sgl_type};

/// Work requests of the send queue for each command: an answer, and its share of transfers.
const REQUESTS: u32 = 3;
/// Responses and others beyond that.
const SPARE: u32 = 16;

/// Where the data of a command is.
#[derive(Debug, Clone, Copy)]
enum DataLocation {
    None,
    InCapsule { offset: usize },
    Remote { remote: RemoteAddress, invalidate: bool },
}

/// A command under way.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) command: Command,
    /// The receive that brought it, which is posted again with the answer.
    capsule: Buffer,
    place: DataLocation,
    /// Bytes of its data.
    pub(super) len: usize,
    chunks: Vec<Buffer>,
    reads_left: usize,
}

impl Request {
    /// Pieces of its data from the host, as they lie in buffers.
    pub(super) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let in_capsule = match self.place {
            DataLocation::InCapsule { offset } => {
                self.capsule.as_slice().get(COMMAND + offset..COMMAND + offset + self.len)
            }
            _ => None,
        };
        in_capsule.into_iter().chain(self.chunks.iter().map(Buffer::as_slice))
    }

    /// Whether data goes from the host, if any does.
    pub(super) fn is_from_host(&self) -> bool {
        is_from_host(&self.command)
    }

    /// Chunks for its data to the host.
    pub(super) fn chunks(&mut self) -> &mut [Buffer] {
        &mut self.chunks
    }

    /// Its chunks, for a disk that works while the target goes on.
    pub(super) fn take_chunks(&mut self) -> Vec<Buffer> {
        std::mem::take(&mut self.chunks)
    }

    /// Chunks for its data to the host, filled.
    pub(super) fn give_chunks(&mut self, chunks: Vec<Buffer>) {
        self.chunks = chunks;
    }

    /// Its data from the host, where that came in the capsule.
    pub(super) fn carried(&self) -> Option<&[u8]> {
        matches!(self.place, DataLocation::InCapsule { .. }).then(|| self.pieces().next()).flatten()
    }

    /// Its data from the host, copied.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len);
        self.pieces().for_each(|piece| bytes.extend_from_slice(piece));
        bytes
    }
}

/// What is to be posted, in order.
#[derive(Debug)]
enum Operation {
    Read { slot: usize, buffer: Buffer, remote: RemoteAddress },
    Write { buffer: Buffer, remote: RemoteAddress },
    Answer { bytes: [u8; wire::COMPLETION], invalidate: Option<u32> },
}

/// What a work request of the send queue was for.
#[derive(Debug, Clone, Copy)]
enum Purpose {
    Read(usize),
    Write,
    Answer,
}

/// How a queue ends.
#[derive(Debug, thiserror::Error)]
pub(super) enum QueueError {
    #[error(transparent)]
    Device(#[from] Error),
    #[error(transparent)]
    Work(#[from] WorkError),
    #[error("posting failed: {0}")]
    Post(RefusedReason),
    #[error("the host broke the protocol: {0}")]
    Protocol(String),
}

#[derive(Debug)]
pub(super) struct Queue {
    connection: Connection,
    slots: Vec<Option<Request>>,
    free: Vec<usize>,
    /// Commands that wait for chunks, oldest first.
    starved: VecDeque<usize>,
    to_post: VecDeque<Operation>,
    posted: VecDeque<(Ticket, Purpose)>,
    /// Answers among what is to be posted.
    unsent: usize,
    head: u16,
    size: u16,
    pub(super) qid: u16,
    /// Its controller, once it is connected.
    pub(super) cntlid: Option<u16>,
    /// When it came.
    pub(super) since: Duration,
    /// Our address, as its host reached it.
    pub(super) address: SocketAddr,
}

/// A command whose data is here, or is not needed.
pub(super) struct Ready(usize);

impl Queue {
    pub(super) fn new(
        pd: &Arc<Pd>,
        (qid, size): (u16, u16),
        in_capsule: usize,
        address: SocketAddr,
        now: Duration,
    ) -> Result<Self, Error> {
        let depth = u32::from(size);
        let mut options = ConnectionOptions::default();
        options.send_depth = depth * REQUESTS + SPARE;
        options.recv_depth = depth;
        options.inline_bytes = wire::COMPLETION as u16;
        options.remote_access = AccessFlags::empty();
        let mut connection = Connection::new(pd, options)?;
        let each = COMMAND + in_capsule;
        let region = ExclusiveRegion::allocate(pd, each * usize::from(size))?;
        for buffer in region.buffers(each)?.into_iter().take(size.into()) {
            if let Err(Refused { reason, .. }) = connection.receive(buffer) {
                tracing::error!(%reason, "a receive was refused by a new queue");
            }
        }
        Ok(Queue {
            connection,
            slots: (0..size).map(|_| None).collect(),
            free: (0..size.into()).rev().collect(),
            starved: VecDeque::new(),
            to_post: VecDeque::new(),
            posted: VecDeque::new(),
            unsent: 0,
            head: 0,
            size,
            qid,
            cntlid: None,
            since: now,
            address,
        })
    }

    pub(super) fn queue_pair(&self) -> &Arc<QueuePair> {
        self.connection.queue_pair()
    }

    pub(super) fn connect_by(&mut self, rtr: &RtrAttributes, rts: &RtsAttributes) -> Result<(), Error> {
        self.connection.connect_by(rtr, rts)
    }

    /// Entries of the queue.
    pub(super) fn size(&self) -> u16 {
        self.size
    }

    /// The next command whose data is here; `None` while there is none.
    pub(super) fn poll(&mut self, pool: &mut Pool) -> Result<Option<Ready>, QueueError> {
        if let Some(ready) = self.feed(pool)? {
            return Ok(Some(ready));
        }
        while let Some(Done { ticket, buffer, result, .. }) = self.connection.poll().map_err(Error::from)? {
            let completion = match result {
                Ok(completion) => completion,
                Err(error) => {
                    self.reclaim(error.work.side, buffer, pool);
                    return Err(error.into());
                }
            };
            let ready = match completion.work.side {
                Side::Receive => self.received(&completion, buffer, pool)?,
                Side::Send => self.done(ticket, buffer, pool)?,
            };
            self.post(pool)?;
            if ready.is_some() {
                return Ok(ready);
            }
        }
        self.post(pool)?;
        Ok(None)
    }

    /// Starts the oldest command that has waited for chunks.
    fn feed(&mut self, pool: &mut Pool) -> Result<Option<Ready>, QueueError> {
        let Some(&slot) = self.starved.front() else { return Ok(None) };
        let Some(request) = self.slots[slot].as_mut() else { return Ok(None) };
        let Some(chunks) = pool.take(request.len) else { return Ok(None) };
        self.starved.pop_front();
        let ready = self.start(slot, chunks);
        self.post(pool)?;
        Ok(ready)
    }

    /// A capsule has come.
    fn received(
        &mut self,
        completion: &Completion,
        buffer: Option<Buffer>,
        pool: &mut Pool,
    ) -> Result<Option<Ready>, QueueError> {
        let len = completion.byte_len as usize;
        let (Some(capsule), Some(slot)) = (buffer, self.free.pop()) else {
            return Err(QueueError::Protocol("more commands than the queue has room for".into()));
        };
        let too_short = || QueueError::Protocol(format!("a capsule of {len} bytes"));
        if len < COMMAND {
            return Err(too_short());
        }
        let command = capsule.as_slice().first_chunk::<COMMAND>().ok_or_else(too_short)?;
        let command = Command::read_from_bytes(command).unwrap_or_default();
        let mut request =
            Request { command, capsule, place: DataLocation::None, len: 0, chunks: Vec::new(), reads_left: 0 };
        let described = described(&command, len - COMMAND);
        if let Ok((place, len)) = described {
            (request.place, request.len) = (place, len);
        }
        self.slots[slot] = Some(request);
        if let Err(status) = described {
            self.answer(Ready(slot), Answer::fail(status), pool);
            return Ok(None);
        }
        Ok(self.wants_chunks(slot, pool))
    }

    /// Gives a command its chunks, or lets it wait for them.
    fn wants_chunks(&mut self, slot: usize, pool: &mut Pool) -> Option<Ready> {
        let request = self.slots[slot].as_ref()?;
        let DataLocation::Remote { .. } = request.place else { return Some(Ready(slot)) };
        let chunks = if self.starved.is_empty() { pool.take(request.len) } else { None };
        match chunks {
            Some(chunks) => self.start(slot, chunks),
            None => {
                self.starved.push_back(slot);
                None
            }
        }
    }

    /// Reads the data of a command, if it is to be read.
    fn start(&mut self, slot: usize, chunks: Vec<Buffer>) -> Option<Ready> {
        let request = self.slots[slot].as_mut()?;
        let DataLocation::Remote { remote, .. } = request.place else { return Some(Ready(slot)) };
        if !is_from_host(&request.command) {
            request.chunks = chunks;
            return Some(Ready(slot));
        }
        request.reads_left = chunks.len();
        let mut addr = remote.addr;
        for buffer in chunks {
            let remote = RemoteAddress { addr, ..remote };
            addr = addr.wrapping_add(buffer.len() as u64);
            self.to_post.push_back(Operation::Read { slot, buffer, remote });
        }
        None
    }

    /// A work request of the send queue is done.
    fn done(&mut self, ticket: Ticket, buffer: Option<Buffer>, pool: &mut Pool) -> Result<Option<Ready>, QueueError> {
        let posted = self.posted.pop_front().filter(|(of, _)| *of == ticket);
        let Some((_, purpose)) = posted else {
            return Err(QueueError::Protocol("a work request completed out of order".into()));
        };
        match (purpose, buffer) {
            (Purpose::Read(slot), Some(buffer)) => {
                let Some(request) = self.slots[slot].as_mut() else { return Ok(None) };
                request.chunks.push(buffer);
                request.reads_left -= 1;
                Ok((request.reads_left == 0).then_some(Ready(slot)))
            }
            (_, buffer) => {
                buffer.into_iter().for_each(|buffer| pool.put(buffer));
                Ok(None)
            }
        }
    }

    /// The command that is ready.
    pub(super) fn request(&mut self, ready: &Ready) -> Option<&mut Request> {
        self.slots[ready.0].as_mut()
    }

    /// Answers a command: data to the host first, then the completion.
    pub(super) fn answer(&mut self, ready: Ready, answer: Answer, pool: &mut Pool) {
        let Some(request) = self.slots[ready.0].take() else { return };
        self.free.push(ready.0);
        self.head = (self.head + 1) % self.size;
        let status = answer.status.unwrap_or(Status::SUCCESS);
        let invalidate = self.send_data(&request.command, request.place, request.chunks, status, pool);
        let completion = wire::Completion {
            result: answer.result.into(),
            sq_head: self.head.into(),
            sq_id: self.qid.into(),
            command_id: request.command.command_id,
            status: status.word().into(),
        };
        // Before the answer, after which the host may send the next command.
        self.repost(request.capsule);
        let mut bytes = [0; wire::COMPLETION];
        bytes.copy_from_slice(completion.as_bytes());
        self.to_post.push_back(Operation::Answer { bytes, invalidate });
        self.unsent += 1;
    }

    /// Writes the chunks of a command that went well to the host. Returns the key to invalidate.
    fn send_data(
        &mut self,
        command: &Command,
        place: DataLocation,
        chunks: Vec<Buffer>,
        status: Status,
        pool: &mut Pool,
    ) -> Option<u32> {
        let DataLocation::Remote { remote, invalidate } = place else { return None };
        let sends = status.is_success() && !is_from_host(command);
        let mut addr = remote.addr;
        for buffer in chunks {
            if !sends {
                pool.put(buffer);
                continue;
            }
            let remote = RemoteAddress { addr, ..remote };
            addr = addr.wrapping_add(buffer.len() as u64);
            self.to_post.push_back(Operation::Write { buffer, remote });
        }
        invalidate.then_some(remote.rkey)
    }

    /// A command that is never answered: its slot and its receive are free for others.
    pub(super) fn hold(&mut self, ready: Ready) {
        let Some(request) = self.slots[ready.0].take() else { return };
        self.free.push(ready.0);
        self.repost(request.capsule);
    }

    /// Posts the receive of a command again.
    fn repost(&mut self, capsule: Buffer) {
        if let Err(Refused { reason, .. }) = self.connection.receive(capsule) {
            tracing::debug!(%reason, "a receive of a broken queue was not posted again");
        }
    }

    /// Posts what is to be posted, as far as there is room.
    pub(super) fn post(&mut self, pool: &mut Pool) -> Result<(), QueueError> {
        while let Some(operation) = self.to_post.pop_front() {
            let is_answer = matches!(operation, Operation::Answer { .. });
            if let Err((operation, reason)) = self.post_one(operation) {
                let Some(operation) = operation else { return Err(QueueError::Post(reason)) };
                if matches!(reason, RefusedReason::Post(PostError::Full(_))) {
                    self.to_post.push_front(operation);
                    return self.check_unsent();
                }
                give_back(operation, pool);
                return Err(QueueError::Post(reason));
            }
            self.unsent -= usize::from(is_answer);
        }
        Ok(())
    }

    /// `Ok` if the host takes answers. It sends as many commands as its queue has entries, and another for each answer:
    /// one that sends on without would fill the memory, and hold the chunks that others wait for.
    fn check_unsent(&self) -> Result<(), QueueError> {
        match self.unsent > 2 * usize::from(self.size) {
            true => Err(QueueError::Protocol(format!("it has not taken {} answers", self.unsent))),
            false => Ok(()),
        }
    }

    fn post_one(&mut self, operation: Operation) -> Result<(), (Option<Operation>, RefusedReason)> {
        let (posted, purpose) = match operation {
            Operation::Read { slot, buffer, remote } => {
                let again = |buffer| Operation::Read { slot, buffer, remote };
                let posted = self.connection.read(buffer, remote);
                (posted.map_err(|refused| (refused.buffer.map(again), refused.reason)), Purpose::Read(slot))
            }
            Operation::Write { buffer, remote } => {
                let again = |buffer| Operation::Write { buffer, remote };
                let posted = self.connection.write(buffer, remote);
                (posted.map_err(|refused| (refused.buffer.map(again), refused.reason)), Purpose::Write)
            }
            Operation::Answer { bytes, invalidate } => {
                let posted = match invalidate {
                    Some(key) => self.connection.send_invalidate_inline(&bytes, key),
                    None => self.connection.send_inline(&bytes),
                };
                let again = Operation::Answer { bytes, invalidate };
                (posted.map_err(|refused| (Some(again), refused.reason)), Purpose::Answer)
            }
        };
        let ticket = posted?;
        self.posted.push_back((ticket, purpose));
        Ok(())
    }

    /// What a failed work request held goes back to the pool, if it was a chunk.
    fn reclaim(&mut self, side: Side, buffer: Option<Buffer>, pool: &mut Pool) {
        if side == Side::Send {
            self.posted.pop_front();
            buffer.into_iter().for_each(|buffer| pool.put(buffer));
        }
    }

    /// Ends the connection; its chunks go back to the pool.
    pub(super) fn close(mut self, pool: &mut Pool, patience: Duration) {
        let clock = self.connection.queue_pair().device().clock().clone();
        let deadline = clock.now() + patience;
        let flushing = self.connection.queue_pair().to_error();
        while flushing.is_ok() && self.connection.in_flight() != (0, 0) && clock.now() < deadline {
            match self.connection.poll() {
                Ok(Some(done)) => {
                    let side = match &done.result {
                        Ok(completion) => completion.work.side,
                        Err(error) => error.work.side,
                    };
                    self.reclaim(side, done.buffer, pool);
                }
                Ok(None) => clock.pause(Duration::from_micros(100)),
                Err(error) => {
                    tracing::error!(%error, "a queue's completions are broken: its chunks are lost to the pool");
                    break;
                }
            }
        }
        self.to_post.drain(..).for_each(|operation| give_back(operation, pool));
        let requests = self.slots.iter_mut().filter_map(Option::take);
        requests.flat_map(|request| request.chunks).for_each(|chunk| pool.put(chunk));
    }
}

fn give_back(operation: Operation, pool: &mut Pool) {
    match operation {
        Operation::Read { buffer, .. } | Operation::Write { buffer, .. } => pool.put(buffer),
        Operation::Answer { .. } => {}
    }
}

/// Whether data of a command goes from the host. NVMe base specification: the low bits of the opcode, or of the fabrics
/// command's type, say it.
fn is_from_host(command: &Command) -> bool {
    transfer(command) == 1
}

fn transfer(command: &Command) -> u8 {
    let code = if command.opcode == fabric::COMMAND { command.nsid.get() as u8 } else { command.opcode };
    code & 3
}

/// Where the data of a command is, and its length. `carried` bytes came with it.
fn described(command: &Command, carried: usize) -> Result<(DataLocation, usize), Status> {
    if command.flags & 0xc0 != wire::flags::SGL {
        return Err(Status::INVALID_FIELD);
    }
    let kind = command.data[15];
    if transfer(command) == 0 {
        return Ok((DataLocation::None, 0));
    }
    match kind {
        sgl_type::IN_CAPSULE => {
            let sgl = OffsetSgl::read_from_bytes(&command.data).unwrap_or_default();
            let (offset, len) = (sgl.offset.get(), u64::from(sgl.length.get()));
            let fits = offset.checked_add(len).is_some_and(|end| end <= carried as u64);
            if !fits || !is_from_host(command) {
                return Err(Status::INVALID_SGL_OFFSET);
            }
            Ok((DataLocation::InCapsule { offset: offset as usize }, len as usize))
        }
        sgl_type::KEYED | sgl_type::KEYED_INVALIDATE => {
            let sgl = KeyedSgl::read_from_bytes(&command.data).unwrap_or_default();
            if sgl.len() as usize > LONGEST {
                return Err(Status::INVALID_FIELD);
            }
            if sgl.is_empty() {
                return Ok((DataLocation::None, 0));
            }
            let remote = RemoteAddress { addr: sgl.address.get(), rkey: sgl.key.get() };
            Ok((DataLocation::Remote { remote, invalidate: kind == sgl_type::KEYED_INVALIDATE }, sgl.len() as usize))
        }
        _ => Err(Status::INVALID_SGL_TYPE),
    }
}
