//! Events of the kernel's.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use mlx5_dv::kernel::abi::rdma_cm::{ConnParam, EventResp, event, kind};
use mlx5_prm::ib::{CmRejectReason, CmSidrStatus, RdmaPortSpace};
use mlx5_prm::values::PathMtu;

use super::calls::conn_param;
use super::{KernelManager, Link};
use crate::machine::{Agreed, ConnectionId, Event, Path, Route, State};
use crate::message::{Service, gid_of};

/// How long the kernel may take to find a route.
const RESOLUTION: Duration = Duration::from_secs(10);

impl KernelManager {
    pub(super) fn on_event(&mut self, told: &EventResp) {
        if told.event == event::CONNECT_REQUEST {
            return self.on_request(told);
        }
        let number = told.uid as u32;
        let Some(state) = self.state(ConnectionId(number)) else {
            return tracing::debug!(event = told.event, number, "an event of a listener, or of nobody");
        };
        match told.event {
            event::ADDR_RESOLVED => {
                self.go_on(number, "a route", |manager, link| manager.file.resolve_route(link.id, RESOLUTION))
            }
            event::ROUTE_RESOLVED => self.go_on(number, "a request", |manager, link| {
                let offer = conn_param(&link.agreed, link.agreed.rnr_retry_count, link.srq, &link.private_data)?;
                manager.file.connect(link.id, offer)
            }),
            event::CONNECT_RESPONSE => self.on_response(number, &told.connection()),
            event::ESTABLISHED if state == State::SidrReqSent => {
                let (qpn, qkey, private_data) = (told.param.qp_num, told.param.qkey, told.param.data().to_vec());
                self.end(number, Event::Resolved { qpn, qkey, private_data });
            }
            event::ESTABLISHED => {
                self.now_in(number, State::Established, None);
                self.report(number, Event::Established { private_data: told.connection().data().to_vec() });
            }
            event::REJECTED => {
                let reason = CmRejectReason::from_number(told.status);
                let private_data = told.connection().data().to_vec();
                self.end(number, Event::Rejected { reason, additional: Vec::new(), private_data });
            }
            // A status greater than 0 is what the remote says.
            event::UNREACHABLE if state == State::SidrReqSent && told.status as i32 > 0 => {
                let status = CmSidrStatus::from_number(told.status);
                self.end(number, Event::Unresolved { status, private_data: told.param.data().to_vec() });
            }
            event::DISCONNECTED => self.on_disconnected(number, told.status == 0),
            event::TIMEWAIT_EXIT => self.end(number, Event::TimewaitExit),
            event::ADDR_ERROR | event::ROUTE_ERROR | event::CONNECT_ERROR | event::UNREACHABLE => {
                self.failed(number, told);
            }
            event::DEVICE_REMOVAL if matches!(state, State::Established | State::DreqSent) => {
                self.report(number, Event::Disconnected { confirmed: false, private_data: Vec::new() });
                self.end(number, Event::TimewaitExit);
            }
            event::DEVICE_REMOVAL if state == State::Timewait => self.end(number, Event::TimewaitExit),
            event::DEVICE_REMOVAL => self.failed(number, told),
            other => tracing::debug!(event = other, number, "an event that needs no answer"),
        }
    }

    fn failed(&mut self, number: u32, told: &EventResp) {
        let error = io::Error::from_raw_os_error((told.status as i32).saturating_abs());
        tracing::info!(%error, event = told.event, number, "no connection");
        self.end(number, Event::Unreachable);
    }

    /// The next step of a call.
    fn go_on(&mut self, number: u32, what: &str, step: impl FnOnce(&Self, &Link) -> io::Result<()>) {
        let Some(link) = self.links.get(&number) else { return };
        if let Err(error) = step(self, link) {
            tracing::info!(%error, number, what, "the kernel's connection manager refused a step of a call");
            self.end(number, Event::Unreachable);
        }
    }

    fn on_response(&mut self, number: u32, theirs: &ConnParam) {
        let Some(link) = self.links.get(&number) else { return };
        let mut agreed = link.agreed;
        agreed.responder_resources = agreed.responder_resources.min(theirs.responder_resources);
        agreed.initiator_depth = agreed.initiator_depth.min(theirs.initiator_depth);
        agreed.rnr_retry_count = theirs.rnr_retry_count;
        agreed.srq = theirs.srq != 0;
        match self.told(link.id, agreed) {
            Ok((agreed, gid_index)) => {
                if let Some(link) = self.links.get_mut(&number) {
                    (link.agreed, link.gid_index) = (agreed, gid_index);
                }
                self.now_in(number, State::RepReceived, self.patience());
                self.report(number, Event::ConnectResponse { agreed, private_data: theirs.data().to_vec() });
            }
            // It ended meanwhile.
            Err(error) => {
                tracing::debug!(%error, number, "no attributes of a queue pair");
                self.end(number, Event::Unreachable);
            }
        }
    }

    fn on_disconnected(&mut self, number: u32, confirmed: bool) {
        // The answer to the remote's message, if it was that.
        if let Some(link) = self.links.get(&number)
            && let Err(error) = self.file.disconnect(link.id)
        {
            tracing::debug!(%error, number, "the end of a connection was not confirmed");
        }
        self.report(number, Event::Disconnected { confirmed, private_data: Vec::new() });
        self.now_in(number, State::Timewait, self.patience());
    }

    /// A request that a listener got.
    fn on_request(&mut self, told: &EventResp) {
        if let Err(error) = self.take_request(told) {
            tracing::debug!(%error, "a request was refused");
            self.forget(told.id);
        }
    }

    fn take_request(&mut self, told: &EventResp) -> io::Result<()> {
        let listener = self.listeners.iter().find(|(_, listener)| u64::from(listener.number) == told.uid);
        let (service, waiting) = match listener {
            Some((service, listener)) => (*service, listener.waiting),
            None => return Err(io::Error::other("its listener is closed")),
        };
        if waiting >= self.config.backlog {
            return Err(io::Error::other("too many wait for the program's answer"));
        }
        let number = self.next_number().map_err(io::Error::other)?;
        let [Some(local), Some(remote)] = self.file.addresses(told.id)? else {
            return Err(io::Error::other("it has no addresses"));
        };
        let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
        let path = Path { local: gid_of(local.ip()), remote: gid_of(remote.ip()) };
        let (link, event) = match service.space {
            RdmaPortSpace::Udp => resolve_request(told, service, remote, path),
            _ => self.connect_request(told, service, remote, path)?,
        };
        self.links.insert(number, Link { in_backlog: true, ..link });
        self.set_deadline(number, self.patience());
        if let Some(listener) = self.listeners.get_mut(&service) {
            listener.waiting += 1;
        }
        self.report(number, event);
        Ok(())
    }

    fn connect_request(
        &self,
        told: &EventResp,
        service: Service,
        remote: SocketAddr,
        path: Path,
    ) -> io::Result<(Link, Event)> {
        let theirs = told.connection();
        let mut link = Link::new(told.id, State::ReqReceived, service, path);
        // The kernel has exchanged them: the remote's depth is our resources.
        link.agreed.responder_resources = theirs.responder_resources;
        link.agreed.initiator_depth = theirs.initiator_depth;
        link.agreed.rnr_retry_count = theirs.rnr_retry_count;
        link.agreed.route.retry_count = theirs.retry_count;
        link.agreed.srq = theirs.srq != 0;
        (link.agreed, link.gid_index) = self.told(told.id, link.agreed)?;
        let private_data = theirs.data().to_vec();
        let event = Event::ConnectRequest { service, remote, offer: link.agreed, private_data };
        Ok((link, event))
    }

    /// `agreed` with what the kernel has of the connection, and the index of the local GID.
    fn told(&self, id: u32, agreed: Agreed) -> io::Result<(Agreed, u8)> {
        let receive = self.file.queue_pair_attributes(id, kind::QPS_RTR)?;
        let send = self.file.queue_pair_attributes(id, kind::QPS_RTS)?;
        let grh = receive.ah_attr.grh;
        let told = Agreed {
            path: Path { remote: grh.dgid, ..agreed.path },
            remote_qpn: receive.dest_qp_num,
            rq_psn: receive.rq_psn,
            sq_psn: send.sq_psn,
            route: Route {
                path_mtu: PathMtu::from_number(receive.path_mtu),
                local_ack_timeout: send.timeout,
                retry_count: send.retry_cnt,
                traffic_class: grh.traffic_class,
                hop_limit: grh.hop_limit,
                service_level: receive.ah_attr.sl & 7,
                ..agreed.route
            },
            ..agreed
        };
        Ok((told, grh.sgid_index))
    }
}

fn resolve_request(told: &EventResp, service: Service, remote: SocketAddr, path: Path) -> (Link, Event) {
    let private_data = told.param.data().to_vec();
    let link = Link::new(told.id, State::SidrReqReceived, service, path);
    (link, Event::ResolveRequest { service, remote, path, private_data })
}
