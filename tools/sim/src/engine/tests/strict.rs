//! Errors that a card would ignore silently, and strict mode reports. Most are bugs of real drivers.

use mlx5_prm::values::QpState;
use mlx5_prm::wqe::WqeOpcode;

use super::bench::*;
use crate::engine;
use crate::fault::{Fault, FrameFate, Times};
use crate::objects::{CqStatus, Requester};
use crate::strict::rules::*;

/// A write in the ring, without doorbell.
fn prepared() -> (Bench, u32, u32, u16) {
    let (mut bench, a, b) = Bench::standard();
    let key = bench.key;
    let index = bench.put(a, &write(MEMORY, 8, key, MEMORY, key));
    (bench, a, b, index)
}

#[test]
fn the_send_counter_in_the_receive_queues_dword() {
    let (mut bench, a, _, index) = prepared();
    bench.record(a, 0, 1);
    bench.ring_for(a, index);
    bench.run();
    assert!(bench.sent(a).is_empty(), "a card does nothing");
    assert_eq!(bench.violations(), [RECORD_IN_WRONG_SLOT]);
}

#[test]
fn the_record_forgotten() {
    let (mut bench, a, _, index) = prepared();
    bench.ring_for(a, index);
    assert_eq!(bench.violations(), [RECORD_NOT_WRITTEN]);
}

#[test]
fn the_record_little_endian() {
    let (mut bench, a, _, index) = prepared();
    bench.record(a, 1, 1u32.swap_bytes());
    bench.ring_for(a, index);
    bench.run();
    assert_eq!(bench.violations(), [RECORD_LITTLE_ENDIAN]);
}

#[test]
fn the_receive_record_little_endian() {
    let (mut bench, a, b) = Bench::standard();
    let key = bench.key;
    bench.post_recv(b, &[data(MEMORY, 8, key)]);
    bench.record(b, 0, 1u32.swap_bytes());
    bench.post(a, &send(MEMORY, 8, key));
    bench.run();
    assert_eq!(bench.violations(), [RECORD_LITTLE_ENDIAN]);
}

/// DPDK publishes 32 bits of it; the card knows 16.
#[test]
fn the_receive_counter_beyond_16_bits() {
    let (mut bench, a, b) = Bench::standard();
    let key = bench.key;
    let start = 0xfff0u32;
    let receive = &mut bench.qp_mut(b).rc.receive;
    (receive.posted, receive.fetched) = (start as u16, start as u16);
    for counter in start + 1..start + 0x20 {
        bench.receives.insert(b, (counter - 1) as u16);
        bench.post_recv(b, &[data(MEMORY, 8, key)]);
        bench.record(b, 0, counter);
        bench.post(a, &send(MEMORY, 8, key));
        bench.run();
        assert_eq!((bench.violations(), bench.received(b).len()), (vec![], 1), "{counter:#x}");
    }
}

#[test]
fn the_consumer_index_little_endian_backwards_and_ahead() {
    let (mut bench, a, _) = Bench::standard();
    let cqn = bench.qp_mut(a).cqn_send;
    let iova = bench.f.nic.objects.cqs.get(cqn).unwrap().doorbell.iova;
    let nop = |bench: &mut Bench, consumer: u32| {
        bench.write(iova, &consumer.to_be_bytes());
        bench.post(a, &Post::new(WqeOpcode::Nop, vec![]));
        bench.run();
        bench.violations()
    };
    assert_eq!(nop(&mut bench, 0), [""; 0]);
    assert_eq!(nop(&mut bench, 1), [""; 0]);
    assert_eq!(nop(&mut bench, 2u32.swap_bytes()), [RECORD_LITTLE_ENDIAN]);
    assert_eq!(nop(&mut bench, 3), [""; 0]);
    assert_eq!(nop(&mut bench, 1), [CI_BACKWARDS]);
    assert_eq!(nop(&mut bench, 1), [""; 0], "said once");
    assert_eq!(nop(&mut bench, 100), [CI_AHEAD]);
}

/// DPDK's send queues publish 16 bits of it.
#[test]
fn the_consumer_index_of_16_bits_wraps() {
    let (mut bench, a, _) = Bench::standard();
    let cqn = bench.qp_mut(a).cqn_send;
    let cq = bench.f.nic.objects.cqs.get_mut(cqn).unwrap();
    let (iova, size, start) = (cq.doorbell.iova, 1 << cq.log_size, 0x2_0000 - 2);
    (cq.producer, cq.seen.consumer) = (start, start);
    for consumer in start..start + 2 * size {
        bench.write(iova, &(consumer & 0xffff).to_be_bytes());
        bench.post(a, &Post::new(WqeOpcode::Nop, vec![]));
        bench.run();
        assert_eq!(bench.violations(), [""; 0], "{consumer:#x}");
    }
    let cq = bench.f.nic.objects.cqs.get(cqn).unwrap();
    assert_eq!((cq.status, cq.producer), (CqStatus::Ok, start + 2 * size));
}

#[test]
fn posting_before_rts() {
    for state in [QpState::Rst, QpState::Init, QpState::Rtr] {
        let mut bench = Bench::new();
        let shape = bench.shape();
        let a = bench.qp(shape);
        bench.qp_mut(a).state = state;
        let key = bench.key;
        bench.post(a, &send(MEMORY, 8, key));
        bench.run();
        assert_eq!(bench.violations(), [WRONG_STATE], "{state}");
        assert!(bench.sent(a).is_empty());
    }
}

#[test]
fn doorbells_for_nobody() {
    let (mut bench, a, _) = Bench::standard();
    engine::send_doorbell(&mut bench.f, UAR, 0xabcdef << 8 | 1);
    engine::send_doorbell(&mut bench.f, UAR + 1, u64::from(a) << 8 | 1);
    engine::cq_doorbell(&mut bench.f, UAR, 0xabcdef);
    engine::eq_doorbell(&mut bench.f, UAR, 99 << 24, true);
    assert_eq!(bench.violations(), [UNKNOWN_QP, UNKNOWN_QP, UNKNOWN_CQ, UNKNOWN_EQ]);
}

#[test]
fn a_blueflame_copy_that_is_not_the_ring() {
    let (mut bench, a, _, _) = prepared();
    bench.record(a, 1, 1);
    // Opcode SEND, but the ring has a write: copies of two threads mixed in one register.
    engine::send_doorbell(&mut bench.f, UAR, 0x0a << 32 | u64::from(a) << 8 | 3);
    assert_eq!(bench.violations(), [DOORBELL_DIFFERS]);
}

#[test]
fn reserved_bits() {
    let (mut bench, a, _, index) = prepared();
    let ring = bench.qp_mut(a).send.clone().unwrap();
    ring.memory.write(&bench.f.nic.dma, 9, &[1]).unwrap();
    bench.record(a, 1, 1);
    bench.ring_for(a, index);
    bench.run();
    assert_eq!(bench.sent(a).len(), 1);
    assert_eq!(bench.violations(), [WQE_RESERVED]);
}

#[test]
fn more_sends_than_the_ring_holds() {
    let (mut bench, a, b) = Bench::standard();
    let key = bench.key;
    bench.go(b, QpState::Rst); // no completions
    for _ in 0..64 {
        bench.post(a, &write(MEMORY, 8, key, MEMORY, key));
    }
    bench.run();
    assert_eq!(bench.violations(), [""; 0]);
    bench.post(a, &write(MEMORY, 8, key, MEMORY, key));
    assert_eq!(bench.violations(), [SEND_OVERRUN]);
}

#[test]
fn more_receives_than_the_ring_holds() {
    let (mut bench, a, b) = Bench::standard();
    let key = bench.key;
    for _ in 0..65 {
        bench.post_recv(b, &[data(MEMORY, 8, key)]);
    }
    bench.post(a, &send(MEMORY, 8, key));
    bench.run();
    assert_eq!(bench.violations(), [RECEIVE_OVERRUN]);
}

#[test]
fn an_entry_whose_owner_bit_software_changed() {
    let (mut bench, a, _) = Bench::standard();
    let cqn = bench.qp_mut(a).cqn_send;
    for round in 0..257 {
        if round == 256 {
            let last = bench.f.nic.objects.cqs.get(cqn).unwrap().ring.clone();
            last.write(&bench.f.nic.dma, 63, &[0x01]).unwrap();
        }
        bench.post(a, &Post::new(WqeOpcode::Nop, vec![]));
        bench.run();
        bench.drain(cqn);
    }
    assert_eq!(bench.violations(), [STALE_OWNER]);
}

#[test]
fn a_ring_is_initialised_before_its_first_completion() {
    for (opcode, reported) in [(0xf0, &[][..]), (0x00, &[RING_NOT_INITIALISED])] {
        let (mut bench, a, _) = Bench::standard();
        let cqn = bench.qp_mut(a).cqn_send;
        let ring = bench.f.nic.objects.cqs.get(cqn).unwrap().ring.clone();
        for entry in 1..4 {
            ring.write(&bench.f.nic.dma, entry * 64 + 63, &[opcode]).unwrap();
        }
        for _ in 0..2 {
            bench.post(a, &Post::new(WqeOpcode::Nop, vec![]));
            bench.run();
        }
        assert_eq!(bench.violations(), reported);
    }
}

#[test]
fn a_collapsed_queues_only_entry_is_initialised_before_its_first_completion() {
    for (opcode, reported) in [(0xf0, &[][..]), (0x00, &[RING_NOT_INITIALISED])] {
        let (mut bench, a, _) = Bench::standard();
        let cqn = bench.qp_mut(a).cqn_send;
        let cq = bench.f.nic.objects.cqs.get_mut(cqn).unwrap();
        cq.collapsed = true;
        let ring = cq.ring.clone();
        ring.write(&bench.f.nic.dma, 63, &[opcode]).unwrap();
        // Nobody looks at the others.
        ring.write(&bench.f.nic.dma, 2 * 64 + 63, &[0]).unwrap();
        for _ in 0..3 {
            bench.post(a, &Post::new(WqeOpcode::Nop, vec![]));
            bench.run();
        }
        assert_eq!(bench.violations(), reported);
    }
}

#[test]
fn a_buffer_used_again_before_its_completion() {
    let (mut bench, a, _) = Bench::standard();
    let (from, to, key) = (bench.alloc(4096), bench.alloc(4096), bench.key);
    bench.write(from, b"first");
    bench.f.nic.faults.inject(Fault::Frame { fate: FrameFate::Lost, per_million: 1_000_000 }, Times::Count(1));
    bench.post(a, &write(from, 5, key, to, key));
    bench.run();
    bench.write(from, b"other");
    bench.run_for(std::time::Duration::from_millis(200));
    assert_eq!(bench.sent(a).len(), 1);
    assert_eq!(bench.violations(), [BUFFER_CHANGED]);
}

#[test]
fn a_buffer_used_again_before_its_completion_though_nothing_is_sent_twice() {
    let (mut bench, a, b) = Bench::standard();
    let (from, to, key) = (bench.alloc(1 << 20), bench.alloc(1 << 20), bench.key);
    for (len, at) in [(5, 0), (100_000, 0), (100_000, 99_999)] {
        bench.write(from, &vec![7; len]);
        bench.post(a, &write(from, len as u32, key, to, key));
        // Everything was sent; the last acknowledgement has not arrived.
        let all_sent = |send: &Requester| send.work.front().is_some_and(|work| work.end() == send.sent);
        while !all_sent(&bench.qp_mut(a).rc.send) {
            engine::run(&mut bench.f);
        }
        bench.write(from + at, b"o");
        bench.run();
        assert_eq!(bench.sent(a).len(), 1);
        assert_eq!(bench.violations(), [BUFFER_CHANGED], "{len} bytes, byte {at}");
        bench.write(from + at, b"again");
        bench.run();
        assert_eq!(bench.violations(), [""; 0], "complete: it is software's");
    }
    assert_eq!(bench.state(b), QpState::Rts);
}

#[test]
fn an_error_completion_ignored() {
    let (mut bench, a, _) = Bench::standard();
    let key = bench.key;
    bench.post(a, &write(MEMORY, 8, key, MEMORY, 0xbad));
    bench.run();
    assert_eq!(bench.state(a), QpState::Err);
    let flushed = |bench: &mut Bench| {
        for _ in 0..32 {
            bench.post(a, &Post::new(WqeOpcode::Nop, vec![]));
            bench.post_recv(a, &[]);
        }
        bench.run();
        bench.sent(a);
        bench.received(a);
        bench.violations().into_iter().filter(|rule| *rule != KEY).collect::<Vec<_>>()
    };
    assert_eq!([flushed(&mut bench), flushed(&mut bench)], [[""; 0]; 2], "a queue that is drained");
    assert_eq!(flushed(&mut bench), [ERROR_IGNORED; 2]);
    assert_eq!(flushed(&mut bench), [""; 0], "said once");
}

/// NOPs or receives one after the other, each consumed; publishes the consumer index if `publish`.
fn consume_many(publish: bool, receives: bool) -> (usize, Vec<&'static str>) {
    let (mut bench, a, b) = Bench::standard();
    let (key, qp) = (bench.key, bench.qp_mut(if receives { b } else { a }));
    let cqn = if receives { qp.cqn_recv } else { qp.cqn_send };
    let record = bench.f.nic.objects.cqs.get(cqn).unwrap().doorbell.iova;
    for count in 0..250 {
        bench.post_recv(b, &[data(MEMORY, 8, key)]);
        bench.post(a, &send(MEMORY, 8, key));
        bench.run();
        bench.sent(a);
        bench.received(b);
        if !publish {
            bench.write(record, &[0; 4]);
        }
        let said = bench.violations();
        if !said.is_empty() {
            return (count, said);
        }
    }
    (250, vec![])
}

#[test]
fn a_consumer_index_that_stays_behind_is_noticed_long_before_the_queue_is_full() {
    for receives in [false, true] {
        // 64 places in the ring and 256 in the CQ: the 193rd WQE reuses the place of the 129th.
        let (count, said) = consume_many(false, receives);
        assert_eq!(said, [CI_NEVER_PUBLISHED]);
        assert!((192..196).contains(&count), "{count}");
        assert_eq!(consume_many(true, receives), (250, vec![]));
    }
}

#[test]
fn a_consumer_index_far_ahead_of_a_queue_that_rests_is_not_behind() {
    let (mut bench, a, _) = Bench::standard();
    let cqn = bench.qp_mut(a).cqn_send;
    let nop = |bench: &mut Bench| {
        bench.post(a, &Post::new(WqeOpcode::Nop, vec![]));
        bench.run();
        bench.violations()
    };
    assert_eq!(nop(&mut bench), [""; 0]);
    // Other queues complete there meanwhile.
    let cq = bench.f.nic.objects.cqs.get_mut(cqn).unwrap();
    let (iova, later) = (cq.doorbell.iova, 0xd8f8);
    (cq.producer, cq.seen.consumer) = (later, later);
    for consumer in later..later + 100 {
        bench.write(iova, &consumer.to_be_bytes());
        assert_eq!(nop(&mut bench), [""; 0], "{consumer:#x}");
    }
}

#[test]
fn arming_with_a_consumer_index_that_is_not_published() {
    let (mut bench, a, _) = Bench::standard();
    let cqn = bench.qp_mut(a).cqn_send;
    bench.post(a, &Post::new(WqeOpcode::Nop, vec![]));
    bench.run();
    let record = bench.f.nic.objects.cqs.get(cqn).unwrap().doorbell.iova;
    bench.arm_at(cqn, 0, false, 1);
    assert_eq!(bench.violations(), [""; 0], "another thread is about to publish");
    bench.write(record, &1u32.to_be_bytes());
    bench.arm_at(cqn, 1, false, 1);
    assert_eq!(bench.violations(), [""; 0]);
    bench.write(record, &[0; 4]);
    bench.arm_at(cqn, 2, false, 1);
    assert_eq!(bench.violations(), [CI_NOT_IN_RECORD]);
}

#[test]
fn a_segment_of_zero_bytes() {
    let (mut bench, a, _) = Bench::standard();
    let key = bench.key;
    bench.post(a, &send(MEMORY, 0, key));
    bench.run();
    assert!(bench.violations().contains(&ZERO_SEGMENT));
}

#[test]
fn an_event_queues_consumer_index_out_of_range() {
    let (mut bench, _, _) = Bench::standard();
    let eqn = bench.eq(4, &[]);
    engine::eq_doorbell(&mut bench.f, UAR, eqn << 24 | 5, false);
    assert_eq!(bench.violations(), [EQ_CI]);
}

#[test]
fn a_gid_index_without_a_gid() {
    let (mut bench, a, _) = Bench::standard();
    let key = bench.key;
    bench.qp_mut(a).path.src_addr_index = 5;
    bench.post(a, &write(MEMORY, 8, key, MEMORY, key));
    bench.run();
    assert_eq!(bench.violations(), [EMPTY_GID]);
}

#[test]
fn a_key_of_another_domain_is_named() {
    let (mut bench, a, _) = Bench::standard();
    let key = bench.mkey(MEMORY, None, ALL);
    bench.mkey_mut(key).pd = 99;
    bench.post(a, &write(MEMORY, 8, key, MEMORY, key));
    bench.run();
    let said = bench.f.nic.strict.take();
    assert_eq!(said[0].rule, KEY);
    assert!(said[0].detail.contains("protection domain 99"), "{}", said[0].detail);
}

#[test]
fn an_arm_request_that_is_in_the_register_alone() {
    let (mut bench, a, _) = Bench::standard();
    let eqn = bench.eq(4, &[]);
    let cqn = bench.qp_mut(a).cqn_send;
    bench.f.nic.objects.cqs.get_mut(cqn).unwrap().eqn = eqn;
    let nop = |bench: &mut Bench| {
        bench.post(a, &Post::new(WqeOpcode::Nop, vec![]));
        bench.run();
        bench.sent(a);
        bench.event(eqn).is_some()
    };
    bench.arm(cqn, 0, false);
    assert!(nop(&mut bench));
    assert_eq!(bench.violations(), [""; 0]);
    // The record still has the request from before the event.
    engine::cq_doorbell(&mut bench.f, UAR, 1 << 60 | 1 << 32 | u64::from(cqn));
    assert_eq!(bench.violations(), [ARM_NOT_IN_RECORD]);
    assert!(nop(&mut bench), "a card arms by the register");
}

#[test]
fn a_newer_request_in_the_record_is_no_mistake() {
    let (mut bench, a, _) = Bench::standard();
    let cqn = bench.qp_mut(a).cqn_send;
    let iova = bench.f.nic.objects.cqs.get(cqn).unwrap().doorbell.iova;
    bench.write(iova, &9u32.to_be_bytes());
    for (record, register) in [(1u32 << 28 | 5, 4u32), (7, 5), (0, 3 << 28 | 9), (1 << 24 | 5, 5)] {
        bench.write(iova + 4, &record.to_be_bytes());
        engine::cq_doorbell(&mut bench.f, UAR, u64::from(register) << 32 | u64::from(cqn));
    }
    assert_eq!(bench.violations(), [""; 0]);
}

#[test]
fn a_receive_posted_in_rst() {
    let mut bench = Bench::new();
    let shape = bench.shape();
    let a = bench.qp(shape);
    bench.post_recv(a, &[]);
    bench.go(a, QpState::Init);
    assert_eq!(bench.violations(), [RECEIVE_IN_RST]);
}

#[test]
fn a_forgotten_doorbell_is_not_made_up_for_where_none_is_lost() {
    let mut bench = Bench::new();
    bench.f.bar = crate::bar::Bar::new(&bench.f.nic.profile);
    let shape = bench.shape();
    let (a, b) = bench.pair(shape);
    let key = bench.key;
    bench.put(a, &write(MEMORY, 8, key, MEMORY, key));
    bench.record(a, 1, 1);
    bench.post(b, &write(MEMORY, 8, key, MEMORY, key));
    bench.run();
    assert_eq!((bench.sent(a).len(), bench.sent(b).len()), (0, 1));
    bench.ring_for(a, 0);
    bench.run();
    assert_eq!(bench.sent(a).len(), 1);
}

#[test]
fn a_receive_buffer_posted_twice() {
    let (mut bench, a, b) = Bench::standard();
    bench.f.nic.strict.watch_receives();
    let (first, second, key) = (bench.alloc(4096), bench.alloc(4096), bench.key);
    let receive = |bench: &mut Bench, from: u32, to: u32| {
        bench.post(from, &send(MEMORY, 8, key));
        bench.run();
        assert_eq!((bench.received(to).len(), bench.sent(from).len()), (1, 1));
        bench.violations()
    };
    // Posted again after its completion, as it should be.
    for _ in 0..200 {
        bench.post_recv(b, &[data(first, 8, key), data(second, 8, key)]);
        assert_eq!(receive(&mut bench, a, b), [""; 0]);
    }
    // Parts of one page, and empty segments.
    bench.post_recv(b, &[data(first, 8, key), data(first + 8, 8, key)]);
    bench.post_recv(b, &[data(first + 16, 8, key)]);
    assert_eq!([receive(&mut bench, a, b), receive(&mut bench, a, b)], [[""; 0]; 2]);
    bench.post_recv(b, &[data(first, 8, key)]);
    bench.post_recv(b, &[data(second, 8, key), data(first, 8, key)]);
    assert_eq!(receive(&mut bench, a, b), [RECEIVE_TWICE]);
    assert_eq!(receive(&mut bench, a, b), [""; 0], "said once");
    // The other queue pair's buffers.
    bench.post_recv(b, &[data(second, 64, key)]);
    bench.post_recv(b, &[data(first, 64, key)]);
    assert_eq!(receive(&mut bench, a, b), [""; 0]);
    bench.post_recv(a, &[data(first, 64, key)]);
    assert_eq!(receive(&mut bench, b, a), [RECEIVE_TWICE]);
    // Buffers of a queue pair that went back to RST belong to software.
    bench.go(b, QpState::Rst);
    bench.post_recv(a, &[data(first, 64, key)]);
    assert!(bench.f.nic.strict.take().is_empty());
}
