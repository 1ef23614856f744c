//! Which cards there are, how each can be reached and what stands in the way; and how a device is named.

mod name;
pub mod netlink;
mod rdma;
mod sysfs;

pub use name::{DeviceName, DeviceNameError};
pub use netlink::RdmaLink;
pub use rdma::{RdmaDevice, RdmaGid, RdmaPort};
pub use sysfs::{Card, Obstacle, PciAddress, Sysfs};
