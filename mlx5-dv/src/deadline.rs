//! Deadlines of waits.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::clock::Clock;
use crate::error::Error;

/// The end of a wait.
#[derive(Debug, Clone)]
pub(crate) struct Deadline {
    clock: Clock,
    end: Option<Duration>,
}

impl Deadline {
    /// `timeout` from now; no deadline if that overflows the clock.
    pub(crate) fn after(clock: &Clock, timeout: Duration) -> Self {
        Deadline { clock: clock.clone(), end: clock.now().checked_add(timeout) }
    }

    /// Time left; `None` if there is no deadline.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.end.map(|end| end.saturating_sub(self.clock.now()))
    }

    /// Whether the deadline has passed.
    pub(crate) fn has_passed(&self) -> bool {
        self.left() == Some(Duration::ZERO)
    }

    /// Sleeps until `fd` is readable, the deadline passes, or a signal comes; in virtual time, until something is due.
    /// `doing` is for the error.
    pub(crate) fn sleep_on(&self, fd: BorrowedFd<'_>, doing: &str) -> Result<(), Error> {
        if self.clock.is_virtual() {
            self.clock.pause(self.left().unwrap_or(Duration::MAX));
            return Ok(());
        }
        let left = self.left().map(|left| Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        match poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(Error::io(doing, error.into())),
        }
    }
}
