//! A connection manager on queue pair 1 of a function.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use mlx5_dv::clock::Clock;
use mlx5_dv::objects::{AddressHandle, AddressPath, RtrAttributes, RtsAttributes};
use mlx5_dv::queue::EndpointError;
use mlx5_dv::{Device, Error, Mac};
use mlx5_neighbours::Neighbours;
use mlx5_prm::ib::{CmRejectReason, GSI_QKEY};

use crate::gsi::Gsi;
use crate::machine::{
    Agreed, CallError, Config, ConnectionId, Event, Machine, Parameters, Path, Route, State, Transmit,
};
use crate::message::{Gid, Service, address_of, gid_of};

/// Queue pair number for general services.
const GSI_QPN: u32 = 1;
/// How long a message waits for the remote's MAC address. Afterwards it is dropped, and retransmitted as a lost one.
const RESOLUTION: Duration = Duration::from_secs(3);
/// Interval between lookups of the MAC address.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Maximum number of messages that wait for a MAC address or a free send.
const WAITING: usize = 4096;
/// First local port, if the program names none.
const EPHEMERAL: u16 = 0x8000;

/// Error of a [`ConnectionManager`]'s call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// The call was refused.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The card or the driver failed.
    #[error(transparent)]
    Device(#[from] Error),
    /// Queue pair 1 failed: create another connection manager.
    #[error("queue pair 1 failed")]
    Gsi(#[from] EndpointError),
    /// No GID of the function can reach the remote.
    #[error("no GID of the function reaches {remote}: its GIDs are {gids}; an IPv4 address is set by Options::ipv4")]
    NoGid {
        /// The remote.
        remote: IpAddr,
        /// The function's GIDs.
        gids: String,
    },
    /// The remote's MAC address is not known.
    #[error("the MAC address of {0} is not known: give the connection manager Neighbours on that network")]
    NoMac(IpAddr),
    /// No event within the timeout.
    #[error("no event within {} ms", .0.as_millis())]
    Timeout(Duration),
}

/// Connects queue pairs by IP address and port. See the [crate].
///
/// Calls are those of [`Machine`]. [`poll`](Self::poll) and [`wait`](Self::wait) return events; only they send, answer
/// and retransmit messages.
#[derive(Debug)]
pub struct ConnectionManager {
    machine: Machine,
    gsi: Gsi,
    device: Arc<Device>,
    neighbours: Option<Neighbours>,
    clock: Clock,
    /// Messages not sent yet, with the time at which each is dropped.
    waiting: VecDeque<(Duration, Transmit)>,
    last_port: u16,
}

impl ConnectionManager {
    /// Creates a connection manager on queue pair 1 of `device`. `neighbours` resolves MAC addresses; without it, only
    /// link-local addresses and those of the function itself can be reached.
    ///
    /// # Errors
    /// [`ManagerError::Device`] if the function belongs to the kernel, queue pair 1 is in use, or there is no memory.
    pub fn new(device: &Arc<Device>, neighbours: Option<Neighbours>) -> Result<Self, ManagerError> {
        let [a, b, c, d, e, f] = device.mac().0;
        // EUI-64, as Linux derives a node's GUID.
        let ca_guid = u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f]);
        let config = Config { ca_guid, seed: seed(device.clock()), ..Config::default() };
        Self::with_config(device, neighbours, config)
    }

    /// As [`new`](Self::new), with `config`.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn with_config(
        device: &Arc<Device>,
        neighbours: Option<Neighbours>,
        config: Config,
    ) -> Result<Self, ManagerError> {
        Ok(ConnectionManager {
            machine: Machine::new(config),
            gsi: Gsi::new(device)?,
            device: Arc::clone(device),
            neighbours,
            clock: device.clock().clone(),
            waiting: VecDeque::new(),
            last_port: 0,
        })
    }

    /// The protocol's state.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// See [`Machine::listen`].
    ///
    /// # Errors
    /// [`CallError::InUse`].
    pub fn listen(&mut self, service: Service) -> Result<(), ManagerError> {
        Ok(self.machine.listen(service)?)
    }

    /// See [`Machine::close`].
    ///
    /// # Errors
    /// [`CallError::NotListening`].
    pub fn close(&mut self, service: Service) -> Result<(), ManagerError> {
        Ok(self.machine.close(service)?)
    }

    /// Requests a connection to port `remote`. See [`Machine::connect`].
    ///
    /// # Errors
    /// [`ManagerError::NoGid`], and [`CallError`].
    pub fn connect(
        &mut self,
        remote: SocketAddr,
        mut route: Route,
        parameters: &Parameters,
    ) -> Result<ConnectionId, ManagerError> {
        let path = self.path_to(remote.ip())?;
        if route.source_port == 0 {
            route.source_port = self.port();
        }
        Ok(self.machine.connect(self.clock.now(), path, Service::tcp(remote.port()), route, parameters)?)
    }

    /// Requests the queue pair and Q_Key of port `remote`, for datagrams. See [`Machine::resolve`].
    ///
    /// # Errors
    /// [`ManagerError::NoGid`], and [`CallError`].
    pub fn resolve(&mut self, remote: SocketAddr, private_data: &[u8]) -> Result<ConnectionId, ManagerError> {
        let (path, port) = (self.path_to(remote.ip())?, self.port());
        Ok(self.machine.resolve(self.clock.now(), path, Service::udp(remote.port()), port, private_data)?)
    }

    /// See [`Machine::accept`]. The queue pair must be in RTS: the remote may send as soon as it receives the reply.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn accept(&mut self, id: ConnectionId, parameters: &Parameters) -> Result<(), ManagerError> {
        Ok(self.machine.accept(self.clock.now(), id, parameters)?)
    }

    /// See [`Machine::ready`].
    ///
    /// # Errors
    /// [`CallError`].
    pub fn ready(&mut self, id: ConnectionId, private_data: &[u8]) -> Result<(), ManagerError> {
        Ok(self.machine.ready(id, private_data)?)
    }

    /// See [`Machine::communication_established`].
    ///
    /// # Errors
    /// [`CallError`].
    pub fn communication_established(&mut self, id: ConnectionId) -> Result<(), ManagerError> {
        Ok(self.machine.communication_established(id)?)
    }

    /// See [`Machine::reject`]; the reason is `ConsumerDefined`.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn reject(&mut self, id: ConnectionId, private_data: &[u8]) -> Result<(), ManagerError> {
        Ok(self.machine.reject(self.clock.now(), id, CmRejectReason::ConsumerDefined, private_data)?)
    }

    /// See [`Machine::delay`].
    ///
    /// # Errors
    /// [`CallError`].
    pub fn delay(&mut self, id: ConnectionId, service_timeout: u8) -> Result<(), ManagerError> {
        Ok(self.machine.delay(id, service_timeout)?)
    }

    /// See [`Machine::disconnect`].
    ///
    /// # Errors
    /// [`CallError`].
    pub fn disconnect(&mut self, id: ConnectionId, private_data: &[u8]) -> Result<(), ManagerError> {
        Ok(self.machine.disconnect(self.clock.now(), id, private_data)?)
    }

    /// See [`Machine::destroy`].
    ///
    /// # Errors
    /// [`CallError`].
    pub fn destroy(&mut self, id: ConnectionId) -> Result<(), ManagerError> {
        Ok(self.machine.destroy(self.clock.now(), id)?)
    }

    /// See [`Machine::answer`].
    ///
    /// # Errors
    /// [`CallError`].
    pub fn answer(&mut self, id: ConnectionId, qpn: u32, qkey: u32, private_data: &[u8]) -> Result<(), ManagerError> {
        Ok(self.machine.answer(self.clock.now(), id, qpn, qkey, private_data)?)
    }

    /// See [`Machine::refuse_request`].
    ///
    /// # Errors
    /// [`CallError`].
    pub fn refuse_request(&mut self, id: ConnectionId, private_data: &[u8]) -> Result<(), ManagerError> {
        Ok(self.machine.refuse_request(self.clock.now(), id, private_data)?)
    }

    /// Attributes of the queue pair's transitions from INIT to RTR and from RTR to RTS, as both sides agreed on. For a
    /// request that is not accepted yet they follow its offer, and the program must set `rq_psn`.
    ///
    /// # Errors
    /// [`CallError::Unknown`]; [`ManagerError::NoMac`] after three seconds, if the MAC address of a request's sender
    /// cannot be resolved.
    pub fn attributes(&self, id: ConnectionId) -> Result<(RtrAttributes, RtsAttributes), ManagerError> {
        let agreed = self.machine.agreed(id).ok_or(CallError::Unknown(id.number()))?;
        let path = match self.address_path(&agreed.path)? {
            Some(path) => path,
            None => self.resolved_path(&agreed.path)?,
        };
        Ok(attributes(&agreed, path))
    }

    /// Sends, receives and answers messages. Returns the next event.
    ///
    /// # Errors
    /// [`ManagerError::Gsi`]; [`ManagerError::Device`] if the card failed or was removed.
    pub fn poll(&mut self) -> Result<Option<(ConnectionId, Event)>, ManagerError> {
        while let Some(received) = self.gsi.poll()? {
            let path = Path { local: received.local, remote: received.remote };
            if self.gid_index(path.local).is_none() {
                continue;
            }
            if let Err(error) = self.machine.receive(self.clock.now(), path, &received.mad) {
                tracing::debug!(%error, remote = %path.remote_address(), "a management datagram was dropped");
            }
        }
        self.machine.handle_timeout(self.clock.now());
        self.flush()?;
        Ok(self.machine.poll_event())
    }

    /// Waits for the next event, at most `timeout`.
    ///
    /// # Errors
    /// [`ManagerError::Timeout`], and those of [`poll`](Self::poll).
    pub fn wait(&mut self, timeout: Duration) -> Result<(ConnectionId, Event), ManagerError> {
        let end = self.clock.now().saturating_add(timeout);
        loop {
            if let Some(event) = self.poll()? {
                return Ok(event);
            }
            let now = self.clock.now();
            if now >= end {
                return Err(ManagerError::Timeout(timeout));
            }
            let next = self.machine.poll_timeout().map_or(end, |due| due.min(end));
            let limit = next.saturating_sub(now);
            let limit = if self.waiting.is_empty() { limit } else { limit.min(LOOK_EVERY) };
            self.gsi.wait(limit)?;
        }
    }

    /// Sends the messages that can be sent.
    fn flush(&mut self) -> Result<(), ManagerError> {
        let now = self.clock.now();
        let fresh = std::iter::from_fn(|| self.machine.poll_transmit()).map(|transmit| (now + RESOLUTION, transmit));
        self.waiting.extend(fresh);
        self.waiting.truncate(WAITING);
        for _ in 0..self.waiting.len() {
            let Some((until, transmit)) = self.waiting.pop_front() else { break };
            match self.address_path(&transmit.path) {
                Ok(Some(path)) => {
                    let to = AddressHandle::new(&self.device, &path, GSI_QPN, GSI_QKEY)?;
                    if !self.gsi.send(&to, &transmit.mad) {
                        self.waiting.push_front((until, transmit));
                        break;
                    }
                }
                Ok(None) if now < until => self.waiting.push_back((until, transmit)),
                other => {
                    let remote = transmit.path.remote_address();
                    tracing::debug!(%remote, error = ?other.err(), "a message was dropped: no MAC address");
                    self.neighbours.iter().for_each(|neighbours| neighbours.forget(remote));
                }
            }
        }
        Ok(())
    }

    /// Index of a local GID.
    fn gid_index(&self, gid: Gid) -> Option<u8> {
        let own = self.device.gids().iter().find(|own| own.address.octets() == gid)?;
        u8::try_from(own.index).ok()
    }

    /// Path to `remote` from the local GID of the same kind: link-local or not, IPv4 or IPv6.
    fn path_to(&self, remote: IpAddr) -> Result<Path, ManagerError> {
        let kind = |address: IpAddr| match address {
            IpAddr::V4(_) => 4,
            IpAddr::V6(address) if address.is_unicast_link_local() => 10,
            IpAddr::V6(_) => 6,
        };
        let gids = self.device.gids();
        let local = gids.iter().find(|gid| kind(address_of(gid.address.octets())) == kind(remote.to_canonical()));
        let local = local.ok_or_else(|| {
            let gids: Vec<_> = gids.iter().map(|gid| address_of(gid.address.octets()).to_string()).collect();
            ManagerError::NoGid { remote, gids: gids.join(", ") }
        })?;
        Ok(Path { local: local.address.octets(), remote: gid_of(remote) })
    }

    /// Address path for `path`; `None` while the MAC address is being resolved.
    fn address_path(&self, path: &Path) -> Result<Option<AddressPath>, ManagerError> {
        let remote = path.remote_address();
        let index = self.gid_index(path.local).unwrap_or(0);
        let mac = match (self.mac_without_asking(path.remote), &self.neighbours) {
            (Some(mac), _) => Some(mac),
            (None, Some(neighbours)) => neighbours.look_up(remote).map_err(|_| ManagerError::NoMac(remote))?,
            (None, None) => return Err(ManagerError::NoMac(remote)),
        };
        Ok(mac.map(|mac| AddressPath::new(path.remote, mac).gid_index(index)))
    }

    /// As [`address_path`](Self::address_path), but waits for the MAC address.
    fn resolved_path(&self, path: &Path) -> Result<AddressPath, ManagerError> {
        let no_mac = || ManagerError::NoMac(address_of(path.remote));
        let neighbours = self.neighbours.as_ref().ok_or_else(no_mac)?;
        neighbours.resolve(path.remote_address(), RESOLUTION).map_err(|_| no_mac())?;
        self.address_path(path)?.ok_or_else(no_mac)
    }

    /// MAC address of a local GID, or of a link-local one.
    fn mac_without_asking(&self, gid: Gid) -> Option<Mac> {
        let own = self.device.gids().iter().find(|own| own.address.octets() == gid).map(|own| own.mac);
        own.or_else(|| AddressPath::link_local(gid).map(|path| path.mac))
    }

    /// A local port, a different one each time.
    fn port(&mut self) -> u16 {
        self.last_port = self.last_port.wrapping_add(1) % EPHEMERAL;
        EPHEMERAL + self.last_port
    }

    /// State of a connection; `None` after its end.
    pub fn state(&self, id: ConnectionId) -> Option<State> {
        self.machine.state(id)
    }
}

fn attributes(agreed: &Agreed, path: AddressPath) -> (RtrAttributes, RtsAttributes) {
    let path =
        AddressPath { traffic_class: agreed.route.traffic_class, service_level: agreed.route.service_level, ..path };
    let rtr = RtrAttributes {
        path_mtu: Some(agreed.route.path_mtu),
        max_dest_rd_atomic: agreed.responder_resources,
        ..RtrAttributes::new(agreed.remote_qpn, agreed.rq_psn, path)
    };
    let rts = RtsAttributes {
        sq_psn: agreed.sq_psn,
        timeout: agreed.route.local_ack_timeout,
        retry_count: agreed.route.retry_count,
        rnr_retry: agreed.rnr_retry_count,
        max_rd_atomic: agreed.initiator_depth,
    };
    (rtr, rts)
}

/// Differs from one process to the next, but not from one run of a simulation to the next.
fn seed(clock: &Clock) -> u64 {
    if clock.is_virtual() {
        return clock.now().as_nanos() as u64;
    }
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    time.as_nanos() as u64 ^ u64::from(std::process::id()) << 40
}
