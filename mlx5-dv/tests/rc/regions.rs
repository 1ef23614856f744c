//! Memory regions: their addresses, rights and owners.

use mlx5_dv::Error;
use mlx5_dv::memory::HostMemory;
use mlx5_dv::objects::{AccessFlags, MemoryRegion, NullRegion, UmrKeyOptions};
use mlx5_dv::queue::{FastKey, RemoteAddress, WrFlags};
use mlx5_prm::cmd::QueryMkeyIn;
use mlx5_sim::profile::Profile;

use crate::ends::{Card, all_rights, bytes, connected, is_refused, pair, pattern, write};

/// Whether the card has a key with relaxed ordering, for writes and for reads.
fn relaxed(card: &Card, key: u32) -> (bool, bool) {
    let mut query = QueryMkeyIn::default();
    query.w().mkey_index(key >> 8);
    let found = card.device.execute(&query, "").unwrap();
    let context = found.memory_key_mkey_entry();
    (context.relaxed_ordering_write(), context.relaxed_ordering_read())
}

#[test]
fn a_zero_based_region_counts_from_zero_for_both_ends() {
    let card = Card::new();
    let (mut a, b) = connected(&card);
    for start in [0, 0x1234_5678_9000] {
        let memory = HostMemory::allocate(8192).unwrap();
        let far = MemoryRegion::register_at(&card.pd, memory, all_rights(), start).unwrap();
        assert_eq!((far.addr(), far.remote_at(100).addr), (start, start + 100));
        let data = pattern(3000, 6);
        // As source and as destination.
        write(&mut a, &far, &data, far.remote_at(4000));
        assert_eq!((bytes(&far, 0, 3000), bytes(&far, 4000, 3000)), (data.clone(), data));
    }
    let far = MemoryRegion::register_at(&card.pd, HostMemory::allocate(4096).unwrap(), all_rights(), 0).unwrap();
    is_refused(&mut a, &far, far.remote_at(4096));
    drop((a, b, far));
    card.end_after(&["key does not allow the access"]);
}

#[test]
fn a_region_s_address_has_the_offset_of_its_memory_in_a_page() {
    let card = Card::new();
    let (mut a, b) = connected(&card);
    let memory = || HostMemory::from_vec(vec![7; 5000]).unwrap();
    let of_page = |memory: &HostMemory| memory.data_offset() as u64;
    let given = memory();
    let start = (1 << 40) + of_page(&given);
    let far = MemoryRegion::register_at(&card.pd, given, all_rights(), start).unwrap();
    write(&mut a, &far, &pattern(5000, 1), RemoteAddress { addr: start, rkey: far.rkey() });
    assert_eq!(bytes(&far, 0, 5000), pattern(5000, 1));
    let given = memory();
    let start = (of_page(&given) + 8) % 4096;
    let refused = MemoryRegion::register_at(&card.pd, given, all_rights(), start).unwrap_err();
    assert!(refused.to_string().contains("offset in a page"), "{refused}");
    let beyond = HostMemory::allocate(8192).unwrap();
    let refused = MemoryRegion::register_at(&card.pd, beyond, all_rights(), u64::MAX & !0xfff).unwrap_err();
    assert!(matches!(refused, Error::Invalid(_)), "{refused}");
    drop((a, b, far));
    card.end();
}

#[test]
fn relaxed_ordering_is_asked_for_where_the_card_has_it() {
    let mut old = Profile::connectx5();
    old.general_max.w().relaxed_ordering_write(false).relaxed_ordering_read(false);
    old.general_max.w().relaxed_ordering_write_umr(false).relaxed_ordering_read_umr(false);
    old.general_current = old.general_max;
    for (profile, has) in [(Profile::connectx5(), true), (old, false)] {
        let card = Card::of(profile);
        let (mut a, mut b) = connected(&card);
        let far = MemoryRegion::allocate(&card.pd, 4096, all_rights() | AccessFlags::RELAXED_ORDERING).unwrap();
        let near = card.region(4096);
        assert_eq!((relaxed(&card, far.rkey()), relaxed(&card, near.rkey())), ((has, has), (false, false)));
        write(&mut a, &near, &pattern(3000, 1), far.remote());
        assert_eq!(bytes(&far, 0, 3000), pattern(3000, 1));
        let mut key = FastKey::create(&card.pd, UmrKeyOptions::default()).unwrap();
        for access in [all_rights() | AccessFlags::RELAXED_ORDERING, all_rights()] {
            key.push(near.buffer(0..64).unwrap()).unwrap();
            b.register(&mut key, access).unwrap();
            key.settle(&b.wait(crate::ends::SOON).unwrap());
            let wanted = has && access.contains(AccessFlags::RELAXED_ORDERING);
            assert_eq!(relaxed(&card, key.rkey()), (wanted, wanted));
            b.invalidate(&mut key).unwrap();
            key.settle(&b.wait(crate::ends::SOON).unwrap());
            key.parts().for_each(drop);
        }
        drop((a, b, far, near, key));
        card.end();
    }
}

#[test]
fn the_null_region_takes_everything_and_gives_zeros() {
    let card = Card::new();
    let null = NullRegion::of(&card.device).unwrap();
    let (mut a, b) = pair(&card);
    let far = card.region(4096);
    far.write(0, &pattern(200, 3));
    let mut batch = a.sq.batch();
    // SAFETY: the tests keep their regions until their queue pairs are gone, and read them after completions only.
    unsafe {
        batch.read(1, WrFlags::SIGNALLED, far.remote(), &[null.segment(100), far.segment(1000..1100)]).unwrap();
        batch.write(2, WrFlags::SIGNALLED | WrFlags::FENCE, far.remote(), &[null.segment(50)]).unwrap();
    }
    batch.ring();
    assert_eq!([a.good().0, a.good().0], [1, 2]);
    assert_eq!(bytes(&far, 1000, 100), pattern(200, 3)[100..], "the second half of what was read");
    assert_eq!((bytes(&far, 0, 50), bytes(&far, 50, 50)), (vec![0; 50], pattern(200, 3)[50..100].to_vec()));
    drop((a, b, far));
    card.end();
    let mut profile = Profile::connectx5();
    profile.general_max.w().dump_fill_mkey(false);
    profile.general_current.w().dump_fill_mkey(false);
    let card = Card::of(profile);
    let refused = NullRegion::of(&card.device).unwrap_err();
    assert!(matches!(refused, Error::Unsupported { capability: "dump_fill_mkey", .. }), "{refused}");
    card.end();
}
