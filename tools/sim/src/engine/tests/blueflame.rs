//! Copies in BlueFlame buffers, and strict mode's reports about them.

use std::os::unix::fs::FileExt;
use std::time::Duration;

use super::bench::*;
use crate::bar::{self, FIRST_UAR, RULE_COPY, RULE_SAME_BUFFER};
use crate::objects::Uar;

/// The two buffers of the first register.
const BUFFERS: [u64; 2] = [0x800, 0x900];
/// How clients access the page: memory, or messages.
const PAGES: [u32; 2] = [UAR, FIRST_UAR];

/// Two queue pairs that use UAR page `uar`.
pub(super) fn bench(uar: u32) -> (Bench, u32, u32) {
    let (mut bench, a, b) = Bench::standard();
    while bench.f.nic.objects.uars.insert(Uar { users: 0 }).unwrap() != UAR {}
    for qpn in [a, b] {
        bench.qp_mut(qpn).uar = uar;
    }
    (bench, a, b)
}

/// Stores to the BAR as software does, in ascending order.
pub(super) fn store(bench: &mut Bench, uar: u32, register: u64, bytes: &[u8]) {
    let at = (u64::from(uar) << bar::LOG_PAGE) + register;
    if uar == UAR {
        return bench.f.bar.uar_memory().unwrap().file.unwrap().write_all_at(bytes, at).unwrap();
    }
    for (at, bytes) in (at..).step_by(8).zip(bytes.chunks(8)) {
        bar::write(&mut bench.f, at, bytes);
    }
}

/// A write with `len` inline bytes of `fill`, posted without doorbell: the blocks to copy.
pub(super) fn posted(bench: &mut Bench, qpn: u32, len: usize, fill: u8) -> Vec<u8> {
    let to = MEMORY + (16 << 20) + u64::from(fill) * 64;
    let post =
        Post::new(mlx5_prm::wqe::WqeOpcode::RdmaWrite, vec![Seg::Remote(to, bench.key), Seg::Inline(vec![fill; len])]);
    let index = bench.put(qpn, &post);
    let count = bench.posted(qpn);
    bench.record(qpn, 1, count.into());
    let ring = bench.qp_mut(qpn).send.clone().unwrap();
    let mut wqe = vec![0; usize::from(count.wrapping_sub(index)) * 64];
    for (block, bytes) in wqe.chunks_mut(64).enumerate() {
        let place = (u64::from(index) + block as u64) & ((1 << ring.log_size) - 1);
        ring.memory.read(&bench.f.nic.dma, place * 64, bytes).unwrap();
    }
    wqe
}

/// The card reads what was stored.
pub(super) fn seen(bench: &mut Bench) {
    bar::poll(&mut bench.f);
    bench.run();
}

/// Lets the settling time pass; returns strict mode's reports.
pub(super) fn settled(bench: &mut Bench) -> Vec<&'static str> {
    seen(bench);
    bench.f.nic.now += Duration::from_secs(1);
    bar::audit(&mut bench.f);
    bench.violations()
}

#[test]
fn copies_and_doorbells_of_eight_bytes_in_any_order_are_well() {
    for uar in PAGES {
        let (mut bench, a, b) = bench(uar);
        let mut dice = 1u32;
        let mut throw = |sides: u32| {
            dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (dice >> 16) % sides
        };
        for round in 0..2000u32 {
            let qpn = [a, b][throw(2) as usize];
            let wqe = posted(&mut bench, qpn, throw(180) as usize, round as u8);
            let buffer = BUFFERS[round as usize % 2];
            let len = if throw(3) == 0 { 8 } else { wqe.len() };
            // The card may read at any time, or after another doorbell.
            let at = (throw(wqe.len() as u32 / 8) as usize * 8).min(len);
            store(&mut bench, uar, buffer, &wqe[..at]);
            if throw(2) == 0 {
                seen(&mut bench);
            }
            store(&mut bench, uar, buffer + at as u64, &wqe[at..len]);
            match throw(4) {
                0 => assert_eq!(settled(&mut bench), [""; 0], "round {round}"),
                1 if round % 4 != 0 => {}
                _ => seen(&mut bench),
            }
            bench.sent(qpn);
        }
        assert_eq!(settled(&mut bench), [""; 0]);
        let state = |qpn| bench.f.queues.qps.get(qpn).unwrap().rc.send.work.len();
        assert_eq!([state(a), state(b)], [0, 0], "all was carried out");
    }
}

#[test]
fn two_threads_copies_mixed_in_one_buffer() {
    for uar in PAGES {
        let (mut bench, a, b) = bench(uar);
        let (first, second) = (posted(&mut bench, a, 20, 1), posted(&mut bench, b, 20, 2));
        store(&mut bench, uar, 0x800, &first[..40]);
        seen(&mut bench);
        store(&mut bench, uar, 0x800, &second);
        seen(&mut bench);
        store(&mut bench, uar, 0x828, &first[40..]);
        assert_eq!(bench.violations(), [""; 0], "it may not be whole yet");
        bench.f.nic.now += Duration::from_secs(1);
        bar::audit(&mut bench.f);
        let said = bench.f.nic.strict.take();
        assert_eq!((said.len(), said[0].rule), (1, RULE_COPY));
        assert!(said[0].detail.contains("byte 0x28 is 0x01, in the ring 0x02"), "{}", said[0].detail);
        assert_eq!(settled(&mut bench), [""; 0], "said once");
    }
}

#[test]
fn a_copy_of_which_a_block_never_came() {
    for uar in PAGES {
        let (mut bench, a, _) = bench(uar);
        for (fill, buffer, len) in [(1, 0x800, 128), (2, 0x900, 128), (3, 0x800, 64)] {
            let wqe = posted(&mut bench, a, 80, fill);
            store(&mut bench, uar, buffer, &wqe[..len]);
            let expected = if len == 64 { vec![RULE_COPY] } else { vec![] };
            assert_eq!(settled(&mut bench), expected, "copy {fill}");
        }
        assert_eq!(bench.sent(a).len(), 3, "carried out all the same, from the ring");
    }
}

#[test]
fn one_buffer_for_two_copies_running() {
    for uar in PAGES {
        let (mut bench, a, _) = bench(uar);
        for (fill, buffer, expected) in
            [(1, 0x800, None), (2, 0x900, None), (3, 0x900, Some(RULE_SAME_BUFFER)), (4, 0x800, None)]
        {
            let wqe = posted(&mut bench, a, 20, fill);
            store(&mut bench, uar, buffer, &wqe);
            assert_eq!(settled(&mut bench), expected.into_iter().collect::<Vec<_>>(), "copy {fill}");
        }
        // Doorbells of eight bytes may use one buffer always, as the kernel's queues do.
        for fill in 5..9 {
            let wqe = posted(&mut bench, a, 20, fill);
            store(&mut bench, uar, 0x800, &wqe[..8]);
            assert_eq!(settled(&mut bench), [""; 0]);
        }
    }
}

/// Linux' test of write combining does so, and a card that takes either does nothing.
#[test]
fn a_copied_nop_may_ask_for_another_completion_and_nothing_else() {
    use mlx5_prm::wqe::WqeOpcode::{Nop, RdmaWrite};
    for uar in PAGES {
        for (opcode, at, expected) in
            [(Nop, 11, None), (Nop, 12, Some(RULE_COPY)), (Nop, 8, Some(RULE_COPY)), (RdmaWrite, 11, Some(RULE_COPY))]
        {
            let (mut bench, a, _) = bench(uar);
            let segs = if opcode == Nop { vec![] } else { vec![Seg::Remote(MEMORY + (16 << 20), bench.key)] };
            let post = Post { signalled: false, immediate: 0x0102_0304, ..Post::new(opcode, segs) };
            let index = bench.put(a, &post);
            bench.record(a, 1, (index + 1).into());
            let ring = bench.qp_mut(a).send.clone().unwrap();
            let mut copy = vec![0; 64];
            ring.memory.read(&bench.f.nic.dma, 0, &mut copy).unwrap();
            copy[at] ^= 8;
            store(&mut bench, uar, 0x800, &copy);
            assert_eq!(settled(&mut bench), expected.into_iter().collect::<Vec<_>>(), "{opcode}, byte {at}");
        }
    }
}
