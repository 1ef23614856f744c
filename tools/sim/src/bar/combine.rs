//! Write combining: joins stores to a BlueFlame buffer that arrive one by one, as a processor joins them before they
//! leave it. PRM "BlueFlame".
//!
//! A processor that maps a page write combining fills a buffer of 64 bytes and sends it in one piece. An emulated one,
//! as QEMU's, has no such buffer: each store is a message of at most eight bytes. So Linux finds that write combining
//! does not work, and neither it nor libmlx5 copies any WQE. With [`Builder::write_combining`] the card plays the
//! buffer. It keeps the first stores back, as long as each continues where the last one ended, until the WQE is there
//! whole: its length is in the first eight bytes. Such a copy is executed, unless the queue has older work to fetch.
//!
//! Anything else rings the doorbell with what has arrived, and the WQE is fetched from the ring: a store elsewhere in
//! the same register, an access to anything but UAR pages, or that none follows for [`HELD`]. A fence, which empties a
//! processor's buffer at once, cannot be seen here. Stores to other registers are those of other threads, and do not
//! interfere, as each processor has its own buffers.
//!
//! [`Builder::write_combining`]: crate::card::Builder::write_combining

use std::time::{Duration, Instant};

use mlx5_prm::layout::Layout;
use mlx5_prm::wqe::{CtrlSeg, WQEBB};

use super::register;
use crate::function::{BUFFER, Function, OpenCopy};
use crate::objects::{BLUEFLAME_BUFFER, FIRST_UAR, LOG_PAGE, PAGE, SEND_DOORBELL, blocks_of};

/// How long the next store of a copy is awaited: the longest time that a doorbell without copy waits.
pub(crate) const HELD: Duration = Duration::from_micros(200);

/// Takes a store that a write-combining buffer keeps back. Returns false if it has to reach the registers now.
pub(super) fn take(f: &mut Function, offset: u64, bytes: &[u8]) -> bool {
    if f.bar.combining.is_none() {
        return false;
    }
    let (uar, in_page) = ((offset >> LOG_PAGE) as u32, offset & (PAGE - 1));
    if uar < FIRST_UAR || offset >= f.bar.uar_end {
        flush(f);
        return false;
    }
    if in_page < SEND_DOORBELL || f.nic.objects.uars.get(uar).is_none() {
        return false;
    }
    let register = offset & !(2 * BLUEFLAME_BUFFER - 1);
    if !continues(f, register, offset, bytes.len()) {
        close(f, register);
        if !offset.is_multiple_of(BLUEFLAME_BUFFER) || !is_combined(bytes.len()) {
            return false;
        }
    }
    extend(f, register, offset, bytes);
    true
}

/// Whether a store of `len` bytes at the start of a buffer may be the first of a copy.
fn is_combined(len: usize) -> bool {
    len > 0 && len.is_multiple_of(4) && len <= BUFFER
}

/// Whether the store continues what has arrived at the register.
fn continues(f: &Function, register: u64, offset: u64, len: usize) -> bool {
    let open = f.bar.combining.as_ref().and_then(|combining| combining.open.get(&register));
    open.is_some_and(|open| open.start + open.len as u64 == offset && len.is_multiple_of(4) && open.len + len <= BUFFER)
}

/// Adds the store to the copy, and rings once that is whole.
fn extend(f: &mut Function, register: u64, offset: u64, bytes: &[u8]) {
    let Some(combining) = &mut f.bar.combining else { return };
    let since = f.nic.now;
    let new = || OpenCopy { start: offset, bytes: [0; BUFFER], len: 0, since };
    let open = combining.open.entry(register).or_insert_with(new);
    open.bytes[open.len..open.len + bytes.len()].copy_from_slice(bytes);
    (open.len, open.since) = (open.len + bytes.len(), since);
    // The length of the WQE is in the second half of the doorbell.
    if open.len < size_of::<u64>() {
        return;
    }
    let due = CtrlSeg::read(&open.bytes).map_or(usize::MAX, |ctrl| usize::from(blocks_of(&ctrl)) * WQEBB);
    if due > BUFFER {
        return close(f, register);
    }
    if open.len >= due
        && let Some(open) = combining.open.remove(&register)
    {
        register::ring_by_copy(f, open.start, &open.bytes[..due]);
    }
}

/// Hands what has arrived at a register to it: a doorbell, and the beginning of a copy that nobody reads.
fn close(f: &mut Function, register: u64) {
    let open = f.bar.combining.as_mut().and_then(|combining| combining.open.remove(&register));
    if let Some(open) = open {
        register::write(f, open.start, &open.bytes[..open.len]);
    }
}

/// Hands over everything that is kept back.
pub(super) fn flush(f: &mut Function) {
    close_where(f, |_| true);
}

/// Hands over what nothing has followed in time. Returns true if there was any.
pub(super) fn flush_due(f: &mut Function) -> bool {
    let now = f.nic.now;
    close_where(f, |open| open.since + HELD <= now)
}

fn close_where(f: &mut Function, is_due: impl Fn(&OpenCopy) -> bool) -> bool {
    let Some(combining) = f.bar.combining.as_ref().filter(|combining| !combining.open.is_empty()) else { return false };
    let due: Vec<u64> = combining.open.iter().filter(|(_, open)| is_due(open)).map(|(register, _)| *register).collect();
    due.iter().for_each(|register| close(f, *register));
    !due.is_empty()
}

/// When [`flush_due`] has work next.
pub(super) fn next_deadline(f: &Function) -> Option<Instant> {
    f.bar.combining.as_ref()?.open.values().map(|open| open.since + HELD).min()
}
