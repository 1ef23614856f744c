//! Strict mode: checks that the copy in a BlueFlame buffer is the WQE that its doorbell names. PRM "BlueFlame".
//!
//! A real card may execute the copy instead of the WQE in the ring. This one does so where it
//! [combines writes](super::combine), and otherwise fetches from the ring, so two threads that copy into one buffer at
//! the same time would go unnoticed. A doorbell is taken as soon as its first bytes are there, and the rest of the copy
//! arrives later. So the buffer is checked after a settling time, unless it was rung again.
//!
//! Linux, libmlx5 and DPDK also ring with the first eight bytes only. Then the buffer still holds one or several
//! earlier copies, in blocks of 64 bytes. Only content that is neither the WQE nor such an earlier copy is reported.
//! Write-combining buffers that a driver does not flush cannot be detected, as mapped pages are plain memory; a block
//! of a copy that was never written can.

use std::time::Duration;

use mlx5_prm::ctx::QueueState;
use mlx5_prm::layout::Layout;
use mlx5_prm::values::QpState;
use mlx5_prm::wqe::{CtrlSeg, SEGMENT, WQEBB};

use crate::function::{BUFFER, Buffer, Bytes, Copy, Function};
use crate::objects::{BLUEFLAME_BUFFER, LOG_PAGE, PAGE, Posts, SEND_DOORBELL};

/// Strict rule: a BlueFlame copy is not the WQE in the ring. Copies of two threads are mixed, or a part was never
/// written.
pub const RULE_COPY: &str = "BlueFlame copy differs from the WQE in the ring";
/// Strict rule: a send queue copied two successive WQEs to one buffer; the two buffers of a register must alternate.
pub const RULE_SAME_BUFFER: &str = "BlueFlame buffer used twice running";

/// Settling time: a copy is complete after this time, even if its writer was preempted.
const SETTLED: Duration = Duration::from_millis(250);
/// Number of WQEBBs before the last one posted whose copies an 8-byte doorbell may leave in the buffer.
const RECENT: u16 = 16;

/// A send doorbell was taken from a buffer.
pub(super) fn rung(f: &mut Function, uar: u32, register: u64, value: u64) {
    if !f.nic.strict.is_on() {
        return;
    }
    let named = named(f, uar, value);
    let content = content(f, uar, register);
    let number = (value >> 8) as u32 & 0xff_ffff;
    let owner = f.bar.blueflame.owners.entry((uar, register & !BLUEFLAME_BUFFER)).or_insert(Some(number));
    *owner = owner.filter(|owner| *owner == number);
    let buffer = f.bar.blueflame.buffers.entry((uar, register)).or_default();
    // The writer of an incomplete copy may still write, over this one.
    let is_contended = buffer.supersede(&content);
    match named {
        Some(copy) if !is_contended && copy.is_in(&content) => whole(f, (uar, register), copy, content),
        named => {
            buffer.is_unknown |= named.is_none();
            buffer.pending = named;
        }
    }
}

/// The WQE that a doorbell names, if its `wqe_index` is right.
fn named(f: &Function, uar: u32, value: u64) -> Option<Copy> {
    let (number, index) = ((value >> 8) as u32 & 0xff_ffff, (value >> 40) as u16);
    let sq = || f.queues.sqs.get(number).filter(|sq| sq.uar == uar && sq.state == QueueState::Rdy);
    let qp = || f.queues.qps.get(number).filter(|qp| qp.uar == uar && qp.state == QpState::Rts);
    let posts = sq().map(|sq| sq.posts()).or_else(|| qp()?.posts())?;
    let copy = in_ring(f, &posts, index)?;
    (copy.wqe[..8] == value.to_be_bytes()).then_some(copy)
}

/// The send queues that ring at UAR page `uar`.
fn sharers(f: &Function, uar: u32) -> impl Iterator<Item = Posts<'_>> {
    let qps = f.queues.qps.iter().filter(move |(_, qp)| qp.uar == uar).filter_map(|(_, qp)| qp.posts());
    let sqs = f.queues.sqs.iter().filter(move |(_, sq)| sq.uar == uar).map(|(_, sq)| sq.posts());
    qps.chain(sqs)
}

/// The copy that the WQE at `index` should have: whole blocks of 64 bytes from the ring.
fn in_ring(f: &Function, posts: &Posts, index: u16) -> Option<Copy> {
    let mut wqe = [0; BUFFER];
    for (block, bytes) in (0..).zip(wqe.chunks_mut(WQEBB)) {
        let place = u64::from(index.wrapping_add(block)) & ((1 << posts.ring.log_size) - 1);
        posts.ring.memory.read(&f.nic.dma, place * WQEBB as u64, bytes).ok()?;
    }
    let len = usize::from(CtrlSeg::read(&wqe)?.ds()) * SEGMENT;
    let blocks = len.div_ceil(WQEBB).max(1) as u16;
    let len = len.clamp(SEGMENT, BUFFER);
    Some(Copy { queue: posts.queue, index, wqe, len, blocks, since: f.nic.now })
}

/// Current content of the buffer.
fn content(f: &Function, uar: u32, register: u64) -> Bytes {
    let Some(shared) = f.bar.shared.as_ref().filter(|_| f.bar.is_mapped(uar)) else {
        return f.bar.blueflame.messages.get(&(uar, register)).copied().unwrap_or([0; BUFFER]);
    };
    let start = (u64::from(uar) << LOG_PAGE) + register;
    let mut bytes = [0; BUFFER];
    for (at, quadword) in (start..).step_by(8).zip(bytes.chunks_mut(8)) {
        quadword.copy_from_slice(&shared.peek(at).to_be_bytes());
    }
    bytes
}

/// Whether the buffer has an unread doorbell.
fn is_rung(f: &Function, uar: u32, register: u64) -> bool {
    let at = (u64::from(uar) << LOG_PAGE) + register;
    f.bar.is_mapped(uar) && f.bar.shared.as_ref().is_some_and(|shared| shared.peek(at) != 0)
}

/// Checks the buffers whose settling time is over.
pub(super) fn audit(f: &mut Function) {
    let settled = |buffer: &Buffer| buffer.pending.as_ref().is_some_and(|copy| f.nic.now >= copy.since + SETTLED);
    let due: Vec<_> = f.bar.blueflame.buffers.iter().filter(|(_, buffer)| settled(buffer)).map(|(at, _)| *at).collect();
    for (uar, register) in due {
        let content = content(f, uar, register);
        // Read after the content: a writer of the next copy starts with the doorbell.
        let is_rung = is_rung(f, uar, register);
        let Some(buffer) = f.bar.blueflame.buffers.get_mut(&(uar, register)).filter(|_| !is_rung) else { continue };
        let Some(copy) = buffer.pending.take() else { continue };
        if copy.is_in(&content) {
            whole(f, (uar, register), copy, content);
            continue;
        }
        let buffer = std::mem::replace(buffer, Buffer { content: Some(content), ..Buffer::default() });
        let is_gone = !sharers(f, uar).any(|posts| posts.queue == copy.queue);
        if !is_gone && !buffer.is_unknown && !is_left_over(f, uar, &copy, &content, &buffer) {
            report(f, (uar, register), &copy, &content);
        }
    }
}

/// Whether every block of the buffer is left from an earlier copy: then the doorbell was eight bytes only.
fn is_left_over(f: &Function, uar: u32, copy: &Copy, content: &Bytes, buffer: &Buffer) -> bool {
    let recent_of = |posts: Posts<'_>| -> Vec<Copy> {
        (1..=RECENT).filter_map(|back| in_ring(f, &posts, posts.posted.wrapping_sub(back))).collect()
    };
    let recent = sharers(f, uar).flat_map(recent_of);
    let others = recent.filter(|other| (other.queue, other.index) != (copy.queue, copy.index)).map(|other| other.wqe);
    let before = buffer.content.unwrap_or([0; BUFFER]);
    let known: Vec<Bytes> = buffer.earlier.iter().copied().chain(others).chain([before]).collect();
    (0..copy.len).step_by(WQEBB).all(|block| {
        let range = block.max(8)..(block + WQEBB).min(copy.len);
        known.iter().any(|known| known[range.clone()] == content[range.clone()])
    })
}

/// A copy is complete: checks that the register's two buffers alternate.
fn whole(f: &mut Function, (uar, register): (u32, u64), copy: Copy, content: Bytes) {
    // Another queue may have used the other buffer in between, or its use may not have been seen yet.
    let is_alone = f.bar.blueflame.owners.get(&(uar, register & !BLUEFLAME_BUFFER)) == Some(&Some(copy.queue.1))
        && !is_rung(f, uar, register ^ BLUEFLAME_BUFFER);
    let Some(buffer) = f.bar.blueflame.buffers.get_mut(&(uar, register)) else { return };
    // If the WQEs are adjacent, no doorbell between them can have been overwritten.
    let follows = |last: &Copy| last.queue == copy.queue && last.index.wrapping_add(last.blocks) == copy.index;
    let again = is_alone && buffer.whole.as_ref().is_some_and(follows);
    let (queue, index) = (copy.queue, copy.index);
    // Unchanged content may not be a copy at all.
    let is_new = buffer.content.unwrap_or([0; BUFFER])[8..copy.len] != content[8..copy.len];
    let again = again && is_new;
    buffer.settle(content);
    buffer.whole = is_new.then_some(copy);
    if again {
        f.nic.strict.report(RULE_SAME_BUFFER, || {
            format!("{queue}, WQE {index:#x}: register {register:#x} of UAR {uar:#x}, as the WQE before it")
        });
    }
}

fn report(f: &Function, (uar, register): (u32, u64), copy: &Copy, content: &Bytes) {
    let at = (8..copy.len).find(|at| copy.wqe[*at] != content[*at]).unwrap_or(8);
    f.nic.strict.report(RULE_COPY, || {
        format!(
            "{}, WQE {:#x}, register {register:#x} of UAR {uar:#x}: byte {at:#x} is {:#04x}, in the ring {:#04x}",
            copy.queue, copy.index, content[at], copy.wqe[at]
        )
    });
}

const _: () = assert!(PAGE - SEND_DOORBELL == 8 * BLUEFLAME_BUFFER);
