//! Ceph's messenger over RDMA (`ms_type = async+rdma`) in user space: a pattern to copy for byte streams over RDMA, and
//! for protocols above them.
//!
//! Three layers, each usable by itself:
//!
//! * [`stack`]: byte streams over the connections of one [`Hub`](mlx5_dv::queue::Hub): one shared receive queue of
//!   chunks for all of them, sends from registered chunks, back-pressure, FIN and beacon, and Ceph's exchange over TCP.
//! * [`msgr2`]: what is said over a stream, without the stream: banner, hello, authentication none, sessions, messages,
//!   acknowledgements, keep-alives.
//! * [`Messenger`]: sessions over streams, which are made again when they break.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use mlx5_ceph::{Event, Messenger, MessengerOptions, msgr2::Message, wire::OsdOp};
//!
//! # type Failure = Box<dyn std::error::Error>;
//! # fn f(device: &Arc<mlx5_dv::Device>) -> Result<(), Failure> {
//! let mut messenger = Messenger::new(device, MessengerOptions::client(1))?;
//! let peer = messenger.connect("10.0.0.1:6800".parse()?)?;
//! let op = OsdOp { object: "object-name".into(), pool: 1, tid: 1, bytes: 5 };
//! messenger.send(peer, Message::new(op.header(), op.encode(), b"hello".to_vec().into()))?;
//! loop {
//!     messenger.poll()?;
//!     if let Some(Event::Message(from, message)) = messenger.next_event() {
//!         assert_eq!((from, message.header.tid), (peer, 1));
//!         return Ok(());
//!     }
//! }
//! # }
//! ```
//!
//! Everything here is safe code on [`mlx5_dv`]; it knows no work queue entries. Every number is from Ceph 18.2, whose
//! file is named where it stands.
//!
//! Not supported: authentication other than none, encryption, compression, version 1 of the messenger, RDMA CM.
#![forbid(unsafe_code)]

mod messenger;

pub mod msgr2;
pub mod stack;
pub mod wire;

pub use messenger::{Event, Messenger, MessengerError, MessengerOptions, PeerId, Statistics, Trouble, Unsent};
