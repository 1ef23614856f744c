//! Sessions between two messengers in virtual time: messages come once and in order, whatever becomes of connections.

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::{LONG, Pair, SERVER, pattern, small};
use mlx5_ceph::msgr2::Message;
use mlx5_ceph::wire::{Data, OSD_OP, OsdOp, OsdReply};
use mlx5_ceph::{Event, Messenger, MessengerOptions, PeerId};

struct Ends {
    pair: Pair,
    client: Messenger,
    server: Messenger,
    /// Transactions that came to the server, and the bytes of each, by session.
    came: BTreeMap<PeerId, Vec<u64>>,
    /// Answers that came to the client.
    answers: BTreeMap<PeerId, Vec<u64>>,
    resets: Vec<PeerId>,
    /// Sessions that the server has dropped.
    gone: Vec<PeerId>,
    broken: usize,
}

const BYTES: usize = 5000;

fn operation(tid: u64) -> Message {
    let op = OsdOp { object: "object".into(), pool: 1, tid, bytes: BYTES as u32 };
    Message::new(op.header(), op.encode(), pattern(tid as usize, BYTES).into())
}

impl Ends {
    fn new(seed: u64, loss: u32, is_lossy: bool) -> Self {
        Self::with_server(seed, loss, |options| options.is_lossy = is_lossy)
    }

    fn with_server(seed: u64, loss: u32, with: impl Fn(&mut MessengerOptions)) -> Self {
        let pair = Pair::new(seed, loss);
        let messenger = |at: usize| {
            let mut options = if at == 0 { MessengerOptions::client(1) } else { MessengerOptions::osd(0) };
            options.stack = small();
            if at == 1 {
                with(&mut options);
            }
            Messenger::with_lines(&pair.devices[at], options, Box::new(pair.lines[at].clone())).unwrap()
        };
        let (client, mut server) = (messenger(0), messenger(1));
        server.bind(SERVER.parse().unwrap()).unwrap();
        let (came, answers) = (BTreeMap::new(), BTreeMap::new());
        Ends { pair, client, server, came, answers, resets: vec![], gone: vec![], broken: 0 }
    }

    fn turn(&mut self) {
        let moved = self.client.poll().unwrap() | self.server.poll().unwrap();
        while let Some(event) = self.server.next_event() {
            if let Event::Gone(peer) = event {
                self.gone.push(peer);
            } else if let Event::Message(from, message) = event {
                let op = OsdOp::decode(&message.front).unwrap();
                assert_eq!((message.header.kind, op.bytes as usize), (OSD_OP, BYTES));
                assert!(*message.data == pattern(op.tid as usize, BYTES), "operation {} came changed", op.tid);
                self.came.entry(from).or_default().push(op.tid);
                let reply = OsdReply { object: op.object, result: 0 };
                self.server.send(from, Message::new(reply.header(op.tid), reply.encode(), Data::default())).unwrap();
            }
        }
        while let Some(event) = self.client.next_event() {
            match event {
                Event::Message(from, message) => self.answers.entry(from).or_default().push(message.header.tid),
                Event::Reset(peer) => self.resets.push(peer),
                Event::Broken(..) => self.broken += 1,
                _ => {}
            }
        }
        self.pair.pause(moved);
    }

    fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let end = self.pair.now() + LONG;
        while !is_so(self) {
            assert!(self.pair.now() < end, "not so after an hour: {what}; {:?}", self.answers);
            self.turn();
        }
    }

    fn answered(&self, peer: PeerId) -> usize {
        self.answers.get(&peer).map_or(0, Vec::len)
    }

    fn connect(&mut self) -> PeerId {
        self.client.connect(SERVER.parse().unwrap()).unwrap()
    }
}

#[test]
fn operations_are_answered_once_and_in_order_over_a_cable_that_loses_frames() {
    for (seed, loss) in [(1, 0), (2, 10_000), (3, 50_000)] {
        let mut ends = Ends::new(seed, loss, false);
        let peers = [ends.connect(), ends.connect(), ends.connect()];
        for tid in 1..=40 {
            peers.into_iter().for_each(|peer| ends.client.send(peer, operation(tid)).unwrap());
        }
        ends.until("all are answered", |ends| peers.iter().all(|peer| ends.answered(*peer) == 40));
        let all: Vec<u64> = (1..=40).collect();
        assert!(ends.came.values().chain(ends.answers.values()).all(|tids| *tids == all));
        assert_eq!((ends.came.len(), ends.broken), (3, 0));
        ends.until("all is acknowledged", |_| true);
        for peer in peers {
            ends.client.close(peer);
        }
        let end = ends.pair.now() + LONG;
        while !(ends.client.stack().streams().is_empty() && ends.server.stack().streams().is_empty()) {
            assert!(ends.pair.now() < end);
            ends.turn();
        }
        ends.pair.assert_lawful();
    }
}

/// Connections are killed from both ends in the midst of operations.
#[test]
fn a_killed_connection_is_made_again_and_nothing_is_lost_or_done_twice() {
    let mut ends = Ends::new(4, 10_000, false);
    let peer = ends.connect();
    let mut sent = 0;
    for round in 1..=6 {
        while sent < 20 * round {
            sent += 1;
            ends.client.send(peer, operation(sent)).unwrap();
        }
        let some = (20 * round - 12) as usize;
        ends.until("some are answered", |ends| ends.answered(peer) >= some);
        if round % 2 == 0 {
            ends.client.kill(peer);
        } else {
            let theirs = *ends.came.keys().next().unwrap();
            ends.server.kill(theirs);
        }
    }
    ends.until("all are answered", |ends| ends.answered(peer) == 120);
    let all: Vec<u64> = (1..=120).collect();
    assert_eq!((ends.came.len(), &ends.came[&PeerId::clone(ends.came.keys().next().unwrap())]), (1, &all));
    assert_eq!((&ends.answers[&peer], ends.broken, ends.resets.len()), (&all, 6, 0));
    assert_eq!(ends.server.statistics().resumed, 6);
    for _ in 0..200 {
        ends.turn();
    }
    assert_eq!(ends.client.pending(peer), (0, 0), "all is acknowledged");
}

#[test]
fn a_lossy_session_begins_anew_and_its_user_sends_again() {
    let mut ends = Ends::new(5, 0, true);
    let peer = ends.connect();
    (1..=20).for_each(|tid| ends.client.send(peer, operation(tid)).unwrap());
    ends.until("some are answered", |ends| ends.answered(peer) >= 5);
    ends.client.kill(peer);
    // Lost, too: the user does not know yet.
    ends.client.send(peer, operation(21)).unwrap();
    ends.until("it is told", |ends| ends.resets == [peer]);
    let done = ends.answers[&peer].clone();
    (1..=21).filter(|tid| !done.contains(tid)).for_each(|tid| ends.client.send(peer, operation(tid)).unwrap());
    ends.until("all are answered", |ends| ends.answered(peer) == 21);
    assert_eq!(ends.answers[&peer], (1..=21).collect::<Vec<_>>());
}

#[test]
fn a_server_that_has_forgotten_the_session_is_told_from_one_that_has_not() {
    let mut ends = Ends::new(6, 0, false);
    let peer = ends.connect();
    ends.client.send(peer, operation(1)).unwrap();
    ends.until("it is answered", |ends| ends.answered(peer) == 1);
    // The program of the server ends, and another one is started at its address.
    let mut options = MessengerOptions::osd(0);
    options.stack = small();
    let lines = Box::new(ends.pair.lines[1].clone());
    let another = Messenger::with_lines(&ends.pair.devices[1], options, lines).unwrap();
    ends.server = another;
    ends.server.bind(SERVER.parse().unwrap()).unwrap();
    ends.client.kill(peer);
    ends.until("it is told", |ends| ends.resets == [peer]);
    ends.client.send(peer, operation(2)).unwrap();
    ends.until("the next is answered", |ends| ends.answered(peer) == 2);
    assert_eq!(ends.answers[&peer], [1, 2]);
}

#[test]
fn of_clients_that_are_gone_a_server_keeps_the_last_ones_alone() {
    let mut ends = Ends::with_server(12, 0, |options| options.absent = 2);
    let stays = ends.connect();
    ends.client.send(stays, operation(1)).unwrap();
    ends.until("it is answered", |ends| ends.answered(stays) == 1);
    for number in 1..=5 {
        let leaves = ends.connect();
        ends.client.send(leaves, operation(1)).unwrap();
        ends.until("it is answered", |ends| ends.answered(leaves) == 1);
        ends.client.close(leaves);
        ends.until("the server has seen it go", |ends| ends.server.statistics().broken == number);
    }
    let sessions: Vec<_> = ends.came.keys().copied().collect();
    ends.until("the first ones are dropped", |ends| ends.gone.len() == 3);
    // One that comes back is none of them: while it is gone, one that has been gone for longer is.
    ends.client.kill(stays);
    ends.client.send(stays, operation(2)).unwrap();
    ends.until("the next is answered", |ends| ends.answered(stays) == 2);
    assert_eq!((ends.gone, ends.resets.len()), (sessions[1..5].to_vec(), 0));
    assert_eq!(ends.server.statistics().resumed, 1);
}

#[test]
fn a_peer_that_is_silent_for_long_is_noticed() {
    let mut ends = Ends::new(7, 0, false);
    let peer = ends.connect();
    ends.client.send(peer, operation(1)).unwrap();
    ends.until("it is answered", |ends| ends.answered(peer) == 1);
    let keepalive = MessengerOptions::client(1).keepalive;
    let begin = ends.pair.now();
    while ends.pair.now() < begin + 6 * keepalive {
        ends.turn();
    }
    assert_eq!(ends.broken, 0, "keep-alives are answered");
    // From now on the server's program hangs; its card does not.
    let begin = ends.pair.now();
    while ends.broken == 0 {
        assert!(ends.pair.now() < begin + 6 * keepalive, "not noticed");
        ends.client.poll().unwrap();
        while let Some(event) = ends.client.next_event() {
            ends.broken += usize::from(matches!(event, Event::Broken(..)));
        }
        ends.pair.pause(false);
    }
    assert!(ends.pair.now() >= begin + 3 * keepalive - Duration::from_secs(1));
}

#[test]
fn a_run_is_the_same_for_the_same_seed() {
    let run = |seed| {
        let mut ends = Ends::new(seed, 20_000, false);
        let peer = ends.connect();
        (1..=30).for_each(|tid| ends.client.send(peer, operation(tid)).unwrap());
        ends.until("some are answered", |ends| ends.answered(peer) >= 10);
        ends.client.kill(peer);
        ends.until("all are answered", |ends| ends.answered(peer) == 30);
        ends.pair.world.simulated().record()
    };
    assert_eq!(run(8), run(8));
    assert_ne!(run(8), run(9));
}

#[test]
fn who_waits_wakes_when_something_comes() {
    let mut ends = Ends::new(11, 0, false);
    let peer = ends.connect();
    ends.client.send(peer, operation(1)).unwrap();
    ends.until("it is answered", |ends| ends.answered(peer) == 1);
    // Nothing comes: connections are looked at after some milliseconds.
    let quiet = ends.pair.now() + Duration::from_millis(100);
    ends.until("all is acknowledged", |ends| ends.pair.now() >= quiet);
    ends.server.wait().unwrap();
    assert!(!ends.server.poll().unwrap());
    let begin = ends.pair.now();
    ends.server.wait().unwrap();
    let silence = ends.pair.now() - begin;
    assert!(silence >= Duration::from_millis(4) && !ends.server.poll().unwrap(), "{silence:?}");
    // Something comes.
    ends.client.send(peer, operation(2)).unwrap();
    let begin = ends.pair.now();
    ends.client.wait().unwrap();
    assert_eq!(ends.pair.now(), begin, "it has something to say");
    ends.client.poll().unwrap();
    ends.server.wait().unwrap();
    let waited = ends.pair.now() - begin;
    assert!(ends.server.poll().unwrap() && waited < silence / 4, "{waited:?} instead of {silence:?}");
    ends.until("it is answered", |ends| ends.answered(peer) == 2);
    ends.pair.assert_lawful();
}
