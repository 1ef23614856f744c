//! Received frames, wherever they come from.

use std::time::Duration;

use mlx5_dv::Error;
use mlx5_dv::queue::Done;
use mlx5_dv::queue::ethernet::{FrameCompletion, Packet, PacketError, Receives, StridingQueue};

/// A received frame, where the card wrote it.
#[derive(Debug)]
pub(super) enum Frame {
    /// In a buffer of its own, which is posted again.
    Buffer(Done<FrameCompletion>),
    /// In strides of a larger one.
    Packet(Packet),
}

impl Frame {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Frame::Buffer(done) => done.received().unwrap_or_default(),
            Frame::Packet(packet) => packet,
        }
    }

    /// Number of TCP segments that the card made it of; 0 if it joined none.
    pub(super) fn segments(&self) -> u64 {
        let completion = match self {
            Frame::Buffer(done) => done.result.as_ref().ok(),
            Frame::Packet(packet) => Some(packet.completion()),
        };
        completion.and_then(FrameCompletion::joined).map_or(0, |joined| joined.segments.into())
    }
}

/// A striding queue, whatever its completions.
pub(super) trait Packets: Send {
    /// The next packet. After a failure the queue is restarted.
    fn next(&mut self) -> Result<Option<Packet>, Error>;

    /// As [`next`](Self::next), but waits.
    fn wait(&mut self, timeout: Duration) -> Result<Option<Packet>, Error>;
}

impl<C: Receives + Send> Packets for StridingQueue<C> {
    fn next(&mut self) -> Result<Option<Packet>, Error> {
        let found = self.poll();
        found.or_else(|error| restart(self, error).map(|()| None))
    }

    fn wait(&mut self, timeout: Duration) -> Result<Option<Packet>, Error> {
        match StridingQueue::wait(self, timeout) {
            Ok(packet) => Ok(Some(packet)),
            Err(PacketError::Waiting(Error::Timeout { .. })) => Ok(None),
            Err(error) => restart(self, error).map(|()| None),
        }
    }
}

/// Restarts a queue whose receive failed. Other errors are returned.
fn restart<C: Receives>(queue: &mut StridingQueue<C>, error: PacketError) -> Result<(), Error> {
    match error {
        PacketError::Work(error) => {
            tracing::warn!(%error, "the striding receive queue failed and is reset");
            queue.reset()
        }
        PacketError::Retire(error) => Err(error.into()),
        PacketError::Waiting(error) => Err(error),
        other => Err(Error::io("receiving", std::io::Error::other(other))),
    }
}
