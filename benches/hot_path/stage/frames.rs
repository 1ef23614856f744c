//! The environment of the frames: a send and a receive queue of the software card.

use std::rc::Rc;
use std::sync::Arc;

use mlx5_benches::{Failure, completion};
use mlx5_dv::objects::{
    CqOptions, FlowGroup, FlowMatch, FlowRule, FlowTable, Rq, RqOptions, Sq, SqOptions, Tir, Tis, TransportDomain, Uar,
};
use mlx5_dv::queue::ethernet::{EthernetReceiveQueue, EthernetSendQueue, FrameFlags};
use mlx5_dv::queue::{CompletionQueue, DataSegment, Side, Work, WrFlags};
use mlx5_prm::cqe::{Cqe, CqeOpcode};
use mlx5_prm::layout::Layout;
use mlx5_prm::wqe::{DataSeg, SEGMENT};
use uar::Plain;

use super::{Card, CqState, HALF, RING, Rings, Shared, Stage, shared};
use crate::request::{FrameRequests, HEADER, INLINE};

/// Ethernet type of the frames: one for experiments.
const ETHERTYPE: u16 = 0x88b5;

/// Descriptors of receive buffers, by their place in the ring.
pub type Buffers = [DataSegment; RING];

/// A send queue. What it has posted since the ring's start is in flight.
pub struct Sender {
    pub queue: EthernetSendQueue<Plain>,
    /// Index of the WQEBB at the ring's start.
    start: u16,
}

impl Sender {
    /// Everything in flight completes, and the next WQE is at the ring's start: so no work request meets the ring's
    /// end, and every run stores the same.
    pub fn rewind(&mut self) {
        let free = self.queue.free();
        if free == RING {
            return;
        }
        let mut batch = self.queue.batch();
        for _ in 0..free {
            assert!(batch.nop(0, WrFlags::SIGNALLED).is_ok(), "there is room");
        }
        batch.ring();
        let last = self.start.wrapping_add(RING as u16 - 1);
        let retired = self.queue.retire(&Work { qpn: self.queue.sq().sqn(), side: Side::Send, index: last });
        assert!(retired.is_ok(), "{retired:?}");
        self.start = self.start.wrapping_add(RING as u16);
    }
}

/// A send queue and a receive queue of frames, each with its completion queue. All receives are posted.
pub struct FramePair {
    pub sender: Shared<Sender>,
    pub receiver: Shared<EthernetReceiveQueue>,
    pub received: Shared<CqState>,
    pub card: Card,
    pub rqn: u32,
    pub buffers: Buffers,
    pub requests: FrameRequests,
    _sent: CompletionQueue,
}

impl Stage {
    /// The queues, of which the first sends to the second.
    pub fn frames(&self) -> Result<FramePair, Failure> {
        let uar = Uar::alloc(&self.device)?;
        let cq = || CompletionQueue::create(&uar, CqOptions::default().entries(RING as u32 - 1));
        let (mut sent, mut received) = (cq()?, cq()?);
        // A domain does not receive its own frames.
        let domain = || TransportDomain::alloc(&self.device);
        let options = SqOptions::default().wqes(RING as u32).inline_bytes(HEADER as u16);
        let sq = Sq::create(&self.pd, &uar, &Tis::create(&domain()?, 0)?, sent.cq(), options)?;
        let rq = Rq::create(&self.pd, received.cq(), RqOptions::default().wqes(RING as u32))?;
        sq.ready()?;
        rq.ready()?;
        // While the queues are proved.
        let _rule = self.steer(&Tir::create(&domain()?, &rq)?)?;
        let mut sender = Sender { queue: sq.send_queue()?, start: 0 };
        let mut receiver = rq.receive_queue()?;
        if (sender.queue.capacity(), receiver.capacity(), received.cq().capacity() as usize + 1) != (RING, RING, RING) {
            return Err("the rings are not as large as was asked for".into());
        }
        let requests = self.frame_requests(&sq)?;
        self.prove_frames(&mut sender, &mut receiver, [&mut sent, &mut received], &requests)?;
        let card = self.card_of(sq.sqn(), rq.rqn(), received.cq().cqn())?;
        let buffers = card.buffers()?;
        Ok(FramePair {
            sender: shared(sender),
            receiver: shared(receiver),
            received: shared(CqState { queue: received, produced: PROOF_FRAMES as u32 }),
            rqn: rq.rqn(),
            card,
            buffers,
            requests,
            _sent: sent,
        })
    }

    /// Steers our frames to the function's own address to `tir`.
    pub(super) fn steer(&self, tir: &Arc<Tir>) -> Result<FlowRule, Failure> {
        let matched = FlowMatch::new().destination_mac(self.device.mac()).ethertype(ETHERTYPE);
        let table = FlowTable::create(&self.device, 0, 1)?;
        let group = FlowGroup::create(&table, 0..1, &matched)?;
        let rule = FlowRule::create(&group, &matched, tir)?;
        table.set_root()?;
        Ok(rule)
    }

    /// The Ethernet header of a frame to this function.
    fn header(&self) -> Vec<u8> {
        let mac = self.device.mac().0;
        [&mac[..], &mac, &ETHERTYPE.to_be_bytes()].concat()
    }

    /// A frame of `len` bytes to this function.
    pub(super) fn frame(&self, len: usize) -> Vec<u8> {
        let mut frame = self.header();
        frame.extend((frame.len()..len).map(|i| i as u8));
        frame
    }

    /// Frames in the first half of the memory, to this function.
    fn frame_requests(&self, sq: &Arc<Sq>) -> Result<FrameRequests, Failure> {
        let requests = FrameRequests::new(
            &self.header(),
            self.memory.segment(0..HALF),
            sq.source(&self.memory)?,
            sq.most_packets(),
        );
        requests.data.iter().enumerate().for_each(|(i, frame)| self.memory.write(i * INLINE, frame));
        Ok(requests)
    }

    /// Checks that the queues work: a frame arrives through the card. All receives are posted then, the first one
    /// again.
    fn prove_frames(
        &self,
        sender: &mut Sender,
        receiver: &mut EthernetReceiveQueue,
        [sent, received]: [&mut CompletionQueue; 2],
        requests: &FrameRequests,
    ) -> Result<(), Failure> {
        let target = |i: usize| self.memory.segment(HALF + i * INLINE..HALF + (i + 1) * INLINE);
        let places = HALF / INLINE;
        let mut batch = receiver.batch();
        for i in 0..RING {
            // SAFETY: the memory lives as long as the stage, and nobody relies on its second half.
            unsafe { batch.receive(i as u64, &[target(i % places)])? }
        }
        batch.ring();
        let mut batch = sender.queue.batch();
        // SAFETY: as above; the first half is not written any more.
        unsafe { batch.send(0, FrameFlags::SIGNALLED, &requests.data[1][..HEADER], &[requests.behind[1]])? }
        batch.ring();
        completion(sent)?;
        let done = completion(received)?;
        let mut arrived = [0; INLINE];
        self.memory.read(HALF, &mut arrived);
        if (arrived, done.byte_len as usize) != (requests.data[1], INLINE) {
            return Err("the software card carried another frame".into());
        }
        // As a row does, so that the ring is full again.
        let place = receiver.retire(&done.work)?;
        let mut batch = receiver.batch();
        // SAFETY: as above.
        unsafe { batch.receive(place, &[target(place as usize % places)])? }
        batch.ring();
        Ok(())
    }

    /// The card's side of queues of frames.
    fn card_of(&self, sqn: u32, rqn: u32, cqn: u32) -> Result<Card, Failure> {
        let rings = self.handle.with(move |f| {
            let send = f.queues.sqs.get(sqn)?.ring.memory.clone();
            let receive = f.queues.rqs.get(rqn)?.ring.memory.clone();
            Some(Rings { send, receive, completions: f.nic.objects.cqs.get(cqn)?.ring.clone() })
        });
        let rings = rings.flatten().ok_or("the model does not know the queues")?;
        Ok(Card { handle: self.handle.clone(), rings: Rc::new(rings) })
    }
}

/// Frames that were received when a [`FramePair`] is made.
pub const PROOF_FRAMES: usize = 1;

impl Card {
    /// Clears the send ring, so that nothing in it is left of other rows.
    pub fn clear_sends(&self) {
        let cleared = self.rings.send.write(self.handle.dma(), 0, &[0; RING * 64]);
        assert!(cleared.is_ok(), "the ring cannot be written");
    }

    /// Clears the receive ring.
    pub fn clear_receives(&self) {
        let cleared = self.rings.receive.write(self.handle.dma(), 0, &[0; RING * SEGMENT]);
        assert!(cleared.is_ok(), "the ring cannot be written");
    }

    /// What is posted to the receive ring.
    fn buffers(&self) -> Result<Buffers, Failure> {
        let bytes = self.receives(0, RING * SEGMENT);
        let segments = bytes.chunks(SEGMENT).map(|bytes| {
            let segment = DataSeg::read(bytes).ok_or("a receive has one segment")?;
            Ok(DataSegment { addr: segment.addr(), len: segment.byte_count(), lkey: segment.lkey() })
        });
        let segments: Vec<_> = segments.collect::<Result<_, Failure>>()?;
        Ok(segments.try_into().map_err(|_| "the ring has as many receives as WQEs")?)
    }
}

/// The completions of the next [`RING`] frames of receive queue `rqn`, after `produced` others, and their offsets in
/// the ring. The card found every other one's checksums right.
pub fn frame_completions(produced: u32, rqn: u32) -> impl Iterator<Item = (usize, Cqe)> {
    (0..RING).map(move |i| {
        let produced = produced as usize + i;
        let mut cqe = Cqe::ZERO;
        cqe.w().opcode(CqeOpcode::ResponderSend).qpn(rqn).wqe_counter(produced as u16);
        cqe.w().byte_cnt((INLINE - i % 4) as u32).l3_ok(true).l4_ok(i % 2 == 0).owner((produced / RING) & 1 != 0);
        (produced % RING * 64, cqe)
    })
}
