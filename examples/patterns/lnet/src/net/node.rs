//! The node itself.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mlx5_cm::{ConnectionId, ConnectionManager, Service, State as CmState};
use mlx5_dv::Device;
use mlx5_dv::clock::Clock;
use mlx5_dv::objects::Pd;
use mlx5_neighbours::Neighbours;

use super::common::Common;
use super::connection::{Conn, State};
use super::events::{Event, Id, Match, RequestId, Role, Statistics, TransferId, Waiting};
use super::failure::{Failure, LnetError, Refused, RefusedReason};
use super::options::Options;
use super::peer::{Peer, PeerHealth};
use crate::keys::Keys;
use crate::nid::Nid;
use crate::payload::Payload;
use crate::wire::{Get, Handle, Header, IMMEDIATE_BYTES, LnetMessage, Put};

/// Events of the connection manager that a turn takes, so that a flood of requests does not delay messages.
const TURN: usize = 16;
/// How often it looks for what took too long.
const CHECK_EVERY: Duration = Duration::from_millis(250);

/// An interface of a node on an LNet network, on a function whose queue pair 1 it owns, or by the kernel's connection
/// manager (`devx:`).
///
/// Belongs to one thread: it works while it is [polled](Self::poll), and only then. What a peer does wrong ends its own
/// connection alone.
#[derive(Debug)]
pub struct Lnet {
    pub(super) manager: ConnectionManager,
    pub(super) common: Common,
    pub(super) conns: BTreeMap<ConnectionId, Conn>,
    pub(super) peers: BTreeMap<Nid, Peer>,
    pub(super) addresses: BTreeMap<Nid, SocketAddr>,
    next_check: Duration,
    pub(super) last_port: u16,
    pub(super) is_shut: bool,
}

impl Lnet {
    /// An interface on `device` that listens; `neighbours` finds the MAC addresses of peers.
    ///
    /// # Errors
    /// [`LnetError`]: an option, or the card.
    pub fn new(device: &Arc<Device>, neighbours: Option<Neighbours>, options: Options) -> Result<Self, LnetError> {
        options.check()?;
        let pd = Pd::alloc(device)?;
        let clock = device.clock().clone();
        let mut manager = ConnectionManager::new(device, neighbours)?;
        manager.listen(Service::tcp(options.port))?;
        let keys = Keys::new(&pd, options.keys, options.key_count)?;
        let common = Common {
            incarnation: incarnation(&clock),
            pd,
            clock,
            options,
            keys,
            events: VecDeque::new(),
            statistics: Statistics::default(),
            last_cookie: 0,
        };
        Ok(Lnet {
            manager,
            common,
            conns: BTreeMap::new(),
            peers: BTreeMap::new(),
            addresses: BTreeMap::new(),
            next_check: Duration::ZERO,
            last_port: 0,
            is_shut: false,
        })
    }

    /// Its NID.
    pub fn nid(&self) -> Nid {
        self.common.options.nid
    }

    /// The protection domain that the memory of transfers is registered in.
    pub fn pd(&self) -> &Arc<Pd> {
        &self.common.pd
    }

    /// What it has and did.
    pub fn statistics(&self) -> Statistics {
        let (connections, free_keys) = (self.conns.len(), self.common.keys.free());
        Statistics { connections, free_keys, ..self.common.statistics }
    }

    /// How a peer is; `None` for one that there was nothing with.
    pub fn health(&self, peer: Nid) -> Option<PeerHealth> {
        let known = self.peers.get(&peer)?;
        let heard = known.conns.iter().filter_map(|id| self.conns.get(id)).map(|conn| conn.last_heard).max();
        let mut health = known.health.clone();
        health.connections = known.conns.len();
        health.last_alive = health.last_alive.max(heard);
        Some(health)
    }

    /// Peers that there was anything with, but those that were forgotten to make room for others.
    pub fn peers(&self) -> impl Iterator<Item = Nid> + '_ {
        self.peers.keys().copied()
    }

    /// Where `peer` listens, if that is not its NID's address and [`Options::port`].
    pub fn set_address(&mut self, peer: Nid, address: SocketAddr) {
        self.addresses.insert(peer, address);
    }

    /// Sends `payload` to `peer`: in a message, or by the peer's RDMA memory if it is longer than
    /// [`IMMEDIATE_BYTES`]. [`Event::Done`] brings it back.
    ///
    /// # Errors
    /// [`Refused`], with the payload.
    pub fn put(&mut self, peer: Nid, to: Match, payload: Payload) -> Result<TransferId, Refused> {
        let put = Put {
            ack: Handle::NONE,
            match_bits: to.match_bits,
            hdr_data: to.hdr_data,
            portal: to.portal,
            offset: to.offset,
        };
        let role = if payload.len() <= IMMEDIATE_BYTES { Role::ImmediatePut } else { Role::PutSource };
        let header = Header::new(self.nid(), peer, payload.len() as u32, LnetMessage::Put(put));
        self.launch(role, header, payload)
    }

    /// Fetches data from `peer` into `payload`. [`Event::Done`] brings it back, with the number of bytes that came.
    ///
    /// # Errors
    /// [`Refused`], with the payload.
    pub fn get(&mut self, peer: Nid, from: Match, payload: Payload) -> Result<TransferId, Refused> {
        let get = Get {
            reply: Handle::NONE,
            match_bits: from.match_bits,
            portal: from.portal,
            offset: from.offset,
            sink_length: payload.len() as u32,
        };
        let role = if payload.len() <= IMMEDIATE_BYTES { Role::ImmediateGet } else { Role::GetSink };
        let header = Header::new(self.nid(), peer, 0, LnetMessage::Get(get));
        self.launch(role, header, payload)
    }

    /// `kiblnd_launch_tx` of `o2iblnd_cb.c`.
    fn launch(&mut self, role: Role, header: Header, payload: Payload) -> Result<TransferId, Refused> {
        let nid = header.destination;
        if self.is_shut {
            return Err(Refused { payload, reason: RefusedReason::ShutDown });
        }
        if self.address_of(nid).is_none() {
            return Err(Refused { payload, reason: RefusedReason::NoAddress(nid) });
        }
        let id = TransferId(self.common.cookie());
        let waiting = Waiting { id: Id::Transfer(id), role, header, payload, deadline: self.common.deadline() };
        let peer = self.peers.entry(nid).or_insert_with(|| Peer::new(&self.common.options));
        match peer.conns.first().and_then(|id| self.conns.get_mut(id)) {
            Some(conn) => conn.submit(&mut self.common, waiting),
            None => {
                peer.waiting.push_back(waiting);
                if !peer.is_connecting() {
                    self.connect(nid);
                }
            }
        }
        Ok(id)
    }

    /// The connection of a request that fits.
    fn answerable(&mut self, request: RequestId, as_put: bool, len: usize) -> Result<&mut Conn, RefusedReason> {
        let of = |conn: &&mut Conn| conn.serial() == request.connection && conn.state != State::Closing;
        let conn = self.conns.values_mut().find(of).ok_or(RefusedReason::Gone)?;
        let held = conn.request(request.cookie).ok_or(RefusedReason::Gone)?;
        let wanted = match held.header.message {
            LnetMessage::Put(_) | LnetMessage::Reply { .. } if as_put => held.header.payload_length as usize,
            LnetMessage::Get(get) if !as_put => match (held.is_immediate(), get.sink_length as usize) {
                (true, wanted) => wanted.min(IMMEDIATE_BYTES),
                (false, wanted) => wanted,
            },
            _ => return Err(RefusedReason::WrongKind),
        };
        if len > wanted { Err(RefusedReason::TooLong { given: len, wanted }) } else { Ok(conn) }
    }

    /// Receives the data of a PUT into `payload`, as much as that has room for; it must not be longer than the data.
    /// [`Event::Answered`] brings it back.
    ///
    /// # Errors
    /// [`Refused`], with the payload. The request is as before.
    pub fn receive(&mut self, request: RequestId, payload: Payload) -> Result<(), Refused> {
        if let Err(reason) = self.answerable(request, true, payload.len()) {
            return Err(Refused { payload, reason });
        }
        if let Some(conn) = self.conns.values_mut().find(|conn| conn.serial() == request.connection) {
            conn.receive(&mut self.common, request.cookie, payload);
        }
        Ok(())
    }

    /// Sends `payload` as the data of a GET. [`Event::Answered`] brings it back.
    ///
    /// # Errors
    /// [`Refused`], with the payload. The request is as before.
    pub fn reply(&mut self, request: RequestId, payload: Payload) -> Result<(), Refused> {
        if let Err(reason) = self.answerable(request, false, payload.len()) {
            return Err(Refused { payload, reason });
        }
        if let Some(conn) = self.conns.values_mut().find(|conn| conn.serial() == request.connection) {
            conn.reply(&mut self.common, request.cookie, payload);
        }
        Ok(())
    }

    /// Refuses a request with an error number, such as [`ENOENT`](crate::status::ENOENT). A GET whose reply would be in
    /// a message is dropped: its sender waits for as long as it likes, as LNet has it.
    ///
    /// # Errors
    /// [`RefusedReason::Gone`].
    pub fn refuse(&mut self, request: RequestId, status: i32) -> Result<(), RefusedReason> {
        let conn = self.conns.values_mut().find(|conn| conn.serial() == request.connection);
        let conn = conn.filter(|conn| conn.request(request.cookie).is_some()).ok_or(RefusedReason::Gone)?;
        conn.refuse(&mut self.common, request.cookie, -status.abs());
        Ok(())
    }

    /// Does what there is to do; returns what happened, one event a call.
    ///
    /// # Errors
    /// [`LnetError`]: the card is broken or gone.
    pub fn poll(&mut self) -> Result<Option<Event>, LnetError> {
        if let Some(event) = self.common.events.pop_front() {
            return Ok(Some(event));
        }
        for _ in 0..TURN {
            let Some((id, event)) = self.manager.poll()? else { break };
            self.take_event(id, event);
        }
        let now = self.common.clock.now();
        let is_due = now >= self.next_check;
        for conn in self.conns.values_mut() {
            conn.poll(&mut self.common);
            if is_due {
                conn.check(&mut self.common);
            }
        }
        if is_due {
            self.next_check = now + CHECK_EVERY;
            self.check_waiting(now);
        }
        let early: Vec<_> = self.conns.iter().filter(|(_, conn)| conn.is_early()).map(|(id, _)| *id).collect();
        for id in early {
            // Fails where the message has come meanwhile.
            let _ = self.manager.communication_established(id);
            self.established(id);
        }
        self.settle(now);
        Ok(self.common.events.pop_front())
    }

    /// Tells peers, and the connection manager, of the connections that ended; forgets those that are back.
    fn settle(&mut self, now: Duration) {
        let ended: Vec<_> = self
            .conns
            .iter()
            .filter(|(_, conn)| conn.state == State::Closing)
            .map(|(id, conn)| (*id, conn.told, conn.is_flushed(now)))
            .collect();
        for (id, told, is_flushed) in ended {
            if !told {
                self.tell_end(id);
            }
            if is_flushed && let Some(conn) = self.conns.remove(&id) {
                self.manager.keep(id, conn.queue_pair());
                conn.close(&mut self.common);
            }
        }
        let due = |peer: &Peer| peer.retry_at.is_some_and(|at| at <= now);
        let retry: Vec<Nid> = self.peers.iter().filter(|(_, peer)| due(peer)).map(|(nid, _)| *nid).collect();
        retry.into_iter().for_each(|nid| self.connect(nid));
    }

    /// Ends all connections, and waits for up to `patience` until their buffers are back and the peers know.
    ///
    /// # Errors
    /// [`LnetError`]: the card is broken or gone.
    pub fn shut_down(&mut self, patience: Duration) -> Result<Vec<Event>, LnetError> {
        self.is_shut = true;
        let deadline = self.common.clock.now() + patience;
        for conn in self.conns.values_mut() {
            conn.fail(&mut self.common, Failure::ShutDown);
        }
        for nid in self.peers.keys().copied().collect::<Vec<_>>() {
            self.fail_waiting(nid, &Failure::ShutDown);
        }
        let mut events = Vec::new();
        let is_told = |manager: &ConnectionManager, id| manager.state(id) != Some(CmState::DreqSent);
        loop {
            events.extend(self.poll()?);
            let is_quiet = self.conns.is_empty() && self.common.events.is_empty();
            let told = self.manager.ids().all(|id| is_told(&self.manager, id));
            if (is_quiet && told) || self.common.clock.now() >= deadline {
                return Ok(events);
            }
            self.common.clock.pause(Duration::from_micros(100));
        }
    }
}

/// Differs from one start to the next, and is not 0.
fn incarnation(clock: &Clock) -> u64 {
    if clock.is_virtual() {
        return clock.now().as_nanos() as u64 | 1;
    }
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    time.as_nanos() as u64 | 1
}
