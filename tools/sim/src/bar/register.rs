//! Registers of UAR pages: doorbells, and copies that ring. PRM "User Access Region".

use super::blueflame;
use crate::engine;
use crate::function::{Function, Rung};
use crate::objects::{BLUEFLAME_BUFFER, CQ_DOORBELL, EQ_ARM, EQ_UPDATE, LOG_PAGE, PAGE, SEND_DOORBELL};

/// Strict rule: a doorbell in a page that `ALLOC_UAR` has not allocated.
pub const RULE_NOT_ALLOCATED: &str = "doorbell in a UAR page that is not allocated";
/// Strict rule: half a doorbell.
pub const RULE_HALF: &str = "doorbell of 4 bytes where 8 are due";
/// Strict rule: an access of a size or alignment that registers do not support.
pub const RULE_ACCESS: &str = "register access of a width or alignment that a card ignores";

/// A write to a UAR page: a doorbell, half of one, or a part of a BlueFlame copy. A card may execute the copy; this one
/// reads the WQE from the ring, unless the copy is whole.
pub(super) fn write(f: &mut Function, offset: u64, bytes: &[u8]) {
    let (uar, register) = ((offset >> LOG_PAGE) as u32, offset & (PAGE - 1));
    if f.nic.objects.uars.get(uar).is_none() {
        return f.nic.strict.report(RULE_NOT_ALLOCATED, || format!("UAR {uar:#x}, register {register:#x}"));
    }
    if f.nic.strict.is_on() {
        f.bar.blueflame.write(uar, register, bytes);
    }
    match (register, bytes) {
        (EQ_ARM | EQ_UPDATE, &[a, b, c, d, ..]) => {
            ring_eq(f, uar, register, u32::from_be_bytes([a, b, c, d]));
        }
        // Writes to other offsets are the rest of BlueFlame copies.
        (_, [_, _, _, _, _, _, _, _, ..]) if !is_doorbell(register) && register.is_multiple_of(8) => {}
        (_, &[a, b, c, d, e, g, h, i, ..]) if register.is_multiple_of(8) => {
            ring(f, uar, register, u64::from_be_bytes([a, b, c, d, e, g, h, i]));
        }
        (_, &[a, b, c, d]) if register.is_multiple_of(4) => write_half(f, offset, u32::from_be_bytes([a, b, c, d])),
        _ => f.nic.strict.report(RULE_ACCESS, || format!("{} bytes at {offset:#x}", bytes.len())),
    }
}

/// 32-bit software writes a doorbell as two dwords, the lower address first.
fn write_half(f: &mut Function, offset: u64, value: u32) {
    let register = offset & (PAGE - 1);
    let first = f.bar.half.take();
    match first {
        Some((at, high)) if at + 4 == offset => {
            ring(f, (offset >> LOG_PAGE) as u32, register - 4, u64::from(high) << 32 | u64::from(value));
        }
        _ => {
            report_half(f, first);
            match is_doorbell(register) {
                true => f.bar.half = Some((offset, value)),
                false if is_doorbell(register.wrapping_sub(4)) => report_half(f, Some((offset, value))),
                false => {}
            }
        }
    }
}

pub(super) fn report_half(f: &Function, half: Option<(u64, u32)>) {
    if let Some((offset, value)) = half {
        f.nic.strict.report(RULE_HALF, || {
            format!("{value:#010x} at register {:#x} of UAR {:#x}", offset & (PAGE - 1), offset >> LOG_PAGE)
        });
    }
}

/// Counts and logs a doorbell that came in `len` bytes.
fn note(f: &mut Function, rung: Rung, len: usize) {
    f.nic.dma.count_doorbell(len);
    if let Some(log) = &mut f.bar.log {
        log.push(rung);
    }
}

/// Passes a complete doorbell to the engine.
pub(super) fn ring(f: &mut Function, uar: u32, register: u64, value: u64) {
    note(f, Rung { uar, register, value }, size_of::<u64>());
    match register {
        CQ_DOORBELL => engine::cq_doorbell(f, uar, value),
        _ => {
            // Before the WQE is executed: afterwards its place in the ring may be reused.
            blueflame::rung(f, uar, register, value);
            engine::send_doorbell(f, uar, value);
        }
    }
}

/// Passes a doorbell that came with its whole WQE to the engine. `offset`: of the buffer.
pub(super) fn ring_by_copy(f: &mut Function, offset: u64, wqe: &[u8]) {
    let Some(value) = wqe.first_chunk().copied().map(u64::from_be_bytes) else { return };
    let (uar, register) = ((offset >> LOG_PAGE) as u32, offset & (PAGE - 1));
    if f.nic.strict.is_on() {
        f.bar.blueflame.write(uar, register, wqe);
    }
    note(f, Rung { uar, register, value }, wqe.len());
    blueflame::rung(f, uar, register, value);
    engine::send_copy(f, uar, wqe);
}

pub(super) fn ring_eq(f: &mut Function, uar: u32, register: u64, value: u32) {
    note(f, Rung { uar, register, value: value.into() }, size_of::<u32>());
    engine::eq_doorbell(f, uar, value, register == EQ_ARM);
}

/// Whether the register is an 8-byte doorbell.
fn is_doorbell(register: u64) -> bool {
    register == CQ_DOORBELL || is_send_doorbell(register)
}

fn is_send_doorbell(register: u64) -> bool {
    (SEND_DOORBELL..PAGE).contains(&register) && register.is_multiple_of(BLUEFLAME_BUFFER)
}
