//! Mailboxes: chains of 512-byte blocks for the part of a command that does not fit into its entry. PRM "Command
//! Interface Mailbox".

use std::sync::{Arc, Mutex};

use mlx5_prm::cmd::MailboxBlock;
use mlx5_prm::layout::Layout;

use crate::error::Error;
use crate::lock::lock;
use crate::memory::{DmaBuffer, DmaPool};

/// Data bytes of a block.
pub const BLOCK_DATA: usize = 512;
/// Distance of two blocks: a block must not cross a 1024-byte boundary.
const STRIDE: usize = 1024;
/// Allocation size in bytes.
const CHUNK: usize = 64 * 1024;
/// Offsets of a block's trailer and of its two signatures.
const TRAILER: usize = 0x200;
const CTRL_SIGNATURE: usize = 0x23e;
const SIGNATURE: usize = 0x23f;

/// A pool of blocks.
#[derive(Debug)]
pub struct MailboxPool {
    pool: Arc<DmaPool>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    chunks: Vec<DmaBuffer>,
    free: Vec<BlockAt>,
}

#[derive(Debug, Clone, Copy)]
struct BlockAt {
    chunk: usize,
    offset: usize,
    iova: u64,
}

/// A chain of linked, numbered blocks. [`MailboxPool::give_back`] returns it to the pool. A dropped chain is never
/// reused, which is right for a command that firmware never completed.
#[derive(Debug, Default)]
pub struct Chain(Vec<BlockAt>);

impl Chain {
    /// Device address of the first block; 0 if there is none.
    pub fn pointer(&self) -> u64 {
        self.0.first().map_or(0, |block| block.iova)
    }
}

impl MailboxPool {
    /// An empty pool.
    pub fn new(pool: Arc<DmaPool>) -> Self {
        MailboxPool { pool, state: Mutex::default() }
    }

    /// Takes a signed chain with room for `len` bytes that starts with `data`, zero-padded.
    pub fn chain(&self, len: usize, data: &[u8], token: u8) -> Result<Chain, Error> {
        let mut state = self.lock();
        let count = len.div_ceil(BLOCK_DATA);
        while state.free.len() < count {
            self.grow(&mut state)?;
        }
        let at = state.free.len() - count;
        let blocks = state.free.split_off(at);
        let mut rest = data.chunks(BLOCK_DATA);
        for (i, place) in blocks.iter().enumerate() {
            let mut block = MailboxBlock::ZERO;
            let mut bytes = [0; BLOCK_DATA];
            let part = rest.next().unwrap_or_default();
            bytes[..part.len()].copy_from_slice(part);
            let next = blocks.get(i + 1).map_or(0, |next| next.iova);
            block.w().mailbox_data(&bytes).next_pointer(next).block_number(i as u32).token(token);
            sign_block(&mut block);
            state.chunks[place.chunk].copy_in(place.offset, block.as_bytes());
        }
        Ok(Chain(blocks))
    }

    /// Copies the chain's blocks from memory.
    pub fn blocks(&self, chain: &Chain) -> Vec<MailboxBlock> {
        let state = self.lock();
        let copy = |place: &BlockAt| {
            let mut bytes = [0; MailboxBlock::SIZE];
            state.chunks[place.chunk].copy_out(place.offset, &mut bytes);
            MailboxBlock::read(&bytes).unwrap_or(MailboxBlock::ZERO)
        };
        chain.0.iter().map(copy).collect()
    }

    /// Returns a chain that the device no longer uses.
    pub fn give_back(&self, chain: Chain) {
        self.lock().free.extend(chain.0);
    }

    fn grow(&self, state: &mut State) -> Result<(), Error> {
        let buffer = self.pool.allocate(CHUNK)?;
        let chunk = state.chunks.len();
        let iova = buffer.iova().0;
        state.free.extend((0..CHUNK).step_by(STRIDE).map(|offset| BlockAt {
            chunk,
            offset,
            iova: iova + offset as u64,
        }));
        state.chunks.push(buffer);
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// XOR of all bytes: 0xff for a correctly signed block.
pub fn xor(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum ^ byte)
}

fn sign_block(block: &mut MailboxBlock) {
    let control = !xor(&block.as_bytes()[TRAILER..CTRL_SIGNATURE]);
    block.w().ctrl_signature(control);
    let all = !xor(&block.as_bytes()[..SIGNATURE]);
    block.w().signature(all);
}

/// The defect of block `number` in a reply with `token`; `None` if it is valid.
pub fn block_damage(block: &MailboxBlock, number: usize, token: u8) -> Option<String> {
    if block.token() != token {
        return Some(format!("mailbox block {number} carries token {:#x} instead of {token:#x}", block.token()));
    }
    if block.block_number() != number as u32 {
        return Some(format!("mailbox block {number} says it is number {}", block.block_number()));
    }
    let bytes = block.as_bytes();
    if xor(&bytes[TRAILER..SIGNATURE]) != 0xff || xor(bytes) != 0xff {
        return Some(format!("mailbox block {number} has a wrong signature"));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signed_block_is_sound_and_every_flipped_bit_shows() {
        let mut block = MailboxBlock::ZERO;
        block.w().mailbox_data(&[0x5a; BLOCK_DATA]).block_number(3).token(9).next_pointer(0x1234_5000);
        sign_block(&mut block);
        assert_eq!(block_damage(&block, 3, 9), None);
        for bit in 0..MailboxBlock::SIZE * 8 {
            let mut bytes = block.as_bytes().to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let Some(flipped) = MailboxBlock::read(&bytes) else { panic!("same length") };
            assert!(block_damage(&flipped, 3, 9).is_some(), "bit {bit}");
        }
    }
}
