//! Sessions over streams.

mod options;

pub use options::{Event, MessengerOptions, PeerId, Statistics, Trouble, Unsent};

use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mlx5_dv::{Device, Error};

use crate::msgr2::{Heard, Identity, Message, Protocol, Refusal, Session, State};
use crate::stack::{Lines, Stack, StackEvent, StackOptions, StreamEvent, StreamId, TcpLines};
use crate::wire::{ClientIdent, EntityAddress, Reconnect, Stamp};

/// The card, or the driver, failed: no session will work any more.
pub type MessengerError = Error;

/// A connection: a stream, and what is said over it.
#[derive(Debug)]
struct Connection {
    protocol: Protocol,
    /// Whose it is; a server learns that from what the client says.
    peer: Option<PeerId>,
    /// When something came last, and when the other end was last asked.
    heard: Duration,
    asked: Duration,
}

/// One end of a session.
#[derive(Debug)]
struct Peer {
    /// Whom a client calls; `None` for a client of ours.
    target: Option<SocketAddr>,
    /// The addresses that a client of ours has told.
    addresses: Vec<EntityAddress>,
    stream: Option<StreamId>,
    /// While there is no connection.
    session: Session,
    backoff: Duration,
    /// When to connect again.
    next_try: Duration,
    /// When its last connection broke.
    left: Duration,
    /// Whether [`Event::Reset`] waits to be taken.
    is_reset: bool,
}

/// How often time limits are looked at.
const LOOK: Duration = Duration::from_millis(5);

/// Sessions with any number of peers, on one thread and one card: clients that it calls, and servers that call it.
#[derive(Debug)]
pub struct Messenger {
    stack: Stack,
    options: MessengerOptions,
    identity: Arc<Identity>,
    connections: BTreeMap<StreamId, Connection>,
    /// In the order of their numbers, so that runs are alike.
    peers: BTreeMap<PeerId, Peer>,
    events: VecDeque<Event>,
    /// Connections that have something to say.
    talkative: Vec<StreamId>,
    next_peer: u64,
    /// Counts connections.
    global_seq: u64,
    cookie: u64,
    next_look: Duration,
    statistics: Statistics,
}

impl Messenger {
    /// A messenger on `device`.
    ///
    /// # Errors
    /// As for [`Stack::new`].
    pub fn new(device: &Arc<Device>, options: MessengerOptions) -> Result<Self, MessengerError> {
        Self::with_lines(device, options, Box::new(TcpLines::new()))
    }

    /// A messenger whose exchanges `lines` carries.
    ///
    /// # Errors
    /// As for [`Stack::new`].
    pub fn with_lines(
        device: &Arc<Device>,
        options: MessengerOptions,
        lines: Box<dyn Lines>,
    ) -> Result<Self, MessengerError> {
        let stack = Stack::with_lines(device, StackOptions::clone(&options.stack), lines)?;
        let own = EntityAddress { kind: EntityAddress::MSGR2, nonce: options.nonce, socket: None };
        let identity =
            Identity { name: options.name, addresses: vec![own], is_lossy: options.is_lossy, limits: options.limits };
        // Cookies differ from those of an earlier run, which the other end may still know.
        let cookie = if stack.clock().is_virtual() { 1 } else { RandomState::new().hash_one(options.nonce) };
        Ok(Messenger {
            stack,
            options,
            identity: Arc::new(identity),
            connections: BTreeMap::new(),
            peers: BTreeMap::new(),
            events: VecDeque::new(),
            talkative: Vec::new(),
            next_peer: 0,
            global_seq: 0,
            cookie,
            next_look: Duration::ZERO,
            statistics: Statistics::default(),
        })
    }

    /// Its stack.
    pub fn stack(&mut self) -> &mut Stack {
        &mut self.stack
    }

    /// What it has done.
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// Accepts sessions at `address`, which clients call it by. Returns where it listens.
    ///
    /// # Errors
    /// As for [`Stack::listen`].
    pub fn bind(&mut self, address: SocketAddr) -> io::Result<SocketAddr> {
        let at = self.stack.listen(address)?;
        let mut identity = (*self.identity).clone();
        identity.addresses = vec![EntityAddress::msgr2(at, self.options.nonce)];
        self.identity = Arc::new(identity);
        Ok(at)
    }

    /// Begins a session with the messenger that listens at `address`. It connects, and connects again whenever the
    /// connection breaks, until [`close`](Self::close).
    ///
    /// # Errors
    /// As for [`Stack::connect`].
    pub fn connect(&mut self, address: SocketAddr) -> Result<PeerId, MessengerError> {
        let session = Session { client_cookie: self.new_cookie(), ..Session::default() };
        let id = self.add(Some(address), vec![], session);
        self.call(id);
        Ok(id)
    }

    fn add(&mut self, target: Option<SocketAddr>, addresses: Vec<EntityAddress>, session: Session) -> PeerId {
        self.next_peer += 1;
        let id = PeerId(self.next_peer);
        let never = Duration::ZERO;
        let (stream, is_reset) = (None, false);
        let peer = Peer { target, addresses, stream, session, backoff: never, next_try: never, left: never, is_reset };
        self.peers.insert(id, peer);
        id
    }

    /// Different each time, and never 0.
    fn new_cookie(&mut self) -> u64 {
        self.cookie = self.cookie.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        self.cookie | 1
    }

    /// Connects, or plans to try again.
    fn call(&mut self, id: PeerId) {
        let now = self.stack.clock().now();
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let Some(target) = peer.target else { return };
        match self.stack.connect(target) {
            Ok(stream) => {
                self.global_seq += 1;
                let session = std::mem::take(&mut peer.session);
                let target = EntityAddress::msgr2(target, 0);
                // Ceph knows one session between two entities, so each session is of an entity of its own.
                let mut identity = (*self.identity).clone();
                let nonce = self.options.nonce.wrapping_add(id.0 as u32);
                identity.addresses = vec![EntityAddress { kind: EntityAddress::MSGR2, nonce, socket: None }];
                let protocol = Protocol::client(Arc::new(identity), target, session, self.global_seq);
                peer.stream = Some(stream);
                self.connections.insert(stream, Connection { protocol, peer: Some(id), heard: now, asked: now });
            }
            Err(error) => {
                tracing::debug!(%error, %target, "not connected");
                self.plan(id, now);
            }
        }
    }

    /// Plans the next attempt.
    fn plan(&mut self, id: PeerId, now: Duration) {
        let (first, most) = self.options.backoff;
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.backoff = if peer.backoff.is_zero() { first } else { (2 * peer.backoff).min(most) };
            peer.next_try = now + peer.backoff;
        }
    }

    /// Sends a message, or keeps it until there is a connection. Nothing is copied but the pointer to its data.
    ///
    /// What is sent before an [`Event::Reset`] was taken is lost with the rest.
    ///
    /// # Errors
    /// [`Unsent`], with the message, if the session keeps `pending_bytes` already. There is room again once the other
    /// end has taken some; of one that never does, the server's user [closes](Self::close) the session.
    pub fn send(&mut self, id: PeerId, message: Message) -> Result<(), Unsent> {
        let Some(peer) = self.peers.get_mut(&id).filter(|peer| !peer.is_reset) else { return Ok(()) };
        let (stream, session) = match peer.stream.and_then(|stream| Some((stream, self.connections.get_mut(&stream)?)))
        {
            Some((stream, connection)) => (Some(stream), connection.protocol.session()),
            None => (None, &mut peer.session),
        };
        let (pending, most) = (session.pending_bytes(), self.options.pending_bytes);
        if pending > 0 && pending.saturating_add(message.bytes()) > most {
            return Err(Unsent { peer: id, message, pending, most });
        }
        session.push(message);
        self.talkative.extend(stream);
        Ok(())
    }

    /// Messages of a session that wait to be sent, and those that the other end may not have.
    pub fn pending(&mut self, id: PeerId) -> (usize, usize) {
        let Some(peer) = self.peers.get(&id) else { return (0, 0) };
        let connection = peer.stream.and_then(|stream| self.connections.get_mut(&stream));
        connection.map_or_else(|| peer.session.pending(), |connection| connection.protocol.session().pending())
    }

    /// Ends a session: what was given to the stream is sent.
    pub fn close(&mut self, id: PeerId) {
        if let Some(stream) = self.peers.remove(&id).and_then(|peer| peer.stream) {
            self.connections.remove(&stream);
            self.stack.close(stream);
        }
    }

    /// Breaks the connection of a session, as a fault does.
    pub fn kill(&mut self, id: PeerId) {
        if let Some(stream) = self.peers.get(&id).and_then(|peer| peer.stream) {
            self.broke(stream, Trouble::Ended);
        }
    }

    /// What happened next.
    pub fn next_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front();
        if let Some(Event::Reset(id)) = event
            && let Some(peer) = self.peers.get_mut(&id)
        {
            peer.is_reset = false;
        }
        event
    }

    /// What was sent is lost.
    fn reset(&mut self, id: PeerId) {
        if let Some(peer) = self.peers.get_mut(&id)
            && !std::mem::replace(&mut peer.is_reset, true)
        {
            self.events.push_back(Event::Reset(id));
        }
    }

    /// Serves everything. Returns whether anything happened.
    ///
    /// # Errors
    /// As for [`Stack::poll`].
    pub fn poll(&mut self) -> Result<bool, MessengerError> {
        let mut moved = self.stack.poll()?;
        while let Some(event) = self.stack.next_event() {
            moved = true;
            match event {
                StackEvent::Accepted(stream, from) => self.accepted(stream, from),
                StackEvent::Connected(stream) => {
                    self.statistics.streams += 1;
                    self.talkative.push(stream);
                }
                StackEvent::Stream(StreamEvent::Readable(stream)) => self.hear(stream),
                StackEvent::Stream(StreamEvent::Writable(stream)) => self.talkative.push(stream),
                StackEvent::Stream(StreamEvent::Closed(stream, why)) => {
                    // What came before its end counts.
                    self.hear(stream);
                    self.broke(stream, why.into());
                }
            }
        }
        for stream in std::mem::take(&mut self.talkative) {
            self.talk(stream);
        }
        let now = self.stack.clock().now();
        if now >= self.next_look {
            self.next_look = now + LOOK;
            self.look(now);
        }
        Ok(moved)
    }

    /// Waits until [`poll`](Self::poll) may have something to do, for a few milliseconds at most.
    ///
    /// # Errors
    /// As for [`Stack::wait`].
    pub fn wait(&mut self) -> Result<(), MessengerError> {
        match self.talkative.is_empty() && self.events.is_empty() {
            true => self.stack.wait(),
            false => Ok(()),
        }
    }

    fn accepted(&mut self, stream: StreamId, from: SocketAddr) {
        self.statistics.streams += 1;
        let now = self.stack.clock().now();
        let protocol = Protocol::server(Arc::clone(&self.identity), EntityAddress::msgr2(from, 0));
        self.connections.insert(stream, Connection { protocol, peer: None, heard: now, asked: now });
        self.talkative.push(stream);
    }

    /// Takes what came over a stream.
    fn hear(&mut self, stream: StreamId) {
        let now = self.stack.clock().now();
        loop {
            let Some(connection) = self.connections.get_mut(&stream) else {
                return;
            };
            let unread = self.stack.streams().unread(stream);
            if unread.is_empty() {
                break;
            }
            connection.heard = now;
            let mut rest = unread;
            let heard = connection.protocol.hear(&mut rest);
            let taken = unread.len() - rest.len();
            self.stack.streams().consume(stream, taken);
            match heard {
                Ok(Some(heard)) => self.heard(stream, heard),
                Ok(None) => {}
                Err(error) => {
                    // What it has to say about that goes first.
                    self.talk(stream);
                    self.broke(stream, error.into());
                    return;
                }
            }
        }
        self.talkative.push(stream);
    }

    fn heard(&mut self, stream: StreamId, heard: Heard) {
        let peer = self.connections.get(&stream).and_then(|connection| connection.peer);
        match (heard, peer) {
            (Heard::Ident(ident), _) => self.ident(stream, ident),
            (Heard::Reconnect(reconnect), _) => self.reconnect(stream, reconnect),
            (Heard::Ready, Some(id)) => {
                if let Some(peer) = self.peers.get_mut(&id) {
                    peer.backoff = Duration::ZERO;
                }
                self.events.push_back(Event::Connected(id));
            }
            (Heard::Reset, Some(id)) => self.reset(id),
            (Heard::Message(message), Some(id)) => {
                self.statistics.received += 1;
                self.events.push_back(Event::Message(id, message));
            }
            _ => {}
        }
    }

    /// A client asks for a session: a new one, or that of which it has not heard (`handle_client_ident`,
    /// `handle_existing_connection`).
    fn ident(&mut self, stream: StreamId, ident: ClientIdent) {
        let known = self.peers.iter().find(|(_, peer)| peer.target.is_none() && peer.addresses == ident.addresses);
        let known = known.map(|(id, _)| *id);
        let is_lossy = self.identity.is_lossy || ident.cookie == 0;
        let server_cookie = if is_lossy { 0 } else { self.new_cookie() };
        let mut session = Session {
            client_cookie: ident.cookie,
            server_cookie,
            peer_global_seq: ident.global_seq,
            is_lossy,
            ..Session::default()
        };
        if let Some(id) = known {
            self.break_old(id);
            let is_same = self.peers.get(&id).is_some_and(|peer| peer.session.client_cookie == ident.cookie);
            if is_same && !is_lossy {
                // What was sent to it is sent again, under new numbers: it knows of none.
                session.inherit(self.peers.get_mut(&id).map(|peer| std::mem::take(&mut peer.session)));
            } else if self.peers.remove(&id).is_some() {
                // One that is lossy has gone with its connection.
                self.events.push_back(Event::Gone(id));
            }
        }
        let id = known.filter(|id| self.peers.contains_key(id));
        let id = id.unwrap_or_else(|| self.add(None, ident.addresses, Session::default()));
        self.global_seq += 1;
        let global_seq = self.global_seq;
        self.take_over(id, stream, |protocol| protocol.accept(session, global_seq));
    }

    /// A client comes back (`handle_reconnect`).
    fn reconnect(&mut self, stream: StreamId, reconnect: Reconnect) {
        let known = self.peers.iter().find(|(_, peer)| peer.target.is_none() && peer.addresses == reconnect.addresses);
        let Some(id) = known.map(|(id, _)| *id) else { return self.refuse(stream, Refusal::Reset(true)) };
        let Some((client, server, connect_seq, global_seq)) = self.numbers(id) else { return };
        if client != reconnect.client_cookie || server != reconnect.server_cookie {
            return self.refuse(stream, Refusal::Reset(true));
        }
        if global_seq > reconnect.global_seq {
            return self.refuse(stream, Refusal::RetryGlobal(global_seq));
        }
        if connect_seq > reconnect.connect_seq {
            return self.refuse(stream, Refusal::Retry(connect_seq));
        }
        self.break_old(id);
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let mut session = std::mem::take(&mut peer.session);
        (session.connect_seq, session.peer_global_seq) = (reconnect.connect_seq, reconnect.global_seq);
        self.statistics.resumed += 1;
        self.take_over(id, stream, |protocol| protocol.resume(session, reconnect.message_seq));
    }

    /// Cookies of the client and the server, and counts of connections, of a session.
    fn numbers(&mut self, id: PeerId) -> Option<(u64, u64, u64, u64)> {
        let peer = self.peers.get_mut(&id)?;
        let connection = peer.stream.and_then(|stream| self.connections.get_mut(&stream));
        let session = connection.map_or(&mut peer.session, |connection| connection.protocol.session());
        Some((session.client_cookie, session.server_cookie, session.connect_seq, session.peer_global_seq))
    }

    /// Ends the connection that a session still has: its client has another.
    fn break_old(&mut self, id: PeerId) {
        if let Some(stream) = self.peers.get(&id).and_then(|peer| peer.stream) {
            self.broke(stream, Trouble::Ended);
        }
    }

    fn take_over(&mut self, id: PeerId, stream: StreamId, answer: impl FnOnce(&mut Protocol)) {
        if let (Some(peer), Some(connection)) = (self.peers.get_mut(&id), self.connections.get_mut(&stream)) {
            (peer.stream, connection.peer) = (Some(stream), Some(id));
            answer(&mut connection.protocol);
            self.events.push_back(Event::Connected(id));
        }
    }

    fn refuse(&mut self, stream: StreamId, refusal: Refusal) {
        if let Some(connection) = self.connections.get_mut(&stream) {
            connection.protocol.refuse(refusal);
        }
    }

    /// Writes what a connection has to say, as far as its stream takes it.
    fn talk(&mut self, stream: StreamId) {
        let Some(Connection { protocol, .. }) = self.connections.get_mut(&stream) else { return };
        loop {
            protocol.pump();
            let wanted = protocol.to_send();
            if wanted == 0 {
                return;
            }
            let parts = protocol.parts();
            let offered: usize = parts.iter().map(|part| part.len()).sum();
            let taken = self.stack.streams().write(stream, &parts);
            protocol.taken(taken);
            if taken < offered {
                return;
            }
        }
    }

    /// The connection over `stream` is of no use any more.
    fn broke(&mut self, stream: StreamId, trouble: Trouble) {
        self.stack.close(stream);
        let Some(Connection { protocol, peer, .. }) = self.connections.remove(&stream) else { return };
        self.statistics.broken += 1;
        tracing::debug!(%trouble, "a connection broke");
        let (Some(id), now) = (peer, self.stack.clock().now()) else { return };
        let Some(peer) = self.peers.get_mut(&id).filter(|peer| peer.stream == Some(stream)) else { return };
        let was_ready = protocol.state() == State::Ready;
        let mut session = protocol.into_session();
        let is_lossy = session.is_lossy && was_ready;
        session.broke();
        if is_lossy {
            session = Session { client_cookie: session.client_cookie, ..Session::default() };
        }
        (peer.session, peer.stream, peer.left) = (session, None, now);
        let is_client = peer.target.is_some();
        self.events.push_back(Event::Broken(id, trouble));
        if is_lossy && !is_client {
            self.peers.remove(&id);
            self.events.push_back(Event::Gone(id));
            return;
        }
        if is_lossy {
            let cookie = self.new_cookie();
            if let Some(peer) = self.peers.get_mut(&id) {
                peer.session.client_cookie = cookie;
            }
            self.reset(id);
        }
        if is_client {
            self.plan(id, now);
        }
    }

    /// Drops the sessions whose clients have been gone for longest, beyond as many as are kept. Ceph leaves that to the
    /// server, which marks them down (`AsyncConnection::mark_down`); here nobody else knows of them.
    fn forget(&mut self) {
        let is_absent = |peer: &Peer| peer.target.is_none() && peer.stream.is_none();
        let absent = self.peers.values().filter(|peer| is_absent(peer)).count();
        for _ in self.options.absent..absent {
            let absent = self.peers.iter().filter(|(_, peer)| is_absent(peer));
            let Some((&id, _)) = absent.min_by_key(|(_, peer)| peer.left) else { return };
            self.peers.remove(&id);
            self.events.push_back(Event::Gone(id));
        }
    }

    /// Connects again where it is time, and asks those who are silent.
    fn look(&mut self, now: Duration) {
        let due = |peer: &Peer| peer.target.is_some() && peer.stream.is_none() && now >= peer.next_try;
        let again: Vec<_> = self.peers.iter().filter(|(_, peer)| due(peer)).map(|(id, _)| *id).collect();
        again.into_iter().for_each(|id| self.call(id));
        self.forget();
        let (every, most) = (self.options.keepalive, 4 * self.options.keepalive);
        let mut silent = Vec::new();
        for (stream, connection) in &mut self.connections {
            if now >= connection.heard + most {
                silent.push(*stream);
            } else if now >= connection.heard.max(connection.asked) + every {
                connection.asked = now;
                let stamp = Stamp { seconds: now.as_secs() as u32, nanoseconds: now.subsec_nanos() };
                connection.protocol.ask_alive(stamp);
                self.talkative.push(*stream);
            }
        }
        silent.into_iter().for_each(|stream| self.broke(stream, Trouble::Silence(most)));
    }
}
