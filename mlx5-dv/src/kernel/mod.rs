//! Kernel interfaces that the driver uses directly: constants, structures and messages, independent of any card.

pub mod abi;
pub mod ethtool;
pub mod netlink;
pub mod rdma_cm;
