//! Doorbell modes of crate `uar`, tied to the lifetime of a UAR page.

use std::sync::Arc;

use uar::{Arm, BlueFlame, CqDoorbell, Plain, SendDoorbell, Shared, UarPage, Wqebb};

use super::uar::{Copies, PLAIN_REGISTER, Uar, blue_flame_is_there};
use crate::error::{Error, Invalid, MappingKind};

/// A doorbell mode of a send queue: `queue_pair.send_queue::<BlueFlame>()`.
///
/// | mode | page | register | for |
/// | --- | --- | --- | --- |
/// | [`AnyDoorbell`] | any | 0, or as [`BlueFlame`] | programs that must run everywhere: one predicted branch per ring |
/// | [`Plain`] | mapped uncached (VFIO, DevX, the model) | 0 | any number of queues |
/// | [`BlueFlame`] | mapped write combining ([`Uar::alloc_write_combining`], on DevX), or uncached | 1, exclusively | lowest latency, one queue per page |
/// | [`Shared`]`<Plain>` | as [`Plain`] | 0, under a lock | queues of several threads on one page |
/// | [`Shared`]`<BlueFlame>` | as [`BlueFlame`] | 1, under a lock | queues of several threads on one page |
/// | [`Trapped`] | not mapped | 0 | pages that cannot be mapped: each ring is a call of the access |
///
/// Queues of different modes may share a page. Register 0 only ever receives 8-byte stores, which cannot be torn. WQEs
/// are copied only to register 1, by one queue at a time.
pub trait DoorbellMode: SendDoorbell + Sized {
    /// Creates a doorbell on `uar`, and keeps that alive.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the page is not mapped, or its BlueFlame register is in use; [`Error::Unsupported`] if the
    /// card has no BlueFlame, or one of another size.
    fn of(uar: &Arc<Uar>) -> Result<Leased<Self>, Error>;
}

/// A doorbell and its UAR page, which stays mapped as long as the doorbell exists.
#[derive(Debug)]
pub struct Leased<D> {
    /// Before the lease, so that it is dropped first: it must not outlive the page.
    doorbell: D,
    _lease: Lease,
}

impl<D: SendDoorbell> Leased<D> {
    fn new(doorbell: D, uar: &Arc<Uar>) -> Self {
        Leased { doorbell, _lease: Lease { blue_flame: false, uar: Arc::clone(uar) } }
    }

    /// As [`new`](Self::new), for a doorbell with exclusive use of the BlueFlame register.
    fn exclusive(doorbell: D, uar: &Arc<Uar>) -> Self {
        Leased { doorbell, _lease: Lease { blue_flame: true, uar: Arc::clone(uar) } }
    }

    #[inline(always)]
    pub(crate) fn get(&mut self) -> &mut D {
        &mut self.doorbell
    }
}

/// Keeps a UAR page alive and its BlueFlame register reserved.
#[derive(Debug)]
struct Lease {
    /// Whether drop releases the BlueFlame register.
    blue_flame: bool,
    uar: Arc<Uar>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.blue_flame {
            self.uar.give_blue_flame_back();
        }
    }
}

/// The registers of `uar`. Objects made from them must go into a [`Leased`], or be dropped while `uar` is borrowed.
fn registers(uar: &Uar) -> Result<UarPage, Error> {
    let Some(mapping) = uar.mapping() else {
        let (page, mend) = (uar.index(), "use the Trapped doorbell, or AnyDoorbell");
        return Err(Invalid::UarMapping { page, mapping: MappingKind::Unmapped, mend }.into());
    };
    // SAFETY: the mapping covers the page's registers and is aligned (`Uar::mapping` checks its length; a mapping
    // starts at a page). It lives as long as the `Uar`; each `Leased` holds an `Arc` of it beside the doorbell.
    Ok(unsafe { UarPage::new(mapping.address()) })
}

/// The registers of `uar`, if stores to them need no barrier afterwards.
fn plain_registers(uar: &Uar) -> Result<UarPage, Error> {
    if uar.is_write_combining() {
        let (page, mend) = (uar.index(), "use BlueFlame, or a page of Uar::alloc");
        return Err(Invalid::UarMapping { page, mapping: MappingKind::WriteCombining, mend }.into());
    }
    registers(uar)
}

/// The error that `by` uses the BlueFlame register of `uar`.
fn blue_flame_taken(uar: &Uar, by: &str, mend: &'static str) -> Error {
    let what = format!("the BlueFlame register of UAR page {:#x}", uar.index());
    Invalid::Taken { what, by: by.into(), mend }.into()
}

/// Notifies the card of the arm request in the doorbell record of CQ `cqn`.
pub(crate) fn arm_cq(uar: &Uar, cqn: u32, arm: Arm) -> Result<(), Error> {
    if uar.is_mapped() {
        CqDoorbell::new(registers(uar)?).arm(cqn, arm);
        return Ok(());
    }
    uar.write(CqDoorbell::OFFSET, arm.doorbell(cqn))
}

impl DoorbellMode for Plain {
    fn of(uar: &Arc<Uar>) -> Result<Leased<Self>, Error> {
        // Eight bytes in one PCIe write. Queues may share the register, since it never receives anything longer.
        Ok(Leased::new(Plain::new(plain_registers(uar)?, PLAIN_REGISTER), uar))
    }
}

impl DoorbellMode for BlueFlame {
    fn of(uar: &Arc<Uar>) -> Result<Leased<Self>, Error> {
        blue_flame_is_there(uar.device().caps())?;
        let doorbell = uar.take_blue_flame(registers(uar)?);
        let doorbell = doorbell
            .ok_or_else(|| blue_flame_taken(uar, "another queue", "allocate another Uar, or use Shared<BlueFlame>"))?;
        Ok(Leased::exclusive(doorbell, uar))
    }
}

impl DoorbellMode for Shared<Plain> {
    fn of(uar: &Arc<Uar>) -> Result<Leased<Self>, Error> {
        Ok(Leased::new(uar.shared_plain(plain_registers(uar)?), uar))
    }
}

impl DoorbellMode for Shared<BlueFlame> {
    fn of(uar: &Arc<Uar>) -> Result<Leased<Self>, Error> {
        blue_flame_is_there(uar.device().caps())?;
        let doorbell = uar.shared_blue_flame(registers(uar)?);
        let doorbell =
            doorbell.ok_or_else(|| blue_flame_taken(uar, "a queue that does not share it", "allocate another Uar"))?;
        Ok(Leased::new(doorbell, uar))
    }
}

/// The doorbell of a page that cannot be mapped: each ring is a call of the access, for example a message to another
/// process.
#[derive(Debug)]
pub struct Trapped(Arc<Uar>);

impl SendDoorbell for Trapped {
    #[inline(always)]
    fn ring(&mut self, control: u64) {
        ring_by_access(&self.0, control.to_be());
    }
}

/// Rings by a call of the access. Not inlined: the call is slow anyway, and other modes should not carry its code. It
/// takes no reference to the queue, which would force the queue to reload its fields after each store. `control` is as
/// in memory: the caller has it so.
#[cold]
#[inline(never)]
fn ring_by_access(uar: &Uar, control: u64) {
    if let Err(error) = uar.write(Plain::offset(PLAIN_REGISTER), u64::from_be(control)) {
        // The card is dead: completions will not arrive, and every wait for them returns the error.
        tracing::warn!(%error, "a doorbell was not delivered");
    }
}

impl DoorbellMode for Trapped {
    fn of(uar: &Arc<Uar>) -> Result<Leased<Self>, Error> {
        Ok(Leased::new(Trapped(Arc::clone(uar)), uar))
    }
}

/// No doorbell: the queue's owner rings one of the same page for all its queues, which are on one thread.
#[derive(Debug)]
pub(crate) struct OfOwner;

impl SendDoorbell for OfOwner {
    /// Never called: the batches of such a queue have the owner's doorbell.
    fn ring(&mut self, _: u64) {}
}

impl DoorbellMode for OfOwner {
    fn of(uar: &Arc<Uar>) -> Result<Leased<Self>, Error> {
        Ok(Leased::new(OfOwner, uar))
    }
}

/// The best doorbell of a page: [`Trapped`] if it is not mapped, [`BlueFlame`] if it was allocated
/// [for one queue](Uar::alloc_for_one_queue) that copies, [`Shared`]`<BlueFlame>` if it was
/// [for several](Uar::alloc_for_queues), otherwise [`Plain`].
// With a tag of its own: in a niche of the doorbells, it would take five instructions to tell them apart.
#[derive(Debug)]
#[repr(u8)]
pub enum AnyDoorbell {
    /// Mapped: rings by a store.
    Plain(Plain),
    /// Mapped: copies what is rung for alone.
    BlueFlame(AnyBlueFlame),
    /// Not mapped: rings by a call.
    Trapped(Trapped),
}

/// A BlueFlame register, of one queue or of several. In a type of its own, so that [`AnyDoorbell`] need not tell them
/// apart where it does not copy.
// With a tag of its own: see there.
#[derive(Debug)]
#[repr(u8)]
pub enum AnyBlueFlame {
    /// Of one queue.
    Sole(BlueFlame),
    /// Of several, under a lock.
    Shared(Shared<BlueFlame>),
}

impl AnyBlueFlame {
    #[inline(always)]
    fn call_with(&mut self, control: u64, wqe: &[Wqebb]) {
        match self {
            AnyBlueFlame::Sole(doorbell) => doorbell.call_with(control, wqe),
            AnyBlueFlame::Shared(doorbell) => doorbell.call_with(control, wqe),
        }
    }

    /// As [`call_with`](Self::call_with), without a call where there is no lock.
    #[inline(always)]
    fn copy(&mut self, control: u64, wqe: &[Wqebb]) {
        match self {
            AnyBlueFlame::Sole(doorbell) => doorbell.ring_with(control, wqe),
            AnyBlueFlame::Shared(doorbell) => doorbell.call_with(control, wqe),
        }
    }
}

/// How a queue rings its doorbell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DoorbellKind {
    /// By a store of eight bytes; the card fetches the work requests.
    Plain,
    /// By a copy of a work request that is posted alone; of several, as [`Plain`](Self::Plain).
    BlueFlame,
    /// By a call of the access: the page is not mapped.
    Trapped,
}

impl Leased<AnyDoorbell> {
    /// Which it is.
    pub(crate) fn kind(&self) -> DoorbellKind {
        match self.doorbell {
            AnyDoorbell::Plain(_) => DoorbellKind::Plain,
            AnyDoorbell::BlueFlame(_) => DoorbellKind::BlueFlame,
            AnyDoorbell::Trapped(_) => DoorbellKind::Trapped,
        }
    }
}

impl SendDoorbell for AnyDoorbell {
    #[inline(always)]
    fn ring(&mut self, control: u64) {
        match self {
            AnyDoorbell::Plain(doorbell) => doorbell.ring(control),
            AnyDoorbell::BlueFlame(doorbell) => doorbell.call_with(control, &[]),
            AnyDoorbell::Trapped(doorbell) => doorbell.ring(control),
        }
    }

    #[inline(always)]
    fn ring_with(&mut self, control: u64, wqe: &[Wqebb]) {
        match self {
            AnyDoorbell::BlueFlame(doorbell) => doorbell.copy(control, wqe),
            _ => self.ring(control),
        }
    }

    #[inline(always)]
    fn ring_without(&mut self, control: u64) -> bool {
        match self {
            AnyDoorbell::Plain(doorbell) => doorbell.ring(control),
            AnyDoorbell::BlueFlame(_) => return false,
            AnyDoorbell::Trapped(doorbell) => doorbell.ring(control),
        }
        true
    }
}

impl DoorbellMode for AnyDoorbell {
    fn of(uar: &Arc<Uar>) -> Result<Leased<Self>, Error> {
        if !uar.is_mapped() {
            return Ok(Leased::new(AnyDoorbell::Trapped(Trapped(Arc::clone(uar))), uar));
        }
        match uar.copied() {
            Copies::None => Ok(Leased::new(AnyDoorbell::Plain(Plain::new(plain_registers(uar)?, PLAIN_REGISTER)), uar)),
            Copies::OfOneQueue => {
                let doorbell = uar.take_blue_flame(registers(uar)?);
                let doorbell = doorbell.ok_or_else(|| {
                    blue_flame_taken(uar, "another queue", "allocate another Uar, or one by alloc_for_queues")
                })?;
                Ok(Leased::exclusive(AnyDoorbell::BlueFlame(AnyBlueFlame::Sole(doorbell)), uar))
            }
            Copies::OfAll => {
                let Leased { doorbell, _lease } = Shared::<BlueFlame>::of(uar)?;
                Ok(Leased { doorbell: AnyDoorbell::BlueFlame(AnyBlueFlame::Shared(doorbell)), _lease })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::UnsafeCell;
    use std::ptr::NonNull;

    use super::*;

    #[repr(C, align(4096))]
    struct Page(UnsafeCell<[u64; 512]>);

    #[test]
    fn any_doorbell_copies_what_is_alone_and_rings_for_the_rest() {
        let page = Page(UnsafeCell::new([0; 512]));
        // SAFETY: 4096 bytes, aligned; they outlive the doorbell.
        let registers = unsafe { UarPage::new(NonNull::from(&page).cast()) };
        let mut doorbell = AnyDoorbell::BlueFlame(AnyBlueFlame::Sole(BlueFlame::new(registers, 1)));
        let blocks: [Wqebb; 2] = [[7; 8], [9; 8]];
        doorbell.ring_with(7, &blocks);
        // SAFETY: nobody stores to it now.
        let buffer = |second: usize| unsafe { &(&*page.0.get())[(0xa00 + 0x100 * second) / 8..][..16] };
        assert_eq!(buffer(0), blocks.as_flattened());
        doorbell.ring(5);
        assert_eq!((u64::from_be(buffer(1)[0]), &buffer(1)[1..]), (5, &[0; 15][..]));
    }
}
