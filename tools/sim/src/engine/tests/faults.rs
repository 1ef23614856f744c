//! Wires that drop, duplicate, delay and damage frames: everything still arrives once and in order.

use std::time::Duration;

use mlx5_prm::values::PathMtu;
use mlx5_prm::wqe::WqeOpcode;
use proptest::prelude::*;

use super::bench::*;
use crate::fault::{Fault, FrameFate, Times};

/// One side's work requests.
#[derive(Debug, Clone, Copy)]
enum Op {
    Send(u32),
    Write(u32),
    WriteImm(u32),
    Read(u32),
    Add(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let len = prop_oneof![0..20u32, 200..300u32, 1000..3000u32];
    prop_oneof![
        len.clone().prop_map(Op::Send),
        len.clone().prop_map(Op::Write),
        len.clone().prop_map(Op::WriteImm),
        len.prop_map(Op::Read),
        (1..100u64).prop_map(Op::Add),
    ]
}

/// A queue pair's messages: what it sends, and the destination.
struct Side {
    qpn: u32,
    peer: u32,
    from: u64,
    to: u64,
    counter: u64,
    results: u64,
}

fn post(bench: &mut Bench, side: &Side, number: usize, op: Op) {
    let key = bench.key;
    let slot = number as u64 * 4096;
    let (from, to) = (side.from + slot, side.to + slot);
    let bytes = |len: u32| pattern(len as usize, number as u8);
    let segs = |remote: Option<u64>, local: u64, len: u32| {
        let mut segs: Vec<Seg> = remote.map(|to| Seg::Remote(to, key)).into_iter().collect();
        if len > 0 {
            segs.push(Seg::Data(local, len, key));
        }
        segs
    };
    match op {
        Op::Send(len) => {
            bench.write(from, &bytes(len));
            bench.post_recv(side.peer, &[data(to, 4096, key)]);
            bench.post(side.qpn, &Post::new(WqeOpcode::Send, segs(None, from, len)));
        }
        Op::Write(len) => {
            bench.write(from, &bytes(len));
            bench.post(side.qpn, &Post::new(WqeOpcode::RdmaWrite, segs(Some(to), from, len)));
        }
        Op::WriteImm(len) => {
            bench.write(from, &bytes(len));
            bench.post_recv(side.peer, &[]);
            let mut post = Post::new(WqeOpcode::RdmaWriteImm, segs(Some(to), from, len));
            post.immediate = number as u32;
            bench.post(side.qpn, &post);
        }
        Op::Read(len) => {
            bench.write(to, &bytes(len));
            bench.post(side.qpn, &Post::new(WqeOpcode::RdmaRead, segs(Some(to), from, len)));
        }
        Op::Add(value) => {
            let segs = vec![
                Seg::Remote(side.counter, key),
                Seg::Atomic(value, 0),
                Seg::Data(side.results + number as u64 * 8, 8, key),
            ];
            bench.post(side.qpn, &Post::new(WqeOpcode::AtomicFa, segs));
        }
    }
}

fn check(bench: &mut Bench, side: &Side, ops: &[Op]) {
    let sent = bench.sent(side.qpn);
    assert!(sent.iter().all(|done| done.syndrome.is_none()), "{sent:?}");
    assert_eq!(sent.len(), ops.len(), "all completions, once");
    let received = bench.received(side.peer);
    let expected: Vec<u32> = ops
        .iter()
        .filter_map(|op| match op {
            Op::Send(len) | Op::WriteImm(len) => Some(*len),
            _ => None,
        })
        .collect();
    assert_eq!(received.iter().map(|done| done.len).collect::<Vec<_>>(), expected, "all messages, once, in order");
    let mut sum = 0u64;
    for (number, op) in ops.iter().enumerate() {
        let slot = number as u64 * 4096;
        match *op {
            Op::Send(len) | Op::Write(len) | Op::WriteImm(len) => {
                assert_eq!(bench.read(side.to + slot, len as usize), pattern(len as usize, number as u8));
            }
            Op::Read(len) => {
                assert_eq!(bench.read(side.from + slot, len as usize), pattern(len as usize, number as u8));
            }
            Op::Add(value) => {
                assert_eq!(bench.read(side.results + number as u64 * 8, 8), sum.to_ne_bytes(), "add carried out once");
                sum += value;
            }
        }
    }
}

fn exchange(ops: &[Vec<Op>; 2], fates: &[(FrameFate, u32)], seed: u64, mtu: PathMtu) -> Bench {
    let mut bench = Bench::new();
    // Losses are random: unlimited retries, so that the test cannot fail by chance.
    let shape = Shape { mtu, retry_count: 255, ack_timeout: 8, ..bench.shape() };
    let (a, b) = bench.pair(shape);
    bench.f.nic.faults.seed(seed);
    for (fate, per_million) in fates {
        bench.f.nic.faults.inject(Fault::Frame { fate: *fate, per_million: *per_million }, Times::Always);
    }
    let slots = 64 * 4096;
    let mut side = |qpn, peer| Side {
        qpn,
        peer,
        from: bench.alloc(slots),
        to: bench.alloc(slots),
        counter: bench.alloc(8),
        results: bench.alloc(4096),
    };
    let sides = [side(a, b), side(b, a)];
    for number in 0..ops[0].len().max(ops[1].len()) {
        for (side, ops) in sides.iter().zip(ops) {
            if let Some(op) = ops.get(number) {
                post(&mut bench, side, number, *op);
            }
        }
        bench.run_for(Duration::from_micros(300));
    }
    bench.run_for(Duration::from_secs(2));
    for (side, ops) in sides.iter().zip(ops) {
        check(&mut bench, side, ops);
    }
    assert_eq!(bench.violations(), [""; 0]);
    bench
}

proptest! {
    #[test]
    fn everything_arrives_once_and_in_order(
        left in proptest::collection::vec(op(), 1..30),
        right in proptest::collection::vec(op(), 0..30),
        loss in 0..200_000u32, double in 0..100_000u32, late in 0..150_000u32, damage in 0..100_000u32,
        seed: u64, small: bool,
    ) {
        let fates = [
            (FrameFate::Lost, loss),
            (FrameFate::Duplicated, double),
            (FrameFate::Reordered, late),
            (FrameFate::Corrupted(0), damage),
        ];
        exchange(&[left, right], &fates, seed, if small { PathMtu::Mtu256 } else { PathMtu::Mtu1024 });
    }
}

#[test]
fn a_long_message_over_a_bad_wire() {
    let mut bench = Bench::new();
    let shape = Shape { retry_count: 255, ack_timeout: 8, ..bench.shape() };
    let (a, b) = bench.pair(shape);
    for qpn in [a, b] {
        let counter = bench.f.nic.objects.queue_counters.insert(Default::default()).unwrap();
        bench.qp_mut(qpn).counter_set_id = counter as u8;
    }
    let (from, to, key) = (bench.alloc(4 << 20), bench.alloc(4 << 20), bench.key);
    bench.write(from, &pattern(4 << 20, 1));
    for (fate, per_million) in
        [(FrameFate::Lost, 10_000), (FrameFate::Reordered, 10_000), (FrameFate::Duplicated, 10_000)]
    {
        bench.f.nic.faults.inject(Fault::Frame { fate, per_million }, Times::Always);
    }
    bench.post(a, &write(from, 4 << 20, key, to, key));
    bench.run_for(Duration::from_secs(5));
    assert_eq!(bench.sent(a).len(), 1);
    assert!(bench.read(to, 4 << 20) == pattern(4 << 20, 1));
    bench.write(to, &vec![0; 4 << 20]);
    bench.post(a, &read(to, 4 << 20, key, from, key));
    bench.run_for(Duration::from_secs(5));
    assert_eq!(bench.sent(a).len(), 1);
    assert!(bench.read(to, 4 << 20) == pattern(4 << 20, 1));
    let ids = [a, b].map(|qpn| u32::from(bench.qp_mut(qpn).counter_set_id));
    let [asks, answers] = ids.map(|id| bench.f.nic.objects.queue_counters.get(id).unwrap());
    assert!(asks.implied_nak_seq_err > 0 && asks.packet_seq_err > 0);
    assert!(answers.out_of_sequence > 0 && answers.duplicate_request > 0);
    assert_eq!((answers.rx_write_requests, answers.rx_read_requests, asks.rx_read_requests), (1, 1, 0));
}

#[test]
fn one_loss_of_each_packet_of_an_exchange() {
    let ops = [vec![Op::Send(3000), Op::Read(3000), Op::Add(5), Op::WriteImm(10)], vec![Op::Send(1)]];
    let clean = exchange(&ops, &[], 1, PathMtu::Mtu1024).f.nic.port.counters.sent;
    assert!(clean > 8);
    for lost in 0..clean {
        let mut bench = Bench::new();
        let shape = Shape { ack_timeout: 10, ..bench.shape() };
        let (a, b) = bench.pair(shape);
        let key = bench.key;
        let (from, to) = (bench.alloc(8192), bench.alloc(8192));
        bench.write(from, &pattern(3000, 1));
        bench.post_recv(b, &[data(to, 3000, key)]);
        bench.post(a, &send(from, 3000, key));
        bench.post(a, &read(from + 4096, 3000, key, from, key));
        // This many frames pass; the next one is lost.
        let mut passed = 0;
        while passed < 1000 {
            if bench.f.nic.port.counters.sent == lost {
                bench
                    .f
                    .nic
                    .faults
                    .inject(Fault::Frame { fate: FrameFate::Lost, per_million: 1_000_000 }, Times::Count(1));
            }
            crate::engine::run(&mut bench.f);
            passed += 1;
        }
        bench.run_for(Duration::from_millis(100));
        assert_eq!(bench.sent(a).iter().filter(|done| done.syndrome.is_none()).count(), 2, "frame {lost}");
        assert_eq!(bench.received(b).len(), 1, "frame {lost}");
        assert_eq!(bench.read(from + 4096, 3000), pattern(3000, 1), "frame {lost}");
    }
}

#[test]
fn a_link_that_flaps() {
    let (mut bench, a, _) = Bench::standard();
    let (from, to, key) = (bench.alloc(1 << 16), bench.alloc(1 << 16), bench.key);
    bench.f.nic.port.link_up = false;
    bench.post(a, &write(from, 1 << 16, key, to, key));
    bench.run_for(Duration::from_millis(300));
    bench.f.nic.port.link_up = true;
    bench.run_for(Duration::from_millis(300));
    assert_eq!(bench.sent(a)[0].syndrome, None);
}
