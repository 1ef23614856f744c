//! Which frames are received, in which buffers, and what becomes of those that find none.

use mlx5_dv::objects::{ExclusiveRegion, Pd, QueueCounter};
use mlx5_dv::queue::ethernet::{EthernetOptions, FrameFlags, StridingOptions, StridingQueue};
use mlx5_dv::{Mac, Promiscuous};
use mlx5_open::Sim;

use crate::ends::{EthernetEnd, SOON, end, refusal, two_of};

#[test]
fn frames_that_find_no_receive_are_counted() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let mut here = EthernetEnd::new(&sim, 0, EthernetOptions::default());
    let device = sim.open(1).unwrap();
    let counter = QueueCounter::alloc(&device).unwrap();
    let mut options = EthernetOptions::default();
    options.counter = Some(counter.clone());
    let pd = Pd::alloc(&device).unwrap();
    let mut queue = mlx5_dv::queue::ethernet::EthernetQueue::new(&pd, options).unwrap();
    queue.listen(&[]).unwrap();
    for buffer in ExclusiveRegion::allocate(&pd, 4096).unwrap().buffers(2048).unwrap() {
        queue.receive(buffer).unwrap();
    }
    let frame = here.frame(device.mac(), &[1; 60]);
    (0..5).for_each(|_| here.send(&frame));
    for _ in 0..2 {
        assert_eq!(queue.wait(SOON).unwrap().received(), Some(&frame[..]));
    }
    // The sender's completion may come before the frame is at its end.
    let begin = std::time::Instant::now();
    while counter.out_of_buffer().unwrap() < 3 && begin.elapsed() < SOON {
        std::thread::yield_now();
    }
    assert_eq!(counter.out_of_buffer().unwrap(), 3);
    let text = QueueCounter::destroy(counter).unwrap_err().to_string();
    assert!(text.contains("in use"), "{text}");
    assert_eq!(sim.violations(), []);
}

#[test]
fn frames_that_find_no_stride_are_counted() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let mut here = EthernetEnd::new(&sim, 0, EthernetOptions::default());
    let device = sim.open(1).unwrap();
    let counter = QueueCounter::alloc(&device).unwrap();
    let mut options = StridingOptions::default();
    options.strides = mlx5_dv::objects::Strides::new(64, 512);
    (options.posted, options.spare, options.counter) = (1, 0, Some(counter.clone()));
    let mut queue = StridingQueue::new(&Pd::alloc(&device).unwrap(), options).unwrap();
    queue.listen(&[]).unwrap();
    let frame = here.frame(device.mac(), &[1; 1486]);
    // 24 strides each: 21 frames fit.
    (0..25).for_each(|_| here.send(&frame));
    let packets: Vec<_> = (0..21).map(|_| queue.wait(SOON).unwrap()).collect();
    assert!(packets.iter().all(|packet| packet[..] == frame[..]));
    let begin = std::time::Instant::now();
    while counter.out_of_buffer().unwrap() < 4 && begin.elapsed() < SOON {
        std::thread::yield_now();
    }
    assert_eq!(counter.out_of_buffer().unwrap(), 4);
}

#[test]
fn headers_and_payloads_go_to_buffers_of_their_own() {
    let mut options = EthernetOptions::default();
    (options.recv_sges, options.send_sges) = (2, 3);
    let (sim, mut here, mut there) = two_of(Sim::builder(), options);
    let headers = ExclusiveRegion::allocate(&there.pd, 4 * 64).unwrap().buffers(64).unwrap();
    let payloads = ExclusiveRegion::allocate(&there.pd, 4 * 2048).unwrap().buffers(2048).unwrap();
    for (header, payload) in headers.into_iter().zip(payloads) {
        there.queue.receives().receive_all(&mut vec![header, payload]).unwrap();
    }
    let payload: Vec<u8> = (0..1000u32).map(|at| at as u8).collect();
    let frame = here.frame(there.device.mac(), &payload);
    let mut parts = Vec::new();
    for (index, part) in [&frame[..14], &frame[14..100], &frame[100..]].into_iter().enumerate() {
        let mut buffer = here.buffer(index);
        buffer.write(0, part);
        buffer.set_len(part.len());
        parts.push(buffer);
    }
    let ticket = here.queue.batch().send_all(&mut parts, FrameFlags::empty()).unwrap();
    for _ in 0..3 {
        let done = here.queue.wait(SOON).unwrap();
        assert_eq!((done.ticket, done.result.map(|_| ()).is_ok()), (ticket, true));
    }
    let (first, second) = (there.queue.wait(SOON).unwrap(), there.queue.wait(SOON).unwrap());
    assert_eq!((first.ticket, first.received()), (second.ticket, Some(&frame[..64])));
    assert_eq!(second.received(), Some(&frame[64..]));
    drop((first, second));
    // One that fits the first buffer leaves the second empty.
    let short = here.frame(there.device.mac(), &[9; 46]);
    here.send(&short);
    let (first, second) = (there.queue.wait(SOON).unwrap(), there.queue.wait(SOON).unwrap());
    assert_eq!((first.received(), second.received()), (Some(&short[..]), Some(&[][..])));
    drop((first, second));
    let mut more: Vec<_> = (0..4).map(|index| here.buffer(index)).collect();
    more.iter_mut().for_each(|buffer| buffer.set_len(100));
    let refused = here.queue.batch().send_all(&mut more, FrameFlags::empty()).unwrap_err().to_string();
    assert_eq!(more.len(), 4);
    drop(more);
    assert!(refused.contains("this queue supports 3"), "{refused}");
    end(sim, [here, there], &[]);
}

#[test]
fn quiet_frames_complete_with_the_next_that_is_not() {
    let (sim, mut here, mut there) = two_of(Sim::builder(), EthernetOptions::default());
    there.post(8);
    let mut tickets = Vec::new();
    let buffers: Vec<_> = (0..4u8)
        .map(|index| {
            let (mut buffer, frame) = (here.buffer(index.into()), here.frame(there.device.mac(), &[index; 60]));
            buffer.write(0, &frame);
            buffer.set_len(frame.len());
            buffer
        })
        .collect();
    let mut batch = here.queue.batch();
    batch.quiet();
    for (index, buffer) in buffers.into_iter().enumerate() {
        if index == 3 {
            batch.signalled();
        }
        tickets.push(batch.send(buffer, FrameFlags::empty()).unwrap());
    }
    batch.ring();
    for index in 0..4 {
        let heard = there.queue.wait(SOON).unwrap();
        assert_eq!(crate::ends::content(heard)[14..], [index; 60]);
    }
    for ticket in tickets {
        let done = here.queue.wait(SOON).unwrap();
        assert_eq!((done.ticket, done.buffer.is_some()), (ticket, true));
        done.result.unwrap();
    }
    assert_eq!(here.queue.in_flight().0, 0);
    end(sim, [here, there], &[]);
}

/// Two functions; the second has posted receives, and no rules.
fn bare() -> (Sim, EthernetEnd, EthernetEnd) {
    let sim = Sim::builder().functions(2).build().unwrap();
    let (here, mut there) =
        (EthernetEnd::new(&sim, 0, EthernetOptions::default()), EthernetEnd::new(&sim, 1, EthernetOptions::default()));
    there.post(30);
    (sim, here, there)
}

#[test]
fn a_promiscuous_function_hears_frames_for_others_until_it_stops() {
    let (sim, mut here, mut there) = bare();
    there.queue.listen_to_all().unwrap();
    let stranger = Mac([2, 0, 0, 0, 0, 0x77]);
    for to in [there.device.mac(), stranger, Mac::BROADCAST, Mac([1, 0, 0x5e, 1, 2, 3])] {
        let frame = here.frame(to, &[3; 60]);
        here.send(&frame);
        assert_eq!(there.heard(), frame);
    }
    there.queue.listen(&[]).unwrap();
    // What is heard next is not the one for the stranger.
    let (unheard, heard) = (here.frame(stranger, &[4; 60]), here.frame(there.device.mac(), &[5; 60]));
    here.send(&unheard);
    here.send(&heard);
    assert_eq!(there.heard(), heard);
    end(sim, [here, there], &[]);
}

#[test]
fn all_multicast_frames_or_other_unicast_ones_are_heard_where_a_rule_takes_them() {
    use mlx5_dv::objects::{FlowGroup, FlowMatch, FlowRule, FlowTable};
    let (sim, mut here, mut there) = bare();
    let table = FlowTable::create(&there.device, 0, 1).unwrap();
    let group = FlowGroup::create(&table, 0..1, &FlowMatch::new()).unwrap();
    let rule = FlowRule::create(&group, &FlowMatch::new(), there.queue.tir()).unwrap();
    table.set_root().unwrap();
    let (own, other) = (there.device.mac(), Mac([2, 0, 0, 0, 0, 0x78]));
    let group_of = Mac([1, 0, 0x5e, 1, 2, 3]);
    let mut number = 0;
    let mut hears = |here: &mut EthernetEnd, there: &mut EthernetEnd, to: Mac| {
        number += 1;
        let (frame, last) = (here.frame(to, &[number; 60]), here.frame(own, &[number; 61]));
        here.send(&frame);
        here.send(&last);
        let first = there.heard();
        let heard = first == frame;
        assert!(heard || first == last);
        if heard {
            assert_eq!(there.heard(), last);
        }
        heard
    };
    let (here, there) = (&mut here, &mut there);
    there.device.set_promiscuous(Promiscuous::MULTICAST).unwrap();
    assert!(hears(here, there, group_of) && !hears(here, there, other));
    there.device.set_promiscuous(Promiscuous::empty()).unwrap();
    assert!(!hears(here, there, group_of));
    // More addresses of its own.
    there.device.set_unicast(&[other, Mac([2, 0, 0, 0, 0, 0x79])]).unwrap();
    assert!(hears(here, there, other) && hears(here, there, own));
    there.device.set_unicast(&[]).unwrap();
    assert!(!hears(here, there, other));
    let text = refusal(there.device.set_unicast(&[group_of]));
    assert!(text.contains("unicast address"), "{text}");
    drop((rule, group, table));
    assert_eq!(sim.violations(), []);
}
