//! Messages from remotes. They are not trusted: a message belongs to a connection only if the connection's remote sent
//! it.

use std::net::SocketAddr;
use std::time::Duration;

use mlx5_prm::ib::{
    CmAnswered, CmAttribute, CmDrep, CmDreq, CmMra, CmRej, CmRejectReason, CmRep, CmReq, CmRtu, CmTransport,
    RdmaPortSpace,
};
use mlx5_prm::layout::Value;
use mlx5_prm::values::PathMtu;

use super::table::Connection;
use super::types::{Agreed, Event, Path, Route, State};
use super::{Machine, Refusal};
use crate::message::{Malformed, Message, Service, addresses, header, mad};

/// Valid path MTUs: codes 1 (256 bytes) to 5 (4096).
const MTUS: std::ops::RangeInclusive<u8> = 1..=5;

/// The service of a request, with the requester's port and private data; or why it is rejected.
type Judged<'a> = Result<(Service, u16, &'a [u8]), CmRejectReason>;

impl Machine {
    /// Handles a management datagram that arrived on queue pair 1 along `path`.
    ///
    /// # Errors
    /// [`Malformed`] if it is not a supported message. It then has no effect.
    pub fn receive(&mut self, now: Duration, path: Path, bytes: &[u8]) -> Result<(), Malformed> {
        match Message::parse(bytes)? {
            Message::Req(req) => self.on_req(now, path, &req),
            Message::Rep(rep) => self.on_rep(now, path, &rep),
            Message::Rtu(rtu) => self.on_rtu(path, &rtu),
            Message::Rej(rej) => self.on_rej(now, path, &rej),
            Message::Mra(mra) => self.on_mra(now, path, &mra),
            Message::Dreq(dreq) => self.on_dreq(now, path, &dreq),
            Message::Drep(drep) => self.on_drep(now, path, &drep),
            Message::SidrReq(request) => self.on_sidr_req(now, path, &request),
            Message::SidrRep(reply) => self.on_sidr_rep(path, &reply),
        }
        Ok(())
    }

    /// State of connection `local_id`, if its remote is at the end of `path` and calls it `remote_id`.
    fn state_of(&self, path: Path, local_id: u32, remote_id: u32) -> Option<State> {
        let connection = self.table.get(local_id)?;
        let is_theirs = connection.path.remote == path.remote && connection.remote_id == remote_id;
        is_theirs.then_some(connection.state)
    }

    fn on_req(&mut self, now: Duration, path: Path, req: &CmReq) {
        let (guid, remote_id) = (req.local_ca_guid(), req.local_comm_id());
        if let Some(id) = self.table.of_remote(&(path.remote, guid, remote_id)) {
            return self.on_req_again(id, req);
        }
        let refusal = |reason| {
            let (tid, answered) = (req.hdr().transaction_id(), CmAnswered::Req);
            Refusal { path, tid, local_id: 0, remote_id, answered, reason }
        };
        if let Some(old) = self.table.of_queue_pair(&(path.remote, guid, req.local_qpn())) {
            self.turn_away(&refusal(CmRejectReason::StaleConn));
            return self.stale(now, old);
        }
        let (service, port, private_data) = match self.judge(req) {
            Ok(judged) => judged,
            Err(reason) => return self.turn_away(&refusal(reason)),
        };
        let Ok(id) = self.next_id() else { return self.turn_away(&refusal(CmRejectReason::NoResources)) };
        let mut connection = Connection::new(State::ReqReceived, path, service, req.hdr().transaction_id());
        connection.agreed = offer(path, req);
        connection.interval = self.config.round_trip(req.local_cm_response_timeout());
        connection.tries = req.max_cm_retries();
        connection.in_backlog = true;
        let event = Event::ConnectRequest {
            service,
            remote: SocketAddr::new(path.remote_address(), port),
            offer: connection.agreed,
            private_data: private_data.to_vec(),
        };
        self.table.insert(id, connection);
        self.table.know_remote(id, guid, remote_id);
        self.table.know_queue_pair(id, req.local_qpn());
        self.table.set_deadline(id, Some(now + self.config.patience));
        *self.listeners.entry(service).or_default() += 1;
        self.report(id, event);
    }

    fn judge<'a>(&self, req: &'a CmReq) -> Judged<'a> {
        let service = Service::from_id(RdmaPortSpace::Tcp, req.service_id());
        let service = service.filter(|service| self.listeners.contains_key(service));
        let service = service.ok_or(CmRejectReason::InvalidServiceId)?;
        if !matches!(req.transport_service_type(), CmTransport::Rc | CmTransport::Uc) {
            return Err(CmRejectReason::InvalidTransportType);
        }
        if !MTUS.contains(&req.path_packet_payload_mtu()) {
            return Err(CmRejectReason::InvalidMtu);
        }
        let (port, private_data) = addresses(req.private_data()).ok_or(CmRejectReason::Unsupported)?;
        match self.listeners.get(&service) {
            Some(waiting) if *waiting >= self.config.backlog => Err(CmRejectReason::NoResources),
            _ => Ok((service, port, private_data)),
        }
    }

    /// Handles a repeated request: the answer was lost, or takes long.
    fn on_req_again(&mut self, id: u32, req: &CmReq) {
        let Some(connection) = self.table.get(id) else { return };
        match connection.state {
            State::ReqReceived => self.acknowledge(id, self.patience_code()),
            State::RepSent | State::Rejected => self.send_again(id),
            // A new connection with an old number.
            State::Timewait => self.turn_away(&Refusal {
                path: connection.path,
                tid: req.hdr().transaction_id(),
                local_id: 0,
                remote_id: req.local_comm_id(),
                answered: CmAnswered::Req,
                reason: CmRejectReason::StaleConn,
            }),
            _ => {}
        }
    }

    /// The remote uses the queue pair of connection `id` for another connection: it no longer knows this one. IBTA
    /// 12.9.8.3.1.
    fn stale(&mut self, now: Duration, id: u32) {
        match self.table.get(id).map(|connection| connection.state) {
            Some(State::Established) => self.part(now, id, &[]),
            Some(State::RepSent | State::RepReceived | State::ReqReceived) => self.end(id, Event::Unreachable),
            _ => {}
        }
    }

    fn on_rep(&mut self, now: Duration, path: Path, rep: &CmRep) {
        let (id, remote_id) = (rep.remote_comm_id(), rep.local_comm_id());
        let connection = self.table.get(id).filter(|connection| connection.path.remote == path.remote);
        let (tid, answered) = (rep.hdr().transaction_id(), CmAnswered::Rep);
        let refusal = |reason| Refusal { path, tid, local_id: id, remote_id, answered, reason };
        match connection.map(|connection| (connection.state, connection.remote_id == remote_id)) {
            None => self.turn_away(&refusal(CmRejectReason::InvalidCommId)),
            Some((State::ReqSent, _)) => {
                let queue_pair = (path.remote, rep.local_ca_guid(), rep.local_qpn());
                if let Some(old) = self.table.of_queue_pair(&queue_pair) {
                    self.turn_away(&refusal(CmRejectReason::StaleConn));
                    let (reason, additional) = (CmRejectReason::StaleConn, Vec::new());
                    self.end(id, Event::Rejected { reason, additional, private_data: Vec::new() });
                    return self.stale(now, old);
                }
                self.replied(now, id, rep);
            }
            Some((State::RepReceived, true)) => self.acknowledge(id, self.patience_code()),
            // The RTU or the REJ was lost.
            Some((State::Established | State::Rejected, true)) => self.send_again(id),
            Some(_) => {}
        }
    }

    /// Handles the first REP of connection `id`.
    fn replied(&mut self, now: Duration, id: u32, rep: &CmRep) {
        self.table.know_remote(id, rep.local_ca_guid(), rep.local_comm_id());
        self.table.know_queue_pair(id, rep.local_qpn());
        self.table.set_deadline(id, Some(now + self.config.patience));
        let Some(connection) = self.table.get_mut(id) else { return };
        (connection.state, connection.last) = (State::RepReceived, None);
        let agreed = &mut connection.agreed;
        agreed.remote_qpn = rep.local_qpn();
        agreed.sq_psn = rep.starting_psn();
        agreed.initiator_depth = agreed.initiator_depth.min(rep.responder_resources());
        agreed.responder_resources = agreed.responder_resources.min(rep.initiator_depth());
        agreed.rnr_retry_count = rep.rnr_retry_count();
        agreed.srq = rep.srq();
        let agreed = *agreed;
        self.report(id, Event::ConnectResponse { agreed, private_data: rep.private_data().to_vec() });
    }

    fn on_rtu(&mut self, path: Path, rtu: &CmRtu) {
        let id = rtu.remote_comm_id();
        if self.state_of(path, id, rtu.local_comm_id()) == Some(State::RepSent) {
            self.established(id, rtu.private_data().to_vec());
        }
    }

    pub(super) fn established(&mut self, id: u32, private_data: Vec<u8>) {
        self.table.set_deadline(id, None);
        let Some(connection) = self.table.get_mut(id) else { return };
        (connection.state, connection.last) = (State::Established, None);
        self.report(id, Event::Established { private_data });
        // Destroyed while it waited.
        if self.table.get(id).is_some_and(|connection| connection.orphan) {
            self.table.remove(id);
        }
    }

    /// The connection that a REJ belongs to.
    fn rejected_connection(&self, path: Path, rej: &CmRej) -> Option<u32> {
        let (id, remote_id) = (rej.remote_comm_id(), rej.local_comm_id());
        if rej.reason() == CmRejectReason::Timeout
            && usize::from(rej.rejected_info_length()) >= size_of::<u64>()
            && let Some(guid) = rej.ari().first_chunk()
            && let Some(id) = self.table.of_remote(&(path.remote, u64::from_be_bytes(*guid), remote_id))
        {
            return Some(id);
        }
        let connection = self.table.get(id).filter(|connection| connection.path.remote == path.remote)?;
        let is_theirs = connection.remote_id == remote_id || connection.state == State::ReqSent;
        is_theirs.then_some(id)
    }

    fn on_rej(&mut self, now: Duration, path: Path, rej: &CmRej) {
        let Some(id) = self.rejected_connection(path, rej) else { return };
        let private_data = rej.private_data().to_vec();
        match self.table.get(id).map(|connection| connection.state) {
            Some(State::ReqSent | State::ReqReceived | State::RepSent | State::RepReceived) => {
                let len = usize::from(rej.rejected_info_length()).min(rej.ari().len());
                let additional = rej.ari()[..len].to_vec();
                self.end(id, Event::Rejected { reason: rej.reason(), additional, private_data });
            }
            Some(State::Established | State::DreqSent) => self.ended(now, id, false, private_data),
            _ => {}
        }
    }

    fn on_mra(&mut self, now: Duration, path: Path, mra: &CmMra) {
        let id = mra.remote_comm_id();
        let Some(connection) = self.table.get(id).filter(|connection| connection.path.remote == path.remote) else {
            return;
        };
        let waits = match (connection.state, mra.message_mraed()) {
            (State::ReqSent, CmAnswered::Req) => true,
            (State::RepSent, CmAnswered::Rep) => connection.remote_id == mra.local_comm_id(),
            _ => false,
        };
        if waits {
            let longer = self.config.round_trip(mra.service_timeout());
            self.table.set_deadline(id, Some(now + longer));
        }
    }

    fn on_dreq(&mut self, now: Duration, path: Path, dreq: &CmDreq) {
        let (id, remote_id) = (dreq.remote_comm_id(), dreq.local_comm_id());
        let connection = self.table.get(id).filter(|_| self.state_of(path, id, remote_id).is_some());
        let is_live = match connection {
            // For another queue pair than this connection's.
            Some(connection) if connection.agreed.local_qpn != dreq.remote_qpn_eecn() => return,
            Some(Connection { state: State::ReqReceived, .. }) => return,
            Some(connection) => !matches!(connection.state, State::Timewait | State::Rejected),
            // Ended and removed: the remote does not know yet.
            None => false,
        };
        let mut drep = CmDrep::default();
        drep.w()
            .hdr(&header(CmAttribute::DisconnectReply, dreq.hdr().transaction_id()))
            .local_comm_id(id)
            .remote_comm_id(remote_id);
        self.transmit(path, mad(&drep));
        if is_live {
            self.ended(now, id, true, dreq.private_data().to_vec());
        }
    }

    fn on_drep(&mut self, now: Duration, path: Path, drep: &CmDrep) {
        let id = drep.remote_comm_id();
        if self.state_of(path, id, drep.local_comm_id()) == Some(State::DreqSent) {
            self.ended(now, id, true, drep.private_data().to_vec());
        }
    }
}

/// What a request offers: the remote's initiator depth is our responder resources, and vice versa.
fn offer(path: Path, req: &CmReq) -> Agreed {
    Agreed {
        path,
        local_qpn: 0,
        remote_qpn: req.local_qpn(),
        rq_psn: 0,
        sq_psn: req.starting_psn(),
        responder_resources: req.initiator_depth(),
        initiator_depth: req.responder_resources(),
        rnr_retry_count: req.rnr_retry_count(),
        srq: req.srq(),
        route: Route {
            source_port: 0,
            transport: req.transport_service_type(),
            path_mtu: <PathMtu as Value>::from_number(req.path_packet_payload_mtu().into()),
            local_ack_timeout: req.primary_local_ack_timeout(),
            retry_count: req.retry_count(),
            traffic_class: req.primary_traffic_class(),
            hop_limit: req.primary_hop_limit(),
            service_level: req.primary_sl() & 7,
        },
    }
}
