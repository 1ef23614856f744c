//! BAR 0: initialization segment, MSI-X table, UAR pages, device memory. PRM "Initialization Segment", "User Access
//! Region".
//!
//! | bytes | content | access |
//! | --- | --- | --- |
//! | 0x0000.. | initialization segment, see [`firmware`] | messages |
//! | 0x2000.. | MSI-X table | messages |
//! | 0x3000.. | MSI-X pending bits | messages |
//! | page [`FIRST_UAR`] | the UARs allocated first: software puts its EQs there | messages |
//! | from the next page | all other UARs | memory that clients map, polled by the device thread |
//! | from `memic_bar_start_addr` | device memory | memory that clients map; messages, too |
//! | behind it | the addresses of its operations | messages |
//!
//! A mapped UAR page is plain memory, so a doorbell can overwrite an earlier one to the same register before it is
//! read. For sends and for arming CQs that is harmless, because of the doorbell records. EQ doorbells have no record.
//! So the first UARs use messages; in a mapped page, one EQ's doorbells are taken in order, and if several EQs
//! overwrite each other, all of them are armed. The device thread replaces every doorbell that it takes by zero, which
//! no doorbell can have as its value.
//!
//! Device memory is mapped as the UAR pages are: what is stored to it must be there before a doorbell that is stored
//! later, and a message takes its time.

mod blueflame;
mod poll;

pub use blueflame::{RULE_COPY, RULE_SAME_BUFFER};
pub use poll::{audit, poll};

use mlx5_prm::cmd::MemicOperation;
use mlx5_prm::layout::Layout;

pub use crate::function::{Bar, MemoryError, Rung, UarArea, UarMemory};
pub use crate::objects::{BLUEFLAME_BUFFER, CQ_DOORBELL, EQ_ARM, EQ_UPDATE, FIRST_UAR, LOG_PAGE, PAGE, SEND_DOORBELL};

use crate::function::Function;
use crate::pci::{MSIX_PBA, MSIX_TABLE};
use crate::{engine, firmware};

/// Strict rule: a doorbell in a page that `ALLOC_UAR` has not allocated.
pub const RULE_NOT_ALLOCATED: &str = "doorbell in a UAR page that is not allocated";
/// Strict rule: half a doorbell.
pub const RULE_HALF: &str = "doorbell of 4 bytes where 8 are due";
/// Strict rule: an access of a size or alignment that registers do not support.
pub const RULE_ACCESS: &str = "register access of a width or alignment that a card ignores";

/// Strict rule: a store to device memory that `ALLOC_MEMIC` has not allocated.
pub const RULE_DEVICE_MEMORY: &str = "store to memory on the card that is not taken";
/// Strict rule: an access by which memory on the card does no operation.
pub const RULE_OPERATION: &str = "access of the wrong kind or width to an operation's address on the card";

const PBA_END: u64 = MSIX_PBA + PAGE;

/// Reads BAR 0. Bytes past its end read as ones, as all do of a function that decodes no memory; UAR pages and
/// unallocated device memory as zeros.
pub fn read(f: &mut Function, offset: u64, bytes: &mut [u8]) {
    if !f.nic.pci.decodes_memory() {
        return bytes.fill(0xff);
    }
    let size = f.bar.size();
    for (at, byte) in (0u64..).zip(bytes.iter_mut()) {
        *byte = if offset.checked_add(at).is_some_and(|at| at < size) { 0 } else { 0xff };
    }
    let bytes = &mut bytes[..];
    match offset {
        MSIX_TABLE..MSIX_PBA => f.nic.pci.table_read(offset - MSIX_TABLE, bytes),
        MSIX_PBA..PBA_END => f.nic.pci.pba_read(offset - MSIX_PBA, bytes),
        0..MSIX_TABLE => {
            let segment = f.nic.firmware.init_segment(&f.nic.profile, f.nic.now);
            let source = segment.as_bytes().get(offset as usize..MSIX_TABLE as usize).unwrap_or_default();
            let len = bytes.len().min(source.len());
            bytes[..len].copy_from_slice(&source[..len]);
        }
        _ if offset >= f.bar.uar_end => read_device_memory(f, offset, bytes),
        _ => {}
    }
}

/// Writes BAR 0 by a message. Registers accept dwords, doorbells their own size, memory any size. A function that
/// decodes no memory never sees it.
pub fn write(f: &mut Function, offset: u64, bytes: &[u8]) {
    if !f.nic.pci.decodes_memory() {
        return;
    }
    let end = offset.checked_add(bytes.len() as u64);
    if end.is_none_or(|end| end > f.bar.size()) {
        return f.nic.strict.report(RULE_ACCESS, || format!("{} bytes at {offset:#x}, past BAR 0's end", bytes.len()));
    }
    match offset {
        0..MSIX_TABLE => write_init_segment(f, offset, bytes),
        MSIX_TABLE..MSIX_PBA => f.nic.pci.table_write(offset - MSIX_TABLE, bytes),
        _ if offset >= f.bar.uar_end => write_device_memory(f, offset, bytes),
        _ if offset >> LOG_PAGE >= u64::from(FIRST_UAR) => write_uar(f, offset, bytes),
        _ => {}
    }
}

fn write_init_segment(f: &mut Function, offset: u64, bytes: &[u8]) {
    // Doorbells stored before this write must take effect before it: a command must not find queues with pending
    // doorbells.
    poll(f);
    let (dwords, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() || !offset.is_multiple_of(4) {
        return f.nic.strict.report(RULE_ACCESS, || format!("{} bytes at {offset:#x}", bytes.len()));
    }
    for (at, dword) in (offset..).step_by(4).zip(dwords) {
        firmware::write_register(f, at, u32::from_be_bytes(*dword));
    }
}

fn read_device_memory(f: &Function, offset: u64, bytes: &mut [u8]) {
    let (memory, len) = (&f.nic.objects.device_memory, bytes.len() as u64);
    if let Some((memory, at)) = memory.at(offset, len) {
        memory.read(at, bytes);
    } else if let Some((operation, memory, at)) = memory.operation_at(offset, len)
        && (operation != MemicOperation::TestAndSet || !memory.test_and_set(at, bytes))
    {
        f.nic.strict.report(RULE_OPERATION, || format!("{operation}: load of {len} bytes at {offset:#x}"));
    }
}

fn write_device_memory(f: &Function, offset: u64, bytes: &[u8]) {
    let (memory, len) = (&f.nic.objects.device_memory, bytes.len() as u64);
    if let Some((operation, memory, at)) = memory.operation_at(offset, len) {
        if operation != MemicOperation::Increment || !memory.increment(at, bytes) {
            f.nic.strict.report(RULE_OPERATION, || format!("{operation}: store of {len} bytes at {offset:#x}"));
        }
        return;
    }
    match memory.at(offset, len) {
        Some((memory, at)) => _ = memory.write(at, bytes),
        None => f.nic.strict.report(RULE_DEVICE_MEMORY, || format!("{} bytes at {offset:#x}", bytes.len())),
    }
}

/// A write to a UAR page: a doorbell, half of one, or the rest of a BlueFlame copy. A card may execute the copy; this
/// one reads the WQE from the ring.
fn write_uar(f: &mut Function, offset: u64, bytes: &[u8]) {
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

fn report_half(f: &Function, half: Option<(u64, u32)>) {
    if let Some((offset, value)) = half {
        f.nic.strict.report(RULE_HALF, || {
            format!("{value:#010x} at register {:#x} of UAR {:#x}", offset & (PAGE - 1), offset >> LOG_PAGE)
        });
    }
}

/// Passes a complete doorbell to the engine.
fn ring(f: &mut Function, uar: u32, register: u64, value: u64) {
    f.nic.dma.count_doorbell(8);
    if let Some(log) = &mut f.bar.log {
        log.push(Rung { uar, register, value });
    }
    match register {
        CQ_DOORBELL => engine::cq_doorbell(f, uar, value),
        _ => {
            // Before the WQE is executed: afterwards its place in the ring may be reused.
            blueflame::rung(f, uar, register, value);
            engine::send_doorbell(f, uar, value);
        }
    }
}

fn ring_eq(f: &mut Function, uar: u32, register: u64, value: u32) {
    f.nic.dma.count_doorbell(4);
    if let Some(log) = &mut f.bar.log {
        log.push(Rung { uar, register, value: value.into() });
    }
    engine::eq_doorbell(f, uar, value, register == EQ_ARM);
}

/// Whether the register is an 8-byte doorbell.
fn is_doorbell(register: u64) -> bool {
    register == CQ_DOORBELL || is_send_doorbell(register)
}

fn is_send_doorbell(register: u64) -> bool {
    (SEND_DOORBELL..PAGE).contains(&register) && register.is_multiple_of(BLUEFLAME_BUFFER)
}

#[cfg(test)]
mod tests;
