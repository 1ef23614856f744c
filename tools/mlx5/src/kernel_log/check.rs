//! Content of a dump, and checks of lengths, tokens, block numbers, pointers and signatures.

use std::fmt;

use mlx5_prm::cmd::{CommandQueueEntry, DeliveryStatus, MailboxBlock};
use mlx5_prm::decode::{Uncovered, all_uncovered};
use mlx5_prm::layout::Layout;

use super::assemble::{BLOCK, Dump, ENTRY, blocks};
use super::line::Direction;

/// Bytes of an input or output in the entry.
const INLINE: usize = 16;
/// Bytes of data in a block.
const DATA: usize = 512;
/// Where a block's trailer lies, the first dword its control signature covers included.
const TRAILER: usize = 0x200;
/// Low bits of a block's address that must be zero.
const ALIGNMENT: u64 = 0x1ff;
/// `type` of an entry of a PCI device.
const PCI_TRANSPORT: u8 = 7;

/// An inconsistency in a dump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// The opcode in the bytes differs from the heading.
    Opcode(u16),
    /// Wrong `type` of the entry.
    Type(u8),
    /// The entry's bytes do not XOR to 0xff.
    EntrySignature(u8),
    /// The bytes of a block do not XOR to 0xff.
    Signature(usize),
    /// The bytes of a block's trailer do not XOR to 0xff.
    ControlSignature(usize),
    /// The tokens of a block and of the entry differ.
    Token {
        /// Which block.
        block: usize,
        /// The block's.
        token: u8,
        /// The entry's.
        entry: u8,
    },
    /// Wrong number of a block.
    BlockNumber {
        /// Which block.
        block: usize,
        /// What it says.
        number: u32,
    },
    /// The pointer to a block is zero or unaligned.
    Pointer {
        /// Which block.
        block: usize,
        /// Its address.
        pointer: u64,
    },
    /// Set bits of the entry that no field covers.
    EntryBits(Uncovered),
    /// Set bits of a block's trailer that no field covers.
    BlockBits(usize, Uncovered),
    /// Bytes after the last block.
    TooLong(usize),
}

impl Problem {
    /// A keyword, for JSON.
    pub fn kind(&self) -> &'static str {
        match self {
            Problem::Opcode(_) => "opcode",
            Problem::Type(_) => "type",
            Problem::EntrySignature(_) | Problem::Signature(_) | Problem::ControlSignature(_) => "signature",
            Problem::Token { .. } => "token",
            Problem::BlockNumber { .. } => "block_number",
            Problem::Pointer { .. } => "pointer",
            Problem::EntryBits(_) | Problem::BlockBits(..) => "uncovered",
            Problem::TooLong(_) => "length",
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Opcode(opcode) => write!(f, "the bytes have opcode {opcode:#x}, which is another command"),
            Problem::Type(number) => write!(f, "the entry has type {number:#x} instead of {PCI_TRANSPORT:#x}"),
            Problem::EntrySignature(sum) => write!(f, "signature: the entry's bytes XOR to {sum:#04x} instead of 0xff"),
            Problem::Signature(block) => write!(f, "wrong signature of block {block}"),
            Problem::ControlSignature(block) => write!(f, "wrong ctrl_signature of block {block}"),
            Problem::Token { block, token, entry } => {
                write!(f, "block {block} has token {token:#x}, the entry has {entry:#x}")
            }
            Problem::BlockNumber { block, number } => write!(f, "block {block} has block_number {number}"),
            Problem::Pointer { block, pointer: 0 } => write!(f, "the pointer to block {block} is 0"),
            Problem::Pointer { block, pointer } => {
                write!(f, "the pointer to block {block}, {pointer:#x}, is not aligned")
            }
            Problem::EntryBits(Uncovered { offset, bits }) => {
                write!(f, "entry, {offset:#x}: {bits:#010x} set, and no field there")
            }
            Problem::BlockBits(block, Uncovered { offset, bits }) => {
                write!(f, "block {block}, {offset:#x}: {bits:#010x} set, and no field there")
            }
            Problem::TooLong(bytes) => write!(f, "{bytes:#x} bytes more than the command's length takes"),
        }
    }
}

/// Content of a dump.
#[derive(Debug, Clone)]
pub struct Message {
    /// The entry, if it is in the log.
    pub entry: Option<CommandQueueEntry>,
    /// Length of the message by its entry; `None` without an entry.
    pub length: Option<usize>,
    /// The input or output as far as it is in the log, with zeros in gaps.
    pub data: Vec<u8>,
    /// Byte ranges of the message that are not in the log.
    pub missing: Vec<(usize, usize)>,
    /// Whether only those bytes are missing that drivers up to 4.12 omit.
    pub left_out: bool,
    /// Inconsistencies.
    pub problems: Vec<Problem>,
}

impl Message {
    /// Parses a dump.
    pub fn of(dump: &Dump) -> Message {
        let mut message = if dump.data_only { data_alone(dump) } else { entry_and_blocks(dump) };
        let names = if dump.data_only && dump.direction == Direction::Output { None } else { message.opcode(dump) };
        if let Some(opcode) = names.filter(|opcode| *opcode != dump.opcode) {
            message.problems.insert(0, Problem::Opcode(opcode));
        }
        message
    }

    /// Whether hardware owned the entry when it was printed.
    pub fn unanswered(&self) -> bool {
        self.entry.as_ref().is_some_and(CommandQueueEntry::ownership)
    }

    /// Delivery status in the output's entry.
    pub fn delivery(&self) -> Option<DeliveryStatus> {
        self.entry.as_ref().map(CommandQueueEntry::status)
    }

    /// The opcode in the bytes.
    fn opcode(&self, dump: &Dump) -> Option<u16> {
        let start = if dump.data_only { 0 } else { 0x10 };
        dump.words.get(start / 4).copied().flatten().map(|word| (word >> 16) as u16)
    }
}

/// A line has 16 bytes: the message may be shorter.
fn data_alone(dump: &Dump) -> Message {
    let data = dump.bytes(0, dump.len());
    let missing = gaps(dump, 0, dump.len(), 0);
    Message { entry: None, length: None, data, missing, left_out: false, problems: Vec::new() }
}

fn entry_and_blocks(dump: &Dump) -> Message {
    let entry = dump.has(0, ENTRY).then(|| CommandQueueEntry::read(&dump.bytes(0, ENTRY))).flatten();
    let (inline, at) = match dump.direction {
        Direction::Input => (0x10, 0x4),
        Direction::Output => (0x20, 0x38),
    };
    let length = dump.words.get(at / 4).copied().flatten().map(|length| length as usize);
    let arrived = dump.len().saturating_sub(ENTRY).div_ceil(BLOCK);
    let count = length.map_or(arrived, |length| blocks(length).min(arrived));

    let (data, missing) = put_together(dump, inline, count, length);
    // Exactly the last blocks are missing, from the first whose offset exceeds the length.
    let printed_by_old = length.is_some_and(|length| ENTRY + count * BLOCK < length);
    let left_out = dump.slot.is_none() && missing.len() == 1 && missing[0].0 == data.len() && !printed_by_old;

    let mut problems = Vec::new();
    check_entry(dump, entry.as_ref(), count, &mut problems);
    (0..count).for_each(|block| check_block(dump, entry.as_ref(), block, &mut problems));
    let over = dump.len().saturating_sub(ENTRY + count * BLOCK);
    if length.is_some() && over > 0 {
        problems.push(Problem::TooLong(over));
    }
    Message { entry, length, data, missing, left_out, problems }
}

/// Collects the bytes at `inline` in the entry and those of `count` blocks, up to the last known one, and the missing
/// ranges of `length`.
fn put_together(dump: &Dump, inline: usize, count: usize, length: Option<usize>) -> (Vec<u8>, Vec<(usize, usize)>) {
    let mut data = dump.bytes(inline, inline + INLINE);
    let mut missing = gaps(dump, inline, inline + INLINE, 0);
    for start in (0..count).map(|block| ENTRY + block * BLOCK) {
        missing.extend(gaps(dump, start, start + DATA, data.len()));
        data.extend(dump.bytes(start, start + DATA));
    }
    let end = length.unwrap_or(data.len());
    data.truncate(end);
    missing.retain(|(from, _)| *from < end);
    // Bytes that are not in the log are missing, not zero.
    if let Some((from, _)) = missing.pop_if(|(_, to)| *to >= data.len()) {
        data.truncate(from);
    }
    if data.len() < end {
        missing.push((data.len(), end));
    }
    (data, missing)
}

/// Missing ranges from byte `start` to `end` of the dump, counted from `base` in the message.
fn gaps(dump: &Dump, start: usize, end: usize, base: usize) -> Vec<(usize, usize)> {
    let mut gaps: Vec<(usize, usize)> = Vec::new();
    for at in (start..end).step_by(4).filter(|at| !dump.has(*at, at + 4)) {
        let from = base + at - start;
        match gaps.last_mut() {
            Some((_, to)) if *to == from => *to += 4,
            _ => gaps.push((from, from + 4)),
        }
    }
    gaps
}

fn check_entry(dump: &Dump, entry: Option<&CommandQueueEntry>, count: usize, problems: &mut Vec<Problem>) {
    let Some(entry) = entry else { return };
    if entry.r#type() != PCI_TRANSPORT {
        problems.push(Problem::Type(entry.r#type()));
    }
    problems.extend(all_uncovered(&CommandQueueEntry::INFO, entry.as_bytes()).map(Problem::EntryBits));
    let sum = xor(entry.as_bytes());
    // The driver signs every entry. Outputs, and all blocks, are signed only if checksums are enabled.
    let signed = dump.direction == Direction::Input || (0..count).any(|block| is_signed(dump, block));
    if sum != 0xff && signed && !(dump.direction == Direction::Output && entry.ownership()) {
        problems.push(Problem::EntrySignature(sum));
    }
}

/// Whether block `block` is known and signed.
fn is_signed(dump: &Dump, block: usize) -> bool {
    let end = ENTRY + (block + 1) * BLOCK;
    dump.has(end - 4, end) && dump.bytes(end - 4, end)[2..] != [0, 0]
}

fn check_block(dump: &Dump, entry: Option<&CommandQueueEntry>, block: usize, problems: &mut Vec<Problem>) {
    let start = ENTRY + block * BLOCK;
    let leads_here = match (block, entry) {
        (0, Some(entry)) if dump.direction == Direction::Input => Some(entry.input_mailbox_pointer()),
        (0, entry) => entry.map(CommandQueueEntry::output_mailbox_pointer),
        // `next_pointer` in the trailer of the previous block.
        _ => dump
            .has(start - 0x10, start - 8)
            .then(|| u64::from_be_bytes(dump.bytes(start - 0x10, start - 8).try_into().unwrap_or_default())),
    };
    if let Some(pointer) = leads_here.filter(|pointer| *pointer == 0 || pointer & ALIGNMENT != 0) {
        problems.push(Problem::Pointer { block, pointer });
    }
    if !dump.has(start + TRAILER, start + BLOCK) {
        return;
    }
    let bytes = dump.bytes(start, start + BLOCK);
    let Some(found) = MailboxBlock::read(&bytes) else { return };
    if let Some(entry) = entry.filter(|entry| entry.token() != found.token()) {
        problems.push(Problem::Token { block, token: found.token(), entry: entry.token() });
    }
    if found.block_number() as usize != block {
        problems.push(Problem::BlockNumber { block, number: found.block_number() });
    }
    problems.extend(all_uncovered(&MailboxBlock::INFO, &bytes).map(|bits| Problem::BlockBits(block, bits)));
    // An output that was never written has no signatures.
    if !is_signed(dump, block)
        || (dump.direction == Direction::Output && entry.is_some_and(CommandQueueEntry::ownership))
    {
        return;
    }
    if xor(&bytes[TRAILER..BLOCK - 1]) != 0xff {
        problems.push(Problem::ControlSignature(block));
    }
    if dump.has(start, start + BLOCK) && xor(&bytes) != 0xff {
        problems.push(Problem::Signature(block));
    }
}

fn xor(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum ^ byte)
}
