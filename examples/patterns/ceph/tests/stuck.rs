//! Peers that stop reading, or that send what makes no sense, beside one that does neither: they end with an error, and
//! take nothing that it needs.

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::stranger::Stranger;
use common::{LONG, Pair, SERVER, pattern, small};
use mlx5_ceph::msgr2::Message;
use mlx5_ceph::stack::Why;
use mlx5_ceph::wire::{OsdOp, OsdReply, Tag, encode_frame};
use mlx5_ceph::{Event, Messenger, MessengerOptions, PeerId, Trouble};

const BYTES: usize = 5000;
const EVERY: Duration = Duration::from_millis(20);

fn operation(tid: u64) -> Message {
    let op = OsdOp { object: "object".into(), pool: 1, tid, bytes: BYTES as u32 };
    Message::new(op.header(), op.encode(), pattern(tid as usize, BYTES).into())
}

/// A server that answers each operation with its data, a client of our messenger, and strangers.
struct Scene {
    pair: Pair,
    server: Messenger,
    good: Messenger,
    /// Whether the programs of the good client, and of the server, run.
    good_runs: bool,
    server_runs: bool,
    strangers: Vec<Stranger>,
    /// How often each of them asks, once the server has taken what it asked before.
    every: Duration,
    next_ask: Duration,
    tid: u64,
    /// Transactions that the server has done, of all.
    done: Vec<u64>,
    /// Transactions of messages that came to the good client with the right data, and its connections that broke.
    answered: Vec<u64>,
    good_broken: usize,
    /// What became of the server's connections.
    broken: BTreeMap<PeerId, Trouble>,
    connected: Vec<PeerId>,
    /// Sessions that took no answer more, and what the error said.
    full: BTreeMap<PeerId, String>,
}

impl Scene {
    /// `with` sets options, of the client (0) and the server (1).
    fn new(seed: u64, with: impl Fn(usize, &mut MessengerOptions)) -> Self {
        let pair = Pair::new(seed, 0);
        let messenger = |at: usize| {
            let mut options = if at == 0 { MessengerOptions::client(1) } else { MessengerOptions::osd(0) };
            options.stack = small();
            with(at, &mut options);
            Messenger::with_lines(&pair.devices[at], options, Box::new(pair.lines[at].clone())).unwrap()
        };
        let (good, mut server) = (messenger(0), messenger(1));
        server.bind(SERVER.parse().unwrap()).unwrap();
        Scene {
            pair,
            server,
            good,
            good_runs: true,
            server_runs: true,
            strangers: vec![],
            every: EVERY,
            next_ask: Duration::ZERO,
            tid: 0,
            done: vec![],
            answered: vec![],
            good_broken: 0,
            broken: BTreeMap::new(),
            connected: vec![],
            full: BTreeMap::new(),
        }
    }

    fn turn(&mut self) {
        let mut moved = self.server_runs && self.server.poll().unwrap();
        while let Some(event) = self.server.next_event() {
            match event {
                Event::Connected(peer) => self.connected.push(peer),
                Event::Broken(peer, why) => _ = self.broken.insert(peer, why),
                Event::Message(from, message) => {
                    let op = OsdOp::decode(&message.front).unwrap();
                    assert!(*message.data == pattern(op.tid as usize, BYTES), "operation {} came changed", op.tid);
                    self.done.push(op.tid);
                    let reply = OsdReply { object: op.object, result: 0 };
                    let reply = Message::new(reply.header(op.tid), reply.encode(), message.data);
                    if let Err(unsent) = self.server.send(from, reply) {
                        assert_eq!((unsent.peer, &*unsent.message.data), (from, &pattern(op.tid as usize, BYTES)[..]));
                        self.full.insert(from, unsent.to_string());
                        self.server.close(from);
                    }
                }
                _ => {}
            }
        }
        if self.good_runs {
            moved |= self.good.poll().unwrap();
        }
        while let Some(event) = self.good.next_event() {
            match event {
                Event::Broken(..) => self.good_broken += 1,
                Event::Message(_, message) => {
                    let tid = message.header.tid;
                    assert!(*message.data == pattern(tid as usize, BYTES), "answer {tid} came changed");
                    self.answered.push(tid);
                }
                _ => {}
            }
        }
        let asks = self.pair.now() >= self.next_ask;
        if asks {
            self.next_ask = self.pair.now() + self.every;
        }
        for stranger in &mut self.strangers {
            if asks && stranger.is_ready() && stranger.has_said_all() {
                self.tid += 1;
                stranger.send(operation(self.tid));
            }
            stranger.turn();
        }
        self.pair.pause(moved);
    }

    fn until(&mut self, within: Duration, what: &str, is_so: impl Fn(&mut Self) -> bool) {
        let end = self.pair.now() + within;
        while !is_so(self) {
            let streams = self.server.stack().streams();
            assert!(self.pair.now() < end, "not so after {within:?}: {what}; {:?} {streams:?}", self.broken);
            self.turn();
        }
    }

    /// `count` strangers whose sessions are there, and who read so far.
    fn strangers(&mut self, count: u32) {
        for number in 1..=count {
            let stranger = Stranger::call(&self.pair, number);
            self.strangers.push(stranger);
        }
        self.until(LONG, "they have sessions", |scene| scene.strangers.iter().all(Stranger::is_ready));
    }

    /// The good client does `count` operations.
    fn operate(&mut self, peer: PeerId, within: Duration, count: u64) {
        let before = self.answered.len();
        let tids: Vec<u64> = (1..=count).map(|at| 1_000_000 * (before as u64 + 1) + at).collect();
        tids.iter().for_each(|tid| self.good.send(peer, operation(*tid)).unwrap());
        let end = before + count as usize;
        self.until(within, "the good client's operations are answered", |scene| scene.answered.len() == end);
        assert_eq!(self.answered[before..], tids);
    }

    /// All chunks are back, and no stream is left but those of `sessions`.
    fn assert_quiet(&mut self, within: Duration, sessions: usize) {
        self.until(within, "no other stream is left", |scene| scene.server.stack().streams().len() == sessions);
        let options = small();
        let all = (options.receive_queue_len + options.send_buffers) as usize;
        self.until(within, "all chunks are back", |scene| {
            let (posted, free) = scene.server.stack().streams().chunks();
            posted + free == all
        });
        self.pair.assert_lawful();
    }
}

/// How long the server lets none of a stream's sends be taken.
const PATIENCE: Duration = Duration::from_secs(1);

#[test]
fn peers_that_take_no_answers_take_no_chunks_that_another_needs_and_end_with_an_error() {
    // As few as hold all chunks if each may have as many as it likes, and as many as there is room for.
    for (seed, count) in [(1, 4), (2, 14)] {
        let mut scene = Scene::new(seed, |_, options| options.stack.send_timeout = PATIENCE);
        let peer = scene.good.connect(SERVER.parse().unwrap()).unwrap();
        scene.operate(peer, LONG, 1);
        let good = scene.connected[0];
        scene.strangers(count);
        scene.strangers.iter_mut().for_each(|stranger| stranger.reads = false);
        let begin = scene.pair.now();
        scene.until(PATIENCE / 4, "they are full", |scene| scene.strangers.iter().all(Stranger::is_full));
        let (stuck, fifth) = (scene.pair.now(), PATIENCE / 5);
        scene.until(PATIENCE, "more answers wait for each", |scene| scene.pair.now() >= stuck + fifth);
        scene.operate(peer, PATIENCE / 2, 20);
        assert!(scene.broken.is_empty(), "it was not held up until they ended: {:?}", scene.broken);
        // They go on asking, so that they are not silent.
        let strangers = scene.connected.len() - 1;
        scene.until(2 * PATIENCE, "they are ended", |scene| scene.broken.len() == strangers);
        assert!(scene.pair.now() >= begin + PATIENCE, "too early");
        for why in scene.broken.values() {
            let Trouble::Stream(Why::Stalled { qpn, sends, time }) = why else { panic!("{why}") };
            assert_eq!(*time, PATIENCE);
            assert!(*sends > 0 && why.to_string().starts_with(&format!("queue pair {qpn:#x}: ")), "{why}");
        }
        assert!(!scene.broken.contains_key(&good) && scene.good_broken == 0);
        scene.operate(peer, PATIENCE, 20);
        scene.assert_quiet(PATIENCE, 1);
        scene.until(PATIENCE, "they learn of it", |scene| scene.strangers.iter().all(|stranger| stranger.is_broken));
    }
}

#[test]
fn chunks_come_back_from_a_client_whose_program_hangs_and_nothing_is_lost() {
    let mut scene = Scene::new(3, |at, options| {
        if at == 1 {
            options.keepalive = PATIENCE;
            options.stack.send_timeout = 6 * PATIENCE;
        }
    });
    let peer = scene.good.connect(SERVER.parse().unwrap()).unwrap();
    scene.operate(peer, LONG, 1);
    scene.good_runs = false;
    // More than its card has chunks for.
    let client = scene.connected[0];
    (101..=140).for_each(|tid| scene.server.send(client, operation(tid)).unwrap());
    scene.until(5 * PATIENCE, "its silence is noticed", |scene| scene.broken.contains_key(&client));
    assert_eq!(scene.broken[&client], Trouble::Silence(4 * PATIENCE));
    let (posted, free) = scene.server.stack().streams().chunks();
    assert!(posted + free < (small().receive_queue_len + small().send_buffers) as usize, "none is stuck");
    scene.assert_quiet(4 * PATIENCE, 0);
    // The program goes on.
    scene.good_runs = true;
    scene.until(LONG, "all have come", |scene| scene.answered.len() == 41);
    assert_eq!(scene.answered[1..], (101..=140).collect::<Vec<_>>());
}

#[test]
fn a_session_keeps_so_many_bytes_and_gives_what_is_more_back() {
    let mut scene = Scene::new(4, |at, options| {
        if at == 0 {
            options.pending_bytes = 11 * BYTES;
        }
    });
    let peer = scene.good.connect(SERVER.parse().unwrap()).unwrap();
    scene.operate(peer, LONG, 1);
    scene.server_runs = false;
    // Some go out, and are not acknowledged; those beside them wait.
    let mut unsent = None;
    for tid in 2..50 {
        unsent = scene.good.send(peer, operation(tid)).err();
        if unsent.is_some() {
            break;
        }
        scene.turn();
    }
    let unsent = unsent.expect("no limit");
    assert_eq!((unsent.peer, unsent.message.header.tid, unsent.most), (peer, 12, 11 * BYTES));
    assert!(unsent.pending > 10 * BYTES && unsent.to_string().contains("has not taken"), "{unsent}");
    let (waiting, sent) = scene.good.pending(peer);
    assert!(waiting + sent == 10 && sent > 0);
    scene.server_runs = true;
    scene.until(LONG, "all are answered", |scene| scene.answered.len() == 11);
    scene.good.send(peer, unsent.message).unwrap();
    scene.until(LONG, "the last one is answered", |scene| scene.answered.len() == 12);
    assert_eq!(scene.answered[1..], (2..=12).collect::<Vec<_>>());
    // One alone may be longer.
    let mut scene = Scene::new(5, |_, options| options.pending_bytes = 100);
    let peer = scene.good.connect(SERVER.parse().unwrap()).unwrap();
    scene.operate(peer, LONG, 1);
}

#[test]
fn a_server_whose_answers_are_not_taken_closes_the_session_and_serves_the_others() {
    let mut scene = Scene::new(6, |at, options| {
        options.stack.send_timeout = 4 * PATIENCE;
        if at == 1 {
            // More than it answers between two polls.
            options.pending_bytes = 40 * BYTES;
        }
    });
    scene.every = Duration::from_millis(5);
    let peer = scene.good.connect(SERVER.parse().unwrap()).unwrap();
    scene.operate(peer, LONG, 1);
    scene.strangers(2);
    scene.strangers.iter_mut().for_each(|stranger| stranger.reads = false);
    scene.until(3 * PATIENCE, "the server has had enough of both", |scene| scene.full.len() == 2);
    assert!(scene.full.values().all(|said| said.contains("has not taken")), "{:?}", scene.full);
    scene.operate(peer, PATIENCE, 20);
    assert_eq!((&scene.broken, scene.good_broken), (&BTreeMap::new(), 0));
    scene.assert_quiet(6 * PATIENCE, 1);
}

/// A frame whose preamble is changed, with the CRC that it has then.
fn with_preamble(change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut frame = frame(Tag::Ack, &[0; 8]);
    change(&mut frame[..28]);
    // Ceph's CRC is not inverted, before or after.
    let crc = !crc32c::crc32c_append(!0, &frame[..28]);
    frame[28..32].copy_from_slice(&crc.to_le_bytes());
    frame
}

fn frame(tag: Tag, payload: &[u8]) -> Vec<u8> {
    let (head, tail) = encode_frame(tag, &[payload]);
    [&head, payload, &tail].concat()
}

/// `bytes` with one of them damaged.
fn damaged(mut bytes: Vec<u8>, at: usize) -> Vec<u8> {
    bytes[at] ^= 0x10;
    bytes
}

fn message(message: &Message) -> Vec<u8> {
    let (head, tail) =
        encode_frame(Tag::Message, &[&message.header.encode(), &message.front, &message.middle, &message.data]);
    [&head, &message.data[..], &tail].concat()
}

#[test]
fn bytes_that_make_no_sense_end_their_own_connection_alone() {
    let mut first = operation(500);
    first.header.seq = 1;
    let lies: [(Vec<u8>, &str); 11] = [
        (damaged(frame(Tag::Ack, &[0; 8]), 3), "the CRC of the preamble is"),
        (damaged(frame(Tag::Ack, &[0; 8]), 33), "the CRC of the first segment is"),
        // Of the data, which a server must not have done.
        (damaged(message(&first), 2000), "the CRC of the segment is"),
        (with_preamble(|head| head[2..6].fill(0xff)), "segment 0 has 4294967295 bytes, at most 1048576 are taken"),
        (with_preamble(|head| head[1] = 0), "0 segments, of 1 to 4"),
        (with_preamble(|head| head[1] = 5), "5 segments, of 1 to 4"),
        (with_preamble(|head| head[1] = 2), "the last of several segments is empty"),
        (with_preamble(|head| head[0] = 0), "unknown tag 0"),
        (with_preamble(|head| head[26] = 1), "flags 0x1: neither compression nor anything else was offered"),
        (frame(Tag::Hello, b"again"), "a frame Hello came while Ready"),
        (frame(Tag::Ack, &[0; 7]), "8 bytes wanted, 7 left"),
    ];
    let mut scene = Scene::new(7, |_, _| {});
    scene.every = LONG;
    let peer = scene.good.connect(SERVER.parse().unwrap()).unwrap();
    scene.operate(peer, LONG, 1);
    let good = scene.connected[0];
    // Two more: one repeats a message, and one says no banner.
    scene.next_ask = LONG;
    scene.strangers(lies.len() as u32 + 1);
    let sessions = scene.connected[1..].to_vec();
    let mut nameless = Stranger::call(&scene.pair, 200);
    (nameless.is_raw, nameless.raw) = (true, b"GET / HTTP/1.1 and nothing else\r\n".to_vec());
    scene.strangers.push(nameless);
    let broken = scene.server.statistics().broken;
    for (stranger, (bytes, _)) in scene.strangers.iter_mut().zip(&lies) {
        stranger.raw.clone_from(bytes);
    }
    let repeats = lies.len();
    scene.strangers[repeats].raw = [message(&first), message(&first)].concat();
    scene.operate(peer, PATIENCE, 20);
    scene.until(PATIENCE, "all liars are ended", |scene| {
        scene.server.statistics().broken == broken + lies.len() as u64 + 1
    });
    for (session, (_, said)) in sessions.iter().zip(&lies) {
        let why = scene.broken[session].to_string();
        assert!(matches!(scene.broken[session], Trouble::Protocol(_)) && why.contains(said), "{why} instead of {said}");
    }
    assert!(!scene.broken.contains_key(&good) && !scene.broken.contains_key(&sessions[repeats]));
    assert_eq!(scene.done.iter().filter(|tid| **tid == 500).count(), 1, "what came twice is done once");
    assert!(scene.strangers.iter().enumerate().all(|(at, stranger)| stranger.is_broken == (at != repeats)));
    scene.operate(peer, PATIENCE, 20);
    assert_eq!(scene.good_broken, 0);
    scene.assert_quiet(PATIENCE, 2);
}
