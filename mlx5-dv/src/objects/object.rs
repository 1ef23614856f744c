//! The common part of all objects: a firmware object and its destruction.

use std::fmt;
use std::sync::Arc;

use mlx5_prm::cmd::{
    ArmDctIn, ArmXrcSrqIn, Command, DrainDctIn, Init2initQpIn, Init2rtrQpIn, ModifyCqIn, ModifyRmpIn, ModifyRqIn,
    ModifyRqtIn, ModifySqIn, Qp2errIn, Qp2rstIn, QpContextExtension, Reply, Rst2initQpIn, Rtr2rtsQpIn, Rts2rtsQpIn,
    SetFteIn, Sqerr2rtsQpIn, WithTail,
};
use mlx5_prm::layout::{Be32, Be64};

use crate::access::{KernelObjectKind, ObjectHandle, RawCommand, SafeCommand};
use crate::device::Device;
use crate::error::{CommandError, Error};

/// A firmware object, and what destroys it.
#[derive(Debug)]
pub(crate) struct Object {
    device: Arc<Device>,
    handle: ObjectHandle,
    end: Option<End>,
}

/// What destroys an object.
#[derive(Debug)]
enum End {
    /// A command.
    Command(RawCommand),
    /// The kernel, which has made it; with its name in messages.
    Kernel(KernelObjectKind, String),
}

impl Object {
    /// Executes `create`, which names no memory. `end` builds, from the reply, the command that destroys the object and
    /// its name.
    pub(crate) fn create<C: SafeCommand, E: Command>(
        device: &Arc<Device>,
        create: &C,
        what: &str,
        end: impl FnOnce(&C::Out) -> (E, String),
    ) -> Result<(Self, C::Out), Error> {
        // SAFETY: by the contract of `SafeCommand`, `C` names no memory.
        unsafe { Self::send(device, RawCommand::safe(create, what), end) }
    }

    /// As [`create`](Self::create), for commands that name memory.
    ///
    /// # Safety
    /// As for [`Access::create`](crate::access::Access::create): the object's owner keeps the memory that `create`
    /// names until [`destroy`](Self::destroy) succeeds, or forever.
    pub(crate) unsafe fn create_over_memory<C: Command, E: Command>(
        device: &Arc<Device>,
        create: &C,
        what: &str,
        end: impl FnOnce(&C::Out) -> (E, String),
    ) -> Result<(Self, C::Out), Error> {
        // SAFETY: by this function's contract.
        unsafe { Self::send(device, RawCommand::new(create, what), end) }
    }

    /// Creates the object of command `raw`.
    ///
    /// # Safety
    /// As for [`create_over_memory`](Self::create_over_memory).
    unsafe fn send<R: Reply, E: Command>(
        device: &Arc<Device>,
        raw: RawCommand,
        end: impl FnOnce(&R) -> (E, String),
    ) -> Result<(Self, R), Error> {
        // SAFETY: by this function's contract.
        let created = unsafe { device.access().create(raw.clone()) };
        let (handle, output) = created.map_err(|error| error.because(&raw.input, device.caps()))?;
        let reply = raw.reply(&output)?;
        let (end, name) = end(&reply);
        let object =
            Object { device: Arc::clone(device), handle, end: Some(End::Command(RawCommand::new(&end, name))) };
        Ok((object, reply))
    }

    /// An object that the kernel has made for this process. Commands reach it as others if it has this process's uid.
    pub(crate) fn of_kernel(device: &Arc<Device>, kind: KernelObjectKind, handle: ObjectHandle, name: String) -> Self {
        Object { device: Arc::clone(device), handle, end: Some(End::Kernel(kind, name)) }
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The access's handle.
    pub(crate) fn handle(&self) -> ObjectHandle {
        self.handle
    }

    /// Its name in messages, such as `CQ 0x43`.
    pub(crate) fn name(&self) -> String {
        match &self.end {
            Some(End::Command(command)) => command.object.clone(),
            Some(End::Kernel(_, name)) => name.clone(),
            None => String::new(),
        }
    }

    /// The object; this value then destroys nothing.
    pub(crate) fn take(&mut self) -> Self {
        Object { device: Arc::clone(&self.device), handle: self.handle, end: self.end.take() }
    }

    /// Whether it was not destroyed yet.
    pub(crate) fn is_alive(&self) -> bool {
        self.end.is_some()
    }

    /// Modifies the object.
    pub(crate) fn modify<C: Transition>(&self, command: &C) -> Result<(), CommandError> {
        self.modify_and_tell(command).map(drop)
    }

    /// As [`modify`](Self::modify), and returns the reply.
    pub(crate) fn modify_and_tell<C: Transition>(&self, command: &C) -> Result<C::Out, CommandError> {
        // SAFETY: moves the object, whose number its owner sets, from state to state, and names no memory: see
        // `Transition`.
        unsafe { self.modify_over_memory(command) }
    }

    /// As [`modify`](Self::modify), for commands that name memory.
    ///
    /// # Safety
    /// As for [`create_over_memory`](Self::create_over_memory), also of the memory that `command` replaces, until it
    /// succeeded.
    pub(crate) unsafe fn modify_over_memory<C: Command>(&self, command: &C) -> Result<C::Out, CommandError> {
        let raw = RawCommand::new(command, self.name());
        // SAFETY: by this function's contract.
        let modified = unsafe { self.device.access().modify(self.handle, raw.clone()) };
        raw.reply(&modified.map_err(|error| error.because(&raw.input, self.device.caps()))?)
    }

    /// Queries the object.
    pub(crate) fn query<C: SafeCommand>(&self, command: &C) -> Result<C::Out, CommandError> {
        let raw = RawCommand::safe(command, self.name());
        // SAFETY: by the contract of `SafeCommand`, `C` names no memory and changes nothing.
        let output = unsafe { self.device.access().query(self.handle, raw.clone()) }?;
        raw.reply(&output)
    }

    /// Destroys the object; after a success further calls do nothing.
    pub(crate) fn destroy(&mut self) -> Result<(), CommandError> {
        match (&self.end, self.device.access().kernel_verbs()) {
            // SAFETY: destroys the object that `create` made, which this value owns.
            (Some(End::Command(command)), _) => unsafe {
                self.device.access().destroy(self.handle, command.clone())?;
            },
            (Some(End::Kernel(kind, _)), Some(kernel)) => kernel.destroy(*kind, self.handle)?,
            (Some(End::Kernel(..)), None) | (None, _) => {}
        }
        self.end = None;
        Ok(())
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        if let Err(error) = self.destroy() {
            tracing::error!(%error, "an object was not destroyed; it stays with the card until that is reset");
        }
    }
}

/// A command that changes an object's state, or a number in it. Their contexts are built in this crate and set no field
/// that names memory: those are set only at creation.
pub(crate) trait Transition: Command {}

impl Transition for Rst2initQpIn {}
impl Transition for Init2rtrQpIn {}
impl Transition for Rtr2rtsQpIn {}
impl Transition for Init2initQpIn {}
impl Transition for Rts2rtsQpIn {}
impl Transition for WithTail<Rts2rtsQpIn, QpContextExtension> {}
impl Transition for Sqerr2rtsQpIn {}
impl Transition for Qp2errIn {}
impl Transition for Qp2rstIn {}
impl Transition for ModifySqIn {}
impl Transition for ModifyRqIn {}
impl Transition for ModifyRmpIn {}
impl Transition for WithTail<ModifyRqtIn, Be32> {}
impl Transition for ModifyCqIn {}
impl Transition for ArmXrcSrqIn {}
impl Transition for DrainDctIn {}
impl Transition for WithTail<SetFteIn, Be64> {}
impl Transition for ArmDctIn {}

/// An object that could not be destroyed. It is still alive, and can be destroyed again later.
pub struct DestroyError<T> {
    /// The object.
    pub object: Arc<T>,
    /// The cause.
    pub reason: DestroyReason,
}

/// Why an object was not destroyed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DestroyReason {
    /// Others still hold it.
    #[error("it is still in use ({0} more holders): drop or destroy those first")]
    InUse(usize),
    /// Firmware refused.
    #[error(transparent)]
    Command(#[from] CommandError),
}

impl<T> fmt::Debug for DestroyError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.reason, f)
    }
}

impl<T> fmt::Display for DestroyError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not destroyed: {}", self.reason)
    }
}

impl<T> std::error::Error for DestroyError<T> {}

/// Destroys the object in `shared` by `end`, if nobody else holds it.
pub(crate) fn destroy_sole<T>(
    shared: Arc<T>,
    end: impl FnOnce(&mut T) -> Result<(), CommandError>,
) -> Result<(), DestroyError<T>> {
    let mut shared = shared;
    match Arc::get_mut(&mut shared).map(end) {
        Some(Ok(())) => Ok(()),
        Some(Err(error)) => Err(DestroyError { object: shared, reason: error.into() }),
        None => {
            let others = Arc::strong_count(&shared).saturating_sub(1);
            Err(DestroyError { object: shared, reason: DestroyReason::InUse(others) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_hold_is_not_destroyed() {
        let shared = Arc::new(5);
        let other = Arc::clone(&shared);
        let error = destroy_sole(shared, |_| Ok(())).unwrap_err();
        assert_eq!(
            error.to_string(),
            "not destroyed: it is still in use (1 more holders): drop or destroy those first"
        );
        drop(other);
        assert!(destroy_sole(error.object, |_| Ok(())).is_ok());
    }
}
