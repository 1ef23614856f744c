//! Raw packets: frames of Ethernet out of send queues and into receive queues, through no connection.
//!
//! The contract is that of [`queue`](super): one thread a queue, no system call, lock or allocation, nothing believed.
//! [`EthernetSendQueue`] and [`EthernetReceiveQueue`] take frames by address and key, which is `unsafe`;
//! [`EthernetQueue`] has one of each, owns the buffers that are with the card, and hears what it is told to.
//!
//! A frame begins with its Ethernet header and ends before its check sequence, which the port adds and takes off, as it
//! does with what a short frame is filled up with. Completions are those of queue pairs, with
//! [`Work::qpn`](super::Work::qpn) the number of the send or receive queue.

pub use super::owning::ethernet::{EthernetOptions, EthernetQueue};
pub use super::receive::ethernet::EthernetReceiveQueue;
pub use super::send::ethernet::{EthernetSendBatch, EthernetSendQueue, FrameFlags, Frames};
