//! Profile of a card: identity, limits and capability pages. Firmware answers capability queries from it.
//!
//! The capability pages are data: every announced capability is implemented. A capability that is missing here is not
//! implemented by the model, even if the real card has it.
//!
//! So the profiles differ only in what the model implements: identity, clock, number of queue pairs. The numbers are
//! from published `ibv_devinfo -v` output of a ConnectX-5 (firmware 16.31) and a ConnectX-6 Dx. The real-time clock is
//! switched off in all three, as on cards that leave the factory: see [`Profile::with_real_time_clock`].

mod pages;

use mlx5_prm::caps::{
    AtomicCaps, CmdHcaCap, CmdHcaCap2, DeviceMemCap, FlowTableNicCap, OdpCap, PerProtocolNetworkingOffloadCaps, QosCap,
    RoceCap, TimestampCap,
};

#[cfg(test)]
pub(crate) use pages::odp_scheme;
use pages::{
    LOG_BAR_SIZE, atomic, current, device_memory, ethernet, flow_table, general, general_2, metering, odp,
    odp_after_enable, qos, qos_with_meters, roce, with_meters,
};
pub(crate) use pages::{MASKED_COMPARE_SWAP, MASKED_FETCH_ADD, UCTX_RAW_TX, flex_parser};

/// Profile of a card.
#[derive(Debug, Clone)]
pub struct Profile {
    /// Name, such as `connectx5`.
    pub name: &'static str,
    /// PCI device id.
    pub device_id: u16,
    /// PCI subsystem id.
    pub subsystem_id: u16,
    /// log2 of the size of BAR 0 in bytes.
    pub log_bar_size: u32,
    /// Number of MSI-X vectors.
    pub msix_vectors: u16,
    /// Firmware version: major, minor, subminor.
    pub fw_rev: (u16, u16, u16),
    /// `hw_id` of the health buffer.
    pub hw_id: u32,
    /// `vsd_contd_psid` of `QUERY_ADAPTER`: the board's PSID.
    pub psid: &'static str,
    /// MAC of function 0; each further function's is one higher.
    pub base_mac: [u8; 6],
    /// Whether its functions are those of a processor on the card itself: their driver gives pages in that name.
    pub embedded_cpu: bool,
    /// Firmware pages.
    pub pages: PageNeeds,
    /// General device capabilities, maximum.
    pub general_max: CmdHcaCap,
    /// General device capabilities after `ENABLE_HCA`.
    pub general_current: CmdHcaCap,
    /// RoCE capabilities, maximum.
    pub roce_max: RoceCap,
    /// RoCE capabilities after `ENABLE_HCA`.
    pub roce_current: RoceCap,
    /// Atomic capabilities, maximum.
    pub atomic_max: AtomicCaps,
    /// Atomic capabilities after `ENABLE_HCA`.
    pub atomic_current: AtomicCaps,
    /// On-demand paging capabilities, maximum.
    pub odp_max: OdpCap,
    /// On-demand paging capabilities after `ENABLE_HCA`.
    pub odp_current: OdpCap,
    /// Ethernet offload capabilities.
    pub ethernet: PerProtocolNetworkingOffloadCaps,
    /// Flow table capabilities.
    pub flow_table: FlowTableNicCap,
    /// Quality of service capabilities: rate limits.
    pub qos: QosCap,
    /// General device capabilities, second page.
    pub general_2: CmdHcaCap2,
    /// Device memory. UAR pages end where it begins.
    pub device_memory: DeviceMemCap,
}

/// How many pages of 4096 bytes firmware requests from its driver, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageNeeds {
    /// Boot pages: needed before most commands.
    pub boot: u32,
    /// Init pages: needed before `INIT_HCA`.
    pub init: u32,
    /// Of these, pages for contexts; when they are full, firmware requests more.
    pub contexts: u32,
    /// Pages of one request at run time.
    pub batch: u32,
}

impl Profile {
    /// Names that [`by_name`](Self::by_name) knows.
    pub const NAMES: [&'static str; 3] = ["connectx5", "connectx6dx", "connectx7"];

    /// A ConnectX-5.
    pub fn connectx5() -> Self {
        let general_max = general(18, 156_250);
        Profile {
            name: "connectx5",
            device_id: 0x1017,
            subsystem_id: 0x0006,
            log_bar_size: LOG_BAR_SIZE,
            msix_vectors: 64,
            fw_rev: (16, 35, 4030),
            hw_id: 0x20d,
            psid: "SIM0000000005",
            base_mac: [0x02, 0x00, 0xc5, 0x00, 0x00, 0x01],
            embedded_cpu: false,
            pages: PageNeeds { boot: 8, init: 512, contexts: 128, batch: 64 },
            general_current: current(general_max),
            general_max,
            roce_max: roce(true),
            roce_current: roce(false),
            atomic_max: atomic(1),
            atomic_current: atomic(0),
            odp_max: OdpCap::ZERO,
            odp_current: OdpCap::ZERO,
            ethernet: ethernet(),
            flow_table: flow_table(),
            qos: qos(),
            general_2: general_2(),
            device_memory: device_memory(),
        }
    }

    /// A ConnectX-6 Dx, with flow meters.
    pub fn connectx6dx() -> Self {
        let general_max = with_meters(general(17, 1_000_000));
        Profile {
            name: "connectx6dx",
            device_id: 0x101d,
            subsystem_id: 0x0001,
            fw_rev: (22, 41, 1000),
            hw_id: 0x212,
            psid: "SIM0000000060",
            general_current: current(general_max),
            general_max,
            flow_table: metering(flow_table()),
            qos: qos_with_meters(),
            ..Self::connectx5()
        }
    }

    /// A ConnectX-7, with on-demand paging, streams of DC initiators, and sends that wait for a time.
    pub fn connectx7() -> Self {
        let mut general_max = Self::connectx6dx().general_max;
        general_max.w().pg(true).umr_extended_translation_offset(true).fixed_buffer_size(true).null_mkey(true);
        general_max.w().wait_on_time(true);
        general_max.w().qpc_extension(true).log_max_dci_stream_channels(6).log_max_dci_errored_streams(6);
        Profile {
            name: "connectx7",
            device_id: 0x1021,
            subsystem_id: 0x0026,
            fw_rev: (28, 41, 1000),
            hw_id: 0x218,
            psid: "SIM0000000007",
            general_current: current(general_max),
            general_max,
            odp_max: odp(),
            odp_current: odp_after_enable(),
            ..Self::connectx6dx()
        }
    }

    /// The card with its real-time clock switched on, as firmware's configuration does: completions bear either time.
    #[must_use]
    pub fn with_real_time_clock(mut self) -> Self {
        let both = TimestampCap::Both.number() as u8;
        for general in [&mut self.general_max, &mut self.general_current] {
            general.w().sq_ts_format(both).rq_ts_format(both).access_register_user(true);
        }
        for roce in [&mut self.roce_max, &mut self.roce_current] {
            roce.w().qp_ts_format(both);
        }
        self
    }

    /// The profile with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            "connectx5" => Some(Self::connectx5()),
            "connectx6dx" => Some(Self::connectx6dx()),
            "connectx7" => Some(Self::connectx7()),
            _ => None,
        }
    }

    /// Permanent MAC of function `index`.
    pub fn mac(&self, index: usize) -> [u8; 6] {
        let base = self.base_mac.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
        let bytes = base.wrapping_add(index as u64).to_be_bytes();
        [bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]]
    }

    /// EUI-64 of function `index`'s MAC: its node GUID and port GUID.
    pub fn guid(&self, index: usize) -> u64 {
        let [a, b, c, d, e, f] = self.mac(index);
        u64::from_be_bytes([a, b, c, 0xff, 0xfe, d, e, f])
    }

    /// Frequency of the internal timer in kHz.
    pub fn frequency_khz(&self) -> u64 {
        u64::from(self.general_max.device_frequency_khz())
    }
}

impl Default for Profile {
    fn default() -> Self {
        Self::connectx5()
    }
}
