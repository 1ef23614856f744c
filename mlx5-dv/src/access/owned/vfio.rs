//! vfio
