//! Strict mode: records driver errors that a real card would ignore silently. They fail our tests.
//!
//! The table lists documented bugs of real drivers, and the rule that detects each. The rules are in [`rules`] and
//! [`bar`](crate::bar); each has a test that provokes it.
//!
//! | bug | seen in | rule |
//! | --- | --- | --- |
//! | CQ ring not initialised to 0xff | rocm-xio#100 | `CQE ring not initialised`, `stale owner bit` |
//! | send counter written to the receive queue's dword | rocm-xio#100 | `RECORD_IN_WRONG_SLOT`, `RECORD_NOT_WRITTEN` |
//! | consumer index never published | rocm-xio#100 | `CI_NEVER_PUBLISHED`, `CI_BEHIND`, `CI_NOT_IN_RECORD`, long before `CQ_OVERRUN` |
//! | doorbell record little-endian | VPP change 46506 | `RECORD_LITTLE_ENDIAN` |
//! | BlueFlame register shared by threads | ucx#2464, libxlio#123 | `RULE_COPY`, `DOORBELL_DIFFERS` |
//! | write-combining not flushed before the other half is used | daqiri#273 | `RULE_COPY` if a block was never written, `RULE_SAME_BUFFER` |
//! | staging buffer reused before its completion | mori#366 | `BUFFER_CHANGED` on RC, from the first transmission on |
//! | error CQE ignored | DeepEP#558, nccl#2383 | `ERROR_IGNORED` once a queue's whole ring was posted again |
//! | striding receive WQE misplaced | rdma-core#1381 | `NO_BUFFER` |
//! | error CQE printed by code that never ran | Snabb's driver | none: [`CompletionError`](crate::fault::Fault::CompletionError) makes one, on any queue |
//! | posts taken in RST, INIT, RTR | rdma-core 988f90bc1 | `WRONG_STATE`, `RECEIVE_IN_RST` |
//! | verbs' port number instead of the card's | VPP change 46155 | refused by the state change, as on a card |
//!
//! Errors that a device cannot see have no rule. A store that waits in a write-combining buffer has not reached the
//! device, and mapped pages of the model are plain memory without such a buffer. Reading a 16-bit `wqe_counter` too
//! early, or misinterpreting a timestamp, happens after the card is done. The destination of an RDMA read belongs to
//! the card until the read completes, but software's stores to it cannot be told apart from the card's. Posting one
//! receive buffer several times can be an error, as in an AF_XDP driver that released it twice (jtollet's
//! KNOWN_ISSUES), or intended, as in `ibv_rc_pingpong`. So `RECEIVE_TWICE` must be [enabled](Strict::watch_receives),
//! by `mlx5 sim --watch-receives`. It knows a queue pair's own ring and that of an Ethernet queue; what is linked, as
//! in shared and in striding receive queues, it does not follow.

pub mod rules;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// An error of a driver that a card would not report. See [`Strict::take`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The rule, such as `doorbell record in the wrong slot`. Stable: tests compare it.
    pub rule: &'static str,
    /// The object, and values.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.detail)
    }
}

/// The record of violations. Cheap to clone; all clones are the same record. Does nothing unless created by
/// [`Strict::on`].
#[derive(Debug, Clone, Default)]
pub struct Strict(Option<Arc<Shared>>);

#[derive(Debug, Default)]
struct Shared {
    record: Mutex<Record>,
    watches_receives: AtomicBool,
}

/// Maximum number of violations kept of each rule, so that a client that repeats an error neither exhausts our memory
/// nor hides its other errors.
pub const KEPT: u64 = 100;

/// The rule of the last [`Violation`]s taken, one for each rule with more than [`KEPT`]; the detail has their number.
pub const NOT_KEPT: &str = "more violations than are kept";

#[derive(Debug, Default)]
struct Record {
    kept: Vec<Violation>,
    /// Number of violations of each rule, kept or not.
    counts: BTreeMap<&'static str, u64>,
}

impl Strict {
    /// A record that keeps the first [`KEPT`] violations of each rule, and logs them as warnings.
    pub fn on() -> Self {
        Strict(Some(Arc::default()))
    }

    /// A record that keeps nothing.
    pub fn off() -> Self {
        Strict(None)
    }

    /// Whether it keeps violations.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Also reports receive buffers that are posted while already posted, from the next receive on. Off by default:
    /// programs that ignore the received data, such as `ibv_rc_pingpong`, post one buffer many times.
    pub fn watch_receives(&self) {
        if let Some(shared) = &self.0 {
            shared.watches_receives.store(true, Ordering::Relaxed);
        }
    }

    /// Whether receives are watched.
    pub fn watches_receives(&self) -> bool {
        self.0.as_ref().is_some_and(|shared| shared.watches_receives.load(Ordering::Relaxed))
    }

    /// Records a violation. `detail` is only called when strict mode is on.
    pub fn report(&self, rule: &'static str, detail: impl FnOnce() -> String) {
        let Some(mut record) = self.record() else { return };
        let count = record.counts.entry(rule).or_default();
        *count += 1;
        match (*count).checked_sub(KEPT) {
            None | Some(0) => {
                let violation = Violation { rule, detail: detail() };
                tracing::warn!(target: "mlx5_sim::strict", "{violation}");
                record.kept.push(violation);
            }
            Some(1) => tracing::warn!(target: "mlx5_sim::strict", "{rule}: more of these are counted, and not shown"),
            Some(_) => (),
        }
    }

    /// All violations since the last call.
    pub fn take(&self) -> Vec<Violation> {
        let Some(mut record) = self.record() else { return Vec::new() };
        let Record { mut kept, counts } = std::mem::take(&mut *record);
        let not_kept = counts.into_iter().filter(|(_, count)| *count > KEPT);
        kept.extend(not_kept.map(|(rule, count)| {
            let detail = format!("{} more of \"{rule}\"", count - KEPT);
            Violation { rule: NOT_KEPT, detail }
        }));
        kept
    }

    fn record(&self) -> Option<MutexGuard<'_, Record>> {
        Some(self.0.as_ref()?.record.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endless_violations_of_one_rule_are_counted_and_hide_no_other() {
        let strict = Strict::on();
        (0..KEPT + 3).for_each(|number| strict.report("repeated", || number.to_string()));
        strict.report("another", || "once".into());
        let taken = strict.take();
        let [.., last, another, counted] = taken.as_slice() else { panic!("{taken:?}") };
        assert_eq!(taken.len() as u64, KEPT + 2);
        assert_eq!(*last, Violation { rule: "repeated", detail: "99".into() });
        assert_eq!(*another, Violation { rule: "another", detail: "once".into() });
        assert_eq!(*counted, Violation { rule: NOT_KEPT, detail: "3 more of \"repeated\"".into() });
        assert!(strict.take().is_empty());
    }
}
