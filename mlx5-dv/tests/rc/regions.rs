//! Memory regions: their addresses, rights and owners.

use std::sync::Arc;

use mlx5_dv::memory::HostMemory;
use mlx5_dv::objects::{AccessFlags, Advice, MemoryRegion, NullRegion, Pd, RegionChanges, UmrKeyOptions, WindowType};
use mlx5_dv::queue::{Binding, FastKey, FastWindow, RefusedReason, RemoteAddress, WrFlags};
use mlx5_dv::{Error, Invalid};
use mlx5_prm::cmd::Opcode;
use mlx5_prm::ctx::{AccessMode, Mkc};
use mlx5_sim::fault::{Fault, Times};
use mlx5_sim::profile::Profile;

use crate::ends::{Card, SOON, all_rights, bytes, connected, is_refused, pair, pattern, write};

/// Whether the card has a key with relaxed ordering, for writes and for reads.
fn relaxed(context: Result<Mkc, Error>) -> (bool, bool) {
    let context = context.unwrap();
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
fn a_region_is_on_the_card_as_it_was_registered() {
    let card = Card::new();
    let rights = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ;
    let region = MemoryRegion::register_at(&card.pd, HostMemory::allocate(8192).unwrap(), rights, 0x7000).unwrap();
    let found = region.query().unwrap();
    assert_eq!((found.start_addr(), found.len(), found.pd()), (0x7000, 8192, card.pd.pdn()));
    assert_eq!((found.lr(), found.lw(), found.rr(), found.rw(), found.a()), (true, true, true, false, false));
    assert_eq!((found.access_mode(), found.free()), (AccessMode::Mtt, false));
    assert_eq!(1 << found.log_page_size(), region.card_page_size());
    drop(region);
    card.end();
}

/// A card with on-demand paging takes rights in the list of pages, others take addresses alone.
#[test]
fn a_region_is_used_with_and_without_on_demand_paging() {
    for profile in [Profile::connectx5(), Profile::connectx7()] {
        let card = Card::of(profile);
        let (mut a, b) = connected(&card);
        let (near, far) = (card.region(3 * 4096), card.region(3 * 4096));
        write(&mut a, &near, &pattern(9000, 1), far.remote());
        assert_eq!(bytes(&far, 0, 9000), pattern(9000, 1));
        drop((a, b, near, far));
        card.end();
    }
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
    let refused = MemoryRegion::register_at(&card.pd, beyond, all_rights(), !0xfff).unwrap_err();
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
        assert_eq!((relaxed(far.query()), relaxed(near.query())), ((has, has), (false, false)));
        write(&mut a, &near, &pattern(3000, 1), far.remote());
        assert_eq!(bytes(&far, 0, 3000), pattern(3000, 1));
        let mut key = FastKey::create(&card.pd, UmrKeyOptions::default()).unwrap();
        for access in [all_rights() | AccessFlags::RELAXED_ORDERING, all_rights()] {
            key.push(near.buffer(0..64).unwrap()).unwrap();
            b.register(&mut key, access).unwrap();
            key.settle(&b.wait(SOON).unwrap());
            let wanted = has && access.contains(AccessFlags::RELAXED_ORDERING);
            assert_eq!(relaxed(key.query()), (wanted, wanted));
            b.invalidate(&mut key).unwrap();
            key.settle(&b.wait(SOON).unwrap());
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

/// Registers `owner`, has a remote read it and, with LOCAL_WRITE, write it; returns the owner.
fn shown<T: mlx5_dv::memory::MemoryOwner>(card: &Card, owner: T, access: AccessFlags) -> T {
    let (mut a, b) = connected(card);
    let near = card.region(4096);
    let far = MemoryRegion::register(&card.pd, HostMemory::of(owner).unwrap(), access).unwrap();
    let mut buffer = near.buffer(0..100).unwrap();
    buffer.fill(0, 100, 0);
    let buffer = a.read_blocking(buffer, far.remote_at(50), SOON).unwrap().unwrap();
    let mut read = [0; 100];
    buffer.read(0, &mut read);
    assert_eq!(read.to_vec(), bytes(&far, 50, 100));
    drop(buffer);
    if access.contains(AccessFlags::LOCAL_WRITE) {
        write(&mut a, &near, b"by the card", far.remote());
    }
    drop((a, b));
    far.into_memory().unwrap().expect("the user's memory").into_owner().expect("the user's owner")
}

#[test]
fn owners_come_back_with_what_the_card_wrote() {
    let card = Card::new();
    let of = |bytes: &[u8]| (bytes[..11].to_vec(), bytes[11..].to_vec());
    let expected = (b"by the card".to_vec(), pattern(5000, 2)[11..].to_vec());
    let vector = pattern(5000, 2);
    let at = vector.as_ptr();
    let vector = shown(&card, vector, all_rights());
    assert_eq!((vector.as_ptr(), of(&vector)), (at, expected.clone()));
    let boxed = shown(&card, pattern(5000, 2).into_boxed_slice(), all_rights());
    assert_eq!(of(&boxed), expected);
    let mut map = memmap2::MmapMut::map_anon(5000).unwrap();
    map.copy_from_slice(&pattern(5000, 2));
    assert_eq!(of(&shown(&card, map, all_rights())), expected);
    // What others read meanwhile is only read.
    let shared: Arc<[u8]> = Arc::from(pattern(5000, 2));
    let back = shown(&card, Arc::clone(&shared), AccessFlags::REMOTE_READ);
    assert!(Arc::ptr_eq(&back, &shared) && Arc::strong_count(&shared) == 2);
    let shared = Arc::new(pattern(5000, 2));
    assert!(Arc::ptr_eq(&shown(&card, Arc::clone(&shared), AccessFlags::REMOTE_READ), &shared));
    assert_eq!(*shared, pattern(5000, 2));
    card.end();
}

#[test]
fn what_others_read_is_never_written() {
    let card = Card::new();
    let shared: Arc<[u8]> = Arc::from(pattern(4096, 2));
    let memory = || HostMemory::of(Arc::clone(&shared)).unwrap();
    let refused = MemoryRegion::register(&card.pd, memory(), all_rights()).unwrap_err();
    assert!(refused.to_string().contains("memory that nobody else reads"), "{refused}");
    let mut region = MemoryRegion::register(&card.pd, memory(), AccessFlags::REMOTE_READ).unwrap();
    let refused = MemoryRegion::rereg(&mut region, RegionChanges::default().access(all_rights())).unwrap_err();
    assert!(refused.to_string().contains("memory that nobody else reads"), "{refused}");
    let (mut a, mut b) = connected(&card);
    // Not by a key or a window over it, by a remote, or by a receive.
    let mut key = FastKey::create(&card.pd, UmrKeyOptions::default()).unwrap();
    key.push(region.buffer(0..64).unwrap()).unwrap();
    assert_eq!(b.register(&mut key, all_rights()).unwrap_err(), RefusedReason::RegionReadOnly);
    let mut window = FastWindow::alloc(&card.pd, WindowType::Two).unwrap();
    let binding = Binding::new(0..64, AccessFlags::REMOTE_WRITE);
    assert_eq!(b.bind(&mut window, &region, binding).unwrap_err(), RefusedReason::RegionReadOnly);
    b.receive(region.buffer(64..128).unwrap()).unwrap();
    a.send_inline(b"into what others read").unwrap();
    assert!(b.wait(SOON).unwrap().result.is_err());
    assert_eq!(shared[..], pattern(4096, 2));
    drop((a, b, key, window, region));
    card.end_after(&["key does not allow the access"]);
}

#[test]
#[should_panic = "this memory has other readers"]
fn a_region_of_shared_memory_is_not_filled_by_its_methods() {
    let card = Card::new();
    let shared: Arc<[u8]> = Arc::from(pattern(4096, 2));
    let region = MemoryRegion::register(&card.pd, HostMemory::of(shared).unwrap(), AccessFlags::empty()).unwrap();
    region.write(0, b"no");
}

#[test]
fn a_region_gets_other_rights_another_domain_other_memory() {
    let card = Card::new();
    let (mut a, b) = connected(&card);
    let near = card.region(4096);
    let mut far =
        MemoryRegion::register(&card.pd, HostMemory::of(vec![1; 4096]).unwrap(), AccessFlags::LOCAL_WRITE).unwrap();
    let (old, addr) = (far.remote(), far.addr());
    assert!(MemoryRegion::rereg(&mut far, RegionChanges::default().access(all_rights())).unwrap().is_none());
    assert_eq!((far.access(), far.addr()), (all_rights(), addr));
    write(&mut a, &near, b"with new rights", far.remote());
    assert_eq!(bytes(&far, 0, 15), b"with new rights");
    let replaced = MemoryRegion::rereg(&mut far, RegionChanges::default().memory(HostMemory::of(vec![2; 64]).unwrap()));
    let replaced: Vec<u8> = replaced.unwrap().unwrap().into_owner().unwrap();
    assert_eq!(&replaced[..15], b"with new rights");
    assert_eq!((far.len(), bytes(&far, 0, 2)), (64, vec![2, 2]));
    write(&mut a, &near, b"new memory", far.remote());
    assert_eq!(bytes(&far, 0, 10), b"new memory");
    let other = Pd::alloc(&card.device).unwrap();
    MemoryRegion::rereg(&mut far, RegionChanges::default().pd(&other)).unwrap();
    assert!(Arc::ptr_eq(far.pd(), &other));
    // The old key is gone.
    is_refused(&mut a, &near, old);
    let (mut c, d) = connected(&card);
    is_refused(&mut c, &near, far.remote());
    drop((a, b, c, d, near, far, other));
    card.end_after(&["key does not allow the access"]);
}

#[test]
fn a_region_that_cannot_be_changed_is_as_it_was() {
    let card = Card::new();
    let other = Card::new();
    let (mut a, b) = connected(&card);
    let mut far = card.region(4096);
    let remote = far.remote();
    let buffer = far.buffer(0..64).unwrap();
    let refused = MemoryRegion::rereg(&mut far, RegionChanges::default().access(AccessFlags::empty())).unwrap_err();
    assert!(refused.to_string().contains("taken by 1 more holders"), "{refused}");
    drop(buffer);
    let invalid = RegionChanges::default().access(AccessFlags::REMOTE_WRITE);
    assert!(matches!(MemoryRegion::rereg(&mut far, invalid).unwrap_err(), Error::Invalid(_)));
    let foreign = RegionChanges::default().pd(&other.pd);
    assert!(matches!(MemoryRegion::rereg(&mut far, foreign).unwrap_err(), Error::Invalid(_)));
    for opcode in [Opcode::CreateMkey, Opcode::DestroyMkey] {
        // New memory, too, in vain.
        let memory = HostMemory::of(vec![9; 64]).unwrap();
        let fault = Fault::CommandStatus { opcode: Some(opcode.number() as u16), status: 0x3, syndrome: 0 };
        card.sim.handle(0).faults().inject(fault, Times::Count(1));
        let refused = MemoryRegion::rereg(&mut far, RegionChanges::default().memory(memory)).unwrap_err();
        assert!(matches!(refused, Error::Command(_)), "{refused}");
    }
    assert_eq!((far.remote(), far.len()), (remote, 4096));
    write(&mut a, &far, b"as before", far.remote_at(100));
    assert_eq!(bytes(&far, 100, 9), b"as before");
    drop((a, b, far));
    card.end();
    other.end();
}

#[test]
fn memory_of_an_owned_function_is_pinned_and_the_error_says_where_it_is_not() {
    let card = Card::new();
    let memory = HostMemory::of(vec![0u8; 100]).unwrap();
    let refused = MemoryRegion::register_on_demand(&card.pd, memory, AccessFlags::LOCAL_WRITE).unwrap_err();
    assert!(matches!(refused, Error::Invalid(Invalid::WrongAccess { kernel: false, .. })), "{refused:?}");
    assert!(refused.to_string().contains("devx:"), "{refused}");
    let region = card.region(64);
    for refused in [region.advise(Advice::Prefetch, 0..64), region.start_advise(Advice::PrefetchWrite, 0..1)] {
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("register_on_demand"), "{refused}");
    }
    assert!(!region.is_on_demand());
    drop(region);
    card.end();
}
