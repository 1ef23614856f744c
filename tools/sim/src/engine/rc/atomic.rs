//! What atomics do to memory. IBTA 9.4.5. Masked ones ("extended atomics") are NVIDIA's: MLNX_OFED manual, "Advanced
//! Transport"; PRM "Extended Atomic Segment".
//!
//! A masked atomic has 4, 8, 16 or 32 bytes. These are one number of four bytes, or numbers of eight; each is
//! big-endian in a WQE, and in the order of the host in memory.

use crate::objects::AtomicResult;
use crate::transport::{Opcode, Packet};

/// Bytes of the number that a request's operands are for; `None` if they are not those of an atomic.
pub(crate) fn size_of_operands(opcode: Opcode, bytes: usize) -> Option<usize> {
    let count = if opcode == Opcode::MaskedCompareSwap { 4 } else { 2 };
    let size = bytes / count;
    (bytes.is_multiple_of(count) && matches!(size, 4 | 8 | 16 | AtomicResult::LONGEST)).then_some(size)
}

/// What an atomic finds in `memory`, which is in the order of the host: `is_little`.
pub(crate) fn found(memory: &[u8], is_little: bool) -> AtomicResult {
    let mut found = AtomicResult::new(memory);
    flip(found.bytes_mut(), is_little);
    found
}

/// Applies the atomic of `packet` to `memory`, which is in the order of the host: `is_little`.
pub(crate) fn apply(packet: &Packet, memory: &mut [u8], is_little: bool) {
    flip(memory, is_little);
    match packet.opcode {
        Opcode::MaskedCompareSwap => masked_compare_swap(&packet.payload, memory),
        Opcode::MaskedFetchAdd => masked_fetch_add(&packet.payload, memory),
        opcode => {
            let atomic = packet.atomic;
            for number in memory.as_chunks_mut().0 {
                let old = u64::from_be_bytes(*number);
                let new = match opcode {
                    Opcode::CompareSwap if old == atomic.compare => atomic.swap_add,
                    Opcode::CompareSwap => old,
                    _ => old.wrapping_add(atomic.swap_add),
                };
                *number = new.to_be_bytes();
            }
        }
    }
    flip(memory, is_little);
}

/// Turns numbers in the order of the host to big-endian ones, and back.
fn flip(memory: &mut [u8], is_little: bool) {
    if !is_little {
        return;
    }
    let word = memory.len().clamp(1, 8);
    memory.chunks_exact_mut(word).for_each(<[u8]>::reverse);
}

/// `[ swap | compare | swap mask | compare mask ]`: all numbers are swapped, or none.
fn masked_compare_swap(operands: &[u8], memory: &mut [u8]) {
    let mut operands = operands.chunks_exact(memory.len().max(1));
    let mut next = || operands.next().unwrap_or_default();
    let (swap, compare, swap_mask, compare_mask) = (next(), next(), next(), next());
    let mut compared = memory.iter().zip(compare).zip(compare_mask);
    if compared.any(|((old, compare), mask)| (old ^ compare) & mask != 0) {
        return;
    }
    for ((number, swap), mask) in memory.iter_mut().zip(swap).zip(swap_mask) {
        *number = *number & !mask | swap & mask;
    }
}

/// `[ add | boundaries ]`: no carry leaves a number, nor a bit that a boundary's bit marks as the highest of its field.
fn masked_fetch_add(operands: &[u8], memory: &mut [u8]) {
    let (add, boundaries) = operands.split_at(operands.len() / 2);
    let word = memory.len().clamp(1, 8);
    let number = |bytes: &[u8]| bytes.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    let operands = add.chunks_exact(word).zip(boundaries.chunks_exact(word));
    for (bytes, (add, boundaries)) in memory.chunks_exact_mut(word).zip(operands) {
        let (old, add, highest) = (number(bytes), number(add), number(boundaries));
        // Without the fields' highest bits, a carry ends in them.
        let sum = (old & !highest).wrapping_add(add & !highest) ^ ((old ^ add) & highest);
        bytes.copy_from_slice(&sum.to_be_bytes()[8 - word..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::{Psn, packet::Route};

    fn masked(opcode: Opcode, operands: &[&[u8]], memory: &mut [u8]) -> Vec<u8> {
        let mut packet = Packet::new(opcode, Route::default(), 1, Psn::new(0));
        packet.payload = operands.concat();
        assert_eq!(size_of_operands(opcode, packet.payload.len()), Some(memory.len()));
        let found = found(memory, true).bytes().to_vec();
        apply(&packet, memory, true);
        found
    }

    /// What a ConnectX was seen to do, by somebody who wrote these operands in bytes and read the memory back.
    #[test]
    fn four_bytes_are_a_number_and_sixteen_are_two() {
        let mut memory = [0; 16];
        let swap: Vec<u8> = (0x10..0x20).collect();
        let found = masked(Opcode::MaskedCompareSwap, &[&swap, &[0; 16], &[0xff; 16], &[0xff; 16]], &mut memory);
        assert_eq!(found, [0; 16]);
        assert_eq!(memory[..8], [0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0x10]);
        assert_eq!(memory[8..], [0x1f, 0x1e, 0x1d, 0x1c, 0x1b, 0x1a, 0x19, 0x18]);
        let mut memory = [0; 4];
        masked(Opcode::MaskedCompareSwap, &[&swap[..4], &[0; 4], &[0xff; 4], &[0xff; 4]], &mut memory);
        assert_eq!(memory, [0x13, 0x12, 0x11, 0x10]);
    }

    /// NVIDIA's manual: `if (!((compare ^ *va) & compare_mask)) *va = (*va & ~swap_mask) | (swap & swap_mask)`.
    #[test]
    fn only_what_the_masks_select_is_compared_and_swapped() {
        let be = |number: u32| number.to_be_bytes();
        let swap = |compare: u32, memory: u32| {
            let mut memory = memory.to_le_bytes();
            let operands = [be(0xaaaa_aaaa), be(compare), be(0x0000_ff00), be(0xff00_0000)];
            let found = masked(Opcode::MaskedCompareSwap, &operands.each_ref().map(|bytes| &bytes[..]), &mut memory);
            (found, u32::from_le_bytes(memory))
        };
        assert_eq!(swap(0x1200_0000, 0x1234_5678), (be(0x1234_5678).to_vec(), 0x1234_aa78));
        assert_eq!(swap(0x1300_0000, 0x1234_5678), (be(0x1234_5678).to_vec(), 0x1234_5678));
    }

    #[test]
    fn a_carry_stays_in_its_field_and_in_its_number() {
        let add = |memory: u64, add: u64, boundaries: u64| {
            let mut bytes = memory.to_le_bytes();
            masked(Opcode::MaskedFetchAdd, &[&add.to_be_bytes(), &boundaries.to_be_bytes()], &mut bytes);
            u64::from_le_bytes(bytes)
        };
        assert_eq!(add(0xff, 1, 0), 0x100);
        assert_eq!(add(0xff, 1, 0x80), 0);
        assert_eq!(add(0x00ff_00ff, 0x0001_0001, 0x8000_8000), 0x0100_0100);
        assert_eq!(add(0xffff_ffff_ffff_ffff, 0x0001_0001_0001_0001, 0x8000_8000_8000_8000), 0);
        let mut two = [0xff; 8].into_iter().chain([0; 8]).collect::<Vec<u8>>();
        let mut one = [0; 16];
        one[7] = 1;
        masked(Opcode::MaskedFetchAdd, &[&one, &[0; 16]], &mut two);
        assert_eq!(two, [0; 16]);
    }

    #[test]
    fn operands_of_other_sizes_are_none() {
        for bytes in [0, 8, 24, 40, 256] {
            assert_eq!(size_of_operands(Opcode::MaskedCompareSwap, bytes), None, "{bytes}");
        }
        assert_eq!(size_of_operands(Opcode::MaskedFetchAdd, 24), None);
    }
}
