//! Posting, ringing and retiring, with plain memory in place of the card.

use super::datagram::Datagrams;
use super::ring::*;
use super::wqe::*;
use super::*;
use crate::memory::RemoteAddress;
use crate::objects::SendLimits;
use crate::queue::completion::decode::Side;
use crate::queue::fake::Memory;
use mlx5_prm::layout::Layout;
use mlx5_prm::wqe::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use uar::Wqebb;

const QPN: u32 = 0x43;

/// Counts doorbells and stores the last one.
#[derive(Debug, Default)]
struct Bell {
    rings: u32,
    control: u64,
    carried: usize,
}

impl SendDoorbell for Bell {
    fn ring(&mut self, control: u64) {
        (self.rings, self.control, self.carried) = (self.rings + 1, control, 0);
    }
    fn ring_with(&mut self, control: u64, wqe: &[Wqebb]) {
        assert!(wqe.is_empty() || u64::from_be(wqe[0][0]) == control);
        (self.rings, self.control, self.carried) = (self.rings + 1, control, wqe.len());
    }
}

struct Queue<S: Service = Messages> {
    ring: SendRing,
    service: S,
    bell: Bell,
    memory: Memory,
    bytes: usize,
}

impl Queue {
    fn new(log_size: u32) -> Queue {
        Queue::of(messages(), log_size)
    }
}

impl<S: Service> Queue<S> {
    fn of(service: S, log_size: u32) -> Self {
        let bytes = WQEBB << log_size;
        let memory = Memory::new(bytes + 64);
        memory.fill(0, bytes, 0xa5);
        let limits = SendLimits { sges: 6, inline_bytes: 200, log_max_msg: 30 };
        // SAFETY: both are in `memory`, which lives as long as the ring (fields drop in their order).
        let ring = unsafe {
            let (_, record) = uar::record::queue_pair(memory.at(bytes));
            SendRing::new(memory.at(0), log_size, QPN, limits, record)
        };
        Queue { ring, service, bell: Bell::default(), memory, bytes }
    }

    fn batch(&mut self) -> SendBatch<'_, Bell, S> {
        SendBatch::new(&mut self.ring, &self.service, &mut self.bell)
    }

    /// As if the WQEBBs before `index` had been posted and retired.
    fn starts_at(&mut self, index: u32) {
        self.ring.producer = index;
        self.ring.free_to(self.ring.producer, S::SPANS);
    }

    fn record(&self) -> u32 {
        self.memory.be32(self.bytes + 4)
    }

    /// `len` bytes of the WQE at WQEBB `index`, across the ring's end.
    fn wqe(&self, index: u16, len: usize) -> Vec<u8> {
        let start = self.ring.extent().offset(index.into());
        (0..len).map(|i| self.memory.read((start + i) % self.bytes, 1)[0]).collect()
    }

    fn done(&mut self, index: u16) -> Result<u64, RetireError> {
        let (wr_id, end) = self.ring.completed(&Work { qpn: QPN, side: Side::Send, index })?;
        self.ring.free_to(end, S::SPANS);
        Ok(wr_id)
    }
}

/// Of a card with atomics.
fn messages() -> Messages {
    let caps = crate::caps::Caps { max_wqe_sz_sq: 1024, ..Default::default() };
    let mut messages = <Messages as super::service::Connected>::new(&caps);
    messages.0.atomics = true;
    messages
}

fn element(len: u32) -> DataSegment {
    DataSegment { addr: 0x1122_3344_5566_7788, len, lkey: 0xaabb_ccdd }
}

/// Of bytes that differ.
fn destination() -> UdAdrsVector {
    let bytes: [u8; size_of::<UdAdrsVector>()] = std::array::from_fn(|i| i as u8 + 1);
    zerocopy::transmute!(bytes)
}

const REMOTE: RemoteAddress = RemoteAddress { addr: 0x99aa, rkey: 0x77 };

#[test]
fn a_write_is_control_remote_address_and_data() {
    let mut queue = Queue::new(2);
    let mut batch = queue.batch();
    // SAFETY: no card reads this ring.
    unsafe { batch.write_imm(9, WrFlags::SIGNALLED | WrFlags::SOLICITED, REMOTE, 0xcafe, &[element(64)]) }.unwrap();
    batch.ring();
    let wqe = queue.wqe(0, 48);
    let control = CtrlSeg::read(&wqe).unwrap();
    assert_eq!((control.opcode(), control.qp_or_sq(), control.ds()), (WqeOpcode::RdmaWriteImm, QPN, 3));
    assert_eq!((control.ce(), control.se(), control.fm()), (CompletionMode::Always, true, Fence::None));
    assert_eq!((control.wqe_index(), control.imm()), (0, 0xcafe));
    let remote = RaddrSeg::read(&wqe[16..]).unwrap();
    assert_eq!((remote.raddr(), remote.rkey()), (0x99aa, 0x77));
    let data = DataSeg::read(&wqe[32..]).unwrap();
    assert_eq!((data.byte_count(), data.lkey(), data.addr()), (64, 0xaabb_ccdd, 0x1122_3344_5566_7788));
    assert_eq!((queue.record(), queue.bell.rings, queue.bell.carried), (1, 1, 1));
    assert_eq!(queue.bell.control.to_be_bytes(), wqe[..8]);
}

#[test]
fn an_atomic_is_control_remote_address_operands_and_data() {
    let mut queue = Queue::new(2);
    let mut batch = queue.batch();
    // SAFETY: no card reads this ring.
    unsafe {
        batch.compare_swap(1, WrFlags::SIGNALLED, REMOTE, 0x0102_0304_0506_0708, u64::MAX - 1, element(8)).unwrap();
        batch.fetch_add(2, WrFlags::FENCE, REMOTE, 7, element(8)).unwrap();
    }
    batch.ring();
    for (index, opcode, swap_add, compare) in
        [(0, WqeOpcode::AtomicCs, u64::MAX - 1, 0x0102_0304_0506_0708), (1, WqeOpcode::AtomicFa, 7, 0)]
    {
        let wqe = queue.wqe(index, 64);
        let control = CtrlSeg::read(&wqe).unwrap();
        assert_eq!((control.opcode(), control.ds(), control.wqe_index()), (opcode, 4, index));
        let remote = RaddrSeg::read(&wqe[16..]).unwrap();
        assert_eq!((remote.raddr(), remote.rkey()), (0x99aa, 0x77));
        let operands = AtomicSeg::read(&wqe[32..]).unwrap();
        assert_eq!((operands.swap_add(), operands.compare()), (swap_add, compare));
        let data = DataSeg::read(&wqe[48..]).unwrap();
        assert_eq!((data.byte_count(), data.lkey(), data.addr()), (8, 0xaabb_ccdd, 0x1122_3344_5566_7788));
    }
    assert_eq!((queue.record(), queue.done(0), queue.done(1)), (2, Ok(1), Ok(2)));
}

#[test]
fn an_atomic_is_of_eight_bytes_on_a_card_that_has_them() {
    let mut queue = Queue::new(2);
    let mut batch = queue.batch();
    for given in [0, 4, 16] {
        // SAFETY: no card reads this ring.
        let posted = unsafe { batch.fetch_add(1, WrFlags::SIGNALLED, REMOTE, 1, element(given)) };
        assert_eq!(posted, Err(PostError::AtomicLength { given }));
    }
    assert!(batch.is_empty());
    queue.service.0.atomics = false;
    let mut batch = queue.batch();
    // SAFETY: no card reads this ring.
    let posted = unsafe { batch.compare_swap(1, WrFlags::SIGNALLED, REMOTE, 0, 1, element(8)) };
    assert_eq!(posted, Err(PostError::NoAtomics));
    assert!(batch.is_empty());
}

#[test]
fn an_unsignalled_send_completes_on_error_only_and_a_fence_is_a_fence() {
    let mut queue = Queue::new(2);
    let mut batch = queue.batch();
    // SAFETY: no card reads this ring.
    unsafe { batch.send(9, WrFlags::FENCE, &[element(1)]) }.unwrap();
    batch.ring();
    let control = CtrlSeg::read(&queue.wqe(0, 16)).unwrap();
    assert_eq!((control.ce(), control.fm(), control.se()), (CompletionMode::OnError, Fence::Fence, false));
}

#[test]
fn each_fence_is_its_mode() {
    let modes = [
        (WrFlags::FENCE, Fence::Fence),
        (WrFlags::SMALL_FENCE, Fence::InitiatorSmall),
        (WrFlags::STRONG_ORDERING, Fence::StrongOrdering),
        (WrFlags::FENCE | WrFlags::SMALL_FENCE, Fence::StrongOrdering),
        (WrFlags::FENCE_AND_SMALL_FENCE, Fence::FenceAndInitiatorSmall),
    ];
    for (flags, mode) in modes {
        let mut queue = Queue::new(0);
        let mut batch = queue.batch();
        batch.send_inline(1, flags | WrFlags::SOLICITED, &[1]).unwrap();
        batch.ring();
        let control = CtrlSeg::read(&queue.wqe(0, 16)).unwrap();
        assert_eq!((control.fm(), control.ce(), control.se()), (mode, CompletionMode::OnError, true));
    }
}

#[test]
fn a_send_with_invalidate_names_the_remote_key() {
    let mut queue = Queue::new(1);
    let mut batch = queue.batch();
    // SAFETY: no card reads this ring.
    unsafe { batch.send_invalidate(1, WrFlags::SIGNALLED, 0xaabb_cc07, &[element(64)]) }.unwrap();
    batch.send_invalidate_inline(2, WrFlags::SIGNALLED, 0xaabb_cc08, &[]).unwrap();
    batch.ring();
    for (index, segments, key) in [(0, 2, 0xaabb_cc07), (1, 1, 0xaabb_cc08)] {
        let control = CtrlSeg::read(&queue.wqe(index, 16)).unwrap();
        assert_eq!((control.opcode(), control.ds(), control.imm()), (WqeOpcode::SendInval, segments, key));
    }
}

#[test]
fn an_invalidation_is_an_update_that_frees_the_key() {
    let mut queue = Queue::new(3);
    let mut batch = queue.batch();
    batch.local_invalidate(1, WrFlags::SIGNALLED, 0xaabb_cc07).unwrap();
    // The PRM's default of `umr_fence` is a strong fence.
    batch.nop(2, WrFlags::SIGNALLED | batch.fence_after_update()).unwrap();
    batch.ring();
    let wqe = queue.wqe(0, 128);
    let control = CtrlSeg::read(&wqe).unwrap();
    assert_eq!((control.opcode(), control.ds(), control.imm()), (WqeOpcode::Umr, 8, 0xaabb_cc07));
    let umr = UmrCtrlSeg::read(&wqe[16..]).unwrap();
    assert_eq!((umr.inline(), umr.xlt_octowords(), umr.mkey_mask()), (true, 0, mkey_mask(&[MkeyMaskBit::Free])));
    assert!(mlx5_prm::ctx::Mkc::read(&wqe[64..]).unwrap().free());
    assert_eq!(CtrlSeg::read(&queue.wqe(2, 16)).unwrap().fm(), Fence::StrongOrdering);
}

#[test]
fn of_work_requests_posted_alone_those_that_change_keys_are_not_copied_to_the_card() {
    let mut queue = Queue::new(3);
    let mut batch = queue.batch();
    batch.local_invalidate(1, WrFlags::SIGNALLED, 0xaabb_cc07).unwrap();
    assert_eq!((batch.is_empty(), batch.len()), (false, 1));
    batch.ring();
    let control = u64::from_be_bytes(queue.wqe(0, 8).try_into().unwrap());
    assert_eq!((queue.bell.rings, queue.record(), queue.bell.carried, queue.bell.control), (1, 2, 0, control));
    let mut batch = queue.batch();
    batch.send_inline(2, WrFlags::SIGNALLED, &[7; 100]).unwrap();
    batch.ring();
    assert_eq!((queue.bell.rings, queue.record(), queue.bell.carried), (2, 4, 2));
}

#[test]
fn an_update_longer_than_its_queue_is_refused() {
    let mut queue = Queue::new(0);
    let mut batch = queue.batch();
    let refused = Err(PostError::WqeTooLong { given: 2, most: 1 });
    assert_eq!(batch.local_invalidate(1, WrFlags::SIGNALLED, 7), refused);
    assert!(batch.is_empty());
}

/// What the ring has after `post` at WQEBB `start` of eight.
fn posted_at(start: u16, post: impl FnOnce(&mut SendBatch<'_, Bell>) -> Result<(), PostError>) -> Vec<u8> {
    let mut queue = Queue::new(3);
    queue.starts_at(start.into());
    let mut batch = queue.batch();
    post(&mut batch).unwrap();
    batch.ring();
    queue.wqe(start, queue.bytes)
}

#[test]
fn inline_data_of_several_parts_is_that_of_one() {
    let data: Vec<u8> = (0..200).map(|i| i as u8).collect();
    for (len, start) in (0..=200).flat_map(|len| [(len, 0), (len, 6), (len, 7)]) {
        let data = &data[..len];
        let (first, second) = data.split_at(len / 3);
        let parts = [&[][..], first, &[], second, &[]];
        let whole = posted_at(start, |batch| batch.send_imm_inline(1, WrFlags::SIGNALLED, 7, data));
        let several = posted_at(start, |batch| batch.send_imm_inline_all(1, WrFlags::SIGNALLED, 7, &parts));
        assert_eq!(several, whole, "SEND of {len} bytes at {start}");
        let whole = posted_at(start, |batch| batch.write_inline(1, WrFlags::SIGNALLED, REMOTE, data));
        let each: Vec<&[u8]> = data.chunks(1).collect();
        let several = posted_at(start, |batch| batch.write_inline_all(1, WrFlags::SIGNALLED, REMOTE, &each));
        assert_eq!(several, whole, "WRITE of {len} bytes at {start}");
    }
    let mut queue = Queue::new(3);
    let refused = queue.batch().send_inline_all(1, WrFlags::SIGNALLED, &[&data, &[1]]);
    assert_eq!(refused, Err(PostError::InlineTooLong { given: 201, most: 200 }));
}

#[test]
fn inline_data_lies_behind_its_header_and_wraps_with_the_ring() {
    for len in [1, 11, 12, 13, 28, 29, 100, 200] {
        let mut queue = Queue::new(3);
        queue.starts_at(6);
        let data: Vec<u8> = (0..len).map(|i| i as u8).collect();
        let mut batch = queue.batch();
        batch.send_inline(1, WrFlags::SIGNALLED, &data).unwrap();
        batch.ring();
        let wqe = queue.wqe(6, 16 + 4 + len);
        assert_eq!(usize::from(CtrlSeg::read(&wqe).unwrap().ds()), 1 + (4 + len).div_ceil(16));
        assert_eq!(wqe[16..20], (1u32 << 31 | len as u32).to_be_bytes());
        assert_eq!(wqe[20..], data);
        assert_eq!(queue.done(6), Ok(1));
    }
}

#[test]
fn elements_of_no_bytes_are_left_out() {
    let mut queue = Queue::new(2);
    let mut batch = queue.batch();
    // SAFETY: no card reads this ring.
    unsafe { batch.send(1, WrFlags::SIGNALLED, &[element(0), element(5), element(0)]) }.unwrap();
    batch.send_inline(2, WrFlags::SIGNALLED, &[]).unwrap();
    batch.ring();
    assert_eq!(CtrlSeg::read(&queue.wqe(0, 16)).unwrap().ds(), 2);
    assert_eq!(CtrlSeg::read(&queue.wqe(1, 16)).unwrap().ds(), 1);
}

#[test]
fn a_lone_element_is_of_one_byte_at_least_and_of_the_longest_message_at_most() {
    let mut queue = Queue::new(2);
    let mut batch = queue.batch();
    // SAFETY: no card reads this ring.
    unsafe {
        batch.write(1, WrFlags::SIGNALLED, REMOTE, &[element(0)]).unwrap();
        batch.write(2, WrFlags::SIGNALLED, REMOTE, &[element(1 << 30)]).unwrap();
        let refused = PostError::MessageTooLong { given: (1 << 30) + 1, most: 1 << 30 };
        assert_eq!(batch.write(3, WrFlags::SIGNALLED, REMOTE, &[element((1 << 30) + 1)]), Err(refused));
    }
    batch.ring();
    assert_eq!((CtrlSeg::read(&queue.wqe(0, 16)).unwrap().ds(), queue.record()), (2, 2));
    let data = DataSeg::read(&queue.wqe(1, 48)[32..]).unwrap();
    assert_eq!((data.byte_count(), data.lkey()), (1 << 30, 0xaabb_ccdd));
    assert_eq!((queue.done(0), queue.done(1)), (Ok(1), Ok(2)));
}

#[test]
fn a_queue_without_elements_takes_none() {
    let mut queue = Queue::new(2);
    (queue.ring.sges, queue.ring.longest) = (0, 0);
    let mut batch = queue.batch();
    // SAFETY: no card reads this ring.
    let posted = unsafe { [0, 1].map(|len| batch.send(1, WrFlags::SIGNALLED, &[element(len)])) };
    assert_eq!(posted, [Err(PostError::TooManySges { given: 1, most: 0 }); 2]);
    assert!(batch.is_empty());
}

#[test]
fn a_batch_rings_once_and_an_empty_one_not_at_all() {
    let mut queue = Queue::new(3);
    queue.batch().ring();
    assert_eq!((queue.bell.rings, queue.record()), (0, 0));
    let mut batch = queue.batch();
    (0..5).for_each(|i| batch.nop(i, WrFlags::empty()).unwrap());
    assert_eq!(batch.len(), 5);
    batch.ring();
    assert_eq!((queue.bell.rings, queue.record(), queue.bell.carried), (1, 5, 0));
    assert_eq!(queue.bell.control >> 40 & 0xffff, 4, "the doorbell names the last WQE");
}

#[test]
fn an_unrung_batch_never_happened() {
    let mut queue = Queue::new(2);
    let mut batch = queue.batch();
    (0..4).for_each(|i| batch.nop(i, WrFlags::SIGNALLED).unwrap());
    assert_eq!(batch.nop(4, WrFlags::SIGNALLED), Err(Full.into()));
    // Not rung.
    assert_eq!((queue.record(), queue.bell.rings, queue.ring.in_flight()), (0, 0, 0));
    assert!(matches!(queue.done(0), Err(RetireError::NotInFlight { .. })));
    let mut batch = queue.batch();
    batch.nop(7, WrFlags::SIGNALLED).unwrap();
    batch.ring();
    assert_eq!(queue.done(0), Ok(7));
}

#[test]
fn what_cannot_be_posted_leaves_no_trace() {
    let mut queue = Queue::new(2);
    let untouched = queue.wqe(0, 256);
    let mut batch = queue.batch();
    let long = [element(1 << 30), element(1)];
    assert_eq!(
        batch.send_inline(1, WrFlags::empty(), &[0; 201]),
        Err(PostError::InlineTooLong { given: 201, most: 200 })
    );
    // SAFETY: no card reads this ring.
    unsafe {
        let seven = [element(1); 7];
        assert_eq!(batch.send(1, WrFlags::empty(), &seven), Err(PostError::TooManySges { given: 7, most: 6 }));
        let refused = PostError::MessageTooLong { given: (1 << 30) + 1, most: 1 << 30 };
        assert_eq!(batch.send(1, WrFlags::empty(), &long), Err(refused));
    }
    assert!(batch.is_empty());
    batch.ring();
    assert_eq!(queue.wqe(0, 256), untouched);
}

#[test]
fn a_signalled_completion_frees_the_unsignalled_work_before_it() {
    let mut queue = Queue::new(2);
    let mut batch = queue.batch();
    for i in 0..4 {
        batch.nop(i, if i == 2 { WrFlags::SIGNALLED } else { WrFlags::empty() }).unwrap();
    }
    batch.ring();
    assert_eq!(queue.done(2), Ok(2));
    assert_eq!(queue.ring.in_flight(), 1);
}

#[test]
fn completions_that_fit_nothing_are_refused() {
    let mut queue = Queue::new(2);
    let mut batch = queue.batch();
    batch.send_inline(5, WrFlags::SIGNALLED, &[1; 100]).unwrap();
    batch.ring();
    assert!(matches!(queue.done(1), Err(RetireError::NotInFlight { .. })), "the middle of a WQE");
    assert!(matches!(queue.done(2), Err(RetireError::NotInFlight { .. })), "never posted");
    assert!(matches!(queue.done(0xffff), Err(RetireError::NotInFlight { .. })), "long ago");
    for work in [Work { qpn: QPN + 1, side: Side::Send, index: 0 }, Work { qpn: QPN, side: Side::Receive, index: 0 }] {
        assert!(matches!(queue.ring.completed(&work), Err(RetireError::OtherQueue { .. })));
    }
    assert_eq!(queue.done(0), Ok(5));
    assert!(matches!(queue.done(0), Err(RetireError::NotInFlight { .. })), "said twice");
}

#[test]
fn an_abandoned_batch_leaves_nothing_that_a_completion_could_name() {
    let mut queue = Queue::new(2);
    // Around the end of the ring.
    queue.starts_at(2);
    let mut batch = queue.batch();
    for wr_id in 90..94 {
        batch.nop(wr_id, WrFlags::SIGNALLED).unwrap();
    }
    assert_eq!(queue.ring.in_flight(), 0);
    let mut batch = queue.batch();
    batch.send_inline(5, WrFlags::SIGNALLED, &[1; 150]).unwrap();
    batch.ring();
    for index in [3, 4, 5] {
        assert!(matches!(queue.done(index), Err(RetireError::NotInFlight { .. })), "{index}: never rung for");
    }
    assert_eq!(queue.done(2), Ok(5));
}

#[test]
fn a_wqe_is_the_same_wherever_it_lies_and_only_its_start_is_a_work_request() {
    const WQEBBS: u16 = 16;
    // An interpreter takes half an hour for all.
    const STEP: usize = if cfg!(miri) { 5 } else { 1 };
    let post = |batch: &mut SendBatch<'_, Bell>, count: u16| {
        // All of the last WQEBB but its last segment.
        let data: Vec<u8> = (0..usize::from(count) * WQEBB - 36).map(|i| i as u8).collect();
        batch.send_inline(5, WrFlags::SIGNALLED, &data)
    };
    for count in (1..=WQEBBS).step_by(STEP) {
        let mut expected = Vec::new();
        for start in (0..WQEBBS).step_by(STEP) {
            let mut queue = Queue::new(4);
            queue.ring.inline_bytes = 1000;
            queue.starts_at(start.into());
            let mut abandoned = queue.batch();
            while abandoned.nop(9, WrFlags::SIGNALLED).is_ok() {}
            let mut batch = queue.batch();
            post(&mut batch, count).unwrap();
            batch.ring();
            // Without the control segment, which has the index.
            let data = queue.wqe(start, usize::from(count) * WQEBB - 16).split_off(16);
            if start == 0 {
                expected = data;
            } else {
                assert!(data == expected, "{count} from {start}");
            }
            for inner in (1..WQEBBS).map(|i| start.wrapping_add(i)) {
                assert!(
                    matches!(queue.done(inner), Err(RetireError::NotInFlight { .. })),
                    "{inner} of {count} from {start}"
                );
            }
            assert_eq!((queue.done(start), queue.ring.in_flight()), (Ok(5), 0));
        }
    }
}

#[test]
fn a_list_that_wraps_with_the_ring_is_the_same() {
    let elements = [1, 2, 3, 4, 5, 6].map(element);
    let list = |start: u16| {
        let mut queue = Queue::new(2);
        queue.starts_at(start.into());
        let mut batch = queue.batch();
        // SAFETY: no card reads this ring.
        unsafe { batch.write(1, WrFlags::SIGNALLED, REMOTE, &elements) }.unwrap();
        batch.ring();
        assert!(queue.done(start + 1).is_err());
        assert_eq!(queue.done(start), Ok(1));
        queue.wqe(start, 128).split_off(16)
    };
    assert_eq!(list(3), list(0));
    assert_eq!(list(0)[16..20], 1u32.to_be_bytes());
}

#[test]
fn an_index_of_another_lap_is_refused() {
    let mut queue = Queue::new(2);
    queue.starts_at(0xfffd);
    let mut batch = queue.batch();
    (0..3).for_each(|wr_id| batch.nop(wr_id, WrFlags::SIGNALLED).unwrap());
    batch.ring();
    for lap in 1..0x4000u16 {
        let index = 0xfffeu16.wrapping_add(4 * lap);
        assert!(matches!(queue.done(index), Err(RetireError::NotInFlight { .. })), "{index:#x}");
    }
    assert_eq!((queue.done(0xfffe), queue.done(0xffff)), (Ok(1), Ok(2)));
}

#[test]
fn the_middle_of_a_wqe_is_refused_where_indices_wrap() {
    let mut queue = Queue::new(2);
    queue.starts_at(u32::MAX - 3);
    let mut batch = queue.batch();
    batch.send_inline(5, WrFlags::SIGNALLED, &[1; 190]).unwrap();
    batch.ring();
    for index in [0xfffd, 0xfffe, 0xffff] {
        assert!(matches!(queue.done(index), Err(RetireError::NotInFlight { .. })), "{index:#x}");
    }
    assert_eq!(queue.done(0xfffc), Ok(5));
}

#[test]
fn the_hot_fields_fit_in_two_cache_lines() {
    assert!(size_of::<SendRing>() <= 64, "{}", size_of::<SendRing>());
    assert!(size_of::<SendQueue<uar::Plain>>() <= 128, "{}", size_of::<SendQueue<uar::Plain>>());
}

/// Posts `len` bytes under a `wr_id`: inline, or as the lengths of that many elements.
type Post<S> = fn(&mut SendBatch<'_, Bell, S>, u64, WrFlags, &[u8]) -> Result<(), PostError>;

/// What happens to one work request: its bytes, whether it is signalled, whether its batch is rung, and whether the
/// oldest signalled one is retired then.
type Step = (usize, bool, bool, bool);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec((0usize..160, any::<bool>(), any::<bool>(), any::<bool>()), 1..200)
}

/// A work request of the model of a queue.
struct Posted {
    wr_id: u64,
    index: u32,
    wqebbs: usize,
    signalled: bool,
    /// What its WQE had behind the control segment when it was posted.
    rest: Vec<u8>,
}

/// Compares with a list as the model of a queue: room, `wr_id`s, WQEs and the doorbell record always agree, over many
/// laps. A WQE of `len` bytes has `segments(len)` segments.
fn is_a_queue<S: Service>(
    mut queue: Queue<S>,
    start: u32,
    steps: Vec<Step>,
    segments: fn(usize) -> usize,
    post: Post<S>,
) -> Result<(), TestCaseError> {
    queue.starts_at(start);
    let capacity = queue.ring.capacity();
    // Oldest first.
    let mut model: VecDeque<Posted> = VecDeque::new();
    let mut next_index = start;
    for (wr_id, (len, signalled, ring, retire)) in (0..).zip(steps) {
        let segments = segments(len);
        let wqebbs = segments.div_ceil(4);
        let used: usize = model.iter().map(|posted| posted.wqebbs).sum();
        let flags = if signalled { WrFlags::SIGNALLED } else { WrFlags::empty() };
        // Whatever fits, and is never rung for.
        let mut abandoned = queue.batch();
        let fits = (0..=capacity).take_while(|_| abandoned.nop(u64::MAX, WrFlags::SIGNALLED).is_ok()).count();
        prop_assert_eq!(fits, capacity - used);
        let mut batch = queue.batch();
        let result = post(&mut batch, wr_id, flags, &vec![wr_id as u8; len]);
        prop_assert_eq!(result.is_ok(), used + wqebbs <= capacity);
        if ring && result.is_ok() {
            batch.ring();
            let rest = queue.wqe(next_index as u16, segments * SEGMENT).split_off(SEGMENT);
            model.push_back(Posted { wr_id, index: next_index, wqebbs, signalled, rest });
            next_index = next_index.wrapping_add(wqebbs as u32);
            prop_assert_eq!(queue.record(), next_index & 0xffff);
        }
        if retire && let Some(at) = model.iter().position(|posted| posted.signalled) {
            prop_assert_eq!(queue.done(model[at].index as u16), Ok(model[at].wr_id));
            model.drain(..=at);
        }
        prop_assert_eq!(queue.ring.in_flight() as usize, model.iter().map(|posted| posted.wqebbs).sum::<usize>());
        for Posted { index, wqebbs, rest, .. } in &model {
            // Never overwritten, and no WQEBB but a first one is ever taken for a work request.
            let wqe = queue.wqe(*index as u16, SEGMENT + rest.len());
            prop_assert!(CtrlSeg::read(&wqe).unwrap().wqe_index() == *index as u16 && wqe[SEGMENT..] == rest[..]);
            for inner in 1..*wqebbs {
                prop_assert!(queue.done(index.wrapping_add(inner as u32) as u16).is_err());
            }
        }
    }
    Ok(())
}

/// Anywhere, and often where indices wrap.
fn starts() -> impl Strategy<Value = u32> {
    prop_oneof![any::<u32>(), (u32::MAX - 64)..=u32::MAX]
}

/// Segments of `len` bytes of inline data.
fn inline_segments(len: usize) -> usize {
    if len == 0 { 0 } else { (4 + len).div_ceil(16) }
}

proptest! {
    #[test]
    fn the_ring_is_a_queue(log_size in 0u32..6, start in starts(), steps in steps()) {
        let post: Post<Messages> = |batch, wr_id, flags, data| batch.send_inline(wr_id, flags, data);
        is_a_queue(Queue::new(log_size), start, steps, |len| 1 + inline_segments(len), post)?;
    }

    #[test]
    fn the_ring_of_datagrams_inline_is_a_queue(log_size in 0u32..6, start in starts(), steps in steps()) {
        let post: Post<Datagrams> = |batch, wr_id, flags, data| {
            batch.post_inline(Request { opcode: WqeOpcode::Send, wr_id, flags, imm: 0 }, &destination(), data)
        };
        is_a_queue(Queue::of(Datagrams, log_size), start, steps, |len| 4 + inline_segments(len), post)?;
    }

    /// Of none to six elements, most often one.
    #[test]
    fn the_ring_of_datagrams_from_memory_is_a_queue(log_size in 0u32..6, start in starts(), steps in steps()) {
        fn count(len: usize) -> usize {
            if len < 80 { 1 } else { len % 7 }
        }
        let post: Post<Datagrams> = |batch, wr_id, flags, data| {
            let elements = vec![element(1 + data.len() as u32); count(data.len())];
            batch.post_message(Request { opcode: WqeOpcode::Send, wr_id, flags, imm: 0 }, &destination(), &elements)
        };
        is_a_queue(Queue::of(Datagrams, log_size), start, steps, |len| 4 + count(len), post)?;
    }
}

/// A WQE of two WQEBBs at each place of a ring, as part of a batch that goes round: the bound of the batch is
/// exact, though it was set long before.
#[test]
fn a_batch_of_datagrams_goes_round_the_ring_until_it_is_full() {
    let post = |batch: &mut SendBatch<'_, Bell, Datagrams>, wr_id| {
        let request = Request { opcode: WqeOpcode::Send, wr_id, flags: WrFlags::SIGNALLED, imm: 0 };
        batch.post_message(request, &destination(), &[element(64)])
    };
    for start in 0..8u16 {
        let mut queue = Queue::of(Datagrams, 3);
        queue.starts_at(start.into());
        let mut batch = queue.batch();
        (0..4).for_each(|wr_id| post(&mut batch, wr_id).unwrap());
        assert_eq!(post(&mut batch, 4), Err(Full.into()), "from {start}");
        batch.ring();
        // One goes, one comes: a ring that is always full.
        for wr_id in 4..40 {
            let oldest = start.wrapping_add(2 * (wr_id as u16 - 4));
            assert_eq!(queue.done(oldest), Ok(wr_id - 4), "from {start}");
            // Known at once, not by the slow way of the next post.
            assert_eq!(queue.ring.straight, queue.ring.straight_from(queue.ring.producer));
            let mut batch = queue.batch();
            post(&mut batch, wr_id).unwrap();
            assert_eq!(post(&mut batch, wr_id), Err(Full.into()), "from {start}");
            batch.ring();
            let wqe = queue.wqe(oldest.wrapping_add(8), 80);
            assert_eq!(wqe[16..64], *destination().as_bytes(), "from {start}");
            assert_eq!(DataSeg::read(&wqe[64..]).unwrap().byte_count(), 64, "from {start}");
        }
    }
}

/// Wherever the ring ends, and whatever is beside it.
#[test]
fn bytes_that_are_copied_by_a_call_are_those_that_a_slice_stores() {
    let data: Vec<u8> = (0..200).collect();
    for (index, segment, len) in
        (0..4).flat_map(|index| (0..8).flat_map(move |at| [0, 1, 60, 200].map(|len| (index, at, len))))
    {
        let [stored, copied] = [false, true].map(|by_call| {
            let mut queue = Queue::new(2);
            let mut room = queue.ring.room(index, false);
            match by_call {
                true => {
                    room.store_with(segment, 4, len, |at, bytes| bytes.copy_from_slice(&data[at..at + bytes.len()]))
                }
                false => room.store_bytes(segment, 4, &data[..len]),
            }
            queue.memory.read(0, queue.bytes)
        });
        assert_eq!(copied, stored, "{len} bytes from segment {segment} of WQEBB {index}");
    }
}
