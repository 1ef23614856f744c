//! Byte streams over the connections of one hub (`src/msg/async/rdma/RDMAConnectedSocketImpl.cc`, `RDMAStack.cc`).

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mlx5_dv::objects::{Buffer, Pd};
use mlx5_dv::queue::{
    ConnectionId, Done, Hub, HubDone, Left, Peer, Refused, RefusedReason, RetireError, Side, Ticket, WorkError,
};
use mlx5_dv::{Device, Error};

use super::options::StackOptions;

/// A stream of a [`Streams`]. Never used again for another one.
pub type StreamId = ConnectionId;

/// What happened to a stream.
#[derive(Debug, PartialEq, Eq)]
pub enum StreamEvent {
    /// Bytes came.
    Readable(StreamId),
    /// Bytes can be written again, after a write that was cut short.
    Writable(StreamId),
    /// No more bytes will come, nor are any sent. What came before may be read. [`Streams::close`] it.
    Closed(StreamId, Why),
}

/// Why a stream ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Why {
    /// The other end closed it.
    #[error("the other end closed it")]
    Finished,
    /// The card gave up sending: the other end does not answer, or refuses.
    #[error("a send failed: {0}")]
    Failed(String),
    /// The other end's card answers, but takes nothing: its program has stopped reading.
    #[error("queue pair {qpn:#x}: the other end took none of {sends} sends for {} s: it posts no receives", .time.as_secs_f64())]
    Stalled {
        /// Number of this end's queue pair.
        qpn: u32,
        /// Sends that are under way.
        sends: u32,
        /// How long none of them was taken: `send_timeout` of [`StackOptions`].
        time: Duration,
    },
    /// The other end's program is gone: its TCP connection ended.
    #[error("the other end is gone")]
    Gone,
    /// The exchange before the stream failed.
    #[error("the exchange failed: {0}")]
    Exchange(String),
}

/// A received chunk, read in place.
#[derive(Debug)]
struct Unread {
    buffer: Buffer,
    at: usize,
}

/// How a stream ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// Not at all.
    No,
    /// Its FIN is sent; sends under way are waited for.
    Finishing,
    /// Its queue pair is in ERR, and the beacon not posted: the queue is full of work that will be flushed.
    Broken,
    /// The beacon is behind all other work.
    Beacon(Ticket),
}

#[derive(Debug)]
struct Stream {
    unread: VecDeque<Unread>,
    ending: Ending,
    /// Whether its end was told.
    is_told: bool,
    /// Whether its user is done with it.
    is_closed: bool,
    /// Whether the other end has closed it, and reads nothing more.
    has_fin: bool,
    /// Whether a write was cut short.
    wants_to_write: bool,
    /// Sends under way.
    sending: u32,
    /// Counts sends that are done.
    sent: u32,
    /// While sends are under way: the last count that was seen, and since when it has been the same.
    same: Option<(u32, Duration)>,
}

/// Byte streams, all on one thread: one completion queue, one shared receive queue of chunks, and one pool of chunks to
/// send from, in huge pages where there are some.
///
/// * A **chunk** is filled in place and sent as it is; the card takes the bytes from where they were written.
/// * **Back-pressure**: [`write`](Self::write) takes what fits into free chunks, and returns how much that was. The
///   rest is the writer's; [`StreamEvent::Writable`] tells when to try again. Nothing is dropped.
/// * **Shares**: a stream whose other end stops reading keeps a part of the chunks, never all that others need, and
///   fails after `send_timeout` ([`look`](Self::look)).
/// * **FIN** is an empty SEND.
/// * A broken queue pair is emptied by a **beacon**: a last work request, posted in the state ERR. Once its flushed
///   completion comes, all before it are done, and the queue pair can go.
pub struct Streams {
    hub: Hub<Stream>,
    options: StackOptions,
    events: VecDeque<StreamEvent>,
    /// Writes that were cut short, in order.
    blocked: VecDeque<StreamId>,
    /// Whose beacon has come.
    drained: Vec<StreamId>,
    /// Whose beacon has to be posted again.
    broken: Vec<StreamId>,
    /// Filled chunks that go with one doorbell.
    filled: Vec<Buffer>,
    /// When to look for streams whose sends are not taken.
    next_look: Duration,
}

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Streams({:?}, {} blocked)", self.hub, self.blocked.len())
    }
}

/// Completions that one turn takes, so that others are served in between.
const AT_ONCE: usize = 64;
/// How often streams are looked at within the time that their sends may take.
const LOOKS: u32 = 16;

impl Streams {
    /// No streams yet; all chunks are there.
    ///
    /// # Errors
    /// As for [`Hub::new`].
    pub fn new(device: &Arc<Device>, options: StackOptions) -> Result<Self, Error> {
        let hub = Hub::new(&Pd::alloc(device)?, options.hub())?;
        Ok(Streams {
            hub,
            options,
            events: VecDeque::new(),
            blocked: VecDeque::new(),
            drained: Vec::new(),
            broken: Vec::new(),
            filled: Vec::new(),
            next_look: Duration::ZERO,
        })
    }

    /// Its options.
    pub fn options(&self) -> &StackOptions {
        &self.options
    }

    /// Number of streams, with those that are ending.
    pub fn len(&self) -> usize {
        self.hub.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.hub.is_empty()
    }

    /// Chunks that are posted for receives, and those that are free.
    pub fn chunks(&self) -> (usize, usize) {
        self.hub.buffers()
    }

    /// Creates a stream that is not connected.
    ///
    /// # Errors
    /// As for [`Hub::join`].
    pub fn open(&mut self) -> Result<StreamId, Error> {
        self.hub.join(Stream {
            unread: VecDeque::new(),
            ending: Ending::No,
            is_told: false,
            is_closed: false,
            has_fin: false,
            wants_to_write: false,
            sending: 0,
            sent: 0,
            same: None,
        })
    }

    /// What the other end has to know to connect.
    ///
    /// # Errors
    /// As for [`Hub::local`].
    pub fn local(&self, id: StreamId) -> Result<Peer, Error> {
        self.hub.local(id)
    }

    /// Connects to the other end.
    ///
    /// # Errors
    /// As for [`Hub::connect`].
    pub fn activate(&mut self, id: StreamId, peer: &Peer) -> Result<(), Error> {
        self.hub.connect(id, peer)
    }

    /// What came first of what was not read; empty if nothing is there.
    pub fn unread(&mut self, id: StreamId) -> &[u8] {
        let first = self.hub.context(id).and_then(|stream| stream.unread.front());
        first.map_or(&[], |unread| &unread.buffer.as_slice()[unread.at..])
    }

    /// Takes `bytes` of [`unread`](Self::unread) as read; a chunk that was read to its end receives again.
    pub fn consume(&mut self, id: StreamId, bytes: usize) {
        let Some(stream) = self.hub.context(id) else { return };
        let Some(first) = stream.unread.front_mut() else { return };
        first.at = (first.at + bytes).min(first.buffer.len());
        if first.at == first.buffer.len()
            && let Some(Unread { buffer, .. }) = stream.unread.pop_front()
        {
            self.recycle(buffer);
        }
    }

    /// Copies what came into `to`. Returns how many bytes: 0 if none are there.
    pub fn read(&mut self, id: StreamId, to: &mut [u8]) -> usize {
        let mut read = 0;
        while read < to.len() {
            let unread = self.unread(id);
            let bytes = unread.len().min(to.len() - read);
            if bytes == 0 {
                break;
            }
            to[read..read + bytes].copy_from_slice(&unread[..bytes]);
            read += bytes;
            self.consume(id, bytes);
        }
        read
    }

    /// Chunks that a stream may take now; `None` if it is ending.
    ///
    /// Chunks of a stream that nobody reads come back late. So some are kept for streams that have none under way: as
    /// many as there can be streams, but no more than half of all. Of the others a stream may have half of what those
    /// before it left, so that each that is stuck has less than the one before, and some are left for those that move.
    fn room(&mut self, id: StreamId) -> Option<u32> {
        let free = self.hub.buffers().1 as u32;
        let stream = self.hub.context(id).filter(|stream| stream.ending == Ending::No)?;
        let own = self.options.send_depth.saturating_sub(stream.sending);
        let kept = self.options.streams.min(self.options.send_buffers / 2);
        let fair = free.saturating_sub(kept).saturating_sub(stream.sending).div_ceil(2);
        let first = u32::from(stream.sending == 0).min(free);
        Some(fair.max(first).min(own))
    }

    /// Writes `parts`, one behind the other, into chunks, and sends them with one doorbell. Returns how many bytes were
    /// taken: fewer than all if too few chunks are free, or this stream has its share of them under way.
    pub fn write(&mut self, id: StreamId, parts: &[&[u8]]) -> usize {
        let Some(room) = self.room(id) else { return 0 };
        let (mut taken, mut wanted) = (0, parts.iter().map(|part| part.len()).sum::<usize>());
        let (mut parts, mut rest) = (parts.iter(), &[][..]);
        while wanted > 0 && self.filled.len() < room as usize {
            let Some(mut buffer) = self.hub.buffer() else { break };
            let mut at = 0;
            let space = buffer.as_mut_slice();
            while at < space.len() {
                if rest.is_empty() {
                    let Some(part) = parts.next() else { break };
                    rest = part;
                }
                let bytes = rest.len().min(space.len() - at);
                space[at..at + bytes].copy_from_slice(&rest[..bytes]);
                (at, rest) = (at + bytes, &rest[bytes..]);
            }
            buffer.set_len(at);
            self.filled.push(buffer);
            (taken, wanted) = (taken + at, wanted - at);
        }
        let taken = taken - self.post_filled(id);
        if wanted > 0
            && let Some(stream) = self.hub.context(id)
            && !std::mem::replace(&mut stream.wants_to_write, true)
        {
            self.blocked.push_back(id);
        }
        taken
    }

    /// Sends the filled chunks. Returns how many bytes were not taken.
    fn post_filled(&mut self, id: StreamId) -> usize {
        let (mut filled, mut posted) = (std::mem::take(&mut self.filled), 0);
        if let Some(mut batch) = self.hub.batch(id) {
            filled.reverse();
            while let Some(buffer) = filled.pop() {
                match batch.send(buffer) {
                    Ok(_) => posted += 1,
                    Err(refused) => {
                        filled.extend(refused.buffer);
                        break;
                    }
                }
            }
        }
        self.sent(id, posted);
        let mut left = 0;
        for buffer in filled.drain(..) {
            left += buffer.len();
            self.recycle(buffer);
        }
        self.filled = filled;
        left
    }

    /// A free chunk, to be filled in place for [`send_chunk`](Self::send_chunk).
    pub fn chunk(&mut self) -> Option<Buffer> {
        self.hub.buffer()
    }

    /// Sends a chunk as it is, without a copy.
    ///
    /// # Errors
    /// [`Refused`], with the chunk: too many are under way, the stream is ending, or the chunk is empty, which would
    /// end it. A chunk that is held here is missing to all streams, whatever their shares.
    pub fn send_chunk(&mut self, id: StreamId, chunk: Buffer) -> Result<(), Refused> {
        let is_open = self.hub.context(id).is_some_and(|stream| stream.ending == Ending::No);
        if !is_open || chunk.is_empty() {
            return Err(Refused { buffer: Some(chunk), reason: RefusedReason::HasLeft });
        }
        self.hub.send(id, chunk)?;
        self.sent(id, 1);
        Ok(())
    }

    /// Returns a chunk that is not sent.
    pub fn return_chunk(&mut self, chunk: Buffer) {
        self.recycle(chunk);
    }

    /// Ends a stream: what was written is sent, then the FIN, unless the other end has sent its own. It is forgotten
    /// once the other end's card has it all, or does not answer.
    pub fn close(&mut self, id: StreamId) {
        let Some(stream) = self.hub.context(id) else { return };
        (stream.is_closed, stream.is_told) = (true, true);
        let unread = std::mem::take(&mut stream.unread);
        let (ending, has_fin) = (stream.ending, stream.has_fin);
        unread.into_iter().for_each(|unread| self.recycle(unread.buffer));
        if has_fin {
            self.break_off(id);
        } else if ending == Ending::No {
            self.set_ending(id, Ending::Finishing);
            match self.hub.send_inline(id, &[]) {
                Ok(_) => self.sent(id, 1),
                // Never connected, or broken.
                Err(_) => self.break_off(id),
            }
        }
    }

    /// Ends a stream at once: what is under way is lost.
    pub fn abort(&mut self, id: StreamId) {
        if let Some(stream) = self.hub.context(id) {
            (stream.is_closed, stream.is_told) = (true, true);
            let unread = std::mem::take(&mut stream.unread);
            unread.into_iter().for_each(|unread| self.recycle(unread.buffer));
            self.break_off(id);
        }
    }

    /// Ends a stream that its user still has, and tells so.
    pub(super) fn fail(&mut self, id: StreamId, why: Why) {
        self.tell_end(id, why);
        self.break_off(id);
    }

    /// What happened next.
    pub fn next_event(&mut self) -> Option<StreamEvent> {
        self.events.pop_front()
    }

    /// Serves all streams. Returns whether anything happened.
    ///
    /// # Errors
    /// [`Error`] if the card, or the driver, failed: no stream will work any more.
    pub fn poll(&mut self) -> Result<bool, Error> {
        let mut count = 0;
        while count < AT_ONCE {
            let Some(HubDone { connection, done, .. }) = self.hub.poll()? else { break };
            count += 1;
            match &done.result {
                Ok(completion) if completion.work.side == Side::Receive => {
                    let bytes = completion.byte_len as usize;
                    self.received(connection, bytes, done.buffer);
                }
                result if is_send(result) => self.completed(connection, done)?,
                _ => done.buffer.into_iter().for_each(|buffer| self.recycle(buffer)),
            }
        }
        for id in std::mem::take(&mut self.broken) {
            self.post_beacon(id);
        }
        // Ceph waits until nothing is in its two completion queues. Here is one, so what was received before stands
        // before the beacon.
        if !self.drained.is_empty() {
            self.remove_drained()?;
        }
        if !self.blocked.is_empty() && self.hub.buffers().1 > 0 {
            self.unblock();
        }
        Ok(count > 0)
    }

    /// Tells the writers who may take chunks, those first who have waited longest. The others keep their places: one
    /// that is stuck holds nobody up.
    fn unblock(&mut self) {
        for _ in 0..self.blocked.len() {
            let Some(id) = self.blocked.pop_front() else { return };
            match self.room(id) {
                None => {}
                Some(0) => self.blocked.push_back(id),
                Some(_) => {
                    if let Some(stream) = self.hub.context(id) {
                        stream.wants_to_write = false;
                    }
                    self.events.push_back(StreamEvent::Writable(id));
                }
            }
        }
    }

    /// Ends the streams of which no send was done for `send_timeout`, though some are under way: the card itself asks
    /// an end that posts no receives for ever. [`Stack::poll`](super::Stack::poll) calls it. Returns whether there
    /// were any.
    pub fn look(&mut self, now: Duration) -> bool {
        if now < self.next_look {
            return false;
        }
        let time = self.options.send_timeout;
        self.next_look = now + time / LOOKS;
        let mut stalled = Vec::new();
        for id in self.hub.connections().collect::<Vec<_>>() {
            let Some(stream) = self.hub.context(id) else { continue };
            let is_waiting = matches!(stream.ending, Ending::No | Ending::Finishing) && stream.sending > 0;
            match stream.same {
                _ if !is_waiting => stream.same = None,
                Some((sent, since)) if sent == stream.sent => {
                    if now >= since + time {
                        stalled.push((id, stream.sending));
                    }
                }
                _ => stream.same = Some((stream.sent, now)),
            }
        }
        for (id, sends) in &stalled {
            let qpn = self.hub.local(*id).map_or(0, |local| local.qpn);
            self.fail(*id, Why::Stalled { qpn, sends: *sends, time });
        }
        !stalled.is_empty()
    }

    /// Waits until the card has done something, at most for `timeout`.
    ///
    /// # Errors
    /// As for [`Hub::wait`], but for a timeout.
    pub fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        match self.hub.wait(timeout) {
            Err(Error::Timeout { .. }) => Ok(()),
            waited => waited,
        }
    }

    fn received(&mut self, id: StreamId, bytes: usize, buffer: Option<Buffer>) {
        let (Some(mut buffer), Some(stream)) = (buffer, self.hub.context(id)) else { return };
        if bytes == 0 || stream.is_closed || bytes > buffer.capacity() {
            let is_end = !stream.is_closed;
            stream.has_fin |= bytes == 0;
            self.recycle(buffer);
            if is_end {
                self.tell_end(id, Why::Finished);
            }
            return;
        }
        buffer.set_len(bytes);
        let was_empty = stream.unread.is_empty();
        stream.unread.push_back(Unread { buffer, at: 0 });
        if was_empty {
            self.events.push_back(StreamEvent::Readable(id));
        }
    }

    /// A send, the FIN, or the beacon is done.
    fn completed(&mut self, id: StreamId, done: Done) -> Result<(), RetireError> {
        let Done { ticket, buffer, result, .. } = done;
        buffer.into_iter().for_each(|buffer| self.recycle(buffer));
        let Some(stream) = self.hub.context(id) else { return Ok(()) };
        if stream.ending == Ending::Beacon(ticket) {
            self.drained.push(id);
            return Ok(());
        }
        (stream.sending, stream.sent) = (stream.sending.saturating_sub(1), stream.sent.wrapping_add(1));
        match result {
            Ok(_) if stream.ending == Ending::Finishing && stream.sending == 0 => self.break_off(id),
            Ok(_) => {}
            Err(error) => self.fail(id, Why::Failed(reason(&error))),
        }
        Ok(())
    }

    fn tell_end(&mut self, id: StreamId, why: Why) {
        if let Some(stream) = self.hub.context(id)
            && !std::mem::replace(&mut stream.is_told, true)
        {
            self.events.push_back(StreamEvent::Closed(id, why));
        }
    }

    fn set_ending(&mut self, id: StreamId, ending: Ending) {
        if let Some(stream) = self.hub.context(id) {
            stream.ending = ending;
        }
    }

    fn sent(&mut self, id: StreamId, count: u32) {
        if let Some(stream) = self.hub.context(id) {
            stream.sending += count;
        }
    }

    /// Takes the queue pair to ERR, and posts the beacon.
    fn break_off(&mut self, id: StreamId) {
        let is_ending = |stream: &mut Stream| matches!(stream.ending, Ending::Broken | Ending::Beacon(_));
        if self.hub.context(id).is_none_or(is_ending) {
            return;
        }
        self.set_ending(id, Ending::Broken);
        match self.hub.to_error(id) {
            Ok(()) => self.post_beacon(id),
            // The card refuses or is dead; leaving says what to do.
            Err(_) => self.drained.push(id),
        }
    }

    fn post_beacon(&mut self, id: StreamId) {
        match self.hub.send_inline(id, &[]) {
            Ok(ticket) => self.set_ending(id, Ending::Beacon(ticket)),
            // No sends were ever posted.
            Err(Refused { reason: RefusedReason::NotConnected, .. }) => self.drained.push(id),
            Err(_) => self.broken.push(id),
        }
    }

    /// Destroys the queue pairs whose beacons have come, unless their users still read.
    fn remove_drained(&mut self) -> Result<(), Error> {
        let mut kept = Vec::new();
        for id in std::mem::take(&mut self.drained) {
            match self.hub.context(id) {
                Some(stream) if !stream.is_closed => kept.push(id),
                None => {}
                Some(_) => {
                    let Left { done, buffers, .. } = self.hub.leave(id)?;
                    let flushed = done.into_iter().filter_map(|done| done.buffer);
                    flushed.chain(buffers).for_each(|buffer| self.recycle(buffer));
                }
            }
        }
        self.drained.append(&mut kept);
        Ok(())
    }

    fn recycle(&mut self, buffer: Buffer) {
        if let Err(refused) = self.hub.recycle(buffer) {
            tracing::error!(%refused, "a chunk of another pool");
        }
    }
}

fn is_send<T>(result: &Result<T, WorkError>) -> bool {
    result.as_ref().map_or_else(|error| error.work.side == Side::Send, |_| true)
}

fn reason(error: &WorkError) -> String {
    error.to_string()
}
