//! How clients reach a function.

pub mod in_process;
pub mod vfio_user;
