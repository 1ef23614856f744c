//! Functions that leave their reset slowly, that do not support it, or that never return. In virtual time.

use std::io;
use std::sync::Mutex;
use std::time::Duration;

use mlx5_dv::access::{Bar, BarMapping, Function, FunctionParts};
use mlx5_dv::clock::Clock;
use mlx5_dv::{Device, Error, Options};
use mlx5_open::virtual_time::World;
use mlx5_sim::card::Card;

/// The BAR of a software card with a configurable reset.
#[derive(Debug)]
struct Odd {
    bar: Box<dyn Bar>,
    /// Result of the reset.
    reset: Result<(), i32>,
    /// How long registers read as all ones afterwards.
    away: Duration,
    clock: Clock,
    since: Mutex<Option<Duration>>,
}

// SAFETY: passes mapping and reset to the wrapped BAR; a reset that it refuses is an error.
unsafe impl Bar for Odd {
    fn size(&self) -> u64 {
        self.bar.size()
    }

    fn read32(&self, offset: u64) -> io::Result<u32> {
        let away = self.since.lock().unwrap().is_some_and(|since| self.clock.now() - since < self.away);
        if away { Ok(u32::MAX) } else { self.bar.read32(offset) }
    }

    unsafe fn write32(&self, offset: u64, value: u32) -> io::Result<()> {
        // SAFETY: by this function's contract, here and below.
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
        *self.since.lock().unwrap() = Some(self.clock.now());
        Ok(())
    }

    fn set_bus_master(&self, enabled: bool) -> io::Result<()> {
        self.bar.set_bus_master(enabled)
    }
}

/// Longest time for a function to return.
const LIMIT: Duration = Duration::from_secs(100);

/// Opens a software card whose reset returns `reset` and takes `away`. Returns how long that took.
fn open(reset: Result<(), i32>, away: Duration) -> (Duration, Result<(), Error>) {
    let world = World::new(1);
    let card = world.simulated().card(Card::builder()).unwrap();
    let FunctionParts { name, bar, dma, irq } = world.function(&card, 0).into_parts();
    let bar = Box::new(Odd { bar, reset, away, clock: world.clock().clone(), since: Mutex::new(None) });
    // SAFETY: the parts of one function, whose BAR is wrapped.
    let function = unsafe { Function::new(name, bar, dma, irq) };
    let mut options = Options::default();
    (options.firmware_timeout, options.clock) = (LIMIT, world.clock().clone());
    let begin = world.clock().now();
    let opened = Device::open(function, options).map(drop);
    (world.clock().now() - begin, opened)
}

#[test]
fn a_function_slow_to_come_back_is_waited_for() {
    let away = LIMIT - Duration::from_secs(1);
    let (took, opened) = open(Ok(()), away);
    opened.unwrap();
    assert!(took >= away, "{took:?}");
}

#[test]
fn a_function_that_never_comes_back_is_gone_once_time_is_over() {
    let (took, opened) = open(Ok(()), Duration::MAX);
    let error = opened.expect_err("gone");
    assert!(error.is_dead() && error.to_string().contains("all ones"), "{error}");
    assert!(took >= LIMIT && took < LIMIT + Duration::from_secs(10), "{took:?}");
}

#[test]
fn a_function_without_a_reset_is_taken_as_it_is() {
    for refusal in [libc_errno::ENOTTY, libc_errno::EINVAL] {
        open(Err(refusal), Duration::ZERO).1.unwrap();
    }
}

#[test]
fn a_reset_that_fails_says_how_to_do_without() {
    let error = open(Err(libc_errno::EIO), Duration::ZERO).1.expect_err("broken");
    assert!(error.to_string().contains("Options::reset"), "{error}");
}

/// Error numbers.
mod libc_errno {
    pub const EIO: i32 = 5;
    pub const EINVAL: i32 = 22;
    pub const ENOTTY: i32 = 25;
}
