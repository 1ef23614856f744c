//! The PCI function: config space, MSI-X, interrupts.
//!
//! Capabilities are at the offsets of a ConnectX: power management at 0x40, PCI Express at 0x60, MSI-X at 0x9c with its
//! table at 0x2000 and its pending bits at 0x3000 of BAR 0. There is no INTx, no MSI and no expansion ROM.
//!
//! A VFIO client never writes the MSI-X table: it gives an eventfd for each vector, and the host side enables MSI-X and
//! unmasks the vector. Here that is [`Pci::set_irqs`]. Clients that write the table or the control word themselves can
//! also mask both ways.

mod config;
mod msix;

use std::fs::File;
use std::ops::Range;

use thiserror::Error;

pub use config::{CONFIG_SIZE, Effects, MSIX_PBA, MSIX_TABLE};
use config::{Config, MSIX_ENABLE, MSIX_FUNCTION_MASK};
use msix::Msix;

use crate::profile::Profile;

/// Why interrupts cannot be set up.
#[derive(Debug, Error)]
pub enum IrqError {
    /// The vectors do not exist.
    #[error("no MSI-X vectors {first} to {last}: there are {count}")]
    NoSuchVector {
        /// First vector requested.
        first: u32,
        /// Last vector requested.
        last: u64,
        /// Number of vectors.
        count: u16,
    },
    /// A descriptor is not an eventfd: writing to it might block the device.
    #[error("the descriptor for vector {vector} is not an eventfd")]
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
    /// The state after power-on.
    pub fn new(profile: &Profile) -> Self {
        Pci { config: Config::new(profile), msix: Msix::new(profile.msix_vectors) }
    }

    /// Reads config space; bytes past its end read as ones.
    pub fn config_read(&self, offset: u64, bytes: &mut [u8]) {
        self.config.read(offset, bytes);
    }

    /// Writes config space; read-only bits and bytes past its end are ignored. Returns what the caller must do.
    pub fn config_write(&mut self, offset: u64, bytes: &[u8]) -> Effects {
        let effects = self.config.write(offset, bytes);
        self.deliver_pending();
        effects
    }

    /// Whether bus mastering is enabled, in D0.
    pub fn bus_master(&self) -> bool {
        self.config.bus_master()
    }

    /// Whether the function answers at its BARs: memory space is enabled, in D0.
    pub fn decodes_memory(&self) -> bool {
        self.config.decodes_memory()
    }

    /// Max_Payload_Size and Max_Read_Request_Size in bytes, as software has set them.
    pub fn request_sizes(&self) -> (u32, u32) {
        self.config.request_sizes()
    }

    /// Number of MSI-X vectors.
    pub fn vectors(&self) -> u16 {
        self.msix.len()
    }

    /// Triggers MSI-X vector `vector`: signals the client's eventfd if enabled and unmasked, otherwise sets its pending
    /// bit.
    pub fn interrupt(&mut self, vector: u16) {
        self.msix.raise(vector, self.open());
    }

    /// Whether `vector` is pending.
    pub fn is_pending(&self, vector: u16) -> bool {
        self.msix.is_pending(vector)
    }

    /// Assigns eventfds to vectors from `first` on; `None` removes one. A vector with an eventfd is unmasked, and MSI-X
    /// is enabled, as the kernel's VFIO does.
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

    /// Removes all eventfds and disables MSI-X.
    pub fn clear_irqs(&mut self) {
        self.msix.disconnect();
        self.config.set_msix_control(0);
    }

    /// Masks or unmasks vectors; pending ones are delivered when unmasked.
    pub fn mask_irqs(&mut self, first: u32, count: u32, masked: bool) -> Result<(), IrqError> {
        for vector in self.vector_range(first, count.into())? {
            self.msix.set_masked(vector, masked);
        }
        self.deliver_pending();
        Ok(())
    }

    /// Triggers vectors as if the function had done so.
    pub fn trigger_irqs(&mut self, first: u32, count: u32) -> Result<(), IrqError> {
        self.vector_range(first, count.into())?.for_each(|vector| self.interrupt(vector));
        Ok(())
    }

    /// Reads the MSI-X table from byte `offset` on.
    pub fn table_read(&self, offset: u64, bytes: &mut [u8]) {
        self.msix.table_read(offset, bytes);
    }

    /// Writes the MSI-X table from byte `offset` on.
    pub fn table_write(&mut self, offset: u64, bytes: &[u8]) {
        self.msix.table_write(offset, bytes);
        self.deliver_pending();
    }

    /// Reads the MSI-X pending bits from byte `offset` on.
    pub fn pba_read(&self, offset: u64, bytes: &mut [u8]) {
        self.msix.pba_read(offset, bytes);
    }

    /// Function level reset. Eventfds stay, and their vectors are enabled and unmasked afterwards, as the kernel's VFIO
    /// restores them; other vectors are in the state after power-on.
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
