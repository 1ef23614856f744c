//! Handles of what an access has made.

use std::sync::Arc;

use crate::memory::DmaBuffer;

/// Handle of an object in an [`Access`](super::Access). Unused (0) on an owned function, whose commands name the
/// object; the kernel's handle on DevX.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectHandle(pub u32);

/// Registered memory, which the card names by number. The handle keeps the memory alive;
/// [`Access::destroy_umem`](super::Access::destroy_umem) returns it. Dropping the handle instead leaks the memory,
/// since the card may still use it.
///
/// ```compile_fail,E0451
/// fn forge(memory: std::sync::Arc<mlx5_dv::memory::DmaBuffer>) -> mlx5_dv::access::UmemHandle {
///     let handle = mlx5_dv::access::ObjectHandle(0);
///     mlx5_dv::access::UmemHandle { umem_id: 7, handle, memory: Some(memory) } // fields are private
/// }
/// ```
#[derive(Debug)]
pub struct UmemHandle {
    umem_id: u32,
    handle: ObjectHandle,
    /// `None` after `into_memory` or `leak`, and of a dma-buf.
    memory: Option<Arc<DmaBuffer>>,
}

impl UmemHandle {
    pub(crate) fn new(umem_id: u32, handle: ObjectHandle, memory: Arc<DmaBuffer>) -> Self {
        UmemHandle { umem_id, handle, memory: Some(memory) }
    }

    /// A umem of a dma-buf, whose memory is its exporter's.
    pub(crate) fn of_dma_buf(umem_id: u32, handle: ObjectHandle) -> Self {
        UmemHandle { umem_id, handle, memory: None }
    }

    /// `umem_id` for contexts.
    pub fn umem_id(&self) -> u32 {
        self.umem_id
    }

    /// The access' own handle.
    pub fn handle(&self) -> ObjectHandle {
        self.handle
    }

    /// Returns the memory. The card must have released the umem.
    pub(crate) fn into_memory(mut self) -> Option<Arc<DmaBuffer>> {
        self.memory.take()
    }
}

impl UmemHandle {
    /// Leaks the memory on purpose: the card may use it forever.
    pub(crate) fn leak(mut self) {
        std::mem::forget(self.memory.take());
    }
}

impl Drop for UmemHandle {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            let (umem_id, bytes) = (self.umem_id, memory.len());
            tracing::error!(umem_id, bytes, "a umem was dropped and not destroyed; its memory is leaked");
            std::mem::forget(memory);
        }
    }
}
