//! Lists cards and how each can be opened, with obstacles and fixes; parses device strings.

mod interface;
mod name;
mod rdma;
mod sysfs;

pub use crate::kernel::netlink::RdmaLink;
pub use interface::{Interface, PcieLink};
pub use name::{DeviceName, DeviceNameError};
pub use rdma::{RdmaDevice, RdmaGid, RdmaPort};
pub use sysfs::{Card, Obstacle, PciAddress, Sysfs};
