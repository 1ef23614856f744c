//! Memory on the card.

use std::sync::Arc;

use mlx5_dv::Error;
use mlx5_dv::objects::{AccessFlags, DestroyReason, DeviceMemory, DeviceMemoryRegion};
use mlx5_dv::queue::WrFlags;
use mlx5_sim::profile::Profile;

use crate::ends::{Card, SOON, Setup, all_rights, bytes, connected, is_refused, pair_of, pattern, write};

/// The `len` bytes of `memory` at `offset`.
fn loaded(memory: &DeviceMemory, offset: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    memory.read(offset, &mut bytes).unwrap();
    bytes
}

fn region(card: &Card, memory: &Arc<DeviceMemory>, range: std::ops::Range<usize>) -> Arc<DeviceMemoryRegion> {
    let rights = all_rights() | AccessFlags::REMOTE_ATOMIC;
    DeviceMemoryRegion::register(&card.pd, memory, range, rights).unwrap()
}

#[test]
fn what_is_stored_is_read_by_remotes_and_what_they_write_is_loaded() {
    let card = Card::new();
    let (mut a, b) = connected(&card);
    let near = card.region(4096);
    let (memory, other) =
        (DeviceMemory::alloc(&card.device, 5000).unwrap(), DeviceMemory::alloc(&card.device, 64).unwrap());
    assert_eq!((memory.len(), other.len()), (5056, 64));
    assert_eq!(loaded(&memory, 0, 5056), vec![0; 5056]);
    other.write(0, &[0x5a; 64]).unwrap();
    let far = region(&card, &memory, 1000..4000);
    memory.write(1000, &pattern(2000, 1)).unwrap();
    let buffer = a.read_blocking(near.buffer(0..500).unwrap(), far.remote_at(300), SOON).unwrap().unwrap();
    assert_eq!(bytes(&near, 0, 500), pattern(2000, 1)[300..800]);
    drop(buffer);
    write(&mut a, &near, &pattern(900, 7), far.remote_at(2100));
    assert_eq!(loaded(&memory, 3100, 900), pattern(900, 7));
    assert_eq!(loaded(&memory, 4000, 1056), vec![0; 1056], "nothing beyond the region");
    assert_eq!(loaded(&other, 0, 64), [0x5a; 64]);
    is_refused(&mut a, &near, far.remote_at(3000));
    drop((a, b, near, far, memory, other));
    card.end_after(&["key does not allow the access"]);
}

#[test]
fn work_requests_gather_from_it_and_scatter_to_it() {
    let card = Card::new();
    let atomics = AccessFlags::REMOTE_ATOMIC.union(all_rights());
    let (mut a, b) = pair_of(&card, &Setup { remote_access: atomics, ..Setup::default() });
    let memory = DeviceMemory::alloc(&card.device, 4096).unwrap();
    let (near, far) = (region(&card, &memory, 0..4096), card.region(4096));
    memory.write(0, &pattern(1000, 3)).unwrap();
    let mut batch = a.sq.batch();
    // SAFETY: the tests keep their regions until their queue pairs are gone, and read them after completions only.
    unsafe {
        batch.write(1, WrFlags::SIGNALLED, far.remote(), &[near.segment(0..1000)]).unwrap();
        batch.read(2, WrFlags::SIGNALLED, far.remote_at(100), &[near.segment(2000..2100)]).unwrap();
        // A counter there, for all remotes.
        for id in [3, 4] {
            batch.fetch_add(id, WrFlags::SIGNALLED, near.remote_at(3000), 5, far.segment(2000..2008)).unwrap();
        }
    }
    batch.ring();
    assert_eq!([a.good().0, a.good().0, a.good().0, a.good().0], [1, 2, 3, 4]);
    assert_eq!(
        (loaded(&memory, 3000, 8), bytes(&far, 2000, 8)),
        (10u64.to_ne_bytes().to_vec(), 5u64.to_ne_bytes().to_vec())
    );
    assert_eq!(bytes(&far, 0, 1000), pattern(1000, 3));
    assert_eq!(loaded(&memory, 2000, 100), pattern(1000, 3)[100..200]);
    drop((a, b, near, far, memory));
    card.end();
}

#[test]
fn memory_is_freed_after_its_regions_and_given_out_again() {
    let card = Card::new();
    let memory = DeviceMemory::alloc(&card.device, 128 << 10).unwrap();
    let full = DeviceMemory::alloc(&card.device, 64).unwrap_err();
    assert!(full.to_string().contains("the card's memory"), "{full}");
    memory.write(4096, &[1; 4]).unwrap();
    let far = region(&card, &memory, 4096..8192);
    let kept = DeviceMemory::destroy(memory).unwrap_err();
    assert!(matches!(kept.reason, DestroyReason::InUse(1)), "{kept}");
    DeviceMemoryRegion::destroy(far).unwrap();
    DeviceMemory::destroy(kept.object).unwrap();
    let parts: Vec<_> = (0..32).map(|_| DeviceMemory::alloc(&card.device, 4096).unwrap()).collect();
    assert!(parts.iter().all(|part| loaded(part, 0, 4096) == [0; 4096]));
    DeviceMemory::alloc(&card.device, 4096).unwrap_err();
    drop(parts);
    card.end();
}

#[test]
fn what_cannot_be_had_says_why() {
    let card = Card::new();
    for len in [0, (128 << 10) + 1, usize::MAX] {
        let refused = DeviceMemory::alloc(&card.device, len).unwrap_err();
        assert!(refused.to_string().contains("max_memic_size"), "{refused}");
    }
    let memory = DeviceMemory::alloc(&card.device, 64).unwrap();
    for (offset, len) in [(0, 68), (64, 4), (usize::MAX & !3, 4), (2, 4), (0, 3)] {
        let bytes = vec![0; len];
        assert!(matches!(memory.write(offset, &bytes), Err(Error::Invalid(_))), "{offset} {len}");
    }
    let other = Card::new();
    for (pd, range, access) in [
        (&card.pd, 0..65, all_rights()),
        (&card.pd, 8..8, all_rights()),
        (&card.pd, 0..8, AccessFlags::REMOTE_WRITE),
        (&other.pd, 0..8, all_rights()),
    ] {
        let refused = DeviceMemoryRegion::register(pd, &memory, range, access).unwrap_err();
        assert!(matches!(refused, Error::Invalid(_)), "{refused}");
    }
    drop(memory);
    card.end();
    other.end();
    let mut profile = Profile::connectx5();
    profile.device_memory.w().memic(false);
    let card = Card::of(profile);
    let refused = DeviceMemory::alloc(&card.device, 64).unwrap_err();
    assert!(matches!(refused, Error::Unsupported { capability: "memic", .. }), "{refused}");
    card.end();
}

#[test]
fn addresses_add_to_numbers_and_set_them() {
    let card = Card::new();
    let (mut a, b) = connected(&card);
    let near = card.region(64);
    let memory = DeviceMemory::alloc(&card.device, 256).unwrap();
    let other = DeviceMemory::alloc(&card.device, 64).unwrap();
    let far = region(&card, &memory, 0..256);
    let (count, again) = (memory.map_increment().unwrap(), memory.map_increment().unwrap());
    let lock = memory.map_test_and_set().unwrap();
    memory.write(8, &[0xff, 0xff, 0xff, 0xfe, 7, 7, 7, 7]).unwrap();
    for _ in 0..3 {
        count.add(8, 1).unwrap();
    }
    again.add(252, 0x1_0001).unwrap();
    assert_eq!(loaded(&memory, 8, 8), [0, 0, 0, 1, 7, 7, 7, 7], "modulo 2^32, and nothing beside it");
    // A remote finds it, and what it writes is counted on.
    let buffer = a.read_blocking(near.buffer(0..4).unwrap(), far.remote_at(252), SOON).unwrap().unwrap();
    assert_eq!(bytes(&near, 0, 4), [0, 1, 0, 1]);
    drop(buffer);
    write(&mut a, &near, &[0, 0, 1, 0], far.remote_at(252));
    count.add(252, 2).unwrap();
    assert_eq!([lock.test_and_set(252).unwrap(), lock.test_and_set(252).unwrap()], [0x102, 1]);
    memory.write(252, &[0; 4]).unwrap();
    assert_eq!([lock.test_and_set(252).unwrap(), lock.test_and_set(252).unwrap()], [0, 1]);
    assert_eq!(loaded(&other, 0, 64), [0; 64]);
    for refused in [count.add(254, 1), count.add(256, 1), lock.test_and_set(usize::MAX & !3).map(drop)] {
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    }
    drop((a, b, near, far, count, again));
    let kept = DeviceMemory::destroy(memory).unwrap_err();
    assert!(matches!(kept.reason, DestroyReason::InUse(1)), "{kept}");
    drop((lock, other));
    DeviceMemory::destroy(kept.object).unwrap();
    card.end();
}

#[test]
fn operations_that_the_card_does_not_announce_are_refused_by_name() {
    for (capability, withhold) in [
        ("memic_operations", (|profile| _ = profile.device_memory.w().memic_operations(1)) as fn(&mut Profile)),
        ("test_and_set_size_sup", |profile| _ = profile.device_memory.w().test_and_set_size_sup(0b1011)),
    ] {
        let mut profile = Profile::connectx5();
        withhold(&mut profile);
        let card = Card::of(profile);
        let memory = DeviceMemory::alloc(&card.device, 64).unwrap();
        memory.map_increment().unwrap().add(0, 1).unwrap();
        let refused = memory.map_test_and_set().unwrap_err();
        assert!(refused.to_string().contains(capability), "{refused}");
        drop(memory);
        card.end();
    }
}
