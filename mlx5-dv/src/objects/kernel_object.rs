//! Objects that the kernel makes, and those of other processes that share its context.

use std::sync::Arc;

use crate::access::{KernelObjectKind, KernelVerbs, ObjectHandle};
use crate::device::Device;
use crate::error::{CommandError, Error, Invalid};

/// A protection domain for another process: see [`Pd::handle`](super::Pd::handle).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PdHandle(pub u32);

/// A memory region for another process: see [`MemoryRegion::handle`](super::MemoryRegion::handle).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RegionHandle(pub u32);

/// Memory on the card for another process: see [`DeviceMemory::handle`](super::DeviceMemory::handle).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeviceMemoryHandle(pub u32);

/// A region of device memory for another process: see
/// [`DeviceMemoryRegion::handle`](super::DeviceMemoryRegion::handle).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeviceMemoryRegionHandle(pub u32);

/// An object of the kernel's, by its handle. What this process made it destroys; what it imported it leaves alone.
#[derive(Debug)]
pub(super) struct KernelObject {
    kind: KernelObjectKind,
    handle: ObjectHandle,
    /// Whether it is to be destroyed.
    is_ours: bool,
    device: Arc<Device>,
}

impl KernelObject {
    /// What this process has made.
    pub(super) fn made(device: &Arc<Device>, kind: KernelObjectKind, handle: ObjectHandle) -> Self {
        KernelObject { kind, handle, is_ours: true, device: Arc::clone(device) }
    }

    /// What another process has made.
    pub(super) fn imported(device: &Arc<Device>, kind: KernelObjectKind, handle: ObjectHandle) -> Self {
        KernelObject { kind, handle, is_ours: false, device: Arc::clone(device) }
    }

    pub(super) fn handle(&self) -> ObjectHandle {
        self.handle
    }

    pub(super) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Destroys it, if it is this process's; after a success further calls do nothing.
    pub(super) fn destroy(&mut self) -> Result<(), CommandError> {
        if let (true, Some(kernel)) = (self.is_ours, self.device.access().kernel_verbs()) {
            kernel.destroy(self.kind, self.handle)?;
        }
        self.is_ours = false;
        Ok(())
    }
}

impl Drop for KernelObject {
    fn drop(&mut self) {
        if let Err(error) = self.destroy() {
            tracing::error!(%error, "an object of the kernel's was not destroyed; it stays until the context is closed");
        }
    }
}

/// The kernel's verbs, or the error that `device` has none to share `what` by.
pub(super) fn shared<'a>(device: &'a Device, what: &'static str) -> Result<&'a dyn KernelVerbs, Error> {
    device.access().kernel_verbs().ok_or_else(|| not_shared(device, what))
}

/// The error that objects of a function that this process owns are its own.
pub(crate) fn not_shared(device: &Device, what: &'static str) -> Error {
    let mend = "open the kernel's device (devx:), whose context processes share";
    Invalid::WrongAccess { what, device: device.name().to_owned(), kernel: false, mend }.into()
}
