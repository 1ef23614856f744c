//! A connection with a peer: its credits, its queues of messages, and the transfers under way on it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use mlx5_dv::objects::{AccessFlags, Buffer, ExclusiveRegion, QueuePair, RtrAttributes, RtsAttributes};
use mlx5_dv::queue::{Connection, ConnectionOptions, Done, RemoteAddress, Side, Ticket};

use super::common::Common;
use super::events::{Event, Id, Role, Waiting};
use super::failure::{Failure, TransferError};
use super::transfer::{KeyStage, Outgoing, Transfer};
use crate::credits::{Cost, Credits, Repost};
use crate::keys::NoKey;
use crate::nid::Nid;
use crate::payload::Payload;
use crate::plan::{PlanError, Write, plan};
use crate::status;
use crate::wire::{Body, Fragment, Handle, Header, LnetMessage, MAX_FRAGMENTS, MESSAGE_BYTES, Message, RdmaDescriptor};

/// Buffers of an RDMA WRITE.
const PIECES: u16 = 14;
/// Work requests of the send queue: those of the longest transfer, and some more.
const SENDS: u32 = MAX_FRAGMENTS as u32 + 255;
/// Work requests that are not for messages: keys change in time.
const SPARE: usize = 64;
/// How long a broken connection may take to return its buffers.
const FLUSH: Duration = Duration::from_secs(5);
/// Where the data of an IMMEDIATE message is in it: `ibim_payload`.
const PAYLOAD_AT: usize = 120;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// A request is under way, of ours or of the peer's.
    Connecting,
    Established,
    /// It has failed, and its buffers come back.
    Closing,
}

/// Who talks to whom, and how.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    pub(super) peer: Nid,
    /// Incarnation of the peer; 0 where it is not known yet.
    pub(super) peer_stamp: u64,
    pub(super) version: u16,
    pub(super) queue_depth: u16,
    pub(super) max_fragments: u16,
}

/// A request of the peer that the program has not answered.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) header: Header,
    rx: Buffer,
    kind: RequestKind,
}

#[derive(Debug)]
enum RequestKind {
    Immediate,
    Put { cookie: u64 },
    Get { cookie: u64, descriptor: RdmaDescriptor },
}

/// What a work request of the send queue is for. They complete in order.
#[derive(Debug, Clone, Copy)]
enum Purpose {
    Message { transfer: Option<u64>, is_noop: bool, ends: bool },
    Write(u64),
    Register(u64),
    Invalidate(u64),
}

#[derive(Debug)]
struct Queued {
    what: Outgoing,
    transfer: Option<u64>,
    deadline: Duration,
}

#[derive(Debug)]
pub(super) struct Conn {
    /// Its number: requests of a connection that has ended are not another's.
    serial: u64,
    pub(super) terms: Terms,
    pub(super) state: State,
    pub(super) is_active: bool,
    /// Why it ended.
    pub(super) failure: Option<Failure>,
    /// Whether others know that it ended.
    pub(super) told: bool,
    connection: Connection,
    credits: Credits,
    /// Messages that cost a credit; requests that wait for a reserved receive; answers.
    queue: VecDeque<Queued>,
    reserved: VecDeque<Queued>,
    answers: VecDeque<Queued>,
    /// Transfers that wait for a key.
    keyless: VecDeque<u64>,
    /// Keys to invalidate.
    closing_keys: VecDeque<u64>,
    transfers: BTreeMap<u64, Transfer>,
    requests: BTreeMap<u64, Request>,
    sends: VecDeque<(Ticket, usize, Purpose)>,
    chunks: Vec<Buffer>,
    last_send: Duration,
    pub(super) last_heard: Duration,
    /// When it is dropped at the latest.
    flush_until: Duration,
    pub(super) since: Duration,
}

impl Conn {
    /// A connection in INIT with its receives.
    pub(super) fn new(common: &mut Common, terms: Terms, is_active: bool) -> Result<Self, Failure> {
        let receives = Credits::receives(terms.version, terms.queue_depth);
        let chunks = u32::from(terms.queue_depth) + 4;
        let mut options = ConnectionOptions::default();
        (options.send_depth, options.recv_depth, options.send_sges) = (SENDS, receives, PIECES);
        options.remote_access = AccessFlags::REMOTE_WRITE;
        let local = |error: mlx5_dv::Error| Failure::Local(error.to_string());
        let mut connection = Connection::new(&common.pd, options).map_err(local)?;
        let region = ExclusiveRegion::allocate(&common.pd, (receives + chunks) as usize * MESSAGE_BYTES);
        let mut buffers = region.and_then(|region| region.buffers(MESSAGE_BYTES)).map_err(local)?;
        buffers.truncate((receives + chunks) as usize);
        for buffer in buffers.drain(..receives as usize) {
            connection.receive(buffer).map_err(refused)?;
        }
        let now = common.clock.now();
        Ok(Conn {
            serial: common.cookie(),
            terms,
            state: State::Connecting,
            is_active,
            failure: None,
            told: false,
            connection,
            credits: Self::credits(common, &terms),
            queue: VecDeque::new(),
            reserved: VecDeque::new(),
            answers: VecDeque::new(),
            keyless: VecDeque::new(),
            closing_keys: VecDeque::new(),
            transfers: BTreeMap::new(),
            requests: BTreeMap::new(),
            sends: VecDeque::new(),
            chunks: buffers,
            last_send: now,
            last_heard: now,
            flush_until: Duration::MAX,
            since: now,
        })
    }

    fn credits(common: &Common, terms: &Terms) -> Credits {
        let sends = common.options.concurrent_sends.unwrap_or(terms.queue_depth);
        Credits::new(terms.version, terms.queue_depth, sends.min(terms.queue_depth + 2))
    }

    pub(super) fn queue_pair(&self) -> &Arc<QueuePair> {
        self.connection.queue_pair()
    }

    pub(super) fn connect_by(&mut self, rtr: &RtrAttributes, rts: &RtsAttributes) -> Result<(), Failure> {
        self.connection.connect_by(rtr, rts).map_err(|error| Failure::Local(error.to_string()))
    }

    /// The peer has agreed to `terms`.
    pub(super) fn establish(&mut self, common: &Common, terms: Terms) {
        self.terms = terms;
        if self.is_active {
            self.credits = Self::credits(common, &terms);
        }
        self.state = State::Established;
        self.last_send = common.clock.now();
    }

    /// Whether the peer sends already, though the connection manager's last message is not here: it may be lost.
    pub(super) fn is_early(&self) -> bool {
        self.state == State::Connecting && self.last_heard > self.since
    }

    /// Starts a PUT or a GET.
    pub(super) fn submit(&mut self, common: &mut Common, waiting: Waiting) {
        let Waiting { id, role, header, payload, .. } = waiting;
        let cookie = common.cookie();
        let mut transfer = Transfer::new(id, role, payload, common.deadline());
        let mut header = header;
        if let LnetMessage::Get(get) = &mut header.message {
            get.reply = common.handle(cookie);
        }
        transfer.header = Some(header);
        transfer.on_sent = (role == Role::ImmediatePut).then_some(Ok(transfer.len));
        self.transfers.insert(cookie, transfer);
        match role {
            Role::GetSink => self.send_of(common, cookie, Outgoing::GetReq(header)),
            Role::PutSource => self.send_of(common, cookie, Outgoing::PutReq(header)),
            _ => self.send_of(common, cookie, Outgoing::Immediate(header)),
        }
    }

    fn send_of(&mut self, common: &Common, cookie: u64, what: Outgoing) {
        let deadline = common.deadline();
        if let Some(transfer) = self.transfers.get_mut(&cookie) {
            (transfer.queued, transfer.deadline) = (true, deadline);
        }
        self.enqueue(Queued { what, transfer: Some(cookie), deadline });
    }

    /// `kiblnd_queue_tx_locked` of `o2iblnd_cb.c`.
    fn enqueue(&mut self, queued: Queued) {
        match &queued.what {
            Outgoing::PutReq(_) | Outgoing::GetReq(_) => self.reserved.push_back(queued),
            Outgoing::Immediate(_) => self.queue.push_back(queued),
            Outgoing::Noop if self.credits.is_v1() => self.queue.push_front(queued),
            _ => self.answers.push_back(queued),
        }
    }

    /// Takes what has come, and sends what can be sent.
    pub(super) fn poll(&mut self, common: &mut Common) {
        loop {
            match self.connection.poll() {
                Ok(Some(done)) => self.take(common, done),
                Ok(None) => break,
                Err(error) => {
                    self.fail(common, Failure::Refused(error.to_string()));
                    break;
                }
            }
        }
        if self.state == State::Established
            && let Err(failure) = self.pump(common)
        {
            self.fail(common, failure);
        }
    }

    /// Gives up what took too long. Called now and then. `kiblnd_check_conns` of `o2iblnd_cb.c`.
    pub(super) fn check(&mut self, common: &mut Common) {
        let now = common.clock.now();
        if self.state != State::Established {
            return;
        }
        // A reply of LNet that does not come is nothing that the connection is at fault for.
        let lost =
            |transfer: &Transfer| transfer.role == Role::ImmediateGet && transfer.sending == 0 && !transfer.queued;
        let overdue: Vec<u64> = self
            .transfers
            .iter()
            .filter(|(_, transfer)| transfer.result.is_none() && transfer.deadline < now)
            .map(|(cookie, _)| *cookie)
            .collect();
        for cookie in overdue {
            match self.transfers.get_mut(&cookie) {
                Some(transfer) if lost(transfer) => {
                    transfer.finish(Err(TransferError::NoReply));
                    self.finish(common, cookie);
                }
                _ => return self.fail(common, Failure::Timeout),
            }
        }
        let queues = [&self.queue, &self.reserved, &self.answers];
        if queues.into_iter().flatten().any(|queued| queued.deadline < now) {
            self.fail(common, Failure::Timeout);
        }
    }

    /// Ends the connection: its transfers fail, and their buffers come back.
    pub(super) fn fail(&mut self, common: &mut Common, failure: Failure) {
        if self.state == State::Closing {
            return;
        }
        tracing::debug!(peer = %self.terms.peer, %failure, "a connection ends");
        self.state = State::Closing;
        self.flush_until = common.clock.now() + FLUSH;
        if let Err(error) = self.connection.queue_pair().to_error() {
            tracing::debug!(%error, "a queue pair was not taken to ERR: its buffers are freed with it");
            self.flush_until = common.clock.now();
        }
        for queue in [&mut self.queue, &mut self.reserved, &mut self.answers] {
            queue.clear();
        }
        self.keyless.clear();
        self.closing_keys.clear();
        self.requests.clear();
        let nid = self.terms.peer;
        for transfer in self.transfers.values_mut() {
            transfer.queued = false;
            transfer.finish(Err(TransferError::Connection { nid, failure: failure.clone() }));
        }
        self.failure = Some(failure);
    }

    /// Whether all of a connection that ended is back, or was waited for long enough.
    pub(super) fn is_flushed(&self, now: Duration) -> bool {
        self.state == State::Closing && (self.connection.in_flight() == (0, 0) || now >= self.flush_until)
    }

    /// Tells what became of the transfers of a connection that ended. Its queue pair is in ERR, or gone.
    pub(super) fn close(self, common: &mut Common) {
        // Before keys are closed and buffers given back: what is in flight still is not any more.
        drop(self.connection);
        for mut transfer in self.transfers.into_values() {
            if let Some((mut key, is_direct, _)) = transfer.key.take() {
                // The remote may have the key still: only a command closes it now.
                if key.is_free() || key.renew().is_ok() {
                    transfer.parts = key.parts().collect();
                    common.keys.put(key, is_direct);
                }
            }
            tell(common, transfer);
        }
    }

    /// A work request is done.
    fn take(&mut self, common: &mut Common, done: Done) {
        let side = match &done.result {
            Ok(completion) => completion.work.side,
            Err(error) => error.work.side,
        };
        if let Err(error) = &done.result {
            let failure = Failure::WorkRequest(*error);
            self.fail(common, failure);
        }
        match side {
            Side::Send => self.sent(common, done),
            Side::Receive if done.result.is_ok() && self.state != State::Closing => {
                if let Err(failure) = self.received(common, done) {
                    self.fail(common, failure);
                }
            }
            Side::Receive => {}
        }
    }

    fn sent(&mut self, common: &mut Common, done: Done) {
        let Some((ticket, left, purpose)) = self.sends.front_mut() else {
            return self.fail(common, Failure::Unexpected("completion of a send"));
        };
        if *ticket != done.ticket {
            return self.fail(common, Failure::Unexpected("order of completions"));
        }
        let purpose = *purpose;
        *left -= 1;
        let is_last = *left == 0;
        if is_last {
            self.sends.pop_front();
        }
        let transfer = match purpose {
            Purpose::Message { transfer, is_noop, .. } => {
                self.credits.sent(is_noop);
                self.chunks.extend(done.buffer);
                transfer
            }
            Purpose::Write(cookie) => {
                if let (Some(transfer), Some(buffer)) = (self.transfers.get_mut(&cookie), done.buffer) {
                    transfer.returned(buffer);
                }
                Some(cookie)
            }
            Purpose::Register(cookie) | Purpose::Invalidate(cookie) => {
                let transfer = self.transfers.get_mut(&cookie);
                if let Some((key, ..)) = transfer.and_then(|transfer| transfer.key.as_mut()) {
                    key.settle(&done);
                }
                Some(cookie)
            }
        };
        let Some(cookie) = transfer.filter(|_| is_last) else { return };
        let Some(transfer) = self.transfers.get_mut(&cookie) else { return };
        transfer.sending -= 1;
        let ends = matches!(purpose, Purpose::Message { ends: true, .. });
        if let Some(result) = transfer.on_sent.take_if(|_| ends && done.result.is_ok()) {
            transfer.finish(result);
        }
        self.finish(common, cookie);
    }

    /// Tells what became of a transfer, once nothing of it is under way and its key is free.
    fn finish(&mut self, common: &mut Common, cookie: u64) {
        let Some(transfer) = self.transfers.get_mut(&cookie).filter(|transfer| transfer.is_over()) else { return };
        if self.state == State::Closing {
            return;
        }
        if let Some((key, _, stage)) = &mut transfer.key {
            if !key.is_free() {
                if *stage == KeyStage::Registered {
                    *stage = KeyStage::Closing;
                    self.closing_keys.push_back(cookie);
                }
                return;
            }
            if let Some((mut key, is_direct, _)) = transfer.key.take() {
                transfer.parts = key.parts().collect();
                common.keys.put(key, is_direct);
            }
        }
        if let Some(transfer) = self.transfers.remove(&cookie) {
            tell(common, transfer);
        }
    }

    /// Sends what can be sent: `kiblnd_check_sends_locked` of `o2iblnd_cb.c`.
    fn pump(&mut self, common: &mut Common) -> Result<(), Failure> {
        self.close_keys()?;
        self.open_keys(common);
        while !self.reserved.is_empty() && self.credits.reserve() {
            self.queue.extend(self.reserved.pop_front());
        }
        let is_idle = common.clock.now() > self.last_send + common.options.keepalive;
        let is_noop = |queued: &Queued| matches!(queued.what, Outgoing::Noop);
        let other_goes = !self.answers.is_empty() || self.queue.front().is_some_and(is_noop);
        if self.credits.needs_noop(!self.queue.is_empty(), other_goes, is_idle) {
            self.enqueue(Queued { what: Outgoing::Noop, transfer: None, deadline: common.deadline() });
        }
        loop {
            let (cost, queue) = match (self.answers.is_empty(), self.queue.is_empty()) {
                (false, _) => (Cost::Nothing, &mut self.answers),
                (true, false) => (Cost::Credit, &mut self.queue),
                (true, true) => return Ok(()),
            };
            let Some(queued) = queue.front() else { return Ok(()) };
            let (is_noop, room) = (is_noop(queued), queued.what.work_requests());
            let posted = self.connection.in_flight().0;
            if !self.credits.may_send(cost, is_noop) || self.chunks.is_empty() || posted + room + SPARE > SENDS as usize
            {
                return Ok(());
            }
            let wants_key = matches!(queued.what, Outgoing::GetReq(_)).then_some(queued.transfer).flatten();
            let has_key = wants_key.is_none_or(|cookie| self.transfers.get(&cookie).is_none_or(|of| of.key.is_some()));
            let can_be = has_key || {
                let Some(taken) = wants_key.and_then(|cookie| self.take_key(common, cookie)) else { return Ok(()) };
                taken
            };
            let queue = if cost == Cost::Nothing { &mut self.answers } else { &mut self.queue };
            match queue.pop_front() {
                Some(queued) if can_be => self.post(common, queued, cost)?,
                // The receive for its answer is for another.
                _ => self.credits.reposted(Repost::Reserved),
            }
        }
    }

    /// Keys for the PUTs of the peer that wait for one. They come before GETs of this node's: a GET that had a key and
    /// waited for a credit could wait for a PUT of the peer's that waits for a key.
    fn open_keys(&mut self, common: &mut Common) {
        while let Some(cookie) = self.keyless.pop_front() {
            let source_cookie = self.transfers.get(&cookie).map_or(0, |transfer| transfer.source_cookie);
            match self.take_key(common, cookie) {
                Some(true) => self.send_of(common, cookie, Outgoing::PutAck { source_cookie }),
                Some(false) => {
                    let nak = Outgoing::PutNak { cookie: source_cookie, status: status::ENOMEM };
                    self.enqueue(Queued { what: nak, transfer: None, deadline: common.deadline() });
                    self.credits.reposted(Repost::PeerCredit);
                }
                None => return self.keyless.push_front(cookie),
            }
        }
    }

    /// A key for a transfer; `None` while all are in use, false where none can hold its memory: then it has failed.
    fn take_key(&mut self, common: &mut Common, cookie: u64) -> Option<bool> {
        let transfer = self.transfers.get_mut(&cookie)?;
        match common.keys.take(transfer.take_payload()) {
            Ok((key, is_direct)) => {
                transfer.key = Some((key, is_direct, KeyStage::Fresh));
                Some(true)
            }
            Err(NoKey::Wait(payload)) => {
                transfer.parts = payload.into_parts();
                None
            }
            Err(NoKey::Never(payload)) => {
                transfer.parts = payload.into_parts();
                transfer.queued = false;
                transfer.finish(Err(TransferError::NoKey));
                self.finish(common, cookie);
                Some(false)
            }
        }
    }

    fn close_keys(&mut self) -> Result<(), Failure> {
        while let Some(cookie) = self.closing_keys.pop_front() {
            let Some(transfer) = self.transfers.get_mut(&cookie) else { continue };
            let Some((key, ..)) = &mut transfer.key else { continue };
            if self.connection.in_flight().0 >= SENDS as usize {
                self.closing_keys.push_front(cookie);
                return Ok(());
            }
            let ticket = self.connection.invalidate(key).map_err(|reason| Failure::Refused(reason.to_string()))?;
            transfer.sending += 1;
            self.sends.push_back((ticket, 1, Purpose::Invalidate(cookie)));
        }
        Ok(())
    }

    fn post(&mut self, common: &mut Common, queued: Queued, cost: Cost) -> Result<(), Failure> {
        let Some(mut chunk) = self.chunks.pop() else { return Err(Failure::Unexpected("lack of chunks")) };
        let Queued { what, transfer: cookie, .. } = queued;
        let is_noop = matches!(what, Outgoing::Noop);
        if is_noop && self.credits.outstanding() == 0 && common.clock.now() <= self.last_send + common.options.keepalive
        {
            // Another message has taken the credits with it.
            self.chunks.push(chunk);
            return Ok(());
        }
        if let Some(cookie) = cookie {
            self.prepare(common, cookie, &what)?;
        }
        let credits = self.credits.send(cost, is_noop);
        let len = self.encode(common, &mut chunk, &what, cookie, credits)?;
        chunk.set_len(len);
        let (key, writes) = match &what {
            Outgoing::Done { rkey, writes, .. } => (*rkey, self.cut(cookie, writes)),
            _ => (0, Vec::new()),
        };
        let mut batch = self.connection.batch();
        batch.quiet();
        for (addr, mut pieces) in writes {
            let Some(cookie) = cookie else { break };
            let count = pieces.len();
            let remote = RemoteAddress { addr, rkey: key };
            let ticket = batch.write_all(&mut pieces, remote).map_err(|reason| Failure::Refused(reason.to_string()))?;
            self.sends.push_back((ticket, count, Purpose::Write(cookie)));
            if let Some(transfer) = self.transfers.get_mut(&cookie) {
                transfer.sending += 1;
            }
        }
        batch.signalled();
        let ticket = batch.send(chunk).map_err(refused)?;
        drop(batch);
        self.sends.push_back((ticket, 1, Purpose::Message { transfer: cookie, is_noop, ends: what.ends() }));
        if let Some(transfer) = cookie.and_then(|cookie| self.transfers.get_mut(&cookie)) {
            transfer.queued = false;
            transfer.sending += 1;
        }
        self.last_send = common.clock.now();
        Ok(())
    }

    fn cut(&mut self, cookie: Option<u64>, writes: &VecDeque<Write>) -> Vec<(u64, Vec<Buffer>)> {
        let transfer = cookie.and_then(|cookie| self.transfers.get_mut(&cookie));
        transfer.map(|transfer| transfer.cut(writes)).unwrap_or_default()
    }

    /// Registers the key of a transfer whose message tells it to the peer.
    fn prepare(&mut self, common: &mut Common, cookie: u64, what: &Outgoing) -> Result<(), Failure> {
        if !matches!(what, Outgoing::GetReq(_) | Outgoing::PutAck { .. }) {
            return Ok(());
        }
        let Some(transfer) = self.transfers.get_mut(&cookie) else { return Ok(()) };
        let Some((key, _, stage)) = &mut transfer.key else { return Ok(()) };
        let rights = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
        let registered = self.connection.register(key, rights);
        let (ticket, remote) = registered.map_err(|reason| Failure::Refused(reason.to_string()))?;
        *stage = KeyStage::Registered;
        common.statistics.registrations += 1;
        transfer.sending += 1;
        // One fragment: the key makes one range of addresses of all buffers.
        let fragment = Fragment { len: transfer.len as u32, addr: remote.addr };
        transfer.opened = Some(RdmaDescriptor { key: remote.rkey, fragments: vec![fragment] });
        self.sends.push_back((ticket, 1, Purpose::Register(cookie)));
        Ok(())
    }

    /// Writes a message to `chunk`; returns its length.
    fn encode(
        &mut self,
        common: &Common,
        chunk: &mut Buffer,
        what: &Outgoing,
        cookie: Option<u64>,
        credits: u8,
    ) -> Result<usize, Failure> {
        let own = cookie.unwrap_or(0);
        let transfer = self.transfers.get(&own).filter(|_| cookie.is_some());
        let opened = || {
            let descriptor = transfer.and_then(|transfer| transfer.opened.clone());
            descriptor.ok_or(Failure::Unexpected("lack of a key"))
        };
        let mut data = Vec::new();
        let body = match what {
            Outgoing::Noop => Body::Noop,
            Outgoing::Immediate(header) => {
                if let Some(transfer) = transfer.filter(|transfer| transfer.role != Role::ImmediateGet) {
                    data.resize(transfer.len, 0);
                    transfer.read(&mut data);
                }
                Body::Immediate { header: *header, payload: &data }
            }
            Outgoing::PutReq(header) => Body::PutReq { header: *header, cookie: own },
            Outgoing::GetReq(header) => Body::GetReq { header: *header, cookie: own, descriptor: opened()? },
            Outgoing::PutAck { source_cookie } => {
                Body::PutAck { source_cookie: *source_cookie, sink_cookie: own, descriptor: opened()? }
            }
            Outgoing::PutNak { cookie, status } => Body::PutNak { cookie: *cookie, status: *status },
            Outgoing::Done { is_put: true, cookie, status, .. } => Body::PutDone { cookie: *cookie, status: *status },
            Outgoing::Done { cookie, status, .. } => Body::GetDone { cookie: *cookie, status: *status },
        };
        let message = Message {
            version: self.terms.version,
            credits,
            source: common.options.nid,
            source_stamp: common.incarnation,
            destination: self.terms.peer,
            destination_stamp: self.terms.peer_stamp,
            body,
        };
        chunk.set_len(MESSAGE_BYTES);
        Ok(message.encode(common.options.byte_order, common.options.checksums, chunk.as_mut_slice()))
    }

    /// A message came. `kiblnd_rx_complete` and `kiblnd_handle_rx` of `o2iblnd_cb.c`.
    fn received(&mut self, common: &mut Common, done: Done) -> Result<(), Failure> {
        let (Ok(completion), Some(rx)) = (done.result, done.buffer) else { return Ok(()) };
        let bytes = &rx.as_slice()[..MESSAGE_BYTES.min(completion.byte_len as usize)];
        let (message, _) = Message::decode(bytes)?;
        let is_ours = message.source == self.terms.peer
            && message.destination == common.options.nid
            && message.destination_stamp == common.incarnation
            && message.source_stamp == self.terms.peer_stamp
            && message.version == self.terms.version;
        if !is_ours {
            return Err(Failure::Stale);
        }
        self.last_heard = common.clock.now();
        let cost = match &message.body {
            Body::Immediate { .. } | Body::PutReq { .. } | Body::GetReq { .. } => Cost::Credit,
            Body::Noop => self.credits.noop_cost(),
            _ => Cost::Nothing,
        };
        let credits = message.credits;
        self.credits.receive(credits, cost, matches!(message.body, Body::Noop))?;
        let whose = match message.body {
            Body::ConnReq(_) | Body::ConnAck(_) => return Err(Failure::Unexpected("CONNREQ or CONNACK")),
            Body::Noop => self.credits.repost_of_noop(credits),
            Body::Immediate { header, .. } => return self.immediate(common, header, rx),
            Body::PutReq { header, cookie } => {
                if !matches!(header.message, LnetMessage::Put(_) | LnetMessage::Reply { .. }) {
                    return Err(Failure::Unexpected("header of a PUT_REQ"));
                }
                return self.hold(common, Request { header, rx, kind: RequestKind::Put { cookie } });
            }
            Body::GetReq { header, cookie, descriptor } => {
                if !matches!(header.message, LnetMessage::Get(_)) {
                    return Err(Failure::Unexpected("header of a GET_REQ"));
                }
                return self.hold(common, Request { header, rx, kind: RequestKind::Get { cookie, descriptor } });
            }
            Body::PutAck { source_cookie, sink_cookie, descriptor } => {
                self.put_ack(common, source_cookie, sink_cookie, &descriptor)?;
                Repost::Reserved
            }
            Body::PutNak { cookie, status } => {
                // 0 says that the data is not wanted.
                let result = if status < 0 { Err(TransferError::Remote(status)) } else { Ok(0) };
                self.answered(common, cookie, Role::PutSource, result, "PUT_NAK")?;
                Repost::Reserved
            }
            Body::PutDone { cookie, status } => {
                self.answered(common, cookie, Role::PutSink, result_of(status), "PUT_DONE")?;
                Repost::PeerCredit
            }
            Body::GetDone { cookie, status } => {
                self.answered(common, cookie, Role::GetSink, result_of(status), "GET_DONE")?;
                Repost::Reserved
            }
        };
        self.repost(rx, whose)
    }

    /// Posts the receive of a message again.
    fn repost(&mut self, rx: Buffer, whose: Repost) -> Result<(), Failure> {
        self.connection.receive(rx).map_err(refused)?;
        self.credits.reposted(whose);
        Ok(())
    }

    /// Keeps a request for the program.
    fn hold(&mut self, common: &mut Common, request: Request) -> Result<(), Failure> {
        let cookie = common.cookie();
        let id = common.request(self.serial, cookie);
        common.events.push_back(Event::Incoming { request: id, from: self.terms.peer, header: request.header });
        self.requests.insert(cookie, request);
        Ok(())
    }

    fn immediate(&mut self, common: &mut Common, header: Header, rx: Buffer) -> Result<(), Failure> {
        match header.message {
            LnetMessage::Put(_) | LnetMessage::Get(_) => {
                self.hold(common, Request { header, rx, kind: RequestKind::Immediate })
            }
            LnetMessage::Reply { handle } => {
                self.reply_of_lnet(common, handle, header, &rx);
                self.repost(rx, Repost::PeerCredit)
            }
            // None is asked for.
            LnetMessage::Ack { .. } => self.repost(rx, Repost::PeerCredit),
        }
    }

    /// The reply to a GET whose data is in the message. One that nobody waits for any more is dropped, as LNet does.
    fn reply_of_lnet(&mut self, common: &mut Common, handle: Handle, header: Header, rx: &Buffer) {
        let cookie = u64::from_le_bytes(handle.object);
        let is_ours = handle == common.handle(cookie);
        let waits = |transfer: &&mut Transfer| transfer.role == Role::ImmediateGet && transfer.result.is_none();
        let Some(transfer) = self.transfers.get_mut(&cookie).filter(|_| is_ours).filter(waits) else { return };
        let given = header.payload_length as usize;
        let result = if given > transfer.len {
            Err(TransferError::TooLong { given, room: transfer.len })
        } else {
            transfer.write(&rx.as_slice()[PAYLOAD_AT..PAYLOAD_AT + given]);
            Ok(given)
        };
        transfer.finish(result);
        self.finish(common, cookie);
    }

    /// The peer has told where the data of a PUT goes.
    fn put_ack(
        &mut self,
        common: &mut Common,
        cookie: u64,
        sink_cookie: u64,
        descriptor: &RdmaDescriptor,
    ) -> Result<(), Failure> {
        let waits = |transfer: &&mut Transfer| transfer.role == Role::PutSource && transfer.waits();
        let transfer = self.transfers.get_mut(&cookie).filter(waits).ok_or(Failure::Unexpected("PUT_ACK"))?;
        let len = descriptor.len();
        let planned = plan(transfer.lens(), descriptor, len, PIECES.into(), self.terms.max_fragments);
        let (status, writes, result) = outcome(planned, len as usize);
        transfer.on_sent = Some(result);
        let done = Outgoing::Done { is_put: true, cookie: sink_cookie, status, rkey: descriptor.key, writes };
        self.send_of(common, cookie, done);
        Ok(())
    }

    /// The end of a transfer that waits for one. `kiblnd_handle_completion` of `o2iblnd_cb.c`.
    fn answered(
        &mut self,
        common: &mut Common,
        cookie: u64,
        role: Role,
        result: Result<usize, TransferError>,
        what: &'static str,
    ) -> Result<(), Failure> {
        let waits = |transfer: &&mut Transfer| transfer.role == role && transfer.waits();
        let transfer = self.transfers.get_mut(&cookie).filter(waits).ok_or(Failure::Unexpected(what))?;
        if result.as_ref().is_ok_and(|&len| len > transfer.len) {
            return Err(Failure::Unexpected("length of a transfer"));
        }
        transfer.finish(result);
        self.finish(common, cookie);
        Ok(())
    }

    pub(super) fn serial(&self) -> u64 {
        self.serial
    }

    pub(super) fn request(&self, cookie: u64) -> Option<&Request> {
        self.requests.get(&cookie)
    }

    /// Receives the data of a PUT.
    pub(super) fn receive(&mut self, common: &mut Common, cookie: u64, mut payload: Payload) {
        let Some(Request { rx, kind, .. }) = self.requests.remove(&cookie) else { return };
        let id = Id::Request(common.request(self.serial, cookie));
        let reposted = match kind {
            RequestKind::Immediate => {
                let len = payload.len();
                payload.write(&rx.as_slice()[PAYLOAD_AT..PAYLOAD_AT + len]);
                tell(common, Transfer::over(id, payload, Ok(len)));
                self.repost(rx, Repost::PeerCredit)
            }
            RequestKind::Put { cookie: source_cookie } if payload.is_empty() => {
                tell(common, Transfer::over(id, payload, Ok(0)));
                let nak = Outgoing::PutNak { cookie: source_cookie, status: 0 };
                self.enqueue(Queued { what: nak, transfer: None, deadline: common.deadline() });
                self.repost(rx, Repost::PeerCredit)
            }
            RequestKind::Put { cookie: source_cookie } => {
                let mut transfer = Transfer::new(id, Role::PutSink, payload, common.deadline());
                transfer.source_cookie = source_cookie;
                let cookie = common.cookie();
                self.transfers.insert(cookie, transfer);
                self.keyless.push_back(cookie);
                // For PUT_DONE, after which the peer gets its credit.
                self.repost(rx, Repost::NoCredit)
            }
            RequestKind::Get { .. } => Ok(()),
        };
        if let Err(failure) = reposted {
            self.fail(common, failure);
        }
    }

    /// Sends the data of a GET.
    pub(super) fn reply(&mut self, common: &mut Common, cookie: u64, payload: Payload) {
        let Some(Request { rx, kind, header }) = self.requests.remove(&cookie) else { return };
        let id = Id::Request(common.request(self.serial, cookie));
        let (len, own) = (payload.len(), common.cookie());
        let what = match (kind, header.message) {
            (RequestKind::Get { cookie, descriptor }, _) => {
                let mut transfer = Transfer::new(id, Role::GetSource, payload, common.deadline());
                let fragments = self.terms.max_fragments;
                let planned = plan(transfer.lens(), &descriptor, len as u64, PIECES.into(), fragments);
                let (status, writes, result) = outcome(planned, len);
                transfer.on_sent = Some(result);
                self.transfers.insert(own, transfer);
                Outgoing::Done { is_put: false, cookie, status, rkey: descriptor.key, writes }
            }
            (_, LnetMessage::Get(get)) => {
                let reply = LnetMessage::Reply { handle: get.reply };
                let header = Header::new(common.options.nid, self.terms.peer, len as u32, reply);
                let mut transfer = Transfer::new(id, Role::ImmediateReply, payload, common.deadline());
                transfer.on_sent = Some(Ok(len));
                self.transfers.insert(own, transfer);
                Outgoing::Immediate(header)
            }
            _ => return,
        };
        self.send_of(common, own, what);
        if let Err(failure) = self.repost(rx, Repost::PeerCredit) {
            self.fail(common, failure);
        }
    }

    /// Refuses a request with an error number, negative.
    pub(super) fn refuse(&mut self, common: &mut Common, cookie: u64, status: i32) {
        let Some(Request { rx, kind, .. }) = self.requests.remove(&cookie) else { return };
        let what = match kind {
            // LNet drops it: nobody is told.
            RequestKind::Immediate => None,
            RequestKind::Put { cookie } => Some(Outgoing::PutNak { cookie, status }),
            RequestKind::Get { cookie, .. } => {
                Some(Outgoing::Done { is_put: false, cookie, status, rkey: 0, writes: VecDeque::new() })
            }
        };
        if let Some(what) = what {
            self.enqueue(Queued { what, transfer: None, deadline: common.deadline() });
        }
        if let Err(failure) = self.repost(rx, Repost::PeerCredit) {
            self.fail(common, failure);
        }
    }
}

impl Request {
    /// Whether its data is in the message.
    pub(super) fn is_immediate(&self) -> bool {
        matches!(self.kind, RequestKind::Immediate)
    }
}

/// What the other end is told of a transfer, the RDMA WRITEs of it, and what the program is told.
fn outcome(
    planned: Result<VecDeque<Write>, PlanError>,
    len: usize,
) -> (i32, VecDeque<Write>, Result<usize, TransferError>) {
    match planned {
        Ok(writes) => (len as i32, writes, Ok(len)),
        Err(error) => (error.status(), VecDeque::new(), Err(TransferError::Plan(error))),
    }
}

fn refused(refused: mlx5_dv::queue::Refused) -> Failure {
    Failure::Refused(refused.reason.to_string())
}

fn result_of(status: i32) -> Result<usize, TransferError> {
    usize::try_from(status).map_err(|_| TransferError::Remote(status))
}

/// Tells the program what became of a transfer.
fn tell(common: &mut Common, mut transfer: Transfer) {
    let payload = transfer.payload();
    let result = transfer.result.take().unwrap_or(Ok(transfer.len));
    common.statistics.count(&result);
    common.events.push_back(match transfer.id {
        Id::Transfer(transfer) => Event::Done { transfer, payload, result },
        Id::Request(request) => Event::Answered { request, payload, result },
    });
}
