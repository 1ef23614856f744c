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
//! With [`Builder::write_combining`] every doorbell is a message, and those of a BlueFlame copy are joined: see
//! `combine`.
//!
//! [`Builder::write_combining`]: crate::card::Builder::write_combining
//!
//! Device memory is mapped as the UAR pages are: what is stored to it must be there before a doorbell that is stored
//! later, and a message takes its time.

mod blueflame;
mod combine;
mod poll;
mod register;

pub use blueflame::{RULE_COPY, RULE_SAME_BUFFER};
pub use poll::{audit, poll};
pub use register::{RULE_ACCESS, RULE_HALF, RULE_NOT_ALLOCATED};

#[cfg(test)]
pub(crate) use combine::HELD;

use std::time::Instant;

use mlx5_prm::cmd::MemicOperation;
use mlx5_prm::layout::Layout;

pub use crate::function::{Bar, MemoryError, Rung, UarArea, UarMemory};
pub use crate::objects::{BLUEFLAME_BUFFER, CQ_DOORBELL, EQ_ARM, EQ_UPDATE, FIRST_UAR, LOG_PAGE, PAGE, SEND_DOORBELL};

use crate::firmware;
use crate::function::Function;
use crate::pci::{MSIX_PBA, MSIX_TABLE};

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
    // A read pushes the stores before it.
    combine::flush(f);
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
    if combine::take(f, offset, bytes) {
        return;
    }
    match offset {
        0..MSIX_TABLE => write_init_segment(f, offset, bytes),
        MSIX_TABLE..MSIX_PBA => f.nic.pci.table_write(offset - MSIX_TABLE, bytes),
        _ if offset >= f.bar.uar_end => write_device_memory(f, offset, bytes),
        _ if offset >> LOG_PAGE >= u64::from(FIRST_UAR) => register::write(f, offset, bytes),
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

/// When a turn has a doorbell to take that no message announces.
pub fn next_deadline(f: &Function) -> Option<Instant> {
    combine::next_deadline(f)
}

#[cfg(test)]
mod tests;
