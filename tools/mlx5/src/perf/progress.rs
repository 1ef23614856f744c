//! A progress bar for terminals. The measuring thread stores a counter; another thread draws it.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::arguments::{Amount, Plan};

/// Time between two updates.
const FRAME: Duration = Duration::from_millis(100);

/// A progress bar over all sizes; draws nothing if stderr is no terminal.
#[derive(Debug)]
pub struct Progress {
    shared: Arc<Shared>,
    /// Messages per size; 0 for timed runs.
    messages: u64,
    sizes: u64,
    begun: u64,
    drawer: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Messages of the current size so far.
    count: AtomicU64,
    base: AtomicU64,
    size: AtomicU64,
    over: AtomicBool,
}

impl Progress {
    /// A bar for `plan`.
    pub fn new(plan: &Plan) -> Self {
        let (sizes, qps) = (plan.agreed.sizes.len() as u64, plan.agreed.qps as u64);
        let messages = match plan.agreed.amount {
            Amount::Messages { warm_up, counted } => (warm_up + counted) * qps,
            Amount::Time { .. } => 0,
        };
        let shared = Arc::new(Shared::default());
        let drawer = std::io::stderr().is_terminal().then(|| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || draw(&shared, messages * sizes))
        });
        Progress { shared, messages, sizes, begun: 0, drawer }
    }

    /// Starts the next size.
    pub fn begin(&mut self, size: usize) {
        let base = self.messages * self.begun.min(self.sizes);
        self.shared.base.store(base, Ordering::Relaxed);
        self.shared.count.store(0, Ordering::Relaxed);
        self.shared.size.store(size as u64, Ordering::Relaxed);
        self.begun += 1;
    }

    /// Sets the number of messages of this size so far.
    #[inline(always)]
    pub fn set(&self, count: u64) {
        self.shared.count.store(count, Ordering::Relaxed);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        if let Some(drawer) = self.drawer.take() {
            let _ = drawer.join();
        }
    }
}

fn draw(shared: &Shared, all: u64) {
    let bar = if all > 0 { ProgressBar::new(all) } else { ProgressBar::new_spinner() };
    let template = if all > 0 { "{msg:>16} {wide_bar} {eta}" } else { "{spinner} {msg} {elapsed}" };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    while !shared.over.load(Ordering::Relaxed) {
        bar.set_message(format!("{} bytes", shared.size.load(Ordering::Relaxed)));
        bar.set_position(shared.base.load(Ordering::Relaxed) + shared.count.load(Ordering::Relaxed));
        std::thread::sleep(FRAME);
    }
    bar.finish_and_clear();
}
