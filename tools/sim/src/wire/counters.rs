//! What is counted of frames: at the physical port, and at the vport behind it.

use crate::transport::packet::Mac;

/// What a port counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Frames sent.
    pub sent: u64,
    /// Frames received.
    pub received: u64,
    /// Frames dropped on arrival: damaged on the way, for a queue pair that does not take them, led to no receive queue
    /// by steering, or while the link is down.
    pub dropped: u64,
    /// Frames that came to the port and were not for the function: see the L2 table and the vport's lists.
    pub filtered: u64,
    /// Frames longer than the port's MTU, dropped on their way out or in.
    pub too_long: u64,
    /// What passed the physical port.
    pub physical: PhysicalCounters,
    /// Ethernet frames of the vport.
    pub ethernet: BothWays,
    /// RoCE packets that queue pairs took and sent.
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

/// Frames of one direction, by to whom they go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ByAddress {
    /// To one.
    pub unicast: Traffic,
    /// To some.
    pub multicast: Traffic,
    /// To all.
    pub broadcast: Traffic,
}

/// Frames of both directions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BothWays {
    /// In.
    pub received: ByAddress,
    /// Out.
    pub sent: ByAddress,
}

impl Traffic {
    /// One more frame.
    pub(crate) fn count(&mut self, len: usize) {
        self.packets += 1;
        self.octets += len as u64;
    }
}

impl ByAddress {
    /// All together.
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
    /// A frame came in.
    pub(crate) fn count_received(&mut self, destination: &Mac, len: usize) {
        self.received.count(destination, len);
    }

    /// A frame goes out.
    pub(crate) fn count_sent(&mut self, destination: &Mac, len: usize) {
        self.sent.count(destination, len);
    }
}

/// Frames that passed the physical port, whatever they carry, and their bytes with the check sequence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PhysicalCounters {
    /// In.
    pub received: ByAddress,
    /// Out.
    pub sent: ByAddress,
    /// In, by size: up to 64 bytes, 127, 255, 511, 1023, 1518, 2047, 4095, 8191, and above.
    pub received_sizes: [u64; 10],
    /// Frames dropped on arrival as longer than the port's MTU.
    pub too_long: u64,
    /// Frames of send queues that are no frames, or longer than the port's MTU.
    pub unsendable: u64,
    /// How often the link went down.
    pub link_downs: u32,
}

/// The largest of each size in [`PhysicalCounters::received_sizes`] but the last.
const SIZES: [usize; 9] = [64, 127, 255, 511, 1023, 1518, 2047, 4095, 8191];

impl PhysicalCounters {
    /// A frame came in, of `len` bytes on the wire.
    pub(crate) fn count_received(&mut self, destination: &Mac, len: usize) {
        self.received.count(destination, len);
        self.received_sizes[SIZES.partition_point(|size| *size < len)] += 1;
    }

    /// A frame goes out.
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
