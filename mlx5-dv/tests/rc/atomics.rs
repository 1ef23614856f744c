//! Compare and swap, fetch and add.

use std::collections::BTreeSet;
use std::sync::Arc;

use mlx5_dv::objects::{AccessFlags, Buffer, InitAttributes, MemoryRegion};
use mlx5_dv::queue::{Connection, ConnectionOptions, Done, Operation, PostError, RemoteAddress, WorkError, WrFlags};
use mlx5_dv::{AtomicOrder, Error};
use mlx5_prm::caps::AtomicCaps;
use mlx5_prm::cqe::CqeSyndrome;
use mlx5_prm::wqe::WqeOpcode;
use mlx5_sim::profile::Profile;

use crate::ends::{Card, End, SOON, Setup, all_rights, pair, pair_of};

const SIGNALLED: WrFlags = WrFlags::SIGNALLED;

fn with_atomics() -> Setup {
    let remote_access = Setup::default().remote_access | AccessFlags::REMOTE_ATOMIC;
    Setup { remote_access, ..Setup::default() }
}

fn region(card: &Card) -> Arc<MemoryRegion> {
    MemoryRegion::allocate(&card.pd, 4096, all_rights() | AccessFlags::REMOTE_ATOMIC).unwrap()
}

/// The number at `offset`, in host byte order.
fn number(region: &MemoryRegion, offset: usize) -> u64 {
    let mut bytes = [0; 8];
    region.read(offset, &mut bytes);
    u64::from_ne_bytes(bytes)
}

impl End {
    /// Compares and swaps; the old value is written to the start of `into`.
    fn compare_swap(&mut self, remote: RemoteAddress, compare: u64, swap: u64, into: &MemoryRegion) -> u64 {
        let mut batch = self.sq.batch();
        // SAFETY: the tests keep their regions until their queue pairs are gone, and read them after completions only.
        unsafe { batch.compare_swap(5, SIGNALLED, remote, compare, swap, into.segment(0..8)).unwrap() };
        batch.ring();
        let (wr_id, completion) = self.good();
        assert_eq!((wr_id, completion.operation), (5, Operation::Sent(WqeOpcode::AtomicCs)));
        number(into, 0)
    }

    /// Adds; the old value is written to the start of `into`.
    fn fetch_add(&mut self, remote: RemoteAddress, add: u64, into: &MemoryRegion) -> u64 {
        self.post_fetch_add(remote, add, into, 0);
        let (wr_id, completion) = self.good();
        assert_eq!((wr_id, completion.operation), (0, Operation::Sent(WqeOpcode::AtomicFa)));
        number(into, 0)
    }

    /// Adds; the old value is written to `offset` of `into`, which is also the `wr_id`.
    fn post_fetch_add(&mut self, remote: RemoteAddress, add: u64, into: &MemoryRegion, offset: usize) {
        let mut batch = self.sq.batch();
        let segment = into.segment(offset..offset + 8);
        // SAFETY: as for `compare_swap`.
        unsafe { batch.fetch_add(offset as u64, SIGNALLED, remote, add, segment).unwrap() };
        batch.ring();
    }

    /// Adds 1, which must fail.
    fn failing_add(&mut self, remote: RemoteAddress, into: &MemoryRegion) -> WorkError {
        self.post_fetch_add(remote, 1, into, 0);
        self.bad().1
    }
}

#[test]
fn numbers_are_the_host_s_and_what_they_were_comes_back() {
    let card = Card::new();
    let (mut a, b) = pair_of(&card, &with_atomics());
    let (ours, theirs) = (region(&card), region(&card));
    let remote = theirs.remote_at(64);
    // All bytes differ: a wrong byte order in either direction would show.
    theirs.write(64, &0x0102_0304_0506_07f8_u64.to_ne_bytes());
    assert_eq!(a.fetch_add(remote, 0x10, &ours), 0x0102_0304_0506_07f8);
    assert_eq!(number(&theirs, 64), 0x0102_0304_0506_0808, "a carry goes to the next byte up");
    assert_eq!(a.compare_swap(remote, 0x0102_0304_0506_0808, 0xa1a2_a3a4_a5a6_a7a8, &ours), 0x0102_0304_0506_0808);
    assert_eq!(number(&theirs, 64), 0xa1a2_a3a4_a5a6_a7a8);
    assert_eq!(a.compare_swap(remote, 7, 8, &ours), 0xa1a2_a3a4_a5a6_a7a8, "what was not there is not swapped");
    assert_eq!(number(&theirs, 64), 0xa1a2_a3a4_a5a6_a7a8);
    assert_eq!(a.fetch_add(remote, 0u64.wrapping_sub(0xa1a2_a3a4_a5a6_a7a9), &ours), 0xa1a2_a3a4_a5a6_a7a8);
    assert_eq!(number(&theirs, 64), u64::MAX, "it wraps");
    assert_eq!((number(&theirs, 56), number(&theirs, 72)), (0, 0), "its neighbours stay");
    drop((a, b, ours, theirs));
    card.end();
}

#[test]
fn what_two_queue_pairs_add_at_once_sums_up() {
    const EACH: usize = 200;
    let card = Card::new();
    let (ours, theirs) = (region(&card), region(&card));
    let mut pairs = [pair_of(&card, &with_atomics()), pair_of(&card, &with_atomics())];
    let mut fetched = BTreeSet::new();
    for _ in 0..EACH {
        for (i, (a, _)) in pairs.iter_mut().enumerate() {
            a.post_fetch_add(theirs.remote(), 3, &ours, 8 * i);
        }
        for (a, _) in &mut pairs {
            let (offset, _) = a.good();
            assert!(fetched.insert(number(&ours, offset as usize)), "two were told the same");
        }
    }
    assert_eq!(number(&theirs, 0), 3 * 2 * EACH as u64);
    assert_eq!(fetched, (0..2 * EACH as u64).map(|i| 3 * i).collect());
    drop((pairs, ours, theirs));
    card.end();
}

#[test]
fn a_misaligned_number_is_a_remote_invalid_request_that_says_so() {
    let card = Card::new();
    let (mut a, b) = pair_of(&card, &with_atomics());
    let (ours, theirs) = (region(&card), region(&card));
    let error = a.failing_add(theirs.remote_at(4), &ours);
    assert_eq!(error.syndrome(), Some(CqeSyndrome::RemoteInvalidRequest), "{error}");
    let text = error.to_string();
    assert!(text.starts_with("ATOMIC_FA at WQE index 0") && text.contains("no multiple of 8"), "{text}");
    assert_eq!(number(&theirs, 0), 0);
    drop((a, b, ours, theirs));
    card.end();
}

#[test]
fn keys_and_queue_pairs_must_allow_it() {
    let card = Card::new();
    let (ours, theirs, no_atomics) = (region(&card), region(&card), card.region(4096));
    let (mut a, b) = pair_of(&card, &with_atomics());
    let error = a.failing_add(no_atomics.remote(), &ours);
    assert_eq!(error.syndrome(), Some(CqeSyndrome::RemoteAccess), "{error}");
    drop((a, b));
    let (mut a, b) = pair(&card);
    let error = a.failing_add(theirs.remote(), &ours);
    assert_eq!(error.syndrome(), Some(CqeSyndrome::RemoteInvalidRequest), "{error}");
    assert_eq!((number(&theirs, 0), number(&no_atomics, 0)), (0, 0));
    drop((a, b, ours, theirs, no_atomics));
    card.end_after(&["key does not allow the access"]);
}

/// A card that lacks some atomics, and the capability in the error.
fn lacking(change: impl Fn(&mut Profile)) -> Card {
    let mut profile = Profile::connectx5();
    change(&mut profile);
    Card::of(profile)
}

fn change_page(profile: &mut Profile, change: impl Fn(&mut AtomicCaps)) {
    change(&mut profile.atomic_max);
    change(&mut profile.atomic_current);
}

#[test]
fn a_card_without_them_says_what_it_lacks() {
    let cards = [
        (
            "atomic",
            lacking(|profile| {
                profile.general_max.w().atomic(false);
                profile.general_current.w().atomic(false);
            }),
        ),
        ("atomic_size_qp", lacking(|profile| change_page(profile, |page| _ = page.w().atomic_size_qp(1 << 2)))),
        ("atomic_operations", lacking(|profile| change_page(profile, |page| _ = page.w().atomic_operations(1)))),
    ];
    for (lacks, card) in cards {
        let is_named = |error: Error| {
            assert!(
                matches!(&error, Error::Unsupported { capability, .. } if *capability == lacks),
                "{lacks}: {error}"
            );
        };
        is_named(MemoryRegion::allocate(&card.pd, 4096, all_rights() | AccessFlags::REMOTE_ATOMIC).unwrap_err());
        let (mut a, b) = pair(&card);
        a.qp.to_error().unwrap();
        let ours = card.region(4096);
        let mut batch = a.sq.batch();
        // SAFETY: nothing is posted.
        let posted = unsafe { batch.fetch_add(1, SIGNALLED, ours.remote(), 1, ours.segment(0..8)) };
        assert_eq!(posted, Err(PostError::NoAtomics));
        drop(batch);
        let qp = Arc::clone(&a.qp);
        drop((a, b));
        qp.reset().unwrap();
        let remote_access = AccessFlags::REMOTE_ATOMIC;
        is_named(qp.init(&InitAttributes { remote_access, ..InitAttributes::default() }).unwrap_err());
        drop((qp, ours));
        card.end();
    }
}

/// A card of which no driver can choose the order of replies.
fn big_endian() -> Card {
    lacking(|profile| {
        change_page(profile, |page| {
            page.w().supported_atomic_req_8B_endianness_mode_1(false).atomic_req_8B_endianness_mode(0);
        })
    })
}

#[test]
fn a_card_without_the_host_s_order_tells_big_endian_what_numbers_were() {
    let card = big_endian();
    assert_eq!(card.device.caps().atomic_order(), AtomicOrder::BigEndian);
    let (mut a, b) = pair_of(&card, &with_atomics());
    let (ours, theirs) = (region(&card), region(&card));
    let remote = theirs.remote_at(64);
    theirs.write(64, &0x0102_0304_0506_07f8_u64.to_ne_bytes());
    a.fetch_add(remote, 0x10, &ours);
    assert_eq!(number(&ours, 0), 0x0102_0304_0506_07f8_u64.to_be());
    assert_eq!(ours.found::<u64>(0), 0x0102_0304_0506_07f8);
    assert_eq!(number(&theirs, 64), 0x0102_0304_0506_0808, "what is in memory is in the order of its host");
    a.compare_swap(remote, 0x0102_0304_0506_0808, 7, &ours);
    assert_eq!((ours.found(0), number(&theirs, 64)), (0x0102_0304_0506_0808_u64, 7));
    drop((a, b, ours, theirs));
    card.end();
    assert_eq!(Card::new().device.caps().atomic_order(), AtomicOrder::Host);
}

/// Two connections that allow each other atomics.
pub fn connected(card: &Card) -> (Connection, Connection) {
    let mut options = ConnectionOptions::default();
    options.remote_access |= AccessFlags::REMOTE_ATOMIC;
    let mut a = Connection::new(&card.pd, options.clone()).unwrap();
    let mut b = Connection::new(&card.pd, options).unwrap();
    a.connect(&b.local().unwrap()).unwrap();
    b.connect(&a.local().unwrap()).unwrap();
    (a, b)
}

#[test]
fn what_owners_of_buffers_say_was_found_is_right_in_either_order() {
    for card in [Card::new(), big_endian()] {
        let (mut a, b) = connected(&card);
        let (ours, theirs) = (region(&card), region(&card));
        let (remote, first) = (theirs.remote_at(64), 0x0102_0304_0506_07f8_u64);
        theirs.write(64, &first.to_ne_bytes());
        let (found, buffer) = a.fetch_add_blocking(ours.buffer(8..16).unwrap(), remote, 1, SOON).unwrap();
        assert_eq!((found, buffer.found()), (first, first));
        let (found, buffer) = a.compare_swap_blocking(buffer, remote, first + 1, first + 2, SOON).unwrap();
        assert_eq!(found, first + 1);
        // By completions, one of which tells of a quiet one, too.
        let mut batch = a.batch();
        batch.quiet();
        let quiet = batch.fetch_add(buffer, remote, 1).unwrap();
        batch.signalled();
        let swap = batch.compare_swap(ours.buffer(16..24).unwrap(), remote, first + 3, first + 4).unwrap();
        let write = batch.write(ours.buffer(24..40).unwrap(), theirs.remote()).unwrap();
        batch.ring();
        let done: Vec<_> = (0..3).map(|_| a.wait(SOON).unwrap()).collect();
        let found = done.iter().map(|done| (done.ticket, done.found()));
        assert!(found.eq([(quiet, Some(first + 2)), (swap, Some(first + 3)), (write, None)]));
        assert_eq!(done[0].found::<u32>(), None, "it has eight bytes");
        drop((a, b, buffers(done), ours, theirs));
        card.end();
    }
}

fn buffers(done: Vec<Done>) -> Vec<Buffer> {
    done.into_iter().filter_map(|done| done.buffer).collect()
}

#[test]
fn a_connection_lends_the_buffer_for_what_was_there() {
    let card = Card::new();
    let (mut a, b) = connected(&card);
    let (ours, theirs) = (region(&card), region(&card));
    let (_, buffer) = a.fetch_add_blocking(ours.buffer(8..16).unwrap(), theirs.remote(), 9, SOON).unwrap();
    let (_, buffer) = a.compare_swap_blocking(buffer, theirs.remote(), 9, 1 << 40, SOON).unwrap();
    assert_eq!((number(&ours, 8), number(&theirs, 0)), (9, 1 << 40));
    let refused = a.fetch_add(ours.buffer(16..20).unwrap(), theirs.remote(), 1).unwrap_err();
    assert!(refused.to_string().contains("an atomic needs an 8-byte element, got 4 bytes"), "{refused}");
    drop((a, b, buffer, refused, ours, theirs));
    card.end();
}
