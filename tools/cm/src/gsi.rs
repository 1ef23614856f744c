//! Management datagrams on queue pair 1.

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use mlx5_dv::objects::{AccessFlags, AddressHandle, MemoryRegion, Pd};
use mlx5_dv::queue::{DatagramEndpoint, DatagramOptions, EndpointError, EventSource, GRH, Side, WrFlags};
use mlx5_dv::{Device, Error};
use mlx5_prm::ib::{Grh, MAD};
use mlx5_prm::layout::Layout;

use crate::message::{Gid, gid_of};

/// Number of posted receives.
const RECEIVES: usize = 256;
/// Maximum number of outstanding sends.
const SENDS: usize = 64;
/// Size of a datagram's slot in the region, in bytes.
const SLOT: usize = (GRH + MAD).next_multiple_of(64);

/// A received datagram.
pub(crate) struct Received {
    /// The local GID and the sender's GID.
    pub(crate) local: Gid,
    pub(crate) remote: Gid,
    pub(crate) mad: Vec<u8>,
}

/// Queue pair 1 and its memory: slots of receives, then of sends.
#[derive(Debug)]
pub(crate) struct Gsi {
    endpoint: DatagramEndpoint,
    free_sends: Vec<usize>,
}

impl Gsi {
    pub(crate) fn new(device: &Arc<Device>) -> Result<Self, Error> {
        let region = MemoryRegion::allocate(&Pd::alloc(device)?, (RECEIVES + SENDS) * SLOT, AccessFlags::LOCAL_WRITE)?;
        let mut options = DatagramOptions::general_services();
        (options.send_depth, options.recv_depth, options.events) = (SENDS as u32, RECEIVES as u32, true);
        let endpoint = DatagramEndpoint::new(&region, &options)?;
        let mut gsi = Gsi { endpoint, free_sends: (RECEIVES..RECEIVES + SENDS).collect() };
        for slot in 0..RECEIVES {
            gsi.post_receive(slot);
        }
        Ok(gsi)
    }

    fn bytes(slot: usize, len: usize) -> Range<usize> {
        slot * SLOT..slot * SLOT + len
    }

    fn post_receive(&mut self, slot: usize) {
        let Some(mut batch) = self.endpoint.receives() else { return };
        match batch.receive(slot as u64, Self::bytes(slot, GRH + MAD)) {
            Ok(()) => batch.ring(),
            // There is a slot for each receive.
            Err(error) => tracing::warn!(%error, "a receive of queue pair 1 was not posted"),
        }
    }

    /// Returns the next datagram. A datagram that is too short, or whose IP header is invalid, is dropped.
    pub(crate) fn poll(&mut self) -> Result<Option<Received>, EndpointError> {
        while let Some((wr_id, completion)) = self.endpoint.poll()? {
            let slot = wr_id as usize;
            if completion.work.side == Side::Send {
                self.free_sends.push(slot);
                continue;
            }
            let mut bytes = vec![0; (completion.byte_len as usize).min(GRH + MAD)];
            self.endpoint.region().read(slot * SLOT, &mut bytes);
            self.post_receive(slot);
            let Some((header, mad)) = bytes.split_at_checked(GRH) else { continue };
            if let Some((remote, local)) = whence(header) {
                return Ok(Some(Received { local, remote, mad: mad.to_vec() }));
            }
        }
        Ok(None)
    }

    /// Sends a datagram; `false` if all sends are outstanding.
    pub(crate) fn send(&mut self, to: &AddressHandle, mad: &[u8; MAD]) -> bool {
        let Some(slot) = self.free_sends.pop() else { return false };
        self.endpoint.region().write(slot * SLOT, mad);
        let posted = self.endpoint.sends().is_some_and(|mut batch| {
            let posted = batch.send(slot as u64, WrFlags::SIGNALLED, to, Self::bytes(slot, MAD));
            batch.ring();
            posted.is_ok()
        });
        if !posted {
            self.free_sends.push(slot);
        }
        posted
    }

    /// What becomes readable when a datagram comes, after [`arm`](Self::arm).
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.endpoint.fd()
    }

    /// Asks for an event of the next datagram. Poll afterwards: one that is there raises none.
    pub(crate) fn arm(&mut self) -> Result<(), Error> {
        self.endpoint.take_events();
        self.endpoint.request_event()
    }

    /// Sleeps until [`poll`](Self::poll) has a datagram, at most `limit`.
    pub(crate) fn wait(&mut self, limit: Duration) -> Result<(), Error> {
        match self.endpoint.wait(limit) {
            Err(Error::Timeout { .. }) => Ok(()),
            other => other,
        }
    }
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
