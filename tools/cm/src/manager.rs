//! The connection manager, whoever owns the function.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use mlx5_dv::Device;
use mlx5_dv::clock::Clock;
use mlx5_dv::objects::{AddressPath, QueuePair, RtrAttributes, RtsAttributes};
use mlx5_neighbours::{Neighbours, Network};
use mlx5_prm::ib::CmRejectReason;

use crate::error::ManagerError;
use crate::kernel::KernelManager;
use crate::machine::{Agreed, Config, ConnectionId, Event, Parameters, Route, State};
use crate::message::Service;
use crate::owned::OwnedManager;

/// Connects queue pairs by IP address and port. See the [crate].
///
/// [`poll`](Self::poll) and [`wait`](Self::wait) return events. On an owned function only they send, answer and
/// retransmit messages; on `devx:` the kernel does so.
#[derive(Debug)]
pub struct ConnectionManager {
    way: Way,
    /// Queue pairs of connections that have ended: see [`keep`](Self::keep).
    kept: BTreeMap<ConnectionId, Arc<QueuePair>>,
}

#[derive(Debug)]
enum Way {
    Owned(Box<OwnedManager>),
    Kernel(Box<KernelManager>),
}

/// The same call of either.
macro_rules! either {
    ($way:expr, $manager:ident => $call:expr) => {
        match $way {
            Way::Owned($manager) => $call,
            Way::Kernel($manager) => $call,
        }
    };
}

impl ConnectionManager {
    /// Creates a connection manager of `device`: on its queue pair 1, or on `devx:` a file of the kernel's.
    /// `neighbours` resolves MAC addresses for an owned function; without it, only link-local addresses and those of
    /// the function itself can be reached. On `devx:` the kernel resolves them.
    ///
    /// # Errors
    /// [`ManagerError::Device`] if queue pair 1 is in use, or there is no memory; [`ManagerError::NoKernel`] on
    /// `devx:`.
    pub fn new(device: &Arc<Device>, neighbours: Option<Neighbours>) -> Result<Self, ManagerError> {
        let [a, b, c, d, e, f] = device.mac().0;
        // EUI-64, as Linux derives a node's GUID.
        let ca_guid = u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f]);
        let config = Config { ca_guid, seed: seed(device.clock()), ..Config::default() };
        Self::with_config(device, neighbours, config)
    }

    /// As [`new`](Self::new), with [`Neighbours`] of its own on an owned function: these answer for `network`, too.
    ///
    /// # Errors
    /// As for [`new`](Self::new) and [`Neighbours::start`].
    pub fn start(device: &Arc<Device>, network: Option<Network>) -> Result<Self, ManagerError> {
        Self::new(device, Neighbours::start_if_owned(device, network)?)
    }

    /// As [`new`](Self::new), with `config`. On `devx:` the kernel has times and GUIDs of its own; the limits of
    /// connections and requests count, and the program's patience.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn with_config(
        device: &Arc<Device>,
        neighbours: Option<Neighbours>,
        config: Config,
    ) -> Result<Self, ManagerError> {
        let way = match device.is_owned() {
            true => Way::Owned(Box::new(OwnedManager::new(device, neighbours, config)?)),
            false => Way::Kernel(Box::new(KernelManager::new(device, config)?)),
        };
        Ok(ConnectionManager { way, kept: BTreeMap::new() })
    }

    /// Its [`Neighbours`], which also tell the network of multicast groups ([`Group::join`](crate::Group::join)).
    pub fn neighbours(&self) -> Option<&Neighbours> {
        match &self.way {
            Way::Owned(manager) => manager.neighbours(),
            Way::Kernel(_) => None,
        }
    }

    /// Listens on `service`: its requests become events. On `devx:` on all addresses of the function's own interfaces,
    /// as of when the device was opened.
    ///
    /// # Errors
    /// [`CallError::InUse`](crate::CallError::InUse).
    pub fn listen(&mut self, service: Service) -> Result<(), ManagerError> {
        either!(&mut self.way, manager => manager.listen(service))
    }

    /// Stops listening on `service`: later requests are rejected; those already reported stay.
    ///
    /// # Errors
    /// [`CallError::NotListening`](crate::CallError::NotListening).
    pub fn close(&mut self, service: Service) -> Result<(), ManagerError> {
        either!(&mut self.way, manager => manager.close(service))
    }

    /// Requests a connection to port `remote`. [`Event::ConnectResponse`], `Rejected` or `Unreachable` follows.
    ///
    /// On `devx:` the kernel chooses path MTU, hop limit and service level, and the first PSN:
    /// [`attributes`](Self::attributes) has them.
    ///
    /// # Errors
    /// [`ManagerError::NoGid`]; [`CallError`](crate::CallError); [`ManagerError::KernelLacks`] for what the kernel does
    /// not offer.
    pub fn connect(
        &mut self,
        remote: SocketAddr,
        route: Route,
        parameters: &Parameters,
    ) -> Result<ConnectionId, ManagerError> {
        either!(&mut self.way, manager => manager.connect(remote, route, parameters))
    }

    /// Requests the queue pair and Q_Key of port `remote`, for datagrams. [`Event::Resolved`], `Unresolved` or
    /// `Unreachable` follows.
    ///
    /// # Errors
    /// [`ManagerError::NoGid`], and [`CallError`](crate::CallError).
    pub fn resolve(&mut self, remote: SocketAddr, private_data: &[u8]) -> Result<ConnectionId, ManagerError> {
        either!(&mut self.way, manager => manager.resolve(remote, private_data))
    }

    /// Accepts a request. The offer limits `responder_resources` and `initiator_depth`. [`Event::Established`],
    /// `Rejected` or `Unreachable` follows. The queue pair must be in RTS: the remote may send as soon as it receives
    /// the reply.
    ///
    /// # Errors
    /// [`CallError`](crate::CallError).
    pub fn accept(&mut self, id: ConnectionId, parameters: &Parameters) -> Result<(), ManagerError> {
        either!(&mut self.way, manager => manager.accept(id, parameters))
    }

    /// Call this when the queue pair of a connection that the remote accepted is in RTS. Both sides may then send.
    ///
    /// # Errors
    /// [`CallError`](crate::CallError); [`ManagerError::KernelLacks`] for private data on `devx:`.
    pub fn ready(&mut self, id: ConnectionId, private_data: &[u8]) -> Result<(), ManagerError> {
        either!(&mut self.way, manager => manager.ready(id, private_data))
    }

    /// Call this when a message arrived on the queue pair of an accepted connection before the RTU, which was lost or
    /// is late. [`Event::Established`] follows. In other states it has no effect.
    ///
    /// # Errors
    /// [`CallError`](crate::CallError).
    pub fn communication_established(&mut self, id: ConnectionId) -> Result<(), ManagerError> {
        either!(&mut self.way, manager => manager.communication_established(id))
    }

    /// Rejects a request or a reply, for reasons of the program's own, which `private_data` may tell. This ends the
    /// connection.
    ///
    /// # Errors
    /// [`CallError`](crate::CallError).
    pub fn reject(&mut self, id: ConnectionId, private_data: &[u8]) -> Result<(), ManagerError> {
        self.reject_for(id, CmRejectReason::ConsumerDefined, private_data)
    }

    /// As [`reject`](Self::reject), for another reason.
    ///
    /// # Errors
    /// [`CallError`](crate::CallError); [`ManagerError::KernelLacks`] on `devx:` for a reason other than the program's
    /// and `VendorOptionNotSupported`.
    pub fn reject_for(
        &mut self,
        id: ConnectionId,
        reason: CmRejectReason,
        private_data: &[u8],
    ) -> Result<(), ManagerError> {
        either!(&mut self.way, manager => manager.reject(id, reason, private_data))
    }

    /// Tells the remote that the answer takes up to 4.096 us * 2^`service_timeout` longer; 5 bits. On `devx:` it has no
    /// effect: the kernel tells the remote by itself.
    ///
    /// # Errors
    /// [`CallError`](crate::CallError).
    pub fn delay(&mut self, id: ConnectionId, service_timeout: u8) -> Result<(), ManagerError> {
        either!(&mut self.way, manager => manager.delay(id, service_timeout))
    }

    /// Ends a connection. [`Event::Disconnected`] and `TimewaitExit` follow.
    ///
    /// # Errors
    /// [`CallError`](crate::CallError); [`ManagerError::KernelLacks`] for private data on `devx:`.
    pub fn disconnect(&mut self, id: ConnectionId, private_data: &[u8]) -> Result<(), ManagerError> {
        either!(&mut self.way, manager => manager.disconnect(id, private_data))
    }

    /// Destroys a connection in any state: the remote is told, and no event follows.
    ///
    /// # Errors
    /// [`CallError::Unknown`](crate::CallError::Unknown).
    pub fn destroy(&mut self, id: ConnectionId) -> Result<(), ManagerError> {
        self.kept.remove(&id);
        either!(&mut self.way, manager => manager.destroy(id))
    }

    /// Answers an [`Event::ResolveRequest`] with queue pair `qpn` and its Q_Key. This ends the request.
    ///
    /// # Errors
    /// [`CallError`](crate::CallError).
    pub fn answer(&mut self, id: ConnectionId, qpn: u32, qkey: u32, private_data: &[u8]) -> Result<(), ManagerError> {
        either!(&mut self.way, manager => manager.answer(id, qpn, qkey, private_data))
    }

    /// Refuses an [`Event::ResolveRequest`]. This ends the request.
    ///
    /// # Errors
    /// [`CallError`](crate::CallError).
    pub fn refuse_request(&mut self, id: ConnectionId, private_data: &[u8]) -> Result<(), ManagerError> {
        either!(&mut self.way, manager => manager.refuse_request(id, private_data))
    }

    /// Attributes of the queue pair's transitions from INIT to RTR and from RTR to RTS, as both sides agreed on. For a
    /// request that is not accepted yet they follow its offer. `rq_psn` is the kernel's choice on `devx:`; on an owned
    /// function it is 0 for such a request, and a program that accepts with another [`Parameters::psn`] sets it.
    ///
    /// # Errors
    /// [`CallError::Unknown`](crate::CallError::Unknown); [`ManagerError::NoMac`] or [`ManagerError::Neighbour`] after
    /// three seconds, if the remote's MAC address cannot be resolved.
    pub fn attributes(&self, id: ConnectionId) -> Result<(RtrAttributes, RtsAttributes), ManagerError> {
        either!(&self.way, manager => manager.attributes(id))
    }

    /// Path of datagrams to `remote`, once its queue pair is [resolved](Self::resolve).
    ///
    /// # Errors
    /// [`ManagerError::NoGid`]; [`ManagerError::NoMac`] or [`ManagerError::Neighbour`] after three seconds.
    pub fn path(&self, remote: IpAddr) -> Result<AddressPath, ManagerError> {
        either!(&self.way, manager => manager.path(remote))
    }

    /// Does what there is to do. Returns the next event.
    ///
    /// # Errors
    /// [`ManagerError::Device`]: the card failed or was removed; [`ManagerError::Kernel`].
    pub fn poll(&mut self) -> Result<Option<(ConnectionId, Event)>, ManagerError> {
        let next = either!(&mut self.way, manager => manager.poll())?;
        Ok(next.inspect(|(id, event)| self.forget(*id, event)))
    }

    /// Waits for the next event, at most `timeout`.
    ///
    /// # Errors
    /// [`ManagerError::Timeout`], and those of [`poll`](Self::poll).
    pub fn wait(&mut self, timeout: Duration) -> Result<(ConnectionId, Event), ManagerError> {
        let (id, event) = either!(&mut self.way, manager => manager.wait(timeout))?;
        self.forget(id, &event);
        Ok((id, event))
    }

    /// Keeps `qp`, the queue pair of a connection that has ended, until the connection is forgotten: until its last
    /// event, or [`destroy`](Self::destroy). Until then packets of the connection may be under way, and no other queue
    /// pair should get its number. Has no effect for a connection that is forgotten. The queue pair of one that was
    /// destroyed before is held until the next call that finds the connection forgotten.
    pub fn keep(&mut self, id: ConnectionId, qp: &Arc<QueuePair>) {
        // No event tells when a destroyed connection is forgotten.
        let way = &self.way;
        self.kept.retain(|id, _| either!(way, manager => manager.state(*id)).is_some());
        if self.state(id).is_some() {
            self.kept.insert(id, Arc::clone(qp));
        }
    }

    fn forget(&mut self, id: ConnectionId, event: &Event) {
        if event.is_last() {
            self.kept.remove(&id);
        }
    }

    /// The descriptor for epoll and its like: readable when there is something to do, after
    /// [`prepare_sleep`](Self::prepare_sleep).
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        either!(&self.way, manager => manager.fd())
    }

    /// Prepares for a sleep on [`fd`](Self::fd). `None`: do not sleep, [`poll`](Self::poll) has an event. Otherwise
    /// sleep until the descriptor is readable, but no longer than this: then something is due. Poll afterwards.
    ///
    /// ```no_run
    /// # use std::{io, time::Duration};
    /// # fn epoll(limit: Duration) -> io::Result<()> { Ok(()) }
    /// # fn f(manager: &mut mlx5_cm::ConnectionManager) -> Result<(), Box<dyn std::error::Error>> {
    /// loop {
    ///     while let Some((id, event)) = manager.poll()? {
    ///         println!("{id:?}: {event:?}");
    ///     }
    ///     if let Some(limit) = manager.prepare_sleep()? {
    ///         epoll(limit)?; // on manager.fd() and others
    ///     }
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`poll`](Self::poll).
    pub fn prepare_sleep(&mut self) -> Result<Option<Duration>, ManagerError> {
        either!(&mut self.way, manager => manager.prepare_sleep())
    }

    /// State of a connection; `None` after its end.
    pub fn state(&self, id: ConnectionId) -> Option<State> {
        either!(&self.way, manager => manager.state(id))
    }

    /// What both sides agreed on. It is final after [`Event::ConnectResponse`] or [`accept`](Self::accept).
    pub fn agreed(&self, id: ConnectionId) -> Option<Agreed> {
        either!(&self.way, manager => manager.agreed(id))
    }

    /// Number of connections, including those in timewait.
    pub fn connections(&self) -> usize {
        either!(&self.way, manager => manager.connections())
    }

    /// All connections.
    pub fn ids(&self) -> impl Iterator<Item = ConnectionId> {
        either!(&self.way, manager => manager.ids()).into_iter()
    }
}

/// Differs from one process to the next, but not from one run of a simulation to the next.
fn seed(clock: &Clock) -> u64 {
    if clock.is_virtual() {
        return clock.now().as_nanos() as u64;
    }
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    time.as_nanos() as u64 ^ u64::from(std::process::id()) << 40
}
