//! Steering of received frames where the kernel keeps the function.

use std::sync::Arc;

use mlx5_prm::flow::FteMatchSetLyr24;
use mlx5_prm::layout::Layout;

use super::criteria::enabled;
use crate::access::{KernelSteering, Matcher, ObjectHandle};
use crate::device::Device;
use crate::error::{Error, Invalid};

/// The least urgent priority that the kernel has for a matcher.
const LAST_PRIORITY: u16 = 15;

/// Rules that look at the same bits of a frame, where the kernel keeps the function (`devx:`): what a flow group is on
/// a function of our own. libibverbs' `mlx5dv_flow_matcher`.
///
/// The kernel has the flow tables, and puts rules there before those of its network device: a frame that one takes
/// comes to us alone, all others go on to the kernel. It chooses table and entry; there are no levels, sizes or roots,
/// and rules lead to a [`Tir`](crate::objects::Tir) only. Frames come as far as the card lets them in for the kernel's
/// interface: its own address, groups that it joined (`ip maddr add`), everything where it is promiscuous.
#[derive(Debug)]
pub struct FlowMatcher {
    handle: ObjectHandle,
    priority: u16,
    criteria: FteMatchSetLyr24,
    device: Arc<Device>,
}

impl FlowMatcher {
    /// A new matcher of `priority`, 0 (asked first) to 15, whose rules look at the bits of the outer headers that
    /// `criteria` has set. Rules for groups alone (a multicast destination, and its bit looked at) come after all
    /// others, whatever their priority: so the kernel has it.
    ///
    /// # Errors
    /// [`Error::Invalid`] on a function of our own, which has [`FlowTable`](super::table::FlowTable)s, or for another
    /// priority; [`Error::Io`] says what the kernel wants.
    pub fn create(device: &Arc<Device>, priority: u16, criteria: &FteMatchSetLyr24) -> Result<Arc<Self>, Error> {
        if priority > LAST_PRIORITY {
            let limit = 0..=LAST_PRIORITY.into();
            return Err(
                Invalid::out_of_range("priority", priority.into(), limit, "a flow matcher of the kernel").into()
            );
        }
        let wanted = Matcher { priority, match_criteria_enable: enabled(criteria), criteria: criteria.as_bytes() };
        let handle = steering(device)?.create_matcher(&wanted)?;
        Ok(Arc::new(FlowMatcher { handle, priority, criteria: *criteria, device: Arc::clone(device) }))
    }

    /// Its priority.
    pub fn priority(&self) -> u16 {
        self.priority
    }

    /// The card.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub(super) fn criteria(&self) -> &FteMatchSetLyr24 {
        &self.criteria
    }

    pub(super) fn handle(&self) -> ObjectHandle {
        self.handle
    }
}

/// How the kernel is asked to steer frames of `device`.
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
