//! ARP and IPv6 neighbour discovery for a function that this program has to itself.
//!
//! RoCE packets carry the MAC address of whoever has the remote's IP address. Where a kernel keeps a function, its network
//! stack finds that address, and answers others who look for ours; a function of our own has no such stack. [`Neighbours`]
//! is one: smoltcp on a raw Ethernet queue, driven by a thread of its own, so that data paths need not know of it. While it
//! lives it
//!
//! * answers for the function's own addresses, its link-local one and an IPv4 one, also to `ping`;
//! * finds the MAC address of others ([`Neighbours::resolve`]).
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! # let device: std::sync::Arc<mlx5_dv::Device> = unimplemented!();
//! let neighbours = mlx5_neighbours::Neighbours::start(&device, Some("10.0.0.4/24".parse().unwrap()))?;
//! let mac = neighbours.resolve("10.0.0.3".parse()?, Duration::from_secs(5))?;
//! # Ok(())
//! # }
//! ```
//!
//! # Contract
//! * Nothing here panics on what comes from the wire; every wait has a deadline.
//! * The function's root flow table is taken: one `Neighbours` a function.
//! * What is heard is believed, as with ARP everywhere: who is on the wire can lie about who has an address.
//!
//! Left out, with errors that say so: gateways (whoever is looked for must be on our network), and functions that the kernel
//! keeps.
#![forbid(unsafe_code)]

mod packets;
mod phy;
mod station;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mlx5_dv::{Device, Mac};

pub use smoltcp::wire::Ipv4Cidr;

use station::Station;

/// What can go wrong.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nobody answers for the address.
    #[error("nobody on the wire answers for {address} ({asked} requests in {} ms): is it up, and on this network?", patience.as_millis())]
    NoAnswer {
        /// The address.
        address: IpAddr,
        /// How often it was asked for.
        asked: u32,
        /// How long.
        patience: Duration,
    },
    /// The address is not on our network.
    #[error("{address} is not on {}: give an address of its network (gateways are not used)", network.map_or("any network of ours, as there is no IPv4 address".into(), |network| network.to_string()))]
    NotOnLink {
        /// The address.
        address: Ipv4Addr,
        /// Our network.
        network: Option<Ipv4Cidr>,
    },
    /// The address is no single station's.
    #[error("{0} is no station's address")]
    NotUnicast(IpAddr),
    /// The queue of frames does not work.
    #[error("no more is heard from the wire: {0}")]
    Deaf(String),
}

/// The address in a GID: an IPv4 address that is mapped (::ffff:a.b.c.d), or the IPv6 address that it is.
pub fn address_of(gid: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(gid).to_canonical()
}

/// A small network stack on a function of our own. Dropped, it answers no more.
#[derive(Debug)]
pub struct Neighbours {
    shared: Arc<Shared>,
    network: Option<Ipv4Cidr>,
    thread: Option<JoinHandle<()>>,
}

/// What its thread and its users have in common.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Something was learned, or nothing will be any more.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Who has which address, as last heard.
    known: HashMap<IpAddr, Mac>,
    /// What is looked for, and how often it was asked for.
    wanted: HashMap<IpAddr, u32>,
    /// Why the thread has ended.
    ended: Option<String>,
    /// The thread is to end.
    stop: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Addresses that are remembered: those heard last may be forgotten once there are more.
const REMEMBERED: usize = 1024;

impl State {
    fn learn(&mut self, address: IpAddr, mac: Mac) {
        if self.known.len() >= REMEMBERED && !self.known.contains_key(&address) {
            self.known.clear();
        }
        self.known.insert(address, mac);
    }
}

impl Neighbours {
    /// Answers from now on for `device`'s link-local address, and for `ipv4`, whose network is that of the prefix. The GID of the
    /// latter is [`mlx5_dv::Options::ipv4`]'s business.
    ///
    /// # Errors
    /// Those of [`EthernetQueue`](mlx5_dv::queue::ethernet::EthernetQueue): the kernel keeps the function, the card has no
    /// raw Ethernet queues, the function's root flow table is taken.
    pub fn start(device: &Arc<Device>, ipv4: Option<Ipv4Cidr>) -> Result<Self, mlx5_dv::Error> {
        let mut station = Station::new(device, ipv4)?;
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let run = move || {
            let ended = station.run(&theirs).err().map_or_else(String::new, |error| error.to_string());
            if !ended.is_empty() {
                tracing::warn!(ended, "nobody answers for the function's addresses any more");
            }
            theirs.lock().ended = Some(ended);
            theirs.changed.notify_all();
        };
        let thread = std::thread::Builder::new().name("neighbours".into()).spawn(run);
        let thread = thread.map_err(|error| mlx5_dv::Error::io("starting a thread for ARP", error))?;
        Ok(Neighbours { shared, network: ipv4, thread: Some(thread) })
    }

    /// The MAC address of who has `address`: as last heard, or asked for until `patience` is over.
    ///
    /// # Errors
    /// [`Error::NoAnswer`], [`Error::NotOnLink`], [`Error::NotUnicast`]; [`Error::Deaf`] where the card died.
    pub fn resolve(&self, address: IpAddr, patience: Duration) -> Result<Mac, Error> {
        self.check(address)?;
        let begin = Instant::now();
        let mut state = self.shared.lock();
        loop {
            if let Some(mac) = state.known.get(&address).copied() {
                state.wanted.remove(&address);
                return Ok(mac);
            }
            if let Some(ended) = &state.ended {
                return Err(Error::Deaf(ended.clone()));
            }
            let left = patience.saturating_sub(begin.elapsed());
            if left.is_zero() {
                let asked = state.wanted.remove(&address).unwrap_or(0);
                return Err(Error::NoAnswer { address, asked, patience });
            }
            state.wanted.entry(address).or_default();
            state = match self.shared.changed.wait_timeout(state, left) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    fn check(&self, address: IpAddr) -> Result<(), Error> {
        match address {
            IpAddr::V4(address) => match self.network {
                Some(network) if network.contains_addr(&address) => Ok(()),
                network => Err(Error::NotOnLink { address, network }),
            },
            _ if address.is_multicast() || address.is_unspecified() => Err(Error::NotUnicast(address)),
            IpAddr::V6(_) => Ok(()),
        }
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
