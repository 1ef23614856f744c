//! A progress bar for terminals. The measuring thread stores a counter; another thread draws it.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::arguments::{Amount, Plan};

/// Time between two updates.
const FRAME: Duration = Duration::from_millis(100);

/// A progress bar over all sizes; draws nothing if stderr is no terminal.
#[derive(Debug)]
pub struct Progress {
    shared: Arc<Shared>,
    /// Messages per size; of timed runs, milliseconds.
    each: u64,
    sizes: u64,
    begun: u64,
    start: Instant,
    /// Only on a terminal.
    bar: Option<ProgressBar>,
    drawer: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Messages of the current size so far.
    count: AtomicU64,
    /// When the current size began, in milliseconds since the first.
    since: AtomicU64,
    base: AtomicU64,
    size: AtomicU64,
    over: AtomicBool,
}

impl Progress {
    /// A bar for `plan`.
    pub fn new(plan: &Plan) -> Self {
        let (sizes, qps) = (plan.agreed.sizes.len() as u64, plan.agreed.qps as u64);
        let (each, timed) = match plan.agreed.amount {
            Amount::Messages { warm_up, counted } => ((warm_up + counted) * qps, false),
            Amount::Time { total, .. } => (millis(total), true),
        };
        let (shared, start) = (Arc::new(Shared::default()), Instant::now());
        let bar = std::io::stderr().is_terminal().then(|| ProgressBar::new(each * sizes));
        let drawer = bar.clone().map(|bar| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || match timed {
                true => draw(&bar, &shared, |shared| shared.timed(each, millis(start.elapsed()))),
                false => draw(&bar, &shared, Shared::counted),
            })
        });
        Progress { shared, each, sizes, begun: 0, start, bar, drawer }
    }

    /// Starts the next size.
    pub fn begin(&mut self, size: usize) {
        let base = self.each * self.begun.min(self.sizes);
        self.shared.base.store(base, Ordering::Relaxed);
        self.shared.count.store(0, Ordering::Relaxed);
        self.shared.since.store(millis(self.start.elapsed()), Ordering::Relaxed);
        self.shared.size.store(size as u64, Ordering::Relaxed);
        self.begun += 1;
    }

    /// Sets the number of messages of this size so far.
    #[inline(always)]
    pub fn set(&self, count: u64) {
        self.shared.count.store(count, Ordering::Relaxed);
    }

    /// Runs `print` while no bar is on the terminal.
    pub fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }
}

impl Shared {
    /// Messages of all sizes so far.
    fn counted(&self) -> u64 {
        self.base.load(Ordering::Relaxed) + self.count.load(Ordering::Relaxed)
    }

    /// Milliseconds of all sizes so far, `now` ms after the start, of `each` a size.
    fn timed(&self, each: u64, now: u64) -> u64 {
        self.base.load(Ordering::Relaxed) + now.saturating_sub(self.since.load(Ordering::Relaxed)).min(each)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        if let Some(drawer) = self.drawer.take() {
            let _ = drawer.join();
        }
    }
}

fn draw(bar: &ProgressBar, shared: &Shared, position: impl Fn(&Shared) -> u64) {
    if let Ok(style) = ProgressStyle::with_template("{msg:>16} {wide_bar} {eta} left") {
        bar.set_style(style);
    }
    while !shared.over.load(Ordering::Relaxed) {
        bar.set_message(format!("{} bytes", shared.size.load(Ordering::Relaxed)));
        bar.set_position(position(shared));
        std::thread::sleep(FRAME);
    }
    bar.finish_and_clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timed_run_progresses_by_time_and_waits_at_its_end() {
        let shared = Shared::default();
        shared.base.store(3000, Ordering::Relaxed);
        shared.since.store(5000, Ordering::Relaxed);
        assert_eq!([4000, 5000, 6500, 60_000].map(|now| shared.timed(3000, now)), [3000, 3000, 4500, 6000]);
    }
}
