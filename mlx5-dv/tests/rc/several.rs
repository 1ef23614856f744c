//! Work requests of several buffers, and quiet ones.

use std::sync::Arc;
use std::time::Instant;

use mlx5_dv::objects::{Buffer, ExclusiveRegion, MemoryRegion};
use mlx5_dv::queue::{Connection, ConnectionOptions, Done, Kept, Operation, PostError, RefusedReason, RemoteAddress};
use mlx5_prm::cqe::CqeSyndrome;
use mlx5_prm::wqe::WqeOpcode;

use crate::ends::{Card, SOON, connected_by as connected};

const LEN: usize = 100;

/// Options of `depth` sends of up to `sges` buffers.
fn options(depth: u32, sges: u16) -> ConnectionOptions {
    let mut options = ConnectionOptions::default();
    (options.send_depth, options.send_sges, options.recv_sges) = (depth, sges, sges);
    options
}

/// Takes the last `count` of `spare`, as `[first, second, ...]`, filled with different bytes.
fn filled(spare: &mut Vec<Buffer>, count: usize) -> Vec<Buffer> {
    let mut buffers = spare.split_off(spare.len() - count);
    for (number, buffer) in buffers.iter_mut().enumerate() {
        buffer.as_mut_slice().fill(number as u8 + 1);
    }
    buffers
}

/// The next `count` completions.
fn wait(connection: &mut Connection, count: usize) -> Vec<Done> {
    (0..count).map(|_| connection.wait(SOON).unwrap()).collect()
}

/// First bytes of their buffers.
fn first_bytes(done: &[Done]) -> Vec<u8> {
    done.iter().map(|done| done.buffer.as_ref().unwrap().as_slice()[0]).collect()
}

#[test]
fn several_buffers_are_one_message_and_each_comes_back() {
    let card = Card::new();
    let (mut a, mut b) = connected(&card, &options(4, 3));
    let region = ExclusiveRegion::allocate(&card.pd, 8192).unwrap();
    let mut spare = region.buffers(LEN).unwrap();
    for round in 0..9 {
        let mut into = spare.split_off(spare.len() - 3);
        let received = b.receives().receive_all(&mut into).unwrap();
        let mut message = filled(&mut spare, 3);
        // Ends in the second buffer of the receive, at its end, or in the third.
        message[1].set_len([50, LEN, 70][round % 3]);
        message[2].set_len([30, LEN, 60][round % 3]);
        let expected: Vec<u8> = message.iter().flat_map(|buffer| &buffer.as_slice()[..buffer.len()]).copied().collect();
        let sent = a.batch().send_all(&mut message).unwrap();
        assert!(message.is_empty() && into.is_empty());

        let done = wait(&mut a, 3);
        assert!(done.iter().all(|done| done.ticket == sent && done.result.is_ok()), "{done:?}");
        assert_eq!(first_bytes(&done), [1, 2, 3], "in their order");
        assert_eq!(a.in_flight(), (0, 0));
        let came = wait(&mut b, 3);
        assert!(came.iter().all(|done| done.ticket == received), "{came:?}");
        let parts: Vec<u8> = came.iter().flat_map(|done| done.received().unwrap()).copied().collect();
        assert_eq!(parts, expected);
        assert!(a.poll().unwrap().is_none() && b.poll().unwrap().is_none());
        spare.extend(done.into_iter().chain(came).filter_map(|done| done.buffer));
        spare.iter_mut().for_each(|buffer| buffer.set_len(LEN));
    }
    drop((a, b, spare, region));
    card.end();
}

#[test]
fn a_remote_is_written_from_several_buffers_and_read_into_several() {
    let card = Card::new();
    let (mut a, b) = connected(&card, &options(4, 3));
    let (region, remote) = (ExclusiveRegion::allocate(&card.pd, 4096).unwrap(), card.region(4096));
    let mut buffers = filled(&mut region.buffers(LEN).unwrap(), 3);
    a.batch().write_all(&mut buffers, remote.remote()).unwrap();
    buffers.extend(wait(&mut a, 3).into_iter().filter_map(|done| done.buffer));
    let mut bytes = [0; 3 * LEN];
    remote.read(0, &mut bytes);
    assert_eq!(bytes.chunks(LEN).map(|chunk| chunk[LEN - 1]).collect::<Vec<_>>(), [1, 2, 3]);

    buffers.iter_mut().for_each(|buffer| buffer.as_mut_slice().fill(0));
    a.batch().read_all(&mut buffers, remote.remote()).unwrap();
    assert_eq!(first_bytes(&wait(&mut a, 3)), [1, 2, 3]);
    drop((a, b, region, remote));
    card.end();
}

#[test]
fn too_many_buffers_are_refused_and_stay() {
    let card = Card::new();
    let (mut a, mut b) = connected(&card, &options(1, 3));
    let region = ExclusiveRegion::allocate(&card.pd, 1 << 16).unwrap();
    let mut spare = region.buffers(LEN).unwrap();
    for (given, most) in [(4, 3), (70, 62)] {
        let mut buffers = filled(&mut spare, given);
        let too_many = RefusedReason::Post(PostError::TooManySges { given, most });
        assert_eq!(a.batch().send_all(&mut buffers), Err(too_many));
        assert_eq!(b.receives().receive_all(&mut buffers), Err(too_many));
        assert_eq!(buffers.len(), given);
        spare.append(&mut buffers);
    }
    let mut buffers = filled(&mut spare, 3);
    a.batch().write_all(&mut buffers, RemoteAddress { addr: 0, rkey: 0 }).unwrap();
    let mut others = filled(&mut spare, 2);
    assert!(matches!(a.batch().send_all(&mut others), Err(RefusedReason::Post(PostError::Full(_)))));
    assert_eq!((a.in_flight(), others.len()), ((1, 0), 2));
    // The key is nobody's: the one error is that of each buffer.
    let failed = wait(&mut a, 3);
    assert!(failed.iter().all(|done| done.result.unwrap_err().syndrome() == Some(CqeSyndrome::RemoteAccess)));
    drop((a, b, failed, others, spare, region));
    card.end_after(&["key does not allow the access"]);
}

#[test]
fn quiet_work_requests_come_back_with_the_next_that_completes() {
    let card = Card::new();
    let (mut a, b) = connected(&card, &options(16, 2));
    let (region, remote) = (ExclusiveRegion::allocate(&card.pd, 4096).unwrap(), card.region(4096));
    let mut spare = region.buffers(LEN).unwrap();
    let mut batch = a.batch();
    batch.quiet();
    let mut tickets = Vec::new();
    for at in 0..5 {
        let remote = RemoteAddress { addr: remote.remote().addr + at * LEN as u64, ..remote.remote() };
        tickets.push(batch.write(filled(&mut spare, 1).remove(0), remote).unwrap());
    }
    let pair = batch.write_all(&mut filled(&mut spare, 2), remote.remote()).unwrap();
    tickets.extend([pair, pair]);
    batch.ring();
    // All are in the remote's memory, and the card says nothing.
    let mut bytes = [0; 5 * LEN];
    while bytes[0] != 1 || bytes[LEN] != 2 || bytes[4 * LEN] != 1 {
        remote.read(0, &mut bytes);
    }
    assert!(a.poll().unwrap().is_none());
    tickets.push(a.batch().nop().unwrap());
    let done = wait(&mut a, 8);
    assert_eq!(done.iter().map(|done| done.ticket).collect::<Vec<_>>(), tickets);
    for done in &done {
        let completion = done.result.unwrap();
        assert_eq!(completion.operation, Operation::Sent(WqeOpcode::Nop), "the one that has a completion");
    }
    assert_eq!((a.in_flight(), a.poll().unwrap().is_none()), ((0, 0), true));
    drop((a, b, done, spare, region, remote));
    card.end();
}

/// A queue full of quiet work requests would never complete.
#[test]
fn a_full_queue_completes_though_all_are_quiet() {
    let card = Card::new();
    for (depth, inline_bytes) in [(1, 28), (4, 28), (8, 200)] {
        let mut options = options(depth, 1);
        options.inline_bytes = inline_bytes;
        let (mut a, b) = connected(&card, &options);
        let remote = card.region(4096);
        for round in 0..100u32 {
            let mut batch = a.batch();
            batch.quiet();
            // Now the longest, now the shortest WQEs.
            let data = vec![round as u8; if round % 2 == 0 { 1 } else { inline_bytes.into() }];
            let posted = (0..).take_while(|_| batch.write_inline(&data, remote.remote()).is_ok()).count();
            batch.ring();
            assert_eq!(posted, depth as usize);
            assert!(wait(&mut a, posted).iter().all(|done| done.result.is_ok()));
        }
        drop((a, b, remote));
    }
    card.end();
}

#[test]
fn an_error_says_which_of_the_quiet_ones_failed() {
    let card = Card::new();
    let (mut a, b) = connected(&card, &options(16, 1));
    let remote = card.region(4096);
    let mut batch = a.batch();
    batch.quiet();
    for rkey in [remote.remote().rkey, remote.remote().rkey, 0, remote.remote().rkey] {
        batch.write_inline(b"word", RemoteAddress { rkey, ..remote.remote() }).unwrap();
    }
    batch.signalled();
    batch.send_inline(b"never").unwrap();
    batch.ring();
    let done = wait(&mut a, 5);
    let syndromes: Vec<_> = done.iter().map(|done| done.result.err().and_then(|error| error.syndrome())).collect();
    let flushed = Some(CqeSyndrome::WorkRequestFlushed);
    assert_eq!(syndromes, [None, None, Some(CqeSyndrome::RemoteAccess), flushed, flushed]);
    assert!(done.is_sorted_by_key(|done| done.ticket), "{done:?}");
    drop((a, b, remote));
    card.end_after(&["key does not allow the access"]);
}

#[test]
fn nothing_comes_back_of_unreported_sends_but_their_errors() {
    let card = Card::new();
    for depth in [1, 4, 64] {
        let (mut a, mut b) = connected(&card, &options(depth, 1));
        let region = ExclusiveRegion::allocate(&card.pd, 4096).unwrap();
        let mut buffer = region.buffers(LEN).unwrap().pop().unwrap();
        // Many times as many as the ring has room for.
        for round in 0..500u32 {
            b.receive(buffer).unwrap();
            while let Err(reason) = a.send_inline_unreported(&round.to_le_bytes()) {
                assert!(matches!(reason, RefusedReason::Post(PostError::Full(_))), "{reason}");
                assert!(a.poll().unwrap().is_none());
            }
            let done = b.wait(SOON).unwrap();
            assert_eq!(done.received().unwrap(), round.to_le_bytes());
            buffer = done.buffer.unwrap();
        }
        assert_eq!(a.in_flight(), (0, 0));
        // The card may not have reported the last yet.
        let reported = |a: &mut Connection| loop {
            match a.send_inline(b"reported") {
                Ok(sent) => break sent,
                Err(_) => assert!(a.poll().unwrap().is_none()),
            }
        };
        // That they came does not say that they are acknowledged. Once this one is, so are they.
        b.receive(buffer).unwrap();
        let sent = reported(&mut a);
        assert_eq!(wait(&mut a, 1)[0].ticket, sent);
        let buffer = b.wait(SOON).unwrap().buffer;
        let sent = reported(&mut a);
        a.queue_pair().to_error().unwrap();
        let mut done = wait(&mut a, 1);
        for _ in 0..=depth / 4 {
            a.send_inline_unreported(b"flushed").unwrap();
        }
        done.extend(wait(&mut a, 1));
        let flushed = done.iter().map(|done| done.result.unwrap_err().syndrome());
        assert!(flushed.eq([Some(CqeSyndrome::WorkRequestFlushed); 2]), "{done:?}");
        assert!(done[0].ticket == sent && done[1].ticket != sent, "{done:?}");
        drop((a, b, done, buffer, region));
    }
    card.end();
}

/// Sends of LEN bytes from `region`, without a `Done`.
fn send_kept(a: &mut Connection, region: &Arc<MemoryRegion>, count: usize) -> Vec<Kept> {
    (0..count).map(|at| a.send_kept(region.buffer(at * LEN..(at + 1) * LEN).unwrap()).unwrap()).collect()
}

#[test]
fn a_send_that_keeps_its_buffer_gives_it_back_when_asked_once_it_is_done() {
    let card = Card::new();
    let (mut a, mut b) = connected(&card, &options(8, 8));
    let (region, room) = (card.region(4096), ExclusiveRegion::allocate(&card.pd, 4096).unwrap());
    room.buffers(LEN).unwrap().into_iter().take(8).for_each(|buffer| {
        b.receive(buffer).unwrap();
    });
    region.write(0, &[7; 4 * LEN]);
    let quiet = {
        let mut batch = a.batch();
        batch.quiet();
        batch.send_inline(b"quiet").unwrap()
    };
    let kept = send_kept(&mut a, &region, 4);
    assert!(a.reclaim(&kept[0]).is_none(), "no poll has met its completion");
    assert_eq!(a.in_flight().0, 5);
    for len in [5, LEN, LEN, LEN, LEN] {
        assert_eq!(b.wait(SOON).unwrap().received().unwrap().len(), len);
    }
    // The reported one is the quiet one before them.
    assert_eq!(wait(&mut a, 1)[0].ticket, quiet);
    let end = Instant::now() + SOON;
    while a.reclaim(&kept[3]).is_none() {
        assert!(a.poll().unwrap().is_none() && Instant::now() < end);
    }
    assert!(a.reclaim(&kept[3]).is_none(), "it is back");
    for kept in &kept[..3] {
        assert_eq!(a.reclaim(kept).unwrap().len(), LEN);
    }
    assert_eq!(a.in_flight().0, 0);
    // The slots are used again, and known by their tickets.
    let again = send_kept(&mut a, &region, 1);
    b.wait(SOON).unwrap();
    assert!(kept.iter().all(|kept| a.reclaim(kept).is_none()));
    drop((a, b, region, room, again));
    card.end();
}

#[test]
fn a_send_that_keeps_its_buffer_and_fails_is_reported_with_it() {
    let card = Card::new();
    let (mut a, b) = connected(&card, &options(8, 1));
    let region = card.region(4096);
    a.queue_pair().to_error().unwrap();
    let kept = send_kept(&mut a, &region, 3);
    let done = wait(&mut a, 3);
    for (kept, done) in kept.iter().zip(&done) {
        assert_eq!(done.ticket, kept.ticket());
        assert_eq!(done.result.unwrap_err().syndrome(), Some(CqeSyndrome::WorkRequestFlushed));
        assert!(done.buffer.is_some() && a.reclaim(kept).is_none());
    }
    // What waits to be asked for is among what a reset returns.
    assert_eq!(a.reset().unwrap().len(), 0);
    drop((a, b, done, region));
    card.end();
}
