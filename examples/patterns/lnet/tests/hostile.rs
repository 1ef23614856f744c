//! An adversarial peer, in virtual time: it speaks the connection manager's protocol well, and says what a test likes.
//! Nothing panics or hangs, nothing is lost, and nobody else is disturbed.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{LONG, Lab, Node, Random, STEP, bytes_of, nid, pattern, plain};
use mlx5_cm::{ConnectionId, ConnectionManager, Event as CmEvent, Parameters, Route, Service};
use mlx5_dv::objects::{AccessFlags, MemoryRegion, Pd, QueuePair};
use mlx5_dv::queue::{Connection, ConnectionOptions, Done, Operation, RemoteAddress};
use mlx5_lnet::wire::{
    Body, ByteOrder, ConnectionParameters, Fragment, Get, Handle, Header, LnetMessage, MAX_FRAGMENTS, Message, Put,
    RdmaDescriptor, Reject, RejectReason, VERSION_1, VERSION_2,
};
use mlx5_lnet::{Event, Failure, Match, Nid, Options, PORT, PlanError, TransferError, status};

const BUFFER: usize = 4096;
const RECEIVES: usize = 64;
const OURS: u8 = 2;

/// The peer.
struct Raw {
    lab: Lab,
    manager: ConnectionManager,
    pd: Arc<Pd>,
    region: Arc<MemoryRegion>,
    connection: Option<Connection>,
    /// The node remembers the numbers of queue pairs for a while: none is used again.
    ended: Vec<Arc<QueuePair>>,
    id: Option<ConnectionId>,
    version: u16,
    order: ByteOrder,
    stamp: u64,
    /// The node's.
    node_stamp: u64,
    sent: usize,
}

/// What a message of the node's was, in bytes.
type Heard = Vec<u8>;

fn parameters() -> ConnectionParameters {
    ConnectionParameters { queue_depth: 8, max_fragments: MAX_FRAGMENTS, max_message_size: 4096 }
}

impl Raw {
    /// The peer on card 1 with NID 10.0.0.2, and a node on card 0 that knows it.
    fn with_node(loss: u32, with: impl FnOnce(&mut Options)) -> (Raw, Node) {
        let lab = Lab::new(5, loss);
        let node = lab.node(0, with);
        let pd = Pd::alloc(&lab.devices[1]).unwrap();
        let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
        let region = MemoryRegion::allocate(&pd, (2 * RECEIVES) * BUFFER + (1 << 20), access).unwrap();
        let mut manager = ConnectionManager::new(&lab.devices[1], None).unwrap();
        manager.listen(Service::tcp(PORT)).unwrap();
        let raw = Raw {
            lab,
            manager,
            pd,
            region,
            connection: None,
            ended: Vec::new(),
            id: None,
            version: VERSION_2,
            order: ByteOrder::Little,
            stamp: 77,
            node_stamp: 0,
            sent: 0,
        };
        (raw, node)
    }

    fn fresh(&mut self) -> &mut Connection {
        self.ended.extend(self.connection.take().map(|connection| Arc::clone(connection.queue_pair())));
        let mut options = ConnectionOptions::default();
        options.recv_depth = RECEIVES as u32;
        let mut connection = Connection::new(&self.pd, options).unwrap();
        for number in 0..RECEIVES {
            connection.receive(self.region.buffer(number * BUFFER..(number + 1) * BUFFER).unwrap()).unwrap();
        }
        self.connection.insert(connection)
    }

    fn message<'a>(&self, body: Body<'a>) -> Message<'a> {
        Message {
            version: self.version,
            credits: 0,
            source: nid(OURS),
            source_stamp: self.stamp,
            destination: nid(1),
            destination_stamp: self.node_stamp,
            body,
        }
    }

    fn parameters(&mut self, psn: u32, private_data: &[u8]) -> Parameters {
        Parameters::new(self.fresh().queue_pair().qpn(), psn).private_data(private_data)
    }

    /// Asks the node for a connection with these private data.
    fn call(&mut self, private_data: &[u8]) -> ConnectionId {
        let parameters = self.parameters(0, private_data);
        let (route, to) = (Route::default(), self.lab.address(0));
        let id = self.manager.connect(to, route, &parameters).unwrap();
        self.id = Some(id);
        id
    }

    fn turn(&mut self, node: &mut Node) {
        node.poll();
        self.lab.world.clock().pause(STEP);
    }

    /// The next event of the connection manager.
    fn event(&mut self, node: &mut Node) -> (ConnectionId, CmEvent) {
        let end = self.lab.now() + LONG;
        while self.lab.now() < end {
            if let Some(event) = self.manager.poll().unwrap() {
                return event;
            }
            self.turn(node);
        }
        panic!("no event; {:?}", node.events);
    }

    /// The next event that is of the present connection.
    fn event_of(&mut self, node: &mut Node, id: ConnectionId) -> CmEvent {
        loop {
            let (of, event) = self.event(node);
            if of == id {
                return event;
            }
        }
    }

    /// Asks for a connection; returns the refusal.
    fn refused(&mut self, node: &mut Node, private_data: &[u8]) -> Reject {
        let id = self.call(private_data);
        match self.event_of(node, id) {
            CmEvent::Rejected { private_data, .. } => Reject::decode(&private_data).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn asks(&self, parameters: ConnectionParameters) -> Vec<u8> {
        self.message(Body::ConnReq(parameters)).to_vec(self.order, false)
    }

    /// Connects to the node, and returns what it agrees to.
    fn connected(&mut self, node: &mut Node, parameters: ConnectionParameters) -> ConnectionParameters {
        let private_data = self.asks(parameters);
        let id = self.call(&private_data);
        let CmEvent::ConnectResponse { private_data, .. } = self.event_of(node, id) else { panic!("refused") };
        let (answer, _) = Message::decode(&private_data).unwrap();
        let Body::ConnAck(given) = answer.body else { panic!("{answer:?}") };
        assert_eq!((answer.version, answer.source, answer.destination_stamp), (self.version, nid(1), self.stamp));
        self.node_stamp = answer.source_stamp;
        let (rtr, rts) = self.manager.attributes(id).unwrap();
        self.connection.as_mut().unwrap().connect_by(&rtr, &rts).unwrap();
        self.manager.ready(id, &[]).unwrap();
        self.settle(node);
        given
    }

    fn settle(&mut self, node: &mut Node) {
        for _ in 0..50 {
            let _ = self.manager.poll().unwrap();
            self.turn(node);
        }
    }

    /// A request of the node's: its private data.
    fn called(&mut self, node: &mut Node) -> (ConnectionId, Vec<u8>) {
        loop {
            if let (id, CmEvent::ConnectRequest { private_data, .. }) = self.event(node) {
                return (id, private_data);
            }
        }
    }

    /// Accepts a request of the node's.
    fn accept(&mut self, node: &mut Node, id: ConnectionId, given: ConnectionParameters) {
        let (rtr, rts) = self.manager.attributes(id).unwrap();
        let private_data = self.message(Body::ConnAck(given)).to_vec(self.order, false);
        let parameters = self.parameters(rtr.rq_psn, &private_data);
        self.connection.as_mut().unwrap().connect_by(&rtr, &rts).unwrap();
        self.manager.accept(id, &parameters).unwrap();
        self.id = Some(id);
        self.settle(node);
    }

    /// Waits for a request of the node's, and accepts it.
    fn accepted(&mut self, node: &mut Node) {
        let (id, private_data) = self.called(node);
        self.node_stamp = Message::decode(&private_data).unwrap().0.source_stamp;
        self.accept(node, id, parameters());
    }

    fn send(&mut self, bytes: &[u8]) {
        self.sent += 1;
        let at = (RECEIVES + self.sent % RECEIVES) * BUFFER;
        let mut buffer = self.region.buffer(at..at + BUFFER).unwrap();
        buffer.set_len(bytes.len());
        buffer.write(0, bytes);
        self.connection.as_mut().unwrap().send(buffer).unwrap();
    }

    fn say(&mut self, body: Body<'_>) {
        let bytes = self.message(body).to_vec(self.order, false);
        self.send(&bytes);
    }

    /// The next message of the node's; posts its receive again.
    fn heard(&mut self, node: &mut Node) -> Heard {
        let end = self.lab.now() + LONG;
        while self.lab.now() < end {
            let done = self.connection.as_mut().unwrap().poll().unwrap();
            let Some(Done { buffer, result: Ok(completion), .. }) = done else {
                let _ = self.manager.poll().unwrap();
                self.turn(node);
                continue;
            };
            if completion.operation != Operation::Received {
                continue;
            }
            let buffer = buffer.unwrap();
            let mut bytes = vec![0; completion.byte_len as usize];
            buffer.read(0, &mut bytes);
            self.connection.as_mut().unwrap().receive(buffer).unwrap();
            return bytes;
        }
        panic!("silence; {:?}", node.events);
    }

    /// Why the node ended the connection.
    fn ended(&mut self, node: &mut Node) -> Failure {
        let end = self.lab.now() + LONG;
        while self.lab.now() < end {
            let is = |event: &Event| match event {
                Event::Disconnected { failure, .. } => Some(failure.clone()),
                _ => None,
            };
            if let Some((failure, _)) = node.take(is) {
                return failure;
            }
            let _ = self.manager.poll().unwrap();
            self.turn(node);
        }
        panic!("still connected; {:?}", node.events);
    }

    /// What became of the node's own transfer.
    fn outcome(&mut self, node: &mut Node) -> Result<usize, TransferError> {
        let end = self.lab.now() + LONG;
        while self.lab.now() < end {
            let is = |event: &Event| match event {
                Event::Done { payload, result, .. } => {
                    assert!(payload.is_some(), "its memory is lost");
                    Some(result.clone())
                }
                _ => None,
            };
            if let Some((result, _)) = node.take(is) {
                return result;
            }
            let _ = self.manager.poll().unwrap();
            self.turn(node);
        }
        panic!("not over; {:?}", node.events);
    }

    /// Until nothing of its connections is left at the node.
    fn gone(&mut self, node: &mut Node, keys: usize) {
        let end = self.lab.now() + LONG;
        while node.lnet.statistics().connections > 0 && self.lab.now() < end {
            let _ = self.manager.poll().unwrap();
            self.turn(node);
        }
        let statistics = node.lnet.statistics();
        assert_eq!((statistics.connections, statistics.free_keys), (0, keys));
    }
}

fn put() -> LnetMessage {
    LnetMessage::Put(Put { ack: Handle::NONE, match_bits: 1, hdr_data: 2, portal: 3, offset: 0 })
}

fn get(len: u32) -> LnetMessage {
    let reply = Handle { interface: [1; 8], object: [2; 8] };
    LnetMessage::Get(Get { reply, match_bits: 1, portal: 3, offset: 0, sink_length: len })
}

fn header(message: LnetMessage, len: u32) -> Header {
    Header::new(nid(OURS), nid(1), len, message)
}

fn plan_error(result: Result<usize, TransferError>) -> PlanError {
    match result {
        Err(TransferError::Plan(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn requests_that_cannot_be_are_refused_with_the_reason_and_the_terms() {
    let (mut raw, mut node) = Raw::with_node(0, |_| {});
    let good = parameters();
    let cases = [
        (ConnectionParameters { queue_depth: 9, ..good }, RejectReason::MsgQueueSize),
        (ConnectionParameters { max_fragments: MAX_FRAGMENTS + 1, ..good }, RejectReason::RdmaFrags),
        (ConnectionParameters { max_message_size: 4097, ..good }, RejectReason::Fatal),
        (ConnectionParameters { queue_depth: 0, ..good }, RejectReason::Fatal),
        (ConnectionParameters { max_fragments: 0, ..good }, RejectReason::Fatal),
    ];
    for order in [ByteOrder::Little, ByteOrder::Big] {
        raw.order = order;
        for (asked, why) in cases {
            let private_data = raw.asks(asked);
            let reject = raw.refused(&mut node, &private_data);
            assert_eq!((reject.why, reject.version), (why, VERSION_2));
            let (_, terms) = reject.terms.unwrap();
            assert_eq!((terms.queue_depth, terms.max_fragments, terms.max_message_size), (8, MAX_FRAGMENTS, 4096));
        }
    }
    // Version 0x11 knows neither reason.
    raw.version = VERSION_1;
    let private_data = raw.asks(cases[0].0);
    assert_eq!(raw.refused(&mut node, &private_data).why, RejectReason::Fatal);
    raw.version = VERSION_2;
    let stale = Message { destination_stamp: 1234, ..raw.message(Body::ConnReq(good)) }.to_vec(raw.order, false);
    assert_eq!(raw.refused(&mut node, &stale).why, RejectReason::ConnStale);
    let other = Message { destination: nid(9), ..raw.message(Body::ConnReq(good)) }.to_vec(raw.order, false);
    assert_eq!(raw.refused(&mut node, &other).why, RejectReason::Fatal);
    let noop = raw.message(Body::Noop).to_vec(raw.order, false);
    for bytes in [&noop[..], &[], &[0xff; 56], &noop[..6]] {
        assert_eq!(raw.refused(&mut node, bytes).why, RejectReason::Fatal);
    }
    let mut random = Random(99);
    for _ in 0..100 {
        let mut bytes = raw.asks(good);
        for _ in 0..=random.below(3) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = random.next() as u8;
        }
        let id = raw.call(&bytes);
        // Perhaps it is still a good one, of another node or incarnation.
        if let CmEvent::ConnectResponse { .. } = raw.event_of(&mut node, id) {
            let _ = raw.manager.destroy(id);
        }
    }
    raw.stamp += 1;
    let private_data = raw.asks(good);
    let _ = raw.call(&private_data);
    raw.settle(&mut node);
    raw.lab.assert_lawful();
}

#[test]
fn a_node_asks_for_less_until_it_is_accepted() {
    let (mut raw, mut node) = Raw::with_node(0, |options| options.queue_depth = 32);
    let region = node.region(1 << 20);
    node.lnet.put(nid(OURS), Match::default(), plain(&region, 0, 100)).unwrap();
    let terms = ConnectionParameters { queue_depth: 4, max_fragments: 16, max_message_size: 4096 };
    for (why, wanted) in [
        (RejectReason::MsgQueueSize, (32, MAX_FRAGMENTS)),
        (RejectReason::RdmaFrags, (4, MAX_FRAGMENTS)),
        (RejectReason::ConnStale, (4, 16)),
    ] {
        let (id, private_data) = raw.called(&mut node);
        let Body::ConnReq(asked) = Message::decode(&private_data).unwrap().0.body else { panic!() };
        assert_eq!((asked.queue_depth, asked.max_fragments), wanted);
        let reject = Reject { version: VERSION_2, why, terms: Some((raw.stamp, terms)) };
        raw.manager.reject(id, &reject.encode(ByteOrder::Big)).unwrap();
    }
    let (id, private_data) = raw.called(&mut node);
    let (asked, _) = Message::decode(&private_data).unwrap();
    assert_eq!(asked.destination_stamp, raw.stamp, "of the refusal");
    raw.node_stamp = asked.source_stamp;
    // It may get even less.
    raw.accept(&mut node, id, ConnectionParameters { queue_depth: 3, max_fragments: 2, ..terms });
    assert_eq!(raw.outcome(&mut node), Ok(100));
    let is = |event: &Event| match event {
        Event::Connected { queue_depth, max_fragments, .. } => Some((*queue_depth, *max_fragments)),
        _ => None,
    };
    assert_eq!(node.take(is).unwrap().0, (3, 2));
    raw.lab.assert_lawful();
}

#[test]
fn requests_under_ever_new_names_do_not_fill_the_memory() {
    let (mut raw, mut node) = Raw::with_node(0, |options| options.connections = 1);
    raw.connected(&mut node, parameters());
    for number in 10..50 {
        let asks = Message { source: nid(number), ..raw.message(Body::ConnReq(parameters())) };
        let private_data = asks.to_vec(raw.order, false);
        assert_eq!(raw.refused(&mut node, &private_data).why, RejectReason::NoResources);
    }
    let known: Vec<_> = node.lnet.peers().collect();
    assert!(known.len() <= 4 && known.contains(&nid(OURS)), "{known:?}");
}

#[test]
fn a_flood_of_requests_is_answered_some_at_a_turn() {
    const REQUESTS: usize = 40;
    let (mut raw, mut node) = Raw::with_node(0, |_| {});
    let asks = raw.asks(ConnectionParameters { queue_depth: 0, ..parameters() });
    for _ in 0..REQUESTS {
        raw.call(&asks);
    }
    let answered = |raw: &mut Raw| {
        let mut answered = 0;
        for _ in 0..4 * REQUESTS {
            answered += usize::from(raw.manager.poll().unwrap().is_some_and(|(_, event)| event.is_last()));
            raw.lab.world.clock().pause(STEP);
        }
        answered
    };
    assert_eq!(answered(&mut raw), 0, "all are on their way");
    assert!(node.lnet.poll().unwrap().is_none());
    let first = answered(&mut raw);
    assert!((1..=REQUESTS / 2).contains(&first), "{first} answered at once");
    let (mut all, mut turns) = (first, 1);
    while all < REQUESTS {
        assert!(turns < REQUESTS, "{all} answered in {turns} turns");
        assert!(node.lnet.poll().unwrap().is_none());
        (all, turns) = (all + answered(&mut raw), turns + 1);
    }
}

#[test]
fn peers_that_end_their_connections_leave_no_queue_pairs() {
    let (mut raw, mut node) = Raw::with_node(0, |options| options.timeout = Duration::from_secs(2));
    let keys = node.lnet.statistics().free_keys;
    let card = raw.lab.cards[0].function(0);
    let idle = card.counts().qps;
    for round in 0..6 {
        if round % 2 == 0 {
            raw.connected(&mut node, parameters());
            let id = raw.id.unwrap();
            raw.manager.disconnect(id, &[]).unwrap();
        } else {
            // It never says that it is ready.
            let private_data = raw.asks(parameters());
            let id = raw.call(&private_data);
            assert!(matches!(raw.event_of(&mut node, id), CmEvent::ConnectResponse { .. }));
        }
        raw.gone(&mut node, keys);
        // Beyond the time in which the connection manager answers late messages.
        for _ in 0..100 {
            raw.lab.world.clock().pause(Duration::from_millis(100));
            node.poll();
            let _ = raw.manager.poll().unwrap();
        }
        let left = card.counts().qps - idle;
        assert!(left <= 1, "{left} queue pairs after round {round}");
    }
}

#[test]
fn a_node_that_is_refused_for_good_says_why() {
    let (mut raw, mut node) = Raw::with_node(0, |_| {});
    let region = node.region(1 << 20);
    let nothing_less = ConnectionParameters { queue_depth: 8, max_fragments: MAX_FRAGMENTS, max_message_size: 4096 };
    for why in [
        RejectReason::NoResources,
        RejectReason::Fatal,
        RejectReason::Early,
        RejectReason::InvalidSrvId,
        RejectReason::MsgQueueSize,
        RejectReason::RdmaFrags,
        RejectReason::Unknown(200),
    ] {
        node.lnet.put(nid(OURS), Match::default(), plain(&region, 0, 100)).unwrap();
        let (id, _) = raw.called(&mut node);
        let reject = Reject { version: VERSION_2, why, terms: Some((raw.stamp, nothing_less)) };
        raw.manager.reject(id, &reject.encode(ByteOrder::Little)).unwrap();
        let failed = TransferError::Connection { nid: nid(OURS), failure: Failure::Rejected(why) };
        assert_eq!(raw.outcome(&mut node), Err(failed));
    }
    node.lnet.put(nid(OURS), Match::default(), plain(&region, 0, 100)).unwrap();
    let (id, _) = raw.called(&mut node);
    raw.manager.reject(id, &[1, 2, 3]).unwrap();
    let outcome = raw.outcome(&mut node);
    assert!(matches!(outcome, Err(TransferError::Connection { failure: Failure::Wire(_), .. })), "{outcome:?}");
    let health = node.lnet.health(nid(OURS)).unwrap();
    assert_eq!((health.value, health.connections), (200, 0));
    // Nobody listens: the connection manager says it.
    raw.manager.close(Service::tcp(PORT)).unwrap();
    node.lnet.put(nid(OURS), Match::default(), plain(&region, 0, 100)).unwrap();
    let failed = Failure::Rejected(RejectReason::InvalidSrvId);
    assert_eq!(raw.outcome(&mut node), Err(TransferError::Connection { nid: nid(OURS), failure: failed }));
    // A node without an address.
    let refused = node.lnet.put(Nid::o2ib([10, 0, 0, 7].into(), 3), Match::default(), plain(&region, 0, 100));
    assert!(refused.unwrap_err().to_string().contains("no address of 10.0.0.7@o2ib3"));
}

#[test]
fn a_peer_of_version_0x11_that_refuses_version_0x12_is_asked_again_in_its_own() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let (mut raw, mut node) = Raw::with_node(0, |options| options.queue_depth = 64);
        let region = node.region(1 << 20);
        node.lnet.put(nid(OURS), Match::default(), plain(&region, 0, 100)).unwrap();
        let (id, _) = raw.called(&mut node);
        let reject = Reject { version: VERSION_1, why: RejectReason::Fatal, terms: None };
        raw.manager.reject(id, &reject.encode(order)).unwrap();
        let (id, private_data) = raw.called(&mut node);
        let (asked, _) = Message::decode(&private_data).unwrap();
        let Body::ConnReq(wanted) = asked.body else { panic!() };
        assert_eq!((asked.version, wanted.queue_depth), (VERSION_1, 8));
        (raw.version, raw.order, raw.node_stamp) = (VERSION_1, order, asked.source_stamp);
        raw.accept(&mut node, id, parameters());
        assert_eq!(raw.outcome(&mut node), Ok(100));
        // The last credit is for a NOOP: seven messages go, and no eighth.
        for number in 1..10 {
            node.lnet.put(nid(OURS), Match::default(), plain(&region, number * 4096, 100)).unwrap();
        }
        for _ in 0..7 {
            assert!(matches!(Message::decode(&raw.heard(&mut node)).unwrap().0.body, Body::Immediate { .. }));
        }
        raw.settle(&mut node);
        assert!(raw.connection.as_mut().unwrap().poll().unwrap().is_none());
        let noop = Message { credits: 7, ..raw.message(Body::Noop) }.to_vec(order, false);
        raw.send(&noop);
        for _ in 0..3 {
            raw.heard(&mut node);
        }
        raw.lab.assert_lawful();
    }
}

#[test]
fn the_higher_nid_wins_a_race_and_both_nodes_end_up_connected() {
    for seed in 0..6 {
        let lab = Lab::new(40 + seed, 100_000);
        let mut nodes = [lab.node(0, |_| {}), lab.node(1, |_| {})];
        let regions = nodes.each_ref().map(|node| node.region(8192));
        for own in 0..2 {
            let payload = plain(&regions[own], 0, 100);
            nodes[own].lnet.put(nid(2 - own as u8), Match::default(), payload).unwrap();
        }
        let end = lab.now() + LONG;
        let mut over = [false; 2];
        while over != [true; 2] {
            assert!(lab.now() < end, "{:?}", nodes.each_ref().map(|node| &node.events));
            for (node, over) in nodes.iter_mut().zip(&mut over) {
                node.poll();
                let is = |event: &Event| match event {
                    Event::Done { result, .. } => Some(result.clone()),
                    _ => None,
                };
                if let Some((result, _)) = node.take(is) {
                    assert_eq!(result, Ok(100));
                    *over = true;
                }
            }
            lab.pass();
        }
    }
    // The lower one's request, while the higher one's is under way; then the other way round.
    let (mut raw, mut node) = Raw::with_node(0, |options| options.nid = nid(1));
    let region = node.region(8192);
    node.lnet.put(nid(OURS), Match::default(), plain(&region, 0, 100)).unwrap();
    let (id, private_data) = raw.called(&mut node);
    raw.node_stamp = Message::decode(&private_data).unwrap().0.source_stamp;
    // Ours is the higher NID: the node accepts, though its own request is under way, and uses our connection.
    raw.connected(&mut node, parameters());
    let reject = Reject { version: VERSION_2, why: RejectReason::ConnRace, terms: Some((raw.stamp, parameters())) };
    raw.manager.reject(id, &reject.encode(ByteOrder::Little)).unwrap();
    assert_eq!(raw.outcome(&mut node), Ok(100));
    raw.settle(&mut node);
    assert_eq!(node.lnet.health(nid(OURS)).unwrap().connections, 1);
    raw.lab.assert_lawful();
}

#[test]
fn a_lower_nid_loses_the_race_but_not_forever() {
    let (mut raw, mut node) = Raw::with_node(0, |options| options.nid = nid(3));
    let region = node.region(8192);
    node.lnet.put(nid(OURS), Match::default(), plain(&region, 0, 100)).unwrap();
    // Its request is never answered.
    let _ = raw.called(&mut node);
    let ask = |raw: &Raw| {
        Message { destination: nid(3), ..raw.message(Body::ConnReq(parameters())) }.to_vec(raw.order, false)
    };
    for _ in 0..20 {
        let private_data = ask(&raw);
        assert_eq!(raw.refused(&mut node, &private_data).why, RejectReason::ConnRace);
    }
    let private_data = ask(&raw);
    let id = raw.call(&private_data);
    assert!(matches!(raw.event_of(&mut node, id), CmEvent::ConnectResponse { .. }));
}

#[test]
fn connections_are_made_though_messages_of_the_connection_manager_are_lost() {
    for seed in 0..12 {
        let lab = Lab::new(60 + seed, 250_000);
        let mut nodes = [lab.node(0, |_| {}), lab.node(1, |_| {})];
        let region = nodes[0].region(8192);
        let end = lab.now() + LONG;
        nodes[0].lnet.put(nid(2), Match::default(), plain(&region, 0, 100)).unwrap();
        loop {
            assert!(lab.now() < end);
            nodes.iter_mut().for_each(Node::poll);
            let is = |event: &Event| matches!(event, Event::Incoming { .. }).then_some(());
            if nodes[1].take(is).is_some() {
                break;
            }
            lab.pass();
        }
    }
}

#[test]
fn what_a_peer_may_not_say_ends_its_connection() {
    let (mut raw, mut node) = Raw::with_node(0, |_| {});
    let descriptor = RdmaDescriptor { key: 1, fragments: vec![Fragment { len: 10, addr: 0 }] };
    let unexpected: [(Body<'_>, &str); 8] = [
        (Body::ConnReq(parameters()), "CONNREQ"),
        (Body::PutAck { source_cookie: 99, sink_cookie: 1, descriptor: descriptor.clone() }, "PUT_ACK"),
        (Body::PutNak { cookie: 99, status: -1 }, "PUT_NAK"),
        (Body::PutDone { cookie: 99, status: 1 }, "PUT_DONE"),
        (Body::GetDone { cookie: 99, status: 1 }, "GET_DONE"),
        (Body::PutReq { header: header(get(9), 0), cookie: 1 }, "header of a PUT_REQ"),
        (Body::GetReq { header: header(put(), 9), cookie: 1, descriptor }, "header of a GET_REQ"),
        (Body::PutDone { cookie: 1, status: 1 }, "PUT_DONE"),
    ];
    let keys = node.lnet.statistics().free_keys;
    for (body, what) in unexpected {
        raw.connected(&mut node, parameters());
        raw.say(body);
        let failure = raw.ended(&mut node);
        assert!(matches!(&failure, Failure::Unexpected(said) if said.contains(what)), "{failure}, not {what}");
        raw.gone(&mut node, keys);
    }
    // Credits that cannot be, and messages without one.
    raw.connected(&mut node, parameters());
    let bytes = Message { credits: 1, ..raw.message(Body::Noop) }.to_vec(raw.order, false);
    raw.send(&bytes);
    assert!(matches!(raw.ended(&mut node), Failure::Credits(_)));
    raw.gone(&mut node, keys);
    raw.connected(&mut node, parameters());
    for _ in 0..9 {
        raw.say(Body::Immediate { header: header(put(), 3), payload: b"abc" });
    }
    assert!(matches!(raw.ended(&mut node), Failure::Credits(_)), "nine messages of eight");
    raw.gone(&mut node, keys);
    // Another node, incarnation or version than the connection's; no message at all.
    let stale: [fn(&mut Message<'_>); 5] = [
        |message| message.source = nid(9),
        |message| message.destination = nid(9),
        |message| message.source_stamp += 1,
        |message| message.destination_stamp += 1,
        |message| message.version = VERSION_1,
    ];
    for change in stale {
        raw.connected(&mut node, parameters());
        let mut message = raw.message(Body::Noop);
        change(&mut message);
        let bytes = message.to_vec(raw.order, false);
        raw.send(&bytes);
        assert_eq!(raw.ended(&mut node), Failure::Stale);
        raw.gone(&mut node, keys);
    }
    for bytes in [&[0u8; 48][..], &[0x91], &pattern(4096, 3)] {
        raw.connected(&mut node, parameters());
        raw.send(bytes);
        assert!(matches!(raw.ended(&mut node), Failure::Wire(_)));
        raw.gone(&mut node, keys);
    }
    raw.lab.assert_lawful();
}

#[test]
fn memory_that_is_too_short_for_the_data_is_told_to_both_and_costs_no_connection() {
    let (mut raw, mut node) = Raw::with_node(0, |_| {});
    let region = node.region(1 << 20);
    raw.connected(&mut node, ConnectionParameters { max_fragments: 2, ..parameters() });
    // PUT_ACK with more memory than data: the length of the data is that of the memory.
    node.lnet.put(nid(OURS), Match::default(), plain(&region, 0, 5000)).unwrap();
    let fragment = |len| Fragment { len, addr: 0 };
    for (fragments, told) in [
        (vec![fragment(5001)], status::EPROTO),
        (vec![fragment(u32::MAX); 3], status::EPROTO),
        (vec![fragment(1); 3], status::EMSGSIZE),
    ] {
        let heard = raw.heard(&mut node);
        let Body::PutReq { cookie, .. } = Message::decode(&heard).unwrap().0.body else { panic!() };
        let descriptor = RdmaDescriptor { key: 7, fragments };
        raw.say(Body::PutAck { source_cookie: cookie, sink_cookie: 4321, descriptor });
        let heard = raw.heard(&mut node);
        let done = Message::decode(&heard).unwrap().0.body;
        assert_eq!(done, Body::PutDone { cookie: 4321, status: told });
        plan_error(raw.outcome(&mut node));
        node.lnet.put(nid(OURS), Match::default(), plain(&region, 0, 5000)).unwrap();
    }
    let heard = raw.heard(&mut node);
    let Body::PutReq { cookie, .. } = Message::decode(&heard).unwrap().0.body else { panic!() };
    raw.say(Body::PutNak { cookie, status: status::ENOMEM });
    assert_eq!(raw.outcome(&mut node), Err(TransferError::Remote(status::ENOMEM)));
    // A GET for more than its memory has room for.
    raw.say(Body::GetReq {
        header: header(get(9000), 0),
        cookie: 55,
        descriptor: RdmaDescriptor { key: 7, fragments: vec![fragment(8999)] },
    });
    raw.settle(&mut node);
    let is = |event: &Event| if let Event::Incoming { request, .. } = event { Some(*request) } else { None };
    let (request, _) = node.take(is).unwrap();
    let refused = node.lnet.reply(request, plain(&region, 0, 9001)).unwrap_err();
    assert!(refused.to_string().contains("9001 bytes for 9000"), "{refused}");
    drop(refused);
    node.lnet.reply(request, plain(&region, 0, 9000)).unwrap();
    let heard = raw.heard(&mut node);
    assert_eq!(Message::decode(&heard).unwrap().0.body, Body::GetDone { cookie: 55, status: status::EPROTO });
    assert_eq!(node.lnet.statistics().connections, 1);
    raw.lab.assert_lawful();
}

#[test]
fn a_key_that_lies_ends_the_connection_and_the_memory_comes_back() {
    let (mut raw, mut node) = Raw::with_node(0, |_| {});
    let region = node.region(1 << 20);
    let keys = node.lnet.statistics().free_keys;
    raw.connected(&mut node, parameters());
    node.lnet.put(nid(OURS), Match::default(), plain(&region, 0, 50_000)).unwrap();
    let heard = raw.heard(&mut node);
    let Body::PutReq { cookie, .. } = Message::decode(&heard).unwrap().0.body else { panic!() };
    let descriptor = RdmaDescriptor { key: 0x1234_5678, fragments: vec![Fragment { len: 50_000, addr: 0x1000 }] };
    raw.say(Body::PutAck { source_cookie: cookie, sink_cookie: 1, descriptor });
    let outcome = raw.outcome(&mut node);
    let is_work = matches!(outcome, Err(TransferError::Connection { failure: Failure::WorkRequest(_), .. }));
    assert!(is_work, "{outcome:?}");
    raw.gone(&mut node, keys);
    region.buffer(0..1 << 20).unwrap();
}

#[test]
fn a_key_is_of_no_use_once_its_transfer_is_over() {
    let (mut raw, mut node) = Raw::with_node(0, |_| {});
    let region = node.region(1 << 20);
    let keys = node.lnet.statistics().free_keys;
    raw.connected(&mut node, parameters());
    for round in 0..3 {
        node.lnet.get(nid(OURS), Match::default(), plain(&region, 100, 50_000)).unwrap();
        let heard = raw.heard(&mut node);
        let Body::GetReq { cookie, descriptor, .. } = Message::decode(&heard).unwrap().0.body else { panic!() };
        let [Fragment { len: 50_000, addr }] = descriptor.fragments[..] else { panic!("{descriptor:?}") };
        let remote = RemoteAddress { addr, rkey: descriptor.key };
        let at = 2 * RECEIVES * BUFFER;
        let data = pattern(50_000, round);
        let mut buffer = raw.region.buffer(at..at + 50_000).unwrap();
        buffer.write(0, &data);
        raw.connection.as_mut().unwrap().write(buffer, remote).unwrap();
        // More than it has is a protocol error; as much is the end.
        raw.say(Body::GetDone { cookie, status: 50_000 });
        let is = |event: &Event| matches!(event, Event::Done { .. }).then_some(());
        let event = loop {
            raw.turn(&mut node);
            if let Some((_, event)) = node.take(is) {
                break event;
            }
        };
        let Event::Done { payload: Some(payload), result: Ok(50_000), .. } = event else { panic!("{event:?}") };
        assert!(bytes_of(&payload) == data);
        drop(payload);
        raw.settle(&mut node);
        while raw.connection.as_mut().unwrap().poll().unwrap().is_some() {}
        if round == 2 {
            // Too late.
            let mut buffer = raw.region.buffer(at..at + 100).unwrap();
            buffer.fill(0, 100, 0xee);
            raw.connection.as_mut().unwrap().write(buffer, remote).unwrap();
            let before = raw.lab.now();
            while raw.lab.now() < before + Duration::from_secs(1) {
                raw.turn(&mut node);
            }
            let mut now = vec![0; 50_000];
            region.read(100, &mut now);
            assert!(now == data, "it was written though its key was invalidated");
        }
    }
    // The node's queue pair has failed by that access.
    raw.ended(&mut node);
    raw.gone(&mut node, keys);
    // Its own GET, which claims more than there is.
    raw.connected(&mut node, parameters());
    node.lnet.get(nid(OURS), Match::default(), plain(&region, 100, 50_000)).unwrap();
    let heard = raw.heard(&mut node);
    let Body::GetReq { cookie, .. } = Message::decode(&heard).unwrap().0.body else { panic!() };
    raw.say(Body::GetDone { cookie, status: 50_001 });
    assert!(matches!(raw.outcome(&mut node), Err(TransferError::Connection { .. })));
    raw.gone(&mut node, keys);
}

#[test]
fn a_peer_that_stops_reading_is_given_up_in_time() {
    let (mut raw, mut node) = Raw::with_node(0, |_| {});
    let region = node.region(1 << 20);
    let keys = node.lnet.statistics().free_keys;
    raw.connected(&mut node, parameters());
    // Eight go, by the credits; the others wait, until they have waited too long.
    for number in 0..20 {
        node.lnet.put(nid(OURS), Match::default(), plain(&region, number * 4096, 100)).unwrap();
    }
    let begin = raw.lab.now();
    let outcomes: Vec<_> = (0..20).map(|_| raw.outcome(&mut node)).collect();
    let waited = raw.lab.now() - begin;
    assert!(waited >= Duration::from_secs(50) && waited < Duration::from_secs(60), "{waited:?}");
    let timeout = Err(TransferError::Connection { nid: nid(OURS), failure: Failure::Timeout });
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == Ok(100)).count(), 8);
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == timeout).count(), 12);
    raw.gone(&mut node, keys);
    // It reads again: there is another connection.
    node.lnet.put(nid(OURS), Match::default(), plain(&region, 0, 100)).unwrap();
    raw.accepted(&mut node);
    assert_eq!(raw.outcome(&mut node), Ok(100));
}

#[test]
fn answers_that_never_come_end_in_time_and_nothing_is_lost() {
    let (mut raw, mut node) = Raw::with_node(0, |options| options.key_count = 2);
    let region = node.region(1 << 20);
    let keys = node.lnet.statistics().free_keys;
    raw.connected(&mut node, parameters());
    // A reply of LNet that does not come is nothing that the connection is at fault for.
    node.lnet.get(nid(OURS), Match::default(), plain(&region, 0, 100)).unwrap();
    assert_eq!(raw.outcome(&mut node), Err(TransferError::NoReply));
    assert_eq!(node.lnet.statistics().connections, 1);
    raw.say(Body::Noop);
    // More GETs than there are keys: the others wait for one.
    for number in 0..6 {
        node.lnet.get(nid(OURS), Match::default(), plain(&region, number * 100_000, 50_000)).unwrap();
    }
    raw.settle(&mut node);
    assert_eq!(node.lnet.statistics().free_keys, 0);
    for _ in 0..6 {
        let outcome = raw.outcome(&mut node);
        let timeout = TransferError::Connection { nid: nid(OURS), failure: Failure::Timeout };
        assert_eq!(outcome, Err(timeout));
    }
    raw.gone(&mut node, keys);
    region.buffer(0..1 << 20).unwrap();
}

#[test]
fn an_idle_connection_is_kept_alive_and_one_that_is_killed_is_made_again() {
    let (mut raw, mut node) = Raw::with_node(0, |options| options.keepalive = Duration::from_secs(10));
    let region = node.region(1 << 20);
    raw.connected(&mut node, parameters());
    let begin = raw.lab.now();
    for _ in 0..3 {
        let heard = raw.heard(&mut node);
        assert_eq!(Message::decode(&heard).unwrap().0.body, Body::Noop);
    }
    let waited = raw.lab.now() - begin;
    assert!(waited >= Duration::from_secs(29) && waited < Duration::from_secs(40), "{waited:?}");
    let id = raw.id.unwrap();
    raw.manager.disconnect(id, &[]).unwrap();
    assert_eq!(raw.ended(&mut node), Failure::Disconnected);
    node.lnet.put(nid(OURS), Match::default(), plain(&region, 0, 100)).unwrap();
    raw.accepted(&mut node);
    assert_eq!(raw.outcome(&mut node), Ok(100));
    // It starts anew, without a word: its request takes the place of what there was.
    raw.stamp += 1;
    raw.node_stamp = 0;
    let private_data = raw.asks(parameters());
    assert_eq!(raw.refused(&mut node, &private_data).why, RejectReason::ConnStale);
    assert_eq!(raw.ended(&mut node), Failure::Replaced);
    raw.connected(&mut node, parameters());
    assert_eq!(node.lnet.health(nid(OURS)).unwrap().connections, 1);
}

#[test]
fn random_messages_harm_nobody_else() {
    let (mut raw, mut node) = Raw::with_node(10_000, |_| {});
    let keys = node.lnet.statistics().free_keys;
    let region = node.region(1 << 20);
    let mut random = Random(4242);
    for round in 0..60 {
        raw.connected(&mut node, parameters());
        node.lnet.put(nid(OURS), Match::default(), plain(&region, 0, 40_000)).unwrap();
        node.lnet.get(nid(OURS), Match::default(), plain(&region, 50_000, 40_000)).unwrap();
        for _ in 0..6 {
            let number = |random: &mut Random| {
                let any = random.next();
                random.one_of(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, any])
            };
            let length = random.one_of(&[0, 1, 40_000, 40_001, u32::MAX]);
            let fragments = vec![Fragment { len: length, addr: number(&mut random) }; random.one_of(&[1, 2, 256])];
            let descriptor = RdmaDescriptor { key: number(&mut random) as u32, fragments };
            let (cookie, status) = (number(&mut random) + round, length as i32);
            let body = match random.below(8) {
                0 => Body::PutAck { source_cookie: cookie, sink_cookie: 1, descriptor },
                1 => Body::PutNak { cookie, status },
                2 => Body::GetDone { cookie, status },
                3 => Body::PutDone { cookie, status },
                4 => Body::GetReq { header: header(get(length), 0), cookie, descriptor },
                5 => Body::PutReq { header: header(put(), length), cookie },
                6 => Body::Immediate { header: header(put(), 3), payload: b"abc" },
                _ => Body::Noop,
            };
            let mut bytes = raw.message(body).to_vec(raw.order, false);
            if random.below(4) == 0 {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.next() as u8;
            }
            // The node may have ended it already.
            if raw.connection.as_ref().unwrap().in_flight().0 < 100 {
                raw.send(&bytes);
            }
            for _ in 0..4 {
                let _ = raw.manager.poll().unwrap();
                raw.turn(&mut node);
                let is =
                    |event: &Event| if let Event::Incoming { request, .. } = event { Some(*request) } else { None };
                while let Some((request, _)) = node.take(is) {
                    let _ = node.lnet.refuse(request, status::ENOENT);
                }
            }
            while let Ok(Some(_)) = raw.connection.as_mut().unwrap().poll() {}
        }
        if let Some(id) = raw.id.take() {
            let _ = raw.manager.disconnect(id, &[]);
        }
        raw.gone(&mut node, keys);
        // Both transfers are over, with their memory.
        for _ in 0..2 {
            let _ = raw.outcome(&mut node);
        }
        node.events.clear();
    }
    raw.lab.assert_lawful();
}
