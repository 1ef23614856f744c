//! Over the vfio-user protocol.
