//! Firmware state of one function: bring-up state, initialization segment, health.

use std::time::{Duration, Instant};

use mlx5_prm::init_seg::{HealthSyndrome, InitSegment};
use mlx5_prm::layout::{Be32, Layout};
use mlx5_prm::reg::HostEndianness;

use super::caps::Capabilities;
use super::command_queue::{self, CommandQueue};
use super::pages::Pages;
use super::real_time::{self, RealTime};
use crate::profile::Profile;

/// How long `initializing` is 1 after power-on or reset. PRM "Initialization Segment".
const START_UP: Duration = Duration::from_millis(3);
/// `cmd_interface_rev`.
const COMMAND_INTERFACE: u16 = 5;
/// `nic_interface`: full driver.
const FULL_DRIVER: u32 = 0;

/// Bring-up state of the function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HcaState {
    /// Before `ENABLE_HCA`.
    Disabled,
    /// Between `ENABLE_HCA` and `INIT_HCA`.
    Enabled,
    /// After `INIT_HCA`.
    Initialized,
}

/// Firmware state of one function.
#[derive(Debug)]
pub struct Firmware {
    pub(crate) started: Instant,
    pub(crate) state: HcaState,
    pub(crate) queue: CommandQueue,
    pub(crate) pages: Pages,
    pub(crate) caps: Capabilities,
    /// PRM `nic_interface`, three bits.
    pub(crate) nic_interface: u32,
    pub(crate) current_issi: u16,
    pub(crate) driver_version: String,
    pub(crate) node_desc: [u8; 64],
    pub(crate) host_endianness: HostEndianness,
    pub(crate) health_counter: u32,
    pub(crate) health_syndrome: u8,
    /// What has ended the function's work, until a reset.
    pub(crate) fatal: HealthSyndrome,
    pub(crate) real_time: RealTime,
}

impl Firmware {
    /// Firmware powered on at `now`.
    pub fn new(profile: &Profile, now: Instant) -> Self {
        Firmware {
            started: now,
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
            fatal: HealthSyndrome::None,
            real_time: RealTime::new(now),
        }
    }

    /// The initialization segment at time `now`. PRM "Initialization Segment".
    pub fn init_segment(&self, profile: &Profile, now: Instant) -> InitSegment {
        let mut segment = InitSegment::ZERO;
        segment.w().embedded_cpu(profile.embedded_cpu);
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
            .log_cmdq_size(command_queue::LOG_SIZE)
            .log_cmdq_stride(command_queue::LOG_STRIDE)
            .initializing(self.is_starting(now))
            .internal_timer_h((ticks >> 32) as u32)
            .internal_timer_l(ticks as u32)
            .health_counter(self.health_counter & 0xff_ffff);
        if real_time::is_announced(profile) {
            let time = self.real_time.at(now);
            segment.w().real_time_h((time >> 32) as u32).real_time_l(time as u32);
        }
        let mut health = *segment.health_buffer();
        health
            .w()
            .fw_version(u32::from(major) << 24 | u32::from(minor) << 16 | u32::from(subminor))
            .hw_id(profile.hw_id);
        if self.health_syndrome != 0 {
            let words: [Be32; 6] = std::array::from_fn(|i| Be32::new(0xdead_0000 + i as u32));
            let syndrome = HealthSyndrome::from_number(u32::from(self.health_syndrome));
            // High temperature is only a warning; the other syndromes are fatal, and request a reset. PRM "Health
            // Buffer".
            let fatal = syndrome != HealthSyndrome::HighTemperature;
            health.w().synd(syndrome).assert_var(&words).valid(true).severity(2).rfr(fatal);
        }
        segment.w().health_buffer(&health);
        segment
    }

    /// The internal timer: ticks of `device_frequency_khz` since power-on.
    pub fn internal_timer(&self, profile: &Profile, now: Instant) -> u64 {
        let khz = profile.frequency_khz();
        let since = now.saturating_duration_since(self.started);
        // Ticks of whole seconds are whole: no 128 bits are needed.
        since.as_secs().wrapping_mul(khz * 1000).wrapping_add(u64::from(since.subsec_nanos()) * khz / 1_000_000)
    }

    /// How long `ticks` of the internal timer take at least.
    pub(crate) fn time_of_ticks(&self, profile: &Profile, ticks: u64) -> Duration {
        const NANOS_OF_MILLISECOND: u128 = 1_000_000;
        let nanos = (u128::from(ticks) * NANOS_OF_MILLISECOND).div_ceil(profile.frequency_khz().into());
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Whether the host's numbers are little-endian, as its driver says.
    pub(crate) fn host_is_little_endian(&self) -> bool {
        Layout::as_bytes(&self.host_endianness).iter().all(|byte| *byte == 0)
    }

    /// Whether the responses to atomics of eight bytes are little-endian: only if the driver has chosen the order of
    /// such a host.
    pub(crate) fn atomics_little_endian(&self) -> bool {
        const HOST_ORDER: u8 = 1;
        self.caps.atomic().atomic_req_8B_endianness_mode() == HOST_ORDER && self.host_is_little_endian()
    }

    /// Pages of client memory that firmware holds.
    pub fn pages_held(&self) -> u64 {
        self.pages.held()
    }

    /// Bring-up state of the function.
    pub fn state(&self) -> HcaState {
        self.state
    }

    /// Commands answered since reset.
    pub fn commands_answered(&self) -> u64 {
        self.queue.answered
    }

    /// Pending commands.
    pub fn commands_under_way(&self) -> usize {
        self.queue.under_way()
    }

    /// The driver version given by `SET_DRIVER_VERSION`.
    pub fn driver_version(&self) -> &str {
        &self.driver_version
    }

    /// Current capabilities.
    pub fn capabilities(&self) -> &Capabilities {
        &self.caps
    }

    pub(crate) fn is_starting(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.started) < START_UP
    }
}

/// The default node description: the profile's name, padded with zeros.
fn node_desc(profile: &Profile) -> [u8; 64] {
    let mut desc = [0; 64];
    let name = format!("{} (software)", profile.name);
    desc.iter_mut().zip(name.bytes()).for_each(|(place, byte)| *place = byte);
    desc
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_internal_timer_counts_whole_ticks() {
        let (profile, start) = (Profile::default(), Instant::now());
        let firmware = Firmware::new(&profile, start);
        for nanos in [0, 1, 999, 1_000_000, 999_999_999, 1_000_000_001, 86_400_123_456_789, u64::from(u32::MAX) << 20] {
            let expected = u128::from(nanos) * u128::from(profile.frequency_khz()) / 1_000_000;
            let ticks = firmware.internal_timer(&profile, start + Duration::from_nanos(nanos));
            assert_eq!(u128::from(ticks), expected, "{nanos}");
        }
    }
}
