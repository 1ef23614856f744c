//! Frame counters of the physical port and of the vport behind it.

use crate::transport::packet::Mac;

/// Counters of a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Frames sent.
    pub sent: u64,
    /// Frames received.
    pub received: u64,
    /// Frames dropped on arrival: damaged, not accepted by any queue pair, without a receive queue by steering, or
    /// received while the link is down.
    pub dropped: u64,
    /// Frames that were not for the function, by L2 table and vport lists.
    pub filtered: u64,
    /// Frames longer than the port's MTU, dropped when sent or received.
    pub too_long: u64,
    /// Counters of the physical port.
    pub physical: PhysicalCounters,
    /// Ethernet frames of the vport.
    pub ethernet: BothWays,
    /// RoCE packets of queue pairs.
    pub rdma: BothWays,
}

/// Frames and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Frames.
    pub packets: u64,
    /// Their bytes.
    pub octets: u64,
}

/// Frames of one direction, by kind of destination address.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ByAddress {
    /// Unicast.
    pub unicast: Traffic,
    /// Multicast.
    pub multicast: Traffic,
    /// Broadcast.
    pub broadcast: Traffic,
}

/// Frames of both directions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BothWays {
    /// Received.
    pub received: ByAddress,
    /// Sent.
    pub sent: ByAddress,
}

impl Traffic {
    /// Counts one frame.
    pub(crate) fn count(&mut self, len: usize) {
        self.packets += 1;
        self.octets += len as u64;
    }
}

impl ByAddress {
    /// Sum of all.
    pub fn all(&self) -> Traffic {
        let parts = [self.unicast, self.multicast, self.broadcast];
        let sum = |of: fn(&Traffic) -> u64| parts.iter().map(of).sum();
        Traffic { packets: sum(|part| part.packets), octets: sum(|part| part.octets) }
    }

    fn count(&mut self, destination: &Mac, len: usize) {
        let traffic = match destination {
            [0xff, 0xff, 0xff, 0xff, 0xff, 0xff] => &mut self.broadcast,
            [first, ..] if first & 1 != 0 => &mut self.multicast,
            _ => &mut self.unicast,
        };
        traffic.count(len);
    }
}

impl BothWays {
    /// Counts a received frame.
    pub(crate) fn count_received(&mut self, destination: &Mac, len: usize) {
        self.received.count(destination, len);
    }

    /// Counts a sent frame.
    pub(crate) fn count_sent(&mut self, destination: &Mac, len: usize) {
        self.sent.count(destination, len);
    }
}

/// All frames of the physical port; bytes include the FCS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PhysicalCounters {
    /// Received.
    pub received: ByAddress,
    /// Sent.
    pub sent: ByAddress,
    /// Received frames by size: up to 64 bytes, 127, 255, 511, 1023, 1518, 2047, 4095, 8191, and above.
    pub received_sizes: [u64; 10],
    /// Received frames dropped because they exceed the port's MTU.
    pub too_long: u64,
    /// Frames of send queues dropped because they are too short or exceed the port's MTU.
    pub unsendable: u64,
    /// Number of times the link went down.
    pub link_downs: u32,
}

/// Upper limits of [`PhysicalCounters::received_sizes`], except the last.
const SIZES: [usize; 9] = [64, 127, 255, 511, 1023, 1518, 2047, 4095, 8191];

impl PhysicalCounters {
    /// Counts a received frame of `len` bytes on the wire.
    pub(crate) fn count_received(&mut self, destination: &Mac, len: usize) {
        self.received.count(destination, len);
        self.received_sizes[SIZES.partition_point(|size| *size < len)] += 1;
    }

    /// Counts a sent frame.
    pub(crate) fn count_sent(&mut self, destination: &Mac, len: usize) {
        self.sent.count(destination, len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_counted_by_address_and_size_with_their_check_sequence() {
        let mut counters = PhysicalCounters::default();
        counters.count_received(&[0xff; 6], 64);
        counters.count_received(&[1, 0, 0, 0, 0, 0], 65);
        counters.count_received(&[2, 0, 0, 0, 0, 0], 9004);
        assert_eq!(counters.received.broadcast, Traffic { packets: 1, octets: 64 });
        assert_eq!(counters.received.multicast, Traffic { packets: 1, octets: 65 });
        assert_eq!(counters.received.all(), Traffic { packets: 3, octets: 64 + 65 + 9004 });
        assert_eq!(counters.received_sizes, [1, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
    }
}
