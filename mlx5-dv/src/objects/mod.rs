//! Firmware objects, one noun a file: the control path.
//!
//! # Contract
//! * Calls block until firmware answered, may allocate, and may be made from any thread.
//! * An object holds its parents by `Arc`: a queue pair keeps its protection domain, its completion queues and its UAR page
//!   alive. Handles that destroy something are not `Clone`; share an `Arc`.
//! * `destroy` says whether it worked, and gives the object back if it did not:
//!
//! ```compile_fail,E0382
//! fn twice(pd: std::sync::Arc<mlx5_dv::objects::Pd>) {
//!     let _ = mlx5_dv::objects::Pd::destroy(pd);
//!     let _ = mlx5_dv::objects::Pd::destroy(pd); // it is gone
//! }
//! ```
//!
//! * Dropping does the same and logs a failure. It never panics, and it never frees memory the card may still write: that
//!   is leaked.
//! * What a user asks for is checked against the card's capabilities first; the error names the field and the capability.

use std::fmt;
use std::sync::Arc;

use mlx5_prm::cmd::Command;
use mlx5_prm::ctx::{QueueState, TimestampFormat};

use crate::Device;
use crate::access::{ObjectHandle, RawCommand};
use crate::caps::Caps;
use crate::error::{CommandError, Error};

mod buffer;
mod cq;
mod flow;
mod flow_matcher;
mod memory_region;
mod mkey;
mod outlet;
mod pd;
mod qp;
mod raw_queue;
mod ring;
mod rq;
mod sq;
mod tir;
mod tis;
mod uar;
mod umem;

pub use buffer::Buffer;
pub use cq::{Cq, CqOptions, CqeSize};
pub use flow::{FlowGroup, FlowRule, FlowTable};
pub use flow_matcher::FlowMatcher;
pub use memory_region::MemoryRegion;
pub use mkey::{AccessFlags, Mkey};
pub use pd::Pd;
pub use qp::{
    AddressHandle, AddressPath, DatagramAttributes, InitAttributes, QpOptions, QpStatus, QueuePair, RtrAttributes,
    RtsAttributes,
};
pub use raw_queue::QueueStatus;
pub use rq::{Rq, RqOptions};
pub use sq::{Sq, SqOptions};
pub use tir::Tir;
pub use tis::{Tis, TransportDomain};
pub use uar::Uar;
pub use umem::Umem;

pub use crate::queue::{AnyDoorbell, BlueFlame, DoorbellMode, Plain, Shared, Trapped};

pub(crate) use cq::CqPlace;
pub(crate) use flow::to_mac;
pub(crate) use outlet::{LetsReceiveRing, LetsSendRing, RingPermit};
pub(crate) use qp::{ReceivePermit, SendPermit};
pub(crate) use uar::PLAIN_REGISTER;

/// A firmware object, and the command that ends it.
#[derive(Debug)]
pub(crate) struct Object {
    device: Arc<Device>,
    handle: ObjectHandle,
    end: Option<RawCommand>,
}

impl Object {
    /// Executes `create`; `end` makes the command that destroys what was created, and its name, of the reply.
    pub(crate) fn create<C: Command, E: Command>(
        device: &Arc<Device>,
        create: &C,
        what: &str,
        end: impl FnOnce(&C::Out) -> (E, String),
    ) -> Result<(Self, C::Out), Error> {
        let raw = RawCommand::new(create, what);
        let created = device.access().create(raw.clone());
        let (handle, output) = created.map_err(|error| error.because(&raw.input, device.caps()))?;
        let reply = raw.reply(&output)?;
        let (end, name) = end(&reply);
        let object = Object { device: Arc::clone(device), handle, end: Some(RawCommand::new(&end, name)) };
        Ok((object, reply))
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// What the access knows it by.
    pub(crate) fn handle(&self) -> ObjectHandle {
        self.handle
    }

    /// How messages call it, such as `CQ 0x43`.
    pub(crate) fn name(&self) -> String {
        self.end.as_ref().map_or_else(String::new, |end| end.object.clone())
    }

    /// Modifies the object.
    pub(crate) fn modify<C: Command>(&self, command: &C) -> Result<(), CommandError> {
        let raw = RawCommand::new(command, self.name());
        let modified = self.device.access().modify(self.handle, raw.clone());
        modified.map(drop).map_err(|error| error.because(&raw.input, self.device.caps()))
    }

    /// Queries the object.
    pub(crate) fn query<C: Command>(&self, command: &C) -> Result<C::Out, CommandError> {
        let raw = RawCommand::new(command, self.name());
        let output = self.device.access().query(self.handle, raw.clone())?;
        raw.reply(&output)
    }

    /// Destroys the object, once: after a success further calls do nothing.
    pub(crate) fn destroy(&mut self) -> Result<(), CommandError> {
        let Some(end) = &self.end else { return Ok(()) };
        self.device.access().destroy(self.handle, end.clone())?;
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

/// An object that was not destroyed, and why. It is alive, and can be tried again.
pub struct DestroyError<T> {
    /// The object.
    pub object: Arc<T>,
    /// Why it still lives.
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

/// Destroys what `shared` holds by `end`, if nobody else holds it.
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

/// `Ok` if `wanted` is at most `1 << log_most`; else an error that names the field and the capability.
pub(crate) fn within(field: &str, wanted: u64, capability: &str, log_most: u8) -> Result<(), Error> {
    let most = 1u64.checked_shl(log_most.into()).unwrap_or(u64::MAX);
    if wanted <= most {
        return Ok(());
    }
    Err(Error::Invalid(format!("{field} is {wanted}, and this card takes at most {most} ({capability} = {log_most})")))
}

/// Refuses REMOTE_ATOMIC on a card that has no atomics.
pub(crate) fn check_access(access: AccessFlags, caps: &Caps) -> Result<(), Error> {
    if access.contains(AccessFlags::REMOTE_ATOMIC) { caps.check_atomics() } else { Ok(()) }
}

/// The error that `object`, a queue of frames in `state`, does not take `call`, which needs `wanted`; `first` leads there.
pub(crate) fn wrong_state(object: &str, state: QueueState, call: &str, wanted: &str, first: &str) -> Error {
    Error::Invalid(format!("{object} is in {state}, and {call} needs {wanted}; first call {first}"))
}

/// A queue, or queue pair, whose completions carry its own number.
const NO_USER_INDEX: u32 = 0xff_ffff;

/// What the timestamps of completions are, by the capability of their kind of queue: free running wherever the card can, as
/// Linux asks.
fn timestamps(format: u8) -> TimestampFormat {
    // The card's clock shows real time, and cannot be read otherwise.
    const REAL_TIME_ONLY: u8 = 1;
    if format == REAL_TIME_ONLY { TimestampFormat::Default } else { TimestampFormat::FreeRunning }
}

/// `Ok` if `value` fits in `bits` bits; else an error that names the field.
pub(crate) fn fits(field: &str, value: u32, bits: u32) -> Result<(), Error> {
    if value >> bits == 0 {
        return Ok(());
    }
    Err(Error::Invalid(format!("{field} is {value:#x}, and the field has {bits} bits")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_name_the_field_and_the_capability() {
        assert!(within("entries", 1 << 22, "log_max_cq_sz", 22).is_ok());
        let text = within("entries", (1 << 22) + 1, "log_max_cq_sz", 22).unwrap_err().to_string();
        assert_eq!(text, "entries is 4194305, and this card takes at most 4194304 (log_max_cq_sz = 22)");
        assert!(within("len", u64::MAX, "log_max_mrw_sz", 64).is_ok());
        assert!(fits("psn", 0xff_ffff, 24).is_ok());
        assert_eq!(fits("psn", 1 << 24, 24).unwrap_err().to_string(), "psn is 0x1000000, and the field has 24 bits");
    }

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
