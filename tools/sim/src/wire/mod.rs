//! The wire: ports, frames, and links to other processes.
//!
//! Each function has a [`Port`]. A frame to the port's own address is looped back. Others wait until the card delivers
//! them to its other functions, like an embedded switch, or to an [`Uplink`], the link to other processes. Between
//! functions packets are not encoded, only for an uplink or a [capture](PcapWriter).

mod counters;
mod frame;
mod pcap;
mod port;
mod uplink;

pub use counters::{BothWays, ByAddress, PhysicalCounters, PortCounters, Traffic};
pub use frame::Frame;
pub use pcap::{Capture, PcapWriter};
#[cfg(test)]
pub(crate) use port::ROOM;
pub use port::{Own, Port, Sender};
pub use uplink::{SocketUplink, Uplink};
