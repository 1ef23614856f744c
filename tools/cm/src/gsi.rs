//! Management datagrams on queue pair 1.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use mlx5_dv::objects::{AddressHandle, Buffer, ExclusiveRegion, Pd};
use mlx5_dv::queue::{DatagramOptions, DatagramQueue, Done, EventSource, GRH, Side};
use mlx5_dv::{Device, Error};
use mlx5_prm::ib::{Grh, MAD};
use mlx5_prm::layout::Layout;

use crate::error::ManagerError;
use crate::message::{Gid, gid_of};

/// Number of posted receives.
const RECEIVES: usize = 256;
/// Maximum number of outstanding sends.
const SENDS: usize = 64;
/// The longest datagram. A receive without room for one that comes would fail, and the queue pair with it.
const LONGEST: usize = 4096;
/// Distance of two buffers in their region, in bytes.
const SLOT: usize = (GRH + LONGEST).next_multiple_of(64);

/// A received datagram.
pub(crate) struct Received {
    /// The local GID and the sender's GID.
    pub(crate) local: Gid,
    pub(crate) remote: Gid,
    pub(crate) mad: Vec<u8>,
}

/// Queue pair 1 and its buffers.
#[derive(Debug)]
pub(crate) struct Gsi {
    queue: DatagramQueue,
    /// Buffers of sends.
    spare: Vec<Buffer>,
    /// What ended a wait.
    first: Option<Done>,
}

impl Gsi {
    pub(crate) fn new(device: &Arc<Device>) -> Result<Self, Error> {
        let pd = Pd::alloc(device)?;
        let region = ExclusiveRegion::allocate(&pd, (RECEIVES + SENDS) * SLOT)?;
        let options = DatagramOptions::general_services().send_depth(SENDS as u32).recv_depth(RECEIVES as u32).events();
        let buffer = |at: usize| region.buffer(at * SLOT..at * SLOT + GRH + LONGEST);
        let spare = (0..RECEIVES + SENDS).map(buffer).collect::<Result<_, _>>()?;
        let mut gsi = Gsi { queue: DatagramQueue::new(&pd, options)?, spare, first: None };
        gsi.post_receives();
        Ok(gsi)
    }

    /// Posts receives up to their number.
    fn post_receives(&mut self) {
        while self.queue.in_flight().1 < RECEIVES
            && let Some(buffer) = self.spare.pop()
        {
            if !self.post_receive(buffer) {
                break;
            }
        }
    }

    /// Posts one receive. Returns false if the queue does not take it; then the buffer is spare.
    fn post_receive(&mut self, mut buffer: Buffer) -> bool {
        buffer.set_len(buffer.capacity());
        let Err(refused) = self.queue.receive(buffer) else { return true };
        // There is room for each.
        tracing::warn!(%refused, "a receive of queue pair 1 was not posted");
        self.spare.extend(refused.buffer);
        false
    }

    /// Returns the next datagram. A datagram that is too short, or whose IP header is invalid, is dropped. After a
    /// failure the queue is restarted: what a remote sends must not end the manager.
    pub(crate) fn poll(&mut self) -> Result<Option<Received>, ManagerError> {
        loop {
            let next = match self.first.take() {
                Some(first) => Some(first),
                None => self.queue.poll().map_err(Error::from)?,
            };
            let Some(done) = next else { return Ok(None) };
            let side = match &done.result {
                Ok(completion) => completion.work.side,
                Err(error) => {
                    tracing::warn!(%error, "queue pair 1 failed and is reset");
                    self.spare.extend(done.buffer);
                    self.spare.extend(self.queue.reset()?);
                    self.post_receives();
                    continue;
                }
            };
            let received = done.received().and_then(datagram);
            match done.buffer {
                Some(buffer) if side == Side::Receive => _ = self.post_receive(buffer),
                buffer => self.spare.extend(buffer),
            }
            if received.is_some() {
                return Ok(received);
            }
        }
    }

    /// Sends a datagram; `false` if all sends are outstanding.
    pub(crate) fn send(&mut self, to: &AddressHandle, mad: &[u8; MAD]) -> bool {
        let Some(mut buffer) = self.spare.pop() else { return false };
        buffer.set_len(MAD);
        buffer.as_mut_slice().copy_from_slice(mad);
        let refused = self.queue.send(to, buffer).err();
        let posted = refused.is_none();
        self.spare.extend(refused.and_then(|refused| refused.buffer));
        posted
    }

    /// What becomes readable when a datagram comes, after [`arm`](Self::arm).
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.queue.fd()
    }

    /// Asks for an event of the next datagram. Poll afterwards: one that is there raises none.
    pub(crate) fn arm(&mut self) -> Result<(), Error> {
        self.queue.take_events();
        self.queue.request_event()
    }

    /// Sleeps until [`poll`](Self::poll) has a datagram, at most `limit`.
    pub(crate) fn wait(&mut self, limit: Duration) -> Result<(), Error> {
        if self.first.is_none() {
            self.first = match self.queue.wait(limit) {
                Err(Error::Timeout { .. }) => None,
                done => Some(done?),
            };
        }
        Ok(())
    }
}

/// A datagram behind its header.
fn datagram(bytes: &[u8]) -> Option<Received> {
    let (header, mad) = bytes.split_at_checked(GRH)?;
    let (remote, local) = whence(header)?;
    Some(Received { local, remote, mad: mad.to_vec() })
}

/// Source and destination of a datagram, from the IPv6 header before it, or the IPv4 header in the last 20 of those
/// bytes. IBTA A17.4.5.2.
fn whence(header: &[u8]) -> Option<(Gid, Gid)> {
    let ipv4: &[u8; 20] = header.last_chunk()?;
    if ipv4[0] == 0x45 && checksum(ipv4) == 0xffff {
        let [.., a, b, c, d, e, f, g, h] = *ipv4;
        return Some((gid_of([a, b, c, d].into()), gid_of([e, f, g, h].into())));
    }
    let grh = Grh::read(header)?;
    (grh.ip_ver() == 6).then(|| (*grh.sgid(), *grh.dgid()))
}

/// The one's complement sum of an IPv4 header: all ones if it is valid.
fn checksum(header: &[u8; 20]) -> u32 {
    let sum: u32 = header.chunks_exact(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    (sum & 0xffff) + (sum >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_says_whence_over_ipv4_and_ipv6() {
        let mut header = [0; GRH];
        header[20..].copy_from_slice(&[
            0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7,
        ]);
        let (source, destination) = whence(&header).unwrap();
        assert_eq!((source, destination), (gid_of([192, 168, 0, 1].into()), gid_of([192, 168, 0, 199].into())));
        header[31] ^= 1;
        assert_eq!(whence(&header), None, "a bad checksum, and no IPv6");
        let mut grh = Grh::default();
        grh.w().sgid(&[1; 16]).dgid(&[2; 16]);
        assert_eq!(whence(Layout::as_bytes(&grh)), Some(([1; 16], [2; 16])));
        assert_eq!(whence(&[0; 19]), None);
    }
}
