//! Detects that a polling loop makes no progress any more.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mlx5_dv::Device;

use crate::rendezvous::{self, Pending};

/// Time without progress after which the other end counts as lost.
pub const SILENCE: Duration = Duration::from_secs(30);
/// Idle turns between two checks of the clock.
const LOOK_EVERY: u64 = 1 << 20;

/// Why a loop will make no more progress.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    /// The card died.
    #[error(transparent)]
    Card(#[from] mlx5_dv::Error),
    /// The other program closed its connection.
    #[error("the program at the other end is gone: it exited or was killed during the run")]
    Gone,
    /// No progress for [`SILENCE`].
    #[error("no message arrived for {} s: is the other end alive?", SILENCE.as_secs())]
    Silent,
}

/// Watches a polling loop without reading the clock on every turn.
#[derive(Debug)]
pub struct Watchdog {
    device: Arc<Device>,
    /// The TCP connection to the other end, if that is another program.
    peer: Option<TcpStream>,
    idle: u64,
    /// Time of the first check in this idle period.
    since: Instant,
}

impl Watchdog {
    /// Starts watching a loop that polls `device`.
    pub fn new(device: &Arc<Device>) -> Self {
        Watchdog { device: Arc::clone(device), peer: None, idle: 0, since: Instant::now() }
    }

    /// Also watches `stream`: when it is closed, the other program is gone.
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub fn peer(mut self, stream: &TcpStream) -> io::Result<Self> {
        self.peer = Some(stream.try_clone()?);
        Ok(self)
    }

    /// Call once per turn; `moved` tells whether the turn made progress.
    ///
    /// # Errors
    /// [`Lost`].
    #[inline]
    pub fn check(&mut self, moved: bool) -> Result<(), Lost> {
        if moved {
            self.idle = 0;
            return Ok(());
        }
        self.idle += 1;
        if self.idle.is_multiple_of(LOOK_EVERY) {
            return self.look();
        }
        Ok(())
    }

    /// Cold path, kept out of the caller's loop.
    #[cold]
    fn look(&mut self) -> Result<(), Lost> {
        if self.idle == LOOK_EVERY {
            self.since = Instant::now();
        }
        self.is_there()?;
        if self.since.elapsed() > SILENCE { Err(Lost::Silent) } else { Ok(()) }
    }

    /// Call after a sleep of up to `nap` that no event ended, instead of [`check`](Self::check).
    ///
    /// # Errors
    /// [`Lost`].
    pub fn slept(&mut self, nap: Duration) -> Result<(), Lost> {
        self.is_there()?;
        let turns = SILENCE.as_nanos().div_ceil(nap.as_nanos().max(1));
        self.idle += 1;
        if u128::from(self.idle) > turns { Err(Lost::Silent) } else { Ok(()) }
    }

    /// Checks that the card and the other end are alive. One or two system calls.
    ///
    /// # Errors
    /// [`Lost`].
    pub fn is_there(&self) -> Result<(), Lost> {
        if let Some(death) = self.device.death() {
            return Err(death.into());
        }
        if self.peer.as_ref().is_some_and(|peer| rendezvous::pending(peer) == Pending::Closed) {
            return Err(Lost::Gone);
        }
        Ok(())
    }
}
