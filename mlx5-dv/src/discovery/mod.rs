//! Which cards there are, and how a device is named.

/// Why a device string names nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DeviceNameError(pub String);
