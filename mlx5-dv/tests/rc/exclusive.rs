//! Buffers of exclusive regions: read and filled in place, and out of everybody else's reach.

use std::sync::Arc;

use mlx5_dv::memory::HostMemory;
use mlx5_dv::objects::{AccessFlags, Buffer, ExclusiveRegion, UmrKeyOptions};
use mlx5_dv::queue::{ConnectionOptions, Failure, FastKey, Side};
use mlx5_prm::cqe::CqeSyndrome;

use crate::ends::{Card, SOON, all_rights, connected_by as connected};

/// Buffers whose bytes share quadwords with those of their neighbours, in memory of the driver's and of a vector.
#[test]
fn messages_are_built_and_read_in_place() {
    const LEN: usize = 13;
    let card = Card::new();
    let (mut a, mut b) = connected(&card, &ConnectionOptions::default());
    let ours = ExclusiveRegion::allocate(&card.pd, 4096).unwrap();
    let theirs = ExclusiveRegion::register(&card.pd, HostMemory::from_vec(vec![0xff; 16 * LEN]).unwrap()).unwrap();
    let mut spare = ours.buffers(LEN).unwrap();
    for buffer in theirs.buffers(LEN).unwrap() {
        b.receive(buffer).unwrap();
    }
    let mut held: Vec<Buffer> = Vec::new();
    for round in 0..16u8 {
        let mut buffer = spare.pop().unwrap();
        buffer.set_len(usize::from(round % LEN as u8) + 1);
        assert_eq!(buffer.as_slice().len(), buffer.len());
        buffer.as_mut_slice().fill(round);
        let sent = a.send_blocking(buffer, SOON).unwrap().unwrap();
        assert!(sent.as_slice().iter().all(|&byte| byte == round));
        let done = b.wait(SOON).unwrap();
        assert_eq!(done.received().unwrap(), sent.as_slice());
        held.push(done.buffer.unwrap());
        // What came before is where it was, while the card writes beside it.
        let is_kept = |(at, buffer): (usize, &Buffer)| {
            let len = at % LEN + 1;
            buffer.as_slice().iter().enumerate().all(|(i, &byte)| byte == if i < len { at as u8 } else { 0xff })
        };
        assert!(held.iter().enumerate().all(is_kept), "{round}");
    }
    drop((a, b, held, spare, ours, theirs));
    card.end();
}

#[test]
fn what_is_read_from_a_remote_is_a_slice_too() {
    let card = Card::new();
    let (mut a, b) = connected(&card, &ConnectionOptions::default());
    let (region, remote) = (ExclusiveRegion::allocate(&card.pd, 4096).unwrap(), card.region(4096));
    remote.write(0, b"read in place");
    let buffer = a.read_blocking(region.buffer(1..14).unwrap(), remote.remote(), SOON).unwrap().unwrap();
    assert_eq!(buffer.as_slice(), b"read in place");
    drop((a, b, buffer, region, remote));
    card.end();
}

/// The copies that every buffer has stay inside of a buffer, too.
#[test]
fn copies_change_no_neighbour() {
    let card = Card::new();
    let region = ExclusiveRegion::allocate(&card.pd, 4096).unwrap();
    let [mut left, mut middle, right] = [0..5, 5..10, 10..15].map(|range| region.buffer(range).unwrap());
    left.as_mut_slice().fill(1);
    middle.write(1, &[2; 4]);
    middle.fill(0, 1, 3);
    let mut bytes = [0; 5];
    middle.read(0, &mut bytes);
    assert_eq!((left.as_slice(), &bytes, right.as_slice()), (&[1; 5][..], &[3, 2, 2, 2, 2], &[0; 5][..]));
    assert!(region.buffer(4..6).is_err(), "of two buffers");
    drop((left, middle, right, region));
    card.end();
}

#[test]
fn a_remote_that_guesses_the_key_is_refused() {
    for by_reading in [false, true] {
        let card = Card::new();
        let mut options = ConnectionOptions::default();
        options.remote_access = all_rights() - AccessFlags::LOCAL_WRITE;
        let (mut a, b) = connected(&card, &options);
        let (region, own) = (ExclusiveRegion::allocate(&card.pd, 4096).unwrap(), card.region(4096));
        let buffer = region.buffer(0..64).unwrap();
        let target = buffer.remote();
        if by_reading {
            a.read(own.buffer(0..64).unwrap(), target).unwrap();
        } else {
            a.write_inline(b"forged", target).unwrap();
        }
        let error = a.wait(SOON).unwrap().result.unwrap_err();
        assert_eq!(error.failure, Failure::Syndrome(CqeSyndrome::RemoteAccess));
        assert_eq!(buffer.as_slice(), [0; 64]);
        drop((a, b, buffer, region, own));
        card.end_after(&["key does not allow the access"]);
    }
}

#[test]
fn nothing_that_opens_memory_to_a_remote_takes_it() {
    let card = Card::new();
    let region = ExclusiveRegion::allocate(&card.pd, 4096).unwrap();
    let buffer = region.buffer(0..64).unwrap();
    assert!(buffer.is_exclusive() && buffer.region().is_none());
    assert_eq!(buffer.access(), AccessFlags::LOCAL_WRITE);
    let mut key = FastKey::create(&card.pd, UmrKeyOptions::default()).unwrap();
    let buffer = key.push(buffer).unwrap_err();
    let read_only: Arc<[u8]> = Arc::from(vec![1; 100]);
    assert!(ExclusiveRegion::register(&card.pd, HostMemory::of(read_only).unwrap()).is_err());
    assert!(ExclusiveRegion::allocate(&card.pd, 0).is_err());
    drop((key, buffer, region));
    card.end();
}

#[test]
#[should_panic = "others reach this buffer's bytes"]
fn a_buffer_of_a_region_that_others_reach_is_no_slice() {
    let card = Card::new();
    let _ = card.region(4096).buffer(0..64).unwrap().as_slice();
}

#[test]
fn an_immediate_of_an_rdma_write_is_no_message_in_the_buffer() {
    let card = Card::new();
    let (mut a, mut b) = connected(&card, &ConnectionOptions::default());
    let (region, target) = (ExclusiveRegion::allocate(&card.pd, 4096).unwrap(), card.region(4096));
    b.receive(region.buffer(0..64).unwrap()).unwrap();
    a.write_imm(target.buffer(64..72).unwrap(), target.remote(), 7).unwrap();
    let done = b.wait(SOON).unwrap();
    let completion = done.result.unwrap();
    assert_eq!((completion.work.side, completion.imm(), done.received()), (Side::Receive, Some(7), None));
    drop((a, b, done, region, target));
    card.end();
}

#[test]
fn a_reset_returns_every_buffer_and_the_connection_connects_again() {
    let card = Card::new();
    let (mut a, mut b) = connected(&card, &ConnectionOptions::default());
    let region = ExclusiveRegion::allocate(&card.pd, 4096).unwrap();
    let buffers = region.buffers(256).unwrap();
    let count = buffers.len();
    for (number, buffer) in buffers.into_iter().enumerate() {
        // Sends that nobody polls, messages that nobody polls but one, and receives without a message.
        if number < 4 {
            a.send(buffer).unwrap()
        } else {
            b.receive(buffer).unwrap()
        };
    }
    let first = b.wait(SOON).unwrap();
    let before = (a.local().unwrap(), b.local().unwrap());
    let mut back = a.reset().unwrap();
    back.extend(b.reset().unwrap());
    back.extend(first.buffer);
    assert_eq!((back.len(), a.in_flight(), b.in_flight()), (count, (0, 0), (0, 0)));
    assert!(a.poll().unwrap().is_none() && b.poll().unwrap().is_none(), "completions of the old connection");
    let (ours, theirs) = (a.local().unwrap(), b.local().unwrap());
    assert!(ours.psn != before.0.psn && theirs.psn != before.1.psn, "late packets would be taken");

    let (message, target) = (back.pop().unwrap(), back.pop().unwrap());
    b.receive(target).unwrap();
    let refused = a.send(message).unwrap_err();
    assert!(refused.to_string().contains("call connect first"), "{refused}");
    let mut message = refused.buffer.unwrap();
    message.as_mut_slice().fill(9);
    a.connect(&theirs).unwrap();
    b.connect(&ours).unwrap();
    a.send_blocking(message, SOON).unwrap();
    assert_eq!(b.wait(SOON).unwrap().received().unwrap(), [9; 256]);
    drop((a, b, back, region));
    card.end();
}
