//! What crosses PCIe: requests and bytes, by purpose.

use std::ops::{AddAssign, Sub};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Bytes of a processor's write-combining buffer, which it sends in one piece.
pub(super) const COMBINED: usize = 64;

/// What an access is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Doorbells: stores of software to the function's BAR.
    Doorbell,
    /// Doorbell records.
    Record,
    /// Work requests.
    Wqe,
    /// Data of messages and packets.
    Data,
    /// Completions.
    Cqe,
    /// Events.
    Eqe,
    /// Commands and their mailboxes.
    Command,
}

impl Purpose {
    /// All of them, in the order of [`Traffic`]'s counts.
    pub const ALL: [Purpose; 7] =
        [Purpose::Doorbell, Purpose::Record, Purpose::Wqe, Purpose::Data, Purpose::Cqe, Purpose::Eqe, Purpose::Command];

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Purpose::Doorbell => "doorbell",
            Purpose::Record => "record",
            Purpose::Wqe => "wqe",
            Purpose::Data => "data",
            Purpose::Cqe => "cqe",
            Purpose::Eqe => "eqe",
            Purpose::Command => "command",
        }
    }
}

/// Requests and bytes in both directions, as the function sees them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Crossed {
    /// Read requests of the function, each of at most Max_Read_Request_Size bytes. PCIe 2.2.7.
    pub reads: u64,
    /// Bytes that it read.
    pub read_bytes: u64,
    /// Write requests, each of at most Max_Payload_Size bytes: of the function, or of software for doorbells.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
}

impl AddAssign for Crossed {
    fn add_assign(&mut self, more: Crossed) {
        self.reads += more.reads;
        self.read_bytes += more.read_bytes;
        self.writes += more.writes;
        self.write_bytes += more.write_bytes;
    }
}

impl Sub for Crossed {
    type Output = Crossed;

    fn sub(self, before: Crossed) -> Crossed {
        Crossed {
            reads: self.reads.wrapping_sub(before.reads),
            read_bytes: self.read_bytes.wrapping_sub(before.read_bytes),
            writes: self.writes.wrapping_sub(before.writes),
            write_bytes: self.write_bytes.wrapping_sub(before.write_bytes),
        }
    }
}

/// What crossed PCIe, by purpose.
///
/// A read request and its completions count as one read. The model fetches each WQEBB by a request of its own, and
/// reads a WQE from the ring even where software copied it by BlueFlame, unless the card
/// [combines writes](crate::card::Builder::write_combining). A doorbell in a mapped UAR page that another one overwrote
/// before the model read it is not counted; in a trapped page each is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic([Crossed; Purpose::ALL.len()]);

impl Traffic {
    /// The share of one purpose.
    pub fn of(&self, purpose: Purpose) -> Crossed {
        self.0[purpose as usize]
    }

    /// A doorbell of `bytes` bytes: 8, or a whole copy.
    pub(crate) fn add_doorbell(&mut self, bytes: usize) {
        let (writes, write_bytes) = (bytes.div_ceil(COMBINED) as u64, bytes as u64);
        self.0[Purpose::Doorbell as usize] += Crossed { writes, write_bytes, ..Crossed::default() };
    }

    /// All purposes together.
    pub fn total(&self) -> Crossed {
        self.0.iter().fold(Crossed::default(), |mut sum, crossed| {
            sum += *crossed;
            sum
        })
    }
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, more: Traffic) {
        self.0.iter_mut().zip(more.0).for_each(|(sum, more)| *sum += more);
    }
}

impl Sub for Traffic {
    type Output = Traffic;

    fn sub(self, before: Traffic) -> Traffic {
        let mut more = self;
        more.0.iter_mut().zip(before.0).for_each(|(now, before)| *now = *now - before);
        more
    }
}

/// The running counts of a function. Only its device thread counts, any thread may read.
#[derive(Debug)]
pub(super) struct Counters {
    counts: [[AtomicU64; 4]; Purpose::ALL.len()],
    /// Max_Payload_Size and Max_Read_Request_Size in bytes: powers of two.
    most_written: AtomicU32,
    most_read: AtomicU32,
}

impl Default for Counters {
    fn default() -> Self {
        Counters { counts: Default::default(), most_written: AtomicU32::new(128), most_read: AtomicU32::new(512) }
    }
}

impl Counters {
    pub(super) fn set_sizes(&self, most_written: u32, most_read: u32) {
        self.most_written.store(most_written, Relaxed);
        self.most_read.store(most_read, Relaxed);
    }

    pub(super) fn count(&self, purpose: Purpose, is_write: bool, iova: u64, len: usize) {
        let most = u64::from(if is_write { &self.most_written } else { &self.most_read }.load(Relaxed));
        // A request crosses no boundary of its largest size, so none of 4096 bytes either.
        let requests = ((iova & (most - 1)) + len as u64).div_ceil(most);
        let counts = &self.counts[purpose as usize];
        let at = 2 * usize::from(is_write);
        for (count, more) in counts[at..].iter().zip([requests, len as u64]) {
            // No atomic addition: one thread counts.
            count.store(count.load(Relaxed).wrapping_add(more), Relaxed);
        }
    }

    pub(super) fn traffic(&self) -> Traffic {
        Traffic(std::array::from_fn(|purpose| {
            let [reads, read_bytes, writes, write_bytes] =
                std::array::from_fn(|at| self.counts[purpose][at].load(Relaxed));
            Crossed { reads, read_bytes, writes, write_bytes }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_is_cut_where_pcie_cuts_it() {
        let counters = Counters::default();
        counters.set_sizes(256, 512);
        counters.count(Purpose::Data, true, 0x1010, 1514);
        counters.count(Purpose::Data, false, 0x11f0, 64);
        counters.count(Purpose::Cqe, true, 0x2040, 64);
        let traffic = counters.traffic();
        assert_eq!(
            traffic.of(Purpose::Data),
            Crossed { reads: 2, read_bytes: 64, writes: 6, write_bytes: 1514 },
            "two blocks of 512, six of 256"
        );
        assert_eq!(traffic.total(), Crossed { reads: 2, read_bytes: 64, writes: 7, write_bytes: 1578 });
        counters.count(Purpose::Cqe, true, 0x2080, 64);
        let more = counters.traffic() - traffic;
        assert_eq!(more.total(), Crossed { writes: 1, write_bytes: 64, ..Crossed::default() });
    }
}
