//! Messages of one client.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_SET_ACTION_MASK, VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_ACTION_UNMASK, VFIO_IRQ_SET_DATA_EVENTFD,
    VFIO_IRQ_SET_DATA_NONE, VFIO_PCI_BAR0_REGION_INDEX, VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX,
};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, ServerBackend};

use crate::card::FunctionHandle;
use crate::dma::{Access, MapError, Source};
use crate::pci::IrqError;

/// Maximum size of a region access in bytes; larger than any register area.
const LARGEST_ACCESS: usize = 1 << 20;

/// Translates a client's messages to accesses of the function.
pub(super) struct Backend {
    function: FunctionHandle,
    /// Set by the first message.
    connected: Arc<AtomicBool>,
}

impl Backend {
    pub(super) fn new(function: FunctionHandle, connected: Arc<AtomicBool>) -> Self {
        Backend { function, connected }
    }

    fn function(&self) -> &FunctionHandle {
        self.connected.store(true, Ordering::Release);
        &self.function
    }
}

impl ServerBackend for Backend {
    /// The crate's own client cannot decode the short reply of an error, so unreadable regions read as ones.
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        match region {
            _ if data.len() > LARGEST_ACCESS => return Err(io::ErrorKind::InvalidInput.into()),
            VFIO_PCI_BAR0_REGION_INDEX => self.function().bar_read(offset, data),
            VFIO_PCI_CONFIG_REGION_INDEX => self.function().config_read(offset, data),
            _ => data.fill(0xff),
        }
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        match region {
            _ if data.len() > LARGEST_ACCESS => return Err(io::ErrorKind::InvalidInput.into()),
            VFIO_PCI_BAR0_REGION_INDEX => self.function().bar_write(offset, data),
            VFIO_PCI_CONFIG_REGION_INDEX => self.function().config_write(offset, data),
            _ => tracing::debug!("{} bytes written to region {region}, which is not there", data.len()),
        }
        Ok(())
    }

    fn dma_map(
        &mut self,
        flags: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        fd: Option<File>,
    ) -> io::Result<()> {
        let mut access = Access::empty();
        access.set(Access::READ, flags.contains(DmaMapFlags::READ));
        access.set(Access::WRITE, flags.contains(DmaMapFlags::WRITE));
        let source = match fd {
            Some(file) => Source::File { file, offset },
            None => Source::Unreachable,
        };
        tracing::trace!("map {address:#x} + {size:#x} {access:?} of {source:?}");
        self.function().dma_map(address, size, access, source).map_err(|error| {
            tracing::warn!("mapping {address:#x} + {size:#x} refused: {error}");
            match error {
                MapError::Mmap(error) => error,
                error => io::Error::new(io::ErrorKind::InvalidInput, error),
            }
        })
    }

    /// Clients unmap whole address spaces when an IOMMU changes domains, including ranges never mapped: not an error.
    fn dma_unmap(&mut self, flags: DmaUnmapFlags, address: u64, size: u64) -> io::Result<()> {
        let (address, size) = match flags.contains(DmaUnmapFlags::UNMAP_ALL) {
            true => (0, u64::MAX),
            false => (address, size),
        };
        let unmapped = self.function().dma_unmap(address, size);
        tracing::trace!("unmap {address:#x} + {size:#x}: {unmapped:#x} bytes");
        Ok(())
    }

    fn reset(&mut self) -> io::Result<()> {
        self.function().reset();
        Ok(())
    }

    fn set_irqs(&mut self, index: u32, flags: u32, start: u32, count: u32, fds: Vec<File>) -> io::Result<()> {
        if index != VFIO_PCI_MSIX_IRQ_INDEX {
            return match count {
                0 => Ok(()),
                _ => Err(io::ErrorKind::InvalidInput.into()),
            };
        }
        set_msix(self.function(), flags, start, count, fds).map_err(|error| {
            tracing::warn!("interrupts refused: {error}");
            io::Error::new(io::ErrorKind::InvalidInput, error)
        })
    }
}

const NONE: u32 = VFIO_IRQ_SET_DATA_NONE;
const EVENTFD: u32 = VFIO_IRQ_SET_DATA_EVENTFD;
const TRIGGER: u32 = VFIO_IRQ_SET_ACTION_TRIGGER;
const MASK: u32 = VFIO_IRQ_SET_ACTION_MASK;
const UNMASK: u32 = VFIO_IRQ_SET_ACTION_UNMASK;

/// `VFIO_DEVICE_SET_IRQS` for MSI-X, for each combination of data and action flags.
fn set_msix(function: &FunctionHandle, flags: u32, start: u32, count: u32, fds: Vec<File>) -> Result<(), SetIrqError> {
    let has = |bits: u32| flags == bits;
    if has(NONE | TRIGGER) && count == 0 {
        function.clear_irqs();
    } else if has(NONE | TRIGGER) {
        function.trigger_irqs(start, count)?;
    } else if has(NONE | MASK) || has(NONE | UNMASK) {
        function.mask_irqs(start, count, has(NONE | MASK))?;
    } else if has(EVENTFD | TRIGGER) && fds.is_empty() {
        // A descriptor of -1: no eventfd.
        let count = count.min(u32::from(function.vectors()) + 1);
        function.set_irqs(start, (0..count).map(|_| None).collect())?;
    } else if has(EVENTFD | TRIGGER) && fds.len() == count as usize {
        function.set_irqs(start, fds.into_iter().map(Some).collect())?;
    } else {
        return Err(SetIrqError::Request { flags, count, fds: fds.len() });
    }
    Ok(())
}

#[derive(Debug, thiserror::Error)]
enum SetIrqError {
    #[error(transparent)]
    Irq(#[from] IrqError),
    #[error("flags {flags:#x} with {fds} descriptors for {count} vectors")]
    Request { flags: u32, count: u32, fds: usize },
}
