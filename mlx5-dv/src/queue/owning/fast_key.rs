//! Fast registration of buffers: keys that a remote gets for one transfer.

use std::sync::Arc;

use mlx5_prm::wqe::SEGMENT;

use super::in_flight::{Done, RefusedReason, Ticket};
use super::key_life::KeyLife;
use crate::error::{Error, Invalid};
use crate::memory::{DataSegment, RemoteAddress};
use crate::objects::{AccessFlags, Buffer, MemoryRegion, Pd, UmrKey, UmrKeyOptions};
use crate::queue::error::PostError;
use crate::queue::send::umr::{Interleaved, KeyMemory, Registration, inline_octwords};

/// A key for fast registration, with the buffers that it exposes to a remote. A storage engine creates one per
/// concurrent request, and registers it for each I/O without a command.
///
/// Add buffers ([`push`](Self::push)), register them on a [`Connection`](crate::queue::Connection)
/// ([`Connection::register`](crate::queue::Connection::register)), and send the address to the remote. After the
/// transfer, invalidate the key ([`Connection::invalidate`](crate::queue::Connection::invalidate)), or let the remote
/// do so by a SEND with invalidate. Pass every [`Done`] that may concern the key to [`settle`](Self::settle). When the
/// key is free again, it returns the buffers. The next registration uses another variant of the key, so late accesses
/// of a remote are refused.
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
/// If it is dropped while registered, a command destroys the key before the buffers are free. Buffers keep their
/// regions registered, and the card checks each access against the regions' own keys, too.
#[derive(Debug)]
pub struct FastKey {
    /// First field: dropped before the memory, so the card cannot access that any more.
    key: UmrKey,
    life: KeyLife,
    parts: Vec<Buffer>,
    /// The parts as last posted. Never grows.
    segments: Vec<DataSegment>,
    turns: Vec<Interleaved>,
    /// Maximum number of parts in a WQE.
    most_inline: usize,
    /// Memory for lists that are too long for a WQE.
    list: Option<Arc<MemoryRegion>>,
}

impl FastKey {
    /// Creates a key of `pd` for parts.
    ///
    /// # Errors
    /// As for [`UmrKey::create`]; [`Error::Invalid`] for [pages](UmrKeyOptions::pages), which do not apply to buffers;
    /// [`Error::Memory`].
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
        Ok(FastKey { key, life: KeyLife::default(), parts, segments, turns, most_inline, list })
    }

    /// Creates `count` keys of `pd`. Errors: as for [`create`](Self::create).
    pub fn pool(pd: &Arc<Pd>, count: usize, options: UmrKeyOptions) -> Result<Vec<Self>, Error> {
        (0..count).map(|_| FastKey::create(pd, options)).collect()
    }

    /// The remote key of the present or the next registration.
    pub fn rkey(&self) -> u32 {
        self.key.key(self.life.variant())
    }

    /// Whether it is not registered: buffers can be added and removed.
    pub fn is_free(&self) -> bool {
        self.life.is_free()
    }

    /// Whether a work request on it failed, so that only the card knows the key's state: [`renew`](Self::renew) it, or
    /// drop it.
    pub fn is_lost(&self) -> bool {
        self.life.is_lost()
    }

    /// Adds `buffer`, with [`Buffer::len`] bytes, behind the present ones. Errors: the buffer, if the key is full, not
    /// free, or of another protection domain than the buffer's region; or if the buffer is
    /// [exclusive](Buffer::is_exclusive): a remote reaches what a key opens.
    pub fn push(&mut self, buffer: Buffer) -> Result<(), Buffer> {
        let is_full = self.parts.len() == self.key.options().entries as usize;
        if !self.is_free() || is_full || buffer.is_exclusive() || !buffer.pd().is_same(self.pd()) {
            return Err(buffer);
        }
        self.parts.push(buffer);
        Ok(())
    }

    /// Total length of all buffers in bytes.
    pub fn len(&self) -> usize {
        self.parts.iter().map(Buffer::len).sum()
    }

    /// Whether that is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes the buffers, in order; none while the key is not free.
    pub fn parts(&mut self) -> impl Iterator<Item = Buffer> + '_ {
        let count = if self.is_free() { self.parts.len() } else { 0 };
        self.parts.drain(..count)
    }

    /// Checks whether `done` completes a registration or an invalidation of this key, by this side or the remote, and
    /// returns that. After an invalidation the key is free. Pass only values from [`Connection`]; others may release
    /// buffers that the remote can still access.
    ///
    /// [`Connection`]: crate::queue::Connection
    pub fn settle(&mut self, done: &Done) -> bool {
        self.life.settle(done, self.rkey())
    }

    /// Destroys the key and creates another one in its place, which is free. Blocks, as commands do. No work request on
    /// the key may be in flight: its queue pair was reset or is in ERR.
    ///
    /// # Errors
    /// [`Error::Command`]; the key is unchanged then.
    pub fn renew(&mut self) -> Result<(), Error> {
        let fresh = UmrKey::create(self.key.pd(), *self.key.options())?;
        self.key.end()?;
        self.key = fresh;
        self.life.renewed();
        Ok(())
    }

    /// The protection domain.
    pub(super) fn pd(&self) -> &Arc<Pd> {
        self.key.pd()
    }

    /// Checks that `access` allows no writing in regions that do not.
    fn check_rights(&self, access: AccessFlags) -> Result<(), RefusedReason> {
        let writable = |part: &Buffer| part.access().contains(AccessFlags::LOCAL_WRITE);
        let is_allowed = !access.contains(AccessFlags::LOCAL_WRITE) || self.parts.iter().all(writable);
        if is_allowed { Ok(()) } else { Err(RefusedReason::RegionReadOnly) }
    }

    /// Registers the buffers by `post`, which gets the key and the registration.
    pub(super) fn register(
        &mut self,
        access: AccessFlags,
        post: impl FnOnce(&UmrKey, &Registration<'_>) -> Result<RemoteAddress, PostError>,
    ) -> Result<RemoteAddress, RefusedReason> {
        self.life.check_free()?;
        self.check_rights(access)?;
        self.segments.clear();
        self.segments.extend(self.parts.iter().map(Buffer::segment));
        let memory = match &self.list {
            Some(list) if self.segments.len() > self.most_inline => listed(list, &self.segments),
            _ => KeyMemory::Parts(&self.segments),
        };
        let registration = Registration { variant: self.life.next_variant(), access, start: 0, memory };
        Ok(post(&self.key, &registration)?)
    }

    /// As [`register`](Self::register), for interleaved parts: `turns` times `(bytes, stride)` of each.
    pub(super) fn register_interleaved(
        &mut self,
        access: AccessFlags,
        turns: u32,
        pieces: &[(u16, u16)],
        post: impl FnOnce(&UmrKey, &Registration<'_>) -> Result<RemoteAddress, PostError>,
    ) -> Result<RemoteAddress, RefusedReason> {
        self.life.check_free()?;
        self.check_rights(access)?;
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
        let registration = Registration { variant: self.life.next_variant(), access, start: 0, memory };
        Ok(post(&self.key, &registration)?)
    }

    /// A work request registers it; `ticket` on queue pair `qpn` completes it.
    pub(super) fn registering(&mut self, qpn: u32, ticket: Ticket) {
        self.life.registering(qpn, ticket);
    }

    /// The key to invalidate.
    pub(super) fn to_invalidate(&self) -> Result<u32, RefusedReason> {
        self.life.check_registered()?;
        Ok(self.rkey())
    }

    /// A work request invalidates it.
    pub(super) fn invalidating(&mut self, qpn: u32, ticket: Ticket) {
        self.life.invalidating(qpn, ticket);
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
        // Registered, or a registration is in flight: the remote may access the buffers until the key is destroyed.
        if let Err(error) = self.key.end()
            && !error.is_dead()
        {
            tracing::error!(%error, "a key for fast registration was not destroyed; its buffers are leaked");
            self.parts.drain(..).for_each(std::mem::forget);
            std::mem::forget(self.list.take());
        }
    }
}
