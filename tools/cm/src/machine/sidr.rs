//! Service ID resolution: queue pair and Q_Key of a port, for datagrams. IBTA 12.11.

use std::net::SocketAddr;
use std::time::Duration;

use mlx5_prm::ib::{CmAttribute, CmSidrRep, CmSidrReq, CmSidrStatus, RdmaPortSpace};

use super::error::CallError;
use super::table::Connection;
use super::types::{ConnectionId, Event, Path, State};
use super::{Machine, limits};
use crate::message::{Service, addresses, header, mad, padded, with_addresses};

/// Requests carry no GUID: the remote's number is sufficient.
const NO_GUID: u64 = u64::MAX;

impl Machine {
    /// Requests the queue pair of `service` at the end of `path`. `source_port` is the local port that the remote is
    /// told. [`Event::Resolved`], [`Event::Unresolved`] or [`Event::Unreachable`] follows.
    ///
    /// # Errors
    /// [`CallError::Full`], [`CallError::PrivateData`].
    pub fn resolve(
        &mut self,
        now: Duration,
        path: Path,
        service: Service,
        source_port: u16,
        private_data: &[u8],
    ) -> Result<ConnectionId, CallError> {
        limits::of_data("SIDR_REQ", private_data, limits::SIDR_REQ_DATA)?;
        let (id, tid) = (self.next_id()?, self.next_tid());
        self.table.insert(id, Connection::new(State::SidrReqSent, path, service, tid));
        let mut request = CmSidrReq::default();
        request
            .w()
            .hdr(&header(CmAttribute::ServiceIdResReq, tid))
            .requestid(id)
            .serviceid(service.id())
            .private_data(&with_addresses(source_port, path.local, path.remote, private_data));
        let patience = (self.config.round_trip(self.config.response_timeout), self.config.retries);
        self.ask(now, id, State::SidrReqSent, mad(&request), patience);
        Ok(ConnectionId(id))
    }

    /// Answers an [`Event::ResolveRequest`] with queue pair `qpn` and its Q_Key. This ends the request.
    ///
    /// # Errors
    /// [`CallError::Unknown`], [`CallError::State`], [`CallError::PrivateData`], [`CallError::OutOfRange`].
    pub fn answer(
        &mut self,
        now: Duration,
        id: ConnectionId,
        qpn: u32,
        qkey: u32,
        private_data: &[u8],
    ) -> Result<(), CallError> {
        limits::of_qpn(qpn)?;
        limits::of_data("SIDR_REP", private_data, limits::SIDR_REP_DATA)?;
        self.must_be(id, &[State::SidrReqReceived], "answer", "a ResolveRequest without an answer")?;
        self.answered(now, id.0, CmSidrStatus::Success, (qpn, qkey), private_data);
        Ok(())
    }

    /// Refuses an [`Event::ResolveRequest`]. This ends the request.
    ///
    /// # Errors
    /// [`CallError::Unknown`], [`CallError::State`], [`CallError::PrivateData`].
    pub fn refuse_request(&mut self, now: Duration, id: ConnectionId, private_data: &[u8]) -> Result<(), CallError> {
        limits::of_data("SIDR_REP", private_data, limits::SIDR_REP_DATA)?;
        self.must_be(id, &[State::SidrReqReceived], "refuse_request", "a ResolveRequest without an answer")?;
        self.refuse_resolution(now, id.0, private_data);
        Ok(())
    }

    pub(super) fn refuse_resolution(&mut self, now: Duration, id: u32, private_data: &[u8]) {
        self.answered(now, id, CmSidrStatus::Reject, (0, 0), private_data);
    }

    fn answered(&mut self, now: Duration, id: u32, status: CmSidrStatus, to: (u32, u32), private_data: &[u8]) {
        let Some(connection) = self.table.get_mut(id) else { return };
        connection.orphan = true;
        let (request, service, tid) = (connection.remote_id, connection.service, connection.tid);
        let message = reply(request, service.id(), tid, status, to, private_data);
        self.remember(id, State::SidrAnswered, mad(&message));
        self.wait_out(now, id, State::SidrAnswered);
    }

    pub(super) fn on_sidr_req(&mut self, now: Duration, path: Path, request: &CmSidrReq) {
        let remote_id = request.requestid();
        if let Some(id) = self.table.of_remote(&(path.remote, NO_GUID, remote_id)) {
            if self.state(ConnectionId(id)) == Some(State::SidrAnswered) {
                self.send_again(id);
            }
            return;
        }
        let tid = request.hdr().transaction_id();
        let service = Service::from_id(RdmaPortSpace::Udp, request.serviceid());
        let (Some(service), Some((port, private_data))) =
            (service.filter(|service| self.listeners.contains_key(service)), addresses(request.private_data()))
        else {
            let refusal = reply(remote_id, request.serviceid(), tid, CmSidrStatus::Unsupported, (0, 0), &[]);
            return self.transmit(path, mad(&refusal));
        };
        let waiting = self.listeners.get(&service).copied().unwrap_or(0);
        let id = if waiting < self.config.backlog { self.next_id().ok() } else { None };
        let Some(id) = id else {
            let refusal = reply(remote_id, request.serviceid(), tid, CmSidrStatus::NoQp, (0, 0), &[]);
            return self.transmit(path, mad(&refusal));
        };
        let mut connection = Connection::new(State::SidrReqReceived, path, service, tid);
        connection.in_backlog = true;
        self.table.insert(id, connection);
        self.table.know_remote(id, NO_GUID, remote_id);
        self.table.set_deadline(id, Some(now + self.config.patience));
        *self.listeners.entry(service).or_default() += 1;
        let remote = SocketAddr::new(path.remote_address(), port);
        self.report(id, Event::ResolveRequest { service, remote, path, private_data: private_data.to_vec() });
    }

    pub(super) fn on_sidr_rep(&mut self, path: Path, reply: &CmSidrRep) {
        let id = reply.requestid();
        let request = self.table.get(id).filter(|connection| connection.path.remote == path.remote);
        if request.is_none_or(|request| request.state != State::SidrReqSent) {
            return;
        }
        let private_data = reply.private_data().to_vec();
        self.end(
            id,
            match reply.status() {
                CmSidrStatus::Success => Event::Resolved { qpn: reply.qpn(), qkey: reply.q_key(), private_data },
                status => Event::Unresolved { status, private_data },
            },
        );
    }
}

fn reply(
    request: u32,
    service_id: u64,
    tid: u64,
    status: CmSidrStatus,
    (qpn, qkey): (u32, u32),
    private_data: &[u8],
) -> CmSidrRep {
    let mut reply = CmSidrRep::default();
    reply
        .w()
        .hdr(&header(CmAttribute::ServiceIdResReqResp, tid))
        .requestid(request)
        .status(status)
        .qpn(qpn)
        .serviceid(service_id)
        .q_key(qkey)
        .private_data(&padded(private_data));
    reply
}
