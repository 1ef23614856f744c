//! How a send queue rings: the modes of crate `uar`, and what ties them to a UAR page's life.

use std::sync::Arc;

use uar::{Arm, BlueFlame, CqDoorbell, Plain, SendDoorbell, Shared, UarPage, Wqebb};

use crate::error::Error;
use crate::objects::Uar;

/// A doorbell that a send queue can be made with: `queue_pair.send_queue::<BlueFlame>()`.
///
/// | mode | page | register | for |
/// | --- | --- | --- | --- |
/// | [`AnyDoorbell`] | any | 0 | programs that must run everywhere: one predicted branch a ring |
/// | [`Plain`] | mapped uncached (VFIO, the model) | 0 | owned functions |
/// | [`BlueFlame`] | mapped write-combining (DevX) | one of two, its own | lowest latency, at most two queues a page |
/// | [`Shared`]`<Plain>`, [`Shared`]`<BlueFlame>` | as above | 0, under a lock | queues of several threads on one page |
/// | [`Trapped`] | not mapped | 0 | nothing faster: each ring is a call of the access |
pub trait DoorbellMode: SendDoorbell + Sized {
    /// A doorbell of `uar`, which it keeps alive.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the page is not mapped, or its registers are taken.
    fn of(uar: &Arc<Uar>) -> Result<Leased<Self>, Error>;
}

/// A doorbell together with its UAR page, which stays mapped for as long as it can be rung.
#[derive(Debug)]
pub struct Leased<D> {
    /// Before the lease: it must not outlive the page.
    doorbell: D,
    _lease: Lease,
}

impl<D: SendDoorbell> Leased<D> {
    fn new(doorbell: D, uar: &Arc<Uar>, register: Option<usize>) -> Self {
        Leased { doorbell, _lease: Lease { register, uar: Arc::clone(uar) } }
    }

    #[inline(always)]
    pub(super) fn get(&mut self) -> &mut D {
        &mut self.doorbell
    }
}

/// Keeps a UAR page alive, and a register of it taken.
#[derive(Debug)]
struct Lease {
    register: Option<usize>,
    uar: Arc<Uar>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(register) = self.register {
            self.uar.give_register_back(register);
        }
    }
}

/// The registers of `uar`. What is made of them goes into a [`Leased`], or is dropped while `uar` is borrowed.
fn registers(uar: &Uar) -> Result<UarPage, Error> {
    let Some(mapping) = uar.mapping() else {
        let page = uar.index();
        let help = "use the Trapped doorbell, or AnyDoorbell";
        return Err(Error::Invalid(format!("UAR page {page:#x} is not mapped here: {help}")));
    };
    // SAFETY: the mapping is the page's registers, whole and aligned (`Uar::mapping` checks its length; a mapping starts at
    // a page). It lives as long as the `Uar`, an `Arc` of which is in every `Leased` beside the doorbell.
    Ok(unsafe { UarPage::new(mapping.address) })
}

/// Tells the card to look at the arm request that CQ `cqn` has put in its record.
pub(crate) fn arm_cq(uar: &Uar, cqn: u32, arm: Arm) -> Result<(), Error> {
    if uar.is_mapped() {
        CqDoorbell::new(registers(uar)?).arm(cqn, arm);
        return Ok(());
    }
    uar.write(CqDoorbell::OFFSET, arm.doorbell(cqn))
}

impl DoorbellMode for Plain {
    fn of(uar: &Arc<Uar>) -> Result<Leased<Self>, Error> {
        // Eight bytes in one PCIe write: queues may share the register, there is nothing in it to corrupt.
        Ok(Leased::new(Plain::new(registers(uar)?, 0), uar, None))
    }
}

impl DoorbellMode for BlueFlame {
    fn of(uar: &Arc<Uar>) -> Result<Leased<Self>, Error> {
        let page = registers(uar)?;
        let register = uar.take_register().ok_or_else(|| {
            let page = uar.index();
            Error::Invalid(format!(
                "both BlueFlame registers of UAR page {page:#x} are taken: allocate another Uar, or use Shared<BlueFlame>"
            ))
        })?;
        Ok(Leased::new(BlueFlame::new(page, register), uar, Some(register)))
    }
}

impl DoorbellMode for Shared<Plain> {
    fn of(uar: &Arc<Uar>) -> Result<Leased<Self>, Error> {
        Ok(Leased::new(uar.shared_plain(registers(uar)?), uar, None))
    }
}

impl DoorbellMode for Shared<BlueFlame> {
    fn of(uar: &Arc<Uar>) -> Result<Leased<Self>, Error> {
        let page = registers(uar)?;
        if uar.has_shared_blue_flame() {
            return Ok(Leased::new(uar.shared_blue_flame(page, 0), uar, None));
        }
        // The first to share takes a register, for as long as the page lives.
        let register = uar.take_register().ok_or_else(|| {
            let page = uar.index();
            Error::Invalid(format!("both BlueFlame registers of UAR page {page:#x} belong to queues of their own"))
        })?;
        Ok(Leased::new(uar.shared_blue_flame(page, register), uar, None))
    }
}

/// The doorbell of a page that cannot be mapped: each ring is a call of the access, such as a message to another process.
#[derive(Debug)]
pub struct Trapped(Arc<Uar>);

impl SendDoorbell for Trapped {
    // A call of the access: a call more is nothing, and queues that never make it should not carry its code.
    #[cold]
    #[inline(never)]
    fn ring(&mut self, control: u64) {
        if let Err(error) = self.0.write(Plain::offset(0), control) {
            // The card is gone; its completions will not come, and every wait for them says so.
            tracing::warn!(%error, "a doorbell was not delivered");
        }
    }
}

impl DoorbellMode for Trapped {
    fn of(uar: &Arc<Uar>) -> Result<Leased<Self>, Error> {
        Ok(Leased::new(Trapped(Arc::clone(uar)), uar, None))
    }
}

/// [`Plain`] where the page is mapped, [`Trapped`] where it is not.
#[derive(Debug)]
pub enum AnyDoorbell {
    /// Stores.
    Plain(Plain),
    /// Calls.
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
        let doorbell = match registers(uar) {
            Ok(page) => AnyDoorbell::Plain(Plain::new(page, 0)),
            Err(_) => AnyDoorbell::Trapped(Trapped(Arc::clone(uar))),
        };
        Ok(Leased::new(doorbell, uar, None))
    }
}
