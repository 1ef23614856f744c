//! Firmware pages: how many it needs, holds and has requested.

use std::collections::BTreeSet;

use crate::profile::PageNeeds;

/// Bytes of a page, and log2 of it.
pub(crate) const PAGE: u64 = 1 << 12;

/// Objects whose contexts use pages, and the context size in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Context {
    Pd = 64,
    TransportDomain = 32,
    Umem = 128,
    Mkey = 256,
    Eq = 512,
    Cq = 384,
    Qp = 1024,
    Counter = 320,
    Srq = 192,
    Xrcd = 48,
    ReservedQpns = 16,
    GeneveOption = 24,
    /// Those that are made at once.
    FlowMeters = 4096,
    Sampler = 80,
    /// SQ, RQ or RQT.
    Queue = 448,
    /// TIS or TIR.
    Interface = 288,
    FlowTable = 960,
    FlowGroup = 520,
    /// An entry, or a flow counter.
    FlowEntry = 96,
    User = 40,
}

/// The pages of one function.
#[derive(Debug)]
pub struct Pages {
    pub(crate) needs: PageNeeds,
    pub(crate) addresses: BTreeSet<u64>,
    /// Bytes used by contexts.
    pub(crate) filled: u64,
    /// Pages requested by an event and not given yet; negative: to be taken back.
    pub(crate) asked: i64,
    /// Pages were given or refused: waiting commands can be retried.
    pub(crate) changed: bool,
    /// The driver cannot give pages.
    pub(crate) denied: bool,
}

impl Pages {
    /// None held.
    pub(crate) fn new(needs: PageNeeds) -> Self {
        Pages { needs, addresses: BTreeSet::new(), filled: 0, asked: 0, changed: false, denied: false }
    }

    /// Addresses of the pages.
    #[cfg(test)]
    pub(crate) fn addresses(&self) -> impl Iterator<Item = u64> {
        self.addresses.iter().copied()
    }

    /// Number of pages held.
    pub fn held(&self) -> u64 {
        self.addresses.len() as u64
    }

    /// Pages that firmware needs without contexts.
    pub(crate) fn own(&self) -> u64 {
        u64::from(self.needs.boot) + u64::from(self.needs.init.saturating_sub(self.needs.contexts))
    }

    /// Pages needed with `more` bytes of contexts.
    pub(crate) fn needed(&self, more: u64) -> u64 {
        self.own() + (self.filled + more).div_ceil(PAGE)
    }

    /// Minimum number of pages kept while the HCA is in use.
    pub(crate) fn floor(&self) -> u64 {
        (u64::from(self.needs.boot) + u64::from(self.needs.init)).max(self.needed(0))
    }

    /// Boot or init pages still missing.
    pub(crate) fn missing(&self, wanted: u32) -> u32 {
        wanted.saturating_sub(u32::try_from(self.held()).unwrap_or(u32::MAX))
    }

    /// The requested pages will not be given.
    pub(crate) fn deny(&mut self) {
        (self.asked, self.denied, self.changed) = (0, true, true);
    }

    /// All contexts were freed.
    pub(crate) fn empty(&mut self) {
        (self.filled, self.asked, self.denied) = (0, 0, false);
    }
}
