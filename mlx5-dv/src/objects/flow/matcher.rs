//! Flow matchers: where steering starts on DevX.

use std::sync::Arc;

use mlx5_prm::flow::FteMatchParam;
use mlx5_prm::layout::Layout;

use super::matching::FlowMatch;
use super::table::Direction;
use crate::access::{KernelSteering, Matcher, ObjectHandle};
use crate::device::Device;
use crate::error::{Error, Invalid};

/// The kernel's lowest matcher priority.
pub(super) const LAST_PRIORITY: u16 = 15;

/// Rules with the same match criteria on DevX, where the kernel owns the function: the counterpart of a flow group.
/// `mlx5dv_flow_matcher` of libibverbs.
///
/// The rules are in the kernel's flow tables. For received frames they are before those of its network device: a
/// matching frame is received only here, all others go on to the kernel. For frames that are sent, they are for those
/// of this process and of the kernel's network device. The kernel chooses table and entry; there are no levels, sizes
/// or roots. Rules forward to one [`Tir`](crate::objects::Tir) or [`FlowTable`](super::table::FlowTable), drop, send,
/// or leave the frame to the kernel; they tag and count. A rule that does more takes a flow table of its own.
///
/// The card delivers only frames that the kernel's interface accepts: to its own address, to groups it joined
/// (`ip maddr add`), or all frames if it is promiscuous.
#[derive(Debug)]
pub struct FlowMatcher {
    handle: ObjectHandle,
    direction: Direction,
    priority: u16,
    criteria: FteMatchParam,
    device: Arc<Device>,
}

impl FlowMatcher {
    /// Creates a matcher of `priority`, 0 (matched first) to 15, for received frames, whose rules match the same header
    /// fields as `example`, with values of their own. The kernel matches multicast rules (the multicast bit of the
    /// destination in both criteria and value) after all others, whatever their priority.
    ///
    /// # Errors
    /// As for [`of_direction`](Self::of_direction).
    pub fn create(device: &Arc<Device>, priority: u16, example: &FlowMatch) -> Result<Arc<Self>, Error> {
        Self::of_direction(device, Direction::Receive, priority, example)
    }

    /// As [`create`](Self::create), for frames of `direction`.
    ///
    /// # Errors
    /// [`Error::Invalid`] on an owned function, which has [`FlowTable`](super::table::FlowTable)s instead, or for an
    /// invalid priority; [`Error::Io`] if the kernel refuses.
    pub fn of_direction(
        device: &Arc<Device>,
        direction: Direction,
        priority: u16,
        example: &FlowMatch,
    ) -> Result<Arc<Self>, Error> {
        if priority > LAST_PRIORITY {
            let limit = 0..=LAST_PRIORITY.into();
            return Err(
                Invalid::out_of_range("priority", priority.into(), limit, "a flow matcher of the kernel").into()
            );
        }
        example.check()?;
        let criteria = *example.criteria();
        let wanted = Matcher {
            priority,
            sent: direction == Direction::Transmit,
            match_criteria_enable: example.enabled(),
            criteria: criteria.as_bytes(),
        };
        let handle = steering(device)?.create_matcher(&wanted)?;
        Ok(Arc::new(FlowMatcher { handle, direction, priority, criteria, device: Arc::clone(device) }))
    }

    /// Which frames it is for.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// The priority.
    pub fn priority(&self) -> u16 {
        self.priority
    }

    /// The card.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub(super) fn criteria(&self) -> &FteMatchParam {
        &self.criteria
    }

    pub(super) fn handle(&self) -> ObjectHandle {
        self.handle
    }
}

/// The kernel's steering interface for `device`.
pub(super) fn steering(device: &Device) -> Result<&dyn KernelSteering, Error> {
    device.access().kernel_steering().ok_or_else(|| {
        let (device, mend) = (device.name().into(), "make a flow table and groups of it instead");
        Invalid::WrongAccess { what: "flow matchers", device, kernel: false, mend }.into()
    })
}

impl Drop for FlowMatcher {
    fn drop(&mut self) {
        if let Err(error) = steering(&self.device).and_then(|steering| steering.destroy_matcher(self.handle)) {
            tracing::error!(%error, "a flow matcher was not ended; it stays with the kernel until the device is closed");
        }
    }
}
