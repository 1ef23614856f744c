//! Firmware: the init segment, the command queue, pages, health, and the state between ENABLE_HCA and DISABLE_HCA.
//!
//! One file an object family; [`syndromes`] says why a command was refused. A command of a driver never panics here: what
//! is wrong with it becomes a delivery status, or a status and a syndrome.

use std::time::{Duration, Instant};

use mlx5_prm::init_seg::{HealthSyndrome, InitSegment};
use mlx5_prm::layout::{Be32, Layout};
use mlx5_prm::reg::HostEndianness;

use crate::engine;
use crate::function::Function;
use crate::objects::Objects;
use crate::profile::Profile;

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
mod tests;
mod tir;
mod tis;
mod uar;
pub(crate) mod uctx;
mod umem;
mod vport;
mod wq;
mod xrcd;

pub use caps::Capabilities;
pub use pages::Pages;
pub use queue::CommandQueue;

/// How long `initializing` reads 1 after power-on or reset.
const START_UP: Duration = Duration::from_millis(3);
/// How often the health counter counts.
const HEALTH_PERIOD: Duration = Duration::from_millis(10);
/// `cmd_interface_rev`.
const COMMAND_INTERFACE: u16 = 5;
/// `nic_interface`: the driver owns the whole function.
const FULL_DRIVER: u32 = 0;
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

/// Where the function is between power-on and use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HcaState {
    /// Before `ENABLE_HCA`.
    Disabled,
    /// Between `ENABLE_HCA` and `INIT_HCA`.
    Enabled,
    /// After `INIT_HCA`.
    Initialized,
}

/// What firmware keeps for one function.
#[derive(Debug)]
pub struct Firmware {
    started: Instant,
    state: HcaState,
    queue: CommandQueue,
    pages: Pages,
    caps: Capabilities,
    /// PRM `nic_interface`, three bits.
    nic_interface: u32,
    current_issi: u16,
    driver_version: String,
    node_desc: [u8; 64],
    host_endianness: HostEndianness,
    health_counter: u32,
    health_syndrome: u8,
}

impl Firmware {
    /// Firmware just after power-on.
    pub fn new(profile: &Profile) -> Self {
        Firmware {
            started: Instant::now(),
            state: HcaState::Disabled,
            queue: CommandQueue::default(),
            pages: Pages::new(profile.pages),
            caps: Capabilities::new(profile),
            nic_interface: FULL_DRIVER,
            current_issi: 0,
            driver_version: String::new(),
            node_desc: node_desc(profile),
            host_endianness: HostEndianness::ZERO,
            health_counter: 0,
            health_syndrome: 0,
        }
    }

    /// The init segment as it reads at `now`.
    pub fn init_segment(&self, profile: &Profile, now: Instant) -> InitSegment {
        let mut segment = InitSegment::ZERO;
        let (major, minor, subminor) = profile.fw_rev;
        let ticks = self.internal_timer(profile, now);
        segment
            .w()
            .fw_rev_major(major)
            .fw_rev_minor(minor)
            .fw_rev_subminor(subminor)
            .cmd_interface_rev(COMMAND_INTERFACE)
            .cmdq_phy_addr_63_32((self.queue.address >> 32) as u32)
            .cmdq_phy_addr_31_12(self.queue.address as u32 >> 12)
            .nic_interface(self.nic_interface as u8)
            .log_cmdq_size(queue::LOG_SIZE)
            .log_cmdq_stride(queue::LOG_STRIDE)
            .initializing(self.is_starting(now))
            .internal_timer_h((ticks >> 32) as u32)
            .internal_timer_l(ticks as u32)
            .health_counter(self.health_counter & 0xff_ffff);
        let mut health = *segment.health_buffer();
        health
            .w()
            .fw_version(u32::from(major) << 24 | u32::from(minor) << 16 | u32::from(subminor))
            .hw_id(profile.hw_id);
        if self.health_syndrome != 0 {
            let words: [Be32; 6] = std::array::from_fn(|i| Be32::new(0xdead_0000 + i as u32));
            let syndrome = HealthSyndrome::from_number(u32::from(self.health_syndrome));
            // Heat is news; the others are an end, and firmware asks for a reset.
            let fatal = syndrome != HealthSyndrome::HighTemperature;
            health.w().synd(syndrome).assert_var(&words).valid(true).severity(2).rfr(fatal);
        }
        segment.w().health_buffer(&health);
        segment
    }

    /// The internal timer: ticks of `device_frequency_khz` since power-on.
    pub fn internal_timer(&self, profile: &Profile, now: Instant) -> u64 {
        let nanos = now.saturating_duration_since(self.started).as_nanos();
        (nanos * u128::from(profile.frequency_khz()) / 1_000_000) as u64
    }

    /// Whether atomics work on little-endian numbers in memory: only where the driver has chosen the host's byte order.
    pub(crate) fn atomics_little_endian(&self) -> bool {
        const HOST_ORDER: u8 = 1;
        let host_is_little = Layout::as_bytes(&self.host_endianness).iter().all(|byte| *byte == 0);
        self.caps.atomic().atomic_req_8B_endianness_mode() == HOST_ORDER && host_is_little
    }

    /// Pages of client memory that firmware holds.
    pub fn pages_held(&self) -> u64 {
        self.pages.held()
    }

    /// Where the function is between power-on and use.
    pub fn state(&self) -> HcaState {
        self.state
    }

    /// Commands answered since reset.
    pub fn commands_answered(&self) -> u64 {
        self.queue.answered
    }

    /// Commands fetched and not answered yet.
    pub fn commands_under_way(&self) -> usize {
        self.queue.under_way()
    }

    /// What the driver said of itself by `SET_DRIVER_VERSION`.
    pub fn driver_version(&self) -> &str {
        &self.driver_version
    }

    /// The capabilities in force.
    pub fn capabilities(&self) -> &Capabilities {
        &self.caps
    }

    fn is_starting(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.started) < START_UP
    }
}

/// The node's name until a driver sets it: the profile's, padded with zeros.
fn node_desc(profile: &Profile) -> [u8; 64] {
    let mut desc = [0; 64];
    let name = format!("{} (software)", profile.name);
    desc.iter_mut().zip(name.bytes()).for_each(|(place, byte)| *place = byte);
    desc
}

/// The command doorbell was rung for these slots, one bit each.
pub fn ring(f: &mut Function, slots: u32) {
    if f.firmware.is_starting(f.now) {
        f.strict.report("command doorbell while firmware starts", || format!("slots {slots:#x}"));
        return;
    }
    if f.firmware.nic_interface == DISABLED {
        return;
    }
    queue::ring(f, slots);
}

/// A write of one dword of the init segment, in host order of the big-endian value.
pub fn write_register(f: &mut Function, offset: u64, value: u32) {
    let firmware = &mut f.firmware;
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
            f.firmware.nic_interface = DISABLED;
        }
        DISABLED => {
            let (started, address) = (f.firmware.started, f.firmware.queue.address);
            forget_driver(f);
            (f.firmware.started, f.firmware.queue.address) = (started, address);
            f.firmware.nic_interface = DISABLED;
        }
        _ => f.firmware.nic_interface = wanted & 3,
    }
}

/// Off, on the driver's word and all at once: it takes every page back without asking, and may begin again.
///
/// Linux does so when it gives the function up: no object destroyed, no page given back by a command. So none of it is a
/// violation, and nothing of it may meet what comes next: objects, pages, commands under way, frames, doorbells.
fn forget_driver(f: &mut Function) {
    engine::reset(f);
    f.port.clear();
    f.bar.reset();
    reset(f);
}

/// One turn: late replies, page requests, health counter, timers. True if anything was done.
pub fn tick(f: &mut Function) -> bool {
    let firmware = &mut f.firmware;
    firmware.health_syndrome = f.faults.health_syndrome().unwrap_or(0);
    if !f.faults.health_counter_stopped() {
        let periods = f.now.saturating_duration_since(firmware.started).as_millis() / HEALTH_PERIOD.as_millis();
        firmware.health_counter = periods as u32;
    }
    if firmware.state == HcaState::Initialized
        && let Some(pages) = f.faults.page_request()
    {
        pages::request(f, pages);
    }
    queue::tick(f)
}

/// Function level reset: everything as after power-on.
pub fn reset(f: &mut Function) {
    f.firmware = Firmware::new(&f.profile);
    f.firmware.started = f.now;
    f.objects = Objects::new(f.index, &f.profile);
    f.port.restore();
}

/// The first `INIT_SEGMENT_LEN` bytes of BAR 0 are the init segment.
pub const INIT_SEGMENT_LEN: u64 = InitSegment::SIZE as u64;
