//! Fault injection, at run time and from any thread.
//!
//! A [`Faults`] handle is a list of [`Fault`]s, each with a number of [`Times`]. The affected part of the model checks
//! the list where the fault can occur. With an empty list the check costs one relaxed load.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

mod parse;
mod random;

pub use parse::{Injection, ParseFaultError};
pub(crate) use random::Random;

/// A fault. `opcode: None` means any command, `event_type: None` any event, `qpn: None` any queue pair.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// A command is not executed, but answered with this status and syndrome.
    CommandStatus {
        /// Command opcode.
        opcode: Option<u16>,
        /// Status, such as 0x3 for `BAD_PARAM`.
        status: u8,
        /// Firmware syndrome.
        syndrome: u32,
    },
    /// A command is not answered.
    CommandSwallowed {
        /// Command opcode.
        opcode: Option<u16>,
    },
    /// A command is not executed; its entry is returned with this delivery status.
    DeliveryStatus {
        /// Command opcode.
        opcode: Option<u16>,
        /// Delivery status, seven bits, such as 0x1 for a signature error.
        status: u8,
    },
    /// A command is executed, and answered late.
    CommandLate {
        /// Command opcode.
        opcode: Option<u16>,
        /// The delay.
        by: Duration,
    },
    /// A command's output mailboxes have a wrong token.
    BadToken {
        /// Command opcode.
        opcode: Option<u16>,
    },
    /// A command's entry and output mailboxes have wrong signatures.
    BadSignature {
        /// Command opcode.
        opcode: Option<u16>,
    },
    /// An event is not written.
    EventLost {
        /// Event type.
        event_type: Option<u8>,
    },
    /// The health buffer has this syndrome.
    Health {
        /// PRM "Health Buffer", `synd`.
        syndrome: u8,
    },
    /// The health counter stops. PRM "Health Counter".
    HealthCounterStopped,
    /// Firmware requests this many pages; if negative, it returns pages.
    PageRequest {
        /// Pages of 4096 bytes.
        pages: i32,
    },
    /// The card is removed: registers and config space read as ones, doorbells are ignored, no DMA, no interrupts.
    SurpriseRemoval,
    /// A work request of a queue pair completes with this error.
    CompletionError {
        /// Queue pair.
        qpn: Option<u32>,
        /// CQE syndrome.
        syndrome: u8,
        /// CQE vendor syndrome.
        vendor_syndrome: u8,
    },
    /// A completion has this opcode in place of its own.
    CqeOpcode {
        /// Queue pair or Ethernet queue.
        qpn: Option<u32>,
        /// The opcode, four bits.
        opcode: u8,
    },
    /// A frame that this function sends is affected, with the given probability.
    Frame {
        /// What happens to it.
        fate: FrameFate,
        /// Frames affected, out of a million.
        per_million: u32,
    },
}

/// Fault of a frame on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameFate {
    /// It is lost.
    Lost,
    /// It arrives twice.
    Duplicated,
    /// The next frame overtakes it.
    Reordered,
    /// One bit is flipped: bit `n` modulo the frame's length in bits.
    Corrupted(u32),
}

/// How often a fault occurs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// This many times.
    Count(u32),
    /// Until it is [cleared](Faults::clear).
    Always,
}

/// Identifies an injected fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FaultId(u64);

/// Faults of one command; all `None` and `false`: none. The delivery status takes precedence over the status.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CommandFaults {
    /// Never answer.
    pub swallow: bool,
    /// Return the entry with this delivery status.
    pub delivery_status: Option<u8>,
    /// Do not execute; answer with this status and syndrome.
    pub status: Option<(u8, u32)>,
    /// Delay of the answer.
    pub late: Option<Duration>,
    /// Use a wrong token in the output mailboxes.
    pub bad_token: bool,
    /// Use wrong signatures.
    pub bad_signature: bool,
}

/// The faults of one function. Cheap to clone; all clones are the same list. `Send` and `Sync`.
#[derive(Clone, Default)]
pub struct Faults(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// Whether the list has any entry: without any, no lock is taken.
    any: AtomicBool,
    /// Whether the card is removed; checked on every access.
    removed: AtomicBool,
    plan: Mutex<Plan>,
}

#[derive(Default)]
struct Plan {
    next_id: u64,
    entries: Vec<Entry>,
    random: Random,
}

struct Entry {
    id: FaultId,
    fault: Fault,
    times: Times,
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.list()).finish()
    }
}

impl Faults {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Injects `fault`.
    pub fn inject(&self, fault: Fault, times: Times) -> FaultId {
        let mut plan = self.plan();
        let id = FaultId(plan.next_id);
        plan.next_id += 1;
        plan.entries.push(Entry { id, fault, times });
        self.publish(&plan);
        id
    }

    /// Removes a fault. Returns false if it had already ended.
    pub fn clear(&self, id: FaultId) -> bool {
        let mut plan = self.plan();
        let before = plan.entries.len();
        plan.entries.retain(|entry| entry.id != id);
        self.publish(&plan);
        plan.entries.len() != before
    }

    /// Removes all faults.
    pub fn clear_all(&self) {
        let mut plan = self.plan();
        plan.entries.clear();
        self.publish(&plan);
    }

    /// All active faults, and how often each can still occur.
    pub fn list(&self) -> Vec<(FaultId, Fault, Times)> {
        self.plan().entries.iter().map(|entry| (entry.id, entry.fault, entry.times)).collect()
    }

    /// Seeds the random numbers of [`Fault::Frame`].
    pub fn seed(&self, seed: u64) {
        self.plan().random = Random::new(seed);
    }

    /// Faults of the current command. Counts them down.
    pub fn command(&self, opcode: u16) -> CommandFaults {
        let mut faults = CommandFaults::default();
        let hit = |wanted: Option<u16>| wanted.is_none_or(|wanted| wanted == opcode);
        self.each(|fault, _| match fault {
            Fault::CommandSwallowed { opcode } if hit(opcode) => {
                faults.swallow = true;
                true
            }
            Fault::DeliveryStatus { opcode, status } if hit(opcode) => {
                faults.delivery_status.is_none() && faults.delivery_status.replace(status).is_none()
            }
            Fault::CommandStatus { opcode, status, syndrome } if hit(opcode) => {
                faults.status.is_none() && faults.status.replace((status, syndrome)).is_none()
            }
            Fault::CommandLate { opcode, by } if hit(opcode) => {
                faults.late.is_none() && faults.late.replace(by).is_none()
            }
            Fault::BadToken { opcode } if hit(opcode) => {
                faults.bad_token = true;
                true
            }
            Fault::BadSignature { opcode } if hit(opcode) => {
                faults.bad_signature = true;
                true
            }
            _ => false,
        });
        faults
    }

    /// Whether the current event is lost. Counts the fault down.
    pub fn event_lost(&self, event_type: u8) -> bool {
        self.first(|fault, _| match fault {
            Fault::EventLost { event_type: wanted } => wanted.is_none_or(|wanted| wanted == event_type).then_some(()),
            _ => None,
        })
        .is_some()
    }

    /// Syndrome for the health buffer, until it is cleared: not counted down.
    pub fn health_syndrome(&self) -> Option<u8> {
        self.peek(|fault| match fault {
            Fault::Health { syndrome } => Some(syndrome),
            _ => None,
        })
    }

    /// Whether the health counter is stopped, until it is cleared: not counted down.
    pub fn health_counter_stopped(&self) -> bool {
        self.peek(|fault| matches!(fault, Fault::HealthCounterStopped).then_some(())).is_some()
    }

    /// Pages that firmware must request now; if negative, return. Counts the fault down.
    pub fn page_request(&self) -> Option<i32> {
        self.first(|fault, _| match fault {
            Fault::PageRequest { pages } => Some(pages),
            _ => None,
        })
    }

    /// Whether the card is removed. Costs one load; not counted down.
    pub fn removed(&self) -> bool {
        self.0.removed.load(Ordering::Relaxed)
    }

    /// Syndrome and vendor syndrome for the current work request. Counts the fault down.
    pub fn completion_error(&self, qpn: u32) -> Option<(u8, u8)> {
        self.first(|fault, _| match fault {
            Fault::CompletionError { qpn: wanted, syndrome, vendor_syndrome } => {
                wanted.is_none_or(|wanted| wanted == qpn).then_some((syndrome, vendor_syndrome))
            }
            _ => None,
        })
    }

    /// Opcode for the completion of queue `qpn` that is about to be written. Counts the fault down.
    pub fn cqe_opcode(&self, qpn: u32) -> Option<u8> {
        self.first(|fault, _| match fault {
            Fault::CqeOpcode { qpn: wanted, opcode } => wanted.is_none_or(|wanted| wanted == qpn).then_some(opcode),
            _ => None,
        })
    }

    /// Fault of the frame to be sent; `None`: no fault. Counts it down.
    pub fn frame(&self) -> Option<FrameFate> {
        self.first(|fault, random| match fault {
            Fault::Frame { fate, per_million } => (random.below(1_000_000) < per_million).then(|| match fate {
                FrameFate::Corrupted(0) => FrameFate::Corrupted(random.below(u32::MAX)),
                fate => fate,
            }),
            _ => None,
        })
    }

    /// Calls `hit` with each fault; counts down those for which it returns true.
    fn each(&self, mut hit: impl FnMut(Fault, &mut Random) -> bool) {
        if !self.0.any.load(Ordering::Acquire) {
            return;
        }
        let mut plan = self.plan();
        let Plan { entries, random, .. } = &mut *plan;
        for entry in entries.iter_mut() {
            if let (true, Times::Count(left)) = (hit(entry.fault, random), &mut entry.times) {
                *left -= 1;
            }
        }
        entries.retain(|entry| entry.times != Times::Count(0));
        self.publish(&plan);
    }

    /// The first fault for which `pick` returns something; counts it down.
    fn first<T>(&self, mut pick: impl FnMut(Fault, &mut Random) -> Option<T>) -> Option<T> {
        let mut found = None;
        self.each(|fault, random| {
            if found.is_some() {
                return false;
            }
            found = pick(fault, random);
            found.is_some()
        });
        found
    }

    /// The first fault for which `pick` returns something; not counted down.
    fn peek<T>(&self, pick: impl FnMut(Fault) -> Option<T>) -> Option<T> {
        if !self.0.any.load(Ordering::Acquire) {
            return None;
        }
        self.plan().entries.iter().map(|entry| entry.fault).find_map(pick)
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.0.plan.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn publish(&self, plan: &Plan) {
        let removed = plan.entries.iter().any(|entry| entry.fault == Fault::SurpriseRemoval);
        self.0.removed.store(removed, Ordering::Release);
        self.0.any.store(!plan.entries.is_empty(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
