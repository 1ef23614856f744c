//! Mailboxes: chains of blocks with the part of an input or output that exceeds its slot. PRM "Command Interface
//! Mailbox".

use mlx5_prm::cmd::{DeliveryStatus, MailboxBlock};
use mlx5_prm::layout::Layout;

use crate::dma::{Dma, Purpose};
use crate::function::{OutputChain, Spoil};

/// Data bytes of a block.
pub(super) const DATA: usize = 512;
/// Bytes of an input or output in the command queue entry itself.
pub(super) const INLINE: usize = 16;
/// Maximum length of an input or output. Linux registers 8 GiB in 4 KiB pages with one command of 16 MiB.
pub(super) const MAX_LEN: usize = 1 << 26;

/// What each block of a command is checked against.
#[derive(Debug, Clone, Copy)]
pub(super) struct Checks {
    /// The command's token.
    pub token: u8,
    /// Blocks must be signed (`cmdif_checksum`).
    pub signed: bool,
}

/// Number of blocks for `len` bytes.
pub(super) fn blocks(len: usize) -> usize {
    len.saturating_sub(INLINE).div_ceil(DATA)
}

/// XOR of all bytes.
pub(super) fn xor(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum ^ byte)
}

/// Reads the block at `pointer` of an input of `len` bytes, whose bytes before it are in `input`. Returns where the
/// next one is.
pub(super) fn read(
    dma: &Dma,
    pointer: u64,
    len: usize,
    input: &mut Vec<u8>,
    checks: Checks,
) -> Result<u64, DeliveryStatus> {
    let block = block_at(dma, pointer, DeliveryStatus::BadInputPointer)?;
    check(&block, blocks(input.len()), checks)?;
    check_signature(&block, checks.signed)?;
    let now = (len - input.len()).min(DATA);
    input.extend_from_slice(&block.mailbox_data()[..now]);
    Ok(block.next_pointer())
}

/// Adds the block at `pointer` to an output's chain. Returns where the next one is. Its signatures are not checked: the
/// card writes them, and a block may still have those of an earlier output.
pub(super) fn follow(dma: &Dma, pointer: u64, chain: &mut OutputChain, checks: Checks) -> Result<u64, DeliveryStatus> {
    let block = block_at(dma, pointer, DeliveryStatus::BadOutputPointer)?;
    check(&block, chain.len(), checks)?;
    chain.push((pointer, block));
    Ok(block.next_pointer())
}

/// Writes an output's bytes from byte 16 on to `chain`, padded with zeros, each block signed.
pub(super) fn write(dma: &Dma, chain: &OutputChain, output: &[u8], spoil: Spoil) {
    let mut rest = output.get(INLINE..).unwrap_or_default();
    for (address, block) in chain {
        let (now, after) = rest.split_at(rest.len().min(DATA));
        let mut data = [0; DATA];
        data[..now.len()].copy_from_slice(now);
        rest = after;
        let (mut block, token) = (*block, block.token() ^ spoil.token);
        block.w().mailbox_data(&data).token(token).ctrl_signature(0).signature(0);
        let control = !xor(&block.as_bytes()[DATA..]);
        block.w().ctrl_signature(control);
        let whole = !xor(block.as_bytes());
        block.w().ctrl_signature(control ^ spoil.signature).signature(whole);
        // Strict mode has recorded the fault; the driver sees that the output is missing.
        let _ = dma.counted(Purpose::Command).write(*address, block.as_bytes());
    }
}

fn block_at(dma: &Dma, pointer: u64, misaligned: DeliveryStatus) -> Result<MailboxBlock, DeliveryStatus> {
    // Behind an IOMMU memory may well lie at 0. Where none does, the driver gave no pointer.
    if !pointer.is_multiple_of(DATA as u64) || pointer == 0 && !dma.is_mapped(pointer) {
        return Err(misaligned);
    }
    let mut bytes = [0; MailboxBlock::SIZE];
    dma.counted(Purpose::Command).read(pointer, &mut bytes).map_err(|_| DeliveryStatus::InternalError)?;
    MailboxBlock::read(&bytes).ok_or(DeliveryStatus::InternalError)
}

fn check(block: &MailboxBlock, number: usize, checks: Checks) -> Result<(), DeliveryStatus> {
    if block.token() != checks.token {
        return Err(DeliveryStatus::TokenError);
    }
    if block.block_number() as usize != number {
        return Err(DeliveryStatus::BadBlockNumber);
    }
    Ok(())
}

/// A block whose two signatures are zero is unsigned: accepted unless signatures are enabled.
fn check_signature(block: &MailboxBlock, signed: bool) -> Result<(), DeliveryStatus> {
    if !signed && block.ctrl_signature() == 0 && block.signature() == 0 {
        return Ok(());
    }
    let bytes = block.as_bytes();
    if xor(&bytes[DATA..bytes.len() - 1]) != 0xff || xor(bytes) != 0xff {
        return Err(DeliveryStatus::SignatureError);
    }
    Ok(())
}
