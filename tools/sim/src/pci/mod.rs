//! The PCI function: config space, MSI-X, interrupts.
//!
//! Capabilities lie where a ConnectX has them: power management at 0x40, PCI Express at 0x60, MSI-X at 0x9c with its
//! table at 0x2000 and its pending bits at 0x3000 of BAR 0. There is no INTx, no MSI and no expansion ROM.
//!
//! A client of VFIO's kind never writes the MSI-X table: it hands in an eventfd a vector, and whoever stands for the
//! host enables MSI-X and unmasks that vector. Here that is [`Pci::set_irqs`]. Both ways of masking hold beside it, for
//! clients that write the table or the control word themselves.

mod config;
mod msix;

use std::fs::File;
use std::ops::Range;

use thiserror::Error;

pub use config::{CONFIG_SIZE, Effects, MSIX_PBA, MSIX_TABLE};
use config::{Config, MSIX_ENABLE, MSIX_FUNCTION_MASK};
use msix::Msix;

use crate::profile::Profile;

/// Why interrupts were not set up.
#[derive(Debug, Error)]
pub enum IrqError {
    /// The vectors do not exist.
    #[error("vectors {first} to {last} of {count}")]
    NoSuchVector {
        /// First vector asked for.
        first: u32,
        /// Last vector asked for.
        last: u64,
        /// Vectors that there are.
        count: u16,
    },
    /// A descriptor is none of an eventfd, so that writing to it might block the device.
    #[error("the descriptor for vector {vector} is no eventfd")]
    NotEventfd {
        /// The vector.
        vector: u32,
    },
}

/// Config space and interrupts of one function.
#[derive(Debug)]
pub struct Pci {
    config: Config,
    msix: Msix,
}

impl Pci {
    /// After power-on.
    pub fn new(profile: &Profile) -> Self {
        Pci { config: Config::new(profile), msix: Msix::new(profile.msix_vectors) }
    }

    /// Reads config space; bytes past its end read all ones.
    pub fn config_read(&self, offset: u64, bytes: &mut [u8]) {
        self.config.read(offset, bytes);
    }

    /// Writes config space; read-only bits and bytes past its end are left alone. What the caller has to do about it is
    /// in the answer.
    pub fn config_write(&mut self, offset: u64, bytes: &[u8]) -> Effects {
        let effects = self.config.write(offset, bytes);
        self.deliver_pending();
        effects
    }

    /// Whether the function may reach memory.
    pub fn bus_master(&self) -> bool {
        self.config.bus_master()
    }

    /// MSI-X vectors that there are.
    pub fn vectors(&self) -> u16 {
        self.msix.len()
    }

    /// Raises MSI-X vector `vector`: signals the client's eventfd if enabled and unmasked, else stays pending.
    pub fn interrupt(&mut self, vector: u16) {
        self.msix.raise(vector, self.open());
    }

    /// Whether `vector` was raised and not delivered yet.
    pub fn is_pending(&self, vector: u16) -> bool {
        self.msix.is_pending(vector)
    }

    /// Gives vectors from `first` on their eventfds; `None` takes one away. A vector with an eventfd is unmasked, and
    /// MSI-X is enabled, as the kernel's VFIO does.
    pub fn set_irqs(&mut self, first: u32, eventfds: Vec<Option<File>>) -> Result<(), IrqError> {
        let vectors = self.vector_range(first, eventfds.len() as u64)?;
        for (vector, eventfd) in vectors.clone().zip(&eventfds) {
            if eventfd.as_ref().is_some_and(|file| !msix::is_eventfd(file)) {
                return Err(IrqError::NotEventfd { vector: vector.into() });
            }
        }
        for (vector, eventfd) in vectors.zip(eventfds) {
            self.msix.connect(vector, eventfd);
        }
        if self.msix.is_connected() {
            self.config.set_msix_control(MSIX_ENABLE);
        }
        self.deliver_pending();
        Ok(())
    }

    /// Takes all eventfds away and disables MSI-X.
    pub fn clear_irqs(&mut self) {
        self.msix.disconnect();
        self.config.set_msix_control(0);
    }

    /// Masks or unmasks vectors; what was raised while masked is delivered when unmasked.
    pub fn mask_irqs(&mut self, first: u32, count: u32, masked: bool) -> Result<(), IrqError> {
        for vector in self.vector_range(first, count.into())? {
            self.msix.set_masked(vector, masked);
        }
        self.deliver_pending();
        Ok(())
    }

    /// Raises vectors as if the function had.
    pub fn trigger_irqs(&mut self, first: u32, count: u32) -> Result<(), IrqError> {
        self.vector_range(first, count.into())?.for_each(|vector| self.interrupt(vector));
        Ok(())
    }

    /// Reads the MSI-X table from its byte `offset`.
    pub fn table_read(&self, offset: u64, bytes: &mut [u8]) {
        self.msix.table_read(offset, bytes);
    }

    /// Writes the MSI-X table from its byte `offset`.
    pub fn table_write(&mut self, offset: u64, bytes: &[u8]) {
        self.msix.table_write(offset, bytes);
        self.deliver_pending();
    }

    /// Reads the MSI-X pending bits from their byte `offset`.
    pub fn pba_read(&self, offset: u64, bytes: &mut [u8]) {
        self.msix.pba_read(offset, bytes);
    }

    /// Function level reset. Eventfds stay with their vectors, which come out of it enabled and unmasked, as the
    /// kernel's VFIO restores them around a reset; where no eventfds are, everything is as after power-on.
    pub fn reset(&mut self) {
        self.config.reset();
        self.msix.reset();
        if self.msix.is_connected() {
            self.config.set_msix_control(MSIX_ENABLE);
        }
    }

    fn open(&self) -> bool {
        self.config.msix_control() & (MSIX_ENABLE | MSIX_FUNCTION_MASK) == MSIX_ENABLE
    }

    fn deliver_pending(&mut self) {
        if self.open() {
            self.msix.deliver_pending();
        }
    }

    fn vector_range(&self, first: u32, count: u64) -> Result<Range<u16>, IrqError> {
        let end = u64::from(first) + count;
        match (u16::try_from(first), u16::try_from(end)) {
            (Ok(first), Ok(end)) if end <= self.msix.len() => Ok(first..end),
            _ => Err(IrqError::NoSuchVector { first, last: end.saturating_sub(1), count: self.msix.len() }),
        }
    }
}

#[cfg(test)]
mod tests;
