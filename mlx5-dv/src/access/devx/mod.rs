//! Reaching a function through the kernel's DevX ioctls, while the kernel's mlx5_ib keeps it.

use std::sync::Arc;

use crate::Device;
use crate::error::Error;

/// Opens the kernel's RDMA device `name`, such as `mlx5_0`.
pub fn open(name: &str) -> Result<Arc<Device>, Error> {
    Err(Error::NotBuilt {
        what: format!("access through the kernel's own driver (devx:{name})"),
        instead: "bind the card to vfio-pci and open it as vfio:ADDRESS, or use sim".into(),
    })
}
