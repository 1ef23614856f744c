//! vfio-user
