//! Doorbell modes of crate `uar`, tied to the lifetime of a UAR page.

use std::sync::Arc;

use uar::mmio::BLUE_FLAME_REGISTER;
use uar::{Arm, BlueFlame, CqDoorbell, Plain, SendDoorbell, Shared, UarPage, Wqebb};

use super::uar::{PLAIN_REGISTER, Uar};
use crate::caps::Caps;
use crate::error::{Error, Invalid, MappingKind};

/// A doorbell mode of a send queue: `queue_pair.send_queue::<BlueFlame>()`.
///
/// | mode | page | register | for |
/// | --- | --- | --- | --- |
/// | [`AnyDoorbell`] | uncached or not mapped | 0 | programs that must run everywhere: one predicted branch per ring |
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

/// Log of the size of a BlueFlame register in crate `uar`.
const LOG_BLUE_FLAME_REGISTER: u8 = BLUE_FLAME_REGISTER.trailing_zeros() as u8;

/// `Ok` if the card has BlueFlame registers of the size that crate `uar` supports.
fn blue_flame_is_there(caps: &Caps) -> Result<(), Error> {
    let refused = |what: String, capability| Err(Error::Unsupported { what, capability });
    match (caps.bf, caps.log_bf_reg_size) {
        (false, _) => refused("BlueFlame; use the Plain doorbell, or AnyDoorbell".into(), "bf"),
        (true, LOG_BLUE_FLAME_REGISTER) => Ok(()),
        (true, other) => refused(
            format!("BlueFlame registers of 512 bytes, these have 2^{other}; use the Plain doorbell, or AnyDoorbell"),
            "log_bf_reg_size",
        ),
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
        ring_by_access(&self.0, control);
    }
}

/// Rings by a call of the access. Not inlined: the call is slow anyway, and other modes should not carry its code. It
/// takes no reference to the queue, which would force the queue to reload its fields after each store.
#[cold]
#[inline(never)]
fn ring_by_access(uar: &Uar, control: u64) {
    if let Err(error) = uar.write(Plain::offset(PLAIN_REGISTER), control) {
        // The card is dead: completions will not arrive, and every wait for them returns the error.
        tracing::warn!(%error, "a doorbell was not delivered");
    }
}

impl DoorbellMode for Trapped {
    fn of(uar: &Arc<Uar>) -> Result<Leased<Self>, Error> {
        Ok(Leased::new(Trapped(Arc::clone(uar)), uar))
    }
}

/// [`Plain`] if the page is mapped, [`Trapped`] if not.
#[derive(Debug)]
pub enum AnyDoorbell {
    /// Mapped: rings by a store.
    Plain(Plain),
    /// Not mapped: rings by a call.
    Trapped(Trapped),
}

impl SendDoorbell for AnyDoorbell {
    #[inline(always)]
    fn ring(&mut self, control: u64) {
        match self {
            AnyDoorbell::Plain(doorbell) => doorbell.ring(control),
            AnyDoorbell::Trapped(doorbell) => doorbell.ring(control),
        }
    }

    #[inline(always)]
    fn ring_with(&mut self, control: u64, _: &[Wqebb]) {
        self.ring(control);
    }
}

impl DoorbellMode for AnyDoorbell {
    fn of(uar: &Arc<Uar>) -> Result<Leased<Self>, Error> {
        let doorbell = match uar.is_mapped() {
            true => AnyDoorbell::Plain(Plain::new(plain_registers(uar)?, PLAIN_REGISTER)),
            false => AnyDoorbell::Trapped(Trapped(Arc::clone(uar))),
        };
        Ok(Leased::new(doorbell, uar))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blue_flame_is_refused_where_the_card_has_none_or_another() {
        let caps = |bf, log_bf_reg_size| Caps { bf, log_bf_reg_size, ..Caps::default() };
        assert!(blue_flame_is_there(&caps(true, 9)).is_ok());
        for (caps, named) in [(caps(false, 9), "capability bf"), (caps(true, 8), "log_bf_reg_size")] {
            let text = blue_flame_is_there(&caps).unwrap_err().to_string();
            assert!(text.contains(named) && text.contains("AnyDoorbell"), "{text}");
        }
    }
}
