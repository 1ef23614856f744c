//! Connections that own the buffers in flight, and their blocking calls.

use std::sync::Arc;
use std::time::Duration;

use mlx5_dv::Error;
use mlx5_dv::objects::{Buffer, MemoryRegion, QueuePair};
use mlx5_dv::queue::{
    Connection, ConnectionOptions, Operation, PostError, RefusedReason, RemoteAddress, Ticket, WaitError,
};
use mlx5_open::Sim;
use mlx5_prm::cqe::{CqeOpcode, CqeSyndrome};
use mlx5_sim::fault::{Fault, Times};

use crate::ends::{Card, SOON, all_rights, bytes, connected_by as connected};

fn text(buffer: &Buffer, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    buffer.read(0, &mut bytes);
    bytes
}

#[test]
fn buffers_go_to_the_card_and_come_back() {
    let card = Card::new();
    for events in [false, true] {
        let mut options = ConnectionOptions::default();
        options.events = events;
        let (mut a, mut b) = connected(&card, &options);
        let region = card.region(8192);
        let [mut sent, target] = <[Buffer; 2]>::try_from(region.buffers(4096).unwrap()).unwrap();
        sent.write(0, b"mine again");
        sent.set_len(10);
        let ticket = b.receive(target).unwrap();
        let sent = a.send_blocking(sent, SOON).unwrap().unwrap();
        assert_eq!(text(&sent, 10), b"mine again");
        let done = b.wait(SOON).unwrap();
        let (target, completion) = (done.buffer.unwrap(), done.result.unwrap());
        assert_eq!((done.ticket, completion.byte_len, text(&target, 10)), (ticket, 10, b"mine again".to_vec()));
        assert_eq!((a.in_flight(), b.in_flight()), ((0, 0), (0, 0)));
    }
    card.end();
}

/// What completes next, which is of `ticket`: its operation and its buffer.
fn completed(connection: &mut Connection, ticket: Ticket) -> (Operation, Buffer) {
    let done = connection.wait(SOON).unwrap();
    assert_eq!(done.ticket, ticket);
    (done.result.unwrap().operation, done.buffer.unwrap())
}

#[test]
fn write_read_and_immediates() {
    let card = Card::new();
    let (mut a, mut b) = connected(&card, &ConnectionOptions::default());
    let (ours, theirs) = (card.region(4096), card.region(4096));
    ours.write(0, b"over there");
    let buffer = a.write_blocking(ours.buffer(0..10).unwrap(), theirs.remote(), SOON).unwrap().unwrap();
    assert_eq!(bytes(&theirs, 0, 10), b"over there");
    theirs.write(0, b"and back  ");
    let buffer = a.read_blocking(buffer, theirs.remote(), SOON).unwrap().unwrap();
    assert_eq!(text(&buffer, 10), b"and back  ");
    let receive = theirs.buffer(2048..4096).unwrap();
    b.receive(receive).unwrap();
    a.write_imm(buffer, theirs.remote(), 0x77).unwrap();
    let done = b.wait(SOON).unwrap();
    assert_eq!(done.result.unwrap().operation, Operation::WrittenImm(0x77));
    drop(done.buffer);
    assert!(a.wait(SOON).unwrap().result.is_ok());
    // With data that is copied at once.
    let receives = [2048, 3072].map(|at| b.receive(theirs.buffer(at..at + 1024).unwrap()).unwrap());
    let mut batch = a.batch();
    batch.write_inline_all(&[b"of", b" ", b"parts"], theirs.remote_at(600)).unwrap();
    batch.ring();
    a.wait(SOON).unwrap().result.unwrap();
    assert_eq!(bytes(&theirs, 600, 8), b"of parts");
    a.send_imm_inline(b"inline", 0x88).unwrap();
    a.write_imm_inline(b"written", theirs.remote_at(512), 0x99).unwrap();
    assert!((0..2).all(|_| a.wait(SOON).unwrap().result.is_ok()));
    let [message, written] = receives.map(|ticket| completed(&mut b, ticket));
    assert_eq!((message.0, text(&message.1, 6)), (Operation::ReceivedImm(0x88), b"inline".to_vec()));
    assert_eq!((written.0, bytes(&theirs, 512, 7)), (Operation::WrittenImm(0x99), b"written".to_vec()));
    // The same, of parts.
    let receives = [message.1, written.1].map(|buffer| b.receive(buffer).unwrap());
    let mut batch = a.batch();
    batch.send_imm_inline_all(&[b"in", b"", b"line"], 0x8a).unwrap();
    batch.write_imm_inline_all(&[b"wri", b"tten"], theirs.remote_at(700), 0x9a).unwrap();
    batch.ring();
    assert!((0..2).all(|_| a.wait(SOON).unwrap().result.is_ok()));
    let [message, written] = receives.map(|ticket| completed(&mut b, ticket));
    assert_eq!((message.0, text(&message.1, 6)), (Operation::ReceivedImm(0x8a), b"inline".to_vec()));
    assert_eq!((written.0, bytes(&theirs, 700, 7)), (Operation::WrittenImm(0x9a), b"written".to_vec()));
    drop((a, b, ours, theirs, message, written));
    card.end();
}

#[test]
fn a_blocking_call_keeps_what_else_it_meets() {
    let card = Card::new();
    let (mut a, mut b) = connected(&card, &ConnectionOptions::default());
    let region = card.region(8192);
    let mut buffers = region.buffers(1024).unwrap();
    let mine = a.receive(buffers.pop().unwrap()).unwrap();
    b.send_inline(b"hello").unwrap();
    assert!(b.wait(SOON).unwrap().buffer.is_none());
    // By now a's receive has completed; its blocking write must not lose that completion.
    a.write_blocking(buffers.pop().unwrap(), region.remote_at(0), SOON).unwrap();
    let done = a.poll().unwrap().expect("the receive was kept");
    assert_eq!((done.ticket, done.result.unwrap().byte_len), (mine, 5));
    drop((a, b, buffers, done.buffer, region));
    card.end();
}

#[test]
fn a_failure_gives_the_buffer_back() {
    let card = Card::new();
    let (mut a, b) = connected(&card, &ConnectionOptions::default());
    let region = card.region(4096);
    let bad = RemoteAddress { rkey: 0xdead_be00, ..region.remote() };
    let WaitError::Failed { error, buffer } = a.write_blocking(region.buffer(0..64).unwrap(), bad, SOON).unwrap_err()
    else {
        panic!("the key is bad")
    };
    assert_eq!(error.syndrome(), Some(CqeSyndrome::RemoteAccess));
    assert_eq!(buffer.unwrap().len(), 64);
    drop((a, b, region));
    card.end_after(&["key does not allow the access"]);
}

/// Were it taken for a receive, its buffer would come back while the card may still write it.
#[test]
fn a_completion_with_an_opcode_that_nobody_knows_returns_no_buffer() {
    for opcode in [6, 7, 11, 12] {
        let card = Card::new();
        let (mut a, mut b) = connected(&card, &ConnectionOptions::default());
        let region = card.region(4096);
        let mut buffers = region.buffers(64).unwrap();
        let mut receive = |end: &mut Connection| _ = end.receive(buffers.pop().unwrap()).unwrap();
        receive(&mut a);
        receive(&mut b);
        receive(&mut b);
        let faulty = |end: &Connection| {
            let fault = Fault::CqeOpcode { qpn: Some(end.queue_pair().qpn()), opcode };
            card.sim.handle(0).faults().inject(fault, Times::Count(1));
            end.queue_pair().qpn()
        };
        // Of a send, and of a receive.
        let numbers = [faulty(&a), faulty(&b)];
        a.send_inline(b"lost").unwrap();
        for (end, qpn, in_flight) in [(&mut a, numbers[0], (1, 1)), (&mut b, numbers[1], (0, 2))] {
            let text = end.wait(SOON).unwrap_err().to_string();
            let names = [format!("QP {qpn:#x}"), format!("invalid opcode {}", CqeOpcode::from_number(opcode.into()))];
            assert!(names.iter().all(|name| text.contains(name)), "{text}");
            assert_eq!((end.poll().unwrap().is_none(), end.in_flight()), (true, in_flight));
        }
        assert_eq!((a.reset().unwrap().len(), b.reset().unwrap().len()), (1, 2), "a reset gives them back");
        drop((a, b, buffers, region));
        card.end();
    }
}

#[test]
fn what_is_refused_comes_back_at_once() {
    let card = Card::new();
    let mut options = ConnectionOptions::default();
    (options.send_depth, options.recv_depth) = (2, 2);
    let mut a = Connection::new(&card.pd, options.clone()).unwrap();
    let region = card.region(4096);
    let mut buffers = region.buffers(256).unwrap();
    let refused = a.send(buffers.pop().unwrap()).unwrap_err();
    assert_eq!(refused.reason, RefusedReason::NotConnected);
    buffers.extend(refused.buffer);
    a.receive(buffers.pop().unwrap()).unwrap();
    a.receive(buffers.pop().unwrap()).unwrap();
    let refused = a.receive(buffers.pop().unwrap()).unwrap_err();
    assert!(matches!(refused.reason, RefusedReason::Post(PostError::Full(_))));
    buffers.extend(refused.buffer);
    assert_eq!(buffers.len(), 14, "none was lost");
    a.connect(&a.local().unwrap()).unwrap();
    let refused = a.send_inline(&[0; 29]).unwrap_err();
    assert!(matches!(refused.reason, RefusedReason::Post(PostError::InlineTooLong { given: 29, most: 28 })));
    drop((a, buffers, region));
    card.end();
}

/// WQEBBs that the card was told of.
fn sends_posted(qp: &QueuePair) -> u16 {
    qp.query().unwrap().sw_sq_wqebb_counter
}

#[test]
fn a_batch_goes_to_the_card_as_one_when_it_is_rung_or_dropped() {
    let card = Card::new();
    let mut options = ConnectionOptions::default();
    (options.send_depth, options.recv_depth) = (8, 8);
    let (mut a, mut b) = connected(&card, &options);
    let (ours, theirs) = (card.region(4096), card.region(4096));
    for round in 0..3u8 {
        let mut receives = b.receives();
        for buffer in theirs.buffers(512).unwrap() {
            receives.receive(buffer).unwrap();
        }
        let refused = receives.receive(ours.buffer(0..8).unwrap()).unwrap_err();
        assert!(matches!(refused.reason, RefusedReason::Post(PostError::Full(_))) && refused.buffer.is_some());
        drop(refused);
        if round == 0 {
            receives.ring();
        } else {
            drop(receives);
        }
        let before = sends_posted(a.queue_pair());
        let qp = Arc::clone(a.queue_pair());
        let mut batch = a.batch();
        for (i, mut buffer) in ours.buffers(512).unwrap().into_iter().enumerate().take(7) {
            buffer.write(0, &[round, i as u8]);
            buffer.set_len(2);
            batch.send(buffer).unwrap();
        }
        let refused = batch.send_inline(&[0; 100]).unwrap_err();
        assert!(matches!(refused.reason, RefusedReason::Post(PostError::InlineTooLong { .. })));
        batch.send_inline(&[round, 7]).unwrap();
        assert_eq!(sends_posted(&qp), before, "nothing goes before the doorbell");
        if round == 0 {
            batch.ring();
        } else {
            drop(batch);
        }
        for i in 0..8 {
            let done = b.wait(SOON).unwrap();
            assert_eq!(text(&done.buffer.unwrap(), 2), [round, i]);
            a.wait(SOON).unwrap().result.unwrap();
        }
        assert_eq!((a.in_flight(), b.in_flight()), ((0, 0), (0, 0)));
        assert_eq!(sends_posted(&qp), before.wrapping_add(8));
    }
    drop((a, b, ours, theirs));
    card.end();
}

#[test]
fn a_batch_that_is_dropped_empty_or_unconnected_does_nothing() {
    let card = Card::new();
    let mut alone = Connection::new(&card.pd, ConnectionOptions::default()).unwrap();
    assert_eq!(alone.batch().send_inline(b"nobody").unwrap_err().reason, RefusedReason::NotConnected);
    alone.batch().ring();
    alone.receives().ring();
    assert_eq!(alone.in_flight(), (0, 0));
    drop(alone);
    card.end();
}

#[test]
fn a_timeout_leaves_the_buffer_in_flight_and_later_it_comes_back() {
    let card = Card::new();
    let (mut a, mut b) = connected(&card, &ConnectionOptions::default());
    let region = card.region(4096);
    let mut buffers = region.buffers(1024).unwrap();
    let error = a.send_blocking(buffers.pop().unwrap(), Duration::from_millis(20)).unwrap_err();
    assert!(matches!(error, WaitError::Waiting(Error::Timeout { .. })), "{error}");
    assert_eq!(a.in_flight(), (1, 0));
    b.receive(buffers.pop().unwrap()).unwrap();
    assert!(a.wait(SOON).unwrap().buffer.is_some());
    drop((a, b, buffers, region));
    card.end();
}

/// The region's memory must not be freed while the card uses it: the connection is reset first.
#[test]
fn dropped_with_buffers_in_flight_the_card_lets_go_first() {
    let card = Card::new();
    let (mut a, mut b) = connected(&card, &ConnectionOptions::default());
    let region = card.region(8192);
    for buffer in region.buffers(1024).unwrap() {
        a.receive(buffer).unwrap();
    }
    let weak = Arc::downgrade(&region);
    drop(region);
    assert!(weak.upgrade().is_some(), "buffers in flight keep their region");
    drop(a);
    assert!(weak.upgrade().is_none(), "after the reset they are free");
    b.send_inline(b"into the void").unwrap();
    // The card has seen the doorbell, and keeps retrying.
    std::thread::sleep(Duration::from_millis(20));
    drop(b);
    card.end();
}

#[test]
fn two_cards_on_one_wire() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let devices = [sim.open(0).unwrap(), sim.open(1).unwrap()];
    let pds = devices.each_ref().map(|device| mlx5_dv::objects::Pd::alloc(device).unwrap());
    let [mut a, mut b] = pds.each_ref().map(|pd| Connection::new(pd, ConnectionOptions::default()).unwrap());
    let (a_peer, b_peer) = (a.local().unwrap(), b.local().unwrap());
    assert_ne!(a_peer.gid, b_peer.gid);
    a.connect(&b_peer).unwrap();
    // As ibv_rc_pingpong sends it, without MAC address: that is in the GID.
    b.connect(&mlx5_dv::queue::Peer { mac: None, ..a_peer }).unwrap();
    let region = MemoryRegion::allocate(&pds[1], 4096, all_rights()).unwrap();
    b.receive(region.buffer(0..64).unwrap()).unwrap();
    a.send_inline(b"across the wire").unwrap();
    assert!(a.wait(SOON).unwrap().result.is_ok());
    let done = b.wait(SOON).unwrap();
    assert_eq!(text(&done.buffer.unwrap(), 15), b"across the wire");
    drop((a, b, region, pds, devices));
    assert_eq!(sim.violations(), []);
}

/// A batch that is forgotten never goes to the card, whatever completes after it.
#[test]
fn what_a_forgotten_batch_posted_has_no_completion() {
    let card = Card::new();
    let (mut a, mut b) = connected(&card, &ConnectionOptions::default());
    let (ours, theirs) = (card.region(4096), card.region(4096));
    let mut buffers = ours.buffers(1024).unwrap();
    let mut batch = a.batch();
    batch.quiet();
    let first = batch.write(buffers.pop().unwrap(), theirs.remote()).unwrap();
    batch.ring();
    let mut batch = a.batch();
    batch.quiet();
    batch.write(buffers.pop().unwrap(), theirs.remote()).unwrap();
    batch.signalled();
    batch.write(buffers.pop().unwrap(), theirs.remote()).unwrap();
    std::mem::forget(batch);
    let mut receives = b.receives();
    receives.receive(theirs.buffer(0..64).unwrap()).unwrap();
    std::mem::forget(receives);
    let posted = b.receive(theirs.buffer(64..128).unwrap()).unwrap();
    assert_eq!(b.in_flight(), (0, 1));
    let last = a.send_inline(b"one").unwrap();
    assert_eq!(a.in_flight(), (2, 0));
    for ticket in [first, last] {
        let done = a.wait(SOON).unwrap();
        assert_eq!((done.ticket, done.result.is_ok()), (ticket, true));
    }
    let done = b.wait(SOON).unwrap();
    assert_eq!(
        (done.ticket, done.result.unwrap().byte_len, text(&done.buffer.unwrap(), 3)),
        (posted, 3, b"one".into())
    );
    assert_eq!((a.poll().unwrap().is_none(), b.poll().unwrap().is_none()), (true, true));
    drop((a, b, ours, theirs, buffers));
    card.end();
}
