//! Two connected queue pairs of one function of the software card, in this process.

use std::sync::Arc;

use mlx5_benches::{Failure, completion, connect};
use mlx5_dv::Device;
use mlx5_dv::objects::{AccessFlags, CqOptions, MemoryRegion, Pd, QpOptions, QueuePair, Uar};
use mlx5_dv::queue::{CompletionQueue, DataSegment, Plain, ReceiveQueue, RemoteAddress, SendQueue, WrFlags};
use mlx5_open::Sim;
use mlx5_prm::values::PathMtu;
use mlx5_sim::card::FunctionHandle;

/// Work requests of a queue.
pub const DEPTH: usize = 128;
/// Maximum message size in bytes.
pub const LARGEST: usize = 1 << 20;

/// One message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Send,
    Write,
    Read,
}

/// A queue pair's queues, and its completions.
pub struct End {
    pub sends: SendQueue<Plain>,
    pub receives: ReceiveQueue,
    pub sent: CompletionQueue,
    pub received: CompletionQueue,
    memory: Arc<MemoryRegion>,
    peer: RemoteAddress,
}

/// Both ends, and the card.
pub struct Pair {
    pub handle: FunctionHandle,
    pub ends: [End; 2],
    /// Parents, which must outlive the queues.
    _parents: (Sim, Arc<Device>),
}

impl Pair {
    /// A card, in strict mode or not.
    pub fn new(strict: bool) -> Result<Self, Failure> {
        let sim = Sim::builder().strict(strict).build()?;
        let device = sim.open(0)?;
        let pd = Pd::alloc(&device)?;
        let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
        let mut made = Vec::new();
        for _ in 0..2 {
            let uar = Uar::alloc(&device)?;
            let create_cq = || CompletionQueue::create(&uar, CqOptions::default().entries(2 * DEPTH as u32));
            let (sent, received) = (create_cq()?, create_cq()?);
            let options = QpOptions::default().wqes(DEPTH as u32, DEPTH as u32);
            let qp = QueuePair::create(&pd, &uar, sent.cq(), received.cq(), options)?;
            made.push((qp, sent, received, MemoryRegion::allocate(&pd, LARGEST, access)?));
        }
        for (ours, theirs) in [(0, 1), (1, 0)] {
            connect(&made[ours].0, made[theirs].0.qpn(), PathMtu::Mtu4096)?;
        }
        let peers = [made[1].3.remote(), made[0].3.remote()];
        let ends = made.into_iter().zip(peers).map(|((qp, sent, received, memory), peer)| {
            Ok(End { sends: qp.send_queue()?, receives: qp.receive_queue()?, sent, received, memory, peer })
        });
        let ends = ends.collect::<Result<Vec<_>, Failure>>()?;
        let ends = ends.try_into().map_err(|_| "two ends")?;
        Ok(Pair { handle: sim.handle(0), ends, _parents: (sim, device) })
    }
}

impl End {
    fn segment(&self, len: usize) -> DataSegment {
        self.memory.segment(0..len)
    }

    /// Posts `count` receives.
    pub fn receive(&mut self, len: usize, count: usize) -> Result<(), Failure> {
        let segment = self.segment(len);
        let mut batch = self.receives.batch();
        for i in 0..count {
            // SAFETY: registered memory that lives as long as the queues, whose bytes nobody relies on.
            unsafe { batch.receive(i as u64, &[segment])? };
        }
        batch.ring();
        Ok(())
    }

    /// Posts `count` messages of `len` bytes with one doorbell; the last one is signaled.
    pub fn post(&mut self, kind: Kind, len: usize, count: usize) -> Result<(), Failure> {
        let (segment, peer) = (self.segment(len), self.peer);
        let mut batch = self.sends.batch();
        for i in 0..count {
            let flags = if i + 1 == count { WrFlags::SIGNALLED } else { WrFlags::empty() };
            // SAFETY: registered memory that lives as long as the queues, whose bytes nobody relies on.
            unsafe {
                match kind {
                    Kind::Send => batch.send(i as u64, flags, &[segment])?,
                    Kind::Write => batch.write(i as u64, flags, peer, &[segment])?,
                    Kind::Read => batch.read(i as u64, flags, peer, &[segment])?,
                }
            }
        }
        batch.ring();
        Ok(())
    }

    /// Waits for the completion of a send.
    pub fn finish_send(&mut self) -> Result<(), Failure> {
        self.sends.retire(&completion(&mut self.sent)?.work)?;
        Ok(())
    }

    /// Waits for the completion of a receive.
    pub fn finish_receive(&mut self) -> Result<(), Failure> {
        self.receives.retire(&completion(&mut self.received)?.work)?;
        Ok(())
    }
}
