//! Masked atomics: of 4 to 32 bytes, of which any bits are compared, swapped or added to.

use std::sync::Arc;

use mlx5_dv::objects::{AccessFlags, MemoryRegion};
use mlx5_dv::queue::{Connection, ConnectionOptions, MaskedAdd, MaskedNumber, MaskedSwap, WaitError};
use mlx5_dv::{AtomicOrder, Error};
use mlx5_prm::cqe::CqeSyndrome;
use mlx5_sim::profile::Profile;

use crate::atomics::connected;
use crate::ends::{Card, SOON, all_rights};

/// Where the number lies, at both ends.
const AT: usize = 64;

struct Stage {
    a: Connection,
    ours: Arc<MemoryRegion>,
    theirs: Arc<MemoryRegion>,
    b: Connection,
    card: Card,
}

impl Stage {
    fn new() -> Stage {
        Stage::on(Card::new())
    }

    fn on(card: Card) -> Stage {
        let (a, b) = connected(&card);
        let region = || MemoryRegion::allocate(&card.pd, 4096, all_rights() | AccessFlags::REMOTE_ATOMIC).unwrap();
        let (ours, theirs) = (region(), region());
        Stage { a, ours, theirs, b, card }
    }

    fn end(self) {
        let Stage { a, ours, theirs, b, card } = self;
        drop((a, b, ours, theirs));
        card.end();
    }

    /// What was there, and whether its neighbours stayed.
    fn swap<N: MaskedNumber>(&mut self, swap: MaskedSwap<N>) -> N {
        let buffer = self.ours.buffer(AT..AT + N::BYTES).unwrap();
        self.a.masked_compare_swap_blocking(buffer, self.theirs.remote_at(AT), swap, SOON).unwrap().0
    }

    fn add<N: MaskedNumber>(&mut self, add: N, boundaries: N) -> N {
        let buffer = self.ours.buffer(AT..AT + N::BYTES).unwrap();
        let add = MaskedAdd { add, boundaries };
        let (found, _) = self.a.masked_fetch_add_blocking(buffer, self.theirs.remote_at(AT), add, SOON).unwrap();
        let mut bytes = vec![0; N::BYTES];
        self.ours.read(AT, &mut bytes);
        assert!(N::found(&bytes, self.card.device.caps().atomic_order()).is_some());
        assert!(N::found(&bytes[1..], AtomicOrder::Host).is_none(), "of another length");
        found
    }

    /// The remote's memory, as its CPU sees it.
    fn words(&self) -> [u64; 6] {
        let mut bytes = [0; 48];
        self.theirs.read(AT - 8, &mut bytes);
        std::array::from_fn(|i| u64::from_ne_bytes(bytes[8 * i..][..8].try_into().unwrap()))
    }
}

#[test]
fn a_number_of_each_size_is_found_and_changed() {
    each_size(Stage::new());
}

#[test]
fn so_it_is_on_a_card_whose_replies_are_big_endian() {
    let mut profile = Profile::connectx5();
    for page in [&mut profile.atomic_max, &mut profile.atomic_current] {
        page.w().supported_atomic_req_8B_endianness_mode_1(false).atomic_req_8B_endianness_mode(0);
    }
    let card = Card::of(profile);
    assert_eq!(card.device.caps().atomic_order(), AtomicOrder::BigEndian);
    each_size(Stage::on(card));
}

fn each_size(mut stage: Stage) {
    assert_eq!(stage.add(0x0102_0304u32, 0), 0);
    assert_eq!(stage.add(1u32, 0), 0x0102_0304);
    assert_eq!(stage.words(), [0, u64::from(0x0102_0305u32.to_le()), 0, 0, 0, 0], "its neighbours stay");
    assert_eq!(stage.add(0x1112_1314_0000_0000u64, 0), 0x0102_0305);
    assert_eq!(stage.add(0u64, 0), 0x1112_1314_0102_0305);
    assert_eq!(stage.add([1u64, 2], [0, 0]), [0x1112_1314_0102_0305, 0]);
    assert_eq!(stage.add([1u64, 2, 3, 4], [0; 4]), [0x1112_1314_0102_0306, 2, 0, 0]);
    assert_eq!(stage.words(), [0, 0x1112_1314_0102_0307, 4, 3, 4, 0]);
    stage.end();
}

#[test]
fn fields_of_a_number_are_added_to_at_once() {
    let mut stage = Stage::new();
    let highest = 0x8000_8000_8000_8000u64;
    stage.add(0xffff_0001_7fff_0000u64, highest);
    assert_eq!(stage.add(0x0001_0001_0001_0001u64, highest), 0xffff_0001_7fff_0000);
    assert_eq!(stage.words()[1], 0x0000_0002_8000_0001);
    stage.add(u32::MAX, 1 << 31);
    stage.add(1u32, 1 << 31);
    // With a boundary at each bit, the sum of two bits has no carry: they are flipped.
    assert_eq!(stage.add(0xff00u32, u32::MAX), 0x8000_0001);
    assert_eq!(stage.words()[1], 0x0000_0002_8000_ff01);
    stage.end();
}

#[test]
fn masks_select_what_is_compared_and_what_is_swapped() {
    let mut stage = Stage::new();
    stage.add([0x1111u64, 0x2222], [0, 0]);
    let swap = MaskedSwap {
        compare: [0x11u64, 0x22],
        compare_mask: [0xff, 0xff],
        swap: [0xabcd, 0xef00],
        swap_mask: [0xff, 0xff00],
    };
    assert_eq!(stage.swap(swap), [0x1111, 0x2222]);
    assert_eq!(stage.words(), [0, 0x11cd, 0xef22, 0, 0, 0]);
    // One number differs: none is swapped.
    assert_eq!(stage.swap(swap), [0x11cd, 0xef22]);
    assert_eq!(stage.words(), [0, 0x11cd, 0xef22, 0, 0, 0]);
    let all = MaskedSwap { compare: 0x11cdu32, compare_mask: u32::MAX, swap: 7, swap_mask: u32::MAX };
    assert_eq!(stage.swap(all), 0x11cd);
    let long = MaskedSwap { compare: [0; 4], compare_mask: [0; 4], swap: [1u64, 2, 3, 4], swap_mask: [u64::MAX; 4] };
    assert_eq!(stage.swap(long), [7, 0xef22, 0, 0]);
    let eight = MaskedSwap { compare: 1u64, compare_mask: u64::MAX, swap: 1 << 40, swap_mask: 1 << 40 };
    assert_eq!(stage.swap(eight), 1);
    assert_eq!(stage.words(), [0, 1 << 40 | 1, 2, 3, 4, 0]);
    stage.end();
}

#[test]
fn work_that_wraps_around_the_ring_is_whole() {
    let mut stage = Stage::new();
    // Three WQEBBs each, in a ring of 128.
    for i in 0..100 {
        let add = [1u64, 2, 3, 4];
        assert_eq!(stage.add(add, [0; 4]), add.map(|number| i * number));
        let swap = MaskedSwap { compare: add, compare_mask: [u64::MAX; 4], swap: [0; 4], swap_mask: [0; 4] };
        stage.swap(swap);
    }
    assert_eq!(stage.words(), [0, 100, 200, 300, 400, 0]);
    stage.end();
}

#[test]
fn a_misaligned_number_is_refused_by_the_remote() {
    let mut stage = Stage::new();
    let buffer = stage.ours.buffer(0..16).unwrap();
    let add = MaskedAdd { add: [1u64, 1], boundaries: [0, 0] };
    let failed = stage.a.masked_fetch_add_blocking(buffer, stage.theirs.remote_at(8), add, SOON).unwrap_err();
    let WaitError::Failed { error, .. } = &failed else { panic!("{failed}") };
    assert_eq!(error.syndrome(), Some(CqeSyndrome::RemoteInvalidRequest));
    assert!(error.to_string().contains("ATOMIC_MASKED_FA") && error.to_string().contains("a masked one's bytes"));
    drop(failed);
    stage.end();
}

#[test]
fn what_a_card_or_a_buffer_lacks_is_named() {
    let mut stage = Stage::new();
    let short = stage.ours.buffer(0..8).unwrap();
    let refused =
        stage.a.masked_fetch_add(short, stage.theirs.remote(), MaskedAdd { add: 1u32, boundaries: 0 }).unwrap_err();
    let text = refused.to_string();
    assert!(text.contains("a masked atomic of 4 bytes needs an element of as many, got 8"), "{text}");
    drop(refused);
    assert!(stage.card.device.caps().check_masked_atomics(32).is_ok());
    let error = stage.card.device.caps().check_masked_atomics(64).unwrap_err();
    assert!(matches!(error, Error::Unsupported { capability: "atomic_size_qp", .. }), "{error}");
    stage.end();
    let mut profile = Profile::connectx5();
    for page in [&mut profile.atomic_max, &mut profile.atomic_current] {
        page.w().atomic_operations(0b11);
    }
    let card = Card::of(profile);
    let error = card.device.caps().check_masked_atomics(8).unwrap_err();
    assert!(matches!(error, Error::Unsupported { capability: "atomic_operations", .. }), "{error}");
    let mut a = Connection::new(&card.pd, ConnectionOptions::default()).unwrap();
    a.connect(&a.local().unwrap()).unwrap();
    let ours = card.region(4096);
    let add = MaskedAdd { add: 1u64, boundaries: 0 };
    let refused = a.masked_fetch_add(ours.buffer(0..8).unwrap(), ours.remote(), add).unwrap_err();
    assert!(refused.to_string().contains("Caps::check_masked_atomics"), "{refused}");
    drop((refused, a, ours));
    card.end();
}
