//! What strict mode knows of a function's BlueFlame buffers.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::objects::{BLUEFLAME_BUFFER, SEND_DOORBELL};

/// Bytes of a buffer.
pub(crate) const BUFFER: usize = BLUEFLAME_BUFFER as usize;
/// Earlier copies remembered for a buffer that is not settled.
const EARLIER: usize = 8;

/// A buffer's bytes. The first eight are the doorbell: they are taken away and compared elsewhere.
pub(crate) type Bytes = [u8; BUFFER];

/// What is known of one function's BlueFlame buffers, by UAR page and register.
#[derive(Debug, Default)]
pub(crate) struct BlueFlame {
    pub(crate) buffers: BTreeMap<(u32, u64), Buffer>,
    /// The queue pair that rings in a register, by its first buffer; `None` if several do.
    pub(crate) owners: BTreeMap<(u32, u64), Option<u32>>,
    /// What was written to pages that are not mapped.
    pub(crate) messages: BTreeMap<(u32, u64), Bytes>,
}

#[derive(Debug, Default)]
pub(crate) struct Buffer {
    /// A doorbell whose copy did not look whole yet.
    pub(crate) pending: Option<Copy>,
    /// What the buffer held when that was last certain; `None` for zeros.
    pub(crate) content: Option<Bytes>,
    /// What may have been copied since.
    pub(crate) earlier: Vec<Bytes>,
    /// Something was copied since of which nothing is known.
    pub(crate) is_unknown: bool,
    /// The last copy, if it was found whole.
    pub(crate) whole: Option<Copy>,
}

impl Buffer {
    /// The buffer holds this, and nobody is writing.
    pub(crate) fn settle(&mut self, content: Bytes) {
        *self = Buffer { content: Some(content), ..Buffer::default() };
    }

    /// Another doorbell came. True if how the one before ended was not seen.
    pub(crate) fn supersede(&mut self, content: &Bytes) -> bool {
        let Some(before) = self.pending.take() else { return false };
        if self.earlier.len() >= EARLIER {
            self.earlier.clear();
            self.content = Some(*content);
        }
        self.earlier.push(before.wqe);
        self.whole = None;
        true
    }
}

/// A doorbell and the WQE it names.
#[derive(Debug, Clone)]
pub(crate) struct Copy {
    pub(crate) qpn: u32,
    pub(crate) index: u16,
    pub(crate) wqe: Bytes,
    /// Bytes of the WQE that fit the buffer.
    pub(crate) len: usize,
    /// WQEBBs that it takes.
    pub(crate) blocks: u16,
    pub(crate) since: Instant,
}

impl BlueFlame {
    /// A message wrote to a page that is not mapped.
    pub(crate) fn write(&mut self, uar: u32, register: u64, bytes: &[u8]) {
        let (buffer, at) = (register & !(BLUEFLAME_BUFFER - 1), (register % BLUEFLAME_BUFFER) as usize);
        if register < SEND_DOORBELL {
            return;
        }
        let len = bytes.len().min(BUFFER - at);
        self.messages.entry((uar, buffer)).or_insert([0; BUFFER])[at..at + len].copy_from_slice(&bytes[..len]);
    }

    /// The page is given back.
    pub(crate) fn release(&mut self, uar: u32) {
        self.buffers.retain(|(page, _), _| *page != uar);
        self.owners.retain(|(page, _), _| *page != uar);
        self.messages.retain(|(page, _), _| *page != uar);
    }
}

impl Copy {
    /// Whether the buffer holds the whole WQE. One that is no longer than the doorbell is not worth a copy.
    pub(crate) fn is_in(&self, content: &Bytes) -> bool {
        self.wqe[8..self.len] == content[8..self.len]
    }
}
