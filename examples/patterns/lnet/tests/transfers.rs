//! Transfers of random shapes between two nodes, over a cable that loses, doubles and delays frames. Every byte is
//! compared.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use common::{LONG, Lab, Node, Random, bytes_of, nid, pattern, plain, scattered};
use mlx5_dv::objects::MemoryRegion;
use mlx5_lnet::wire::{ByteOrder, LnetMessage, VERSION_1};
use mlx5_lnet::{Event, KeyKind, Match, Nid, Options, Payload, RequestId, TRANSFER_BYTES, TransferError, TransferId};

/// Memory of a transfer.
const ROOM: usize = TRANSFER_BYTES + 256 * 1024;
/// Transfers under way at once, in each direction.
const AT_ONCE: usize = 6;

/// Bytes of a transfer: mostly few.
fn length(random: &mut Random) -> usize {
    let most = random.one_of(&[64, 3976, 4097, 9000, 20_000, 20_000, 70_000]);
    let most = if random.below(100) == 0 { TRANSFER_BYTES as u64 } else { most };
    match random.below(200) {
        0 => TRANSFER_BYTES,
        1 => 3976,
        2 => 3977,
        _ => 1 + random.below(most) as usize,
    }
}

/// What runs in one direction: this node's transfers, and the other's answers.
struct Side {
    /// Places in this node's memory that are free, and in the other's.
    here: Vec<usize>,
    there: Vec<usize>,
    /// Transfers under way: place, length, whether it is a PUT, and the number of the pattern.
    under_way: BTreeMap<TransferId, (usize, usize, bool, u64)>,
    /// Answers under way: place, length, and the pattern of a PUT.
    answers: BTreeMap<RequestId, (usize, usize, Option<u64>)>,
    done: usize,
}

fn run(seed: u64, loss: u32, count: usize, with: [fn(&mut Options); 2]) {
    let lab = Lab::new(seed, loss);
    let mut nodes = [lab.node(0, with[0]), lab.node(1, with[1])];
    let regions = nodes.each_ref().map(|node| node.region(2 * AT_ONCE * ROOM));
    let keys = nodes.each_ref().map(|node| node.lnet.statistics().free_keys);
    let mut random = Random(seed | 1);
    let side = || Side {
        here: (0..AT_ONCE).map(|place| place * ROOM).collect(),
        there: (AT_ONCE..2 * AT_ONCE).map(|place| place * ROOM).collect(),
        under_way: BTreeMap::new(),
        answers: BTreeMap::new(),
        done: 0,
    };
    // In each node's memory the first places are for its own transfers, the others for answers.
    let mut sides = [side(), side()];
    let mut started = [0; 2];
    let each = count / 2;
    let deadline = lab.now() + LONG * 1000;
    while sides.iter().any(|side| side.done < each || !side.answers.is_empty()) {
        assert!(lab.now() < deadline, "stuck: {:?}", nodes.each_ref().map(|node| node.lnet.statistics()));
        for own in 0..2 {
            while started[own] < each
                && let Some(place) = sides[own].here.pop()
            {
                let (len, number) = (length(&mut random), random.next());
                let buffers = scattered(&regions[own], &mut random, place, ROOM, len);
                let mut payload = Payload::new(buffers).unwrap();
                let is_put = random.below(2) == 0;
                let to = Match { match_bits: number, ..Match::default() };
                let peer = nid(2 - own as u8);
                let id = if is_put {
                    payload.write(&pattern(len, number));
                    nodes[own].lnet.put(peer, to, payload).unwrap()
                } else {
                    nodes[own].lnet.get(peer, to, payload).unwrap()
                };
                sides[own].under_way.insert(id, (place, len, is_put, number));
                started[own] += 1;
            }
        }
        for own in 0..2 {
            nodes[own].poll();
            for event in std::mem::take(&mut nodes[own].events) {
                take(&mut nodes[own], &regions[own], &mut sides, own, &mut random, event);
            }
        }
        lab.pass();
    }
    for ((node, side), free_keys) in nodes.iter_mut().zip(&sides).zip(keys) {
        node.poll();
        assert_eq!(side.done, each);
        // Its own, and its answers. Both ends began at once: a request that lost the race was refused.
        let statistics = node.lnet.statistics();
        assert_eq!((statistics.failed, statistics.transfers as usize), (0, count), "{statistics:?}");
        assert_eq!(statistics.free_keys, free_keys, "{statistics:?}");
    }
    lab.assert_lawful();
}

fn take(
    node: &mut Node,
    region: &Arc<MemoryRegion>,
    sides: &mut [Side; 2],
    own: usize,
    random: &mut Random,
    event: Event,
) {
    match event {
        Event::Done { transfer, payload, result } => {
            let side = &mut sides[own];
            let (place, len, is_put, number) = side.under_way.remove(&transfer).unwrap();
            let payload = payload.unwrap();
            assert_eq!((result, payload.len()), (Ok(len), len));
            if !is_put {
                assert!(bytes_of(&payload) == pattern(len, number), "a GET of {len} bytes brought other bytes");
            }
            drop(payload);
            side.here.push(place);
            side.done += 1;
        }
        Event::Incoming { request, header, .. } => {
            let side = &mut sides[1 - own];
            // The last answers' memory may not be back yet, though their senders know.
            let Some(place) = side.there.pop() else { return node.events.push(event) };
            let (len, number, is_put) = match header.message {
                LnetMessage::Put(put) => (header.payload_length as usize, put.match_bits, true),
                LnetMessage::Get(get) => (get.sink_length as usize, get.match_bits, false),
                other => panic!("{other:?}"),
            };
            let mut payload = Payload::new(scattered(region, random, place, ROOM, len)).unwrap();
            if is_put {
                node.lnet.receive(request, payload).unwrap();
            } else {
                payload.write(&pattern(len, number));
                node.lnet.reply(request, payload).unwrap();
            }
            side.answers.insert(request, (place, len, is_put.then_some(number)));
        }
        Event::Answered { request, payload, result } => {
            let side = &mut sides[1 - own];
            let (place, len, number) = side.answers.remove(&request).unwrap();
            let payload = payload.unwrap();
            assert_eq!((result, payload.len()), (Ok(len), len));
            if let Some(number) = number {
                assert!(bytes_of(&payload) == pattern(len, number), "a PUT of {len} bytes brought other bytes");
            }
            drop(payload);
            side.there.push(place);
        }
        Event::Connected { .. } | Event::Disconnected { .. } => {}
        other => panic!("{other:?}"),
    }
}

/// The long form, with `MLX5_LAB_LONG=1`: 100 000.
fn count(short: usize) -> usize {
    if std::env::var_os("MLX5_LAB_LONG").is_some_and(|value| value == "1") { 100_000 } else { short }
}

#[test]
fn transfers_of_any_shape_bring_every_byte_over_a_cable_that_loses_frames() {
    run(7, 50_000, count(2000), [|_| {}, |_| {}]);
}

#[test]
fn nodes_of_both_byte_orders_understand_each_other() {
    run(8, 10_000, 80, [|options| options.byte_order = ByteOrder::Big, |options| options.checksums = true]);
}

#[test]
fn a_node_of_version_0x11_is_spoken_to_in_its_version() {
    run(9, 10_000, 80, [|_| {}, |options| options.version = VERSION_1]);
    run(10, 10_000, 80, [|options| options.version = VERSION_1, |options| options.byte_order = ByteOrder::Big]);
}

#[test]
fn few_credits_keys_and_fragments_are_enough() {
    fn scarce(options: &mut Options) {
        options.queue_depth = 2;
        options.key_count = 1;
        options.concurrent_sends = Some(1);
    }
    run(11, 20_000, 80, [scarce, |_| {}]);
    run(12, 20_000, 80, [scarce, scarce]);
    run(13, 0, 40, [|options| options.keys = KeyKind::Indirect, |options| options.queue_depth = 254]);
}

/// Memory that others write to, of buffers that lie in no pages behind each other, is in no direct list: a GET into it
/// fails, and so does a PUT that it is to take. What follows on the same connection goes through.
#[test]
fn a_payload_that_no_key_can_hold_is_refused_by_name_and_comes_back() {
    const HALF: usize = 8 * 1024;
    const ENOMEM: i32 = -12;
    let lab = Lab::new(15, 0);
    let (mut node, mut peer) = (lab.node(0, |options| options.keys = KeyKind::Direct), lab.node(1, |_| {}));
    let (region, theirs) = (node.region(4 * HALF), peer.region(2 * HALF));
    let free_keys = node.lnet.statistics().free_keys;
    let payload = |second: usize| {
        let part = |at: usize| region.buffer(at..at + HALF).unwrap();
        Payload::new(vec![part(0), part(second)]).unwrap()
    };
    let turn = |node: &mut Node, peer: &mut Node| {
        assert!(lab.now() < LONG, "stuck: {:?}", node.lnet.statistics());
        node.poll();
        peer.poll();
        lab.pass();
    };
    let (to, all) = (Match::default(), 2 * HALF);

    let wanted = node.lnet.get(nid(2), to, payload(HALF + 512)).unwrap();
    let (transfer, payload_back, result) = loop {
        turn(&mut node, &mut peer);
        if let Some((_, Event::Done { transfer, payload, result })) = node.take(is_done) {
            break (transfer, payload, result);
        }
    };
    assert_eq!((transfer, result), (wanted, Err(TransferError::NoKey)));
    assert_eq!(payload_back.unwrap().len(), all);

    for (second, here, there) in
        [(HALF + 512, Err(TransferError::NoKey), Err(TransferError::Remote(ENOMEM))), (HALF, Ok(all), Ok(all))]
    {
        peer.lnet.put(nid(1), to, plain(&theirs, 0, all)).unwrap();
        let (mut received, mut sent) = (None, None);
        while received.is_none() || sent.is_none() {
            turn(&mut node, &mut peer);
            for event in std::mem::take(&mut node.events) {
                match event {
                    Event::Incoming { request, .. } => node.lnet.receive(request, payload(second)).unwrap(),
                    Event::Answered { payload, result, .. } => received = Some((payload.unwrap().len(), result)),
                    _ => {}
                }
            }
            if let Some((_, Event::Done { payload, result, .. })) = peer.take(is_done) {
                sent = Some((payload.unwrap().len(), result));
            }
        }
        assert_eq!((received, sent), (Some((all, here)), Some((all, there))));
    }
    assert_eq!(node.lnet.statistics().free_keys, free_keys);
    lab.assert_lawful();
}

fn is_done(event: &Event) -> Option<()> {
    matches!(event, Event::Done { .. }).then_some(())
}

/// Requests of each peer, and the bytes between their places.
const REQUESTS: usize = 40;
const PLACE: usize = 16 * 1024;

/// Every second has its data in the message; the others are by keys.
fn bytes_of_request(number: usize) -> usize {
    if number.is_multiple_of(2) { 1000 } else { 10_000 }
}

/// A peer of the server's, and what the server has of it.
struct Peer {
    nid: Nid,
    node: Node,
    region: Arc<MemoryRegion>,
    /// Requests that the server holds, and those that it has answered. Numbers are match bits.
    held: Vec<(RequestId, usize)>,
    answers: BTreeMap<RequestId, usize>,
    received: usize,
    done: usize,
}

impl Peer {
    fn new(number: u8, node: Node, server: &Node) -> Self {
        let region = server.region(REQUESTS * PLACE);
        let (held, answers) = (Vec::new(), BTreeMap::new());
        Peer { nid: nid(number), node, region, held, answers, received: 0, done: 0 }
    }

    /// What it sends: other bytes than other peers.
    fn bytes(&self, number: usize) -> Vec<u8> {
        pattern(bytes_of_request(number), self.nid.0 << 8 | number as u64)
    }

    fn put_all(&mut self) {
        let region = self.node.region(REQUESTS * PLACE);
        for number in 0..REQUESTS {
            let mut payload = plain(&region, number * PLACE, bytes_of_request(number));
            payload.write(&self.bytes(number));
            let to = Match { match_bits: number as u64, ..Match::default() };
            self.node.lnet.put(nid(1), to, payload).unwrap();
        }
    }

    /// Takes the server's events that are of this peer, and the peer's own.
    fn turn(&mut self, server: &mut Node) {
        for event in std::mem::take(&mut server.events) {
            match event {
                Event::Incoming { request, from, header } if from == self.nid => {
                    let LnetMessage::Put(put) = header.message else { panic!("{header:?}") };
                    self.held.push((request, put.match_bits as usize));
                }
                Event::Answered { request, payload, result } if self.answers.contains_key(&request) => {
                    let (number, payload) = (self.answers.remove(&request).unwrap(), payload.unwrap());
                    assert_eq!(result, Ok(payload.len()));
                    assert!(bytes_of(&payload) == self.bytes(number), "PUT {number} brought other bytes");
                    self.received += 1;
                }
                event => server.events.push(event),
            }
        }
        self.node.poll();
        let is_done = |event: &Event| matches!(event, Event::Done { result: Ok(_), .. }).then_some(());
        self.done += std::iter::from_fn(|| self.node.take(is_done)).count();
    }

    fn answer(&mut self, server: &mut Node) {
        for (request, number) in std::mem::take(&mut self.held) {
            let payload = plain(&self.region, number * PLACE, bytes_of_request(number));
            server.lnet.receive(request, payload).unwrap();
            self.answers.insert(request, number);
        }
    }

    fn is_through(&self) -> bool {
        (self.received, self.done) == (REQUESTS, REQUESTS)
    }
}

/// A program that does not answer keeps the receives of one peer: all are in use then.
#[test]
fn out_of_chunks_one_peer_waits_nothing_is_lost_and_no_other_is_disturbed() {
    let lab = Lab::with_functions(14, 10_000, 2);
    let mut server = lab.node(0, |_| {});
    let mut waits = Peer::new(2, lab.node(1, |_| {}), &server);
    let mut other = Peer::new(3, lab.third(), &server);
    let keys = server.lnet.statistics().free_keys;
    waits.put_all();
    let turn = |server: &mut Node, peers: [&mut Peer; 2]| {
        server.poll();
        peers.into_iter().for_each(|peer| peer.turn(server));
        lab.pass();
    };
    while waits.held.len() < 8 {
        assert!(lab.now() < LONG, "stuck: {:?}", server.lnet.statistics());
        turn(&mut server, [&mut waits, &mut other]);
    }
    // It has used its credits: no more comes of it, while all of the other one's go through.
    other.put_all();
    let begin = lab.now();
    while !other.is_through() || lab.now() < begin + Duration::from_secs(10) {
        assert!(lab.now() < begin + Duration::from_secs(30), "disturbed: {:?}", server.lnet.statistics());
        turn(&mut server, [&mut waits, &mut other]);
        other.answer(&mut server);
        assert_eq!((waits.held.len(), waits.received), (8, 0));
    }
    while !waits.is_through() {
        assert!(lab.now() < LONG, "stuck: {:?}", server.lnet.statistics());
        waits.answer(&mut server);
        turn(&mut server, [&mut waits, &mut other]);
    }
    for node in [&server, &waits.node, &other.node] {
        let statistics = node.lnet.statistics();
        assert_eq!((statistics.failed, statistics.free_keys), (0, keys), "{statistics:?}");
    }
    lab.assert_lawful();
}

#[test]
fn every_run_of_a_seed_is_the_same() {
    let record = || {
        let lab = Lab::new(3, 50_000);
        let mut nodes = [lab.node(0, |_| {}), lab.node(1, |_| {})];
        let regions = nodes.each_ref().map(|node| node.region(1 << 20));
        nodes[0].lnet.put(nid(2), Match::default(), plain(&regions[0], 0, 300_000)).unwrap();
        let mut over = false;
        while !over {
            nodes.iter_mut().for_each(Node::poll);
            let is = |event: &Event| if let Event::Incoming { request, .. } = event { Some(*request) } else { None };
            if let Some((request, _)) = nodes[1].take(is) {
                nodes[1].lnet.receive(request, plain(&regions[1], 0, 300_000)).unwrap();
            }
            over = nodes[0].take(|event| matches!(event, Event::Done { .. }).then_some(())).is_some();
            lab.pass();
        }
        lab.world.simulated().record()
    };
    assert_eq!(record(), record());
}
