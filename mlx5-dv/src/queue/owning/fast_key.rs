//! Fast registration of buffers: keys that are given to a remote for one transfer, and taken back.

use std::sync::Arc;

use mlx5_prm::wqe::SEGMENT;

use super::in_flight::{Done, RefusedReason, Ticket};
use crate::error::{Error, Invalid};
use crate::memory::{DataSegment, RemoteAddress};
use crate::objects::{AccessFlags, Buffer, MemoryRegion, Pd, UmrKey, UmrKeyOptions};
use crate::queue::completion::decode::{Completion, work_of};
use crate::queue::error::PostError;
use crate::queue::send::umr::{Interleaved, KeyMemory, Registration, inline_octwords};

/// Whose word is waited for: a work request of a queue pair.
type Awaited = (u32, Ticket);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    Registering(Awaited),
    Registered,
    Invalidating(Awaited),
    Unknown,
}

/// A key for fast registration, and the buffers that it opens to a remote: what a storage engine makes once for each
/// request that it may have under way, and registers anew for each I/O, without a command.
///
/// Put buffers in ([`push`](Self::push)), let a [`Connection`](crate::queue::Connection) register them
/// ([`Connection::register`](crate::queue::Connection::register)), and tell the remote the address. Once the transfer
/// is over, invalidate the key ([`Connection::invalidate`](crate::queue::Connection::invalidate)), or let the remote do
/// so by a SEND with invalidate. Show the key each [`Done`] that may be its own ([`settle`](Self::settle)): when it is
/// free again, it gives the buffers back, and the next registration uses another variant of the key, so that a remote
/// which comes late is refused.
///
/// ```no_run
/// # use std::time::Duration;
/// # use mlx5_dv::objects::{AccessFlags, MemoryRegion, Pd, UmrKeyOptions};
/// # use mlx5_dv::queue::{Connection, FastKey};
/// # fn f(pd: &std::sync::Arc<Pd>, connection: &mut Connection, region: &std::sync::Arc<MemoryRegion>)
/// # -> Result<(), Box<dyn std::error::Error>> {
/// let mut pool = FastKey::pool(pd, 32, UmrKeyOptions::default().entries(8))?;
/// let mut key = pool.pop().ok_or("all keys are in use")?;
/// for range in [0..4096, 65536..69632] {
///     key.push(region.buffer(range)?).map_err(|_| "the key has no room")?;
/// }
/// let (_, remote) = connection.register(&mut key, AccessFlags::REMOTE_READ)?;
/// connection.send_inline(&[remote.addr.to_be_bytes(), u64::from(remote.rkey).to_be_bytes()].concat())?;
/// // The remote reads. Then:
/// while !key.is_free() {
///     let done = connection.wait(Duration::from_secs(1))?;
///     if !key.settle(&done) {
///         // A work request's, or a message's, that has nothing to do with the key.
///     }
/// }
/// key.parts().for_each(drop);
/// pool.push(key);
/// # Ok(())
/// # }
/// ```
///
/// Dropped while it is registered, the key is destroyed by a command before the buffers are free. Buffers keep their
/// regions registered, and the card checks each access by the regions' own keys, too.
#[derive(Debug)]
pub struct FastKey {
    /// First of all: without it the card cannot reach the memory.
    key: UmrKey,
    state: State,
    variant: u8,
    parts: Vec<Buffer>,
    /// The parts as they were posted last. Never grows.
    segments: Vec<DataSegment>,
    turns: Vec<Interleaved>,
    /// Parts that a WQE holds.
    most_inline: usize,
    /// Where lists lie that are too long for a WQE.
    list: Option<Arc<MemoryRegion>>,
}

impl FastKey {
    /// A key of `pd`, of parts.
    ///
    /// # Errors
    /// As for [`UmrKey::create`]; [`Error::Invalid`] for [pages](UmrKeyOptions::pages), which buffers are not
    /// registered by; [`Error::Memory`].
    pub fn create(pd: &Arc<Pd>, options: UmrKeyOptions) -> Result<Self, Error> {
        if options.layout != UmrKeyOptions::default().layout {
            let (what, given) = ("layout of a FastKey", format!("{:?}", options.layout));
            let mend = Some("use KeyLayout::Parts, or UmrKey with SendBatch::register");
            return Err(Invalid::NotA { what, given, mend }.into());
        }
        let key = UmrKey::create(pd, options)?;
        let entries = options.entries as usize;
        let most_inline = inline_octwords(pd.device().caps());
        let list = if entries > most_inline {
            let bytes = (entries * SEGMENT).next_multiple_of(64);
            Some(MemoryRegion::allocate(pd, bytes, AccessFlags::empty())?)
        } else {
            None
        };
        let (parts, segments, turns) =
            (Vec::with_capacity(entries), Vec::with_capacity(entries), Vec::with_capacity(entries));
        Ok(FastKey { key, state: State::Free, variant: 0, parts, segments, turns, most_inline, list })
    }

    /// `count` keys of `pd`. Errors: as for [`create`](Self::create).
    pub fn pool(pd: &Arc<Pd>, count: usize, options: UmrKeyOptions) -> Result<Vec<Self>, Error> {
        (0..count).map(|_| FastKey::create(pd, options)).collect()
    }

    /// The key, as a remote was told it, or will be.
    pub fn rkey(&self) -> u32 {
        self.key.key(self.variant)
    }

    /// Whether nobody can use it: buffers can be put in and taken out.
    pub fn is_free(&self) -> bool {
        self.state == State::Free
    }

    /// Whether a work request on it failed, and the card alone knows what became of it: [`renew`](Self::renew) it, or
    /// drop it.
    pub fn is_lost(&self) -> bool {
        self.state == State::Unknown
    }

    /// Puts `buffer` behind those that are in: its bytes follow theirs. [`Buffer::len`] says how
    /// many. Errors: the buffer, where the key is full, not free, or of another protection domain than the buffer's
    /// region.
    pub fn push(&mut self, buffer: Buffer) -> Result<(), Buffer> {
        let is_full = self.parts.len() == self.key.options().entries as usize;
        if !self.is_free() || is_full || !Arc::ptr_eq(buffer.region().pd(), self.pd()) {
            return Err(buffer);
        }
        self.parts.push(buffer);
        Ok(())
    }

    /// Bytes of all buffers together.
    pub fn len(&self) -> usize {
        self.parts.iter().map(Buffer::len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the buffers out, in their order: none while the key is not free.
    pub fn parts(&mut self) -> impl Iterator<Item = Buffer> + '_ {
        let count = if self.is_free() { self.parts.len() } else { 0 };
        self.parts.drain(..count)
    }

    /// Looks whether `done` is about this key: whether it was registered or invalidated, by this side or the remote.
    /// Says whether it was; the key is free once it was invalidated. It goes with what [`Connection`] hands out; other
    /// values can make it give buffers back that the remote can still reach.
    ///
    /// [`Connection`]: crate::queue::Connection
    pub fn settle(&mut self, done: &Done) -> bool {
        let awaited = (work_of(&done.result).qpn, done.ticket);
        let went_well = done.result.is_ok();
        self.state = match self.state {
            State::Registering(this) if this == awaited && went_well => State::Registered,
            State::Invalidating(this) if this == awaited && went_well => State::Free,
            State::Registering(this) | State::Invalidating(this) if this == awaited => State::Unknown,
            State::Registering(_) | State::Registered if self.was_invalidated(done) => State::Free,
            _ => return false,
        };
        true
    }

    fn was_invalidated(&self, done: &Done) -> bool {
        done.result.as_ref().ok().and_then(Completion::invalidated) == Some(self.rkey())
    }

    /// Destroys the card's key and creates another in its place: free again, whatever became of it. Blocks, as commands
    /// do. No work request on the key may be under way any more: its queue pair was reset or is in ERR.
    ///
    /// # Errors
    /// [`Error::Command`]; the key is as it was.
    pub fn renew(&mut self) -> Result<(), Error> {
        let fresh = UmrKey::create(self.key.pd(), *self.key.options())?;
        self.key.end()?;
        self.key = fresh;
        self.state = State::Free;
        Ok(())
    }

    /// The protection domain.
    pub(super) fn pd(&self) -> &Arc<Pd> {
        self.key.pd()
    }

    /// Registers what is in by `post`, which is told key and registration.
    pub(super) fn register(
        &mut self,
        access: AccessFlags,
        post: impl FnOnce(&UmrKey, &Registration<'_>) -> Result<RemoteAddress, PostError>,
    ) -> Result<RemoteAddress, RefusedReason> {
        self.check_free()?;
        self.segments.clear();
        self.segments.extend(self.parts.iter().map(Buffer::segment));
        let memory = match &self.list {
            Some(list) if self.segments.len() > self.most_inline => listed(list, &self.segments),
            _ => KeyMemory::Parts(&self.segments),
        };
        let registration = Registration { variant: self.variant.wrapping_add(1), access, start: 0, memory };
        Ok(post(&self.key, &registration)?)
    }

    /// As [`register`](Self::register), of parts that take turns: `turns` times `(bytes, stride)` of each.
    pub(super) fn register_interleaved(
        &mut self,
        access: AccessFlags,
        turns: u32,
        pieces: &[(u16, u16)],
        post: impl FnOnce(&UmrKey, &Registration<'_>) -> Result<RemoteAddress, PostError>,
    ) -> Result<RemoteAddress, RefusedReason> {
        self.check_free()?;
        let reach =
            |(bytes, stride): (u16, u16)| u64::from(turns.saturating_sub(1)) * u64::from(stride) + u64::from(bytes);
        let fits = |(part, piece): (&Buffer, &(u16, u16))| reach(*piece) <= part.len() as u64;
        if pieces.len() != self.parts.len() || !self.parts.iter().zip(pieces).all(fits) {
            return Err(RefusedReason::PiecesOutside);
        }
        self.turns.clear();
        self.turns.extend(self.parts.iter().zip(pieces).map(|(part, &(bytes, stride))| {
            let DataSegment { addr, lkey, .. } = part.segment();
            Interleaved { addr, lkey, bytes, stride }
        }));
        let memory = KeyMemory::Interleaved { turns, parts: &self.turns };
        let registration = Registration { variant: self.variant.wrapping_add(1), access, start: 0, memory };
        Ok(post(&self.key, &registration)?)
    }

    fn check_free(&self) -> Result<(), RefusedReason> {
        if self.is_free() { Ok(()) } else { Err(RefusedReason::KeyInUse) }
    }

    /// A work request registers it, which `ticket` on queue pair `qpn` tells of.
    pub(super) fn registering(&mut self, qpn: u32, ticket: Ticket) {
        self.variant = self.variant.wrapping_add(1);
        self.state = State::Registering((qpn, ticket));
    }

    /// The key to invalidate.
    pub(super) fn to_invalidate(&self) -> Result<u32, RefusedReason> {
        match self.state {
            State::Registering(_) | State::Registered => Ok(self.rkey()),
            _ => Err(RefusedReason::KeyNotRegistered),
        }
    }

    /// A work request invalidates it.
    pub(super) fn invalidating(&mut self, qpn: u32, ticket: Ticket) {
        self.state = State::Invalidating((qpn, ticket));
    }
}

/// Writes the list of `segments` to `list`, padded with zeros.
fn listed<'a>(list: &MemoryRegion, segments: &[DataSegment]) -> KeyMemory<'a> {
    let mut len = 0;
    for (i, segment) in segments.iter().enumerate() {
        list.write(i * SEGMENT, &segment.len.to_be_bytes());
        list.write(i * SEGMENT + 4, &segment.lkey.to_be_bytes());
        list.write(i * SEGMENT + 8, &segment.addr.to_be_bytes());
        len += u64::from(segment.len);
    }
    let end = segments.len() * SEGMENT;
    list.fill(end, end.next_multiple_of(64) - end, 0);
    KeyMemory::ListedParts { list: list.segment(0..end), len }
}

impl Drop for FastKey {
    fn drop(&mut self) {
        if self.is_free() {
            return;
        }
        // Registered, or under way: the remote may reach the buffers until the key is gone.
        if let Err(error) = self.key.end()
            && !error.is_dead()
        {
            tracing::error!(%error, "a key for fast registration was not destroyed; its buffers are leaked");
            self.parts.drain(..).for_each(std::mem::forget);
            std::mem::forget(self.list.take());
        }
    }
}
