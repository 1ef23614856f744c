//! MAC addresses of remote IP addresses: RoCE packets carry them.
//!
//! For a function bound to a kernel driver, the kernel resolves remote addresses and answers requests for local ones:
//! [`kernel::resolve`] asks it. An owned function has no kernel stack; [`Neighbours`] replaces it by ARP and IPv6
//! neighbour discovery: smoltcp on a raw Ethernet queue, run by its own thread, apart from the data path. While it
//! exists it
//!
//! * answers ARP, neighbour solicitations and `ping` for the function's link-local address and one of its own;
//! * resolves the MAC addresses of others ([`Neighbours::resolve`]);
//! * tells switches and routers, by IGMP and MLD, of the multicast groups that the function is in
//!   ([`Neighbours::join`]).
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! # let device: std::sync::Arc<mlx5_dv::Device> = unimplemented!();
//! let neighbours = mlx5_neighbours::Neighbours::start(&device, Some("10.0.0.4/24,10.0.0.1".parse()?))?;
//! let mac = neighbours.resolve("10.0.0.3".parse()?, Duration::from_secs(5))?;
//! # Ok(())
//! # }
//! ```
//!
//! # Contract
//! * No packet causes a panic; every wait has a deadline.
//! * It occupies the function's root flow table: one `Neighbours` per function.
//! * Replies are not authenticated, as with ARP everywhere.
//!
//! Addresses beyond the local network are behind the gateway of its [`Network`]; without one the error says so. The
//! kernel's routes and gateways are used for its functions.
#![forbid(unsafe_code)]

mod error;
pub mod groups;
pub mod kernel;
mod network;
pub mod packets;
mod shared;
mod stack;

use std::net::IpAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mlx5_dv::objects::AddressPath;
use mlx5_dv::{Device, Mac};

pub use error::Error;
pub use mlx5_dv::address_of;
pub use network::Network;
pub use smoltcp::wire::{IpCidr, Ipv4Cidr, Ipv6Cidr};

use shared::Shared;
use stack::Stack;

/// Whether the driver derives the MAC address in packets of `device` to `gid` by itself: where that is link-local, or
/// the device's own.
pub fn is_derived(device: &Device, gid: [u8; 16]) -> bool {
    AddressPath::link_local(gid).is_some() || device.gids().iter().any(|own| own.address.octets() == gid)
}

/// A small network stack on an owned function. Runs until it is dropped.
#[derive(Debug)]
pub struct Neighbours {
    shared: Arc<Shared>,
    network: Option<Network>,
    thread: Option<JoinHandle<()>>,
}

impl Neighbours {
    /// Starts the stack with `device`'s link-local address and that of `network`. The GID of the latter is set by
    /// [`mlx5_dv::Options::ip`].
    ///
    /// # Errors
    /// Those of [`EthernetQueue`](mlx5_dv::queue::ethernet::EthernetQueue): the function is the kernel's, the card has
    /// no raw Ethernet queues, or the root flow table is in use.
    pub fn start(device: &Arc<Device>, network: Option<Network>) -> Result<Self, mlx5_dv::Error> {
        let mut stack = Stack::new(device, network.map(|network| network.cidr()))?;
        let shared = Arc::new(Shared::default());
        let thread_shared = Arc::clone(&shared);
        let run = move || {
            let ended = stack.run(&thread_shared).err().map_or_else(String::new, |error| error.to_string());
            if !ended.is_empty() {
                tracing::warn!(ended, "ARP and neighbour discovery have stopped");
            }
            thread_shared.lock().ended = Some(ended);
            thread_shared.changed.notify_all();
        };
        let thread = std::thread::Builder::new().name("neighbours".into()).spawn(run);
        let thread = thread.map_err(|error| mlx5_dv::Error::io("starting a thread for ARP", error))?;
        Ok(Neighbours { shared, network, thread: Some(thread) })
    }

    /// As [`start`](Self::start) on a function that this process owns; otherwise nothing, as the kernel does all of it.
    pub fn start_if_owned(device: &Arc<Device>, network: Option<Network>) -> Result<Option<Self>, mlx5_dv::Error> {
        device.is_owned().then(|| Neighbours::start(device, network)).transpose()
    }

    /// The MAC address by which `address` is reached, its own or the gateway's: from the cache, or by requests for up
    /// to `patience`.
    ///
    /// # Errors
    /// [`Error::NoAnswer`], [`Error::NotOnLink`], [`Error::NotUnicast`]; [`Error::Queue`] if the card died.
    pub fn resolve(&self, address: IpAddr, patience: Duration) -> Result<Mac, Error> {
        let next_hop = self.next_hop(address)?;
        let begin = Instant::now();
        let mut state = self.shared.lock();
        loop {
            if let Some(mac) = state.known.get(&next_hop).copied() {
                state.wanted.remove(&next_hop);
                return Ok(mac);
            }
            state.check()?;
            let left = patience.saturating_sub(begin.elapsed());
            if left.is_zero() {
                let asked = state.wanted.remove(&next_hop).unwrap_or(0);
                return Err(Error::NoAnswer { address, next_hop, asked, patience });
            }
            state.wanted.entry(next_hop).or_default();
            state = match self.shared.changed.wait_timeout(state, left) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    /// The MAC address by which `address` is reached if it is known. If not, requests go out until it is, or until
    /// [`forget`](Self::forget): ask again. Does not block.
    ///
    /// # Errors
    /// [`Error::NotOnLink`], [`Error::NotUnicast`]; [`Error::Queue`] if the card died.
    pub fn look_up(&self, address: IpAddr) -> Result<Option<Mac>, Error> {
        let next_hop = self.next_hop(address)?;
        let mut state = self.shared.lock();
        if let Some(mac) = state.known.get(&next_hop).copied() {
            state.wanted.remove(&next_hop);
            return Ok(Some(mac));
        }
        state.check()?;
        state.wanted.entry(next_hop).or_default();
        Ok(None)
    }

    /// Sends no more requests for `address`, or for the gateway to it.
    pub fn forget(&self, address: IpAddr) {
        if let Ok(next_hop) = self.next_hop(address) {
            self.shared.lock().wanted.remove(&next_hop);
        }
    }

    /// Tells the network that the function is in the multicast group `group`, until the return value is dropped.
    /// Switches that watch membership forward its packets then, and routers do. IGMP version 2 or MLD version 1;
    /// queries are answered. Queue pairs of the function hear the group by
    /// [`Membership`](mlx5_dv::objects::Membership).
    ///
    /// # Errors
    /// [`Error::NotMulticast`]; [`Error::Queue`] if the card died.
    pub fn join(&self, group: IpAddr) -> Result<Joined, Error> {
        if !group.is_multicast() {
            return Err(Error::NotMulticast(group));
        }
        let mut state = self.shared.lock();
        state.check()?;
        state.join(group);
        Ok(Joined { shared: Arc::clone(&self.shared), group })
    }

    /// Whose MAC address packets to `address` carry.
    fn next_hop(&self, address: IpAddr) -> Result<IpAddr, Error> {
        match address {
            _ if address.is_multicast() || address.is_unspecified() => Err(Error::NotUnicast(address)),
            IpAddr::V6(link_local) if link_local.is_unicast_link_local() => Ok(address),
            _ => {
                let next_hop = self.network.and_then(|network| network.next_hop(address));
                next_hop.ok_or(Error::NotOnLink { address, network: self.network.map(|network| network.cidr()) })
            }
        }
    }
}

/// The network is told that the function is in a multicast group. Dropping it tells that it has left, unless
/// [`Neighbours`] has ended before.
#[derive(Debug)]
pub struct Joined {
    shared: Arc<Shared>,
    group: IpAddr,
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.shared.lock().leave(self.group);
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that answers ARP panicked");
        }
    }
}
