//! The wire: ports, what travels between them, and the ways out of the process.
//!
//! Each function has a [`Port`]. What a port sends to its own address comes back at once; the rest waits until the card
//! hands it to its other functions, as an embedded switch does, or to an [`Uplink`], the way out of the process.
//! Between functions packets travel as they are; bytes are made only for an uplink and for a [capture](PcapWriter).

mod counters;
mod frame;
mod pcap;
mod port;
mod uplink;

pub use counters::{BothWays, ByAddress, PhysicalCounters, PortCounters, Traffic};
pub use frame::Frame;
pub use pcap::PcapWriter;
#[cfg(test)]
pub(crate) use port::ROOM;
pub use port::{Own, Port, Sender};
pub use uplink::{SocketUplink, Uplink};
