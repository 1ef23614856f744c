use std::os::unix::fs::FileExt;
use std::time::Duration;

use super::*;
use crate::fault::Faults;
use crate::objects::{Eq, Uar};
use crate::profile::Profile;
use crate::strict::Strict;

/// A function with UARs `FIRST_UAR` (trapped) and the next two (shared).
fn function() -> Function {
    let mut f = Function::new(0, Profile::connectx5(), Strict::on(), Faults::new());
    f.share_bar(1).unwrap();
    f.bar.log_doorbells();
    for _ in 0..3 {
        f.nic.objects.uars.insert(Uar { users: 0 }).unwrap();
    }
    f
}

fn page(uar: u32) -> u64 {
    u64::from(uar) << LOG_PAGE
}

fn store(f: &Function, offset: u64, bytes: &[u8]) {
    f.bar.uar_memory().unwrap().file.unwrap().write_all_at(bytes, offset).unwrap();
}

fn rung(uar: u32, register: u64, value: u64) -> Vec<Rung> {
    vec![Rung { uar, register, value }]
}

fn rules(f: &Function) -> Vec<&'static str> {
    f.nic
        .strict
        .take()
        .into_iter()
        .map(|violation| violation.rule)
        .filter(|rule| rule.contains("doorbell of") || rule.contains("UAR page") || rule.contains("register access"))
        .collect()
}

#[test]
fn areas_hold_doorbells_and_memory_only() {
    let f = function();
    let memory = f.bar.uar_memory().unwrap();
    let first = page(FIRST_UAR + 1);
    let end = f.nic.objects.device_memory.range().end;
    assert_eq!(memory.areas, [UarArea { offset: first, len: end - first }]);
    let file = memory.file.unwrap();
    assert_eq!(file.metadata().unwrap().len(), f.bar.size());
    file.set_len(0).unwrap_err();
    assert!(first > MSIX_PBA && first.is_multiple_of(PAGE));
}

/// A doorbell is found as soon as it is stored. So must be what was stored to memory on the card before it: UCX sends
/// from there.
#[test]
fn what_is_stored_to_memory_on_the_card_is_there_at_once() {
    let mut f = function();
    let start = f.nic.objects.device_memory.range().start;
    assert!(f.nic.objects.device_memory.take(start, 4096));
    let (bytes, at) = f.nic.objects.device_memory.at(start + 1, 100).unwrap();
    let (bytes, mut found) = (bytes.clone(), [0; 100]);
    let stored: Vec<u8> = (1..=100).collect();
    store(&f, start + 1, &stored);
    assert!(bytes.read(at, &mut found));
    assert_eq!(found[..], stored);
    // Messages reach the same bytes; so do the card's own writes.
    write(&mut f, start + 3, &[0xaa; 5]);
    assert!(bytes.write(at + 20, &[0xbb; 9]));
    f.bar.uar_memory().unwrap().file.unwrap().read_exact_at(&mut found, start + 1).unwrap();
    assert_eq!((&found[2..7], &found[20..29]), (&[0xaa; 5][..], &[0xbb; 9][..]));
    assert_eq!((found[1], found[7], found[19], found[29]), (2, 8, 20, 30));
    // It is no doorbell, and not a misplaced one either.
    assert!(!poll(&mut f));
    f.nic.now += Duration::from_secs(1);
    audit(&mut f);
    assert_eq!(rules(&f), [""; 0]);
    // Who gets the memory next, and who connects next, finds zeros.
    assert!(f.nic.objects.device_memory.give_back(start, 4096) && f.nic.objects.device_memory.take(start, 4096));
    read(&mut f, start + 1, &mut found);
    assert_eq!(found, [0; 100]);
    write(&mut f, start + 1, &[1; 8]);
    f.renew_bar().unwrap();
    read(&mut f, start + 1, &mut found);
    assert_eq!(found, [0; 100]);
}

#[test]
fn everything_can_be_trapped() {
    let mut f = Function::new(0, Profile::connectx5(), Strict::on(), Faults::new());
    f.share_bar(u32::MAX).unwrap();
    let memory = f.bar.uar_memory().unwrap();
    assert!(memory.file.is_none() && memory.areas.is_empty());
    assert!(!poll(&mut f));
}

#[test]
fn a_store_is_a_doorbell_once() {
    let mut f = function();
    let uar = FIRST_UAR + 1;
    assert!(!poll(&mut f));
    for register in [CQ_DOORBELL, 0x800, 0x900, 0xa00, 0xb00, 0xf00] {
        store(&f, page(uar) + register, &0x0000_010a_0000_4203u64.to_be_bytes());
        assert!(poll(&mut f));
        assert_eq!(f.bar.take_rung(), rung(uar, register, 0x0000_010a_0000_4203));
        assert!(!poll(&mut f), "taken");
        let mut left = [0xff; 8];
        f.bar.uar_memory().unwrap().file.unwrap().read_exact_at(&mut left, page(uar) + register).unwrap();
        assert_eq!(left, [0; 8]);
    }
}

/// ALLOC_UAR costs a driver no page: polling all would let one function slow down the whole card.
#[test]
fn uars_that_no_queue_uses_are_polled_a_few_a_turn() {
    const UNUSED: u32 = 100;
    let mut f = function();
    let value = 0x0000_010a_0000_4203;
    for _ in 0..UNUSED {
        f.nic.objects.uars.insert(Uar { users: 0 }).unwrap();
    }
    let used = FIRST_UAR + UNUSED;
    f.nic.objects.used_uars.insert(used);
    for uar in FIRST_UAR + 1..=used {
        store(&f, page(uar) + CQ_DOORBELL, &u64::to_be_bytes(value));
    }
    assert!(poll(&mut f));
    let taken = f.bar.take_rung();
    assert_eq!(taken[0], Rung { uar: used, register: CQ_DOORBELL, value });
    assert!((2..20).contains(&taken.len()), "{taken:?}");
    let mut left = UNUSED as usize - taken.len();
    for _ in 0..UNUSED {
        poll(&mut f);
        left -= f.bar.take_rung().len();
    }
    assert_eq!(left, 0, "each is polled sooner or later");
}

#[test]
fn eq_doorbells_of_a_shared_page_are_seen_too() {
    let mut f = function();
    let uar = FIRST_UAR + 2;
    store(&f, page(uar) + EQ_ARM, &0x0300_0010u32.to_be_bytes());
    assert!(poll(&mut f));
    assert_eq!(f.bar.take_rung(), rung(uar, EQ_ARM, 0x0300_0010));
}

#[test]
fn both_eq_doorbells_of_a_page_are_taken_in_their_order() {
    let mut f = function();
    let uar = FIRST_UAR + 2;
    let (low, high) = (0x0300_0003u32, 0x0300_0005u32);
    for (update, arm, first) in [(low, high, EQ_UPDATE), (high, low, EQ_ARM), (low, low, EQ_UPDATE)] {
        store(&f, page(uar) + EQ_UPDATE, &update.to_be_bytes());
        store(&f, page(uar) + EQ_ARM, &arm.to_be_bytes());
        assert!(poll(&mut f));
        let rung = f.bar.take_rung();
        assert_eq!((rung.len(), rung[0].register), (2, first), "{update:#x} {arm:#x}");
    }
}

#[test]
fn eqs_that_overwrite_each_others_doorbells_lose_no_event() {
    let mut f = function();
    let uar = FIRST_UAR + 2;
    let eq = |consumer| Eq { uar, vector: 0, consumer, ..Eq::default() };
    let [a, b, polled, elsewhere] = [0, 0, 0, 0].map(|consumer| f.nic.objects.eqs.insert(eq(consumer)).unwrap());
    f.nic.objects.eqs.get_mut(elsewhere).unwrap().uar = FIRST_UAR + 1;
    let armed = |f: &Function| [a, b, polled, elsewhere].map(|eqn| f.nic.objects.eqs.get(eqn).unwrap().armed);
    let arm = |f: &Function, eqn: u32| store(f, page(uar) + EQ_ARM, &(eqn << 24).to_be_bytes());
    for eqn in [a, b] {
        arm(&f, eqn);
        poll(&mut f);
    }
    assert_eq!(armed(&f), [true, true, false, false]);
    // Both send events, and both are armed again before the card checks.
    f.nic.objects.eqs.iter_mut().for_each(|(_, eq)| eq.armed = false);
    arm(&f, a);
    arm(&f, b);
    poll(&mut f);
    assert_eq!(armed(&f), [true, true, false, false], "none that software never armed");
    assert_eq!(rules(&f), [""; 0]);
}

#[test]
fn doorbells_reach_the_card_before_a_command_rung_after_them() {
    let mut f = function();
    let (uar, value) = (FIRST_UAR + 1, 0x0000_010a_0000_4203);
    store(&f, page(uar) + 0x800, &u64::to_be_bytes(value));
    write(&mut f, 0x18, &[0, 0, 0, 1]);
    assert_eq!(f.bar.take_rung(), rung(uar, 0x800, value));
}

#[test]
fn a_page_given_back_is_forgotten() {
    let mut f = function();
    let uar = FIRST_UAR + 1;
    store(&f, page(uar) + 0x800, &0x0000_010a_0000_4203u64.to_be_bytes());
    f.bar.release(uar);
    f.bar.release(FIRST_UAR);
    assert!(!poll(&mut f));
}

#[test]
fn a_blueflame_copy_is_one_doorbell() {
    let mut f = function();
    let wqe: [u8; 64] = std::array::from_fn(|i| i as u8 + 1);
    let value = u64::from_be_bytes([1, 2, 3, 4, 5, 6, 7, 8]);
    store(&f, page(FIRST_UAR + 1) + 0x900, &wqe);
    assert!(poll(&mut f));
    assert_eq!(f.bar.take_rung(), rung(FIRST_UAR + 1, 0x900, value));
    for (at, bytes) in (0x800..).step_by(8).zip(wqe.chunks(8)) {
        write(&mut f, page(FIRST_UAR) + at, bytes);
    }
    assert_eq!(f.bar.take_rung(), rung(FIRST_UAR, 0x800, value));
    write(&mut f, page(FIRST_UAR) + 0x800, &wqe);
    assert_eq!(f.bar.take_rung(), rung(FIRST_UAR, 0x800, value));
    assert_eq!(rules(&f), [""; 0]);
}

#[test]
fn messages_ring_in_any_page() {
    let mut f = function();
    for uar in [FIRST_UAR, FIRST_UAR + 1] {
        write(&mut f, page(uar) + CQ_DOORBELL, &0x1234_5678_0000_0007u64.to_be_bytes());
        write(&mut f, page(uar) + EQ_UPDATE, &0x0100_0001u32.to_be_bytes());
        let expected = [rung(uar, CQ_DOORBELL, 0x1234_5678_0000_0007), rung(uar, EQ_UPDATE, 0x0100_0001)].concat();
        assert_eq!(f.bar.take_rung(), expected);
    }
}

#[test]
fn two_dwords_make_a_doorbell_one_does_not() {
    let mut f = function();
    let at = page(FIRST_UAR) + 0x800;
    write(&mut f, at, &[0, 0, 1, 0x0a]);
    write(&mut f, at + 4, &[0, 0, 0x42, 3]);
    assert_eq!(f.bar.take_rung(), rung(FIRST_UAR, 0x800, 0x0000_010a_0000_4203));
    assert_eq!(rules(&f), [""; 0]);
    write(&mut f, at, &[0, 0, 1, 0x0a]);
    write(&mut f, at, &[0, 0, 2, 0x0a]);
    write(&mut f, page(FIRST_UAR) + CQ_DOORBELL + 4, &[0, 0, 0, 1]);
    assert_eq!(rules(&f), [RULE_HALF; 3]);
    assert_eq!(f.bar.take_rung(), []);
}

#[test]
fn strict_finds_doorbells_where_none_belong() {
    let mut f = function();
    write(&mut f, page(FIRST_UAR + 3) + 0x800, &[1; 8]);
    assert_eq!(rules(&f), [RULE_NOT_ALLOCATED]);
    store(&f, page(FIRST_UAR + 4000) + 0x800, &[1; 8]);
    store(&f, page(FIRST_UAR + 1) + 0x800, &[0, 0, 1, 0x0a]);
    poll(&mut f);
    audit(&mut f);
    assert_eq!(rules(&f), [RULE_NOT_ALLOCATED], "half a doorbell may still become a whole one");
    f.nic.now += Duration::from_secs(1);
    audit(&mut f);
    assert_eq!(rules(&f), [RULE_HALF]);
    f.nic.now += Duration::from_secs(1);
    audit(&mut f);
    assert_eq!((rules(&f), f.bar.take_rung()), (vec![], vec![]), "reported once");
}

#[test]
fn reads_and_writes_stay_inside() {
    let mut f = function();
    let size = f.bar.size();
    let mut bytes = [0; 16];
    read(&mut f, size - 8, &mut bytes);
    assert_eq!(bytes, [0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    read(&mut f, u64::MAX, &mut bytes);
    assert_eq!(bytes, [0xff; 16]);
    write(&mut f, size - 4, &[0; 8]);
    write(&mut f, u64::MAX, &[0; 8]);
    write(&mut f, 0x11, &[0; 4]);
    write(&mut f, page(FIRST_UAR) + 0x801, &[1]);
    assert_eq!(rules(&f), [RULE_ACCESS; 4]);
    for offset in (0..page(FIRST_UAR)).step_by(512) {
        read(&mut f, offset, &mut [0; 8192]);
    }
}

#[test]
fn msix_table_and_pending_bits_are_in_the_bar() {
    let mut f = function();
    let mut control = [0; 4];
    read(&mut f, MSIX_TABLE + 12, &mut control);
    assert_eq!(control, [1, 0, 0, 0], "masked");
    write(&mut f, MSIX_TABLE + 16 + 8, &[0x21, 0x40, 0, 0]);
    let mut data = [0; 4];
    read(&mut f, MSIX_TABLE + 16 + 8, &mut data);
    assert_eq!(data, [0x21, 0x40, 0, 0]);
    f.nic.pci.interrupt(10);
    let mut pending = [0; 8];
    read(&mut f, MSIX_PBA, &mut pending);
    assert_eq!(u64::from_le_bytes(pending), 1 << 10);
}

#[test]
fn reset_forgets_doorbells() {
    let mut f = function();
    store(&f, page(FIRST_UAR + 1) + 0x800, &[1; 8]);
    f.bar.reset();
    assert!(!poll(&mut f));
}
