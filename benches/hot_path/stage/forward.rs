//! The environment of frames that are forwarded where they were received: a striding receive queue and a forwarder of
//! the software card.

use std::rc::Rc;
use std::time::{Duration, Instant};

use mlx5_benches::Failure;
use mlx5_dv::objects::{CqOptions, Sq, SqOptions, Strides, Tis, TransportDomain, Uar};
use mlx5_dv::queue::ethernet::{EthernetSendQueue, Forwarder, FrameFlags, StridingOptions, StridingQueue};
use mlx5_dv::queue::{CompletionQueue, DataSegment};
use mlx5_prm::cqe::{Cqe, CqeOpcode};
use mlx5_prm::layout::Layout;
use mlx5_prm::wqe::{CompletionMode, CtrlSeg, DataSeg, SEGMENT, WqeOpcode};
use uar::Plain;

use super::{Card, Rings, Shared, Stage, shared};

/// Bytes of a frame in memory: 64 with its FCS, as in the bench of packets.
pub const FRAME: usize = 60;
/// Bytes of a stride, which has one frame, and strides of a buffer: as by default.
pub const STRIDE: usize = 64;
pub const STRIDES: usize = 2048;
/// WQEBBs of the send ring. A run takes as many as half of them.
pub const SENDS: usize = 4096;
/// Bytes of a WQE of the receive ring: a link, and an element.
pub const RECEIVE: usize = 2 * SEGMENT;
/// Bytes of the receive ring, of two WQEs.
pub const RECEIVES: usize = 2 * RECEIVE;
/// Buffers that were posted before anything is measured.
pub const POSTED: u32 = 3;
/// Segments before the frames of a multi-packet WQE.
const HEADS: usize = 2;
/// Timeout of a frame.
const PATIENCE: Duration = Duration::from_secs(30);

/// The queues.
pub struct Queues {
    pub receiver: StridingQueue,
    pub forwarder: Forwarder,
}

/// A striding receive queue, and a forwarder of what it receives. The queue has three buffers: two are posted, and of
/// the other one was sent last. A whole buffer was received and sent on.
pub struct Forwarding {
    pub queues: Shared<Queues>,
    /// The queues' rings, with the completions of receives, and with those of sends.
    pub received: Card,
    pub sent: Card,
    pub state: ForwardState,
    /// The buffers in their order: those that are posted, and the other one.
    pub buffers: [DataSegment; 3],
    /// Most frames of a multi-packet WQE.
    pub most: usize,
    _sender: (EthernetSendQueue<Plain>, CompletionQueue),
}

/// What the card has done, by its rings.
#[derive(Debug, Clone, Copy)]
pub struct ForwardState {
    pub rqn: u32,
    pub user_index: u32,
    pub sqn: u32,
    /// Entries of the completion queues.
    pub entries: [usize; 2],
    /// Completions of receives, and of sends.
    pub received: u32,
    pub sent: u32,
    /// Index of the first WQEBB that is not fetched, and frames that are posted from there on.
    pub fetched: u32,
    pub posted: usize,
}

impl Stage {
    /// The queues.
    pub fn forwarding(&self) -> Result<Forwarding, Failure> {
        let options = StridingOptions::default().strides(Strides::new(STRIDE as u32, STRIDES as u32));
        let receiver = StridingQueue::new(&self.pd, options.posted(2).spare(1))?;
        // While the queues are proved.
        let _rule = self.steer(receiver.tir())?;
        let forwarder = Forwarder::new(&receiver, SENDS as u32)?;
        let mut queues = Queues { receiver, forwarder };
        let sender = self.prove_forwarding(&mut queues)?;
        let Queues { receiver, forwarder } = &queues;
        let (rqn, sqn) = (receiver.rq().rqn(), forwarder.sq().sqn());
        let user_index = receiver.rq().user_index().ok_or("the receive queue has no user index")?;
        let most = forwarder.sq().most_packets();
        let found = self.handle.with(move |f| {
            let (rq, sq) = (f.queues.rqs.get(rqn)?, f.queues.sqs.get(sqn)?);
            let (receives, sends) = (f.nic.objects.cqs.get(rq.cqn)?, f.nic.objects.cqs.get(sq.cqn)?);
            let rings = [receives, sends].map(|cq| Rings {
                send: sq.ring.memory.clone(),
                receive: rq.ring.memory.clone(),
                completions: cq.ring.clone(),
            });
            let entries = [receives, sends].map(|cq| 1 << cq.log_size);
            let (received, sent, fetched) = (receives.producer, sends.producer, sq.fetched.into());
            let state = ForwardState { rqn, user_index, sqn, entries, received, sent, fetched, posted: 0 };
            Some((rings, state))
        });
        let (rings, state) = found.flatten().ok_or("the model does not know the queues")?;
        let [received, sent] = rings.map(|rings| Card { handle: self.handle.clone(), rings: Rc::new(rings) });
        let buffers = three_buffers(&received)?;
        Ok(Forwarding { queues: shared(queues), received, sent, state, buffers, most, _sender: sender })
    }

    /// Checks that the queues work: a buffer's frames arrive, and are sent on.
    fn prove_forwarding(&self, queues: &mut Queues) -> Result<(EthernetSendQueue<Plain>, CompletionQueue), Failure> {
        let uar = Uar::alloc(&self.device)?;
        let mut sent = CompletionQueue::create(&uar, CqOptions::default())?;
        let tis = Tis::create(&TransportDomain::alloc(&self.device)?, 0)?;
        let sq = Sq::create(&self.pd, &uar, &tis, sent.cq(), SqOptions::default().inline_bytes(FRAME as u16))?;
        sq.ready()?;
        let mut sender = sq.send_queue()?;
        let frame = self.frame(FRAME);
        for _ in 0..STRIDES {
            let mut batch = sender.batch();
            batch.send_inline(0, FrameFlags::SIGNALLED, &frame)?;
            batch.ring();
            sender.retire(&mlx5_benches::completion(&mut sent)?.work)?;
            if !queues.forward_one(&frame)? {
                return Err("the software card carried another frame".into());
            }
        }
        // The last ones may not be sent yet: their doorbells are not waited for.
        let sqn = queues.forwarder.sq().sqn();
        let fetched = || self.handle.with(move |f| f.queues.sqs.get(sqn).map(|sq| usize::from(sq.fetched))).flatten();
        let deadline = Instant::now() + PATIENCE;
        while fetched() != Some(STRIDES) {
            if Instant::now() > deadline {
                return Err("the frames were not sent on".into());
            }
        }
        // Posts the other buffer.
        if queues.receiver.burst(1)?.is_empty() { Ok((sender, sent)) } else { Err("a frame too many came".into()) }
    }
}

impl Queues {
    /// Sends on the next frame, and returns whether it is `expected`.
    fn forward_one(&mut self, expected: &[u8]) -> Result<bool, Failure> {
        let deadline = Instant::now() + PATIENCE;
        let (mut batch, mut is_right) = (self.forwarder.batch(FrameFlags::empty())?, true);
        let mut look = |found: &mut [u8]| {
            is_right = found == expected;
            true
        };
        while batch.push_each(self.receiver.burst(1)?, &mut look)? == 0 {
            if Instant::now() > deadline {
                return Err("no frame came to the striding queue".into());
            }
        }
        batch.ring();
        Ok(is_right)
    }
}

/// The buffers that are posted, and the one that was used before them, which lies before the first.
fn three_buffers(card: &Card) -> Result<[DataSegment; 3], Failure> {
    let ring = card.receives(0, RECEIVES);
    let at = |place: usize| {
        let bytes = ring.get(place * RECEIVE + SEGMENT..).unwrap_or_default();
        let found = DataSeg::read(bytes).ok_or("a receive has one segment")?;
        Ok::<_, Failure>(DataSegment { addr: found.addr(), len: found.byte_count(), lkey: found.lkey() })
    };
    // The first one was used, and its place again.
    let (first, second) = (at(1)?, at(0)?);
    let used = DataSegment { addr: first.addr - (STRIDES * STRIDE) as u64, ..first };
    Ok([first, second, used])
}

impl Forwarding {
    /// Clears the rings of WQEs, so that nothing in them is left of other rows.
    pub fn clear(&self) {
        let Rings { send, receive, .. } = &*self.sent.rings;
        for (ring, len) in [(send, SENDS * 64), (receive, RECEIVES)] {
            let cleared = ring.write(self.sent.handle.dma(), 0, &vec![0; len]);
            assert!(cleared.is_ok(), "the ring cannot be written");
        }
    }
}

impl ForwardState {
    /// The next run receives a buffer of frames, and posts them if it is one that `forwards`.
    pub fn go_on(&mut self, forwards: bool) {
        self.received = self.received.wrapping_add(STRIDES as u32);
        self.posted = if forwards { STRIDES } else { 0 };
    }
}

/// The completions of the frames of the next buffer, and their offsets.
pub fn stride_completions(state: &ForwardState) -> impl Iterator<Item = (usize, Cqe)> + use<> {
    let ForwardState { rqn, user_index, entries: [entries, _], received: produced, .. } = *state;
    (0..STRIDES).map(move |i| {
        let produced = produced.wrapping_add(i as u32) as usize;
        let mut cqe = Cqe::ZERO;
        cqe.w().opcode(CqeOpcode::ResponderSend).qpn(rqn).srqn(user_index).wqe_counter(i as u16);
        cqe.w().byte_cnt(1 << 16 | length_of(i) as u32).owner((produced / entries) & 1 != 0);
        (produced % entries * 64, cqe)
    })
}

/// Length of a buffer's frame `index`.
fn length_of(index: usize) -> usize {
    FRAME - index % 4
}

/// The completions of the frames that are posted, whose WQEs `read` reads of the ring, and their offsets: as far as
/// they were asked for.
pub fn send_completions(state: &mut ForwardState, read: impl Fn(usize) -> Vec<u8>) -> Vec<(usize, Cqe)> {
    let (mut left, mut completions) = (std::mem::take(&mut state.posted), Vec::new());
    while left != 0 {
        let at = state.fetched as usize % SENDS * 64;
        let control = CtrlSeg::read(&read(at)).unwrap_or_default();
        let segments = usize::from(control.ds());
        assert!(segments > HEADS && segments - HEADS <= left, "{segments} segments in the WQE at {at}, {left} frames");
        left -= segments - HEADS;
        if control.ce() == CompletionMode::Always {
            let mut cqe = Cqe::ZERO;
            cqe.w().opcode(CqeOpcode::Requester).qpn(state.sqn).wqe_counter(state.fetched as u16);
            cqe.w().send_wqe_opcode(WqeOpcode::EnhancedMpsw.number() as u8);
            cqe.w().owner((state.sent as usize / state.entries[1]) & 1 != 0);
            completions.push((state.sent as usize % state.entries[1] * 64, cqe));
            state.sent = state.sent.wrapping_add(1);
        }
        state.fetched = state.fetched.wrapping_add(segments.div_ceil(64 / SEGMENT) as u32);
    }
    completions
}
