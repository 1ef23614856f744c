//! Mailboxes: the chains of 512-byte blocks that carry what does not fit into a command's slot. PRM "Command Interface
//! Mailbox".

use std::sync::{Arc, Mutex};

use mlx5_prm::cmd::MailboxBlock;
use mlx5_prm::layout::Layout;

use crate::error::Error;
use crate::lock::lock;
use crate::memory::{DmaBuffer, DmaPool};

/// Data bytes of a block.
pub const BLOCK_DATA: usize = 512;
/// Bytes from one block to the next: a block may not cross a multiple of 1024.
const STRIDE: usize = 1024;
/// Bytes of memory taken at a time.
const CHUNK: usize = 64 * 1024;
/// Where the trailer of a block begins, and where its two signatures lie.
const TRAILER: usize = 0x200;
const CTRL_SIGNATURE: usize = 0x23e;
const SIGNATURE: usize = 0x23f;

/// Blocks in use go back here and are used again.
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

/// A chain of blocks, linked and numbered. Must be given back with [`MailboxPool::give_back`]; one that is dropped
/// stays taken, which is right for a command that firmware never answered.
#[derive(Debug, Default)]
pub struct Chain(Vec<BlockAt>);

impl Chain {
    /// Where the device finds the first block; 0 for none.
    pub fn pointer(&self) -> u64 {
        self.0.first().map_or(0, |block| block.iova)
    }
}

impl MailboxPool {
    /// No memory yet.
    pub fn new(pool: Arc<DmaPool>) -> Self {
        MailboxPool { pool, state: Mutex::default() }
    }

    /// A signed chain with room for `len` bytes, beginning with `data`, the rest zero.
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

    /// Copies of the chain's blocks as they lie in memory now.
    pub fn blocks(&self, chain: &Chain) -> Vec<MailboxBlock> {
        let state = self.lock();
        let copy = |place: &BlockAt| {
            let mut bytes = [0; MailboxBlock::SIZE];
            state.chunks[place.chunk].copy_out(place.offset, &mut bytes);
            MailboxBlock::read(&bytes).unwrap_or(MailboxBlock::ZERO)
        };
        chain.0.iter().map(copy).collect()
    }

    /// Takes a chain back that the device no longer uses.
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

/// The XOR of bytes: 0xff over a whole that is rightly signed.
pub fn xor(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum ^ byte)
}

fn sign_block(block: &mut MailboxBlock) {
    let control = !xor(&block.as_bytes()[TRAILER..CTRL_SIGNATURE]);
    block.w().ctrl_signature(control);
    let all = !xor(&block.as_bytes()[..SIGNATURE]);
    block.w().signature(all);
}

/// What is wrong with block `number` of a reply to the command of `token`; `None` if it is sound.
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
