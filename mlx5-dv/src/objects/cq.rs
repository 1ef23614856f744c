//! Completion queues: the object. What polls it is [`CompletionQueue`](crate::queue::CompletionQueue).

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mlx5_prm::cmd::{CreateCqIn, DestroyCqIn, QueryCqIn};
use mlx5_prm::cqe::{Cqe, CqeOpcode};
use mlx5_prm::ctx::Cqc;
use mlx5_prm::layout::Layout;
use uar::Arm;

use super::check::within;
use super::doorbell;
use super::object::{DestroyError, Object, destroy_sole};
use super::ring::RingMemory;
use super::uar::Uar;
use crate::clock::Clock;
use crate::device::Device;
use crate::error::{CommandError, CqStatus, Error};
use crate::lock::lock;

/// Bytes of a completion queue entry. PRM `cqc.cqe_sz`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CqeSize {
    /// 64.
    #[default]
    B64,
    /// 128: room for data scattered to the completion.
    B128,
}

impl CqeSize {
    fn shift(self) -> u32 {
        match self {
            CqeSize::B64 => 6,
            CqeSize::B128 => 7,
        }
    }
}

/// What a completion queue is to be.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CqOptions {
    /// Completions it must hold at once; rounded up to a power of two less one. It must be as many as all work requests
    /// that can complete into it, or it overruns and its queue pairs fail. Default: 1023.
    pub entries: u32,
    /// Bytes of an entry. Default: 64.
    pub cqe_size: CqeSize,
    /// Whether it can be slept on. Default: no.
    pub events: bool,
    /// The completion vector whose EQ serves its events. Default: 0.
    pub vector: u32,
}

impl Default for CqOptions {
    fn default() -> Self {
        CqOptions { entries: 1023, cqe_size: CqeSize::B64, events: false, vector: 0 }
    }
}

impl CqOptions {
    /// Sets [`entries`](Self::entries).
    pub fn entries(mut self, entries: u32) -> Self {
        self.entries = entries;
        self
    }

    /// Sets [`cqe_size`](Self::cqe_size).
    pub fn cqe_size(mut self, cqe_size: CqeSize) -> Self {
        self.cqe_size = cqe_size;
        self
    }

    /// Makes it one that can be slept on.
    pub fn events(mut self) -> Self {
        self.events = true;
        self
    }

    /// Sets [`vector`](Self::vector).
    pub fn vector(mut self, vector: u32) -> Self {
        self.vector = vector;
        self
    }
}

/// Where a completion queue's ring is: mapped as long as its [`Cq`] lives, and as large as `log_size` and `shift` say.
pub(crate) struct CqRingParts {
    pub(crate) ring: NonNull<u8>,
    pub(crate) record: NonNull<u8>,
    pub(crate) log_size: u32,
    pub(crate) shift: u32,
}

/// A completion queue as an object: parent of queue pairs. PRM "Completion Queue Context".
#[derive(Debug)]
pub struct Cq {
    cqn: u32,
    log_size: u32,
    options: CqOptions,
    subscribed: AtomicBool,
    /// Whether `former` is not empty: all that polling looks at.
    has_former: AtomicBool,
    former: Mutex<Vec<Former>>,
    object: Object,
    memory: RingMemory,
    uar: Arc<Uar>,
}

/// Completions that a queue pair left behind when it was reset or destroyed: those of `qpn` before position `end`,
/// modulo 2^24. Its number, and its indices from 0 on, are used again.
#[derive(Debug)]
struct Former {
    qpn: u32,
    end: u32,
    /// Those of receives too: the queue pair had a receive queue of its own.
    receives: bool,
}

/// How far `to` is behind `from`, of positions modulo 2^24. A queue holds far fewer: more than half is before it.
fn distance(from: u32, to: u32) -> u32 {
    to.wrapping_sub(from) & 0xff_ffff
}

/// Whether `position` comes before `end`.
fn is_before(position: u32, end: u32) -> bool {
    (1..1 << 23).contains(&distance(position, end))
}

/// What a new ring is filled with: opcode "never written" and the wrong owner bit, so that nothing in it counts as a
/// completion.
const UNWRITTEN: u8 = 0xff;

impl Cq {
    /// For [`CompletionQueue::create`](crate::queue::CompletionQueue::create) alone, which polls it.
    pub(crate) fn create(uar: &Arc<Uar>, options: CqOptions) -> Result<Arc<Self>, Error> {
        let device = uar.device();
        let caps = device.caps();
        // One entry stays free, so that a full ring is not one that overran.
        let size = u64::from(options.entries.max(1)) + 1;
        within("entries", size.next_power_of_two(), "log_max_cq_sz", caps.log_max_cq_sz)?;
        let log_size = size.next_power_of_two().trailing_zeros();
        let eqn = device.access().eqn(options.vector)?;
        let memory = RingMemory::new(device, 1 << (log_size + options.cqe_size.shift()), UNWRITTEN)?;

        let mut context = Cqc::default();
        context
            .w()
            .cqe_sz((options.cqe_size.shift() - 6) as u8)
            .log_cq_size(log_size as u8)
            .uar_page(uar.index())
            .c_eqn_or_apu_element(eqn)
            .dbr_umem_valid(true)
            .dbr_umem_id(memory.umem_id())
            .dbr_addr(memory.record_offset());
        let mut create = CreateCqIn::default();
        create.w().cq_context(&context).cq_umem_valid(true).cq_umem_id(memory.umem_id());
        let what = format!("a CQ of {} entries", 1u64 << log_size);
        // SAFETY: names the umem of `memory` alone, which is this queue's. It is kept beside the object, destroyed
        // after it, and leaked where that fails; firmware gives up no umem that an object uses.
        let created = unsafe {
            Object::create_over_memory(device, &create, &what, |out| {
                let mut end = DestroyCqIn::default();
                end.w().cqn(out.cqn());
                (end, format!("CQ {:#x}", out.cqn()))
            })
        };
        let (object, out) = created?;
        Ok(Arc::new(Cq {
            cqn: out.cqn(),
            log_size,
            options,
            subscribed: AtomicBool::new(false),
            has_former: AtomicBool::new(false),
            former: Mutex::new(Vec::new()),
            object,
            memory,
            uar: Arc::clone(uar),
        }))
    }

    /// `cqn`, 24 bits.
    pub fn cqn(&self) -> u32 {
        self.cqn
    }

    /// Completions it holds at once.
    pub fn capacity(&self) -> u32 {
        (1 << self.log_size) - 1
    }

    /// The card.
    pub fn device(&self) -> &Arc<Device> {
        self.object.device()
    }

    /// Where its ring is, for the one queue that polls it.
    pub(crate) fn ring_parts(&self) -> Result<CqRingParts, Error> {
        let (ring, record) = (self.memory.at(0)?, self.memory.record()?);
        Ok(CqRingParts { ring, record, log_size: self.log_size, shift: self.options.cqe_size.shift() })
    }

    /// The eventfd of its events, if it was made with them.
    pub(crate) fn subscribe(&self) -> Result<Option<OwnedFd>, Error> {
        if !self.options.events {
            return Ok(None);
        }
        let fd = self.device().access().completion_eventfd(self.object.handle(), self.cqn, self.options.vector)?;
        self.subscribed.store(true, Ordering::Relaxed);
        Ok(Some(fd))
    }

    /// Tells the card to look at the arm request in the record.
    pub(crate) fn arm(&self, arm: Arm) -> Result<(), Error> {
        doorbell::arm_cq(&self.uar, self.cqn, arm)
    }

    /// How the card says it is. Errors: [`Error::Command`].
    pub fn status(&self) -> Result<CqStatus, Error> {
        let mut query = QueryCqIn::default();
        query.w().cqn(self.cqn);
        Ok(match self.object.query(&query)?.cq_context().status() {
            0x0 => CqStatus::Ok,
            0x9 => CqStatus::Overflow,
            0xa => CqStatus::WriteFailure,
            other => CqStatus::Unknown(other),
        })
    }

    /// What has completed of queue pair `qpn` and was not polled yet is nobody's: it has been reset or destroyed, so
    /// that no more comes of that life. `receives`: what has completed of its receives too.
    pub(crate) fn forget(&self, qpn: u32, receives: bool) {
        let mut former = lock(&self.former);
        former.retain(|former| former.qpn != qpn);
        if let Some(end) = self.end_of_unread(qpn) {
            former.push(Former { qpn, end, receives });
        }
        self.has_former.store(!former.is_empty(), Ordering::Relaxed);
    }

    /// Whether [`is_former`](Self::is_former) may say yes.
    #[inline(always)]
    pub(crate) fn has_former(&self) -> bool {
        // It says only that the lock is to be taken, which orders all else.
        self.has_former.load(Ordering::Relaxed)
    }

    /// Whether the completion `cqe` at `position` is of a life before its queue pair's last reset. Positions only grow
    /// from call to call.
    pub(crate) fn is_former(&self, cqe: &Cqe, position: u32) -> bool {
        let mut former = lock(&self.former);
        former.retain(|former| is_before(position, former.end));
        self.has_former.store(!former.is_empty(), Ordering::Relaxed);
        let is_send = matches!(cqe.opcode(), CqeOpcode::Requester | CqeOpcode::RequesterError);
        former.iter().any(|former| former.qpn == cqe.qpn() && (is_send || former.receives))
    }

    /// Where the completions end that have been written, if one of those not polled yet is of `qpn`. Another thread may
    /// be polling.
    fn end_of_unread(&self, qpn: u32) -> Option<u32> {
        let first = self.consumed();
        let (mut end, mut found) = (first, false);
        while distance(first, end) < 1 << self.log_size {
            let consumed = match self.written(end) {
                Some(of) => {
                    found |= of == qpn;
                    end = end.wrapping_add(1);
                    continue;
                }
                None => self.consumed(),
            };
            if !is_before(end, consumed) {
                break;
            }
            // Polled meanwhile, and its place used again.
            end = consumed;
        }
        found.then_some(end)
    }

    /// Completions polled, modulo 2^24.
    fn consumed(&self) -> u32 {
        self.memory.consumed()
    }

    /// The queue pair of the completion at `position`; `None` where there is none yet.
    fn written(&self, position: u32) -> Option<u32> {
        let shift = self.options.cqe_size.shift();
        let index = (position & ((1 << self.log_size) - 1)) as usize;
        let offset = ((index + 1) << shift) - Cqe::SIZE;
        let mut entry = [0; Cqe::SIZE];
        // The owner bit first, in the last dword.
        let owner = self.memory.load(offset + Cqe::SIZE - 4) & 1;
        self.memory.copy_out(offset, &mut entry);
        let entry = Cqe::read(&entry)?;
        let ours = owner == position >> self.log_size & 1 && entry.opcode() != CqeOpcode::Invalid;
        ours.then(|| entry.qpn())
    }

    pub(crate) fn death(&self) -> Option<Error> {
        self.device().death()
    }

    pub(crate) fn clock(&self) -> &Clock {
        self.device().clock()
    }

    /// The error of a wait that ended after `timeout`: because the queue is broken, or because there was nothing.
    pub(crate) fn why_nothing_came(&self, timeout: Duration) -> Error {
        match self.status() {
            Ok(CqStatus::Ok) => Error::Timeout { what: format!("a completion on CQ {:#x}", self.cqn), limit: timeout },
            Ok(status) => Error::CompletionQueue { cqn: self.cqn, status },
            Err(error) => error,
        }
    }

    fn end(&mut self) -> Result<(), CommandError> {
        if self.subscribed.swap(false, Ordering::Relaxed) {
            self.device().access().forget_completion_eventfd(self.cqn);
        }
        self.object.destroy()?;
        self.memory.destroy()
    }

    /// Destroys it. Its queue pairs and the queue that polls it must be gone. Errors: the object, kept alive, and why.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, Cq::end)
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::error!(%error, "a CQ was not destroyed; its memory is leaked");
            self.memory.leak();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_compared_across_the_wrap() {
        assert!(is_before(0, 1) && is_before(0xff_ffff, 0x100_0000) && is_before(0xff_fffe, 3));
        assert!(!is_before(1, 1) && !is_before(3, 0xff_fffe) && !is_before(1, 0));
    }
}
