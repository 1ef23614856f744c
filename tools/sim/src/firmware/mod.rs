//! Firmware: the init segment, the command queue, pages, health, and the state between ENABLE_HCA and DISABLE_HCA.
//!
//! One file an object family; [`syndromes`] says why a command was refused. A command of a driver never panics here:
//! what is wrong with it becomes a delivery status, or a status and a syndrome.

use std::time::{Duration, Instant};

use mlx5_prm::init_seg::InitSegment;
use mlx5_prm::layout::Layout;

use crate::engine;
use crate::function::{Firmware, Function, HcaState};

mod answer;
mod caps;
mod command;
mod component;
mod counter;
mod cq;
mod eq;
mod flow;
mod hca;
mod l2_table;
mod link;
mod mailbox;
mod memic;
mod memory;
mod mkey;
mod multicast;
mod pages;
mod pd;
mod port_counter;
mod qp;
mod qp_state;
mod queue;
mod register;
mod roce;
mod rq;
mod rqt;
mod sq;
mod srq;
pub mod syndromes;
#[cfg(test)]
pub(crate) mod tests;
mod tir;
mod tis;
mod uar;
pub(crate) mod uctx;
mod umem;
mod vport;
mod wq;
mod xrcd;

/// How often the health counter counts.
const HEALTH_PERIOD: Duration = Duration::from_millis(10);
/// `nic_interface`: the function is off, on the driver's word.
const DISABLED: u32 = 1;
/// Written to `nic_interface`: firmware is to start anew. It then reads [`DISABLED`], for which Linux waits.
const SOFTWARE_RESET: u32 = 7;

/// Offsets of the init segment's registers that can be written.
mod offset {
    pub(super) const CMDQ_ADDRESS_HIGH: u64 = 0x10;
    pub(super) const CMDQ_ADDRESS_LOW: u64 = 0x14;
    pub(super) const COMMAND_DOORBELL: u64 = 0x18;
}

/// The command doorbell was rung for these slots, one bit each.
pub fn ring(f: &mut Function, slots: u32) {
    if f.nic.firmware.is_starting(f.nic.now) {
        f.nic.strict.report("command doorbell while firmware starts", || format!("slots {slots:#x}"));
        return;
    }
    if f.nic.firmware.nic_interface == DISABLED {
        return;
    }
    queue::ring(f, slots);
}

/// A write of one dword of the init segment, in host order of the big-endian value.
pub fn write_register(f: &mut Function, offset: u64, value: u32) {
    let firmware = &mut f.nic.firmware;
    match offset {
        offset::CMDQ_ADDRESS_HIGH => {
            firmware.queue.address = u64::from(value) << 32 | firmware.queue.address & 0xffff_ffff;
        }
        offset::CMDQ_ADDRESS_LOW => {
            firmware.queue.address = firmware.queue.address & !0xffff_ffff | u64::from(value & !0xfff);
            set_nic_interface(f, value >> 8 & 7);
        }
        offset::COMMAND_DOORBELL => ring(f, value),
        _ => {}
    }
}

fn set_nic_interface(f: &mut Function, wanted: u32) {
    match wanted {
        SOFTWARE_RESET => {
            forget_driver(f);
            f.nic.firmware.nic_interface = DISABLED;
        }
        DISABLED => {
            let (started, address) = (f.nic.firmware.started, f.nic.firmware.queue.address);
            forget_driver(f);
            (f.nic.firmware.started, f.nic.firmware.queue.address) = (started, address);
            f.nic.firmware.nic_interface = DISABLED;
        }
        _ => f.nic.firmware.nic_interface = wanted & 3,
    }
}

/// Off, on the driver's word and all at once: it takes every page back without asking, and may begin again.
///
/// Linux does so when it gives the function up: no object destroyed, no page given back by a command. So none of it is
/// a violation, and nothing of it may meet what comes next: objects, pages, commands under way, frames, doorbells.
fn forget_driver(f: &mut Function) {
    engine::reset(f);
    f.nic.port.clear();
    f.bar.reset();
    reset(f);
}

/// One turn: late replies, page requests, health counter, timers. True if anything was done.
pub fn tick(f: &mut Function) -> bool {
    let firmware = &mut f.nic.firmware;
    firmware.health_syndrome = f.nic.faults.health_syndrome().unwrap_or(0);
    if !f.nic.faults.health_counter_stopped() {
        let periods = f.nic.now.saturating_duration_since(firmware.started).as_millis() / HEALTH_PERIOD.as_millis();
        firmware.health_counter = periods as u32;
    }
    if firmware.state == HcaState::Initialized
        && let Some(pages) = f.nic.faults.page_request()
    {
        pages::request(f, pages);
    }
    queue::tick(f)
}

/// When [`tick`] next has work to do though nothing happens until then.
pub fn next_deadline(f: &Function) -> Option<Instant> {
    queue::next_deadline(f)
}

/// Function level reset: everything as after power-on.
pub fn reset(f: &mut Function) {
    f.nic.firmware = Firmware::new(&f.nic.profile, f.nic.now);
    f.forget_objects();
    f.nic.port.restore();
}

/// The first `INIT_SEGMENT_LEN` bytes of BAR 0 are the init segment.
pub const INIT_SEGMENT_LEN: u64 = InitSegment::SIZE as u64;
