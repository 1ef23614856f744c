//! State of the write-combining buffers that an emulated processor lacks. The behaviour is in [`bar`](crate::bar).

use std::collections::BTreeMap;
use std::time::Instant;

use super::blueflame::Bytes;
use crate::objects::LOG_PAGE;

/// Copies of which the first part has arrived, by the offset of their BlueFlame register in the BAR: the two buffers of
/// a register are used in turn, by one thread at a time.
#[derive(Debug, Default)]
pub(crate) struct WriteCombining {
    pub(crate) open: BTreeMap<u64, OpenCopy>,
}

/// The part of a copy that has arrived.
#[derive(Debug)]
pub(crate) struct OpenCopy {
    /// Offset of the buffer in the BAR.
    pub(crate) start: u64,
    pub(crate) bytes: Bytes,
    /// Bytes that have arrived, from the first on.
    pub(crate) len: usize,
    /// When the last of them arrived.
    pub(crate) since: Instant,
}

impl WriteCombining {
    /// The page was freed.
    pub(crate) fn release(&mut self, uar: u32) {
        self.open.retain(|register, _| register >> LOG_PAGE != u64::from(uar));
    }
}
