//! Reaching a function through the kernel's DevX ioctls, while the kernel's mlx5_ib keeps it.

use std::sync::Arc;

use crate::access::Access;
use crate::error::Error;

/// Opens the kernel's RDMA device `name`, such as `mlx5_0`.
pub fn open(name: &str) -> Result<Arc<dyn Access>, Error> {
    Err(Error::NotBuilt(format!(
        "access to {name} through the kernel (devx:); to drive the card today, bind it to vfio-pci and open it as vfio:BDF, or use sim; this"
    )))
}
