//! Byte streams between two stacks in virtual time: nothing is lost by loss, by too few chunks, or by ends.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use common::{LONG, MemoryLines, Pair, SERVER, pattern, small};
use mlx5_ceph::stack::{
    Neighbour, Neighbours, OwnedNeighbours, Stack, StackEvent, StackOptions, StreamEvent, StreamId, Why,
};
use mlx5_ceph::wire::Line;
use mlx5_dv::{Gid, Mac, Options};
use mlx5_neighbours::Network;
use mlx5_open::Sim;

struct Ends {
    pair: Pair,
    client: Stack,
    server: Stack,
    /// What the server has read, by stream, and how each ended.
    read: BTreeMap<StreamId, Vec<u8>>,
    ended: BTreeMap<StreamId, Why>,
    accepted: Vec<StreamId>,
    /// What happened to the client's.
    connected: Vec<StreamId>,
    client_ended: BTreeMap<StreamId, Why>,
    /// Whether the server reads, and which streams it can.
    reads: bool,
    readable: BTreeSet<StreamId>,
}

impl Ends {
    fn new(seed: u64, loss: u32, options: StackOptions) -> Self {
        let pair = Pair::new(seed, loss);
        let stack = |at: usize| {
            Stack::with_lines(&pair.devices[at], options.clone(), Box::new(pair.lines[at].clone())).unwrap()
        };
        let (client, mut server) = (stack(0), stack(1));
        server.listen(SERVER.parse().unwrap()).unwrap();
        Ends {
            pair,
            client,
            server,
            read: BTreeMap::new(),
            ended: BTreeMap::new(),
            accepted: vec![],
            connected: vec![],
            client_ended: BTreeMap::new(),
            reads: true,
            readable: BTreeSet::new(),
        }
    }

    fn turn(&mut self) {
        let moved = self.client.poll().unwrap() | self.server.poll().unwrap();
        while let Some(event) = self.client.next_event() {
            match event {
                StackEvent::Connected(id) => self.connected.push(id),
                StackEvent::Stream(StreamEvent::Closed(id, why)) => _ = self.client_ended.insert(id, why),
                _ => {}
            }
        }
        while let Some(event) = self.server.next_event() {
            match event {
                StackEvent::Accepted(id, _) => self.accepted.push(id),
                StackEvent::Stream(StreamEvent::Readable(id)) => _ = self.readable.insert(id),
                StackEvent::Stream(StreamEvent::Closed(id, why)) => {
                    self.read(id);
                    self.ended.insert(id, why);
                    self.server.close(id);
                }
                _ => {}
            }
        }
        if self.reads {
            std::mem::take(&mut self.readable).into_iter().for_each(|id| self.read(id));
        }
        self.pair.pause(moved);
    }

    fn read(&mut self, id: StreamId) {
        let mut bytes = [0; 700];
        loop {
            match self.server.streams().read(id, &mut bytes) {
                0 => return,
                read => self.read.entry(id).or_default().extend_from_slice(&bytes[..read]),
            }
        }
    }

    fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let end = self.pair.now() + LONG;
        while !is_so(self) {
            assert!(self.pair.now() < end, "not so after an hour: {what}; {:?} {:?}", self.client, self.server);
            self.turn();
        }
    }

    /// Writes all of `bytes` as there is room.
    fn write(&mut self, id: StreamId, bytes: &[u8]) {
        let (mut rest, end) = (bytes, self.pair.now() + LONG);
        while !rest.is_empty() {
            assert!(self.pair.now() < end, "{} bytes are left: {:?} {:?}", rest.len(), self.client, self.server);
            let taken = self.client.streams().write(id, &[rest]);
            rest = &rest[taken..];
            self.turn();
        }
    }

    fn streams(&mut self, count: usize) -> Vec<StreamId> {
        let ids: Vec<_> = (0..count).map(|_| self.client.connect(SERVER.parse().unwrap()).unwrap()).collect();
        self.until("all are connected", |ends| ends.connected.len() == count && ends.accepted.len() == count);
        ids
    }

    /// All streams are gone at both ends, and all chunks are back.
    fn assert_quiet(&mut self, options: &StackOptions) {
        let end = self.pair.now() + LONG;
        while !(self.client.streams().is_empty() && self.server.streams().is_empty()) {
            assert!(self.pair.now() < end, "{:?} {:?}", self.client, self.server);
            self.turn();
        }
        let all = (options.receive_queue_len as usize, options.send_buffers as usize);
        for chunks in [self.client.streams().chunks(), self.server.streams().chunks()] {
            assert_eq!(chunks.0 + chunks.1, all.0 + all.1, "a chunk is lost");
        }
        self.pair.assert_lawful();
    }
}

#[test]
fn bytes_come_in_order_and_whole_over_a_cable_that_loses_frames() {
    for (seed, loss) in [(1, 0), (2, 10_000), (3, 50_000)] {
        let mut ends = Ends::new(seed, loss, small());
        let ids = ends.streams(3);
        let sent: Vec<_> = (0..3).map(|kind| pattern(kind, 50_000 + kind)).collect();
        for (id, bytes) in ids.iter().zip(&sent) {
            ends.write(*id, bytes);
            ends.client.close(*id);
        }
        ends.until("all have ended", |ends| ends.ended.len() == 3);
        let mut read: Vec<_> = ends.read.values().cloned().collect();
        read.sort_by_key(Vec::len);
        assert!(read == sent, "loss {loss}: {:?}", read.iter().map(Vec::len).collect::<Vec<_>>());
        assert!(ends.ended.values().all(|why| *why == Why::Finished), "{:?}", ends.ended);
        ends.assert_quiet(&small());
    }
}

#[test]
fn a_writer_waits_while_there_are_no_chunks_and_nothing_is_lost() {
    let mut ends = Ends::new(5, 0, small());
    let ids = ends.streams(8);
    ends.reads = false;
    // More than all chunks of both ends hold.
    let bytes = pattern(1, 40_000);
    let mut written: BTreeMap<_, usize> = ids.iter().map(|id| (*id, 0)).collect();
    for _ in 0..3000 {
        for (id, at) in &mut written {
            *at += ends.client.streams().write(*id, &[&bytes[*at..]]);
        }
        ends.turn();
    }
    let total: usize = written.values().sum();
    assert!(total < 8 * bytes.len(), "the writers were not held back");
    assert!(ends.client_ended.is_empty(), "RNR NAKs are not errors: {:?}", ends.client_ended);
    ends.reads = true;
    for (id, at) in written {
        ends.write(id, &bytes[at..]);
        ends.client.close(id);
    }
    ends.until("all have ended", |ends| ends.ended.len() == 8);
    assert!(ends.read.values().all(|read| *read == bytes));
    ends.assert_quiet(&small());
}

#[test]
fn hundreds_of_streams_share_the_chunks() {
    let mut options = small();
    (options.streams, options.send_buffers, options.receive_queue_len) = (300, 64, 127);
    // A command of a card in virtual time takes long.
    options.patience = Duration::from_secs(600);
    let mut ends = Ends::new(6, 0, options.clone());
    let ids = ends.streams(300);
    for (number, id) in ids.iter().enumerate() {
        ends.write(*id, &pattern(number, 1500 + number));
    }
    for id in ids {
        ends.client.close(id);
    }
    ends.until("all have ended", |ends| ends.ended.len() == 300);
    let mut read: Vec<_> = ends.read.values().cloned().collect();
    read.sort_by_key(Vec::len);
    assert!((0..300).all(|number| read[number] == pattern(number, 1500 + number)));
    ends.assert_quiet(&options);
}

#[test]
fn chunks_that_are_filled_in_place_go_as_they_are() {
    let mut ends = Ends::new(7, 0, small());
    let id = ends.streams(1)[0];
    let mut chunk = ends.client.streams().chunk().unwrap();
    chunk.as_mut_slice()[..5].copy_from_slice(b"hello");
    chunk.set_len(5);
    ends.client.streams().send_chunk(id, chunk).unwrap();
    ends.until("it came", |ends| ends.read.values().any(|read| read == b"hello"));
    let mut empty = ends.client.streams().chunk().unwrap();
    empty.set_len(0);
    let refused = ends.client.streams().send_chunk(id, empty).unwrap_err();
    ends.client.streams().return_chunk(refused.buffer.unwrap());
    ends.client.close(id);
    ends.until("it ended", |ends| ends.ended.len() == 1);
    ends.assert_quiet(&small());
}

#[test]
fn an_end_that_vanishes_is_noticed_and_its_queue_pair_is_emptied() {
    let mut ends = Ends::new(8, 0, small());
    let ids = ends.streams(2);
    // The queue pair of the server's end goes without a FIN; what the client sends is not answered any more.
    let gone = ends.accepted[0];
    ends.server.abort(gone);
    ends.accepted.retain(|id| *id != gone);
    for id in &ids {
        ends.client.streams().write(*id, &[&pattern(0, 3000)]);
    }
    ends.until("one has failed", |ends| ends.client_ended.len() == 1);
    let failed = *ends.client_ended.keys().next().unwrap();
    ends.client.close(failed);
    let other = ids.into_iter().find(|id| *id != failed).unwrap();
    ends.write(other, &pattern(1, 3000));
    ends.client.close(other);
    ends.until("the other has ended", |ends| ends.ended.values().any(|why| *why == Why::Finished));
    assert!(ends.read.values().any(|read| *read == [pattern(0, 3000), pattern(1, 3000)].concat()));
    ends.assert_quiet(&small());
}

#[test]
fn lies_in_the_exchange_end_it_and_disturb_nobody() {
    let mut ends = Ends::new(9, 0, small());
    let id = ends.streams(1)[0];
    let liar = ends.pair.lines[0].clone();
    let from = "10.0.0.9:1".parse().unwrap();
    let right = Line { qpn: 0x77, gid: ends.pair.devices[0].gids()[0].address.octets(), ..Line::default() };
    let of_another = Line { peer_qpn: 0x123, ..right }.to_bytes();
    let mut far = right;
    far.gid = [0x20; 16];
    let by_ipv4 = Line { gid: std::net::Ipv4Addr::new(10, 0, 0, 9).to_ipv6_mapped().octets(), ..right };
    for line in [[b'x'; Line::BYTES], of_another, far.to_bytes(), by_ipv4.to_bytes()] {
        let link = liar.call(from);
        liar.say(link, line);
    }
    // One says nothing, and one sends the same line twice.
    liar.call(from);
    let twice = liar.call(from);
    liar.say(twice, right.to_bytes());
    liar.say(twice, right.to_bytes());
    ends.until("all liars are gone", |ends| ends.ended.len() == 6);
    assert!(ends.ended.values().all(|why| matches!(why, Why::Exchange(_))), "{:?}", ends.ended);
    let of_versions = "the other end's GID is 10.0.0.9, and ours fe80:";
    assert!(ends.ended.values().any(|why| why.to_string().contains(of_versions)), "{:?}", ends.ended);
    ends.write(id, b"still here");
    ends.until("it came", |ends| ends.read.values().any(|read| read == b"still here"));
    ends.client.close(id);
    ends.until("it ended", |ends| ends.ended.len() == 7);
    ends.assert_quiet(&small());
}

#[test]
fn nobody_listens_and_nobody_answers() {
    let pair = Pair::new(10, 0);
    let mut alone = Stack::with_lines(&pair.devices[0], small(), Box::new(pair.lines[0].clone())).unwrap();
    assert!(alone.connect(SERVER.parse().unwrap()).is_err());
    let mut ends = Ends::new(11, 0, small());
    let id = ends.client.connect(SERVER.parse().unwrap()).unwrap();
    let end = ends.pair.now() + LONG;
    while ends.client_ended.is_empty() {
        assert!(ends.pair.now() < end);
        let moved = ends.client.poll().unwrap();
        while let Some(event) = ends.client.next_event() {
            assert_eq!(event, StackEvent::Stream(StreamEvent::Closed(id, Why::Exchange("no answer in time".into()))));
            ends.client_ended.insert(id, Why::Gone);
        }
        ends.pair.pause(moved);
    }
}

/// Knows one neighbour, the third time that it is asked, or never.
#[derive(Debug)]
struct Slow {
    gid: [u8; 16],
    mac: Option<Mac>,
    asked: u32,
    forgotten: Arc<AtomicU32>,
}

impl Neighbours for Slow {
    fn mac_of(&mut self, gid: [u8; 16]) -> Result<Neighbour, mlx5_neighbours::Error> {
        assert_eq!(gid, self.gid);
        self.asked += 1;
        let known = self.mac.filter(|_| self.asked >= 3);
        Ok(known.map_or(Neighbour::NotYet, |mac| Neighbour::Known(Some(mac))))
    }

    fn forget(&mut self, gid: [u8; 16]) {
        assert_eq!(gid, self.gid);
        self.forgotten.fetch_add(1, Ordering::Relaxed);
    }
}

/// Two ends by GIDs from which no MAC address follows. Their neighbours know each other, or not. Returns how often one
/// was forgotten, too.
fn ends_by_ipv4(seed: u64, know: bool) -> (Ends, Arc<AtomicU32>) {
    let mut options = small();
    options.gid_index = 1;
    let mut ends = Ends::new(seed, 0, options);
    let devices = ends.pair.devices.clone();
    let gids = [1, 2].map(|host| std::net::Ipv4Addr::new(10, 0, 0, host));
    for (device, address) in devices.iter().zip(gids) {
        device.set_gid(Gid::new(1, address, device.mac())).unwrap();
    }
    let forgotten = Arc::new(AtomicU32::new(0));
    let slow = |other: usize| {
        let (gid, mac) = (gids[other].to_ipv6_mapped().octets(), know.then(|| devices[other].mac()));
        Box::new(Slow { gid, mac, asked: 0, forgotten: Arc::clone(&forgotten) })
    };
    ends.client.find_by(slow(1));
    ends.server.find_by(slow(0));
    (ends, forgotten)
}

#[test]
fn a_mac_address_that_is_not_known_yet_is_waited_for() {
    let (mut ends, forgotten) = ends_by_ipv4(12, true);
    let begin = ends.pair.now();
    let id = ends.streams(1)[0];
    let waited = ends.pair.now() - begin;
    assert!(waited > Duration::from_millis(200), "each end asks three times, with a pause between: {waited:?}");
    ends.write(id, b"by IPv4");
    ends.until("it came", |ends| ends.read.values().any(|read| read == b"by IPv4"));
    ends.client.close(id);
    ends.until("it ended", |ends| ends.ended.len() == 1);
    ends.assert_quiet(&small());
    assert_eq!(forgotten.load(Ordering::Relaxed), 0, "a neighbour that is known stays known");
}

#[test]
fn a_mac_address_that_nobody_knows_ends_the_exchange() {
    let (mut ends, forgotten) = ends_by_ipv4(13, false);
    ends.client.connect(SERVER.parse().unwrap()).unwrap();
    ends.until("both have given up", |ends| ends.client_ended.len() == 1 && ends.ended.len() == 1);
    let why = Why::Exchange("no MAC address for 10.0.0.1".into());
    assert_eq!(ends.ended.values().collect::<Vec<_>>(), [&why]);
    assert_eq!(forgotten.load(Ordering::Relaxed), 1, "nobody asks for it any more");
    ends.pair.assert_lawful();
}

/// Two functions that their programs own, by IPv4: each end finds the other's MAC address by ARP.
#[test]
fn ends_on_owned_functions_find_each_other() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let lines = MemoryLines::pair();
    let mut stacks = [1, 2].map(|host: usize| {
        let network: Network = format!("10.0.0.{host}/24").parse().unwrap();
        let device = sim.open_with(host - 1, Options::default().ip(network.address())).unwrap();
        let mut options = small();
        options.gid_index = 1;
        let mut stack = Stack::with_lines(&device, options, Box::new(lines[host - 1].clone())).unwrap();
        stack.find_by(Box::new(OwnedNeighbours::start(&device, Some(network)).unwrap()));
        stack
    });
    stacks[1].listen(SERVER.parse().unwrap()).unwrap();
    let id = stacks[0].connect(SERVER.parse().unwrap()).unwrap();
    let (begin, mut read, mut is_there) = (Instant::now(), [0; 16], false);
    while read[..7] != *b"by IPv4" {
        assert!(begin.elapsed() < Duration::from_secs(30), "{stacks:?}");
        for stack in &mut stacks {
            stack.poll().unwrap();
        }
        while let Some(event) = stacks[0].next_event() {
            assert_eq!(event, StackEvent::Connected(id));
            is_there = true;
            assert_eq!(stacks[0].streams().write(id, &[b"by IPv4"]), 7);
        }
        while let Some(event) = stacks[1].next_event() {
            if let StackEvent::Stream(StreamEvent::Readable(id)) = event {
                stacks[1].streams().read(id, &mut read);
            }
        }
    }
    assert!(is_there);
    drop(stacks);
    assert_eq!(sim.violations(), []);
}
