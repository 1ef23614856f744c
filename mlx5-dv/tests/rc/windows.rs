//! Memory windows of both types: what they open, and to whom.

use std::sync::Arc;

use mlx5_dv::Error;
use mlx5_dv::objects::{AccessFlags, DestroyReason, MemoryRegion, MemoryWindow, WindowType};
use mlx5_dv::queue::{
    Binding, Connection, FastWindow, KeyMemory, Operation, PostError, RefusedReason, Registration, RemoteAddress,
    WaitError, WrFlags,
};
use mlx5_prm::cqe::CqeSyndrome;
use mlx5_sim::profile::Profile;

use crate::ends::{Card, SOON, bytes, connected, connected_anew, is_refused, pair, pattern, write};
use crate::unreliable;

const READ_WRITE: AccessFlags = AccessFlags::REMOTE_WRITE.union(AccessFlags::REMOTE_READ);
/// What the card reports of a key that is not what a work request, or a remote, takes it for.
const KEY: &str = "key does not allow the access";
const UMR: &str = "key update not allowed";

/// A region that no remote may touch by its own key.
fn private(card: &Card, len: usize) -> Arc<MemoryRegion> {
    MemoryRegion::allocate(&card.pd, len, AccessFlags::LOCAL_WRITE).unwrap()
}

fn window(card: &Card, kind: WindowType) -> FastWindow {
    FastWindow::alloc(&card.pd, kind).unwrap()
}

/// Waits until no work request on `window` is in flight.
fn settles(connection: &mut Connection, window: &mut FastWindow) {
    while !window.is_free() && !window.is_bound() && !window.is_lost() {
        let done = connection.wait(SOON).unwrap();
        assert!(window.settle(&done), "{done:?}");
    }
}

/// Binds and waits.
fn bound(
    connection: &mut Connection,
    window: &mut FastWindow,
    region: &Arc<MemoryRegion>,
    binding: Binding,
) -> RemoteAddress {
    let (_, remote) = connection.bind(window, region, binding).unwrap();
    settles(connection, window);
    assert!(window.is_bound());
    remote
}

fn unbound(connection: &mut Connection, window: &mut FastWindow) {
    connection.unbind(window).unwrap();
    settles(connection, window);
    assert!(window.is_free());
}

fn beyond(remote: RemoteAddress, by: u64) -> RemoteAddress {
    RemoteAddress { addr: remote.addr.wrapping_add(by), ..remote }
}

#[test]
fn a_window_of_type_2_opens_its_bytes_until_the_remote_invalidates_it() {
    let card = Card::new();
    let (mut a, mut b) = connected(&card);
    let (near, far) = (card.region(4096), private(&card, 8192));
    let mut window = window(&card, WindowType::Two);
    let remote = bound(&mut b, &mut window, &far, Binding::new(1000..3000, READ_WRITE));
    assert_eq!((remote.addr, remote.rkey), (far.addr() + 1000, window.rkey()));
    let found = window.query().unwrap();
    assert_eq!((found.free(), found.start_addr(), found.len()), (false, remote.addr, 2000));
    let data = pattern(2000, 1);
    write(&mut a, &near, &data, remote);
    assert_eq!(bytes(&far, 1000, 2000), data);
    let buffer = a.read_blocking(near.buffer(0..500).unwrap(), beyond(remote, 1500), SOON).unwrap().unwrap();
    let mut read = [0; 500];
    buffer.read(0, &mut read);
    assert_eq!(read[..], data[1500..]);
    drop(buffer);

    let again = b.bind(&mut window, &far, Binding::new(0..1, READ_WRITE)).unwrap_err();
    assert_eq!(again, RefusedReason::WindowInUse);
    b.receive(far.buffer(0..4).unwrap()).unwrap();
    a.send_invalidate_inline(b"done", remote.rkey).unwrap();
    let done = b.wait(SOON).unwrap();
    assert_eq!(done.result.as_ref().unwrap().operation, Operation::ReceivedInvalidate(remote.rkey));
    assert!(window.settle(&done) && window.is_free() && window.region().is_none() && window.query().unwrap().free());
    drop(done);
    a.wait(SOON).unwrap().result.unwrap();
    // It has another key each time.
    let next = bound(&mut b, &mut window, &far, Binding::new(1000..3000, READ_WRITE));
    assert_ne!(next.rkey, remote.rkey);
    write(&mut a, &near, b"again", next);
    is_refused(&mut a, &near, remote);
    drop((a, b, window, near, far));
    card.end_after(&[KEY]);
}

/// Tries each `attempt` on a connection of its own.
fn are_refused(card: &Card, binding: Binding, attempts: &[(usize, AccessFlags)]) {
    for &(at, how) in attempts {
        let (mut a, mut b) = connected(card);
        let (near, far) = (card.region(4096), private(card, 4096));
        let mut window = window(card, WindowType::Two);
        let remote = bound(&mut b, &mut window, &far, binding.clone());
        let remote = RemoteAddress { addr: remote.addr + at as u64, ..remote };
        let buffer = near.buffer(0..16).unwrap();
        let tried = match how {
            AccessFlags::REMOTE_READ => a.read_blocking(buffer, remote, SOON),
            _ => a.write_blocking(buffer, remote, SOON),
        };
        match tried {
            Err(WaitError::Failed { error, .. }) => assert_eq!(error.syndrome(), Some(CqeSyndrome::RemoteAccess)),
            other => panic!("{at} {how:?}: {other:?}"),
        }
        assert_eq!(bytes(&far, 0, 4096), [0; 4096]);
    }
}

#[test]
fn nothing_beyond_a_window_and_none_of_the_rights_it_lacks() {
    let card = Card::new();
    let beyond = [(1985, AccessFlags::REMOTE_WRITE), (2000, AccessFlags::REMOTE_READ), (100_000, READ_WRITE)];
    are_refused(&card, Binding::new(1000..3000, READ_WRITE), &beyond);
    are_refused(&card, Binding::new(0..64, AccessFlags::REMOTE_READ), &[(0, AccessFlags::REMOTE_WRITE)]);
    are_refused(&card, Binding::new(0..64, AccessFlags::REMOTE_WRITE), &[(0, AccessFlags::REMOTE_READ)]);
    card.end_after(&[KEY]);
}

#[test]
fn a_zero_based_window_counts_from_zero() {
    let card = Card::new();
    let (mut a, mut b) = connected(&card);
    let (near, far) = (card.region(4096), private(&card, 4096));
    for kind in [WindowType::One, WindowType::Two] {
        let mut window = window(&card, kind);
        let remote = bound(&mut b, &mut window, &far, Binding::new(100..200, READ_WRITE).zero_based());
        assert_eq!(remote.addr, 0);
        write(&mut a, &near, &pattern(100, 8), remote);
        assert_eq!(bytes(&far, 100, 100), pattern(100, 8));
        far.fill(0, 4096, 0);
        unbound(&mut b, &mut window);
    }
    drop((a, b, near, far));
    card.end();
}

#[test]
fn a_region_stays_registered_while_a_window_may_open_it() {
    let card = Card::new();
    let (mut a, mut b) = connected(&card);
    let (near, far) = (card.region(4096), private(&card, 4096));
    let mut window = window(&card, WindowType::Two);
    let remote = bound(&mut b, &mut window, &far, Binding::new(0..64, READ_WRITE));
    let refused = MemoryRegion::destroy(far).unwrap_err();
    assert!(matches!(refused.reason, DestroyReason::InUse(1)), "{refused}");
    write(&mut a, &near, b"here", remote);
    unbound(&mut b, &mut window);
    // That it is unbound is known from a completion, which a program may have changed.
    let refused = MemoryRegion::destroy(refused.object).unwrap_err();
    window.renew().unwrap();
    MemoryRegion::destroy(refused.object).unwrap();
    // Dropped while bound, the window is destroyed first.
    let far = private(&card, 4096);
    let remote = bound(&mut b, &mut window, &far, Binding::new(0..64, READ_WRITE));
    drop(far);
    write(&mut a, &near, b"here", remote);
    drop(window);
    is_refused(&mut a, &near, remote);
    drop((a, b, near));
    card.end_after(&[KEY]);
}

#[test]
fn a_completion_of_the_next_connection_with_the_same_number_unbinds_no_window() {
    let card = Card::new();
    let (a, mut b) = connected(&card);
    let far = private(&card, 4096);
    let mut window = window(&card, WindowType::One);
    bound(&mut b, &mut window, &far, Binding::new(0..64, READ_WRITE));
    // The unbinding is flushed, and nobody polls that.
    b.queue_pair().to_error().unwrap();
    b.unbind(&mut window).unwrap();
    let (a, mut b) = connected_anew(&card, (a, b));
    for _ in 0..4 {
        b.batch().nop().unwrap();
        assert!(!window.settle(&b.wait(SOON).unwrap()));
    }
    assert!(!window.is_free());
    drop((a, b, window, far));
    card.end();
}

#[test]
fn a_window_dropped_while_its_binding_may_be_in_flight_lives_until_its_connection_is_gone() {
    let card = Card::new();
    let (a, mut b) = connected(&card);
    let far = private(&card, 4096);
    let memory = Arc::downgrade(&far);
    let mut first = window(&card, WindowType::Two);
    let (_, remote) = b.bind(&mut first, &far, Binding::new(0..64, READ_WRITE)).unwrap();
    drop((first, far));
    let other = window(&card, WindowType::Two);
    assert_ne!(other.rkey() >> 8, remote.rkey >> 8, "the work request would bind that one");
    assert!(memory.upgrade().is_some(), "the remote may reach it");
    drop(b);
    assert!(memory.upgrade().is_none(), "nobody reaches it any more");
    drop((a, other));
    card.end();
}

#[test]
fn a_window_of_type_2_is_of_one_queue_pair() {
    let card = Card::new();
    let ((a, mut b), (mut c, mut d)) = (connected(&card), connected(&card));
    let (near, far) = (card.region(4096), private(&card, 4096));
    let mut window = window(&card, WindowType::Two);
    let remote = bound(&mut b, &mut window, &far, Binding::new(0..64, READ_WRITE));
    assert_eq!(d.unbind(&mut window).unwrap_err(), RefusedReason::WindowElsewhere);
    is_refused(&mut c, &near, remote);
    unbound(&mut b, &mut window);
    drop((a, b, c, d, window, near, far));
    card.end_after(&[KEY]);
}

#[test]
fn the_card_refuses_to_unbind_a_window_through_another_queue_pair() {
    let card = Card::new();
    let ((mut a, b), (mut c, d)) = (pair(&card), pair(&card));
    let far = private(&card, 4096);
    let window = MemoryWindow::alloc(&card.pd, WindowType::Two).unwrap();
    let parts = [far.segment(0..64)];
    let binding = Registration { variant: 9, access: READ_WRITE, start: 0, memory: KeyMemory::Parts(&parts) };
    let mut batch = a.sq.batch();
    // SAFETY: nothing is posted.
    let refused = unsafe { batch.bind_window(1, WrFlags::SIGNALLED, &window, &binding) };
    assert_eq!(refused, Err(PostError::RemoteWithoutLocalWrite));
    let binding = Registration { access: READ_WRITE | AccessFlags::LOCAL_WRITE, ..binding };
    // SAFETY: the tests keep their regions until their queue pairs are gone, and read them after completions only.
    let remote = unsafe { batch.bind_window(1, WrFlags::SIGNALLED, &window, &binding) }.unwrap();
    batch.ring();
    assert_eq!(remote, RemoteAddress { addr: 0, rkey: window.key(9) });
    a.good();
    let mut batch = c.sq.batch();
    batch.unbind_window(2, WrFlags::SIGNALLED, &window, 9).unwrap();
    batch.ring();
    assert_eq!(c.bad().1.syndrome(), Some(CqeSyndrome::MemoryWindowBind));
    // Bound, it is not bound again before it was unbound.
    let mut batch = a.sq.batch();
    batch.unbind_window(3, WrFlags::SIGNALLED, &window, 9).unwrap();
    for id in [4, 5] {
        // SAFETY: as above.
        unsafe { batch.bind_window(id, WrFlags::SIGNALLED | batch.fence_after_update(), &window, &binding) }.unwrap();
    }
    batch.ring();
    assert_eq!([a.good().0, a.good().0], [3, 4]);
    assert_eq!(a.bad().1.syndrome(), Some(CqeSyndrome::MemoryWindowBind));
    drop((a, b, c, d, window, far));
    card.end_after(&[UMR]);
}

#[test]
fn a_window_of_type_1_is_of_all_queue_pairs_and_moves_from_region_to_region() {
    let card = Card::new();
    let ((mut a, mut b), (mut c, mut d)) = (connected(&card), connected(&card));
    let (near, first, second) = (card.region(4096), private(&card, 4096), private(&card, 4096));
    let mut window = window(&card, WindowType::One);
    let old = bound(&mut b, &mut window, &first, Binding::new(0..64, READ_WRITE));
    write(&mut a, &near, b"by a", old);
    write(&mut c, &near, b"by c", beyond(old, 4));
    assert_eq!(bytes(&first, 0, 8), b"by aby c");
    let (_, remote) = b.bind(&mut window, &second, Binding::new(0..64, READ_WRITE)).unwrap();
    assert_eq!(b.bind(&mut window, &first, Binding::new(0..1, READ_WRITE)).unwrap_err(), RefusedReason::WindowInUse);
    settles(&mut b, &mut window);
    write(&mut c, &near, b"moved", remote);
    assert_eq!(bytes(&second, 0, 5), b"moved");
    // That moves b to the error state: any other connection unbinds the window.
    is_refused(&mut a, &near, old);
    unbound(&mut d, &mut window);
    is_refused(&mut c, &near, remote);
    drop((a, b, c, d, window, near, first, second));
    card.end_after(&[KEY]);
}

#[test]
fn an_unreliable_connection_has_windows_too() {
    let card = Card::new();
    let (mut a, mut b) = unreliable::connected(&card);
    let (near, far) = (card.region(4096), private(&card, 4096));
    let mut window = window(&card, WindowType::Two);
    let (_, remote) = b.bind(&mut window, &far, Binding::new(64..128, READ_WRITE)).unwrap();
    while !window.is_bound() {
        assert!(window.settle(&b.wait(SOON).unwrap()));
    }
    // The immediate completes a receive once the data is there.
    b.receive(far.buffer(0..4).unwrap()).unwrap();
    let mut buffer = near.buffer(0..64).unwrap();
    buffer.write(0, &pattern(64, 5));
    a.write_imm(buffer, remote, 1).unwrap();
    b.wait(SOON).unwrap().result.unwrap();
    assert_eq!(bytes(&far, 64, 64), pattern(64, 5));
    b.unbind(&mut window).unwrap();
    while !window.is_free() {
        assert!(window.settle(&b.wait(SOON).unwrap()));
    }
    drop((a, b, window, near, far));
    card.end();
}

#[test]
fn a_failed_binding_loses_the_window_until_it_is_renewed() {
    let card = Card::new();
    let (a, mut b) = connected(&card);
    let far = private(&card, 4096);
    let mut window = window(&card, WindowType::Two);
    bound(&mut b, &mut window, &far, Binding::new(0..64, READ_WRITE));
    a.queue_pair().to_error().unwrap();
    b.queue_pair().to_error().unwrap();
    b.unbind(&mut window).unwrap();
    settles(&mut b, &mut window);
    assert!(window.is_lost() && window.region().is_some());
    assert_eq!(b.unbind(&mut window).unwrap_err(), RefusedReason::KeyNotRegistered);
    window.renew().unwrap();
    assert!(window.is_free() && window.region().is_none());
    drop((a, b, window, far));
    card.end();
}

#[test]
fn what_cannot_be_bound_is_refused_before_the_card_sees_it() {
    let card = Card::new();
    let (a, mut b) = connected(&card);
    let (far, other) = (private(&card, 4096), Card::new());
    let foreign = private(&other, 4096);
    let read_only = MemoryRegion::allocate(&card.pd, 4096, AccessFlags::empty()).unwrap();
    let mut window = window(&card, WindowType::Two);
    let mut refusal = |region, range, access| b.bind(&mut window, region, Binding::new(range, access)).unwrap_err();
    let nothing = PostError::PartLength { part: 0, given: 0, most: (1 << 31) - 1 };
    assert_eq!(refusal(&far, 4000..4097, READ_WRITE), RefusedReason::WindowOutside);
    assert_eq!(refusal(&far, 8..8, READ_WRITE), RefusedReason::Post(nothing));
    assert_eq!(refusal(&foreign, 0..8, READ_WRITE), RefusedReason::ForeignRegion);
    assert_eq!(refusal(&read_only, 0..8, READ_WRITE), RefusedReason::RegionReadOnly);
    assert_eq!(b.unbind(&mut window).unwrap_err(), RefusedReason::KeyNotRegistered);
    let remote = bound(&mut b, &mut window, &read_only, Binding::new(0..8, AccessFlags::REMOTE_READ));
    assert_eq!(remote.addr, read_only.addr());
    drop((a, b, window, far, read_only, foreign));
    card.end();
    other.end();
}

#[test]
fn a_card_without_windows_says_what_it_lacks() {
    let mut profile = Profile::connectx5();
    profile.general_max.w().imaicl(false);
    profile.general_current.w().imaicl(false);
    let card = Card::of(profile);
    let refused = FastWindow::alloc(&card.pd, WindowType::One).unwrap_err();
    assert!(matches!(refused, Error::Unsupported { capability: "imaicl", .. }), "{refused}");
    card.end();
}
