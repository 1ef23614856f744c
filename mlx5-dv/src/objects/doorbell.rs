//! How a send queue rings: the modes of crate `uar`, and what ties them to a UAR page's life.

use std::sync::Arc;

use uar::{BlueFlame, Plain, SendDoorbell, Shared, Wqebb};

use super::Uar;
use crate::error::Error;

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
    /// A doorbell of `uar`, and what gives its register back.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the page is not mapped, or its registers are taken.
    fn of(uar: &Arc<Uar>) -> Result<(Self, RegisterLease), Error>;
}

/// Keeps a UAR page alive, and a register of it taken, for as long as a queue rings it.
#[derive(Debug)]
pub struct RegisterLease {
    register: Option<usize>,
    uar: Arc<Uar>,
}

impl RegisterLease {
    fn shared(uar: &Arc<Uar>) -> Self {
        RegisterLease { register: None, uar: Arc::clone(uar) }
    }
}

impl Drop for RegisterLease {
    fn drop(&mut self) {
        if let Some(register) = self.register {
            self.uar.give_register_back(register);
        }
    }
}

fn mapped(uar: &Uar) -> Result<uar::UarPage, Error> {
    uar.page().ok_or_else(|| {
        let page = uar.index();
        Error::Invalid(format!("UAR page {page:#x} is not mapped here: use the Trapped doorbell, or AnyDoorbell"))
    })
}

impl DoorbellMode for Plain {
    fn of(uar: &Arc<Uar>) -> Result<(Self, RegisterLease), Error> {
        // Eight bytes in one PCIe write: queues may share the register, there is nothing in it to corrupt.
        Ok((Plain::new(mapped(uar)?, 0), RegisterLease::shared(uar)))
    }
}

impl DoorbellMode for BlueFlame {
    fn of(uar: &Arc<Uar>) -> Result<(Self, RegisterLease), Error> {
        let page = mapped(uar)?;
        let register = uar.take_register().ok_or_else(|| {
            let page = uar.index();
            Error::Invalid(format!(
                "both BlueFlame registers of UAR page {page:#x} are taken: allocate another Uar, or use Shared<BlueFlame>"
            ))
        })?;
        let lease = RegisterLease { register: Some(register), uar: Arc::clone(uar) };
        Ok((BlueFlame::new(page, register), lease))
    }
}

impl DoorbellMode for Shared<Plain> {
    fn of(uar: &Arc<Uar>) -> Result<(Self, RegisterLease), Error> {
        Ok((uar.shared_plain(mapped(uar)?), RegisterLease::shared(uar)))
    }
}

impl DoorbellMode for Shared<BlueFlame> {
    fn of(uar: &Arc<Uar>) -> Result<(Self, RegisterLease), Error> {
        let page = mapped(uar)?;
        if uar.has_shared_blue_flame() {
            return Ok((uar.shared_blue_flame(page, 0), RegisterLease::shared(uar)));
        }
        // The first to share takes a register, for as long as the page lives.
        let register = uar.take_register().ok_or_else(|| {
            let page = uar.index();
            Error::Invalid(format!("both BlueFlame registers of UAR page {page:#x} belong to queues of their own"))
        })?;
        Ok((uar.shared_blue_flame(page, register), RegisterLease::shared(uar)))
    }
}

/// The doorbell of a page that cannot be mapped: each ring is a call of the access, such as a message to another process.
#[derive(Debug)]
pub struct Trapped(Arc<Uar>);

impl SendDoorbell for Trapped {
    fn ring(&mut self, control: u64) {
        if let Err(error) = self.0.write(Plain::offset(0), control) {
            // The card is gone; its completions will not come, and every wait for them says so.
            tracing::warn!(%error, "a doorbell was not delivered");
        }
    }
}

impl DoorbellMode for Trapped {
    fn of(uar: &Arc<Uar>) -> Result<(Self, RegisterLease), Error> {
        Ok((Trapped(Arc::clone(uar)), RegisterLease::shared(uar)))
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
    fn of(uar: &Arc<Uar>) -> Result<(Self, RegisterLease), Error> {
        if uar.is_mapped() {
            let (doorbell, lease) = Plain::of(uar)?;
            return Ok((AnyDoorbell::Plain(doorbell), lease));
        }
        let (doorbell, lease) = Trapped::of(uar)?;
        Ok((AnyDoorbell::Trapped(doorbell), lease))
    }
}
