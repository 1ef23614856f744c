//! The environment of the measurement: queue pairs of the software card in this process, whose thread is stopped
//! meanwhile.

pub mod forward;
pub mod frames;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use mlx5_benches::{Failure, completion, connect};
use mlx5_dv::Device;
use mlx5_dv::objects::{AccessFlags, CqOptions, DoorbellMode, MemoryRegion, Pd, QpOptions, QueuePair, Uar};
use mlx5_dv::queue::{CompletionQueue, ReceiveQueue, RemoteAddress, SendQueue, Side, Work, WrFlags};
use mlx5_open::Sim;
use mlx5_prm::cqe::{Cqe, CqeOpcode};
use mlx5_prm::layout::Layout;
use mlx5_prm::values::PathMtu;
use mlx5_sim::card::FunctionHandle;
use mlx5_sim::objects::PageList;

use crate::request::{INLINE, REQUESTS, Requests};

/// WQEBBs, receives and CQEs of the rings: 16 KiB of WQEs or CQEs, so that the driver's ring and the bare one both fit
/// in a first-level cache.
pub const RING: usize = 256;

/// Bytes of all messages.
const HALF: usize = REQUESTS * INLINE;

/// The card, the memory of the messages, and the means to stop the card.
pub struct Stage {
    device: Arc<Device>,
    pub handle: FunctionHandle,
    pd: Arc<Pd>,
    memory: Arc<MemoryRegion>,
    _sim: Sim,
}

impl Stage {
    /// Powers on a software card.
    pub fn new() -> Result<Self, Failure> {
        let sim = Sim::builder().build()?;
        let device = sim.open(0)?;
        let pd = Pd::alloc(&device)?;
        let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
        let memory = MemoryRegion::allocate(&pd, 2 * HALF, access)?;
        Ok(Stage { handle: sim.handle(0), device, pd, memory, _sim: sim })
    }

    /// Messages from the first half of the memory to the second.
    pub fn requests(&self) -> Requests {
        Requests::new(self.target(), self.memory.segment(0..HALF))
    }

    /// The second half of the memory, as remote address.
    fn target(&self) -> RemoteAddress {
        let whole = self.memory.remote();
        RemoteAddress { addr: whole.addr + HALF as u64, ..whole }
    }

    /// Two connected queue pairs; the first sends to the second with doorbell `D`.
    pub fn pair<D: DoorbellMode>(&self) -> Result<Pair<D>, Failure> {
        let uar = Uar::alloc(&self.device)?;
        let cq = CompletionQueue::create(&uar, CqOptions::default().entries(RING as u32 - 1))?;
        // 128 work requests of two blocks each.
        let options = QpOptions::default().wqes(RING as u32 / 2, RING as u32).inline_bytes(INLINE as u16);
        let sender = QueuePair::create(&self.pd, &uar, cq.cq(), cq.cq(), options.clone())?;
        let receiver = QueuePair::create(&self.pd, &uar, cq.cq(), cq.cq(), options)?;
        for (ours, theirs) in [(&sender, &receiver), (&receiver, &sender)] {
            connect(ours, theirs.qpn(), PathMtu::Mtu1024)?;
        }
        let (sq, rq) = (sender.send_queue::<D>()?, receiver.receive_queue()?);
        let rings = self.rings(cq.cq().cqn(), sender.qpn(), receiver.qpn())?;
        if (sq.capacity(), rq.capacity(), cq.cq().capacity() as usize + 1) != (RING, RING, RING) {
            return Err("the rings are not as large as was asked for".into());
        }
        let pair = Pair {
            sender: shared(QueueState { queue: sq, posted: 0, last: None }),
            receiver: shared(QueueState { queue: rq, posted: 0, last: None }),
            cq: shared(CqState { queue: cq, produced: 0 }),
            card: Card { handle: self.handle.clone(), rings: Rc::new(rings) },
            sender_qpn: sender.qpn(),
            receiver_qpn: receiver.qpn(),
        };
        self.prove(&pair)?;
        Ok(pair)
    }

    /// The rings' addresses in the model.
    fn rings(&self, cqn: u32, sender: u32, receiver: u32) -> Result<Rings, Failure> {
        let rings = self.handle.with(move |f| {
            let send = f.queues.qps.get(sender)?.send.as_ref()?.memory.clone();
            let receive = f.queues.qps.get(receiver)?.recv.as_ref()?.memory.clone();
            Some(Rings { send, receive, completions: f.nic.objects.cqs.get(cqn)?.ring.clone() })
        });
        Ok(rings.flatten().ok_or("the model does not know the queues")?)
    }

    /// Checks that the queues work: a message arrives through the card, with one completion.
    fn prove<D: DoorbellMode>(&self, pair: &Pair<D>) -> Result<(), Failure> {
        self.memory.fill(HALF, HALF, 0);
        let (mut sender, mut cq) = (pair.sender.borrow_mut(), pair.cq.borrow_mut());
        let message: [u8; INLINE] = std::array::from_fn(|i| i as u8 ^ 0x5a);
        let mut batch = sender.queue.batch();
        batch.write_inline(1, WrFlags::SIGNALLED, self.target(), &message)?;
        batch.ring();
        let completion = completion(&mut cq.queue)?;
        sender.queue.retire(&completion.work)?;
        (sender.posted, cq.produced) = (PROOF_WQEBBS, PROOF_CQES);
        let mut arrived = [0; INLINE];
        self.memory.read(HALF, &mut arrived);
        if arrived == message { Ok(()) } else { Err("the software card carried something else".into()) }
    }
}

/// WQEBBs that the send queue of a [`Pair`] has posted initially.
pub const PROOF_WQEBBS: u16 = 2;
/// Completions that its completion queue has had initially.
pub const PROOF_CQES: u32 = 1;

/// Shared by several measurements, one at a time.
pub type Shared<T> = Rc<RefCell<T>>;

/// Makes one.
pub fn shared<T>(value: T) -> Shared<T> {
    Rc::new(RefCell::new(value))
}

/// A work queue, and what the bench needs to act as the card.
pub struct QueueState<Q> {
    pub queue: Q,
    /// Index of the next entry, in the queue's own unit.
    pub posted: u16,
    /// Index of the last work request in flight.
    pub last: Option<u16>,
}

impl<D: DoorbellMode> QueueState<SendQueue<D>> {
    /// Everything in flight completes, as if its last completion had been polled.
    pub fn complete(&mut self, qpn: u32) {
        if let Some(index) = self.last.take() {
            let retired = self.queue.retire(&Work { qpn, side: Side::Send, index });
            assert!(retired.is_ok(), "{retired:?}");
        }
    }
}

impl QueueState<ReceiveQueue> {
    /// Everything in flight completes, in order.
    pub fn complete(&mut self, qpn: u32) {
        let Some(last) = self.last.take() else { return };
        let count = self.queue.capacity() - self.queue.free();
        for i in (0..count as u16).rev() {
            let retired = self.queue.retire(&Work { qpn, side: Side::Receive, index: last.wrapping_sub(i) });
            assert!(retired.is_ok(), "{retired:?}");
        }
    }
}

/// A completion queue, and the number of completions written to it.
pub struct CqState {
    pub queue: CompletionQueue,
    pub produced: u32,
}

/// The rings' addresses, as the card sees them.
struct Rings {
    send: PageList,
    receive: PageList,
    completions: PageList,
}

/// The card's side of the rings, played by the bench: accesses them by IOVA, as a card does.
#[derive(Clone)]
pub struct Card {
    handle: FunctionHandle,
    rings: Rc<Rings>,
}

impl Card {
    fn read(&self, ring: &PageList, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let read = ring.read(self.handle.dma(), offset as u64, &mut bytes);
        assert!(read.is_ok(), "the ring cannot be read at {offset}");
        bytes
    }

    /// Bytes of the send ring.
    pub fn sent(&self, offset: usize, len: usize) -> Vec<u8> {
        self.read(&self.rings.send, offset, len)
    }

    /// Bytes of the receive ring.
    pub fn receives(&self, offset: usize, len: usize) -> Vec<u8> {
        self.read(&self.rings.receive, offset, len)
    }

    /// Writes to the completion ring.
    pub fn complete(&self, offset: usize, cqe: &Cqe) {
        let written = self.rings.completions.write(self.handle.dma(), offset as u64, cqe.as_bytes());
        assert!(written.is_ok(), "the ring cannot be written at {offset}");
    }
}

/// The completions of `count` sends of `qpn`, with consecutive WQEs of `wqebbs` blocks from `index` on, and their
/// offsets in a ring after `produced` completions.
pub fn completions(
    produced: u32,
    count: usize,
    qpn: u32,
    index: u16,
    wqebbs: u16,
) -> impl Iterator<Item = (usize, Cqe)> {
    (0..count).map(move |i| {
        let produced = produced.wrapping_add(i as u32) as usize;
        let mut cqe = Cqe::ZERO;
        cqe.w().opcode(CqeOpcode::Requester).qpn(qpn).wqe_counter(index.wrapping_add(i as u16 * wqebbs));
        cqe.w().send_wqe_opcode(0x08).byte_cnt(INLINE as u32).owner((produced / RING) & 1 != 0);
        (produced % RING * 64, cqe)
    })
}

/// Two connected queue pairs and the completion queue of both.
pub struct Pair<D: DoorbellMode> {
    pub sender: Shared<QueueState<SendQueue<D>>>,
    pub receiver: Shared<QueueState<ReceiveQueue>>,
    pub cq: Shared<CqState>,
    pub card: Card,
    pub sender_qpn: u32,
    pub receiver_qpn: u32,
}
