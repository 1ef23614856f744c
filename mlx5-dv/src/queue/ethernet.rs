//! Raw packet queues: Ethernet frames, without a connection.
//!
//! The contract is that of [`queue`](super): one thread per queue; no system call, lock or allocation; nothing from the
//! card is trusted. [`EthernetSendQueue`] and [`EthernetReceiveQueue`] take frames by address and key, which is
//! `unsafe`. [`EthernetQueue`] has one of each, owns the buffers in flight, and configures steering; [`Spread`] spreads
//! frames over several of them. [`StridingQueue`] receives into large buffers, many frames to one, without a copy.
//!
//! A frame starts with its Ethernet header and ends before the FCS, which the port adds and strips, as it does with
//! padding of short frames. [`FrameCompletion`] says what the card found out about a received one. In completions
//! [`Work::qpn`](super::Work::qpn) is the number of the send or receive queue.

pub use super::completion::decode::{FrameCompletion, RssHash};
pub use super::completion::joined::JoinedSegments;
pub use super::owning::batch::ConnectionReceives as FrameReceives;
pub use super::owning::ethernet::{EthernetOptions, EthernetQueue, ReceivedFrame};
pub use super::owning::forward::{ForwardBatch, ForwardError, Forwarder};
pub use super::owning::frame_batch::FrameBatch;
pub use super::owning::meter_writer::MeterWriter;
pub use super::owning::spread::{Spread, SpreadOptions};
pub use super::owning::striding::{Burst, Packet, PacketError, Receives, StridingOptions, StridingQueue};
pub use super::receive::ethernet::EthernetReceiveQueue;
pub use super::receive::striding::{Strided, StridingReceiveQueue};
pub use super::send::ethernet::{EthernetSendBatch, EthernetSendQueue, FrameFlags, Frames};
pub use super::send::multi_packet::{FrameCopies, FramePointers};
