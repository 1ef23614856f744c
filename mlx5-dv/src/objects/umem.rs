//! User memory that contexts name by number.

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::access::UmemHandle;
use crate::device::Device;
use crate::error::{CommandError, Error, Invalid};
use crate::memory::DmaBuffer;

/// Registered memory: contexts name it by `umem_id` and offset. PRM "User Memory".
///
/// Owns its memory: frees it after the umem is destroyed, leaks it if that fails.
#[derive(Debug)]
pub struct Umem {
    handle: Option<UmemHandle>,
    memory: Option<Arc<DmaBuffer>>,
    device: Arc<Device>,
}

impl Umem {
    /// Registers `memory` for reading and writing. Errors: [`Error::Command`], [`Error::Memory`].
    pub fn register(device: &Arc<Device>, memory: DmaBuffer) -> Result<Self, Error> {
        let memory = Arc::new(memory);
        let handle = device.access().register_umem(Arc::clone(&memory), true)?;
        Ok(Umem { handle: Some(handle), memory: Some(memory), device: Arc::clone(device) })
    }

    /// Registers whole pages of the dma-buf `file`, which stays where it is meanwhile.
    ///
    /// # Errors
    /// [`Error::Memory`] where the kernel refuses; [`Error::Invalid`] on a function that this process owns.
    pub(super) fn of_dma_buf(
        device: &Arc<Device>,
        file: BorrowedFd<'_>,
        pages: Range<u64>,
        writable: bool,
    ) -> Result<Self, Error> {
        let kernel = device.access().kernel_verbs().ok_or_else(|| {
            let (what, mend) = ("memory of a dma-buf", "open the kernel's device (devx:): the kernel alone can map it");
            Invalid::WrongAccess { what, device: device.name().to_owned(), kernel: false, mend }
        })?;
        let handle = kernel.register_dma_buf(file, pages, writable)?;
        Ok(Umem { handle: Some(handle), memory: None, device: Arc::clone(device) })
    }

    /// `umem_id` for contexts; 0 once destroyed.
    pub fn id(&self) -> u32 {
        self.handle.as_ref().map_or(0, UmemHandle::umem_id)
    }

    /// Its memory; `None` once destroyed, and of a dma-buf.
    pub fn memory(&self) -> Option<&DmaBuffer> {
        self.memory.as_deref()
    }

    /// Destroys the umem and frees its memory.
    pub(crate) fn destroy(&mut self) -> Result<(), CommandError> {
        let Some(handle) = self.handle.take() else { return Ok(()) };
        if let Err((handle, error)) = self.device.access().destroy_umem(handle) {
            self.handle = Some(handle);
            return Err(error);
        }
        self.memory = None;
        Ok(())
    }

    /// Leaks the memory on purpose: an object that uses it could not be destroyed.
    pub(crate) fn leak(&mut self) {
        if let Some(handle) = self.handle.take() {
            handle.leak();
        }
        self.memory = None;
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        if let Err(error) = self.destroy() {
            tracing::error!(%error, "a umem was not destroyed; its memory is leaked");
            self.leak();
        }
    }
}
