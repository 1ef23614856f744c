//! Strict mode: what silicon would swallow in silence is recorded here, and fails our tests.
//!
//! Bugs that drivers in the field had, where they are written down, and the rule that each would have met here. Rules
//! are named in [`engine::rules`](crate::strict::rules) and [`bar`](crate::bar); each has a test that provokes it.
//!
//! | bug | seen in | rule |
//! | --- | --- | --- |
//! | CQ ring not initialised to 0xff | rocm-xio#100 | `CQE ring not initialised`, `stale owner bit` |
//! | send counter written to the receive queue's dword | rocm-xio#100 | `RECORD_IN_WRONG_SLOT`, `RECORD_NOT_WRITTEN` |
//! | consumer index never published | rocm-xio#100 | `CI_NEVER_PUBLISHED`, `CI_BEHIND`, `CI_NOT_IN_RECORD`, long before `CQ_OVERRUN` |
//! | doorbell record little-endian | VPP change 46506 | `RECORD_LITTLE_ENDIAN` |
//! | BlueFlame register shared by threads | ucx#2464, libxlio#123 | `RULE_COPY`, `DOORBELL_DIFFERS` |
//! | write-combining not flushed before the other half is used | daqiri#273 | `RULE_COPY` where a block never came, `RULE_SAME_BUFFER` |
//! | staging buffer used again before its completion | mori#366 | `BUFFER_CHANGED` |
//! | error CQE ignored | DeepEP#558, nccl#2383 | `ERROR_IGNORED` |
//! | posts taken in RST, INIT, RTR | rdma-core 988f90bc1 | `WRONG_STATE`, `RECEIVE_IN_RST` |
//! | verbs' port number where the card's is expected | VPP change 46155 | refused by the state change, as on a card |
//!
//! What a device cannot see has no rule. A store that waits in a write-combining buffer has not reached it; mapped
//! pages of the model are plain memory and know no such buffer at all. A driver that reads a `wqe_counter` of 16 bits
//! too early, or takes a timestamp for what it is not, goes wrong after the card is done. The memory that an RDMA read
//! fills belongs to the card until the read completes, but nobody can tell software's stores to it from the card's own.
//! One receive buffer posted many times at once, as a driver of AF_XDP did that released it twice (jtollet's
//! KNOWN_ISSUES), may be meant: `ibv_rc_pingpong` does it. So `RECEIVE_TWICE` is [asked for](Strict::watch_receives).

pub mod rules;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// One thing a driver did that a card would not complain about. Ask [`Strict::take`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// What kind, such as `doorbell record in the wrong slot`. Stable: tests compare it.
    pub rule: &'static str,
    /// To which object, and the figures.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.detail)
    }
}

/// The record. Cheap to clone; all clones are the same record. Does nothing unless it was made by [`Strict::on`].
#[derive(Debug, Clone, Default)]
pub struct Strict(Option<Arc<Shared>>);

#[derive(Debug, Default)]
struct Shared {
    record: Mutex<Record>,
    watches_receives: AtomicBool,
}

/// Violations kept until somebody takes them. A client that does the same wrong thing for ever must not fill our
/// memory.
pub const KEPT: usize = 1000;

/// The rule of the last [`Violation`] taken, if more than [`KEPT`] came; its detail says how many.
pub const NOT_KEPT: &str = "more violations than are kept";

#[derive(Debug, Default)]
struct Record {
    kept: Vec<Violation>,
    /// How many came after those.
    more: u64,
}

impl Strict {
    /// A record that keeps the first [`KEPT`] violations, and logs those as warnings.
    pub fn on() -> Self {
        Strict(Some(Arc::default()))
    }

    /// A record that keeps none.
    pub fn off() -> Self {
        Strict(None)
    }

    /// Whether it keeps any.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Also reports receive buffers that are posted while they are posted already, from the queue pairs' next receives
    /// on. Not done unasked: programs that do not care for what they receive, such as `ibv_rc_pingpong`, post one
    /// buffer many times.
    pub fn watch_receives(&self) {
        if let Some(shared) = &self.0 {
            shared.watches_receives.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it does.
    pub fn watches_receives(&self) -> bool {
        self.0.as_ref().is_some_and(|shared| shared.watches_receives.load(Ordering::Relaxed))
    }

    /// Records a violation; `detail` is only built when strict mode is on.
    pub fn report(&self, rule: &'static str, detail: impl FnOnce() -> String) {
        let Some(mut record) = self.record() else { return };
        if record.kept.len() >= KEPT {
            record.more += 1;
            return;
        }
        let violation = Violation { rule, detail: detail() };
        tracing::warn!(target: "mlx5_sim::strict", "{violation}");
        record.kept.push(violation);
    }

    /// All violations since the last call.
    pub fn take(&self) -> Vec<Violation> {
        let Some(mut record) = self.record() else { return Vec::new() };
        let Record { mut kept, more } = std::mem::take(&mut *record);
        if more > 0 {
            kept.push(Violation { rule: NOT_KEPT, detail: format!("{more} more") });
        }
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
    fn endless_violations_are_counted() {
        let strict = Strict::on();
        (0..KEPT + 3).for_each(|number| strict.report("rule", || number.to_string()));
        let taken = strict.take();
        assert_eq!((taken.len(), taken[KEPT - 1].detail.as_str()), (KEPT + 1, "999"));
        assert_eq!(taken[KEPT], Violation { rule: NOT_KEPT, detail: "3 more".into() });
        assert!(strict.take().is_empty());
    }
}
