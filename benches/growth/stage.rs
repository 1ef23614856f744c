//! The environment of the measurement: queue pairs of the software card in this process, each connected to itself.

use std::sync::Arc;

use mlx5_benches::{Failure, completion};
use mlx5_dv::Device;
use mlx5_dv::objects::{AccessFlags, Cq, CqOptions, MemoryRegion, Pd, QpOptions, QueuePair, Uar};
use mlx5_dv::queue::{CompletionQueue, Plain, RemoteAddress, SendQueue, WrFlags};
use mlx5_open::Sim;
use mlx5_prm::values::PathMtu;
use mlx5_sim::card::FunctionHandle;

/// Work requests of a send queue; a queue pair's rings then need a little over 4 KiB.
pub const WQES: u32 = 64;
/// Receives of a receive queue.
const RECEIVES: u32 = 4;
/// Entries of a completion queue.
pub const CQES: u32 = 128;
/// Bytes of a message.
pub const BYTES: usize = 64;

/// A card, and objects shared by all queue pairs.
pub struct Stage {
    pub device: Arc<Device>,
    pub handle: FunctionHandle,
    pub pd: Arc<Pd>,
    pub memory: Arc<MemoryRegion>,
    _sim: Sim,
}

impl Stage {
    /// Powers on a software card, and brings it up.
    pub fn new() -> Result<Self, Failure> {
        let sim = Sim::builder().strict(false).build()?;
        let device = sim.open(0)?;
        Self::of(sim, device)
    }

    /// The card `sim`, opened as `device`.
    pub fn of(sim: Sim, device: Arc<Device>) -> Result<Self, Failure> {
        let pd = Pd::alloc(&device)?;
        let memory = MemoryRegion::allocate(&pd, 4096, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE)?;
        Ok(Stage { handle: sim.handle(0), device, pd, memory, _sim: sim })
    }

    /// A thread's UAR and completion queue.
    pub fn desk(&self) -> Result<Desk, Failure> {
        let uar = Uar::alloc(&self.device)?;
        let completions = CompletionQueue::create(&uar, CqOptions::default().entries(CQES - 1))?;
        Ok(Desk { uar, completions })
    }

    /// A queue pair of `desk`.
    pub fn create(&self, uar: &Arc<Uar>, cq: &Arc<Cq>) -> Result<Arc<QueuePair>, Failure> {
        Ok(QueuePair::create(&self.pd, uar, cq, cq, QpOptions::default().wqes(WQES, RECEIVES))?)
    }

    /// Connects each to itself.
    pub fn connect(&self, qps: &[Arc<QueuePair>]) -> Result<(), Failure> {
        qps.iter().try_for_each(|qp| mlx5_benches::connect(qp, qp.qpn(), PathMtu::Mtu1024))
    }

    /// The first half of the memory, as remote address: messages come from the second half.
    pub fn target(&self) -> RemoteAddress {
        self.memory.remote()
    }

    /// The send queues of `qps`, after a message of each has arrived. Many messages are in flight at once: where this
    /// thread and the card's share a processor, each wait takes a scheduler tick.
    pub fn send_queues(&self, desk: &mut Desk, qps: &[Arc<QueuePair>]) -> Result<Vec<SendQueue<Plain>>, Failure> {
        let message: [u8; BYTES] = std::array::from_fn(|i| i as u8 ^ 0x5a);
        self.memory.fill(0, BYTES, 0);
        self.memory.write(2048, &message);
        let mut queues = Vec::with_capacity(qps.len());
        for some in qps.chunks(CQES as usize / 2) {
            let first = queues.len();
            for qp in some {
                let mut queue = qp.send_queue::<Plain>()?;
                let mut batch = queue.batch();
                // SAFETY: registered memory that lives as long as the stage, and nobody else uses.
                unsafe {
                    batch.write(1, WrFlags::SIGNALLED, self.target(), &[self.memory.segment(2048..2048 + BYTES)])?
                };
                batch.ring();
                queues.push(queue);
            }
            for _ in some {
                let done = completion(&mut desk.completions)?;
                let at =
                    some.iter().position(|qp| qp.qpn() == done.work.qpn).ok_or("a completion of another queue pair")?;
                queues[first + at].retire(&done.work)?;
            }
        }
        let mut arrived = [0; BYTES];
        self.memory.read(0, &mut arrived);
        if arrived == message { Ok(queues) } else { Err("the software card carried something else".into()) }
    }
}

/// A thread's own doorbells and completions.
pub struct Desk {
    pub uar: Arc<Uar>,
    pub completions: CompletionQueue,
}
