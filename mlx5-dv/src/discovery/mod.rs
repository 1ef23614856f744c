//! Which cards there are, how each can be reached and what stands in the way; and how a device is named.

mod interface;
mod name;
mod rdma;
mod sysfs;

pub use crate::kernel::netlink::RdmaLink;
pub use interface::{Interface, PcieLink};
pub use name::{DeviceName, DeviceNameError};
pub use rdma::{RdmaDevice, RdmaGid, RdmaPort};
pub use sysfs::{Card, Obstacle, PciAddress, Sysfs};
