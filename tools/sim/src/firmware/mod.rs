//! Firmware: command queue, pages, health, the state between ENABLE_HCA and DISABLE_HCA.

use std::time::Instant;

use mlx5_prm::init_seg::InitSegment;

use crate::function::Function;
use crate::profile::Profile;

/// What firmware keeps for one function.
#[derive(Debug)]
pub struct Firmware {}

impl Firmware {
    /// Firmware just after power-on.
    pub fn new(_profile: &Profile) -> Self {
        Firmware {}
    }

    /// The init segment as it reads at `now`.
    pub fn init_segment(&self, _profile: &Profile, _now: Instant) -> InitSegment {
        InitSegment::default()
    }

    /// Pages of client memory that firmware holds.
    pub fn pages_held(&self) -> u64 {
        0
    }
}

/// The command doorbell was rung for these slots, one bit each.
pub fn ring(_f: &mut Function, _slots: u32) {}

/// A write of one dword of the init segment, in host order of the big-endian value.
pub fn write_register(f: &mut Function, offset: u64, value: u32) {
    if offset == 0x18 {
        ring(f, value);
    }
}

/// One turn: late replies, page requests, health counter, timers. True if anything was done.
pub fn tick(_f: &mut Function) -> bool {
    false
}

/// Function level reset: everything as after power-on.
pub fn reset(f: &mut Function) {
    f.firmware = Firmware::new(&f.profile);
    f.objects = crate::objects::Objects::new(f.index, &f.profile);
}
