//! Strict mode: what silicon would swallow in silence is recorded here, and fails our tests.

use std::fmt;
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
pub struct Strict(Option<Arc<Mutex<Record>>>);

/// Violations kept until somebody takes them. A client that does the same wrong thing for ever must not fill our memory.
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
        Some(self.0.as_ref()?.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
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
