//! Fast registration: keys that work requests give memory, and take it from.

use std::time::Instant;

use mlx5_dv::Error;
use mlx5_dv::objects::{AccessFlags, Buffer, MemoryRegion, UmrKey, UmrKeyOptions};
use mlx5_dv::queue::{
    Connection, ConnectionOptions, DataSegment, Done, FastKey, KeyMemory, Operation, PostError, RefusedReason,
    Registration, RemoteAddress, Ticket, WrFlags,
};
use mlx5_prm::wqe::WqeOpcode;
use mlx5_sim::profile::Profile;

use crate::ends::{
    Card, SOON, all_rights, bytes, connected, connected_anew, connected_by, is_refused, pair, pattern, write,
};

const WRITABLE: AccessFlags = AccessFlags::LOCAL_WRITE.union(AccessFlags::REMOTE_WRITE).union(AccessFlags::REMOTE_READ);
/// What the card reports of a key that is not what a work request, or a remote, takes it for.
const KEY: &str = "key does not allow the access";

/// A region that no remote may touch by its own key.
fn private(card: &Card, len: usize) -> std::sync::Arc<MemoryRegion> {
    MemoryRegion::allocate(&card.pd, len, AccessFlags::LOCAL_WRITE).unwrap()
}

/// Waits until `key` is what `is` says.
fn settles(connection: &mut Connection, key: &mut FastKey, is: impl Fn(&FastKey) -> bool) {
    while !is(key) {
        let done = connection.wait(SOON).unwrap();
        assert!(key.settle(&done), "{done:?}");
    }
}

fn ticket_of(done: &Done) -> Ticket {
    done.result.as_ref().unwrap();
    done.ticket
}

/// What lies in `buffers`, one behind the other.
fn gathered(buffers: impl Iterator<Item = Buffer>) -> Vec<u8> {
    let mut all = Vec::new();
    for buffer in buffers {
        let at = all.len();
        all.resize(at + buffer.len(), 0);
        buffer.read(0, &mut all[at..]);
    }
    all
}

#[test]
fn scattered_buffers_are_one_piece_to_the_remote_until_it_invalidates_the_key() {
    let card = Card::new();
    let (mut a, mut b) = connected(&card);
    let (near, far) = (card.region(8192), private(&card, 65536));
    let mut key = FastKey::create(&card.pd, UmrKeyOptions::default()).unwrap();
    for range in [40_000..40_100, 7..1000, 8192..12288] {
        key.push(far.buffer(range).unwrap()).unwrap();
    }
    assert_eq!(key.len(), 100 + 993 + 4096);
    let (ticket, remote) = b.register(&mut key, WRITABLE).unwrap();
    assert_eq!((remote.addr, remote.rkey), (0, key.rkey()));
    assert_eq!(b.register(&mut key, WRITABLE).unwrap_err(), RefusedReason::KeyInUse);
    let done = b.wait(SOON).unwrap();
    assert_eq!(ticket_of(&done), ticket);
    assert!(key.settle(&done) && !key.is_free() && !key.settle(&done));
    assert_eq!(key.parts().count(), 0, "they are the remote's");
    let found = key.query().unwrap();
    assert_eq!((found.free(), found.len(), found.rw()), (false, key.len() as u64, true));

    let data = pattern(key.len(), 3);
    write(&mut a, &near, &data, remote);
    b.receive(far.buffer(0..4).unwrap()).unwrap();
    let message = near.buffer(0..4).unwrap();
    a.send_invalidate(message, remote.rkey).unwrap();
    let mut done = b.wait(SOON).unwrap();
    assert_eq!(done.result.unwrap().operation, Operation::ReceivedInvalidate(remote.rkey));
    drop(done.buffer.take());
    assert!(key.settle(&done) && key.is_free() && key.query().unwrap().free());
    assert_eq!(gathered(key.parts()), data);
    ticket_of(&a.wait(SOON).unwrap());
    is_refused(&mut a, &near, remote);
    drop((a, b, key, near, far));
    card.end_after(&[KEY]);
}

#[test]
fn each_registration_has_another_key_and_an_invalidated_one_is_refused() {
    let card = Card::new();
    let (mut a, mut b) = connected(&card);
    let (near, far) = (card.region(4096), private(&card, 4096));
    let mut key = FastKey::create(&card.pd, UmrKeyOptions::default().entries(1)).unwrap();
    let mut before = None;
    for round in 0..300 {
        let range = round..round + 64;
        key.push(far.buffer(range.clone()).unwrap()).unwrap();
        assert!(key.push(far.buffer(2000..2001).unwrap()).is_err(), "full");
        let (_, remote) = b.register(&mut key, WRITABLE).unwrap();
        assert!(before.is_none_or(|before| before != remote.rkey));
        before = Some(remote.rkey);
        let data = pattern(64, round as u8);
        settles(&mut b, &mut key, |key| key.is_free() || b_registered(key));
        write(&mut a, &near, &data, remote);
        b.invalidate(&mut key).unwrap();
        assert_eq!(b.invalidate(&mut key).unwrap_err(), RefusedReason::KeyNotRegistered);
        settles(&mut b, &mut key, FastKey::is_free);
        assert_eq!(gathered(key.parts()), data);
        assert_eq!(bytes(&far, range.start, 64), data);
    }
    is_refused(&mut a, &near, RemoteAddress { addr: 0, rkey: before.unwrap() });
    drop((a, b, key, near, far));
    card.end_after(&[KEY]);
}

#[test]
fn a_registration_completes_beside_what_is_posted_behind_it() {
    let card = Card::new();
    let (a, mut b) = connected(&card);
    let far = private(&card, 4096);
    let mut key = FastKey::create(&card.pd, UmrKeyOptions::default()).unwrap();
    key.push(far.buffer(0..64).unwrap()).unwrap();
    let (registered, _) = b.register(&mut key, WRITABLE).unwrap();
    let behind = b.batch().nop().unwrap();
    b.receive(far.buffer(64..128).unwrap()).unwrap();
    assert_eq!(b.in_flight(), (2, 1));
    let done = b.wait(SOON).unwrap();
    assert_eq!((ticket_of(&done), key.settle(&done)), (registered, true));
    assert_eq!(ticket_of(&b.wait(SOON).unwrap()), behind);
    drop((a, b, key, far));
    card.end();
}

/// Their completions are those of the messages that invalidate them, many more than the queue has room for.
#[test]
fn registrations_that_are_not_reported_open_keys_until_the_remote_closes_them() {
    let card = Card::new();
    let (near, far) = (card.region(4096), private(&card, 4096));
    for depth in [4, 16, 64] {
        let mut options = ConnectionOptions::default();
        (options.send_depth, options.recv_depth) = (depth, 4);
        let (mut a, mut b) = connected_by(&card, &options);
        let mut key = FastKey::create(&card.pd, UmrKeyOptions::default().entries(1)).unwrap();
        for round in 0..200_u32 {
            key.push(far.buffer(64..128).unwrap()).unwrap();
            b.receive(far.buffer(0..4).unwrap()).unwrap();
            let remote = loop {
                match b.batch().register_unreported(&mut key, WRITABLE) {
                    Ok(remote) => break remote,
                    Err(reason) => assert!(matches!(reason, RefusedReason::Post(PostError::Full(_))), "{reason}"),
                }
                assert!(b.poll().unwrap().is_none(), "it is not reported");
            };
            assert_eq!(b.batch().register_unreported(&mut key, WRITABLE).unwrap_err(), RefusedReason::KeyInUse);
            let data = pattern(64, round as u8);
            // Work requests of one queue are carried out in order: the remote is told of the key by a later one.
            b.write_inline(b"now", near.remote()).unwrap();
            assert_eq!(b.wait(SOON).unwrap().result.unwrap().work.qpn, b.queue_pair().qpn());
            write(&mut a, &near, &data, remote);
            a.send_invalidate(near.buffer(0..4).unwrap(), remote.rkey).unwrap();
            let done = b.wait(SOON).unwrap();
            assert!(key.pop().is_none(), "it is the remote's");
            // By either of two ways.
            let message = done.result.as_ref().unwrap();
            let is_settled = if round % 2 == 0 { key.settle(&done) } else { key.settle_message(message) };
            assert!(is_settled && key.is_free() && !key.settle_message(message), "{done:?}");
            let back = if round % 2 == 0 { gathered(key.parts()) } else { gathered(key.pop().into_iter()) };
            assert_eq!((back, key.len(), key.pop().is_none()), (data, 0, true));
            ticket_of(&a.wait(SOON).unwrap());
        }
        // One that fails is told by an error that no call's ticket is of.
        key.push(far.buffer(64..128).unwrap()).unwrap();
        b.queue_pair().to_error().unwrap();
        let end = Instant::now() + SOON;
        while !key.is_lost() {
            assert!(Instant::now() < end);
            // Not each that is flushed is told of.
            let _ = key.is_free().then(|| b.batch().register_unreported(&mut key, WRITABLE));
            let _ = b.send_inline_unreported(b"flushed");
            if let Some(done) = b.poll().unwrap() {
                key.settle(&done);
            }
        }
        drop((a, b, key));
    }
    drop((near, far));
    card.end();
}

/// Whether its registration was carried out.
fn b_registered(key: &FastKey) -> bool {
    format!("{key:?}").contains("state: Registered,")
}

#[test]
fn a_list_too_long_for_a_wqe_is_read_from_memory() {
    const PARTS: usize = 200;
    let card = Card::new();
    let (mut a, mut b) = connected(&card);
    let (near, far) = (card.region(8192), private(&card, 64 * PARTS));
    let mut key = FastKey::create(&card.pd, UmrKeyOptions::default().entries(PARTS as u32)).unwrap();
    // Backwards, with gaps.
    for part in (0..PARTS).rev() {
        key.push(far.buffer(64 * part..64 * part + 32).unwrap()).unwrap();
    }
    let (_, remote) = b.register(&mut key, WRITABLE).unwrap();
    settles(&mut b, &mut key, b_registered);
    let data = pattern(32 * PARTS, 9);
    write(&mut a, &near, &data, remote);
    b.invalidate(&mut key).unwrap();
    settles(&mut b, &mut key, FastKey::is_free);
    assert_eq!(gathered(key.parts()), data);
    assert_eq!(bytes(&far, 32, 32), [0; 32], "the gaps are nobody's");
    drop((a, b, key, near, far));
    card.end();
}

#[test]
fn buffers_that_lie_behind_each_other_in_pages_are_one_piece_by_a_direct_list() {
    const PAGE: usize = 4096;
    let card = Card::new();
    let (mut a, mut b) = connected(&card);
    let (near, far) = (card.region(256 * PAGE), private(&card, 300 * PAGE));
    let mut key = FastKey::create(&card.pd, UmrKeyOptions::default().entries(256).pages(12)).unwrap();
    // In a WQE, and with a list in memory; pages backwards, the first from its middle, the last up to it.
    for count in [1, 2, 8, 100, 256] {
        let (first, last) = (count * PAGE + 100, 1000);
        key.push(far.buffer(first..first + PAGE - 100).unwrap()).unwrap();
        drop(key.push(far.buffer(PAGE / 2..PAGE).unwrap()).unwrap_err());
        for page in (1..count - usize::from(count > 1)).rev() {
            key.push(far.buffer(page * PAGE..(page + 1) * PAGE).unwrap()).unwrap();
        }
        if count > 1 {
            key.push(far.buffer(290 * PAGE..290 * PAGE + last).unwrap()).unwrap();
            drop(key.push(far.buffer(291 * PAGE..292 * PAGE).unwrap()).unwrap_err());
        }
        // One that was taken out leaves room for itself.
        let (len, last) = (key.len(), key.pop().unwrap());
        assert_eq!(key.len(), len - last.len());
        key.push(last).unwrap();
        let (_, remote) = b.register(&mut key, WRITABLE).unwrap();
        assert_eq!(remote.addr, 100, "the offset in the first page");
        settles(&mut b, &mut key, b_registered);
        let data = pattern(key.len(), count as u8);
        write(&mut a, &near, &data, remote);
        b.invalidate(&mut key).unwrap();
        settles(&mut b, &mut key, FastKey::is_free);
        assert_eq!(gathered(key.parts()), data);
    }
    is_refused(&mut a, &near, RemoteAddress { addr: 100, rkey: key.rkey() });
    drop((a, b, key, near, far));
    card.end_after(&[KEY]);
}

#[test]
fn a_changed_completion_does_not_free_memory_that_a_remote_reaches() {
    for options in [UmrKeyOptions::default().entries(1), UmrKeyOptions::default().entries(1).pages(12)] {
        let card = Card::new();
        let (mut a, mut b) = connected(&card);
        let near = card.region(4096);
        let (far, memory, mut key) = filled(&card, options);
        let (_, remote) = b.register(&mut key, WRITABLE).unwrap();
        let mut done = b.wait(SOON).unwrap();
        assert!(key.settle(&done));
        // A program says that the remote has invalidated the key.
        done.result.as_mut().unwrap().operation = Operation::ReceivedInvalidate(remote.rkey);
        assert!(key.settle(&done) && key.is_free());
        key.parts().for_each(drop);
        drop(far);
        assert!(memory.upgrade().is_some(), "the remote still reaches it: {options:?}");
        write(&mut a, &near, &pattern(4096, 3), remote);
        key.renew().unwrap();
        assert!(memory.upgrade().is_none(), "nobody reaches it any more: {options:?}");
        is_refused(&mut a, &near, remote);
        drop((a, b, key, near));
        card.end_after(&[KEY]);
    }
}

#[test]
fn a_completion_of_the_next_connection_with_the_same_number_is_no_invalidation() {
    let card = Card::new();
    let (a, mut b) = connected(&card);
    let far = private(&card, 4096);
    let mut key = FastKey::create(&card.pd, UmrKeyOptions::default().entries(1)).unwrap();
    key.push(far.buffer(0..4096).unwrap()).unwrap();
    b.register(&mut key, WRITABLE).unwrap();
    settles(&mut b, &mut key, b_registered);
    // The invalidation is flushed, and nobody polls that.
    b.queue_pair().to_error().unwrap();
    b.invalidate(&mut key).unwrap();
    let (a, mut b) = connected_anew(&card, (a, b));
    for _ in 0..4 {
        b.batch().nop().unwrap();
        assert!(!key.settle(&b.wait(SOON).unwrap()));
    }
    assert!(!key.is_free());
    drop((a, b, key, far));
    card.end();
}

/// A region, whether it still lives, and a key filled with its first page.
fn filled(
    card: &Card,
    options: UmrKeyOptions,
) -> (std::sync::Arc<MemoryRegion>, std::sync::Weak<MemoryRegion>, FastKey) {
    let far = private(card, 4096);
    let mut key = FastKey::create(&card.pd, options).unwrap();
    key.push(far.buffer(0..4096).unwrap()).unwrap();
    let memory = std::sync::Arc::downgrade(&far);
    (far, memory, key)
}

#[test]
fn a_key_dropped_before_its_registration_is_executed_lives_until_its_connection_is_gone() {
    for options in [UmrKeyOptions::default().entries(1), UmrKeyOptions::default().entries(1).pages(12)] {
        let card = Card::new();
        let (mut a, mut b) = connected(&card);
        let near = card.region(4096);
        let (far, memory, mut key) = filled(&card, options);
        let mut batch = b.batch();
        let remote = batch.register_unreported(&mut key, WRITABLE).unwrap();
        drop((key, far));
        let other = FastKey::create(&card.pd, options).unwrap();
        assert_ne!(other.rkey() >> 8, remote.rkey >> 8, "the work request would open that one: {options:?}");
        batch.nop().unwrap();
        batch.ring();
        b.wait(SOON).unwrap().result.unwrap();
        write(&mut a, &near, &pattern(4096, 3), remote);
        assert!(memory.upgrade().is_some(), "the remote reaches it");
        drop(b);
        assert!(memory.upgrade().is_none(), "nobody reaches it any more: {options:?}");
        drop((a, other, near));
        card.end();
    }
}

/// A completion of the connection, of which a program says that the remote has invalidated `rkey` by it.
fn pretended(connection: &mut Connection, rkey: u32) -> Done {
    connection.batch().nop().unwrap();
    let mut done = connection.wait(SOON).unwrap();
    done.result.as_mut().unwrap().operation = Operation::ReceivedInvalidate(rkey);
    done
}

#[test]
fn a_changed_completion_does_not_free_the_number_of_a_key_whose_registration_is_not_executed() {
    for (is_reported, options) in [
        (false, UmrKeyOptions::default().entries(1)),
        (true, UmrKeyOptions::default().entries(1)),
        (true, UmrKeyOptions::default().entries(1).pages(12)),
    ] {
        let card = Card::new();
        let (mut a, mut b) = connected(&card);
        let near = card.region(4096);
        let (far, memory, mut key) = filled(&card, options);
        let done = pretended(&mut b, key.rkey() + 1);
        let remote = if is_reported {
            let (_, remote) = b.register(&mut key, WRITABLE).unwrap();
            assert!(key.settle(&done) && key.is_free());
            remote
        } else {
            let mut batch = b.batch();
            let remote = batch.register_unreported(&mut key, WRITABLE).unwrap();
            assert!(key.settle(&done) && key.is_free());
            // The number of the key that is dropped must not be the next one's: the work request would open that.
            key.parts().for_each(drop);
            key.renew().unwrap();
            assert_ne!(key.rkey() >> 8, remote.rkey >> 8, "{options:?}");
            batch.ring();
            remote
        };
        key.parts().for_each(drop);
        drop((key, far));
        let other = FastKey::create(&card.pd, options).unwrap();
        assert_ne!(other.rkey() >> 8, remote.rkey >> 8, "{is_reported}, {options:?}");
        assert!(memory.upgrade().is_some(), "the remote reaches it, or will");
        b.batch().nop().unwrap();
        (0..1 + usize::from(is_reported)).for_each(|_| drop(b.wait(SOON).unwrap()));
        write(&mut a, &near, &pattern(4096, 3), remote);
        drop(b);
        assert!(memory.upgrade().is_none(), "nobody reaches it any more");
        drop((a, other, near));
        card.end();
    }
}

#[test]
fn a_key_that_seems_free_and_moves_to_another_connection_lives_as_long_as_the_work_requests_of_both() {
    let card = Card::new();
    let ((a, mut b), (c, mut d)) = (connected(&card), connected(&card));
    let (far, memory, mut key) = filled(&card, UmrKeyOptions::default().entries(1));
    let done = pretended(&mut b, key.rkey() + 1);
    let mut batch = b.batch();
    let remote = batch.register_unreported(&mut key, WRITABLE).unwrap();
    assert!(key.settle(&done) && key.is_free());
    d.register(&mut key, WRITABLE).unwrap();
    settles(&mut d, &mut key, b_registered);
    d.invalidate(&mut key).unwrap();
    settles(&mut d, &mut key, FastKey::is_free);
    key.parts().for_each(drop);
    drop((key, far));
    drop((c, d));
    let other = FastKey::create(&card.pd, UmrKeyOptions::default().entries(1)).unwrap();
    assert_ne!(other.rkey() >> 8, remote.rkey >> 8, "the first work request would open that one");
    assert!(memory.upgrade().is_some());
    batch.ring();
    drop(b);
    assert!(memory.upgrade().is_none());
    drop((a, other));
    card.end();
}

#[test]
fn keys_that_are_free_end_at_once_and_those_that_lived_with_unreported_registrations_with_their_connection() {
    let card = Card::new();
    let (a, mut b) = connected(&card);
    let far = private(&card, 4096);
    let memory = std::sync::Arc::downgrade(&far);
    let mut key = FastKey::create(&card.pd, UmrKeyOptions::default().entries(1)).unwrap();
    for _ in 0..3 {
        key.push(far.buffer(0..4096).unwrap()).unwrap();
        b.batch().nop().unwrap();
        let mut batch = b.batch();
        batch.register_unreported(&mut key, WRITABLE).unwrap();
        batch.quiet();
        batch.nop().unwrap();
        batch.ring();
        // Its completion says that the registration before it was executed, too, and the quiet one.
        b.invalidate(&mut key).unwrap();
        while !key.is_free() {
            key.settle(&b.wait(SOON).unwrap());
        }
        key.parts().for_each(drop);
    }
    drop((key, far));
    assert!(memory.upgrade().is_none(), "its last work request is known to be executed");
    assert_eq!(b.in_flight(), (0, 0));
    drop((a, b));
    card.end();
}

#[test]
fn a_key_renewed_before_its_registration_is_executed_is_another_and_a_reset_ends_the_old_one() {
    let card = Card::new();
    let (a, mut b) = connected(&card);
    let far = private(&card, 64 * 4096);
    let memory = std::sync::Arc::downgrade(&far);
    // So many that the list is in memory.
    let mut key = FastKey::create(&card.pd, UmrKeyOptions::default().entries(64)).unwrap();
    for page in 0..64 {
        key.push(far.buffer(4096 * page..4096 * page + 8).unwrap()).unwrap();
    }
    let mut batch = b.batch();
    let remote = batch.register_unreported(&mut key, WRITABLE).unwrap();
    key.renew().unwrap();
    assert!(key.is_free());
    assert_ne!(key.rkey() >> 8, remote.rkey >> 8, "the work request would open that one");
    key.parts().for_each(drop);
    drop(far);
    batch.ring();
    assert!(memory.upgrade().is_some(), "the remote reaches it");
    b.reset().unwrap();
    assert!(memory.upgrade().is_none(), "nobody reaches it any more");
    drop((a, b, key));
    card.end();
}

#[test]
fn a_registration_that_may_be_in_flight_is_ended_by_its_own_connection_alone() {
    let card = Card::new();
    let ((a, mut b), (mut c, d)) = (connected(&card), connected(&card));
    let far = private(&card, 4096);
    let mut key = FastKey::create(&card.pd, UmrKeyOptions::default().entries(1)).unwrap();
    key.push(far.buffer(0..64).unwrap()).unwrap();
    let mut batch = b.batch();
    batch.register_unreported(&mut key, WRITABLE).unwrap();
    assert_eq!(c.invalidate(&mut key).unwrap_err(), RefusedReason::KeyNotRegistered);
    batch.ring();
    b.invalidate(&mut key).unwrap();
    settles(&mut b, &mut key, FastKey::is_free);
    drop((a, b, c, d, key, far));
    card.end();
}

#[test]
fn a_buffer_is_cut_in_two_and_joined_again() {
    let card = Card::new();
    let region = private(&card, 8192);
    let mut front = region.buffer(100..1100).unwrap();
    let mut back = front.split_off(300);
    assert_eq!((front.len(), back.len(), back.segment().addr - front.segment().addr), (300, 700, 300));
    assert!(region.buffer(350..360).is_err() && region.buffer(1099..1101).is_err(), "both are lent out");
    let rest = back.split_off(1);
    assert!(front.append(rest).is_err_and(|rest| rest.len() == 699), "it is not directly behind; it is dropped here");
    assert!(region.buffer(401..1100).is_ok());
    front.append(back).unwrap();
    assert_eq!(front.len(), 301);
    drop(front);
    region.buffer(0..8192).unwrap();
    drop(region);
    card.end();
}

#[test]
fn buffers_that_take_turns_are_one_piece_to_the_remote() {
    let card = Card::new();
    let (mut a, mut b) = connected(&card);
    let (near, far) = (card.region(4096), private(&card, 8192));
    let mut key = FastKey::create(&card.pd, UmrKeyOptions::default().entries(3)).unwrap();
    // 512 bytes of data, then 8 of protection information, four times.
    key.push(far.buffer(0..2048).unwrap()).unwrap();
    key.push(far.buffer(4096..4128).unwrap()).unwrap();
    let outside = b.register_interleaved(&mut key, WRITABLE, 5, &[(512, 512), (8, 8)]).unwrap_err();
    assert_eq!(outside, RefusedReason::PiecesOutside);
    let (_, remote) = b.register_interleaved(&mut key, WRITABLE, 4, &[(512, 512), (8, 8)]).unwrap();
    settles(&mut b, &mut key, b_registered);
    let data = pattern(4 * 520, 5);
    write(&mut a, &near, &data, remote);
    for turn in 0..4 {
        assert_eq!(bytes(&far, 512 * turn, 512), data[520 * turn..520 * turn + 512]);
        assert_eq!(bytes(&far, 4096 + 8 * turn, 8), data[520 * turn + 512..520 * (turn + 1)]);
    }
    drop((a, b, key, near, far));
    card.end();
}

#[test]
fn pages_of_one_size_are_one_piece_to_the_remote() {
    let card = Card::new();
    let (mut a, mut b) = pair(&card);
    let (near, far) = (card.region(16384), private(&card, 8 * 4096));
    let key = UmrKey::create(&card.pd, UmrKeyOptions::default().entries(4).pages(12)).unwrap();
    let pages = [5, 2, 7].map(|page| far.iova(4096 * page).unwrap());
    let registration = Registration {
        variant: 1,
        access: WRITABLE,
        start: 0x1234_5000_0100,
        memory: KeyMemory::Pages { pages: &pages, len: 10_000 },
    };
    let mut batch = b.sq.batch();
    // SAFETY: the tests keep their regions until their queue pairs are gone, and read them after completions only.
    let remote = unsafe { batch.register(1, WrFlags::SIGNALLED, &key, &registration) }.unwrap();
    batch.ring();
    assert_eq!((remote.addr, remote.rkey), (0x1234_5000_0100, key.key(1)));
    assert_eq!(b.good().1.operation, Operation::Sent(WqeOpcode::Umr));
    let data = pattern(10_000, 1);
    near.write(0, &data);
    let mut batch = a.sq.batch();
    // SAFETY: as above.
    unsafe { batch.write(2, WrFlags::SIGNALLED, remote, &[near.segment(0..10_000)]) }.unwrap();
    batch.ring();
    a.good();
    assert_eq!(bytes(&far, 5 * 4096 + 0x100, 4096 - 0x100), data[..4096 - 0x100]);
    assert_eq!(bytes(&far, 2 * 4096, 4096), data[4096 - 0x100..8192 - 0x100]);
    assert_eq!(bytes(&far, 7 * 4096, 10_000 - 8192 + 0x100), data[8192 - 0x100..]);
    let mut batch = b.sq.batch();
    batch.local_invalidate(3, WrFlags::SIGNALLED | batch.fence_after_update(), key.key(1)).unwrap();
    batch.ring();
    b.good();
    let parts = KeyMemory::Parts(&[DataSegment { addr: 0, len: 1, lkey: 0 }]);
    let mut batch = b.sq.batch();
    // SAFETY: nothing is posted.
    let posted =
        unsafe { batch.register(4, WrFlags::SIGNALLED, &key, &Registration { memory: parts, ..registration }) };
    assert_eq!(posted, Err(PostError::KeyLayout { key: key.key(0) }));
    drop(batch);
    drop((a, b, key, near, far));
    card.end();
}

#[test]
fn a_key_for_one_queue_pair_is_refused_on_any_other() {
    let card = Card::new();
    let ((mut a, mut b), (mut c, d)) = (pair(&card), pair(&card));
    let (near, far) = (card.region(4096), private(&card, 4096));
    let key = UmrKey::create(&card.pd, UmrKeyOptions::default()).unwrap();
    let parts = [far.segment(100..200)];
    let registration = Registration { variant: 7, access: WRITABLE, start: 0, memory: KeyMemory::Parts(&parts) };
    let mut batch = b.sq.batch();
    // SAFETY: the tests keep their regions until their queue pairs are gone, and read them after completions only.
    let remote = unsafe { batch.register_here(1, WrFlags::SIGNALLED, &key, &registration) }.unwrap();
    batch.ring();
    b.good();
    for (end, is_open) in [(&mut a, true), (&mut c, false)] {
        let mut batch = end.sq.batch();
        // SAFETY: as above.
        unsafe { batch.write(2, WrFlags::SIGNALLED, remote, &[near.segment(0..100)]) }.unwrap();
        batch.ring();
        assert_eq!(end.next().1.is_ok(), is_open);
    }
    drop((a, b, c, d, key, near, far));
    card.end_after(&[KEY]);
}

#[test]
fn a_failed_registration_loses_the_key_until_it_is_renewed() {
    let card = Card::new();
    let (a, mut b) = connected(&card);
    let far = private(&card, 4096);
    let mut key = FastKey::create(&card.pd, UmrKeyOptions::default()).unwrap();
    key.push(far.buffer(0..64).unwrap()).unwrap();
    b.register(&mut key, WRITABLE).unwrap();
    settles(&mut b, &mut key, b_registered);
    // The queue pair goes to ERR before the invalidation.
    a.queue_pair().to_error().unwrap();
    b.queue_pair().to_error().unwrap();
    b.invalidate(&mut key).unwrap();
    settles(&mut b, &mut key, FastKey::is_lost);
    assert_eq!(key.parts().count(), 0);
    key.renew().unwrap();
    assert!(key.is_free());
    assert_eq!(key.parts().count(), 1);
    drop((a, b, key, far));
    card.end();
}

#[test]
fn what_cannot_be_registered_is_refused_before_the_card_sees_it() {
    let card = Card::new();
    let (_a, mut b) = connected(&card);
    let far = private(&card, 4096);
    let mut key = FastKey::create(&card.pd, UmrKeyOptions::default()).unwrap();
    let post = |reason| match reason {
        RefusedReason::Post(error) => error,
        other => panic!("{other}"),
    };
    assert_eq!(post(b.register(&mut key, WRITABLE).unwrap_err()), PostError::EmptyPart);
    key.push(far.buffer(0..64).unwrap()).unwrap();
    let lonely = b.register(&mut key, AccessFlags::REMOTE_WRITE).unwrap_err();
    assert_eq!(post(lonely), PostError::RemoteWithoutLocalWrite);
    assert_eq!(b.invalidate(&mut key).unwrap_err(), RefusedReason::KeyNotRegistered);
    assert_eq!(key.parts().count(), 1);
    for entries in [0, (1 << 15) + 1] {
        let refused = UmrKey::create(&card.pd, UmrKeyOptions::default().entries(entries)).unwrap_err();
        assert!(matches!(refused, Error::Invalid(_)), "{refused}");
    }
    drop((_a, b, key, far));
    card.end();
}

/// An entry without bytes would open 2^31 of them: of memory behind the buffer that nobody gave away.
#[test]
fn a_part_that_no_entry_can_say_is_refused_in_the_work_request_and_in_a_list_in_memory() {
    let card = Card::new();
    let (a, mut b) = connected(&card);
    for parts in [3, 200] {
        let far = private(&card, 64 * parts);
        let mut key = FastKey::create(&card.pd, UmrKeyOptions::default().entries(parts as u32)).unwrap();
        for (number, mut buffer) in far.buffers(64).unwrap().into_iter().take(parts).enumerate() {
            if number >= parts - 2 {
                buffer.set_len(0);
            }
            key.push(buffer).unwrap();
        }
        let refused = b.register(&mut key, WRITABLE).unwrap_err();
        let error = PostError::PartLength { part: parts - 2, given: 0, most: (1 << 31) - 1 };
        assert_eq!(refused, RefusedReason::Post(error));
        assert!(key.is_free());
    }
    drop((a, b));
    card.end();
}

/// Of more octwords, the work request would say the low 16 bits, and change none or the first of them alone.
#[test]
fn a_key_has_no_more_entries_than_a_work_request_can_change() {
    let mut profile = Profile::connectx5();
    profile.general_max.w().log_max_klm_list_size(20);
    profile.general_current.w().log_max_klm_list_size(20);
    let card = Card::of(profile);
    let longest = UmrKey::create(&card.pd, UmrKeyOptions::default().entries(65532)).unwrap();
    for entries in [65533, 65536, 1 << 20] {
        let refused = UmrKey::create(&card.pd, UmrKeyOptions::default().entries(entries)).unwrap_err();
        assert!(matches!(refused, Error::Invalid(_)) && refused.to_string().contains("65532"), "{refused}");
    }
    drop(longest);
    card.end();
}

#[test]
fn a_card_without_keys_of_parts_says_what_it_lacks() {
    let mut profile = Profile::connectx5();
    profile.general_max.w().imaicl(false);
    profile.general_current.w().imaicl(false);
    let card = Card::of(profile);
    let refused = UmrKey::create(&card.pd, UmrKeyOptions::default()).unwrap_err();
    assert!(matches!(refused, Error::Unsupported { capability: "imaicl", .. }), "{refused}");
    assert_eq!(all_rights(), WRITABLE);
    card.end();
}
