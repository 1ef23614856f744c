//! Notices that nothing moves any more.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mlx5_dv::Device;

use crate::meet::{self, Pending};

/// How long nothing may move before the other end counts as lost.
pub const SILENCE: Duration = Duration::from_secs(30);
/// Idle turns between two looks at the clock.
const LOOK_EVERY: u64 = 1 << 20;

/// Why nothing more will come.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    /// The card died.
    #[error(transparent)]
    Card(#[from] mlx5_dv::Error),
    /// The program at the other end has closed its end.
    #[error("the program at the other end is gone: it ended, or was ended, in the middle of the run")]
    Gone,
    /// Nothing came.
    #[error("nothing came for {} s: is the other end alive?", SILENCE.as_secs())]
    Silent,
}

/// Watches a loop that polls, without asking the clock on every turn.
#[derive(Debug)]
pub struct Watch {
    device: Arc<Device>,
    /// The TCP connection to the program at the other end, if that is another program.
    peer: Option<TcpStream>,
    idle: u64,
    /// When it was first looked, after a long time of nothing.
    since: Instant,
}

impl Watch {
    /// Starts watching a loop that polls `device`.
    pub fn new(device: &Arc<Device>) -> Self {
        Watch { device: Arc::clone(device), peer: None, idle: 0, since: Instant::now() }
    }

    /// Looks at `stream`, too: when it is closed, the program at the other end is gone.
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub fn peer(mut self, stream: &TcpStream) -> io::Result<Self> {
        self.peer = Some(stream.try_clone()?);
        Ok(self)
    }

    /// To be called once a turn.
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

    /// Off the path: not in the caller's loop.
    #[cold]
    fn look(&mut self) -> Result<(), Lost> {
        if self.idle == LOOK_EVERY {
            self.since = Instant::now();
        }
        self.is_there()?;
        if self.since.elapsed() > SILENCE { Err(Lost::Silent) } else { Ok(()) }
    }

    /// To be called after a sleep of at most `nap` that nothing ended: see [`check`](Self::check).
    ///
    /// # Errors
    /// [`Lost`].
    pub fn slept(&mut self, nap: Duration) -> Result<(), Lost> {
        self.is_there()?;
        let turns = SILENCE.as_nanos().div_ceil(nap.as_nanos().max(1));
        self.idle += 1;
        if u128::from(self.idle) > turns { Err(Lost::Silent) } else { Ok(()) }
    }

    /// Whether card and other end still are. A system call or two.
    ///
    /// # Errors
    /// [`Lost`].
    pub fn is_there(&self) -> Result<(), Lost> {
        if let Some(death) = self.device.death() {
            return Err(death.into());
        }
        if self.peer.as_ref().is_some_and(|peer| meet::pending(peer) == Pending::Closed) {
            return Err(Lost::Gone);
        }
        Ok(())
    }
}
