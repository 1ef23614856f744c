//! Copies whose stores arrive one by one, and are joined.

use std::time::Duration;

use mlx5_prm::wqe::WqeOpcode;

use super::bench::*;
use super::blueflame::{bench, posted, seen, settled, store};
use crate::bar::{self, FIRST_UAR, HELD, RULE_COPY};
use crate::dma::Purpose;

/// Registers of two threads.
const REGISTERS: [u64; 2] = [0x800, 0xa00];
/// The byte of inline data that the copies of [`differing`] change.
const CHANGED: usize = 16 + 16 + 4;

fn combining() -> (Bench, u32, u32) {
    let (mut bench, a, b) = bench(FIRST_UAR);
    bench.f.bar.combine_writes();
    (bench, a, b)
}

/// A write of `len` inline bytes of `fill`, posted without doorbell: the blocks to copy. Their first inline byte is
/// another than that in the ring.
fn differing(bench: &mut Bench, qpn: u32, len: usize, fill: u8) -> Vec<u8> {
    let mut copy = posted(bench, qpn, len, fill);
    assert_eq!(copy[CHANGED], fill);
    copy[CHANGED] = !fill;
    copy
}

/// The first byte that arrived of [`posted`].
fn arrived(bench: &Bench, fill: u8) -> u8 {
    bench.read(MEMORY + (16 << 20) + u64::from(fill) * 64, 1)[0]
}

fn store_to(bench: &mut Bench, register: u64, bytes: &[u8]) {
    store(bench, FIRST_UAR, register, bytes);
}

fn wqe_reads(bench: &Bench) -> u64 {
    bench.f.nic.dma.traffic().of(Purpose::Wqe).reads
}

/// The doorbells that crossed PCIe, and their bytes.
fn doorbells(bench: &Bench) -> (u64, u64) {
    let crossed = bench.f.nic.dma.traffic().of(Purpose::Doorbell);
    (crossed.writes, crossed.write_bytes)
}

#[test]
fn a_whole_copy_is_executed() {
    for (len, blocks) in [(12, 1), (28, 1), (80, 2), (200, 4)] {
        let (mut bench, a, _) = combining();
        let copy = differing(&mut bench, a, len, 1);
        assert_eq!(copy.len(), blocks * 64);
        store_to(&mut bench, 0x800, &copy[..copy.len() - 8]);
        seen(&mut bench);
        assert_eq!((bench.sent(a).len(), doorbells(&bench)), (0, (0, 0)), "{len} bytes: kept back");
        store_to(&mut bench, 0x800 + copy.len() as u64 - 8, &copy[copy.len() - 8..]);
        seen(&mut bench);
        assert_eq!((bench.sent(a).len(), arrived(&bench, 1)), (1, !1), "{len} bytes");
        assert_eq!((wqe_reads(&bench), doorbells(&bench)), (0, (blocks as u64, copy.len() as u64)), "{len} bytes");
        // Software must not copy what is not in the ring, as the card may take either.
        assert_eq!(settled(&mut bench), [RULE_COPY]);
    }
}

#[test]
fn stores_of_any_size_are_joined() {
    for size in [4, 16, 64, 128] {
        let (mut bench, a, _) = combining();
        let copy = differing(&mut bench, a, 80, 1);
        let start = u64::from(FIRST_UAR) << bar::LOG_PAGE | 0x800;
        for (at, bytes) in (start..).step_by(size).zip(copy.chunks(size)) {
            bar::write(&mut bench.f, at, bytes);
        }
        seen(&mut bench);
        assert_eq!((bench.sent(a).len(), arrived(&bench, 1), wqe_reads(&bench)), (1, !1, 0), "{size} bytes each");
    }
}

#[test]
fn an_interrupted_copy_is_a_doorbell() {
    type Interruption = fn(&mut Bench);
    let interruptions: [(&str, Interruption); 5] = [
        ("time", |bench| bench.f.nic.now += HELD),
        ("a read", |bench| bar::read(&mut bench.f, 0, &mut [0; 4])),
        ("a command", |bench| bar::write(&mut bench.f, 0x14, &[0; 4])),
        ("the other buffer", |bench| store_to(bench, 0x908, &[0; 8])),
        ("another place in the buffer", |bench| store_to(bench, 0x838, &[0; 8])),
    ];
    for (what, interrupt) in interruptions {
        let (mut bench, a, _) = combining();
        let copy = differing(&mut bench, a, 12, 1);
        store_to(&mut bench, 0x800, &copy[..40]);
        seen(&mut bench);
        assert_eq!(bench.sent(a).len(), 0, "{what}: kept back");
        interrupt(&mut bench);
        seen(&mut bench);
        assert_eq!((bench.sent(a).len(), arrived(&bench, 1), wqe_reads(&bench)), (1, 1, 1), "{what}: from the ring");
        store_to(&mut bench, 0x828, &copy[40..]);
        bench.f.nic.now += HELD;
        seen(&mut bench);
        assert_eq!((bench.sent(a).len(), doorbells(&bench)), (0, (1, 8)), "{what}: once");
    }
}

#[test]
fn a_doorbell_alone_waits_a_moment() {
    let (mut bench, a, _) = combining();
    let wqe = posted(&mut bench, a, 12, 1);
    assert_eq!(bar::next_deadline(&bench.f), None);
    store_to(&mut bench, 0x800, &wqe[..8]);
    let due = bench.f.nic.now + HELD;
    assert_eq!(bar::next_deadline(&bench.f), Some(due), "the card must not sleep longer");
    bench.f.nic.now = due - Duration::from_nanos(1);
    assert!(!bar::poll(&mut bench.f));
    bench.f.nic.now = due;
    assert!(bar::poll(&mut bench.f));
    seen(&mut bench);
    assert_eq!((bench.sent(a).len(), bar::next_deadline(&bench.f)), (1, None));
    // The next of the same thread shows that it was alone.
    for (fill, register) in [(2, 0x900), (3, 0x800), (4, 0x800)] {
        let wqe = posted(&mut bench, a, 12, fill);
        store_to(&mut bench, register, &wqe[..8]);
        seen(&mut bench);
        assert_eq!(bench.sent(a).len(), usize::from(fill != 2), "all but the last one rang");
    }
    bench.f.nic.now += HELD;
    seen(&mut bench);
    assert_eq!((bench.sent(a).len(), doorbells(&bench)), (1, (4, 32)));
    assert_eq!(settled(&mut bench), [""; 0]);
}

#[test]
fn copies_of_two_threads_do_not_interfere() {
    let (mut bench, a, b) = combining();
    let copies = [differing(&mut bench, a, 80, 1), differing(&mut bench, b, 80, 2)];
    for at in (0..128).step_by(8) {
        for (register, copy) in REGISTERS.into_iter().zip(&copies) {
            store_to(&mut bench, register + at as u64, &copy[at..at + 8]);
        }
    }
    seen(&mut bench);
    assert_eq!([bench.sent(a).len(), bench.sent(b).len()], [1, 1]);
    assert_eq!(([arrived(&bench, 1), arrived(&bench, 2)], wqe_reads(&bench)), ([!1, !2], 0));
}

#[test]
fn behind_older_work_the_ring_is_read() {
    let (mut bench, a, _) = combining();
    for (fill, register) in [(1, 0x800), (2, 0x900)] {
        let copy = differing(&mut bench, a, 12, fill);
        store_to(&mut bench, register, &copy);
    }
    seen(&mut bench);
    assert_eq!(([arrived(&bench, 1), arrived(&bench, 2)], wqe_reads(&bench)), ([!1, 2], 1));
    assert_eq!(bench.sent(a).len(), 2);
}

/// Its length is in the first eight bytes: what is longer than a buffer cannot be copied.
#[test]
fn a_work_request_longer_than_a_buffer_does_not_wait() {
    let (mut bench, a, _) = combining();
    let wqe = posted(&mut bench, a, 250, 1);
    store_to(&mut bench, 0x800, &wqe[..8]);
    seen(&mut bench);
    assert_eq!((bench.sent(a).len(), wqe_reads(&bench)), (1, 5));
}

#[test]
fn a_copy_does_not_outlive_its_queue() {
    use mlx5_prm::values::QpState;
    let (mut bench, a, b) = combining();
    let copy = differing(&mut bench, a, 12, 1);
    store_to(&mut bench, 0x800, &copy);
    assert!(bench.qp_mut(a).rc.send.copied.is_some());
    bench.go(a, QpState::Rst);
    bench.go(b, QpState::Rst);
    assert!(bench.qp_mut(a).rc.send.copied.is_none(), "the next life begins with the same index");
    // Part of one, and the page is given back.
    store_to(&mut bench, 0x900, &copy[..40]);
    bench.f.bar.release(FIRST_UAR);
    assert_eq!(bar::next_deadline(&bench.f), None);
    store_to(&mut bench, 0x900, &copy[..40]);
    bench.f.bar.reset();
    assert_eq!(bar::next_deadline(&bench.f), None);
    store_to(&mut bench, 0x900, &copy[..40]);
    assert!(bar::next_deadline(&bench.f).is_some(), "writes are combined after a reset, too");
}

/// Linux' test of write combining: NOPs whose copies ask for a completion, where the ring's do not.
#[test]
fn a_nop_tells_which_of_the_two_was_executed() {
    let nop = Post { signalled: false, ..Post::new(WqeOpcode::Nop, vec![]) };
    for whole in [true, false] {
        let (mut bench, a, _) = combining();
        let index = bench.put(a, &nop);
        bench.record(a, 1, (index + 1).into());
        let mut copy = Post::new(WqeOpcode::Nop, vec![]).bytes(a, index);
        copy.resize(64, 0);
        store_to(&mut bench, 0x800, &copy[..if whole { 64 } else { 56 }]);
        assert_eq!(settled(&mut bench), [""; 0]);
        assert_eq!(bench.sent(a).len(), usize::from(whole));
    }
}
