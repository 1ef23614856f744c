//! Polls mapped UAR pages for doorbells.

use std::time::Duration;

use super::register::{RULE_NOT_ALLOCATED, report_half, ring, ring_eq};
use super::{blueflame, combine};
use crate::engine;
use crate::function::Function;
use crate::objects::{BLUEFLAME_BUFFER, CQ_DOORBELL, EQ_ARM, EQ_UPDATE, LOG_PAGE, PAGE, SEND_DOORBELL};

/// UARs without users that are looked at in a turn. What is stored there is a mistake.
const UNUSED_A_TURN: usize = 8;

/// Takes all doorbells from the mapped pages of UARs that queues use. Returns true if there were any.
///
/// Without doorbells it costs ten loads for each UAR, from this thread's cache until software stores there. UARs cost
/// the driver nothing, so those that no queue uses are polled in turn, a few each time.
pub fn poll(f: &mut Function) -> bool {
    let mut found = combine::flush_due(f);
    let Some(first) = f.bar.first_shared else { return found };
    let mut uar = first;
    // Pages are looked up one by one, because the engine borrows the whole function.
    while let Some(number) = f.nic.objects.used_uars.range(uar..).next().copied() {
        found |= poll_page(f, number);
        uar = number + 1;
    }
    found | poll_unused(f, first)
}

fn poll_unused(f: &mut Function, first: u32) -> bool {
    let mut found = false;
    let mut uar = f.nic.objects.uars.next_from(f.bar.unused.max(first));
    for _ in 0..UNUSED_A_TURN {
        let Some(number) = uar else { break };
        if !f.nic.objects.used_uars.contains(&number) {
            found |= poll_page(f, number);
        }
        uar = f.nic.objects.uars.next_from(number + 1);
    }
    // After the last, the first again.
    f.bar.unused = uar.unwrap_or(0);
    found
}

/// The 8-byte doorbells of a page.
const DOORBELLS: [u64; 9] = {
    let mut registers = [CQ_DOORBELL; 9];
    let mut i = 0;
    while i < 8 {
        registers[i + 1] = SEND_DOORBELL + BLUEFLAME_BUFFER * i as u64;
        i += 1;
    }
    registers
};

fn poll_page(f: &mut Function, uar: u32) -> bool {
    let page = u64::from(uar) << LOG_PAGE;
    let mut found = false;
    for register in DOORBELLS {
        let Some(shared) = &f.bar.shared else { return false };
        let value = shared.peek(page + register);
        // The second dword, with the queue number, is never zero in a complete doorbell.
        if value as u32 != 0 {
            let value = shared.take(page + register);
            ring(f, uar, register, value);
            found = true;
        }
    }
    found | poll_eq(f, uar)
}

/// Takes both EQ doorbells of a page, the one with the lower consumer index first: the order in which they were stored.
fn poll_eq(f: &mut Function, uar: u32) -> bool {
    let page = u64::from(uar) << LOG_PAGE;
    let Some(shared) = &f.bar.shared else { return false };
    let take = |register| match shared.peek(page + register) >> 32 {
        0 => None,
        _ => Some((register, shared.take32(page + register))),
    };
    let mut rung = [take(EQ_UPDATE), take(EQ_ARM)];
    if let [Some((_, update)), Some((_, arm))] = rung
        && update >> 24 == arm >> 24
        && update.wrapping_sub(arm) << 8 <= i32::MAX as u32
        && update != arm
    {
        rung.swap(0, 1);
    }
    let eqns: Vec<u8> = rung.iter().flatten().map(|(_, value)| (value >> 24) as u8).collect();
    rung.into_iter().flatten().for_each(|(register, value)| ring_eq(f, uar, register, value));
    if !eqns.is_empty() {
        engine::eq_doorbells_taken(f, uar, &eqns);
    }
    !eqns.is_empty()
}

/// How often strict mode looks for misplaced doorbells.
const AUDIT_INTERVAL: Duration = Duration::from_millis(20);

/// Now and then, looks for what [`poll`] does not take: doorbells in UARs that are not allocated, and halves that stay
/// halves. Reports them and takes them away. Does nothing unless strict mode is on.
pub fn audit(f: &mut Function) {
    if !f.nic.strict.is_on() || f.bar.audit.last.is_some_and(|last| f.nic.now < last + AUDIT_INTERVAL) {
        return;
    }
    f.bar.audit.last = Some(f.nic.now);
    blueflame::audit(f);
    let Some(first) = f.bar.first_shared else { return };
    let before = std::mem::take(&mut f.bar.audit.halves);
    let mut at = u64::from(first) << LOG_PAGE;
    while let Some(touched) = f.bar.shared.as_ref().and_then(|shared| shared.touched(at)) {
        // Behind the UAR pages lies memory on the card.
        for page in (touched.start..touched.end.min(f.bar.uar_end)).step_by(PAGE as usize) {
            audit_page(f, page, &before);
        }
        at = touched.end;
    }
}

fn audit_page(f: &mut Function, page: u64, before: &[(u64, u64)]) {
    let Some(shared) = &f.bar.shared else { return };
    let uar = (page >> LOG_PAGE) as u32;
    let allocated = f.nic.objects.uars.get(uar).is_some();
    let stored = DOORBELLS.map(|register| (page + register, shared.peek(page + register)));
    let left = stored.into_iter().filter(|(_, value)| *value != 0);
    if !allocated {
        for (at, value) in left {
            f.nic
                .strict
                .report(RULE_NOT_ALLOCATED, || format!("{value:#018x} at register {:#x} of UAR {uar:#x}", at - page));
        }
        return shared.clear_range(page, PAGE);
    }
    for (at, value) in left.filter(|(_, value)| *value as u32 == 0) {
        // It may be half a doorbell that is just being written: only one that stays is a mistake.
        if before.contains(&(at, value)) {
            shared.take(at);
            report_half(f, Some((at, (value >> 32) as u32)));
        } else {
            f.bar.audit.halves.push((at, value));
        }
    }
}
