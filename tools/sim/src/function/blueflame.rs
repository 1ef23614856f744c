//! Strict mode: state of a function's BlueFlame buffers. PRM "BlueFlame".

use std::collections::BTreeMap;
use std::time::Instant;

use mlx5_prm::layout::Layout;
use mlx5_prm::wqe::{CtrlSeg, SEGMENT, WqeOpcode};

use crate::objects::{BLUEFLAME_BUFFER, QueueName, SEND_DOORBELL};

/// Size of a buffer in bytes.
pub(crate) const BUFFER: usize = BLUEFLAME_BUFFER as usize;
/// Number of earlier copies kept for a buffer that is still being written.
const EARLIER: usize = 8;

/// Content of a buffer. The first eight bytes are the doorbell, which is consumed and compared elsewhere.
pub(crate) type Bytes = [u8; BUFFER];

/// State of one function's BlueFlame buffers, by UAR page and register.
#[derive(Debug, Default)]
pub(crate) struct BlueFlame {
    pub(crate) buffers: BTreeMap<(u32, u64), Buffer>,
    /// The send queue that uses a register, by its first buffer; `None` if several do.
    pub(crate) owners: BTreeMap<(u32, u64), Option<u32>>,
    /// Content written to pages that are not mapped.
    pub(crate) messages: BTreeMap<(u32, u64), Bytes>,
}

#[derive(Debug, Default)]
pub(crate) struct Buffer {
    /// A doorbell whose copy is not complete yet.
    pub(crate) pending: Option<Copy>,
    /// Last known content; `None` for zeros.
    pub(crate) content: Option<Bytes>,
    /// Content that may have been copied since.
    pub(crate) earlier: Vec<Bytes>,
    /// Unknown content was copied since.
    pub(crate) is_unknown: bool,
    /// The last copy that was found complete.
    pub(crate) whole: Option<Copy>,
}

impl Buffer {
    /// The buffer holds this content, and no write is in progress.
    pub(crate) fn settle(&mut self, content: Bytes) {
        *self = Buffer { content: Some(content), ..Buffer::default() };
    }

    /// Another doorbell arrived. Returns true if the end of the previous copy was not observed.
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

/// A doorbell and the WQE that it names.
#[derive(Debug, Clone)]
pub(crate) struct Copy {
    /// The send queue.
    pub(crate) queue: QueueName,
    pub(crate) index: u16,
    pub(crate) wqe: Bytes,
    /// Bytes of the WQE in the buffer.
    pub(crate) len: usize,
    /// WQEBBs of the WQE.
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

    /// The page was freed.
    pub(crate) fn release(&mut self, uar: u32) {
        self.buffers.retain(|(page, _), _| *page != uar);
        self.owners.retain(|(page, _), _| *page != uar);
        self.messages.retain(|(page, _), _| *page != uar);
    }
}

impl Copy {
    /// Whether the buffer holds the whole WQE. False for a WQE that is no longer than the doorbell.
    ///
    /// Only the copy of a NOP may ask for another completion than the WQE in the ring: so Linux finds out which of the
    /// two a card has executed, and it makes no other difference.
    pub(crate) fn is_in(&self, content: &Bytes) -> bool {
        let mut wqe = self.wqe;
        if let (Some(mut ring), Some(copy)) = (CtrlSeg::read(&wqe), CtrlSeg::read(content))
            && ring.opcode() == WqeOpcode::Nop
        {
            ring.w().ce(copy.ce());
            wqe[..SEGMENT].copy_from_slice(ring.as_bytes());
        }
        wqe[8..self.len] == content[8..self.len]
    }
}
