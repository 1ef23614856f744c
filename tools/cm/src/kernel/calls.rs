//! Calls of the program.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use mlx5_dv::kernel::abi::rdma_cm::{ConnParam, RDMA_OPTION_ID_ACK_TIMEOUT, RDMA_OPTION_ID_TOS, kind};
use mlx5_prm::ib::{CmRejectReason, CmTransport, RdmaPortSpace};

use super::{KernelManager, Link, Listener, refused};
use crate::error::ManagerError;
use crate::machine::{Agreed, CallError, ConnectionId, Event, Parameters, Path, Route, State, limits};
use crate::message::Service;
use crate::path::CardLimits;

/// How long the kernel may take to find the remote.
const RESOLUTION: Duration = Duration::from_secs(10);
const EADDRINUSE: i32 = rustix::io::Errno::ADDRINUSE.raw_os_error();
const EADDRNOTAVAIL: i32 = rustix::io::Errno::ADDRNOTAVAIL.raw_os_error();
const EINVAL: i32 = rustix::io::Errno::INVAL.raw_os_error();
const ENODEV: i32 = rustix::io::Errno::NODEV.raw_os_error();

fn lacks(what: impl Into<String>, mend: &'static str) -> ManagerError {
    ManagerError::KernelLacks { what: what.into(), mend }
}

fn no_data(message: &str, data: &[u8]) -> Result<(), ManagerError> {
    match data {
        [] => Ok(()),
        _ => Err(lacks(format!("private data in a {message}"), "send it as a message")),
    }
}

/// Port space and type of queue pairs of a service.
fn kind_of(service: Service) -> Result<(u16, u8), ManagerError> {
    match service.space {
        RdmaPortSpace::Tcp => Ok((kind::PS_TCP, kind::QPT_RC)),
        RdmaPortSpace::Udp => Ok((kind::PS_UDP, kind::QPT_UD)),
        other => Err(lacks(format!("port space {other}"), "use that of TCP or of UDP")),
    }
}

/// What the kernel decides by itself must be left to it.
fn check(route: &Route) -> Result<(), ManagerError> {
    limits::of_route(route)?;
    let usual = Route::default();
    if route.transport != CmTransport::Rc {
        return Err(lacks(format!("connections of {}", route.transport), "use RC"));
    }
    if (route.hop_limit, route.service_level) != (usual.hop_limit, usual.service_level) {
        return Err(lacks("hop limit and service level of a connection", "set those of the network interface"));
    }
    Ok(())
}

fn check_psn(psn: u32, mend: &'static str) -> Result<(), ManagerError> {
    if psn == 0 { Ok(()) } else { Err(lacks("first PSN of the program's choice", mend)) }
}

impl KernelManager {
    pub(crate) fn listen(&mut self, service: Service) -> Result<(), ManagerError> {
        if self.listeners.contains_key(&service) {
            return Err(CallError::InUse(service).into());
        }
        let kind = kind_of(service)?;
        let mut listener = Listener { number: self.next_number()?, ids: Vec::new(), waiting: 0 };
        let mut failed = None;
        for address in self.addresses.listened(service.port) {
            match self.listen_on(address, kind, listener.number) {
                Ok(id) => listener.ids.push(id),
                // It has gone, or is not this namespace's.
                Err(error) if matches!(error.raw_os_error(), Some(EADDRNOTAVAIL | ENODEV)) => {
                    tracing::debug!(%error, %address, "nobody listens on an address");
                    failed = Some(error);
                }
                Err(error) => {
                    listener.ids.iter().for_each(|id| self.forget(*id));
                    return Err(match error.raw_os_error() {
                        Some(EADDRINUSE) => CallError::InUse(service).into(),
                        _ => refused(format!("to listen on {address}"), error),
                    });
                }
            }
        }
        if listener.ids.is_empty() {
            let none = || io::Error::other("its network interfaces have no addresses, or are down");
            return Err(refused(format!("to listen on {service}"), failed.unwrap_or_else(none)));
        }
        self.listeners.insert(service, listener);
        Ok(())
    }

    fn listen_on(&self, address: SocketAddr, (space, qp_type): (u16, u8), number: u32) -> io::Result<u32> {
        let id = self.file.create_id(number.into(), space, qp_type)?;
        let backlog = u32::try_from(self.config.backlog).unwrap_or(u32::MAX);
        let listens = self.file.bind(id, address).and_then(|()| self.file.listen(id, backlog));
        if listens.is_err() {
            self.forget(id);
        }
        listens.map(|()| id)
    }

    pub(crate) fn close(&mut self, service: Service) -> Result<(), ManagerError> {
        let listener = self.listeners.remove(&service).ok_or(CallError::NotListening(service))?;
        listener.ids.iter().for_each(|id| self.forget(*id));
        Ok(())
    }

    pub(crate) fn connect(
        &mut self,
        remote: SocketAddr,
        route: Route,
        parameters: &Parameters,
    ) -> Result<ConnectionId, ManagerError> {
        check(&route)?;
        limits::of_parameters(parameters, "REQ", limits::REQ_DATA)?;
        check_psn(parameters.psn, "leave it 0")?;
        let service = Service::tcp(remote.port());
        let number = self.call(remote, service, route.source_port, parameters)?;
        let Some(link) = self.links.get_mut(&number) else { return Err(CallError::Unknown(number).into()) };
        link.agreed.route = route;
        let id = link.id;
        if let Err(error) = self.set_options(id, &route) {
            self.remove(number);
            return Err(refused("a traffic class or a local ACK timeout", error));
        }
        Ok(ConnectionId(number))
    }

    /// The kernel takes these before it has a route. A traffic class of 0 leaves its own default.
    fn set_options(&self, id: u32, route: &Route) -> io::Result<()> {
        if route.traffic_class != 0 {
            self.file.set_option(id, RDMA_OPTION_ID_TOS, route.traffic_class)?;
        }
        self.file.set_option(id, RDMA_OPTION_ID_ACK_TIMEOUT, route.local_ack_timeout)
    }

    pub(crate) fn resolve(&mut self, remote: SocketAddr, private_data: &[u8]) -> Result<ConnectionId, ManagerError> {
        limits::of_data("SIDR_REQ", private_data, limits::SIDR_REQ_DATA)?;
        let parameters = Parameters::new(0, 0).private_data(private_data);
        Ok(ConnectionId(self.call(remote, Service::udp(remote.port()), 0, &parameters)?))
    }

    /// Begins to look for `remote`; the request follows once there is a route.
    fn call(
        &mut self,
        remote: SocketAddr,
        service: Service,
        source_port: u16,
        parameters: &Parameters,
    ) -> Result<u32, ManagerError> {
        let (path, [from, to]) = self.addresses.ends(&self.device, remote, source_port)?;
        let (number, (space, qp_type)) = (self.next_number()?, kind_of(service)?);
        let calling = |error| refused(format!("to call {remote} from {from}"), error);
        let id = self.file.create_id(number.into(), space, qp_type).map_err(calling)?;
        if let Err(error) = self.file.resolve_addr(id, from, to, RESOLUTION) {
            self.forget(id);
            return Err(calling(error));
        }
        let state = if service.space == RdmaPortSpace::Udp { State::SidrReqSent } else { State::ReqSent };
        let mut link = Link::new(id, state, service, path);
        let parameters = CardLimits::of(&self.device).within(parameters);
        link.agreed.local_qpn = parameters.qpn;
        link.agreed.responder_resources = parameters.responder_resources;
        link.agreed.initiator_depth = parameters.initiator_depth;
        link.agreed.rnr_retry_count = parameters.rnr_retry_count;
        link.private_data.clone_from(&parameters.private_data);
        link.srq = parameters.srq;
        self.links.insert(number, link);
        Ok(number)
    }

    pub(crate) fn accept(&mut self, id: ConnectionId, parameters: &Parameters) -> Result<(), ManagerError> {
        limits::of_parameters(parameters, "REP", limits::REP_DATA)?;
        let parameters = &CardLimits::of(&self.device).within(parameters);
        let link = self.must_be(id, &[State::ReqReceived], "accept", "a ConnectRequest without an answer")?;
        if parameters.psn != link.agreed.rq_psn {
            check_psn(parameters.psn, "take rq_psn of ConnectionManager::attributes, or 0")?;
        }
        let kernels = link.id;
        link.agreed.local_qpn = parameters.qpn;
        link.agreed.responder_resources = link.agreed.responder_resources.min(parameters.responder_resources);
        link.agreed.initiator_depth = link.agreed.initiator_depth.min(parameters.initiator_depth);
        let answer = conn_param(&link.agreed, parameters.rnr_retry_count, parameters.srq, &parameters.private_data)
            .map_err(|error| refused("the private data", error))?;
        let done = self.file.accept(kernels, id.0.into(), answer);
        self.unless_gone(id, done, "to accept a request", State::RepSent)
    }

    /// The kernel tells nobody when the remote gives up before the program answers: it refuses the answer.
    fn unless_gone(
        &mut self,
        id: ConnectionId,
        done: io::Result<()>,
        doing: &str,
        state: State,
    ) -> Result<(), ManagerError> {
        match done {
            Ok(()) => self.now_in(id.0, state, None),
            Err(error) if error.raw_os_error() == Some(EINVAL) => {
                tracing::debug!(%error, id = id.0, "the remote has given up");
                self.end(id.0, Event::Unreachable);
            }
            Err(error) => return Err(refused(doing, error)),
        }
        Ok(())
    }

    pub(crate) fn ready(&mut self, id: ConnectionId, private_data: &[u8]) -> Result<(), ManagerError> {
        no_data("RTU", private_data)?;
        let kernels = self.must_be(id, &[State::RepReceived], "ready", "a ConnectResponse")?.id;
        let done = self.file.ready(kernels, id.0.into());
        self.unless_gone(id, done, "to tell that a connection is ready", State::Established)
    }

    pub(crate) fn communication_established(&mut self, id: ConnectionId) -> Result<(), ManagerError> {
        let link = self.link(id)?;
        // An error says that the RTU has come, or the end.
        if link.state == State::RepSent
            && let Err(error) = self.file.communication_established(link.id)
        {
            tracing::debug!(%error, id = id.0, "the kernel knows already");
        }
        Ok(())
    }

    pub(crate) fn reject(
        &mut self,
        id: ConnectionId,
        reason: CmRejectReason,
        private_data: &[u8],
    ) -> Result<(), ManagerError> {
        limits::of_data("REJ", private_data, limits::REJ_DATA)?;
        if !matches!(reason, CmRejectReason::ConsumerDefined | CmRejectReason::VendorOptionNotSupported) {
            return Err(lacks(format!("rejection for {reason}"), "reject for ConsumerDefined"));
        }
        let wanted = "a ConnectRequest or a ConnectResponse without an answer";
        self.must_be(id, &[State::ReqReceived, State::RepReceived], "reject", wanted)?;
        self.refuse(id, reason.number() as u8, private_data)
    }

    /// Sends a refusal, which ends the connection or request. Who has given up needs none.
    fn refuse(&mut self, id: ConnectionId, reason: u8, private_data: &[u8]) -> Result<(), ManagerError> {
        let kernels = self.link(id)?.id;
        let done = self.file.reject(kernels, reason, private_data);
        self.remove(id.0);
        match done {
            Err(error) if error.raw_os_error() != Some(EINVAL) => Err(refused("a rejection", error)),
            _ => Ok(()),
        }
    }

    pub(crate) fn delay(&mut self, id: ConnectionId, service_timeout: u8) -> Result<(), ManagerError> {
        limits::of_delay(service_timeout)?;
        let wanted = "a ConnectRequest or a ConnectResponse without an answer";
        self.must_be(id, &[State::ReqReceived, State::RepReceived], "delay", wanted)?;
        Ok(())
    }

    pub(crate) fn disconnect(&mut self, id: ConnectionId, private_data: &[u8]) -> Result<(), ManagerError> {
        no_data("DREQ", private_data)?;
        let kernels = self.must_be(id, &[State::Established], "disconnect", "established")?.id;
        match self.file.disconnect(kernels) {
            // The remote was first: its event is on the way.
            Err(error) if error.raw_os_error() != Some(EINVAL) => return Err(refused("to disconnect", error)),
            _ => self.now_in(id.0, State::DreqSent, None),
        }
        Ok(())
    }

    pub(crate) fn destroy(&mut self, id: ConnectionId) -> Result<(), ManagerError> {
        self.link(id)?;
        self.remove(id.0);
        self.events.retain(|(of, _)| *of != id);
        Ok(())
    }

    pub(crate) fn answer(
        &mut self,
        id: ConnectionId,
        qpn: u32,
        qkey: u32,
        private_data: &[u8],
    ) -> Result<(), ManagerError> {
        limits::of_data("SIDR_REP", private_data, limits::SIDR_REP_DATA)?;
        limits::of_qpn(qpn)?;
        let wanted = "a ResolveRequest without an answer";
        let kernels = self.must_be(id, &[State::SidrReqReceived], "answer", wanted)?.id;
        let answer = ConnParam::new(qpn, private_data).map(|answer| ConnParam { qkey, ..answer });
        let done = answer.and_then(|answer| self.file.accept(kernels, id.0.into(), answer));
        self.remove(id.0);
        match done {
            Err(error) if error.raw_os_error() != Some(EINVAL) => Err(refused("to answer a request", error)),
            _ => Ok(()),
        }
    }

    pub(crate) fn refuse_request(&mut self, id: ConnectionId, private_data: &[u8]) -> Result<(), ManagerError> {
        limits::of_data("SIDR_REP", private_data, limits::SIDR_REP_DATA)?;
        self.must_be(id, &[State::SidrReqReceived], "refuse_request", "a ResolveRequest without an answer")?;
        self.refuse(id, 0, private_data)
    }

    fn must_be(
        &mut self,
        id: ConnectionId,
        states: &[State],
        call: &'static str,
        wanted: &'static str,
    ) -> Result<&mut Link, CallError> {
        let link = self.links.get_mut(&id.0).ok_or(CallError::Unknown(id.0))?;
        match states.contains(&link.state) {
            true => Ok(link),
            false => Err(CallError::State { id: id.0, state: link.state, call, wanted }),
        }
    }
}

impl Link {
    pub(super) fn new(id: u32, state: State, service: Service, path: Path) -> Self {
        Link {
            id,
            state,
            service,
            agreed: Agreed::none(path),
            gid_index: 0,
            private_data: Vec::new(),
            srq: false,
            in_backlog: false,
            deadline: None,
        }
    }
}

/// What this side offers or accepts, for the kernel.
pub(super) fn conn_param(agreed: &Agreed, rnr_retry_count: u8, srq: bool, data: &[u8]) -> io::Result<ConnParam> {
    Ok(ConnParam {
        srq: srq.into(),
        responder_resources: agreed.responder_resources,
        initiator_depth: agreed.initiator_depth,
        retry_count: agreed.route.retry_count,
        rnr_retry_count,
        ..ConnParam::new(agreed.local_qpn, data)?
    })
}
