//! Firmware: initialization segment, command queue, pages, health, and the function's state between ENABLE_HCA and
//! DISABLE_HCA. PRM "Command Interface", "Initialization Segment".
//!
//! There is one file for each kind of object; [`syndromes`] says why a command was refused. A driver's command never
//! panics here: an invalid one gets a delivery status, or a status and a syndrome.

use std::time::{Duration, Instant};

use mlx5_prm::init_seg::InitSegment;
use mlx5_prm::layout::Layout;

use crate::engine;
use crate::function::{Firmware, Function, HcaState};

mod answer;
mod caps;
mod clock;
mod command;
mod component;
mod counter;
mod cq;
mod dct;
mod ece;
mod eq;
mod flow;
mod flow_action;
mod general_object;
mod hca;
mod l2_table;
mod lag;
mod link;
mod mailbox;
mod memic;
mod memory;
mod mkey;
mod multicast;
mod page_fault;
mod pages;
mod pd;
mod port_counter;
mod qp;
mod qp_extension;
mod qp_state;
mod queue;
mod rate;
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
mod vxlan;
mod wq;
mod xrcd;

/// Period of the health counter. PRM "Health Counter".
const HEALTH_PERIOD: Duration = Duration::from_millis(10);
/// `nic_interface`: the driver has turned the function off. PRM "Initialization Segment".
const DISABLED: u32 = 1;
/// Written to `nic_interface`: software reset. Firmware then reads [`DISABLED`], for which Linux waits.
const SOFTWARE_RESET: u32 = 7;

/// Offsets of the writable registers of the initialization segment.
mod offset {
    pub(super) const CMDQ_ADDRESS_HIGH: u64 = 0x10;
    pub(super) const CMDQ_ADDRESS_LOW: u64 = 0x14;
    pub(super) const COMMAND_DOORBELL: u64 = 0x18;
}

/// The command doorbell was rung for these slots, one bit for each.
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

/// A write of one dword of the initialization segment: the big-endian value, in host order.
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

/// The driver turned the function off: firmware drops all state and all pages at once, and can start again.
///
/// Linux does this when it gives up the function without destroying objects or reclaiming pages. So this is no
/// violation, and nothing of it may affect the next driver: objects, pages, pending commands, frames, doorbells.
fn forget_driver(f: &mut Function) {
    engine::reset(f);
    f.nic.port.clear();
    f.bar.reset();
    reset(f);
}

/// One turn: late answers, page requests, health counter, timers. Returns true if anything was done.
pub fn tick(f: &mut Function) -> bool {
    let firmware = &mut f.nic.firmware;
    firmware.health_syndrome = f.nic.faults.health_syndrome().unwrap_or(firmware.fatal.number() as u8);
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

/// When [`tick`] has work next, if nothing else happens before.
pub fn next_deadline(f: &Function) -> Option<Instant> {
    queue::next_deadline(f)
}

/// Function level reset: the state after power-on.
pub fn reset(f: &mut Function) {
    f.nic.firmware = Firmware::new(&f.nic.profile, f.nic.now);
    f.forget_objects();
    f.nic.port.restore();
}

/// The initialization segment is the first `INIT_SEGMENT_LEN` bytes of BAR 0.
pub const INIT_SEGMENT_LEN: u64 = InitSegment::SIZE as u64;
