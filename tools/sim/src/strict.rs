//! Strict mode: what silicon would swallow in silence is recorded here, and fails our tests.

use std::fmt;
use std::sync::{Arc, Mutex};

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
pub struct Strict(Option<Arc<Mutex<Vec<Violation>>>>);

impl Strict {
    /// A record that keeps violations, and logs each as a warning.
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
        let Some(record) = &self.0 else { return };
        let violation = Violation { rule, detail: detail() };
        tracing::warn!(target: "mlx5_sim::strict", "{violation}");
        record.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(violation);
    }

    /// All violations since the last call.
    pub fn take(&self) -> Vec<Violation> {
        self.0.as_ref().map_or_else(Vec::new, |record| {
            std::mem::take(&mut *record.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
        })
    }
}
