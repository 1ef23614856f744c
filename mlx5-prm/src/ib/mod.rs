//! InfiniBand packets: the headers that a RoCE v2 packet carries between UDP and its data, and management datagrams.
//!
//! Sections are those of the InfiniBand Architecture Specification, volume 1 (IBTA); fields have the names it prints.
//! Ethernet, IPv4 and UDP are not declared here. An IPv6 header has the layout of a [`Grh`].
//!
//! The [`Bth`] is first. What follows depends on its service and its operation:
//!
//! | operation | headers after the [`Bth`] |
//! | --- | --- |
//! | send | none; [`ImmDt`] with immediate data, [`Ieth`] with the key to invalidate |
//! | RDMA write | [`Reth`] in the first or only packet; [`ImmDt`] with immediate data |
//! | RDMA read request | [`Reth`] |
//! | RDMA read response | [`Aeth`], but not in the middle |
//! | acknowledge | [`Aeth`] |
//! | atomic | [`AtomicEth`] |
//! | atomic acknowledge | [`Aeth`], [`AtomicAckEth`] |
//!
//! Requests of XRC have an [`Xrceth`], datagrams a [`Deth`], before these. A congestion notification packet has a
//! [`CnpBth`] alone.
//!
//! ```
//! use mlx5_prm::ib::{Bth, BthOperation, BthService};
//! use mlx5_prm::layout::Layout;
//!
//! let mut bth = Bth::default();
//! bth.w().service(BthService::Rc).operation(BthOperation::Acknowledge).p_key(0xffff).dest_qp(0x123456).psn(7);
//! assert_eq!(bth.as_bytes(), [0x11, 0, 0xff, 0xff, 0, 0x12, 0x34, 0x56, 0, 0, 0, 7]);
//! ```

use crate::layout::files::files;

files! {
    cm: layouts values;
    mad: layouts values;
    network: layouts;
    transport: layouts values;
}
