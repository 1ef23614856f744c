//! One PCI function of the card, whole: what the card owns and every chapter works on.
//!
//! All of it is data. `queues` holds what does work, `nic` all that such work touches: an engine borrows one queue and
//! the whole of `nic` beside it.

mod bar;
mod blueflame;
mod caps;
mod command_queue;
mod firmware;
mod observer;
mod packet_pool;
mod pages;
mod scheduler;
mod uar_memory;

use std::time::Instant;

pub use bar::{Audit, Bar, Rung};
pub(crate) use blueflame::{BUFFER, Buffer, Bytes, Copy};
pub use caps::Capabilities;
pub(crate) use caps::Page;
pub use command_queue::{CommandQueue, LOG_SIZE, LOG_STRIDE};
pub(crate) use command_queue::{OutputChain, Pending, Slot, Spoil, Wait};
pub use firmware::{Firmware, HcaState};
pub use observer::{At, Observer, Seen};
pub use pages::Pages;
pub(crate) use pages::{Context, PAGE};
pub use scheduler::Scheduler;
pub use uar_memory::{MemoryError, UarArea, UarMemory};

use crate::dma::Dma;
use crate::fault::Faults;
use crate::objects::{Objects, Queues};
use crate::pci::Pci;
use crate::profile::Profile;
use crate::strict::Strict;
use crate::wire::Port;

/// A function. Owned by the card alone; clients reach it by messages and by stores to UAR pages.
#[derive(Debug)]
pub struct Function {
    /// Queue pairs, send queues, receive queues.
    pub queues: Queues,
    /// All that their work touches.
    pub nic: Nic,
    /// Init segment and UAR pages.
    pub bar: Bar,
}

/// All of a function but its queues and its BAR.
#[derive(Debug)]
pub struct Nic {
    /// Which of the card's functions, from 0.
    pub index: usize,
    /// What it can do.
    pub profile: Profile,
    /// Where violations go.
    pub strict: Strict,
    /// What goes wrong on purpose.
    pub faults: Faults,
    /// The client's memory.
    pub dma: Dma,
    /// Config space, MSI-X, interrupts.
    pub pci: Pci,
    /// Command queue, pages, health, the state between ENABLE_HCA and DISABLE_HCA.
    pub firmware: Firmware,
    /// The object tables.
    pub objects: Objects,
    /// Who is to be served, and when.
    pub scheduler: Scheduler,
    /// MAC, GIDs, link; frames to and from the wire.
    pub port: Port,
    /// The time of this turn of the card; all timers compare with it.
    pub now: Instant,
    /// When the card was powered on.
    pub power_on: Instant,
    /// Who watches.
    pub observer: Option<Box<dyn Observer>>,
}

impl Nic {
    /// Where and when this is.
    pub(crate) fn here(&self) -> At {
        At { time: self.now.saturating_duration_since(self.power_on), function: self.index }
    }

    /// Tells whoever watches.
    pub(crate) fn observe(&mut self, what: Seen<'_>) {
        // Nobody does, usually: then the time is not worked out.
        if self.observer.is_none() {
            return;
        }
        let here = self.here();
        if let Some(observer) = &mut self.observer {
            observer.see(here, what);
        }
    }
}

impl Function {
    /// A function just after power-on, by the wall clock.
    pub fn new(index: usize, profile: Profile, strict: Strict, faults: Faults) -> Self {
        Self::at(index, profile, strict, faults, Instant::now())
    }

    /// A function that is powered on `now`.
    pub fn at(index: usize, profile: Profile, strict: Strict, faults: Faults, now: Instant) -> Self {
        Function {
            queues: Queues::new(&profile),
            bar: Bar::new(&profile),
            nic: Nic {
                index,
                dma: Dma::new(strict.clone()),
                pci: Pci::new(&profile),
                firmware: Firmware::new(&profile, now),
                objects: Objects::new(index, &profile),
                scheduler: Scheduler::default(),
                port: Port::new(strict.clone()),
                now,
                power_on: now,
                observer: None,
                profile,
                strict,
                faults,
            },
        }
    }

    /// From now on, `uid` is who asks and who makes objects: see [`Table::act_for`](crate::objects::Table::act_for).
    /// Who it was before.
    pub fn act_for(&mut self, uid: u16) -> u16 {
        self.queues.act_for(uid);
        self.nic.objects.act_for(uid)
    }

    /// How many objects there are, of all kinds.
    pub fn object_count(&self) -> usize {
        self.queues.count() + self.nic.objects.count()
    }

    /// How many objects are of user context `uid`.
    pub fn owned_by(&self, uid: u16) -> usize {
        self.queues.owned_by(uid) + self.nic.objects.owned_by(uid)
    }

    /// Empties all tables, as after power-on.
    pub(crate) fn forget_objects(&mut self) {
        self.queues = Queues::new(&self.nic.profile);
        self.nic.objects = Objects::new(self.nic.index, &self.nic.profile);
    }
}
