//! Calls of the program.

use std::time::Duration;

use mlx5_prm::ib::{CmAnswered, CmAttribute, CmMra, CmRejectReason, CmRep, CmReq, CmRtu, MAD};

use super::error::CallError;
use super::table::Connection;
use super::types::{ConnectionId, Parameters, Path, Route, State, time_of};
use super::{Machine, limits};
use crate::message::{Service, header, mad, padded, with_addresses};

impl Machine {
    /// Listens on `service`: its requests become events. Errors: [`CallError::InUse`].
    pub fn listen(&mut self, service: Service) -> Result<(), CallError> {
        if self.listeners.contains_key(&service) {
            return Err(CallError::InUse(service));
        }
        self.listeners.insert(service, 0);
        Ok(())
    }

    /// Stops listening on `service`: later requests are rejected; those already reported stay. Errors:
    /// [`CallError::NotListening`].
    pub fn close(&mut self, service: Service) -> Result<(), CallError> {
        self.listeners.remove(&service).map(drop).ok_or(CallError::NotListening(service))
    }

    /// Requests a connection to `service` along `path`. [`Event::ConnectResponse`](super::Event::ConnectResponse),
    /// `Rejected` or `Unreachable` follows.
    ///
    /// # Errors
    /// [`CallError::Full`]; [`CallError::PrivateData`], [`CallError::OutOfRange`] for parameters that do not fit.
    pub fn connect(
        &mut self,
        now: Duration,
        path: Path,
        service: Service,
        route: Route,
        parameters: &Parameters,
    ) -> Result<ConnectionId, CallError> {
        limits::of_route(&route)?;
        limits::of_parameters(parameters, "REQ", limits::REQ_DATA)?;
        let (id, tid) = (self.next_id()?, self.next_tid());
        let mut connection = Connection::new(State::ReqSent, path, service, tid);
        connection.agreed.local_qpn = parameters.qpn;
        connection.agreed.route = route;
        connection.agreed.rq_psn = parameters.psn;
        connection.agreed.responder_resources = parameters.responder_resources;
        connection.agreed.initiator_depth = parameters.initiator_depth;
        self.table.insert(id, connection);
        let message = self.request(id, tid, path, service, &route, parameters);
        let patience = (self.config.round_trip(self.config.response_timeout), self.config.retries);
        self.ask(now, id, State::ReqSent, message, patience);
        Ok(ConnectionId(id))
    }

    fn request(
        &self,
        id: u32,
        tid: u64,
        path: Path,
        service: Service,
        route: &Route,
        parameters: &Parameters,
    ) -> [u8; MAD] {
        let mut req = CmReq::default();
        req.w()
            .hdr(&header(CmAttribute::ConnectRequest, tid))
            .local_comm_id(id)
            .service_id(service.id())
            .local_ca_guid(self.config.ca_guid)
            .local_qpn(parameters.qpn)
            .responder_resources(parameters.responder_resources)
            .initiator_depth(parameters.initiator_depth)
            .remote_cm_response_timeout(self.config.response_timeout)
            .transport_service_type(route.transport)
            .starting_psn(parameters.psn)
            .local_cm_response_timeout(self.config.response_timeout)
            .retry_count(route.retry_count)
            .path_packet_payload_mtu(route.path_mtu.number() as u8)
            .rnr_retry_count(parameters.rnr_retry_count)
            .max_cm_retries(self.config.retries)
            .srq(parameters.srq)
            // On Ethernet there are no LIDs; the value is Linux's.
            .primary_local_port_lid(0xffff)
            .primary_remote_port_lid(0xffff)
            .primary_local_port_gid(&path.local)
            .primary_remote_port_gid(&path.remote)
            .primary_traffic_class(route.traffic_class)
            .primary_hop_limit(route.hop_limit)
            .primary_sl(route.service_level)
            .primary_local_ack_timeout(route.local_ack_timeout)
            .private_data(&with_addresses(route.source_port, path.local, path.remote, &parameters.private_data));
        mad(&req)
    }

    /// Accepts a request. The offer limits `responder_resources` and `initiator_depth`.
    /// [`Event::Established`](super::Event::Established), `Rejected` or `Unreachable` follows.
    ///
    /// # Errors
    /// [`CallError::Unknown`], [`CallError::State`]; [`CallError::PrivateData`], [`CallError::OutOfRange`].
    pub fn accept(&mut self, now: Duration, id: ConnectionId, parameters: &Parameters) -> Result<(), CallError> {
        limits::of_parameters(parameters, "REP", limits::REP_DATA)?;
        self.must_be(id, &[State::ReqReceived], "accept", "a ConnectRequest without an answer")?;
        let guid = self.config.ca_guid;
        let Some(connection) = self.table.get_mut(id.0) else { return Err(CallError::Unknown(id.0)) };
        let agreed = &mut connection.agreed;
        agreed.local_qpn = parameters.qpn;
        agreed.rq_psn = parameters.psn;
        agreed.responder_resources = agreed.responder_resources.min(parameters.responder_resources);
        agreed.initiator_depth = agreed.initiator_depth.min(parameters.initiator_depth);
        let mut rep = CmRep::default();
        rep.w()
            .hdr(&header(CmAttribute::ConnectReply, connection.tid))
            .local_comm_id(id.0)
            .remote_comm_id(connection.remote_id)
            .local_qpn(parameters.qpn)
            .starting_psn(parameters.psn)
            .responder_resources(agreed.responder_resources)
            .initiator_depth(agreed.initiator_depth)
            .rnr_retry_count(parameters.rnr_retry_count)
            .srq(parameters.srq)
            .local_ca_guid(guid)
            .private_data(&padded(&parameters.private_data));
        // The request's values.
        let patience = (connection.interval, connection.tries);
        self.ask(now, id.0, State::RepSent, mad(&rep), patience);
        Ok(())
    }

    /// Call this when the queue pair of a connection that the remote accepted is in RTS. Both sides may then send.
    ///
    /// # Errors
    /// [`CallError::Unknown`], [`CallError::State`], [`CallError::PrivateData`].
    pub fn ready(&mut self, id: ConnectionId, private_data: &[u8]) -> Result<(), CallError> {
        limits::of_data("RTU", private_data, limits::RTU_DATA)?;
        let connection = self.must_be(id, &[State::RepReceived], "ready", "a ConnectResponse")?;
        let mut rtu = CmRtu::default();
        rtu.w()
            .hdr(&header(CmAttribute::ReadyToUse, connection.tid))
            .local_comm_id(id.0)
            .remote_comm_id(connection.remote_id)
            .private_data(&padded(private_data));
        self.remember(id.0, State::Established, mad(&rtu));
        self.table.set_deadline(id.0, None);
        Ok(())
    }

    /// Call this when a message arrived on the queue pair of an accepted connection before the RTU, which was lost or
    /// is late. [`Event::Established`](super::Event::Established) follows at once.
    ///
    /// # Errors
    /// [`CallError::Unknown`]. In other states it has no effect.
    pub fn communication_established(&mut self, id: ConnectionId) -> Result<(), CallError> {
        if self.connection(id)?.state == State::RepSent {
            self.established(id.0, Vec::new());
        }
        Ok(())
    }

    /// Rejects a request ([`ConsumerDefined`](CmRejectReason::ConsumerDefined) is the program's reason), or a reply.
    /// This ends the connection.
    ///
    /// # Errors
    /// [`CallError::Unknown`], [`CallError::State`], [`CallError::PrivateData`].
    pub fn reject(
        &mut self,
        now: Duration,
        id: ConnectionId,
        reason: CmRejectReason,
        private_data: &[u8],
    ) -> Result<(), CallError> {
        limits::of_data("REJ", private_data, limits::REJ_DATA)?;
        let wanted = "a ConnectRequest or a ConnectResponse without an answer";
        self.must_be(id, &[State::ReqReceived, State::RepReceived], "reject", wanted)?;
        self.rejected(now, id.0, reason, private_data);
        Ok(())
    }

    /// Tells the remote that the answer takes up to 4.096 us * 2^`service_timeout` longer; 5 bits. Repeated requests
    /// are answered so automatically.
    ///
    /// # Errors
    /// [`CallError::Unknown`], [`CallError::State`], [`CallError::OutOfRange`].
    pub fn delay(&mut self, id: ConnectionId, service_timeout: u8) -> Result<(), CallError> {
        limits::of_delay(service_timeout)?;
        let wanted = "a ConnectRequest or a ConnectResponse without an answer";
        self.must_be(id, &[State::ReqReceived, State::RepReceived], "delay", wanted)?;
        self.acknowledge(id.0, service_timeout);
        Ok(())
    }

    /// Ends a connection. [`Event::Disconnected`](super::Event::Disconnected) and `TimewaitExit` follow.
    ///
    /// # Errors
    /// [`CallError::Unknown`], [`CallError::State`], [`CallError::PrivateData`].
    pub fn disconnect(&mut self, now: Duration, id: ConnectionId, private_data: &[u8]) -> Result<(), CallError> {
        limits::of_data("DREQ", private_data, limits::DREQ_DATA)?;
        self.must_be(id, &[State::Established], "disconnect", "established")?;
        self.part(now, id.0, private_data);
        Ok(())
    }

    /// Destroys a connection in any state: the remote is told, and no event follows.
    ///
    /// # Errors
    /// [`CallError::Unknown`].
    pub fn destroy(&mut self, now: Duration, id: ConnectionId) -> Result<(), CallError> {
        let state = self.connection(id)?.state;
        self.events.retain(|(of, _)| *of != id);
        match state {
            State::ReqSent => {
                self.refuse(id.0, CmRejectReason::Timeout, &[]);
                self.table.remove(id.0);
            }
            State::ReqReceived | State::RepReceived | State::RepSent => {
                self.rejected(now, id.0, CmRejectReason::ConsumerDefined, &[]);
            }
            State::Established => self.part(now, id.0, &[]),
            State::SidrReqSent => _ = self.table.remove(id.0),
            State::SidrReqReceived => self.refuse_resolution(now, id.0, &[]),
            State::DreqSent | State::Timewait | State::Rejected | State::SidrAnswered => {}
        }
        if let Some(connection) = self.table.get_mut(id.0) {
            connection.orphan = true;
        }
        Ok(())
    }

    fn rejected(&mut self, now: Duration, id: u32, reason: CmRejectReason, private_data: &[u8]) {
        self.refuse(id, reason, private_data);
        self.wait_out(now, id, State::Rejected);
        if let Some(connection) = self.table.get_mut(id) {
            connection.orphan = true;
        }
    }

    /// Sends an MRA.
    pub(super) fn acknowledge(&mut self, id: u32, service_timeout: u8) {
        let Some(connection) = self.table.get(id) else { return };
        let mut mra = CmMra::default();
        let answered = if connection.state == State::ReqReceived { CmAnswered::Req } else { CmAnswered::Rep };
        mra.w()
            .hdr(&header(CmAttribute::MsgRcptAck, connection.tid))
            .local_comm_id(id)
            .remote_comm_id(connection.remote_id)
            .message_mraed(answered)
            .service_timeout(service_timeout);
        self.transmit(connection.path, mad(&mra));
    }

    /// Code of the time that the program may take to answer, for an MRA.
    pub(super) fn patience_code(&self) -> u8 {
        (0..self.config.longest_delay).find(|code| time_of(*code) >= self.config.patience).unwrap_or(21)
    }

    pub(super) fn must_be(
        &self,
        id: ConnectionId,
        states: &[State],
        call: &'static str,
        wanted: &'static str,
    ) -> Result<&Connection, CallError> {
        let connection = self.connection(id)?;
        match states.contains(&connection.state) {
            true => Ok(connection),
            false => Err(CallError::State { id: id.0, state: connection.state, call, wanted }),
        }
    }
}
