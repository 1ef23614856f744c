//! Invalid requests are refused before the card sees them, with the argument's name.

use mlx5_dv::Mac;
use mlx5_dv::objects::{
    FlowGroup, FlowMatch, FlowMatcher, FlowRule, FlowTable, Pd, Rq, RqOptions, Sq, SqOptions, Tis, TisOptions,
    TransportDomain, Uar,
};
use mlx5_dv::queue::ethernet::{EthernetOptions, EthernetQueue, FrameFlags};
use mlx5_dv::queue::{AnyDoorbell, CompletionQueue, DataSegment, PostError, RefusedReason};
use mlx5_open::Sim;
use mlx5_sim::profile::Profile;

use crate::ends::{EthernetEnd, end, refusal, two, two_of};

#[test]
fn queues_are_had_in_their_state_and_once() {
    let (sim, here, there) = two();
    let uar = Uar::alloc(&here.device).unwrap();
    let cq = CompletionQueue::create(&uar, Default::default()).unwrap();
    let tis = Tis::create(&TransportDomain::alloc(&here.device).unwrap(), 7).unwrap();
    let sq = Sq::create(&here.pd, &uar, &tis, cq.cq(), SqOptions::default()).unwrap();
    let rq = Rq::create(&here.pd, cq.cq(), RqOptions::default()).unwrap();

    let text = refusal(sq.send_queue::<AnyDoorbell>());
    assert!(text.contains("is in RST, and send_queue needs RDY; first call ready"), "{text}");
    let text = refusal(rq.to_error());
    assert!(text.contains("to_error needs RDY"), "{text}");
    sq.ready().unwrap();
    assert!(refusal(sq.ready()).contains("ready needs RST; first call reset"));
    let queue = sq.send_queue::<AnyDoorbell>().unwrap();
    assert!(refusal(sq.send_queue::<AnyDoorbell>()).contains("was handed out already"));
    assert!(refusal(sq.reset()).contains("while its queue is in use"));
    drop(queue);
    assert!(refusal(sq.send_queue::<AnyDoorbell>()).ends_with("first"));
    sq.reset().unwrap();
    let receive = rq.receive_queue().unwrap();
    assert!(refusal(rq.reset()).contains("while its queue is in use"));
    drop(receive);
    assert!(refusal(rq.receive_queue()).ends_with("first"));

    assert!(refusal(Tis::create(tis.transport_domain(), 8)).contains("priority"));
    let second = TisOptions::default().lag_port(2);
    assert!(refusal(Tis::with_options(tis.transport_domain(), second)).contains("num_lag_ports"));
    let other = Uar::alloc(&there.device).unwrap();
    assert!(refusal(Sq::create(&here.pd, &other, &tis, cq.cq(), SqOptions::default())).contains("one device"));
    let held = Tis::destroy(tis).unwrap_err();
    assert!(held.to_string().contains("in use"), "{held}");
    Sq::destroy(sq).unwrap();
    Tis::destroy(held.object).unwrap();
    Rq::destroy(rq).unwrap();
    cq.destroy().unwrap();
    drop((uar, other));
    end(sim, [here, there], &[]);
}

#[test]
fn frames_that_the_port_does_not_pass_are_not_posted() {
    let (sim, mut here, there) = two();
    let most = here.queue.sq().longest_frame();
    assert!(most >= 1514);
    let refused = here.queue.send_inline(&[0; 13], FrameFlags::empty()).unwrap_err();
    let expected = PostError::FrameLength { given: 13, least: 14, most: most as u64 };
    assert_eq!(refused.reason, RefusedReason::Post(expected));
    let refused = here.queue.send_inline(&[0; 19], FrameFlags::empty()).unwrap_err();
    assert_eq!(refused.reason, RefusedReason::Post(PostError::FrameInlineTooLong { given: 19, most: 18 }));
    assert!(refused.to_string().contains("19 bytes") && refused.to_string().contains("SqOptions"), "{refused}");
    let long = here.region.buffer(0..most + 1).unwrap();
    let refused = here.queue.send(long, FrameFlags::empty()).unwrap_err();
    assert!(refused.to_string().contains("see Options::mtu"), "{refused}");
    assert_eq!((refused.buffer.unwrap().len(), here.queue.in_flight()), (most + 1, (0, 0)));
    end(sim, [here, there], &[]);
}

#[test]
fn a_card_whose_least_stride_is_beyond_its_most_is_refused_by_the_capabilitys_name() {
    for least in [16, 31] {
        let mut profile = Profile::default();
        profile.general_max.w().log_min_stride_sz_rq(least);
        profile.general_current.w().log_min_stride_sz_rq(least);
        let sim = Sim::builder().profile(profile).build().unwrap();
        let pd = Pd::alloc(&sim.open(0).unwrap()).unwrap();
        let refused = EthernetQueue::new(&pd, EthernetOptions::default()).unwrap_err().to_string();
        assert!(refused.contains("log_min_stride_sz_rq") && refused.contains(&least.to_string()), "{refused}");
    }
}

#[test]
fn a_header_that_the_card_wants_inlined_must_be() {
    let mut profile = Profile::default();
    profile.ethernet.w().wqe_inline_mode(0).csum_cap(false);
    let (sim, here, there) = two_of(Sim::builder().profile(profile), EthernetOptions::default());
    let uar = Uar::alloc(&here.device).unwrap();
    let cq = CompletionQueue::create(&uar, Default::default()).unwrap();
    let tis = Tis::create(&TransportDomain::alloc(&here.device).unwrap(), 0).unwrap();
    let sq = Sq::create(&here.pd, &uar, &tis, cq.cq(), SqOptions::default().inline_bytes(0)).unwrap();
    sq.ready().unwrap();
    let mut queue = sq.send_queue::<AnyDoorbell>().unwrap();
    let rest = [DataSegment { addr: here.region.addr(), len: 100, lkey: here.region.lkey() }];
    let mut batch = queue.batch();
    // SAFETY: the batch is never rung.
    unsafe {
        let none = batch.send(1, FrameFlags::empty(), &[], &rest);
        assert_eq!(none, Err(PostError::HeaderTooShort { given: 0, least: 18 }));
        assert_eq!(batch.send(1, FrameFlags::empty(), &[0; 18], &rest), Ok(()), "room for it was made unasked");
        let summed = batch.send(1, FrameFlags::L3_CHECKSUM, &[0; 18], &rest);
        assert_eq!(summed, Err(PostError::NoChecksums));
    }
    drop(batch);
    drop((queue, sq, tis, cq, uar));
    end(sim, [here, there], &[]);
}

/// What is said of a frame of `start` inlined zeros and `rest` more bytes, where `headers` bytes must be inlined.
fn verdict(sq: &Sq, headers: usize, flags: FrameFlags, start: usize, rest: usize) -> Result<(), PostError> {
    const ROOM: usize = 40;
    let (given, longest) = (start + rest, sq.longest_frame());
    let least = headers.min(given).max(if start == 0 { 0 } else { 14 });
    let offloads =
        if sq.has_checksums() { FrameFlags::empty() } else { FrameFlags::L3_CHECKSUM | FrameFlags::L4_CHECKSUM };
    if start > ROOM {
        Err(PostError::FrameInlineTooLong { given: start, most: ROOM })
    } else if given < 14 || given > longest {
        Err(PostError::FrameLength { given: given as u64, least: 14, most: longest as u64 })
    } else if start < least {
        Err(PostError::HeaderTooShort { given: start, least })
    } else if flags.intersects(FrameFlags::INNER) {
        Err(PostError::NoTunnel)
    } else if flags.intersects(offloads) || !FrameFlags::all().contains(flags) {
        Err(PostError::NoChecksums)
    } else {
        Ok(())
    }
}

#[test]
fn a_frame_is_refused_for_its_length_its_headers_and_every_flag_alone_and_together() {
    for (mode, headers, checksums) in [(0, 18, false), (0, 18, true), (2, 0, false), (2, 0, true)] {
        let mut profile = Profile::default();
        profile.ethernet.w().wqe_inline_mode(mode).csum_cap(checksums);
        let (sim, here, there) = two_of(Sim::builder().profile(profile), EthernetOptions::default());
        let uar = Uar::alloc(&here.device).unwrap();
        let cq = CompletionQueue::create(&uar, Default::default()).unwrap();
        let tis = Tis::create(&TransportDomain::alloc(&here.device).unwrap(), 0).unwrap();
        let sq = Sq::create(&here.pd, &uar, &tis, cq.cq(), SqOptions::default().inline_bytes(40)).unwrap();
        sq.ready().unwrap();
        let mut queue = sq.send_queue::<AnyDoorbell>().unwrap();
        let most = sq.longest_frame();
        for start in [0, 1, 13, 14, 17, 18, 40, 41] {
            let beyond = most + 1 - start;
            for rest in [0, 1, 13, 14, 17, 18, 100, beyond - 1, beyond, 1 << 31, u32::MAX as usize] {
                let element = DataSegment { addr: here.region.addr(), len: rest as u32, lkey: here.region.lkey() };
                // Those without a name, too.
                for flags in (0..=u8::MAX).map(FrameFlags::from_bits_retain) {
                    // SAFETY: the batch is never rung.
                    let posted = unsafe { queue.batch().send(1, flags, &[0; 41][..start], &[element]) };
                    let expected = verdict(&sq, headers, flags, start, rest);
                    assert_eq!(posted, expected, "{start} and {rest} bytes, {flags:?}, mode {mode}, {checksums}");
                }
            }
        }
        drop((queue, sq, tis, cq, uar));
        end(sim, [here, there], &[]);
    }
}

#[test]
fn a_function_has_one_root_flow_table_at_a_time() {
    let (sim, here, there) = two();
    let second = FlowTable::create(&there.device, 0, 1).unwrap();
    let text = refusal(second.set_root());
    assert!(text.contains("is taken by flow table") && text.contains("destroy that first"), "{text}");
    let EthernetEnd { queue, region, pd, device } = there;
    drop(queue);
    second.set_root().unwrap();
    FlowTable::destroy(second).unwrap();
    let third = FlowTable::create(&device, 0, 1).unwrap();
    third.set_root().unwrap();
    drop((third, region, pd, device));
    drop(here);
    assert_eq!(sim.violations(), []);
}

#[test]
fn tables_groups_and_rules_keep_to_their_room() {
    let (sim, here, there) = two();
    assert!(refusal(FlowTable::create(&here.device, 0, 1 << 21)).contains("log_max_ft_size"));
    let table = FlowTable::create(&here.device, 3, 3).unwrap();
    assert_eq!(table.capacity(), 4);
    let value = FlowMatch::new().ethertype(0x0806);
    assert!(refusal(FlowGroup::create(&table, 2..5, &value)).contains("which has 4"));
    let group = FlowGroup::create(&table, 1..3, &value).unwrap();
    let other = value.clone().untagged();
    assert!(refusal(FlowRule::create(&group, &other, here.queue.tir())).contains("does not look at"));
    assert!(refusal(FlowRule::create(&group, &FlowMatch::new(), here.queue.tir())).contains("not all that it does"));
    assert!(refusal(FlowRule::create(&group, &value.clone().ipv4(), here.queue.tir())).contains("no frame has both"));
    let rules = [0, 1].map(|_| FlowRule::create(&group, &value, here.queue.tir()).unwrap());
    assert_eq!(rules.each_ref().map(FlowRule::index), [Some(1), Some(2)]);
    assert!(refusal(FlowRule::create(&group, &value, here.queue.tir())).contains("all 2 entries"));
    let [first, second] = rules;
    first.delete().unwrap();
    assert_eq!(FlowRule::create(&group, &value, here.queue.tir()).unwrap().index(), Some(1));
    assert!(refusal(FlowRule::create(&group, &value, there.queue.tir())).contains("one device"));
    let held = FlowGroup::destroy(group).unwrap_err();
    drop(second);
    FlowGroup::destroy(held.object).unwrap();
    FlowTable::destroy(table).unwrap();
    end(sim, [here, there], &[]);
}

#[test]
fn a_function_of_our_own_has_no_flow_matchers() {
    let (sim, here, there) = two();
    let criteria = FlowMatch::new();
    let text = refusal(FlowMatcher::create(&here.device, 0, &criteria));
    assert!(text.contains("function of our own") && text.contains("flow table"), "{text}");
    let text = refusal(FlowMatcher::create(&here.device, 16, &criteria));
    assert!(text.contains("priority is 16") && text.contains("at most 15"), "{text}");
    end(sim, [here, there], &[]);
}

#[test]
fn groups_are_multicast_addresses() {
    let (sim, here, mut there) = two();
    let text = refusal(there.queue.listen(&[Mac([2, 0, 0, 0, 0, 1])]));
    assert!(text.contains("02:00:00:00:00:01 is no multicast address"), "{text}");
    there.queue.listen(&[]).unwrap();
    end(sim, [here, there], &[]);
}
