//! Memory windows that hold the region that they open.

use std::ops::Range;
use std::sync::Arc;

use mlx5_prm::ctx::Mkc;

use super::batch::{ConnectionBatch, alone};
use super::connection::Connection;
use super::in_flight::{Done, RefusedReason, Ticket};
use super::key_life::KeyLife;
use super::orphans::{Orphan, Orphans};
use crate::error::Error;
use crate::memory::RemoteAddress;
use crate::objects::{AccessFlags, MemoryRegion, MemoryWindow, Pd, WindowType};
use crate::queue::send::service::{Connected, KeyChanging};
use crate::queue::send::umr::{KeyMemory, Registration};

/// What a window opens: bytes of a region, and what a remote may do with them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// Bytes of the region: at least one, at most 2 GiB.
    pub range: Range<usize>,
    /// Rights of the remote; LOCAL_WRITE belongs to the region and is not looked at.
    pub access: AccessFlags,
    /// Whether the remote's addresses count from 0, not from the region's own.
    pub zero_based: bool,
}

impl Binding {
    /// A window to the bytes `range`, at the addresses that they have in the region.
    pub fn new(range: Range<usize>, access: AccessFlags) -> Self {
        Binding { range, access, zero_based: false }
    }

    /// Sets [`zero_based`](Self::zero_based).
    pub fn zero_based(mut self) -> Self {
        self.zero_based = true;
        self
    }

    /// LOCAL_WRITE where the remote may write, else nothing.
    fn local_write(&self) -> AccessFlags {
        let remote_writes = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
        if self.access.intersects(remote_writes) { AccessFlags::LOCAL_WRITE } else { AccessFlags::empty() }
    }
}

/// A memory window, with the region that it opens to a remote.
///
/// Bind it on a [`Connection`] ([`Connection::bind`]) or on one of a [`Hub`](crate::queue::Hub)
/// ([`ConnectionBatch::bind`]), and send the address to the remote. Unbind it ([`Connection::unbind`]), or let the
/// remote invalidate one of type 2 by a SEND with invalidate. Pass every [`Done`] that may concern the window to
/// [`settle`](Self::settle). Each binding has another key, so late accesses of a remote are refused.
///
/// In contrast to a [`FastKey`](crate::queue::FastKey) it takes no buffers: the region's bytes can be read, written and
/// opened by other windows meanwhile. Each region that it was bound to stays registered until the window is
/// [renewed](Self::renew) or dropped: [`MemoryRegion::destroy`] refuses until then.
///
/// ```no_run
/// # use std::time::Duration;
/// # use mlx5_dv::objects::{AccessFlags, MemoryRegion, Pd, WindowType};
/// # use mlx5_dv::queue::{Binding, Connection, FastWindow};
/// # fn f(pd: &std::sync::Arc<Pd>, connection: &mut Connection) -> Result<(), Box<dyn std::error::Error>> {
/// let region = MemoryRegion::allocate(pd, 1 << 20, AccessFlags::LOCAL_WRITE)?;
/// let mut window = FastWindow::alloc(pd, WindowType::Two)?;
/// let (_, remote) = connection.bind(&mut window, &region, Binding::new(4096..8192, AccessFlags::REMOTE_WRITE))?;
/// connection.send_inline(&[remote.addr.to_be_bytes(), u64::from(remote.rkey).to_be_bytes()].concat())?;
/// // The remote writes, and says so. Then:
/// connection.unbind(&mut window)?;
/// while !window.is_free() {
///     window.settle(&connection.wait(Duration::from_secs(1))?);
/// }
/// # Ok(())
/// # }
/// ```
///
/// If it is dropped while bound, a command destroys the window before the region is let go. If a work request on it may
/// be in flight then, by the completions that its connection itself has polled, that keeps both until it is reset or
/// dropped.
#[derive(Debug)]
pub struct FastWindow {
    /// First field: dropped before the memory, so the card cannot access that any more.
    window: MemoryWindow,
    life: KeyLife,
    /// The queue pair that bound it last.
    qpn: u32,
    /// The regions that it was bound to, the last one behind. That a window is free is known from completions, which a
    /// program may have changed; and another region may get the number of one that is gone.
    exposed: Vec<Arc<MemoryRegion>>,
}

impl FastWindow {
    /// Creates a window of `pd`, bound to nothing. Errors: as for [`MemoryWindow::alloc`].
    pub fn alloc(pd: &Arc<Pd>, kind: WindowType) -> Result<Self, Error> {
        let window = MemoryWindow::alloc(pd, kind)?;
        Ok(FastWindow { window, life: KeyLife::default(), qpn: 0, exposed: Vec::new() })
    }

    /// Its type.
    pub fn kind(&self) -> WindowType {
        self.window.kind()
    }

    /// The remote key of the present or the last binding.
    pub fn rkey(&self) -> u32 {
        self.window.key(self.life.variant())
    }

    /// Asks the card for its context: see [`MemoryWindow::query`], also for errors. The card knows a binding that has
    /// completed.
    pub fn query(&self) -> Result<Mkc, Error> {
        self.window.query()
    }

    /// Whether it is bound to nothing, and no work request on it is in flight.
    pub fn is_free(&self) -> bool {
        self.life.is_free()
    }

    /// Whether it is bound, and no work request on it is in flight.
    pub fn is_bound(&self) -> bool {
        self.life.is_registered()
    }

    /// Whether a work request on it failed, so that only the card knows its state: [`renew`](Self::renew) it, or drop
    /// it.
    pub fn is_lost(&self) -> bool {
        self.life.is_lost()
    }

    /// The region that it opens, or is about to; `None` while it is free.
    pub fn region(&self) -> Option<&Arc<MemoryRegion>> {
        self.exposed.last().filter(|_| !self.is_free())
    }

    /// Checks whether `done` completes a work request on this window, or an invalidation by the remote, and returns
    /// that. Pass only values from [`Connection`]; by others the window seems free while the remote can still access
    /// the region.
    pub fn settle(&mut self, done: &Done) -> bool {
        self.life.settle(done, self.rkey())
    }

    /// Destroys the window and creates another one in its place, which is free. Blocks, as commands do. If a work
    /// request on the window may be in flight, or failed, its connection keeps it until it is reset or dropped.
    ///
    /// # Errors
    /// [`Error::Command`]; the window is unchanged then.
    pub fn renew(&mut self) -> Result<(), Error> {
        let fresh = MemoryWindow::alloc(self.window.pd(), self.kind())?;
        if self.life.is_in_flight() {
            self.hand_over();
        } else {
            self.window.end()?;
            self.exposed.clear();
        }
        self.window = fresh;
        self.life.renewed();
        Ok(())
    }

    /// Hands the window, and what it opens, over to its queue pair.
    fn hand_over(&mut self) {
        let regions = std::mem::take(&mut self.exposed);
        self.life.end(Orphan::new(self.window.take_key(), regions));
    }

    fn check_bindable(&self) -> Result<(), RefusedReason> {
        let is_bindable = self.is_free() || self.is_bound() && self.kind() == WindowType::One;
        if is_bindable { Ok(()) } else { Err(RefusedReason::WindowInUse) }
    }

    fn check_region(&self, region: &MemoryRegion, binding: &Binding) -> Result<(), RefusedReason> {
        if !region.pd().is_same(self.window.pd()) {
            return Err(RefusedReason::ForeignRegion);
        }
        if binding.range.start > binding.range.end || binding.range.end > region.len() {
            return Err(RefusedReason::WindowOutside);
        }
        if !region.access().contains(binding.local_write()) {
            return Err(RefusedReason::RegionReadOnly);
        }
        Ok(())
    }

    /// A work request binds it to `region`; `ticket` on queue pair `qpn` completes it.
    fn binding(&mut self, qpn: u32, ticket: Ticket, queue: &Arc<Orphans>, region: &Arc<MemoryRegion>) {
        self.life.registering(qpn, ticket, queue);
        self.qpn = qpn;
        self.exposed.retain(|known| !Arc::ptr_eq(known, region));
        self.exposed.push(Arc::clone(region));
    }
}

impl Drop for FastWindow {
    fn drop(&mut self) {
        self.hand_over();
    }
}

impl<S: KeyChanging> ConnectionBatch<'_, S> {
    /// BIND_MW, never quiet: binds `window` to bytes of `region`. Returns where the first byte is for the remote; the
    /// next message may tell it. [`FastWindow::settle`] takes the completion.
    ///
    /// A window of type 1 may be bound already: then its old key is refused from the completion on. One of type 2 is
    /// this connection's alone.
    ///
    /// # Errors
    /// [`RefusedReason`]; the window is as it was.
    pub fn bind(
        &mut self,
        window: &mut FastWindow,
        region: &Arc<MemoryRegion>,
        binding: Binding,
    ) -> Result<(Ticket, RemoteAddress), RefusedReason> {
        self.check_pd(window.window.pd())?;
        window.check_bindable()?;
        window.check_region(region, &binding)?;
        let access = binding.access.difference(AccessFlags::LOCAL_WRITE).union(binding.local_write());
        let segment = region.segment(binding.range);
        let registration = Registration {
            variant: window.life.next_variant(),
            access,
            start: if binding.zero_based { 0 } else { segment.addr },
            memory: KeyMemory::Parts(&[segment]),
        };
        let posted = self.post_of_key(|sends, wr_id, flags| {
            // SAFETY: `FastWindow` keeps the region until the window is destroyed, or hands both to the orphans; nobody
            // has a reference to a region's memory.
            Ok(unsafe { sends.bind_window(wr_id, flags, &window.window, &registration) }?)
        })?;
        window.binding(self.qpn(), posted.0, self.orphans(), region);
        Ok(posted)
    }

    /// Unbinds `window`, never quiet. Once [`FastWindow::settle`] was shown the completion, it is free.
    ///
    /// # Errors
    /// [`RefusedReason`]; the window is as it was.
    pub fn unbind(&mut self, window: &mut FastWindow) -> Result<Ticket, RefusedReason> {
        self.check_pd(window.window.pd())?;
        window.life.check_registered(self.orphans())?;
        if window.kind() == WindowType::Two && window.qpn != self.qpn() {
            return Err(RefusedReason::WindowElsewhere);
        }
        let variant = window.life.variant();
        let (ticket, ()) =
            self.post_of_key(|sends, wr_id, flags| Ok(sends.unbind_window(wr_id, flags, &window.window, variant)?))?;
        window.life.invalidating(self.qpn(), ticket, self.orphans());
        Ok(ticket)
    }
}

impl<S: Connected> Connection<S> {
    /// As [`ConnectionBatch::bind`], with a doorbell of its own.
    ///
    /// # Errors
    /// As there.
    pub fn bind(
        &mut self,
        window: &mut FastWindow,
        region: &Arc<MemoryRegion>,
        binding: Binding,
    ) -> Result<(Ticket, RemoteAddress), RefusedReason> {
        alone!(self.batch(), bind(window, region, binding))
    }

    /// As [`ConnectionBatch::unbind`], with a doorbell of its own.
    ///
    /// # Errors
    /// As there.
    pub fn unbind(&mut self, window: &mut FastWindow) -> Result<Ticket, RefusedReason> {
        alone!(self.batch(), unbind(window))
    }
}
