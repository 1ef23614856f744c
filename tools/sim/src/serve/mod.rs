//! Serving functions to clients: [in this process](in_process), or [over vfio-user](vfio_user).

pub mod in_process;
pub mod vfio_user;
