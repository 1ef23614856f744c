//! The kernel's interfaces that the driver speaks itself: numbers, structures and messages, with no knowledge of a
//! card.

pub mod abi;
pub mod ethtool;
pub mod netlink;
