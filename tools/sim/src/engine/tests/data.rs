//! Successful messages.

use mlx5_prm::cqe::{CqeOpcode, CqeSyndrome};
use mlx5_prm::ctx::{AccessMode, Mkc};
use mlx5_prm::values::{PathMtu, QpState};
use mlx5_prm::wqe::WqeOpcode;

use super::bench::*;
use crate::bar;
use crate::card::Wire;
use crate::engine;
use crate::objects::{Mkey, NULL_LKEY, PageList, Translation};
use crate::strict::rules;
use crate::wire::SocketUplink;

#[test]
fn a_send_fills_a_receive() {
    let (mut bench, a, b) = Bench::standard();
    let (from, to, key) = (bench.alloc(4096), bench.alloc(4096), bench.key);
    bench.write(from, b"hello, other side");
    bench.post_recv(b, &[data(to, 6, key), data(to + 100, 1000, key)]);
    bench.post(a, &send(from, 17, key));
    bench.run();
    assert_eq!(bench.read(to, 7), b"hello,\0");
    assert_eq!(bench.read(to + 100, 11), b" other side");
    let done = bench.received(b);
    assert_eq!((done.len(), done[0].opcode, done[0].len, done[0].qpn), (1, CqeOpcode::ResponderSend, 17, b));
    let done = bench.sent(a);
    assert_eq!((done.len(), done[0].opcode, done[0].index, done[0].qpn), (1, CqeOpcode::Requester, 0, a));
    assert_eq!(bench.violations(), [""; 0]);
}

#[test]
fn every_length_around_the_mtu_arrives_by_each_operation() {
    let (mut bench, a, b) = Bench::standard();
    let (from, to, back) = (bench.alloc(8192), bench.alloc(8192), bench.alloc(8192));
    let key = bench.key;
    for (round, len) in [0u32, 1, 3, 4, 5, 1023, 1024, 1025, 2047, 2048, 2049, 5000].into_iter().enumerate() {
        let bytes = pattern(len as usize, round as u8);
        let segs = |to| if len == 0 { vec![] } else { vec![Seg::Data(to, len, key)] };
        bench.write(from, &bytes);
        bench.post_recv(b, &[data(to, 8000, key)]);
        bench.post(a, &Post::new(WqeOpcode::Send, segs(from)));
        bench.run();
        assert_eq!(bench.read(to, len as usize), bytes, "send of {len}");
        let with = |mut all: Vec<Seg>| {
            all.insert(0, Seg::Remote(back, key));
            all
        };
        bench.post(a, &Post::new(WqeOpcode::RdmaWrite, with(segs(from))));
        bench.run();
        assert_eq!(bench.read(back, len as usize), bytes, "write of {len}");
        bench.write(to, &vec![0xa5; 8000]);
        bench.post(a, &Post::new(WqeOpcode::RdmaRead, with(segs(to))));
        bench.run();
        assert_eq!(bench.read(to, len as usize), bytes, "read of {len}");
        assert_eq!(bench.read(to + u64::from(len), 8), [0xa5; 8], "read of {len} wrote too far");
        assert_eq!(bench.sent(a).len(), 3);
        assert_eq!(bench.received(b).len(), 1);
    }
    assert_eq!(bench.violations(), [""; 0]);
}

#[test]
fn immediate_data_and_solicited_events_travel() {
    let (mut bench, a, b) = Bench::standard();
    let (from, to, key) = (bench.alloc(8192), bench.alloc(8192), bench.key);
    bench.post_recv(b, &[data(to, 4096, key)]);
    bench.post_recv(b, &[]);
    let mut post = send(from, 3000, key);
    (post.opcode, post.immediate, post.solicited) = (WqeOpcode::SendImm, 0x11223344, true);
    bench.post(a, &post);
    let mut post = write(from, 2500, key, to, key);
    (post.opcode, post.immediate) = (WqeOpcode::RdmaWriteImm, 0xaabbccdd);
    bench.post(a, &post);
    bench.run();
    let done = bench.received(b);
    assert_eq!(
        done.iter().map(|done| done.opcode).collect::<Vec<_>>(),
        [CqeOpcode::ResponderSendImm, CqeOpcode::ResponderWriteImm]
    );
    assert_eq!((done[0].immediate, done[0].len, done[0].se), (0x11223344, 3000, true));
    assert_eq!((done[1].immediate, done[1].len, done[1].se), (0xaabbccdd, 2500, false));
    assert_eq!(bench.sent(a).len(), 2);
}

#[test]
fn inline_data_over_several_wqebbs() {
    let (mut bench, a, b) = Bench::standard();
    let (to, key) = (bench.alloc(4096), bench.key);
    let bytes = pattern(300, 9);
    // Rings of 64 entries: this wraps many times, with a WQE that straddles the end.
    for _ in 0..100 {
        bench.post_recv(b, &[data(to, 4096, key)]);
        bench.post(
            a,
            &Post::new(WqeOpcode::Send, vec![Seg::Inline(bytes[..100].to_vec()), Seg::Inline(bytes[100..].to_vec())]),
        );
        bench.run();
        assert_eq!(bench.read(to, 300), bytes);
        assert_eq!(bench.sent(a).len(), 1);
        assert_eq!(bench.received(b)[0].len, 300);
        bench.write(to, &[0; 300]);
    }
    assert_eq!(bench.violations(), [""; 0]);
}

#[test]
fn counters_of_16_bits_wrap_and_so_do_psns_and_rings() {
    let (mut bench, a, b) = Bench::standard();
    let (from, to, key) = (bench.alloc(4096), bench.alloc(4096), bench.key);
    let rounds = 70_000u32;
    for round in 0..rounds {
        bench.post_recv(b, &[data(to, 64, key)]);
        bench.write(from, &round.to_be_bytes());
        let mut post = send(from, 4, key);
        post.signalled = round % 32 == 31;
        bench.post(a, &post);
        bench.run();
        assert_eq!(bench.received(b).len(), 1);
        let done = bench.sent(a);
        assert_eq!(done.len(), usize::from(post.signalled));
        assert!(done.iter().all(|done| done.index == round as u16));
    }
    assert_eq!(bench.read(to, 4), (rounds - 1).to_be_bytes());
    assert_eq!(bench.violations(), [""; 0]);
}

#[test]
fn one_doorbell_for_a_full_ring_of_unsignalled_work() {
    let (mut bench, a, b) = Bench::standard();
    let (from, to, key) = (bench.alloc(8192), bench.alloc(65536 * 4), bench.key);
    let bytes = pattern(4000, 1);
    bench.write(from, &bytes);
    let mut last = 0;
    for index in 0..64 {
        let mut post = write(from, 4000, key, to + index * 4000, key);
        post.signalled = index == 63;
        last = bench.put(a, &post);
    }
    let posted = bench.posted(a);
    bench.record(a, 1, posted.into());
    bench.ring_for(a, last);
    bench.run();
    let done = bench.sent(a);
    assert_eq!((done.len(), done[0].index), (1, 63));
    for index in 0..64 {
        assert_eq!(bench.read(to + index * 4000, 4000), bytes);
    }
    assert!(bench.received(b).is_empty());
    assert_eq!(bench.violations(), [""; 0]);
}

#[test]
fn reads_are_bounded_and_a_fence_waits_for_them() {
    let (mut bench, a, b) = Bench::standard();
    let (here, there, key) = (bench.alloc(65536), bench.alloc(65536), bench.key);
    bench.write(there, &pattern(60000, 3));
    for index in 0..20 {
        bench.post(a, &read(here + index * 3000, 3000, key, there + index * 3000, key));
    }
    let mut fenced = write(here + 59_000, 100, key, there + 64_000, key);
    fenced.fence = true;
    bench.post(a, &fenced);
    let mut most = 0;
    for _ in 0..10_000 {
        engine::run(&mut bench.f);
        most = most.max(bench.qp_mut(a).rc.send.reads);
        assert!(bench.qp_mut(b).rc.receive.replies.len() <= 4);
    }
    assert_eq!(most, 4);
    assert_eq!(bench.read(here, 60000), pattern(60000, 3));
    assert_eq!(bench.read(there + 64_000, 100), pattern(60000, 3)[59_000..59_100], "the write overtook the read");
    assert_eq!(bench.sent(a).iter().map(|done| done.index).collect::<Vec<_>>(), (0..21).collect::<Vec<_>>());
}

#[test]
fn nops_complete_in_order() {
    let (mut bench, a, _) = Bench::standard();
    let (from, to, key) = (bench.alloc(4096), bench.alloc(4096), bench.key);
    bench.post(a, &Post::new(WqeOpcode::Nop, vec![]));
    bench.post(a, &write(from, 8, key, to, key));
    bench.post(a, &Post::new(WqeOpcode::Nop, vec![]));
    bench.run();
    assert_eq!(bench.sent(a).iter().map(|done| done.index).collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn two_functions_over_the_wire() {
    let (mut here, mut there) = (Bench::of(0), Bench::of(1));
    let (shape_here, shape_there) = (here.shape(), there.shape());
    let (a, b) = (here.qp(shape_here), there.qp(shape_there));
    here.connect(a, b, 1, there.f.nic.objects.vport.mac());
    there.connect(b, a, 0, here.f.nic.objects.vport.mac());
    let (from, key) = (here.alloc(65536), here.key);
    let (to, rkey) = (there.alloc(65536), there.key);
    here.write(from, &pattern(50_000, 7));
    here.post(a, &write(from, 50_000, key, to, rkey));
    for _ in 0..1000 {
        here.run();
        while let Some(frame) = here.f.nic.port.take_sent() {
            engine::receive(&mut there.f, frame);
        }
        there.run();
        while let Some(frame) = there.f.nic.port.take_sent() {
            engine::receive(&mut here.f, frame);
        }
    }
    assert_eq!(there.read(to, 50_000), pattern(50_000, 7));
    assert_eq!(here.sent(a).len(), 1);
    assert_eq!(here.violations(), [""; 0]);
    assert_eq!(there.violations(), [""; 0]);
}

#[test]
fn two_processes_cards_over_a_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wire");
    let (mut here, mut there) = (Bench::of(0), Bench::of(1));
    let mut left = Wire::with_uplink(SocketUplink::join(&path).unwrap());
    let mut right = Wire::with_uplink(SocketUplink::join(&path).unwrap());
    let (shape_here, shape_there) = (here.shape(), there.shape());
    let (a, b) = (here.qp(shape_here), there.qp(shape_there));
    here.connect(a, b, 1, there.f.nic.objects.vport.mac());
    there.connect(b, a, 0, here.f.nic.objects.vport.mac());
    let (from, key) = (here.alloc(65536), here.key);
    let (to, rkey) = (there.alloc(65536), there.key);
    here.write(from, &pattern(60_000, 7));
    there.post_recv(b, &[data(to, 65536, rkey)]);
    here.post(a, &send(from, 60_000, key));
    here.post(a, &read(from, 60_000, key, to, rkey));
    for _ in 0..500 {
        here.run();
        left.exchange(std::slice::from_mut(&mut here.f));
        there.run();
        right.exchange(std::slice::from_mut(&mut there.f));
    }
    assert_eq!(here.sent(a).len(), 2);
    assert_eq!(there.received(b)[0].len, 60_000);
    assert_eq!(here.read(from, 60_000), pattern(60_000, 7));
    assert_eq!((here.violations(), there.violations()), (vec![], vec![]));
}

#[test]
fn the_reserved_key_is_for_trusted_queue_pairs_and_local_memory() {
    for trusted in [true, false] {
        let (mut bench, a, _) = Bench::standard();
        bench.qp_mut(a).context.w().rlky(trusted);
        let (from, to, key) = (bench.alloc(4096), bench.alloc(4096), bench.key);
        bench.write(from, b"by IOVA");
        bench.post(a, &write(from, 7, crate::objects::RESERVED_LKEY, to, key));
        bench.run();
        assert_eq!(bench.read(to, 7) == b"by IOVA", trusted);
        assert_eq!(bench.sent(a)[0].syndrome.is_none(), trusted);
    }
    let (mut bench, a, b) = Bench::standard();
    bench.qp_mut(b).context.w().rlky(true);
    let (from, key) = (bench.alloc(4096), bench.key);
    bench.post(a, &write(from, 7, key, from, crate::objects::RESERVED_LKEY));
    bench.run();
    assert_eq!(bench.sent(a)[0].syndrome, Some(mlx5_prm::cqe::CqeSyndrome::RemoteAccess));
}

#[test]
fn a_key_may_map_pages_anywhere() {
    let (mut bench, a, _) = Bench::standard();
    let (from, key) = (bench.alloc(4096), bench.key);
    let pages: Vec<u64> = (0..4).map(|_| bench.alloc(8192)).collect();
    let rkey = bench.mkey(0x7f00_0000_0100, Some(3 * 4096 + 50), ALL);
    let translation = Translation::Pages(PageList { page_shift: 12, offset: 0x100, pages: pages.clone().into() });
    bench.mkey_mut(rkey).translation = translation;
    bench.write(from, &pattern(4096, 1));
    bench.post(a, &write(from, 4096, key, 0x7f00_0000_0100 + 4000, rkey));
    bench.run();
    assert_eq!(bench.sent(a)[0].syndrome, None);
    // Byte 4000 of the key is byte 4256 of its pages.
    assert_eq!(bench.read(pages[1] + 160, 4096 - 160), pattern(4096, 1)[..4096 - 160]);
    assert_eq!(bench.read(pages[2], 160), pattern(4096, 1)[4096 - 160..]);
}

#[test]
fn a_thousand_queue_pairs_at_one_uar_page() {
    let mut bench = Bench::new();
    let shape = Shape { log_sends: 2, log_receives: 0, ..bench.shape() };
    let pairs: Vec<u32> = (0..500).map(|_| bench.pair(shape).0).collect();
    let (to, key) = (bench.alloc(4096), bench.key);
    // One doorbell, for the last; the others were overwritten.
    for a in &pairs {
        bench.put(*a, &Post::new(WqeOpcode::RdmaWrite, vec![Seg::Remote(to, key), Seg::Inline(vec![1])]));
        bench.record(*a, 1, 1);
    }
    bench.ring_for(pairs[499], 0);
    bench.run();
    let mut done: Vec<u32> = bench.drain(shape.cqn_send).iter().map(|done| done.qpn).collect();
    done.sort_unstable();
    // 500 completions do not fit a queue of 256: the 256 that do are of different queue pairs.
    done.dedup();
    assert_eq!(done.len(), 256);
}

#[test]
fn no_queue_pair_starves_another() {
    let mut bench = Bench::new();
    let shape = bench.shape();
    let (a, _) = bench.pair(shape);
    let shape = bench.shape();
    let (c, _) = bench.pair(shape);
    let (from, to, key) = (bench.alloc(1 << 20), bench.alloc(1 << 20), bench.key);
    for _ in 0..8 {
        bench.post(a, &write(from, 1 << 20, key, to, key));
    }
    bench.post(c, &write(from, 8, key, to, key));
    for _ in 0..4 {
        engine::run(&mut bench.f);
    }
    assert_eq!(bench.sent(c).len(), 1, "the small write waits behind 8 MiB of another queue pair");
    assert!(bench.sent(a).is_empty());
}

#[test]
fn lost_doorbells_are_made_up_for() {
    let mut bench = Bench::new();
    let shape = bench.shape();
    let (a, _) = bench.pair(shape);
    let shape = bench.shape();
    let (c, _) = bench.pair(shape);
    let (from, to, key) = (bench.alloc(4096), bench.alloc(4096), bench.key);
    // The doorbell of c overwrites that of a before the device reads it.
    bench.put(a, &write(from, 8, key, to, key));
    bench.record(a, 1, 1);
    bench.post(c, &write(from, 8, key, to, key));
    bench.run();
    assert_eq!((bench.sent(a).len(), bench.sent(c).len()), (1, 1));
    assert_eq!(bench.violations(), [""; 0]);
}

#[test]
fn draining_finishes_what_was_begun_and_begins_nothing() {
    let (mut bench, a, _) = Bench::standard();
    let eqn = bench.eq(4, &[mlx5_prm::eqe::EventType::SendQueueDrained]);
    let (from, to, key) = (bench.alloc(1 << 16), bench.alloc(1 << 16), bench.key);
    bench.post(a, &write(from, 1 << 16, key, to, key));
    engine::run(&mut bench.f);
    bench.go(a, QpState::Sqd);
    bench.post(a, &write(from, 8, key, to, key));
    bench.run();
    assert_eq!(bench.sent(a).len(), 1);
    assert!(bench.event(eqn).is_some());
    bench.go(a, QpState::Rts);
    bench.run();
    assert_eq!(bench.sent(a).len(), 1);
}

#[test]
fn all_mtus() {
    for mtu in PathMtu::ALL {
        let mut bench = Bench::new();
        let shape = Shape { mtu: *mtu, ..bench.shape() };
        let (a, _) = bench.pair(shape);
        let (from, to, key) = (bench.alloc(1 << 16), bench.alloc(1 << 16), bench.key);
        bench.write(from, &pattern(60_001, 5));
        bench.post(a, &write(from, 60_001, key, to, key));
        bench.run();
        assert_eq!(bench.read(to, 60_001), pattern(60_001, 5));
        assert_eq!(bench.sent(a).len(), 1);
    }
}

#[test]
fn packets_carry_the_vlan_of_their_address_and_the_priority_of_their_path() {
    let (mut bench, a, b) = Bench::standard();
    let key = bench.key;
    let mut entry = *bench.f.nic.objects.gids.get(0).unwrap();
    entry.vlan = Some(7);
    bench.f.nic.objects.gids.set(0, Some(entry));
    bench.qp_mut(a).path.eth_prio = 3;
    bench.post(a, &write(MEMORY, 8, key, MEMORY, key));
    engine::run(&mut bench.f);
    let (frame, _) = bench.f.nic.port.take_received().unwrap();
    let crate::wire::Frame::Roce(packet) = &frame else { panic!("{frame:?}") };
    assert_eq!(packet.route.tag, Some(0x6007));
    bench.f.nic.port.deliver(frame);
    bench.run();
    assert_eq!(bench.sent(a).len(), 1, "the answer is in the same VLAN");
    // Frames of another VLAN are not received.
    bench.post(b, &write(MEMORY, 8, key, MEMORY, key));
    engine::run(&mut bench.f);
    let dropped = bench.f.nic.port.counters.dropped;
    entry.vlan = None;
    bench.f.nic.objects.gids.set(0, Some(entry));
    bench.run();
    assert_eq!((bench.sent(b).len(), bench.f.nic.port.counters.dropped), (0, dropped + 1));
}

#[test]
fn memory_on_the_card_is_written_read_and_counted_in_through_its_key() {
    let (mut bench, a, _) = Bench::standard();
    let (from, back, local) = (bench.alloc(4096), bench.alloc(4096), bench.key);
    let start = bench.f.nic.objects.device_memory.range().start;
    assert!(bench.f.nic.objects.device_memory.take(start, 4096));
    let (bytes, at) = bench.f.nic.objects.device_memory.at(start + 64, 1024).unwrap();
    let translation = Translation::Device { bytes: bytes.clone(), at };
    let mut context = Mkc::ZERO;
    context.set_access_mode(AccessMode::Memic);
    context.w().start_addr(start + 64).len(1024).pd(PD).qpn(0xff_ffff).rr(true).rw(true).a(true);
    let key = bench.f.nic.objects.mkeys.insert(Mkey::new(&context, translation, None)).unwrap() << 8;
    bench.write(from, &pattern(100, 1));
    bench.post(a, &write(from, 100, local, 924, key));
    bench.post(a, &read(back, 100, local, 924, key));
    for _ in 0..2 {
        let add = vec![Seg::Remote(0, key), Seg::Atomic(7, 0), Seg::Data(back + 1024, 8, local)];
        bench.post(a, &Post::new(WqeOpcode::AtomicFa, add));
    }
    bench.run();
    assert!(bench.sent(a).iter().all(|done| done.syndrome.is_none()));
    let mut found = [0; 100];
    bar::read(&mut bench.f, start + 64 + 924, &mut found);
    assert_eq!(found[..], pattern(100, 1));
    assert_eq!(bench.read(back, 100), pattern(100, 1));
    let mut sum = [0; 8];
    bar::read(&mut bench.f, start + 64, &mut sum);
    // In the byte order that the driver chose.
    assert_eq!((u64::from_le_bytes(sum), bench.read(back + 1024, 8)), (14, 7u64.to_le_bytes().to_vec()));
    bench.post(a, &write(from, 100, local, 925, key));
    bench.run();
    assert_eq!(bench.sent(a)[0].syndrome, Some(CqeSyndrome::RemoteAccess));
}

#[test]
fn the_null_region_takes_everything_and_gives_zeros() {
    let (mut bench, a, b) = Bench::standard();
    let (here, there) = (bench.alloc(4096), bench.alloc(4096));
    let key = bench.key;
    bench.write(there, &pattern(3000, 4));
    // What is read goes nowhere.
    bench.post(a, &read(u64::MAX - 10, 3000, NULL_LKEY, there, key));
    bench.run();
    assert_eq!(bench.sent(a)[0].syndrome, None);
    // What is written comes from nowhere; between are bytes of a region.
    bench.write(here, &[0xaa; 10]);
    let gaps = vec![Seg::Remote(there, key), Seg::Data(0, 100, NULL_LKEY), Seg::Data(here, 10, key)];
    bench.post(a, &Post::new(WqeOpcode::RdmaWrite, gaps));
    bench.run();
    assert_eq!(bench.sent(a)[0].syndrome, None);
    assert_eq!(bench.read(there, 110), [vec![0; 100], vec![0xaa; 10]].concat());
    assert_eq!(bench.read(there + 110, 50), pattern(3000, 4)[110..160]);
    assert_eq!(bench.violations(), [] as [&str; 0]);
    // No remote has it.
    bench.post(b, &write(here, 10, key, 0, NULL_LKEY));
    bench.run();
    assert_eq!(bench.sent(b)[0].syndrome, Some(CqeSyndrome::RemoteAccess));
    assert_eq!(bench.violations(), [rules::KEY]);
}

#[test]
fn relaxed_writes_pass_each_other() {
    let (mut bench, a, _) = Bench::standard();
    let (from, local) = (bench.alloc(4096), bench.key);
    let data = pattern(128, 4);
    bench.write(from, &data);
    let page = bench.alloc(8192).next_multiple_of(4096);
    for (is_relaxed, seen) in [(false, &data[64..]), (true, &data[..64])] {
        let mut context = Mkc::ZERO;
        context.w().len(8192).pd(PD).qpn(0xff_ffff).rw(true).lw(true).mkey_7_0(9);
        context.w().relaxed_ordering_write(is_relaxed);
        // The second page begins with the last line of the first: of two writes there the later one is seen.
        let pages = PageList { page_shift: 12, offset: 0, pages: vec![page, page + 4096 - 64].into() };
        let key = bench.f.nic.objects.mkeys.insert(Mkey::new(&context, Translation::Pages(pages), None)).unwrap();
        bench.post(a, &write(from, 128, local, 4096 - 64, key << 8 | 9));
        bench.run();
        assert_eq!(bench.sent(a)[0].syndrome, None);
        assert_eq!(bench.read(page + 4096 - 64, 64), seen, "relaxed: {is_relaxed}");
    }
}
