//! Which cards there are, how each can be reached and what stands in the way; and how a device is named.

mod name;
mod sysfs;

pub use name::{DeviceName, DeviceNameError};
pub use sysfs::{Card, Obstacle, PciAddress, Sysfs};
