//! Commands whose disk works while the target goes on.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::time::Duration;

use mlx5_cm::ConnectionId;
use mlx5_dv::objects::Buffer;
use mlx5_files::{FileQueue, RefusedReason};

use super::disk::{Disk, Task};
use super::pool::Pool;
use super::queue::Ready;

/// Bits of a file queue's number that name the piece of a command: a transfer has fewer pieces.
const PIECE_BITS: u32 = 16;

/// A command at its disk.
pub(super) struct Pending {
    pub(super) connection: ConnectionId,
    pub(super) ready: Ready,
    pub(super) task: Task,
    /// Index of the disk; `None` for all.
    pub(super) disk: Option<usize>,
    /// Where its bytes start.
    pub(super) offset: u64,
    /// When it was given to the disk.
    since: Duration,
    /// Its chunks, in order, as far as the disk has given them back.
    chunks: Vec<Option<Buffer>>,
    left: usize,
    /// Whether a flush follows the data, before the answer.
    to_flush: bool,
    error: Option<io::Error>,
}

/// A command that its disk is done with.
pub(super) struct Finished {
    pub(super) pending: Pending,
    pub(super) chunks: Vec<Buffer>,
    pub(super) result: io::Result<()>,
}

/// A piece that a file's queue has no room for yet.
struct Piece {
    user: u64,
    disk: usize,
    task: Task,
    offset: u64,
    buffer: Option<Buffer>,
}

/// All commands at disks.
#[derive(Default)]
pub(super) struct AtDisk {
    /// By number: the oldest is first.
    commands: BTreeMap<u64, Pending>,
    next: u64,
    /// The last command that was told of as slow.
    told: Option<u64>,
    pieces: VecDeque<Piece>,
    /// Commands all of whose pieces are done.
    ended: VecDeque<u64>,
}

impl AtDisk {
    /// Commands at disks.
    pub(super) fn len(&self) -> usize {
        self.commands.len()
    }

    /// How long the oldest command has been at its disk; zero if there is none.
    pub(super) fn longest(&self, now: Duration) -> Duration {
        self.commands.first_key_value().map_or(Duration::ZERO, |(_, oldest)| now.saturating_sub(oldest.since))
    }

    /// The oldest command, the first time that it has been at its disk for `patience`.
    pub(super) fn newly_slow(&mut self, now: Duration, patience: Duration) -> Option<&Pending> {
        let is_slow = self.longest(now) >= patience;
        let (&number, oldest) = self.commands.first_key_value().filter(|_| is_slow)?;
        if self.told == Some(number) {
            return None;
        }
        self.told = Some(number);
        Some(oldest)
    }

    /// Gives a command with its `chunks` to `disk`, which is flushed afterwards if `to_flush` says so.
    pub(super) fn start(
        &mut self,
        (connection, ready): (ConnectionId, Ready),
        (disk, queue): (usize, &mut FileQueue),
        (task, offset, to_flush): (Task, u64, bool),
        chunks: Vec<Buffer>,
        now: Duration,
    ) {
        let number = self.number();
        let count = chunks.len().max(1);
        let mut at = offset;
        let mut given = chunks.into_iter();
        for piece in 0..count as u64 {
            let buffer = given.next();
            let len = buffer.as_ref().map_or(0, Buffer::len) as u64;
            self.pieces.push_back(Piece { user: number << PIECE_BITS | piece, disk, task, offset: at, buffer });
            at += len;
        }
        let chunks = (0..count).map(|_| None).collect();
        let (disk_of, left, error) = (Some(disk), count, None);
        let pending =
            Pending { connection, ready, task, disk: disk_of, offset, since: now, chunks, left, to_flush, error };
        self.commands.insert(number, pending);
        self.pump(disk, queue);
    }

    /// Flushes all `disks`, of which at least one has a queue: those that have while the target goes on, the others
    /// before this returns.
    pub(super) fn flush_all(
        &mut self,
        (connection, ready): (ConnectionId, Ready),
        disks: &mut [Box<dyn Disk>],
        now: Duration,
    ) {
        let number = self.number();
        let (mut left, mut error) = (0, None);
        for (index, disk) in disks.iter_mut().enumerate() {
            if disk.queue().is_some() {
                let user = number << PIECE_BITS;
                self.pieces.push_back(Piece { user, disk: index, task: Task::Flush, offset: 0, buffer: None });
                left += 1;
            } else if let Err(failed) = disk.flush() {
                error.get_or_insert(failed);
            }
        }
        let (task, disk, offset, chunks, to_flush) = (Task::Flush, None, 0, Vec::new(), false);
        let pending = Pending { connection, ready, task, disk, offset, since: now, chunks, left, to_flush, error };
        self.commands.insert(number, pending);
        for (index, disk) in disks.iter_mut().enumerate() {
            if let Some(queue) = disk.queue() {
                self.pump(index, queue);
            }
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Gives pieces to `disk`, as far as it has room.
    fn pump(&mut self, disk: usize, queue: &mut FileQueue) {
        // Those of other disks stay in their order.
        for _ in 0..self.pieces.len() {
            let Some(piece) = self.pieces.pop_front() else { return };
            if piece.disk != disk {
                self.pieces.push_back(piece);
                continue;
            }
            let Piece { user, task, offset, buffer, .. } = piece;
            let started = match (task, buffer) {
                (Task::Read, Some(buffer)) => queue.read(offset, buffer, user),
                (Task::Write, Some(buffer)) => queue.write(offset, buffer, user),
                (Task::Zero(len), _) => queue.zero(offset, len, user),
                (Task::Flush | Task::Read | Task::Write, _) => queue.flush(user),
            };
            let Err(refused) = started else { continue };
            if refused.reason == RefusedReason::Full {
                self.pieces.push_front(Piece { user, disk, task, offset, buffer: refused.buffer });
                return;
            }
            self.settle(user, refused.buffer, Err(io::Error::other(refused.reason)));
        }
    }

    /// A piece is done.
    fn settle(&mut self, user: u64, buffer: Option<Buffer>, result: io::Result<()>) {
        let Some(pending) = self.commands.get_mut(&(user >> PIECE_BITS)) else { return };
        if let Some(place) = pending.chunks.get_mut((user & ((1 << PIECE_BITS) - 1)) as usize) {
            *place = buffer;
        }
        pending.left -= 1;
        if let Err(error) = result {
            pending.error.get_or_insert(error);
        }
        if pending.left > 0 {
            return;
        }
        let (to_flush, disk) = (std::mem::take(&mut pending.to_flush) && pending.error.is_none(), pending.disk);
        match disk.filter(|_| to_flush) {
            // One piece more, behind those of the data.
            Some(disk) => {
                pending.left = 1;
                let user = (user >> PIECE_BITS << PIECE_BITS) | pending.chunks.len() as u64;
                self.pieces.push_back(Piece { user, disk, task: Task::Flush, offset: 0, buffer: None });
            }
            None => self.ended.push_back(user >> PIECE_BITS),
        }
    }

    /// The next command that `disk` is done with; `None` while there is none.
    pub(super) fn poll(&mut self, disk: usize, queue: &mut FileQueue) -> io::Result<Option<Finished>> {
        if self.commands.is_empty() {
            return Ok(None);
        }
        self.pump(disk, queue);
        while self.ended.is_empty()
            && let Some(done) = queue.poll()?
        {
            self.settle(done.user, done.buffer, done.result);
            // A flush may follow.
            self.pump(disk, queue);
        }
        Ok(self.ended.pop_front().and_then(|number| self.commands.remove(&number)).map(finished))
    }
}

fn finished(mut pending: Pending) -> Finished {
    let chunks = std::mem::take(&mut pending.chunks).into_iter().flatten().collect();
    let result = pending.error.take().map_or(Ok(()), Err);
    Finished { pending, chunks, result }
}

/// Chunks with a copy of `bytes`, which direct I/O takes from there; `None` while there are too few.
pub(super) fn copied(bytes: &[u8], pool: &mut Pool) -> Option<Vec<Buffer>> {
    let mut chunks = pool.take(bytes.len())?;
    let mut rest = bytes;
    for chunk in &mut chunks {
        let (part, more) = rest.split_at(rest.len().min(chunk.len()));
        chunk.as_mut_slice().copy_from_slice(part);
        rest = more;
    }
    Some(chunks)
}
