//! One PCI function of the card, whole: what the device thread owns and every chapter works on.

use std::time::Instant;

use crate::bar::Bar;
use crate::dma::Dma;
use crate::engine::Engine;
use crate::fault::Faults;
use crate::firmware::Firmware;
use crate::objects::Objects;
use crate::pci::Pci;
use crate::profile::Profile;
use crate::strict::Strict;
use crate::wire::Port;

/// A function. Owned by the device thread alone; clients reach it by messages and by stores to UAR pages.
#[derive(Debug)]
pub struct Function {
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
    /// Init segment and UAR pages.
    pub bar: Bar,
    /// Command queue, pages, health, the state between ENABLE_HCA and DISABLE_HCA.
    pub firmware: Firmware,
    /// The object tables.
    pub objects: Objects,
    /// Send scheduler, requesters, responders, timers.
    pub engine: Engine,
    /// MAC, GIDs, link; frames to and from the wire.
    pub port: Port,
    /// The time of this turn of the device thread's loop; all timers compare with it.
    pub now: Instant,
}

impl Function {
    /// A function just after power-on.
    pub fn new(index: usize, profile: Profile, strict: Strict, faults: Faults) -> Self {
        Function {
            index,
            dma: Dma::new(strict.clone()),
            pci: Pci::new(&profile),
            bar: Bar::new(&profile),
            firmware: Firmware::new(&profile),
            objects: Objects::new(index, &profile),
            engine: Engine::new(&profile),
            port: Port::new(strict.clone()),
            now: Instant::now(),
            profile,
            strict,
            faults,
        }
    }
}
