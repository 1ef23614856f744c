//! The whole state of one PCI function, without behaviour.
//!
//! `queues` holds the queues, `nic` everything that their work uses: an engine borrows one queue and, beside it, the
//! whole `nic`.

mod bar;
mod blueflame;
mod caps;
mod command_queue;
mod firmware;
mod observer;
mod packet_pool;
mod page_faults;
mod pages;
pub(crate) mod real_time;
mod scheduler;
mod uar_memory;
mod write_combining;

use std::time::Instant;

pub use bar::{Audit, Bar, Rung};
pub(crate) use blueflame::{BUFFER, Buffer, Bytes, Copy};
pub use caps::Capabilities;
pub(crate) use caps::Page;
pub use command_queue::{CommandQueue, LOG_SIZE, LOG_STRIDE};
pub(crate) use command_queue::{Fetch, OutputChain, Pending, Slot, Spoil, Wait};
pub use firmware::{Firmware, HcaState};
pub use observer::{At, Observer, Seen};
pub(crate) use page_faults::{PageFault, Side};
pub use pages::Pages;
pub(crate) use pages::{Context, PAGE};
pub use real_time::RealTime;
pub use scheduler::Scheduler;
pub use uar_memory::{MemoryError, UarArea, UarMemory};
pub(crate) use write_combining::OpenCopy;

use crate::dma::Dma;
use crate::fault::Faults;
use crate::objects::{Objects, Queues};
use crate::pci::Pci;
use crate::profile::Profile;
use crate::strict::Strict;
use crate::wire::Port;

/// A function. Owned by the card; clients reach it by messages and by stores to UAR pages.
#[derive(Debug)]
pub struct Function {
    /// Queue pairs, send queues, receive queues.
    pub queues: Queues,
    /// Everything that the queues use.
    pub nic: Nic,
    /// Initialization segment and UAR pages.
    pub bar: Bar,
}

/// A function without its queues and its BAR.
#[derive(Debug)]
pub struct Nic {
    /// Index of the function on the card, from 0.
    pub index: usize,
    /// Its capabilities and sizes.
    pub profile: Profile,
    /// Record of violations.
    pub strict: Strict,
    /// Fault injection.
    pub faults: Faults,
    /// DMA to the client's memory.
    pub dma: Dma,
    /// Config space, MSI-X, interrupts.
    pub pci: Pci,
    /// Command queue, pages, health, the state between ENABLE_HCA and DISABLE_HCA.
    pub firmware: Firmware,
    /// The object tables.
    pub objects: Objects,
    /// Work lists and timers.
    pub scheduler: Scheduler,
    /// MAC, GIDs, link; received and sent frames.
    pub port: Port,
    /// Time of the current turn; all timers compare with it.
    pub now: Instant,
    /// When the card was powered on.
    pub power_on: Instant,
    /// The observer, if there is one.
    pub observer: Option<Box<dyn Observer>>,
}

impl Nic {
    /// Current time and function, for observers.
    pub(crate) fn here(&self) -> At {
        At { time: self.now.saturating_duration_since(self.power_on), function: self.index }
    }

    /// Passes an observation to the observer.
    #[inline]
    pub(crate) fn observe(&mut self, what: Seen<'_>) {
        // Without an observer, the time need not be computed.
        if self.observer.is_some() {
            self.show(what);
        }
    }

    #[cold]
    fn show(&mut self, what: Seen<'_>) {
        let here = self.here();
        if let Some(observer) = &mut self.observer {
            observer.see(here, what);
        }
    }
}

impl Function {
    /// A function after power-on, with the wall clock.
    pub fn new(index: usize, profile: Profile, strict: Strict, faults: Faults) -> Self {
        Self::at(index, profile, strict, faults, Instant::now())
    }

    /// A function powered on at `now`.
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

    /// Sets the user context on whose behalf objects are used and created: see
    /// [`Table::act_for`](crate::objects::Table::act_for). Returns the previous one.
    pub fn act_for(&mut self, uid: u16) -> u16 {
        self.queues.act_for(uid);
        self.nic.objects.act_for(uid)
    }

    /// Number of objects of all kinds.
    pub fn object_count(&self) -> usize {
        self.queues.count() + self.nic.objects.count()
    }

    /// Number of objects of user context `uid`.
    pub fn owned_by(&self, uid: u16) -> usize {
        self.queues.owned_by(uid) + self.nic.objects.owned_by(uid)
    }

    /// Backs the UAR pages, but the first `trapped`, and the memory on the card with memory that clients can map.
    ///
    /// # Errors
    /// The memory cannot be allocated.
    pub fn share_bar(&mut self, trapped: u32) -> Result<(), MemoryError> {
        self.bar.share(trapped)?;
        self.share_device_memory();
        Ok(())
    }

    /// Replaces that memory by other, for a new client.
    ///
    /// # Errors
    /// The memory cannot be allocated; the old one stays.
    pub fn renew_bar(&mut self) -> Result<(), MemoryError> {
        self.bar.renew()?;
        self.share_device_memory();
        Ok(())
    }

    /// Memory on the card is stored to as doorbells are, or a doorbell would overtake what was stored before it.
    fn share_device_memory(&mut self) {
        if let Some(shared) = &self.bar.shared {
            self.nic.objects.device_memory.put_into(shared.clone());
        }
    }

    /// Empties all tables, as after power-on.
    pub(crate) fn forget_objects(&mut self) {
        self.queues = Queues::new(&self.nic.profile);
        let mut before = std::mem::replace(&mut self.nic.objects, Objects::new(self.nic.index, &self.nic.profile));
        self.nic.objects.steering.succeed(&mut before.steering);
        self.share_device_memory();
    }
}
