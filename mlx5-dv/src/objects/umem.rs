//! User memory known to the card by number.

use std::sync::Arc;

use crate::access::UmemHandle;
use crate::device::Device;
use crate::error::{CommandError, Error};
use crate::memory::DmaBuffer;

/// Memory the card knows by number, so that contexts can name it and an offset. PRM "User Memory".
///
/// Owns its memory: freed once the card has forgotten it, leaked if it does not.
#[derive(Debug)]
pub struct Umem {
    handle: Option<UmemHandle>,
    memory: Option<Arc<DmaBuffer>>,
    device: Arc<Device>,
}

impl Umem {
    /// Makes `memory` known to the card, for reading and writing. Errors: [`Error::Command`], [`Error::Memory`].
    pub fn register(device: &Arc<Device>, memory: DmaBuffer) -> Result<Self, Error> {
        let memory = Arc::new(memory);
        let handle = device.access().register_umem(Arc::clone(&memory), true)?;
        Ok(Umem { handle: Some(handle), memory: Some(memory), device: Arc::clone(device) })
    }

    /// `umem_id` for contexts; 0 once it is gone.
    pub fn id(&self) -> u32 {
        self.handle.as_ref().map_or(0, UmemHandle::umem_id)
    }

    /// Its memory; `None` once it is gone.
    pub fn memory(&self) -> Option<&DmaBuffer> {
        self.memory.as_deref()
    }

    /// The card forgets it, and the memory is free.
    pub(crate) fn destroy(&mut self) -> Result<(), CommandError> {
        let Some(handle) = self.handle.take() else { return Ok(()) };
        if let Err((handle, error)) = self.device.access().destroy_umem(handle) {
            self.handle = Some(handle);
            return Err(error);
        }
        self.memory = None;
        Ok(())
    }

    /// Never frees the memory: something that uses it could not be destroyed.
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
