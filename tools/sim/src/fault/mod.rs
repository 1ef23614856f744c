//! What can be made to go wrong, at run time and from any thread.
//!
//! A [`Faults`] handle is a list of [`Fault`]s, each good for a number of [`Times`]. The part of the model that a fault
//! is about asks at the point where things go wrong; where nothing was injected, asking costs one relaxed load.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

mod parse;
mod random;

pub use parse::{Injection, ParseFaultError};
pub(crate) use random::Random;

/// One thing that goes wrong. `opcode: None` means any command, `event_type: None` any event, `qpn: None` any queue
/// pair.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// A command is answered with this status and syndrome instead of being carried out.
    CommandStatus {
        /// Command opcode.
        opcode: Option<u16>,
        /// Status, such as 0x3 for `BAD_PARAM`.
        status: u8,
        /// Firmware syndrome.
        syndrome: u32,
    },
    /// A command is never answered.
    CommandSwallowed {
        /// Command opcode.
        opcode: Option<u16>,
    },
    /// A command's entry is given back with this delivery status, not carried out.
    DeliveryStatus {
        /// Command opcode.
        opcode: Option<u16>,
        /// Delivery status, seven bits, such as 0x1 for a signature error.
        status: u8,
    },
    /// A command is carried out, and answered late.
    CommandLate {
        /// Command opcode.
        opcode: Option<u16>,
        /// How late.
        by: Duration,
    },
    /// A command's output carries a wrong token in its mailboxes.
    BadToken {
        /// Command opcode.
        opcode: Option<u16>,
    },
    /// A command's entry and output carry wrong signatures.
    BadSignature {
        /// Command opcode.
        opcode: Option<u16>,
    },
    /// An event is not written.
    EventLost {
        /// Event type.
        event_type: Option<u8>,
    },
    /// The health buffer shows this syndrome.
    Health {
        /// PRM "Health Buffer", `synd`.
        syndrome: u8,
    },
    /// The health counter stands still.
    HealthCounterStopped,
    /// Firmware asks for this many pages (takes them back, if negative).
    PageRequest {
        /// Pages of 4096 bytes.
        pages: i32,
    },
    /// The card is gone: registers and config space read all ones, doorbells go nowhere, no DMA, no interrupts.
    SurpriseRemoval,
    /// A work request of a queue pair ends with this error completion.
    CompletionError {
        /// Queue pair.
        qpn: Option<u32>,
        /// CQE syndrome.
        syndrome: u8,
        /// CQE vendor syndrome.
        vendor_syndrome: u8,
    },
    /// A frame that this function sends meets this fate, with the given probability.
    Frame {
        /// What happens to it.
        fate: FrameFate,
        /// Out of a million frames, how many.
        per_million: u32,
    },
}

/// What happens to a frame on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameFate {
    /// It is lost.
    Lost,
    /// It arrives twice.
    Duplicated,
    /// The frame after it overtakes it.
    Reordered,
    /// One of its bits is flipped: bit `n` modulo its length in bits.
    Corrupted(u32),
}

/// How often a fault happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// That often, then no more.
    Count(u32),
    /// Until it is [cleared](Faults::clear).
    Always,
}

/// Names an injected fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FaultId(u64);

/// What is to go wrong with one command; all `None` and `false` for nothing. Delivery status goes before status.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CommandFaults {
    /// Never answer.
    pub swallow: bool,
    /// Give back with this delivery status.
    pub delivery_status: Option<u8>,
    /// Answer with this status and syndrome, and do nothing.
    pub status: Option<(u8, u32)>,
    /// Answer that much later.
    pub late: Option<Duration>,
    /// A wrong token in the output mailboxes.
    pub bad_token: bool,
    /// Wrong signatures.
    pub bad_signature: bool,
}

/// The switchboard of one function. Cheap to clone; all clones are the same switchboard. `Send` and `Sync`.
#[derive(Clone, Default)]
pub struct Faults(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// Whether the plan has any entry, so that the usual case takes no lock.
    any: AtomicBool,
    /// Whether the card is gone; asked on every access.
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
    /// A switchboard with nothing on it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes `fault` happen from now on.
    pub fn inject(&self, fault: Fault, times: Times) -> FaultId {
        let mut plan = self.plan();
        let id = FaultId(plan.next_id);
        plan.next_id += 1;
        plan.entries.push(Entry { id, fault, times });
        self.publish(&plan);
        id
    }

    /// Ends a fault. False if it had ended already.
    pub fn clear(&self, id: FaultId) -> bool {
        let mut plan = self.plan();
        let before = plan.entries.len();
        plan.entries.retain(|entry| entry.id != id);
        self.publish(&plan);
        plan.entries.len() != before
    }

    /// Ends all faults.
    pub fn clear_all(&self) {
        let mut plan = self.plan();
        plan.entries.clear();
        self.publish(&plan);
    }

    /// Every fault that can still happen, and how often.
    pub fn list(&self) -> Vec<(FaultId, Fault, Times)> {
        self.plan().entries.iter().map(|entry| (entry.id, entry.fault, entry.times)).collect()
    }

    /// Starts the dice of [`Fault::Frame`] anew: the same seed gives the same losses.
    pub fn seed(&self, seed: u64) {
        self.plan().random = Random::new(seed);
    }

    /// What goes wrong with the command at hand. Counts down what it returns.
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

    /// Whether the event at hand is lost. Counts down.
    pub fn event_lost(&self, event_type: u8) -> bool {
        self.first(|fault, _| match fault {
            Fault::EventLost { event_type: wanted } => wanted.is_none_or(|wanted| wanted == event_type).then_some(()),
            _ => None,
        })
        .is_some()
    }

    /// The syndrome that the health buffer is to show. Asking does not count down: it shows until cleared.
    pub fn health_syndrome(&self) -> Option<u8> {
        self.peek(|fault| match fault {
            Fault::Health { syndrome } => Some(syndrome),
            _ => None,
        })
    }

    /// Whether the health counter stands still. Asking does not count down.
    pub fn health_counter_stopped(&self) -> bool {
        self.peek(|fault| matches!(fault, Fault::HealthCounterStopped).then_some(())).is_some()
    }

    /// Pages that firmware is to ask for (to give back, if negative) now. Counts down.
    pub fn page_request(&self) -> Option<i32> {
        self.first(|fault, _| match fault {
            Fault::PageRequest { pages } => Some(pages),
            _ => None,
        })
    }

    /// Whether the card is gone. One load. Asking does not count down.
    pub fn removed(&self) -> bool {
        self.0.removed.load(Ordering::Relaxed)
    }

    /// Syndrome and vendor syndrome with which the work request at hand is to end. Counts down.
    pub fn completion_error(&self, qpn: u32) -> Option<(u8, u8)> {
        self.first(|fault, _| match fault {
            Fault::CompletionError { qpn: wanted, syndrome, vendor_syndrome } => {
                wanted.is_none_or(|wanted| wanted == qpn).then_some((syndrome, vendor_syndrome))
            }
            _ => None,
        })
    }

    /// What happens to the frame that is about to leave; `None`: it arrives whole. Counts down.
    pub fn frame(&self) -> Option<FrameFate> {
        self.first(|fault, random| match fault {
            Fault::Frame { fate, per_million } => (random.below(1_000_000) < per_million).then(|| match fate {
                FrameFate::Corrupted(0) => FrameFate::Corrupted(random.below(u32::MAX)),
                fate => fate,
            }),
            _ => None,
        })
    }

    /// Calls `hit` with each fault and counts down those it says happened.
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

    /// The first fault for which `pick` has an answer, counted down.
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

    /// The first fault for which `pick` has an answer, not counted down.
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
