//! The program at the other end, as this one sees it while it measures: a TCP connection.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use mlx5_dv::Device;
use mlx5_open::rendezvous::{self, Pending};
use mlx5_open::watchdog::{Lost, Watchdog};

use super::arguments::Plan;
use super::run::{NAP, Run};
use crate::output::{self, Failure};

/// How long a client waits for its server, and a server for its client.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Idle turns between two checks for a message from the other end.
const QUIET: u32 = 1 << 16;
/// How long an end sleeps when only the card has work.
const REST: Duration = Duration::from_millis(5);

/// Connects to the server, and says so if it must be waited for.
pub fn reach((host, port): (&str, u16)) -> Result<TcpStream, Failure> {
    let connected = match rendezvous::connect(host, port, Duration::ZERO) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            let limit = PATIENCE.as_secs();
            output::note(&format!("waiting for the server on {host}, port {port}, up to {limit} s"));
            rendezvous::connect(host, port, PATIENCE)
        }
        connected => connected,
    };
    connected.map_err(|error| format!("{host}, port {port}: {error}").into())
}

/// Whether a message from the other end is waiting.
pub fn has_message(stream: &TcpStream) -> Result<bool, Lost> {
    match rendezvous::pending(stream) {
        Pending::Nothing => Ok(false),
        Pending::Bytes => Ok(true),
        Pending::Closed => Err(Lost::Gone),
    }
}

/// How the other end is heard.
pub trait OtherEnd {
    /// Whether a message from it is waiting.
    ///
    /// # Errors
    /// It is gone.
    fn has_message(&mut self) -> Result<bool, Failure>;

    /// The TCP connection to it, if there is one.
    fn stream(&self) -> Option<&TcpStream>;
}

impl OtherEnd for &TcpStream {
    fn has_message(&mut self) -> Result<bool, Failure> {
        Ok(has_message(self)?)
    }

    fn stream(&self) -> Option<&TcpStream> {
        Some(self)
    }
}

/// Runs until `is_over`, or until the other end sends a message: then true.
pub fn run_until(
    run: &mut Run,
    device: &Arc<Device>,
    plan: &Plan,
    other: &mut impl OtherEnd,
    is_over: impl Fn(&Run) -> bool,
) -> Result<bool, Failure> {
    let mut watchdog = Watchdog::new(device);
    if let Some(stream) = other.stream() {
        watchdog = watchdog.peer(stream)?;
    }
    let mut idle = 0;
    while !is_over(run) {
        if run.rests() {
            std::thread::sleep(REST);
            watchdog.is_there()?;
            idle = QUIET;
        } else if run.turn()? {
            watchdog.check(true)?;
            idle = 0;
        } else if plan.events {
            run.sleep(NAP)?;
            watchdog.slept(NAP)?;
            idle = QUIET;
        } else {
            watchdog.check(false)?;
            idle += 1;
        }
        if idle >= QUIET {
            if other.has_message()? {
                return Ok(true);
            }
            idle = 0;
        }
    }
    Ok(false)
}
