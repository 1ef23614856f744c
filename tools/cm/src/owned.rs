//! The connection manager of an owned function: on its queue pair 1.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use mlx5_dv::Device;
use mlx5_dv::clock::Clock;
use mlx5_dv::objects::{AddressHandle, AddressPath, RtrAttributes, RtsAttributes};
use mlx5_neighbours::Neighbours;
use mlx5_prm::ib::{CmRejectReason, GSI_QKEY};

use crate::error::ManagerError;
use crate::gsi::Gsi;
use crate::machine::{
    Agreed, CallError, Config, ConnectionId, Event, Machine, Parameters, Path, Route, State, Transmit,
};
use crate::message::{Gid, Message, Service, address_of};
use crate::path::{CardLimits, attributes, known_mac, path_to};

/// Queue pair number for general services.
const GSI_QPN: u32 = 1;
/// How long a message waits for the remote's MAC address. Afterwards it is dropped, and retransmitted as a lost one.
const RESOLUTION: Duration = Duration::from_secs(3);
/// Interval between lookups of the MAC address.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Maximum number of messages that wait for a MAC address or a free send.
const WAITING: usize = 4096;
/// Maximum number of requests that wait for their sender's MAC address.
const HELD: usize = 256;
/// Most datagrams handled in a turn. A remote that sends them without end neither keeps a call from returning, nor lets
/// answers pile up.
const TURN: usize = 64;
/// First local port, if the program names none.
const EPHEMERAL: u16 = 0x8000;

/// A connection manager on queue pair 1 of an owned function. Calls are those of
/// [`ConnectionManager`](crate::ConnectionManager).
#[derive(Debug)]
pub(crate) struct OwnedManager {
    machine: Machine,
    gsi: Gsi,
    device: Arc<Device>,
    neighbours: Option<Neighbours>,
    clock: Clock,
    /// Messages not sent yet, with the time at which each is dropped.
    waiting: VecDeque<(Duration, Transmit)>,
    /// Requests whose sender's MAC address is not known yet, with the time at which each is dropped. The program would
    /// wait for it, to make a queue pair, while others wait for the program.
    held: VecDeque<(Duration, Path, Vec<u8>)>,
    /// When to look for those addresses again.
    next_look: Duration,
    last_port: u16,
}

impl OwnedManager {
    pub(crate) fn new(
        device: &Arc<Device>,
        neighbours: Option<Neighbours>,
        config: Config,
    ) -> Result<Self, ManagerError> {
        Ok(OwnedManager {
            machine: Machine::new(config),
            gsi: Gsi::new(device)?,
            device: Arc::clone(device),
            neighbours,
            clock: device.clock().clone(),
            waiting: VecDeque::new(),
            held: VecDeque::new(),
            next_look: Duration::ZERO,
            last_port: 0,
        })
    }

    pub(crate) fn neighbours(&self) -> Option<&Neighbours> {
        self.neighbours.as_ref()
    }

    pub(crate) fn listen(&mut self, service: Service) -> Result<(), ManagerError> {
        Ok(self.machine.listen(service)?)
    }

    pub(crate) fn close(&mut self, service: Service) -> Result<(), ManagerError> {
        Ok(self.machine.close(service)?)
    }

    pub(crate) fn connect(
        &mut self,
        remote: SocketAddr,
        mut route: Route,
        parameters: &Parameters,
    ) -> Result<ConnectionId, ManagerError> {
        let path = path_to(&self.device, remote.ip())?;
        if route.source_port == 0 {
            route.source_port = self.port();
        }
        let parameters = CardLimits::of(&self.device).within(parameters);
        Ok(self.machine.connect(self.clock.now(), path, Service::tcp(remote.port()), route, &parameters)?)
    }

    pub(crate) fn resolve(&mut self, remote: SocketAddr, private_data: &[u8]) -> Result<ConnectionId, ManagerError> {
        let (path, port) = (path_to(&self.device, remote.ip())?, self.port());
        Ok(self.machine.resolve(self.clock.now(), path, Service::udp(remote.port()), port, private_data)?)
    }

    pub(crate) fn accept(&mut self, id: ConnectionId, parameters: &Parameters) -> Result<(), ManagerError> {
        let parameters = CardLimits::of(&self.device).within(parameters);
        Ok(self.machine.accept(self.clock.now(), id, &parameters)?)
    }

    pub(crate) fn ready(&mut self, id: ConnectionId, private_data: &[u8]) -> Result<(), ManagerError> {
        Ok(self.machine.ready(id, private_data)?)
    }

    pub(crate) fn communication_established(&mut self, id: ConnectionId) -> Result<(), ManagerError> {
        Ok(self.machine.communication_established(id)?)
    }

    pub(crate) fn reject(
        &mut self,
        id: ConnectionId,
        reason: CmRejectReason,
        private_data: &[u8],
    ) -> Result<(), ManagerError> {
        Ok(self.machine.reject(self.clock.now(), id, reason, private_data)?)
    }

    pub(crate) fn delay(&mut self, id: ConnectionId, service_timeout: u8) -> Result<(), ManagerError> {
        Ok(self.machine.delay(id, service_timeout)?)
    }

    pub(crate) fn disconnect(&mut self, id: ConnectionId, private_data: &[u8]) -> Result<(), ManagerError> {
        Ok(self.machine.disconnect(self.clock.now(), id, private_data)?)
    }

    pub(crate) fn destroy(&mut self, id: ConnectionId) -> Result<(), ManagerError> {
        Ok(self.machine.destroy(self.clock.now(), id)?)
    }

    pub(crate) fn answer(
        &mut self,
        id: ConnectionId,
        qpn: u32,
        qkey: u32,
        private_data: &[u8],
    ) -> Result<(), ManagerError> {
        Ok(self.machine.answer(self.clock.now(), id, qpn, qkey, private_data)?)
    }

    pub(crate) fn refuse_request(&mut self, id: ConnectionId, private_data: &[u8]) -> Result<(), ManagerError> {
        Ok(self.machine.refuse_request(self.clock.now(), id, private_data)?)
    }

    pub(crate) fn attributes(&self, id: ConnectionId) -> Result<(RtrAttributes, RtsAttributes), ManagerError> {
        let agreed = self.machine.agreed(id).ok_or(CallError::Unknown(id.number()))?;
        let path = match self.address_path(&agreed.path)? {
            Some(path) => path,
            None => self.resolved_path(&agreed.path)?,
        };
        Ok(attributes(CardLimits::of(&self.device), &agreed, path))
    }

    pub(crate) fn poll(&mut self) -> Result<Option<(ConnectionId, Event)>, ManagerError> {
        self.work()?;
        Ok(self.machine.poll_event())
    }

    /// Handles what came and what is due; sends what can be sent. Returns whether more may have come.
    fn work(&mut self) -> Result<bool, ManagerError> {
        self.device.death().map_or(Ok(()), Err)?;
        self.look_again();
        let mut more = true;
        for _ in 0..TURN {
            let Some(received) = self.gsi.poll()? else {
                more = false;
                break;
            };
            let path = Path { local: received.local, remote: received.remote };
            if self.gid_index(path.local).is_none() {
                continue;
            }
            if self.is_ahead_of_its_address(&path, &received.mad) {
                self.hold(path, received.mad);
            } else {
                self.receive(path, &received.mad);
            }
        }
        self.machine.handle_timeout(self.clock.now());
        self.flush()?;
        Ok(more)
    }

    fn receive(&mut self, path: Path, mad: &[u8]) {
        if let Err(error) = self.machine.receive(self.clock.now(), path, mad) {
            tracing::debug!(%error, remote = %path.remote_address(), "a management datagram was dropped");
        }
    }

    /// Whether a message is a request whose sender's MAC address is still being asked for.
    fn is_ahead_of_its_address(&self, path: &Path, mad: &[u8]) -> bool {
        matches!(Message::parse(mad), Ok(Message::Req(_))) && matches!(self.address_path(path), Ok(None))
    }

    fn hold(&mut self, path: Path, mad: Vec<u8>) {
        if self.held.len() < HELD {
            self.held.push_back((self.clock.now() + RESOLUTION, path, mad));
        } else {
            self.give_up(&path, None);
        }
    }

    /// Drops a message to or from a remote without MAC address, which is asked for anew. A remote that is there repeats
    /// its own.
    fn give_up(&self, path: &Path, error: Option<ManagerError>) {
        let remote = path.remote_address();
        tracing::debug!(%remote, ?error, "a message was dropped: no MAC address");
        self.neighbours.iter().for_each(|neighbours| neighbours.forget(remote));
    }

    /// Handles the requests whose senders' MAC addresses have come.
    fn look_again(&mut self) {
        let now = self.clock.now();
        if self.held.is_empty() || now < self.next_look {
            return;
        }
        self.next_look = now + LOOK_EVERY;
        for (until, path, mad) in std::mem::take(&mut self.held) {
            match self.address_path(&path) {
                Ok(None) if now < until => self.held.push_back((until, path, mad)),
                Ok(None) => self.give_up(&path, None),
                _ => self.receive(path, &mad),
            }
        }
    }

    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.gsi.fd()
    }

    pub(crate) fn prepare_sleep(&mut self) -> Result<Option<Duration>, ManagerError> {
        self.gsi.arm()?;
        let more = self.work()?;
        Ok(match self.machine.has_events() {
            true => None,
            // The event may be of what was handled; the next comes with what is not there yet.
            false if more => Some(Duration::ZERO),
            false => Some(self.limit()),
        })
    }

    /// How long nothing is due.
    fn limit(&self) -> Duration {
        let now = self.clock.now();
        let due = self.machine.poll_timeout().map_or(Duration::MAX, |due| due.saturating_sub(now));
        if self.waiting.is_empty() && self.held.is_empty() { due } else { due.min(LOOK_EVERY) }
    }

    pub(crate) fn wait(&mut self, timeout: Duration) -> Result<(ConnectionId, Event), ManagerError> {
        let end = self.clock.now().saturating_add(timeout);
        loop {
            let more = self.work()?;
            if let Some(event) = self.machine.poll_event() {
                return Ok(event);
            }
            let now = self.clock.now();
            if now >= end {
                return Err(ManagerError::Timeout(timeout));
            }
            if !more {
                self.gsi.wait(self.limit().min(end - now))?;
            }
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
                other => self.give_up(&transmit.path, other.err()),
            }
        }
        Ok(())
    }

    /// Index of a local GID.
    fn gid_index(&self, gid: Gid) -> Option<u8> {
        let own = self.device.gids().into_iter().find(|own| own.address.octets() == gid)?;
        u8::try_from(own.index).ok()
    }

    /// Address path for `path`; `None` while the MAC address is being resolved.
    fn address_path(&self, path: &Path) -> Result<Option<AddressPath>, ManagerError> {
        let remote = path.remote_address();
        let index = self.gid_index(path.local).unwrap_or(0);
        let mac = match (known_mac(&self.device, path.remote), &self.neighbours) {
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

    /// A local port, a different one each time.
    fn port(&mut self) -> u16 {
        self.last_port = self.last_port.wrapping_add(1) % EPHEMERAL;
        EPHEMERAL + self.last_port
    }

    pub(crate) fn state(&self, id: ConnectionId) -> Option<State> {
        self.machine.state(id)
    }

    pub(crate) fn agreed(&self, id: ConnectionId) -> Option<Agreed> {
        self.machine.agreed(id)
    }

    pub(crate) fn connections(&self) -> usize {
        self.machine.connections()
    }

    pub(crate) fn ids(&self) -> Vec<ConnectionId> {
        self.machine.ids().collect()
    }

    pub(crate) fn path(&self, remote: IpAddr) -> Result<AddressPath, ManagerError> {
        let path = path_to(&self.device, remote)?;
        match self.address_path(&path)? {
            Some(path) => Ok(path),
            None => self.resolved_path(&path),
        }
    }
}

#[cfg(test)]
mod tests {
    use mlx5_dv::Options;
    use mlx5_neighbours::Network;
    use mlx5_open::Sim;

    use super::*;
    use crate::message::gid_of;

    const LONG: Duration = Duration::from_secs(60);

    /// While a program waits for one host's address, it does nothing for others.
    #[test]
    fn a_request_is_told_when_its_sender_can_be_answered() {
        let sim = Sim::builder().functions(2).build().unwrap();
        let networks = ["10.0.0.1/24", "10.0.0.2/24"].map(|network| network.parse::<Network>().unwrap());
        let [near, far] = networks.map(|network| network.address());
        let open = |index: usize, address| sim.open_with(index, Options::default().ip(address)).unwrap();
        let devices = [open(0, near), open(1, far)];
        let neighbours = Neighbours::start(&devices[1], Some(networks[1])).unwrap();
        let mut manager = OwnedManager::new(&devices[1], Some(neighbours), Config::default()).unwrap();
        manager.listen(Service::tcp(7174)).unwrap();

        // A host that sends a request, and does not answer ARP.
        let path = Path { local: gid_of(near), remote: gid_of(far) };
        let mut machine = Machine::new(Config::default());
        let parameters = Parameters::new(1, 0);
        machine.connect(Duration::ZERO, path, Service::tcp(7174), Route::default(), &parameters).unwrap();
        let request = machine.poll_transmit().unwrap();
        let gid = devices[0].gids().into_iter().find(|gid| gid.address.octets() == path.local).unwrap();
        let to = AddressPath::new(path.remote, devices[1].mac()).gid_index(gid.index as u8);
        let to = AddressHandle::new(&devices[0], &to, GSI_QPN, GSI_QKEY).unwrap();
        let mut gsi = Gsi::new(&devices[0]).unwrap();
        assert!(gsi.send(&to, &request.mad));
        let end = std::time::Instant::now() + LONG;
        while manager.held.is_empty() {
            assert!(manager.poll().unwrap().is_none(), "its sender cannot be answered");
            assert!(std::time::Instant::now() < end, "no request");
        }

        let _answers = Neighbours::start(&devices[0], Some(networks[0])).unwrap();
        let (id, event) = manager.wait(LONG).unwrap();
        assert!(matches!(event, Event::ConnectRequest { .. }), "{event:?}");
        let agreed = manager.agreed(id).unwrap();
        assert!(manager.address_path(&agreed.path).unwrap().is_some(), "nothing is left to wait for");
    }
}
