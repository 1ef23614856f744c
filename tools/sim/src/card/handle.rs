//! Access to a function for clients, in this process or behind a socket.

use std::fmt;
use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::Thread;
use std::time::Duration;

use super::claim::Claim;
use super::device::Message;
use super::face::Face;
use super::machine::{self, SharedMachine};
use crate::bar::{self, MemoryError, UarMemory};
use crate::dma::{Access, Dma, MapError, Source, Traffic};
use crate::fault::Faults;
use crate::function::Function;
use crate::lock::lock;
use crate::pci::IrqError;
use crate::profile::Profile;
use crate::strict::Strict;

/// A client's handle to one function. Cheap to clone; all clones reach the same function. `Send` and `Sync`.
///
/// Every access is a message to the device thread. Messages of one thread are handled in order; reads wait for the
/// answer, writes are posted. With a [`SteppedCard`](super::SteppedCard), accesses are executed at once on the calling
/// thread. If the function was removed or the card is gone, reads return all ones, and everything else is ignored, as
/// on PCI.
#[derive(Clone)]
pub struct FunctionHandle {
    face: Arc<Face>,
    link: Link,
}

/// How a handle reaches its function.
#[derive(Clone)]
pub(super) enum Link {
    /// Messages to the device thread.
    Thread { messages: SyncSender<Message>, thread: Thread },
    /// The card itself.
    Stepped(SharedMachine),
}

impl fmt::Debug for FunctionHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FunctionHandle({} {})", self.face.profile.name, self.face.index)
    }
}

/// Number of objects of a function, for leak checks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Protection domains.
    pub pds: usize,
    /// UARs.
    pub uars: usize,
    /// Umems.
    pub umems: usize,
    /// Memory keys.
    pub mkeys: usize,
    /// Event queues.
    pub eqs: usize,
    /// Completion queues.
    pub cqs: usize,
    /// Queue pairs.
    pub qps: usize,
    /// Transport domains.
    pub transport_domains: usize,
    /// Queue counters.
    pub queue_counters: usize,
    /// Firmware pages held.
    pub pages_held: u64,
    /// Mapped IOVA ranges.
    pub dma_ranges: usize,
}

/// What has crossed a function's PCIe link.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FunctionTraffic {
    /// All of it, also of queues that were destroyed since.
    pub total: Traffic,
    /// What the work of each queue caused, with its completions. Events and commands are no queue's.
    pub queues: Vec<QueueTraffic>,
}

/// What the work of a queue caused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueTraffic {
    /// `SQ`, `RQ` or `QP`.
    pub kind: &'static str,
    /// Its number.
    pub number: u32,
    /// Since it was created.
    pub traffic: Traffic,
}

impl FunctionHandle {
    pub(super) fn new(face: Arc<Face>, link: Link) -> Self {
        FunctionHandle { face, link }
    }

    /// Index of the function on the card, from 0.
    pub fn index(&self) -> usize {
        self.face.index
    }

    /// Its profile.
    pub fn profile(&self) -> &Profile {
        &self.face.profile
    }

    /// Size of BAR 0 in bytes.
    pub fn bar_size(&self) -> u64 {
        self.face.bar_size
    }

    /// Number of MSI-X vectors.
    pub fn vectors(&self) -> u16 {
        self.face.vectors
    }

    /// Reads config space, little-endian.
    pub fn config_read(&self, offset: u64, bytes: &mut [u8]) {
        self.read(bytes, move |f, bytes| f.nic.pci.config_read(offset, bytes));
    }

    /// Writes config space; returns once the write, and a function level reset that it caused, has taken effect.
    pub fn config_write(&self, offset: u64, bytes: &[u8]) {
        let bytes = bytes.to_vec();
        self.with(move |f| {
            if f.nic.faults.removed() {
                return;
            }
            let effects = f.nic.pci.config_write(offset, &bytes);
            machine::apply_config(f);
            if effects.reset {
                machine::reset(f);
            }
        });
    }

    /// Reads bytes of BAR 0, without byte swapping.
    pub fn bar_read(&self, offset: u64, bytes: &mut [u8]) {
        self.read(bytes, move |f, bytes| bar::read(f, offset, bytes));
    }

    /// Writes BAR 0. Posted: returns at once, unless many writes are pending.
    pub fn bar_write(&self, offset: u64, bytes: &[u8]) {
        let bytes = bytes.to_vec();
        self.post(move |f| {
            if !f.nic.faults.removed() {
                bar::write(f, offset, &bytes);
            }
        });
    }

    /// The memory behind the mappable part of BAR 0, to be mapped shared. Stores to it are doorbells.
    ///
    /// # Errors
    /// The process is out of descriptors, or the card is gone.
    pub fn uar_file(&self) -> Result<UarMemory, MemoryError> {
        self.with(|f| f.bar.uar_memory()).unwrap_or(Err(MemoryError::NoPower))
    }

    /// As [`uar_file`](Self::uar_file), but new memory, for a new client: stores to the memory given out before are
    /// nothing to the function any more.
    ///
    /// # Errors
    /// The process is out of memory or descriptors, or the card is gone.
    pub fn new_uar_file(&self) -> Result<UarMemory, MemoryError> {
        self.with(|f| f.renew_bar().and_then(|()| f.bar.uar_memory())).unwrap_or(Err(MemoryError::NoPower))
    }

    /// Lets the function reach `len` bytes of `source` at `iova`. Works at once, without the device thread.
    ///
    /// # Errors
    /// The range overlaps another, is none, or has no memory.
    pub fn dma_map(&self, iova: u64, len: u64, access: Access, source: Source) -> Result<(), MapError> {
        self.face.dma.map(iova, len, access, source)
    }

    /// Takes memory away; returns how many bytes were mapped there. No access to them is under way when it returns.
    pub fn dma_unmap(&self, iova: u64, len: u64) -> u64 {
        self.face.dma.unmap(iova, len)
    }

    /// The function's DMA address space.
    pub fn dma(&self) -> &Dma {
        &self.face.dma
    }

    /// Assigns eventfds to MSI-X vectors from `first` on; `None` removes one. Enables MSI-X and unmasks the vectors.
    ///
    /// # Errors
    /// There are no such vectors, or a descriptor is not an eventfd.
    pub fn set_irqs(&self, first: u32, eventfds: Vec<Option<File>>) -> Result<(), IrqError> {
        self.with(move |f| f.nic.pci.set_irqs(first, eventfds)).unwrap_or(Ok(()))
    }

    /// Removes all eventfds and disables MSI-X.
    pub fn clear_irqs(&self) {
        self.with(|f| f.nic.pci.clear_irqs());
    }

    /// Masks or unmasks vectors.
    ///
    /// # Errors
    /// There are no such vectors.
    pub fn mask_irqs(&self, first: u32, count: u32, masked: bool) -> Result<(), IrqError> {
        self.with(move |f| f.nic.pci.mask_irqs(first, count, masked)).unwrap_or(Ok(()))
    }

    /// Triggers vectors as if the function had done so, to test the delivery of interrupts.
    ///
    /// # Errors
    /// There are no such vectors.
    pub fn trigger_irqs(&self, first: u32, count: u32) -> Result<(), IrqError> {
        self.with(move |f| f.nic.pci.trigger_irqs(first, count)).unwrap_or(Ok(()))
    }

    /// The right to drive the function, which one has at a time; waits up to `patience` for another to drop it. `None`
    /// if that does not. It binds nobody who does not ask for it: handles also are for those who look on.
    pub fn claim(&self, patience: Duration) -> Option<Claim> {
        self.face.driver.claim(patience)
    }

    /// Function level reset; complete when it returns. Mappings and eventfds stay.
    pub fn reset(&self) {
        self.with(machine::reset);
    }

    /// Cleans up after a client that is gone: function level reset, no mappings, no eventfds.
    pub fn abandon(&self) {
        self.with(|f| {
            f.nic.pci.clear_irqs();
            machine::reset(f);
        });
        self.face.dma.clear();
    }

    /// The record of violations.
    pub fn strict(&self) -> Strict {
        self.face.strict.clone()
    }

    /// Controls fault injection.
    pub fn faults(&self) -> Faults {
        self.face.faults.clone()
    }

    /// Number of objects of the function; all zero if the card is gone.
    pub fn counts(&self) -> Counts {
        self.with(|f| Counts {
            pds: f.nic.objects.pds.len(),
            uars: f.nic.objects.uars.len(),
            umems: f.nic.objects.umems.len(),
            mkeys: f.nic.objects.mkeys.len(),
            eqs: f.nic.objects.eqs.len(),
            cqs: f.nic.objects.cqs.len(),
            qps: f.queues.qps.len(),
            transport_domains: f.nic.objects.transport_domains.len(),
            queue_counters: f.nic.objects.queue_counters.len(),
            pages_held: f.nic.firmware.pages_held(),
            dma_ranges: f.nic.dma.ranges(),
        })
        .unwrap_or_default()
    }

    /// What has crossed PCIe since power-on: all of it, and for each queue that exists.
    pub fn traffic(&self) -> FunctionTraffic {
        self.with(|f| {
            let sqs = f.queues.sqs.iter().map(|(number, sq)| ("SQ", number, sq.traffic));
            let rqs = f.queues.rqs.iter().map(|(number, rq)| ("RQ", number, rq.traffic));
            let qps = f.queues.qps.iter().map(|(number, qp)| ("QP", number, qp.traffic));
            let queues = sqs.chain(rqs).chain(qps);
            let queues = queues.map(|(kind, number, traffic)| QueueTraffic { kind, number, traffic }).collect();
            FunctionTraffic { total: f.nic.dma.traffic(), queues }
        })
        .unwrap_or_default()
    }

    /// Runs `work` on the device thread between two turns, and waits for it. `None` if the card is gone. Must not be
    /// called from `work`.
    pub fn with<T: Send + 'static>(&self, work: impl FnOnce(&mut Function) -> T + Send + 'static) -> Option<T> {
        if let Link::Stepped(machine) = &self.link {
            return lock(machine).as_mut()?.function(self.face.index).map(work);
        }
        let (reply, answer) = sync_channel(1);
        self.post(move |f| {
            let _ = reply.send(work(f));
        });
        answer.recv().ok()
    }

    /// Runs `work` on the device thread later. Blocks while the device thread is far behind.
    fn post(&self, work: impl FnOnce(&mut Function) + Send + 'static) {
        match &self.link {
            Link::Thread { messages, thread } => {
                let _ = messages.send(Message::Run(self.face.index, Box::new(work)));
                thread.unpark();
            }
            Link::Stepped(machine) => {
                if let Some(function) = lock(machine).as_mut().and_then(|machine| machine.function(self.face.index)) {
                    work(function);
                }
            }
        }
    }

    fn read(&self, bytes: &mut [u8], read: impl FnOnce(&mut Function, &mut [u8]) + Send + 'static) {
        let len = bytes.len();
        let answer = self.with(move |f| {
            let mut bytes = vec![0xff; len];
            if !f.nic.faults.removed() {
                read(f, &mut bytes);
            }
            bytes
        });
        match answer {
            Some(answer) => bytes.copy_from_slice(&answer),
            None => bytes.fill(0xff),
        }
    }
}
