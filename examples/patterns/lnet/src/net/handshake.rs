//! Connections are made: requests, answers and refusals.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use mlx5_cm::{CmRejectReason, ConnectionId, Event as CmEvent, Parameters, Route, State as CmState};

use super::connection::{Conn, State, Terms};
use super::events::{Event, Id, Waiting};
use super::failure::{Failure, TransferError};
use super::node::Lnet;
use super::peer::Peer;
use crate::nid::Nid;
use crate::wire::{
    Body, ConnectionParameters, MESSAGE_BYTES, Message, Reject, RejectReason, VERSION_1, VERSION_2, WireError,
};

/// `IBLND_MSG_QUEUE_SIZE_V1` of `o2iblnd.h`: what version 0x11 has.
const QUEUE_DEPTH_V1: u16 = 8;
/// `rnr_retry_count` of `o2iblnd_modparams.c`.
const RNR_RETRIES: u8 = 6;
/// Peers that are known at most when one asks, for each connection that there may be.
const PEERS_EACH: usize = 4;
/// Local ports below this are privileged: o2iblnd connects from these (`kiblnd_resolve_addr` of `o2iblnd_cb.c`).
const PRIVILEGED: u16 = 1024;

impl Lnet {
    /// Where a peer listens.
    pub(super) fn address_of(&self, nid: Nid) -> Option<SocketAddr> {
        let own = (nid.network() == self.nid().network() && nid != self.nid())
            .then(|| SocketAddr::new(nid.address().into(), self.common.options.port));
        self.addresses.get(&nid).copied().or(own)
    }

    /// The deepest queue that a peer of `version` may have.
    fn deepest(&self, version: u16) -> u16 {
        if version == VERSION_1 { QUEUE_DEPTH_V1 } else { self.common.options.queue_depth }
    }

    fn parameters(&self, terms: &Terms) -> ConnectionParameters {
        ConnectionParameters {
            queue_depth: terms.queue_depth,
            max_fragments: terms.max_fragments,
            max_message_size: MESSAGE_BYTES as u32,
        }
    }

    /// A message of a connection that is being made.
    fn hello(&self, terms: &Terms, body: Body<'_>) -> Vec<u8> {
        let message = Message {
            version: terms.version,
            credits: 0,
            source: self.nid(),
            source_stamp: self.common.incarnation,
            destination: terms.peer,
            destination_stamp: terms.peer_stamp,
            body,
        };
        message.to_vec(self.common.options.byte_order, self.common.options.checksums)
    }

    /// Asks a peer for a connection. `kiblnd_active_connect` of `o2iblnd_cb.c`.
    pub(super) fn connect(&mut self, nid: Nid) {
        let Some(peer) = self.peers.get_mut(&nid) else { return };
        peer.retry_at = None;
        let version = if peer.version == 0 { self.common.options.version } else { peer.version };
        let (stamp, depth, max_fragments) = (peer.stamp, peer.queue_depth, peer.max_fragments);
        let terms = Terms {
            peer: nid,
            peer_stamp: stamp,
            version,
            queue_depth: if version == VERSION_1 { QUEUE_DEPTH_V1 } else { depth },
            max_fragments,
        };
        match self.request(terms) {
            Ok((id, conn)) => {
                self.conns.insert(id, conn);
                if let Some(peer) = self.peers.get_mut(&nid) {
                    peer.connecting = Some(id);
                }
            }
            Err(failure) => self.connect_failed(nid, failure),
        }
    }

    fn request(&mut self, terms: Terms) -> Result<(ConnectionId, Conn), Failure> {
        let address = self.address_of(terms.peer).ok_or(Failure::Parameters("no address"))?;
        if self.conns.len() >= self.common.options.connections {
            return Err(Failure::Rejected(RejectReason::NoResources));
        }
        let conn = Conn::new(&mut self.common, terms, true)?;
        let private_data = self.hello(&terms, Body::ConnReq(self.parameters(&terms)));
        let parameters = parameters_of(&conn, 0, &private_data);
        // From 1023 down.
        self.last_port = (self.last_port + 1) % (PRIVILEGED / 2);
        let route = Route { source_port: PRIVILEGED - 1 - self.last_port, ..self.common.options.route };
        let id = self.manager.connect(address, route, &parameters);
        Ok((id.map_err(|error| Failure::Local(error.to_string()))?, conn))
    }

    pub(super) fn take_event(&mut self, id: ConnectionId, event: CmEvent) {
        match event {
            CmEvent::ConnectRequest { private_data, .. } => self.passive(id, &private_data),
            CmEvent::ConnectResponse { private_data, .. } => self.active(id, &private_data),
            CmEvent::Established { .. } => self.established(id),
            CmEvent::Rejected { reason, private_data, .. } => self.rejected(id, reason, &private_data),
            CmEvent::Unreachable => self.fail(id, Failure::Unreachable),
            CmEvent::Disconnected { .. } => self.fail(id, Failure::Disconnected),
            _ => {}
        }
    }

    fn fail(&mut self, id: ConnectionId, failure: Failure) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.fail(&mut self.common, failure);
        }
    }

    /// A peer asks for a connection. `kiblnd_passive_connect` of `o2iblnd_cb.c`.
    fn passive(&mut self, id: ConnectionId, private_data: &[u8]) {
        let (version, why) = match self.accept(id, private_data) {
            Ok(()) => return,
            Err(refusal) => refusal,
        };
        tracing::debug!(%why, "a connection request was refused");
        self.common.statistics.refused += 1;
        let parameters = ConnectionParameters {
            queue_depth: self.deepest(version),
            max_fragments: self.common.options.max_fragments,
            max_message_size: MESSAGE_BYTES as u32,
        };
        let reject = Reject { version, why, terms: Some((self.common.incarnation, parameters)) };
        if let Err(error) = self.manager.reject(id, &reject.encode(self.common.options.byte_order)) {
            tracing::debug!(%error, "a refusal was not sent");
        }
    }

    /// The version of the refusal, and its reason.
    fn accept(&mut self, id: ConnectionId, private_data: &[u8]) -> Result<(), (u16, RejectReason)> {
        let own = self.common.options.version;
        let (message, _) = Message::decode(private_data).map_err(|_: WireError| (own, RejectReason::Fatal))?;
        if message.version > own {
            return Err((own, RejectReason::Fatal));
        }
        let version = message.version;
        let refuse = |why| (version, why);
        if self.is_shut {
            return Err(refuse(RejectReason::Early));
        }
        if message.destination != self.nid() || message.source == self.nid() {
            return Err(refuse(RejectReason::Fatal));
        }
        if message.destination_stamp != 0 && message.destination_stamp != self.common.incarnation {
            return Err(refuse(RejectReason::ConnStale));
        }
        let Body::ConnReq(asked) = message.body else { return Err(refuse(RejectReason::Fatal)) };
        self.check_asked(version, &asked).map_err(refuse)?;
        let terms = Terms {
            peer: message.source,
            peer_stamp: message.source_stamp,
            version,
            queue_depth: asked.queue_depth,
            max_fragments: asked.max_fragments,
        };
        if !self.has_room_for(terms.peer) {
            return Err(refuse(RejectReason::NoResources));
        }
        self.meet(&terms).map_err(refuse)?;
        if self.conns.len() >= self.common.options.connections {
            return Err(refuse(RejectReason::NoResources));
        }
        match self.answer(id, terms) {
            Ok(conn) => self.conns.insert(id, conn),
            Err(failure) => {
                tracing::warn!(peer = %terms.peer, %failure, "no connection for a peer");
                return Err(refuse(RejectReason::NoResources));
            }
        };
        if let Some(peer) = self.peers.get_mut(&terms.peer) {
            (peer.queue_depth, peer.max_fragments) = (terms.queue_depth, terms.max_fragments);
            peer.accepting.insert(id);
        }
        Ok(())
    }

    fn check_asked(&self, version: u16, asked: &ConnectionParameters) -> Result<(), RejectReason> {
        // Version 0x11 knows neither reason.
        let known = |why| if version == VERSION_1 { RejectReason::Fatal } else { why };
        if asked.queue_depth > self.deepest(version) {
            return Err(known(RejectReason::MsgQueueSize));
        }
        if asked.max_fragments > self.common.options.max_fragments {
            return Err(known(RejectReason::RdmaFrags));
        }
        // o2iblnd itself does not look for these: nothing could be sent.
        let is_usable = is_depth(version, asked.queue_depth) && asked.max_fragments > 0;
        if asked.max_message_size > MESSAGE_BYTES as u32 || !is_usable {
            return Err(RejectReason::Fatal);
        }
        Ok(())
    }

    /// Whether there is room to know `nid`, for which peers that there is nothing with are forgotten: anybody can ask
    /// under any NID.
    fn has_room_for(&mut self, nid: Nid) -> bool {
        let most = PEERS_EACH * self.common.options.connections;
        if self.peers.contains_key(&nid) {
            return true;
        }
        if self.peers.len() >= most {
            self.peers.retain(|_, peer| peer.is_in_use());
        }
        self.peers.len() < most
    }

    /// Whether a peer may connect now: not if it is another incarnation than what there is, nor if it loses a race.
    fn meet(&mut self, terms: &Terms) -> Result<(), RejectReason> {
        let (nid, options) = (terms.peer, &self.common.options);
        let peer = self.peers.entry(nid).or_insert_with(|| Peer::new(options));
        if peer.version == 0 {
            (peer.version, peer.stamp) = (terms.version, terms.peer_stamp);
        }
        if peer.stamp != terms.peer_stamp || peer.version != terms.version {
            let is_known = peer.stamp != 0;
            (peer.version, peer.stamp) = (terms.version, terms.peer_stamp);
            if is_known {
                let old: Vec<_> = peer.conns.iter().chain(&peer.accepting).copied().collect();
                old.into_iter().for_each(|id| self.fail(id, Failure::Replaced));
                return Err(RejectReason::ConnStale);
            }
        }
        if peer.wins_race(self.common.options.nid.rank(), nid.rank()) {
            return Err(RejectReason::ConnRace);
        }
        Ok(())
    }

    fn answer(&mut self, id: ConnectionId, terms: Terms) -> Result<Conn, Failure> {
        let local = |error: mlx5_cm::ManagerError| Failure::Local(error.to_string());
        let mut conn = Conn::new(&mut self.common, terms, false)?;
        let (rtr, rts) = self.manager.attributes(id).map_err(local)?;
        conn.connect_by(&rtr, &rts)?;
        let private_data = self.hello(&terms, Body::ConnAck(self.parameters(&terms)));
        self.manager.accept(id, &parameters_of(&conn, rtr.rq_psn, &private_data)).map_err(local)?;
        Ok(conn)
    }

    /// A peer accepts. `kiblnd_check_connreply` of `o2iblnd_cb.c`.
    fn active(&mut self, id: ConnectionId, private_data: &[u8]) {
        let Some(conn) = self.conns.get(&id).filter(|conn| conn.state == State::Connecting) else { return };
        let asked = conn.terms;
        let agreed = self.check_reply(&asked, private_data).and_then(|terms| {
            let local = |error: mlx5_cm::ManagerError| Failure::Local(error.to_string());
            let (rtr, rts) = self.manager.attributes(id).map_err(local)?;
            if let Some(conn) = self.conns.get_mut(&id) {
                conn.connect_by(&rtr, &rts)?;
            }
            self.manager.ready(id, &[]).map_err(local)?;
            Ok(terms)
        });
        match agreed {
            Ok(terms) => {
                if let Some(conn) = self.conns.get_mut(&id) {
                    conn.terms = terms;
                }
                self.established(id);
            }
            Err(failure) => self.fail(id, failure),
        }
    }

    fn check_reply(&self, asked: &Terms, private_data: &[u8]) -> Result<Terms, Failure> {
        let (message, _) = Message::decode(private_data)?;
        let Body::ConnAck(given) = message.body else { return Err(Failure::Unexpected("answer to a CONNREQ")) };
        if message.version != asked.version {
            return Err(Failure::Parameters("another version than was asked for"));
        }
        if given.queue_depth > asked.queue_depth || !is_depth(asked.version, given.queue_depth) {
            return Err(Failure::Parameters("a deeper queue than was asked for, or none"));
        }
        if given.max_fragments > asked.max_fragments || given.max_fragments == 0 {
            return Err(Failure::Parameters("more fragments than were asked for, or none"));
        }
        if given.max_message_size > MESSAGE_BYTES as u32 {
            return Err(Failure::Parameters("messages longer than 4096 bytes"));
        }
        let to_us = message.destination == self.nid() && message.destination_stamp == self.common.incarnation;
        if !to_us || message.source != asked.peer {
            return Err(Failure::Stale);
        }
        let (queue_depth, max_fragments) = (given.queue_depth, given.max_fragments);
        Ok(Terms { peer_stamp: message.source_stamp, queue_depth, max_fragments, ..*asked })
    }

    /// A connection is ready on both sides. `kiblnd_connreq_done` of `o2iblnd_cb.c`.
    pub(super) fn established(&mut self, id: ConnectionId) {
        let Some(conn) = self.conns.get_mut(&id).filter(|conn| conn.state == State::Connecting) else { return };
        let terms = conn.terms;
        conn.establish(&self.common, terms);
        let Some(peer) = self.peers.get_mut(&terms.peer) else { return };
        let is_new = peer.stamp != terms.peer_stamp || peer.version != terms.version;
        (peer.stamp, peer.version) = (terms.peer_stamp, terms.version);
        let old: Vec<_> = if is_new { peer.conns.iter().copied().collect() } else { Vec::new() };
        peer.connecting.take_if(|connecting| *connecting == id);
        peer.accepting.remove(&id);
        peer.conns.insert(id);
        peer.established(self.common.clock.now());
        for waiting in std::mem::take(&mut peer.waiting) {
            conn.submit(&mut self.common, waiting);
        }
        let Terms { peer, version, queue_depth, max_fragments, .. } = terms;
        self.common.events.push_back(Event::Connected { peer, version, queue_depth, max_fragments });
        old.into_iter().for_each(|id| self.fail(id, Failure::Replaced));
    }

    /// A peer refuses. `kiblnd_rejected` and `kiblnd_check_reconnect` of `o2iblnd_cb.c`.
    fn rejected(&mut self, id: ConnectionId, reason: CmRejectReason, private_data: &[u8]) {
        let Some(conn) = self.conns.get(&id) else { return };
        let terms = conn.terms;
        if !conn.is_active {
            return self.fail(id, Failure::NotListening(reason));
        }
        let mut reject = match reason {
            CmRejectReason::StaleConn => Reject { version: terms.version, why: RejectReason::ConnStale, terms: None },
            CmRejectReason::InvalidServiceId => {
                return self.fail(id, Failure::Rejected(RejectReason::InvalidSrvId));
            }
            CmRejectReason::ConsumerDefined => match Reject::decode(private_data) {
                Ok(reject) => reject,
                Err(error) => return self.fail(id, Failure::Wire(error)),
            },
            reason => return self.fail(id, Failure::NotListening(reason)),
        };
        // An old node does not know our version.
        let is_old = reject.why == RejectReason::Fatal && reject.version == VERSION_1 && terms.version == VERSION_2;
        if is_old {
            reject.why = RejectReason::ConnUncompat;
        }
        if self.agree(&terms, &reject) {
            self.retry(terms.peer);
        }
        self.fail(id, Failure::Rejected(reject.why));
    }

    /// Takes over what a refusal says; returns whether to ask again.
    fn agree(&mut self, terms: &Terms, reject: &Reject) -> bool {
        let Some(peer) = self.peers.get_mut(&terms.peer) else { return false };
        let wanted = (!peer.waiting.is_empty() || peer.version != reject.version) && peer.accepting.is_empty();
        if !wanted || !peer.conns.is_empty() {
            return false;
        }
        match (reject.why, &reject.terms) {
            (RejectReason::RdmaFrags, Some((_, given))) if (1..terms.max_fragments).contains(&given.max_fragments) => {
                peer.max_fragments = given.max_fragments;
            }
            (RejectReason::MsgQueueSize, Some((_, given))) if (2..terms.queue_depth).contains(&given.queue_depth) => {
                peer.queue_depth = given.queue_depth;
            }
            (RejectReason::ConnStale | RejectReason::ConnRace | RejectReason::ConnUncompat, _) => {}
            _ => return false,
        }
        peer.version = reject.version;
        // Version 0x11 says no incarnation, and does not look at ours.
        peer.stamp = reject.terms.map_or(0, |(incarnation, _)| incarnation);
        true
    }

    fn retry(&mut self, nid: Nid) {
        let now = self.common.clock.now();
        if let Some(peer) = self.peers.get_mut(&nid) {
            peer.retry(now);
        }
    }

    /// A connection has ended: the peer's list and the connection manager learn of it.
    pub(super) fn tell_end(&mut self, id: ConnectionId) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        conn.told = true;
        let (nid, failure) = (conn.terms.peer, conn.failure.clone().unwrap_or(Failure::Disconnected));
        // Fails for one that the remote has ended or refused: nothing is to be told. The last event of one in timewait
        // is still to come, and releases its queue pair.
        let is_over = |state| matches!(state, None | Some(CmState::Timewait));
        if self.manager.disconnect(id, &[]).is_err() && !is_over(self.manager.state(id)) {
            let _ = self.manager.destroy(id);
        }
        if let Some(peer) = self.peers.get_mut(&nid) {
            peer.connecting.take_if(|connecting| *connecting == id);
            peer.accepting.remove(&id);
            peer.conns.remove(&id);
        }
        self.connect_failed(nid, failure);
    }

    /// What waits for a connection fails, unless another is under way. `kiblnd_peer_connect_failed`.
    fn connect_failed(&mut self, nid: Nid, failure: Failure) {
        let Some(peer) = self.peers.get_mut(&nid) else { return };
        peer.failed(&failure);
        if !peer.is_connecting() && peer.conns.is_empty() {
            self.fail_waiting(nid, &failure);
        }
        self.common.events.push_back(Event::Disconnected { peer: nid, failure });
    }

    pub(super) fn fail_waiting(&mut self, nid: Nid, failure: &Failure) {
        let Some(peer) = self.peers.get_mut(&nid) else { return };
        peer.retry_at.take();
        for waiting in std::mem::take(&mut peer.waiting) {
            self.fail_one(nid, waiting, failure);
        }
    }

    fn fail_one(&mut self, nid: Nid, waiting: Waiting, failure: &Failure) {
        let result = Err(TransferError::Connection { nid, failure: failure.clone() });
        self.common.statistics.count(&result);
        if let Id::Transfer(transfer) = waiting.id {
            self.common.events.push_back(Event::Done { transfer, payload: Some(waiting.payload), result });
        }
    }

    /// Gives up what has waited too long for a connection, and connections that are not made in time.
    pub(super) fn check_waiting(&mut self, now: Duration) {
        let overdue: Vec<_> = self
            .peers
            .iter_mut()
            .flat_map(|(nid, peer)| {
                let all = std::mem::take(&mut peer.waiting).into_iter();
                let (late, rest): (VecDeque<_>, _) = all.partition(|one| one.deadline < now);
                peer.waiting = rest;
                late.into_iter().map(|one| (*nid, one))
            })
            .collect();
        overdue.into_iter().for_each(|(nid, one)| self.fail_one(nid, one, &Failure::Timeout));
        // `kiblnd_connreq_timeout_ms` of `o2iblnd.h` is a quarter of it; a lossy network takes longer.
        let patience = self.common.options.timeout;
        let stuck = |conn: &Conn| conn.state == State::Connecting && conn.since + patience < now;
        let stuck: Vec<_> = self.conns.iter().filter(|(_, conn)| stuck(conn)).map(|(id, _)| *id).collect();
        stuck.into_iter().for_each(|id| self.fail(id, Failure::Timeout));
    }
}

/// Whether a queue may be as deep: of version 0x11 all are the same. With a single credit, requests of both ends could
/// wait for each other.
fn is_depth(version: u16, depth: u16) -> bool {
    if version == VERSION_1 { depth == QUEUE_DEPTH_V1 } else { depth >= 2 }
}

/// Neither end reads the other's memory.
fn parameters_of(conn: &Conn, psn: u32, private_data: &[u8]) -> Parameters {
    let mut parameters = Parameters::new(conn.queue_pair().qpn(), psn).private_data(private_data);
    (parameters.responder_resources, parameters.initiator_depth) = (0, 0);
    parameters.rnr_retry_count = RNR_RETRIES;
    parameters
}
