//! Two cards, a cable and two clients, on one thread in virtual time.

use std::time::Instant;

use mlx5_prm::values::QpState;

use super::*;
use crate::card::{Card, FunctionHandle};
use crate::engine::tests::bench::*;
use crate::fault::Faults;
use crate::firmware::tests::client::Client;
use crate::function::Function;
use crate::profile::Profile;
use crate::strict::Strict;
use crate::wire::PcapWriter;

const BAD: Conditions = Conditions {
    loss: 50_000,
    duplication: 20_000,
    reordering: 50_000,
    corruption: 20_000,
    latency: Duration::from_micros(1),
    lateness: Duration::from_micros(20),
};
/// Message size in bytes: two packets and a part of one.
const LEN: u32 = 2500;
/// Messages in flight.
const DEPTH: usize = 8;

/// One client. The function belongs to the card; the bench holds an empty one, and swaps it with the card's while
/// working.
struct Side {
    handle: FunctionHandle,
    bench: Option<Bench>,
    qpn: u32,
    eqn: u32,
    buffer: u64,
    posted: usize,
    sent: usize,
    received: usize,
    /// Completion events so far: the sequence number of arm requests.
    events: u32,
}

fn empty() -> Function {
    Function::new(0, Profile::connectx5(), Strict::off(), Faults::new())
}

impl Side {
    /// Brings the function up by commands, and creates a queue pair.
    fn new(handle: FunctionHandle, host: usize) -> Self {
        let made = handle.with(move |f| {
            let mut client = Client::on(std::mem::replace(f, empty()));
            client.f.nic.dma.enable(true);
            client.bring_up();
            let mut bench = Bench::on(client.f, host);
            let eqn = bench.eq(10, &[]);
            let (cqn_send, cqn_recv) = (bench.cq_of(8, 64, eqn), bench.cq_of(8, 64, eqn));
            let shape = Shape { cqn_send, cqn_recv, log_sends: 8, log_receives: 8, ..bench.shape() };
            let qpn = bench.qp(shape);
            let buffer = bench.alloc(u64::from(LEN) * 2);
            bench.write(buffer, &pattern(LEN as usize, host as u8));
            std::mem::swap(&mut bench.f, f);
            (bench, qpn, eqn, buffer)
        });
        let (bench, qpn, eqn, buffer) = made.unwrap();
        Side { handle, bench: Some(bench), qpn, eqn, buffer, posted: 0, sent: 0, received: 0, events: 0 }
    }

    /// Runs a closure on the function, between two turns of its card.
    fn with<T: Send + 'static>(&mut self, work: impl FnOnce(&mut Bench) -> T + Send + 'static) -> T {
        let mut bench = self.bench.take().unwrap();
        let done = self.handle.with(move |f| {
            std::mem::swap(&mut bench.f, f);
            let done = work(&mut bench);
            std::mem::swap(&mut bench.f, f);
            (bench, done)
        });
        let (bench, done) = done.unwrap();
        self.bench = Some(bench);
        done
    }

    fn connect(&mut self, remote: u32, host: usize, mac: [u8; 6]) {
        let qpn = self.qpn;
        self.with(move |bench| {
            bench.connect(qpn, remote, host, mac);
            (0..2 * DEPTH).for_each(|_| post_receive(bench, qpn, bench.key));
        });
    }

    /// Polls completions, and posts as many of `count` messages as fit.
    fn work(&mut self, count: usize) {
        let Side { qpn, eqn, buffer, .. } = *self;
        let under_way = self.posted - self.sent;
        let more = (count - self.posted).min(DEPTH - under_way);
        let events = self.events;
        let (sent, received, events) = self.with(move |bench| {
            let (sent, received) = (bench.sent(qpn), bench.received(qpn));
            assert!(sent.iter().chain(&received).all(|done| done.syndrome.is_none()), "{sent:?} {received:?}");
            let key = bench.key;
            received.iter().for_each(|_| post_receive(bench, qpn, key));
            (0..more).for_each(|_| _ = bench.post(qpn, &send(buffer, LEN, key)));
            let events = events + std::iter::from_fn(|| bench.event(eqn)).count() as u32;
            bench.eq_doorbell(eqn, true);
            let cqn = bench.qp_mut(qpn).cqn_recv;
            bench.arm(cqn, events & 3, false);
            (sent.len(), received.len(), events)
        });
        self.posted += more;
        self.sent += sent;
        self.received += received;
        self.events = events;
    }
}

fn post_receive(bench: &mut Bench, qpn: u32, key: u32) {
    let at = MEMORY + (16 << 20);
    bench.post_recv(qpn, &[data(at, LEN, key)]);
}

/// Sends `count` messages each way, then a write with a wrong key. Returns the record, and the virtual time it took.
fn run(seed: u64, count: usize) -> (Record, Duration) {
    let world = World::new(seed);
    let builders = [Card::builder().strict(true), Card::builder().strict(true)];
    let (cards, _cable) = world.joined(builders, BAD).unwrap();
    world.run_until(Duration::from_millis(10));
    let [mut left, mut right] = [0, 1].map(|host| Side::new(cards[host].function(0), host));
    let [left_mac, right_mac] = [&mut left, &mut right].map(|side| side.with(|bench| bench.f.nic.objects.vport.mac()));
    assert_ne!(left_mac, right_mac);
    left.connect(right.qpn, 1, right_mac);
    right.connect(left.qpn, 0, left_mac);
    let deadline = Duration::from_secs(1000);
    while [&left, &right].iter().any(|side| side.sent < count || side.received < count) {
        [&mut left, &mut right].into_iter().for_each(|side| side.work(count));
        assert!(world.advance(deadline), "{} and {} of {count} messages came", left.received, right.received);
    }
    let got = right.with(|bench| bench.read(MEMORY + (16 << 20), LEN as usize));
    assert!(got == pattern(LEN as usize, 0), "the last message is another");
    let (qpn, buffer) = (left.qpn, left.buffer);
    left.with(move |bench| bench.post(qpn, &write(buffer, LEN, bench.key, MEMORY, 0xbad00)));
    world.run_until(world.now() + Duration::from_secs(1));
    for side in [&mut left, &mut right] {
        let qpn = side.qpn;
        assert_eq!(side.with(move |bench| bench.state(qpn)), QpState::Err);
        let violations = side.with(|bench| bench.violations());
        assert!(violations.iter().all(|rule| *rule == crate::strict::rules::KEY), "{violations:?}");
    }
    (world.record(), world.now())
}

#[test]
fn a_seed_gives_the_same_world_each_time_and_another_seed_another() {
    let (first, end) = run(1, 50);
    for _ in 0..20 {
        assert_eq!(run(1, 50), (first, end));
    }
    let others: Vec<_> = (2..10).map(|seed| run(seed, 50).0.hash).collect();
    let mut different = others.clone();
    different.push(first.hash);
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), others.len() + 1);
    assert!(first.commands > 5 && first.completions > 200 && first.events > 10, "{first:?}");
    assert!(first.sent > first.received, "the cable loses frames: {first:?}");
}

#[test]
fn a_capture_is_the_same_each_time_and_its_stamps_are_the_world_s() {
    #[derive(Clone, Default)]
    struct File(Arc<Mutex<Vec<u8>>>);
    impl std::io::Write for File {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            lock(&self.0).extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let captured = || {
        let (world, file) = (World::new(1), File::default());
        world.run_until(Duration::from_secs(1));
        let writer = PcapWriter::new(file.clone()).unwrap();
        let card = world.card(Card::builder().capture(writer)).unwrap();
        world.run_until(Duration::from_millis(1500));
        let sent = card.function(0).with(|f| f.nic.send_frame(vec![0xff; 60], 1, 0, 0));
        sent.unwrap();
        lock(&file.0).clone()
    };
    let bytes = captured();
    assert_eq!(bytes[24..32], [1, 0, 0, 0, 0, 0x65, 0xcd, 0x1d], "1.5 s");
    assert_eq!(captured(), bytes);
}

#[test]
fn lost_packets_timeouts_take_no_real_time() {
    let start = Instant::now();
    let (record, end) = run(3, 1000);
    let took = start.elapsed();
    println!("{record:?}: {end:?} of virtual time in {took:?}");
    assert!(took < end, "{end:?} of virtual time took {took:?}");
}

#[test]
fn time_stops_at_what_is_due_and_at_the_caller_s_deadline() {
    let world = World::new(1);
    assert!(world.advance(Duration::from_millis(3)));
    assert_eq!(world.now(), Duration::from_millis(3));
    assert!(!world.advance(Duration::from_millis(3)), "the deadline has come");
    let (cards, _cable) = world.joined([Card::builder(), Card::builder()], Conditions::default()).unwrap();
    let function = cards[0].function(0);
    let initializing = || {
        let mut bytes = [0; 4];
        function.bar_read(0x1fc, &mut bytes);
        bytes[0] >> 7
    };
    assert_eq!(initializing(), 1);
    world.run_until(Duration::from_millis(7));
    assert_eq!(initializing(), 0);
    drop(cards);
    let mut bytes = [0; 4];
    function.bar_read(0x1fc, &mut bytes);
    assert_eq!(bytes, [0xff; 4], "a card that was dropped has no power");
}
