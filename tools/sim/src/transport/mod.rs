//! The transport: RoCE v2 packets and the reliable connection's rules.

pub mod rc;
