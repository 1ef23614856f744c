//! Which card the function is: identity, limits and capability pages. Firmware answers capability queries from it.
//!
//! The capability pages are data: what a function announces, it has. A capability that is missing here is one that the
//! model has not got, whatever the silicon of that name can do.
//!
//! So the cards differ here where they differ in what the model implements: identity, clock, how many queue pairs. The
//! figures are those of published `ibv_devinfo -v` of a ConnectX-5 (firmware 16.31) and a ConnectX-6 Dx. In all else
//! that sets the silicon apart (tunnels, real-time clock) the three are masked down to the same.

mod pages;

use mlx5_prm::caps::{AtomicCaps, CmdHcaCap, DeviceMemCap, FlowTableNicCap, PerProtocolNetworkingOffloadCaps, RoceCap};

pub(crate) use pages::UCTX_RAW_TX;
use pages::{LOG_BAR_SIZE, atomic, current, device_memory, ethernet, flow_table, general, roce};

/// A card.
#[derive(Debug, Clone)]
pub struct Profile {
    /// Name, such as `connectx5`.
    pub name: &'static str,
    /// PCI device id.
    pub device_id: u16,
    /// PCI subsystem id.
    pub subsystem_id: u16,
    /// log2 of BAR 0's bytes.
    pub log_bar_size: u32,
    /// MSI-X vectors.
    pub msix_vectors: u16,
    /// Firmware version: major, minor, subminor.
    pub fw_rev: (u16, u16, u16),
    /// `hw_id` of the health buffer.
    pub hw_id: u32,
    /// `vsd_contd_psid` of `QUERY_ADAPTER`: the board.
    pub psid: &'static str,
    /// MAC of the card's function 0; each further function's is one higher.
    pub base_mac: [u8; 6],
    /// How many pages firmware wants, and when.
    pub pages: PageNeeds,
    /// General device capabilities: the most that can be set.
    pub general_max: CmdHcaCap,
    /// General device capabilities after `ENABLE_HCA`.
    pub general_current: CmdHcaCap,
    /// RoCE capabilities: the most that can be set.
    pub roce_max: RoceCap,
    /// RoCE capabilities after `ENABLE_HCA`.
    pub roce_current: RoceCap,
    /// Atomic capabilities: the most that can be set.
    pub atomic_max: AtomicCaps,
    /// Atomic capabilities after `ENABLE_HCA`.
    pub atomic_current: AtomicCaps,
    /// Ethernet offloads.
    pub ethernet: PerProtocolNetworkingOffloadCaps,
    /// Flow tables.
    pub flow_table: FlowTableNicCap,
    /// Memory on the card. UAR pages end where it begins.
    pub device_memory: DeviceMemCap,
}

/// How many pages of 4096 bytes firmware wants from its driver, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageNeeds {
    /// Before it answers anything but the first commands.
    pub boot: u32,
    /// Before `INIT_HCA`.
    pub init: u32,
    /// How many of those hold contexts; when they are full, it asks for more.
    pub contexts: u32,
    /// How many it asks for at run time, in one request.
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
            pages: PageNeeds { boot: 8, init: 512, contexts: 128, batch: 64 },
            general_current: current(general_max),
            general_max,
            roce_max: roce(true),
            roce_current: roce(false),
            atomic_max: atomic(1),
            atomic_current: atomic(0),
            ethernet: ethernet(),
            flow_table: flow_table(),
            device_memory: device_memory(),
        }
    }

    /// A ConnectX-6 Dx.
    pub fn connectx6dx() -> Self {
        let general_max = general(17, 1_000_000);
        Profile {
            name: "connectx6dx",
            device_id: 0x101d,
            subsystem_id: 0x0001,
            fw_rev: (22, 41, 1000),
            hw_id: 0x212,
            psid: "SIM0000000060",
            general_current: current(general_max),
            general_max,
            ..Self::connectx5()
        }
    }

    /// A ConnectX-7.
    pub fn connectx7() -> Self {
        Profile {
            name: "connectx7",
            device_id: 0x1021,
            subsystem_id: 0x0026,
            fw_rev: (28, 41, 1000),
            hw_id: 0x218,
            psid: "SIM0000000007",
            ..Self::connectx6dx()
        }
    }

    /// The profile of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            "connectx5" => Some(Self::connectx5()),
            "connectx6dx" => Some(Self::connectx6dx()),
            "connectx7" => Some(Self::connectx7()),
            _ => None,
        }
    }

    /// The permanent MAC of function `index`.
    pub fn mac(&self, index: usize) -> [u8; 6] {
        let base = self.base_mac.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
        let bytes = base.wrapping_add(index as u64).to_be_bytes();
        [bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]]
    }

    /// The EUI-64 made of function `index`'s MAC: its node and port GUID.
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
