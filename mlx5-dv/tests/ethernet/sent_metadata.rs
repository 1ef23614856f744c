//! What work requests tell flow rules of their frames (`flow_table_metadata`).

use std::cell::Cell;
use std::sync::Arc;

use mlx5_dv::Device;
use mlx5_dv::objects::{
    AccessFlags, Buffer, FlowActions, FlowCounter, FlowMatch, FlowRule, FlowRules, MemoryRegion, TunnelHeaders, VlanTag,
};
use mlx5_dv::queue::ethernet::{EthernetOptions, FrameBatch, FrameFlags};
use mlx5_open::Sim;
use mlx5_sim::profile::Profile;

use crate::ends::{BUFFER, EthernetEnd, SOON, end_in_peace, refusal, two_of};
use crate::fields::of_sent_frames;
use crate::in_place::reflected;
use crate::large::{ethernet, tcp};
use crate::sender::Sender;

const VALUE: u32 = 0xdead_0007;

/// Rules of a sender that count and drop what is sent with [`VALUE`], and with 0.
struct Counts {
    counters: [FlowCounter; 2],
    _made: [FlowRule; 2],
    _rules: FlowRules,
}

impl Counts {
    fn of(device: &Arc<Device>) -> Self {
        let rules = FlowRules::create(device, of_sent_frames()).unwrap();
        rules.start().unwrap();
        let counters = [(); 2].map(|()| FlowCounter::create(device).unwrap());
        let rule = |value: u32, counter| {
            let matched = FlowMatch::new().sent_metadata(value, u32::MAX);
            rules.add(0, &matched, FlowActions::drop().count(counter)).unwrap()
        };
        let made = [rule(VALUE, &counters[0]), rule(0, &counters[1])];
        Counts { counters, _made: made, _rules: rules }
    }

    /// Frames so far with [`VALUE`], and with 0.
    fn now(&self) -> [u64; 2] {
        [0, 1].map(|which: usize| self.counters[which].read().unwrap().packets)
    }
}

/// A frame, the headers of a TCP packet, and those of one in VXLAN; memory for them.
struct Contents {
    plain: Vec<u8>,
    tcp: Vec<u8>,
    vxlan: Vec<u8>,
    region: Arc<MemoryRegion>,
    next: Cell<usize>,
}

impl Contents {
    fn of(here: &EthernetEnd) -> Self {
        let mac = here.device.mac();
        let ip = [0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2];
        let datagram = [0x30, 0x39, 0x12, 0xb5, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 7, 0];
        let vxlan = [&ethernet(here, mac, 0x0800)[..], &ip, &datagram, &tcp(here, mac)].concat();
        let plain = here.frame(mac, &[7; 50]);
        Contents { plain, tcp: tcp(here, mac), vxlan, region: Arc::clone(&here.region), next: Cell::default() }
    }

    /// The next buffer, with `content` and `more` bytes.
    fn buffer(&self, content: &[u8], more: usize) -> Buffer {
        let index = self.next.replace((self.next.get() + 1) % 32);
        let mut buffer = self.region.buffer(index * BUFFER..(index + 1) * BUFFER).unwrap();
        buffer.write(0, content);
        buffer.set_len(content.len() + more);
        buffer
    }
}

/// A way to send, and how many frames it sends.
type Way = fn(&mut FrameBatch<'_>, &Contents) -> u64;

const WAYS: [Way; 7] = [
    |batch, contents| {
        batch.send(contents.buffer(&contents.plain, 0), FrameFlags::empty()).unwrap();
        1
    },
    |batch, contents| {
        batch.send_inline(&contents.plain, FrameFlags::empty()).unwrap();
        1
    },
    |batch, contents| {
        batch.send_tagged(contents.buffer(&contents.plain, 0), FrameFlags::empty(), VlanTag::new(7)).unwrap();
        1
    },
    |batch, contents| {
        batch.send_large(contents.buffer(&contents.tcp, 1000), contents.tcp.len(), 100).unwrap();
        10
    },
    |batch, contents| {
        let tunnel = TunnelHeaders::of(&contents.vxlan).unwrap();
        batch.send_in_tunnel(contents.buffer(&contents.vxlan, 10), FrameFlags::INNER, &tunnel).unwrap();
        1
    },
    |batch, contents| {
        let tunnel = TunnelHeaders::of(&contents.vxlan).unwrap();
        batch.send_large_in_tunnel(contents.buffer(&contents.vxlan, 500), FrameFlags::empty(), &tunnel, 100).unwrap();
        5
    },
    |batch, contents| {
        let mut buffers = (0..3).map(|_| contents.buffer(&contents.plain, 0)).collect();
        batch.send_each(&mut buffers, FrameFlags::empty()).unwrap();
        3
    },
];

#[test]
fn each_way_to_send_bears_the_metadata_of_its_batch() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let mut options = EthernetOptions::default();
    options.inline_bytes = 200;
    let mut here = EthernetEnd::new(&sim, 0, options);
    let counts = Counts::of(&here.device);
    let contents = Contents::of(&here);
    for (number, way) in WAYS.into_iter().enumerate() {
        let before = counts.now();
        let mut batch = here.queue.batch();
        let plain = way(&mut batch, &contents);
        batch.flow_metadata(VALUE);
        let marked = way(&mut batch, &contents);
        batch.ring();
        while here.queue.in_flight() != (0, 0) {
            here.queue.wait(SOON).unwrap().result.unwrap();
        }
        let after = counts.now();
        assert_eq!([after[0] - before[0], after[1] - before[1]], [marked, plain], "way {number}");
    }
    drop((counts, contents));
    end_in_peace(&sim, here);
}

#[test]
fn all_frames_of_a_multi_packet_work_request_bear_it() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let mut here = Sender::new(&sim, 64);
    let counts = Counts::of(here.pd.device());
    let mac = here.pd.device().mac().0;
    let frame = [&mac[..], &mac, &[0x88, 0xb5], &[7; 50]].concat();
    let pool = MemoryRegion::allocate(&here.pd, 4096, AccessFlags::LOCAL_WRITE).unwrap();
    pool.write(0, &frame);
    let source = here.queue.sq().source(&pool).unwrap();
    for round in 0..40 {
        let mut batch = here.queue.batch();
        batch.flow_metadata(VALUE);
        // SAFETY: the pool outlives the frames.
        unsafe { batch.send_several(0, FrameFlags::empty(), &[pool.segment(0..64), pool.segment(0..64)]).unwrap() };
        batch.send_several_inline(0, FrameFlags::empty(), &[&frame, &frame]).unwrap();
        let mut copies = batch.copies(0, FrameFlags::empty()).unwrap();
        (0..20).for_each(|_| copies.push(&frame).unwrap());
        copies.end();
        batch.flow_metadata(0);
        let mut pointers = batch.pointers(&source, 9, FrameFlags::SIGNALLED).unwrap();
        (0..20).for_each(|_| pointers.push(0..64).unwrap());
        pointers.end();
        batch.ring();
        here.completes(9);
        assert_eq!(counts.now(), [24 * (round + 1), 20 * (round + 1)]);
    }
    drop((counts, source, pool));
    end_in_peace(&sim, here);
}

#[test]
fn a_forwarder_s_frames_bear_it() {
    let (sim, mut here, mut there) = reflected(4);
    let counts = Counts::of(there.device());
    let frame = here.frame(there.device().mac(), &[7; 50]);
    here.send(&frame);
    there.reflect(1);
    there.flow_metadata(VALUE);
    here.send(&frame);
    here.send(&frame);
    there.reflect(2);
    // Only a doorbell has told the card of the last.
    let deadline = std::time::Instant::now() + SOON;
    while counts.now() != [2, 1] {
        assert!(std::time::Instant::now() < deadline, "{:?}", counts.now());
    }
    drop((counts, there));
    end_in_peace(&sim, here);
}

#[test]
fn a_card_without_it_and_tables_of_received_frames_refuse_to_match_it() {
    let mut profile = Profile::connectx5();
    let mut tables = *profile.flow_table.flow_table_properties_nic_transmit();
    tables.w().metadata_reg_a_width(16);
    profile.flow_table.w().flow_table_properties_nic_transmit(&tables);
    let (sim, here, there) = two_of(Sim::builder().profile(profile), EthernetOptions::default());
    let received = FlowRules::create(&here.device, Default::default()).unwrap();
    let sent = FlowRules::create(&here.device, of_sent_frames()).unwrap();
    let matched = |mask| FlowMatch::new().sent_metadata(VALUE, mask);
    let text = refusal(received.add(0, &matched(1), FlowActions::drop()));
    assert!(text.contains("nic_receive.metadata_reg_a_width"), "{text}");
    let rule = sent.add(0, &matched(0xffff), FlowActions::drop()).unwrap();
    refusal(sent.add(0, &matched(u32::MAX), FlowActions::drop()));
    drop((rule, sent, received));
    end_in_peace(&sim, [here, there]);
}
