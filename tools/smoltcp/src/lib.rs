//! Raw Ethernet queues as network devices of [smoltcp], a TCP/IP stack in user space.
//!
//! [`Phy`] is a [`smoltcp::phy::Device`]. It receives by an [`EthernetQueue`], or by a [`StridingQueue`], plain or with
//! compressed completions, and sends by an [`EthernetQueue`]. smoltcp reads frames where the card wrote them, and
//! writes them where the card reads them: nothing is copied. The card computes the checksums of what is sent.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use mlx5_smoltcp::{Phy, PhyOptions};
//! use smoltcp::iface::{Config, Interface, SocketSet};
//! use smoltcp::time::Instant;
//! # let device: std::sync::Arc<mlx5_dv::Device> = unimplemented!();
//! let mut phy = Phy::listen(&device, &[], PhyOptions::default())?;
//! let address = smoltcp::wire::EthernetAddress(device.mac().0);
//! let mut interface = Interface::new(Config::new(address.into()), &mut phy, Instant::now());
//! interface.update_ip_addrs(|addresses| addresses.push("10.0.0.4/24".parse().unwrap()).unwrap());
//! let mut sockets = SocketSet::new(vec![]); // sockets of TCP, UDP, ICMP ...
//! loop {
//!     interface.poll(Instant::now(), &mut phy, &mut sockets);
//!     phy.wait(Duration::from_millis(10))?;
//! }
//! # }
//! ```
//!
//! # Contract
//! * No system call, lock or allocation for a frame; [`Phy::wait`] sleeps.
//! * A queue that fails is reset, and the log says so: frames in flight are lost, as on a wire. An error that is not
//!   mended that way ends [`Phy::wait`].
//! * What smoltcp sends while no buffer is free is dropped and [counted](Phy::dropped).
//!
//! [`EthernetQueue`]: mlx5_dv::queue::ethernet::EthernetQueue
//! [`StridingQueue`]: mlx5_dv::queue::ethernet::StridingQueue
#![forbid(unsafe_code)]

mod offload;
mod phy;
mod sender;
mod source;

pub use phy::{Phy, PhyOptions, RxFrame, TxSlot};
