//! Functions that come slowly out of their reset, that know none, or that never come back.

use std::io;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use mlx5_dv::access::{Bar, BarMapping, Function, FunctionParts};
use mlx5_dv::{Device, Error, Options};
use mlx5_open::Sim;

/// The BAR of a software card with a reset of its own kind.
#[derive(Debug)]
struct Odd {
    bar: Box<dyn Bar>,
    /// What the reset answers.
    reset: Result<(), i32>,
    /// How long registers read as all ones after it.
    away: Duration,
    since: Mutex<Option<Instant>>,
}

// SAFETY: maps and resets what it wraps; a reset that it refuses is an error.
unsafe impl Bar for Odd {
    fn size(&self) -> u64 {
        self.bar.size()
    }

    fn read32(&self, offset: u64) -> io::Result<u32> {
        let away = self.since.lock().unwrap().is_some_and(|since| since.elapsed() < self.away);
        if away { Ok(u32::MAX) } else { self.bar.read32(offset) }
    }

    unsafe fn write32(&self, offset: u64, value: u32) -> io::Result<()> {
        // SAFETY: the caller's promise, here and below.
        unsafe { self.bar.write32(offset, value) }
    }

    unsafe fn write64(&self, offset: u64, value: u64) -> io::Result<()> {
        // SAFETY: as above.
        unsafe { self.bar.write64(offset, value) }
    }

    fn map(&self, offset: u64, len: usize) -> io::Result<Option<BarMapping>> {
        self.bar.map(offset, len)
    }

    fn reset(&self) -> io::Result<()> {
        self.reset.map_err(io::Error::from_raw_os_error)?;
        self.bar.reset()?;
        *self.since.lock().unwrap() = Some(Instant::now());
        Ok(())
    }

    fn set_bus_master(&self, enabled: bool) -> io::Result<()> {
        self.bar.set_bus_master(enabled)
    }
}

/// Opens a software card whose reset answers `reset` and is followed by a silence of `away`.
fn open(reset: Result<(), i32>, away: Duration) -> Result<(), Error> {
    let sim = Sim::builder().build()?;
    let FunctionParts { name, bar, dma, irq } = sim.function(0).into_parts();
    let bar = Box::new(Odd { bar, reset, away, since: Mutex::new(None) });
    // SAFETY: the parts of one function, whose BAR is wrapped.
    let function = unsafe { Function::new(name, bar, dma, irq) };
    let mut options = Options::default();
    options.firmware_timeout = Duration::from_secs(2);
    Device::open(function, options).map(drop)
}

#[test]
fn a_function_slow_to_come_back_is_waited_for() {
    open(Ok(()), Duration::from_millis(300)).unwrap();
}

#[test]
fn a_function_that_never_comes_back_is_gone_once_time_is_over() {
    let begin = Instant::now();
    let error = open(Ok(()), Duration::MAX).expect_err("gone");
    assert!(error.is_dead() && error.to_string().contains("all ones"), "{error}");
    assert!(begin.elapsed() >= Duration::from_secs(2));
}

#[test]
fn a_function_without_a_reset_is_taken_as_it_is() {
    for refusal in [libc_errno::ENOTTY, libc_errno::EINVAL] {
        open(Err(refusal), Duration::ZERO).unwrap();
    }
}

#[test]
fn a_reset_that_fails_says_how_to_do_without() {
    let error = open(Err(libc_errno::EIO), Duration::ZERO).expect_err("broken");
    assert!(error.to_string().contains("Options::reset"), "{error}");
}

/// Numbers of errors.
mod libc_errno {
    pub const EIO: i32 = 5;
    pub const EINVAL: i32 = 22;
    pub const ENOTTY: i32 = 25;
}
