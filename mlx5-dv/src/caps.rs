//! A card's capabilities: the raw pages, and the fields that the driver uses.

pub use mlx5_prm::caps::CapPage;
use mlx5_prm::caps::{AtomicCaps, CmdHcaCap, CmdHcaCap2, OdpCap, PortType, RoceCap};
use mlx5_prm::cmd::CmdStatus;
use mlx5_prm::ctx::AtomicMode;
use mlx5_prm::layout::Layout;
use mlx5_prm::limits::{self, Card, number_at};

use crate::error::{CommandError, CommandErrorKind, Error};

/// `atomic_operations`: compare and swap, fetch and add.
const ATOMICS_OF_VERBS: u16 = 0b11;
/// `atomic_operations`: masked compare and swap, masked fetch and add.
const MASKED_ATOMICS: u16 = 0b1100;
/// `atomic_size_qp`: bit n means 2^n bytes.
const EIGHT_BYTES: u16 = 1 << 3;
/// `atomic_req_8B_endianness_mode`: operands are in the host's byte order; otherwise big-endian.
pub(crate) const HOST_ENDIANNESS: u8 = 1;

/// `qp_ts_format` and its like: completions bear real time alone.
pub(crate) const REAL_TIME_ONLY: u8 = 1;
/// `qp_ts_format` and its like: completions bear the time of the free-running clock alone.
pub(crate) const FREE_RUNNING_ONLY: u8 = 0;

/// One capability page: maximum and current values.
#[derive(Debug, Clone)]
pub struct RawPage {
    /// Which page.
    pub page: CapPage,
    /// 4096 bytes of maximum capabilities.
    pub max: Vec<u8>,
    /// 4096 bytes of current capabilities.
    pub current: Vec<u8>,
}

/// The current capabilities that the driver uses. Names are the PRM's.
#[derive(Debug, Clone, Default)]
pub struct Caps {
    /// Firmware version: major, minor, subminor.
    pub fw_version: (u16, u16, u16),
    /// Number of this function on the card.
    pub vhca_id: u16,
    /// Log of the maximum number of queue pairs.
    pub log_max_qp: u8,
    /// Log of the maximum number of WQEs per queue.
    pub log_max_qp_sz: u8,
    /// Log of the maximum number of completion queues.
    pub log_max_cq: u8,
    /// Log of the maximum number of CQEs per queue.
    pub log_max_cq_sz: u8,
    /// Log of the maximum number of EQEs per queue.
    pub log_max_eq_sz: u8,
    /// Log of the maximum number of memory keys.
    pub log_max_mkey: u8,
    /// Log of the largest memory region, in bytes.
    pub log_max_mrw_sz: u8,
    /// Log of the maximum number of protection domains.
    pub log_max_pd: u8,
    /// Log of the largest message, in bytes.
    pub log_max_msg: u8,
    /// Bytes of the largest send WQE.
    pub max_wqe_sz_sq: u16,
    /// Bytes of the largest receive WQE.
    pub max_wqe_sz_rq: u16,
    /// Log of the maximum number of outstanding RDMA READs and atomics as requester.
    pub log_max_ra_req_qp: u8,
    /// Log of the maximum number of outstanding RDMA READs and atomics as responder.
    pub log_max_ra_res_qp: u8,
    /// Whether UAR pages have BlueFlame registers.
    pub bf: bool,
    /// Log of the size of a BlueFlame register (two buffers), in bytes.
    pub log_bf_reg_size: u8,
    /// CQE version: with 1, a queue pair's CQEs carry the user index.
    pub cqe_version: u8,
    /// Log of the system page size, as the driver tells firmware.
    pub log_uar_page_sz: u16,
    /// Whether UAR pages may have 4 KiB with any host page size.
    pub uar_4k: bool,
    /// Number of ports.
    pub num_ports: u8,
    /// 0: InfiniBand, 1: Ethernet.
    pub port_type: u8,
    /// Whether RoCE is supported.
    pub roce: bool,
    /// Number of entries of the RoCE address table (GIDs).
    pub roce_address_table_size: u16,
    /// Supported RoCE versions: bit 0 is version 1, bit 2 is version 2.
    pub roce_version: u8,
    /// Whether umems can be created without a user context.
    pub umem_uid_0: bool,
    /// Log of the maximum number of umems.
    pub log_max_umem: u8,
    /// Local CA ACK delay: exponent of 4.096 us.
    pub local_ca_ack_delay: u8,
    /// Whether any atomics are supported. [`check_atomics`](Self::check_atomics) checks for those of verbs.
    pub atomic: bool,
    /// Whether SET_DRIVER_VERSION is supported.
    pub driver_version: bool,
    /// Whether QPs stay usable while RoCE is disabled.
    pub fl_rc_qp_when_roce_disabled: bool,
    /// All pages, for tools.
    pub pages: Vec<RawPage>,
}

impl Caps {
    /// Parses the pages that firmware reported.
    pub fn from_pages(pages: Vec<RawPage>, fw_version: (u16, u16, u16)) -> Result<Self, Error> {
        let mut caps = Caps { fw_version, pages, ..Caps::default() };
        let general: CmdHcaCap = caps
            .current(CapPage::General)
            .ok_or_else(|| Error::response("the number of general capability pages", 0, 1..=1, ""))?;
        caps.vhca_id = general.vhca_id();
        caps.log_max_qp = general.log_max_qp();
        caps.log_max_qp_sz = general.log_max_qp_sz();
        caps.log_max_cq = general.log_max_cq();
        caps.log_max_cq_sz = general.log_max_cq_sz();
        caps.log_max_eq_sz = general.log_max_eq_sz();
        caps.log_max_mkey = general.log_max_mkey();
        caps.log_max_mrw_sz = general.log_max_mrw_sz();
        caps.log_max_pd = general.log_max_pd();
        caps.log_max_msg = general.log_max_msg();
        caps.max_wqe_sz_sq = general.max_wqe_sz_sq();
        caps.max_wqe_sz_rq = general.max_wqe_sz_rq();
        caps.log_max_ra_req_qp = general.log_max_ra_req_qp();
        caps.log_max_ra_res_qp = general.log_max_ra_res_qp();
        caps.bf = general.bf();
        caps.log_bf_reg_size = general.log_bf_reg_size();
        caps.cqe_version = general.cqe_version();
        caps.log_uar_page_sz = general.log_uar_page_sz();
        caps.uar_4k = general.uar_4k();
        caps.num_ports = general.num_ports();
        caps.port_type = general.port_type();
        caps.roce = general.roce();
        caps.umem_uid_0 = general.umem_uid_0();
        caps.log_max_umem = general.log_max_umem();
        caps.local_ca_ack_delay = general.local_ca_ack_delay();
        caps.atomic = general.atomic();
        caps.driver_version = general.driver_version();
        caps.fl_rc_qp_when_roce_disabled = general.fl_rc_qp_when_roce_disabled();
        if let Some(roce) = caps.current::<RoceCap>(CapPage::Roce) {
            caps.roce_address_table_size = roce.roce_address_table_size();
            caps.roce_version = roce.roce_version();
        }
        Ok(caps)
    }

    /// Whether the ports are InfiniBand's: addressed by LIDs, with neither MAC addresses nor RoCE.
    pub fn is_infiniband(&self) -> bool {
        PortType::from_number(self.port_type.into()) == PortType::Ib
    }

    /// Number of P_Keys that a port has: a port of Ethernet has the default one alone, that of InfiniBand as
    /// `pkey_table_size` says.
    pub fn pkey_table_len(&self) -> u32 {
        let general: CmdHcaCap = self.current(CapPage::General).unwrap_or_default();
        if self.is_infiniband() { 128u32.checked_shl(general.pkey_table_size().into()).unwrap_or(u32::MAX) } else { 1 }
    }

    /// A page of current capabilities as layout `L`; `None` if firmware did not report the page.
    pub fn current<L: Layout>(&self, page: CapPage) -> Option<L> {
        L::read(&self.pages.iter().find(|raw| raw.page == page)?.current)
    }

    /// A page of maximum capabilities as layout `L`; `None` if firmware did not report the page.
    pub fn max<L: Layout>(&self, page: CapPage) -> Option<L> {
        L::read(&self.pages.iter().find(|raw| raw.page == page)?.max)
    }

    /// A current capability by its PRM name (`outer.inner` for nested layouts); `None` if firmware did not report the
    /// page.
    pub fn number(&self, page: CapPage, name: &str) -> Option<u64> {
        let raw = self.pages.iter().find(|raw| raw.page == page)?;
        number_at(page.layout()?, &raw.current, name)
    }

    /// `Ok` if the card supports the atomics of verbs: 8-byte compare and swap and fetch and add. In which order it
    /// writes what they found: [`atomic_order`](Self::atomic_order).
    ///
    /// # Errors
    /// [`Error::Unsupported`] names the missing capability.
    pub fn check_atomics(&self) -> Result<(), Error> {
        let page: AtomicCaps = self.current(CapPage::Atomic).unwrap_or(AtomicCaps::ZERO);
        let lacking = [
            ("atomic", !self.atomic),
            ("atomic_operations", page.atomic_operations() & ATOMICS_OF_VERBS != ATOMICS_OF_VERBS),
            ("atomic_size_qp", page.atomic_size_qp() & EIGHT_BYTES == 0),
        ];
        match lacking.into_iter().find(|(_, lacks)| *lacks) {
            Some((capability, _)) => Err(Error::Unsupported { what: "atomics of eight bytes".into(), capability }),
            None => Ok(()),
        }
    }

    /// In which order the card writes what atomics of eight bytes found. This host's, wherever the card has it: the
    /// driver of a function asks for it, and so does Linux, whose verbs offer no atomics on other cards.
    pub fn atomic_order(&self) -> AtomicOrder {
        let page: AtomicCaps = self.current(CapPage::Atomic).unwrap_or(AtomicCaps::ZERO);
        match page.atomic_req_8B_endianness_mode() {
            HOST_ENDIANNESS => AtomicOrder::Host,
            _ => AtomicOrder::BigEndian,
        }
    }

    /// `Ok` if memory on demand works for queue pairs of this process, on a function that the kernel has: Linux answers
    /// page faults of memory for all of them, and faults of a transport only for queue pairs of its own.
    ///
    /// # Errors
    /// [`Error::Unsupported`] names the missing capability.
    pub fn check_on_demand(&self) -> Result<(), Error> {
        let general: CmdHcaCap = self.current(CapPage::General).unwrap_or_default();
        let odp: OdpCap = self.current(CapPage::Odp).unwrap_or_default();
        let lacking = [("mem_page_fault", !odp.mem_page_fault()), ("pg", !general.pg())];
        let found = lacking.into_iter().find(|(_, lacks)| *lacks);
        found.map_or(Ok(()), |(capability, _)| Err(Error::Unsupported { what: "memory on demand".into(), capability }))
    }

    /// `Ok` if all memory can be one region on demand: Linux makes a key of keys of one size for it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] names the missing capability.
    pub fn check_on_demand_implicit(&self) -> Result<(), Error> {
        self.check_on_demand()?;
        let general: CmdHcaCap = self.current(CapPage::General).unwrap_or_default();
        let lacking = [
            ("fixed_buffer_size", !general.fixed_buffer_size()),
            ("null_mkey", !general.null_mkey()),
            ("umr_extended_translation_offset", !general.umr_extended_translation_offset()),
            ("umr_indirect_mkey_disabled", general.umr_indirect_mkey_disabled()),
        ];
        let what = "a region of all addresses".into();
        match lacking.into_iter().find(|(_, lacks)| *lacks) {
            Some((capability, _)) => Err(Error::Unsupported { what, capability }),
            None => Ok(()),
        }
    }

    /// `Ok` if the card supports masked atomics of `bytes` bytes, on both ends of a connection. Linux does not offer
    /// them, but lets queue pairs take them.
    ///
    /// # Errors
    /// [`Error::Unsupported`] names the missing capability.
    pub fn check_masked_atomics(&self, bytes: usize) -> Result<(), Error> {
        self.check_atomics()?;
        let page: AtomicCaps = self.current(CapPage::Atomic).unwrap_or(AtomicCaps::ZERO);
        let lacking = [
            ("atomic_operations", page.atomic_operations() & MASKED_ATOMICS != MASKED_ATOMICS),
            ("atomic_size_qp", !bytes.is_power_of_two() || usize::from(self.masked_atomics()) & bytes == 0),
        ];
        match lacking.into_iter().find(|(_, lacks)| *lacks) {
            Some((capability, _)) => {
                Err(Error::Unsupported { what: format!("masked atomics of {bytes} bytes"), capability })
            }
            None => Ok(()),
        }
    }

    /// The bytes of the masked atomics that the card supports, added up.
    pub(crate) fn masked_atomics(&self) -> u16 {
        let page: AtomicCaps = self.current(CapPage::Atomic).unwrap_or(AtomicCaps::ZERO);
        let all = page.atomic_operations() & MASKED_ATOMICS == MASKED_ATOMICS && self.check_atomics().is_ok();
        // Bit n means 2^n bytes, of 4 to 32; so the mask of logs is turned into one of bytes.
        let sizes = (2..=5).filter(|log| page.atomic_size_qp() >> log & 1 != 0).map(|log| 1u16 << log);
        if all { sizes.sum() } else { 0 }
    }

    /// `atomic_mode` of a queue pair that takes atomics, as Linux chooses it: up to the longest masked ones.
    pub(crate) fn atomic_mode(&self) -> AtomicMode {
        match self.masked_atomics() {
            0 => AtomicMode::IbSpec,
            sizes => AtomicMode::from_number(sizes.ilog2().max(AtomicMode::UpTo8B.number())),
        }
    }

    /// The second general page, if the card has one.
    pub fn general_2(&self) -> Option<CmdHcaCap2> {
        self.current(CapPage::General2)
    }
}

/// The order of the bytes of what an atomic of eight bytes found, as the card writes it. PRM
/// `atomic_req_8B_endianness_mode`. The numbers in remote memory are always in the order of that host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AtomicOrder {
    /// That of this host.
    Host,
    /// Big-endian: all that some cards have.
    BigEndian,
}

impl AtomicOrder {
    /// The number that an atomic found, from the element that it was written to.
    ///
    /// ```
    /// use mlx5_dv::AtomicOrder;
    ///
    /// assert_eq!(AtomicOrder::Host.number(7u64.to_ne_bytes()), 7);
    /// assert_eq!(AtomicOrder::BigEndian.number([0, 0, 0, 0, 0, 0, 0, 7]), 7);
    /// ```
    pub fn number(self, found: [u8; 8]) -> u64 {
        match self {
            AtomicOrder::Host => u64::from_ne_bytes(found),
            AtomicOrder::BigEndian => u64::from_be_bytes(found),
        }
    }
}

impl Card for Caps {
    fn current(&self, page: CapPage, name: &str) -> Option<u64> {
        self.number(page, name)
    }

    fn max(&self, page: CapPage, name: &str) -> Option<u64> {
        let raw = self.pages.iter().find(|raw| raw.page == page)?;
        number_at(page.layout()?, &raw.max, name)
    }
}

impl CommandError {
    /// Adds the reasons: the fields of `input` that exceed the card's capabilities, if firmware refused the command; or
    /// how many objects there may be, if nothing else is exceeded.
    pub(crate) fn because(mut self, input: &[u8], caps: &Caps) -> Self {
        if let CommandErrorKind::Status { status, reason, .. } = &mut self.kind {
            let broken = limits::check(input, caps);
            *reason = broken.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            let is_unexplained = *status == CmdStatus::ExceedsLimit && reason.is_empty();
            if let Some(count) = limits::count_of(input).filter(|_| is_unexplained) {
                *reason = format!("more objects than {count}, perhaps");
            }
        }
        self
    }
}
