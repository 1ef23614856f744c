//! Atomics, of eight bytes and masked.

use mlx5_prm::cqe::CqeSyndrome;
use mlx5_prm::ctx::AtomicMode;
use mlx5_prm::values::ServiceType;
use mlx5_prm::wqe::WqeOpcode;

use super::bench::*;
use crate::fault::{Fault, FrameFate, Times};
use crate::function::Firmware;
use crate::objects::XrcSrq;
use crate::profile::Profile;

#[test]
fn atomics() {
    let (mut bench, a, _) = Bench::standard();
    let (here, there, key) = (bench.alloc(4096), bench.alloc(4096), bench.key);
    bench.write(there, &1000u64.to_ne_bytes());
    let add = |value| {
        Post::new(WqeOpcode::AtomicFa, vec![Seg::Remote(there, key), Seg::Atomic(value, 0), Seg::Data(here, 8, key)])
    };
    let swap = |compare, value| {
        Post::new(
            WqeOpcode::AtomicCs,
            vec![Seg::Remote(there, key), Seg::Atomic(value, compare), Seg::Data(here + 8, 8, key)],
        )
    };
    bench.post(a, &add(234));
    bench.post(a, &swap(1234, 77));
    bench.run();
    assert_eq!(bench.read(here, 8), 1000u64.to_ne_bytes());
    assert_eq!(bench.read(here + 8, 8), 1234u64.to_ne_bytes());
    assert_eq!(bench.read(there, 8), 77u64.to_ne_bytes());
    bench.post(a, &swap(1, 2));
    bench.run();
    assert_eq!(bench.read(there, 8), 77u64.to_ne_bytes());
    assert_eq!(bench.sent(a).iter().map(|done| done.len).collect::<Vec<_>>(), [8, 8, 8]);
}

#[test]
fn atomics_answer_big_endian_until_software_chooses_the_order_of_the_host() {
    let (mut bench, a, _) = Bench::standard();
    bench.f.nic.firmware = Firmware::new(&Profile::connectx5(), bench.f.nic.now);
    let (here, there, key) = (bench.alloc(4096), bench.alloc(4096), bench.key);
    bench.write(there, &1000u64.to_le_bytes());
    let segs = vec![Seg::Remote(there, key), Seg::Atomic(234, 0), Seg::Data(here, 8, key)];
    bench.post(a, &Post::new(WqeOpcode::AtomicFa, segs));
    bench.run();
    assert_eq!(bench.read(here, 8), 1000u64.to_be_bytes());
    assert_eq!(bench.read(there, 8), 1234u64.to_le_bytes());
}

/// A masked atomic: `[ctrl | remote | operands | data]`, with the log of its bytes in `opmod`.
fn masked(bench: &Bench, opcode: WqeOpcode, at: u64, operands: &[u8], here: u64) -> Post {
    let size = operands.len() as u32 / if opcode == WqeOpcode::AtomicMaskedCs { 4 } else { 2 };
    let mut padded = operands.to_vec();
    padded.resize(operands.len().next_multiple_of(16), 0);
    let segs = vec![Seg::Remote(at, bench.key), Seg::Raw(padded), Seg::Data(here, size, bench.key)];
    Post { opmod: 8 | (size.trailing_zeros() as u8 - 2), ..Post::new(opcode, segs) }
}

#[test]
fn masked_atomics_of_each_size_find_and_change_what_they_select() {
    for service in [ServiceType::Rc, ServiceType::Xrc] {
        let mut bench = Bench::new();
        let cqn = bench.cq(6);
        let shape = Shape { service, xrcd: 5, ..bench.shape() };
        let (a, b) = bench.pair(shape);
        bench.qp_mut(b).context.w().atomic_mode(AtomicMode::UpTo32B);
        let srq = (service == ServiceType::Xrc).then(|| bench.srq(Some(XrcSrq { xrcd: 5, cqn, user_index: None })));
        let (here, there) = (bench.alloc(4096), bench.alloc(4096));
        for size in [4usize, 8, 16, 32] {
            let word = size.min(8);
            let memory: Vec<u8> = (1..=size as u8).collect();
            bench.write(there, &memory);
            let numbers: Vec<u8> = memory.chunks(word).flat_map(|number| number.iter().rev().copied()).collect();
            let mut mask = vec![0; size];
            mask[size - 1] = 0xff;
            let swap = [vec![0xee; size], numbers.clone(), mask, vec![0xff; size]].concat();
            let mut post = masked(&bench, WqeOpcode::AtomicMaskedCs, there, &swap, here);
            if let Some(srqn) = srq {
                post.segs.insert(0, Seg::Raw([&srqn.to_be_bytes()[..], &[0; 12]].concat()));
            }
            bench.post(a, &post);
            bench.run();
            // Of eight bytes the answer has the order of the host, else that of the WQE.
            let told = if size == 8 { memory.clone() } else { numbers };
            assert_eq!(bench.read(here, size), told, "{service}, {size} bytes");
            // The number's lowest byte comes first in memory.
            let mut swapped = memory;
            swapped[size - word] = 0xee;
            assert_eq!(bench.read(there, size), swapped, "{service}, {size} bytes");
        }
        assert_eq!(bench.sent(a).iter().map(|done| done.len).collect::<Vec<_>>(), [4, 8, 16, 32]);
        assert!(bench.violations().is_empty(), "{:?}", bench.violations());
    }
}

#[test]
fn a_repeated_masked_atomic_is_answered_and_not_executed_again() {
    let (mut bench, a, b) = Bench::standard();
    bench.qp_mut(b).context.w().atomic_mode(AtomicMode::UpTo32B);
    let (here, there) = (bench.alloc(4096), bench.alloc(4096));
    let mut add = vec![0; 32];
    (add[7], add[15]) = (1, 2);
    let post = masked(&bench, WqeOpcode::AtomicMaskedFa, there, &add, here);
    bench.f.nic.faults.inject(Fault::Frame { fate: FrameFate::Duplicated, per_million: 1_000_000 }, Times::Count(2));
    bench.post(a, &post);
    bench.run();
    assert_eq!(bench.sent(a).len(), 1);
    assert_eq!(bench.read(there, 16), [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn masked_atomics_that_are_not_allowed_fail() {
    let refused = |mode: AtomicMode, size: usize, offset: u64| {
        let (mut bench, a, b) = Bench::standard();
        bench.qp_mut(b).context.w().atomic_mode(mode);
        let (here, there) = (bench.alloc(4096), bench.alloc(4096));
        bench.post(a, &masked(&bench, WqeOpcode::AtomicMaskedFa, there + offset, &vec![1; 2 * size], here));
        bench.run();
        assert_eq!(bench.read(there, 64), [0; 64]);
        bench.sent(a)[0].syndrome
    };
    assert_eq!(refused(AtomicMode::IbSpec, 8, 0), Some(CqeSyndrome::RemoteInvalidRequest));
    assert_eq!(refused(AtomicMode::UpTo8B, 16, 0), Some(CqeSyndrome::RemoteInvalidRequest));
    assert_eq!(refused(AtomicMode::UpTo32B, 16, 8), Some(CqeSyndrome::RemoteInvalidRequest));
    assert_eq!(refused(AtomicMode::UpTo32B, 64, 0), Some(CqeSyndrome::LocalQpOperation), "not announced");
}
