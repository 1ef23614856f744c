//! Config space: its bytes, and which bits software may write. PCI Local Bus 3.0, 6.1 and 6.2; PCI Express 3.0, 7.8.

use crate::profile::Profile;

/// Bytes of config space.
pub const CONFIG_SIZE: usize = 4096;

/// Offset of the MSI-X table in BAR 0.
pub const MSIX_TABLE: u64 = 0x2000;

/// Offset of the MSI-X pending bits in BAR 0.
pub const MSIX_PBA: u64 = 0x3000;

const VENDOR: u16 = 0x15b3;
const COMMAND: usize = 0x04;
const STATUS: usize = 0x06;
const CLASS: usize = 0x09;
const BAR0: usize = 0x10;
const SUBSYSTEM: usize = 0x2c;
const CAPABILITIES: usize = 0x34;
const INTERRUPT_LINE: usize = 0x3c;
const PM: usize = 0x40;
const EXPRESS: usize = 0x60;
const MSIX: usize = 0x9c;
const VENDOR_SPECIFIC: usize = 0xc0;

const COMMAND_MEMORY: u16 = 1 << 1;
const COMMAND_BUS_MASTER: u16 = 1 << 2;
const PM_CONTROL: usize = PM + 4;
/// Power state of the control word: 0 for D0, 3 for D3hot.
const PM_STATE: u16 = 3;
const DEVICE_CONTROL: usize = EXPRESS + 8;
const DEVICE_CONTROL_FLR: u16 = 1 << 15;

/// MSI-X message control: MSI-X enable.
pub(super) const MSIX_ENABLE: u16 = 1 << 15;
/// MSI-X message control: function mask.
pub(super) const MSIX_FUNCTION_MASK: u16 = 1 << 14;

/// Consequences of a config space write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Effects {
    /// A function level reset was requested.
    pub reset: bool,
}

/// The bytes of config space.
#[derive(Debug)]
pub(super) struct Config {
    bytes: Box<[u8; CONFIG_SIZE]>,
    /// Content after power-on.
    initial: Box<[u8; CONFIG_SIZE]>,
    /// Bits that software may write.
    writable: Box<[u8; CONFIG_SIZE]>,
    /// Bits cleared by writing 1.
    write_1_clears: Box<[u8; CONFIG_SIZE]>,
}

impl Config {
    pub(super) fn new(profile: &Profile) -> Self {
        let zero = || Box::new([0; CONFIG_SIZE]);
        let mut config = Config { bytes: zero(), initial: zero(), writable: zero(), write_1_clears: zero() };
        config.header(profile);
        config.power_management();
        config.express(profile);
        config.msix(profile);
        config.vendor_specific();
        config.initial = config.bytes.clone();
        config
    }

    fn header(&mut self, profile: &Profile) {
        self.put16(0x00, VENDOR, 0);
        self.put16(0x02, profile.device_id, 0);
        // Memory, bus master, parity error response, SERR, INTx disable. Memory is on: clients get a function as the
        // kernel's VFIO hands it out, enabled.
        self.put16(COMMAND, COMMAND_MEMORY, 0x0546);
        // Capability list; the error bits are cleared by writing 1.
        self.put16(STATUS, 1 << 4, 0);
        self.write_1_clears[STATUS..STATUS + 2].copy_from_slice(&0xf900u16.to_le_bytes());
        // Ethernet controller.
        self.bytes[CLASS..CLASS + 3].copy_from_slice(&[0x00, 0x00, 0x02]);
        // Cache line size.
        self.put16(0x0c, 0, 0x00ff);
        // A 64-bit prefetchable memory BAR: for sizing, only the address bits above the size can be set.
        let mask = !((1u64 << profile.log_bar_size) - 1);
        self.put32(BAR0, 0xc, mask as u32);
        self.put32(BAR0 + 4, 0, (mask >> 32) as u32);
        self.put16(SUBSYSTEM, VENDOR, 0);
        self.put16(SUBSYSTEM + 2, profile.subsystem_id, 0);
        self.bytes[CAPABILITIES] = EXPRESS as u8;
        // The interrupt line is scratch space for software; pin 0 means no INTx.
        self.put16(INTERRUPT_LINE, 0, 0x00ff);
    }

    fn express(&mut self, profile: &Profile) {
        self.capability(EXPRESS, 0x10, MSIX);
        // Version 2, endpoint.
        self.put16(EXPRESS + 2, 0x0002, 0);
        // Payloads up to 512 bytes, extended tags, role-based errors, function level reset.
        self.put32(EXPRESS + 4, 2 | 1 << 5 | 1 << 15 | 1 << 28, 0);
        // 128-byte payloads, 512-byte read requests, relaxed ordering, no snoop. The reset bit always reads as 0.
        self.put16(DEVICE_CONTROL, 0x2810, 0x7fff);
        self.write_1_clears[EXPRESS + 10] = 0x0f;
        let speed = link_speed(profile.device_id);
        let width = 16 << 4;
        self.put32(EXPRESS + 0xc, speed | width, 0);
        self.put16(EXPRESS + 0x10, 0, 0x01c8);
        self.put16(EXPRESS + 0x12, (speed | width) as u16, 0);
        // Completion timeouts of all ranges; they can be disabled.
        self.put32(EXPRESS + 0x24, 0x1f, 0);
        self.put16(EXPRESS + 0x28, 0, 0x001f);
        self.put32(EXPRESS + 0x2c, (1 << (speed + 1)) - 2, 0);
        self.put16(EXPRESS + 0x30, speed as u16, 0x000f);
    }

    fn msix(&mut self, profile: &Profile) {
        self.capability(MSIX, 0x11, VENDOR_SPECIFIC);
        let last = profile.msix_vectors.clamp(1, 2048) - 1;
        self.put16(MSIX + 2, last, MSIX_ENABLE | MSIX_FUNCTION_MASK);
        // The low three bits are the BAR number: 0.
        self.put32(MSIX + 4, MSIX_TABLE as u32, 0);
        self.put32(MSIX + 8, MSIX_PBA as u32, 0);
    }

    /// Vendor specific capability (VSC): the gateway to the card's address spaces. Software locks it by writing the
    /// counter to the semaphore. The status bits stay 0 for every space: none is supported.
    fn vendor_specific(&mut self) {
        self.capability(VENDOR_SPECIFIC, 0x09, PM);
        self.bytes[VENDOR_SPECIFIC + 2] = 0x18;
        // Control: the space.
        self.put32(VENDOR_SPECIFIC + 4, 0, 0x0000_ffff);
        // Counter, then semaphore.
        self.put32(VENDOR_SPECIFIC + 8, 1, 0);
        self.put32(VENDOR_SPECIFIC + 0xc, 0, 0xffff_ffff);
    }

    fn power_management(&mut self) {
        self.capability(PM, 0x01, 0);
        // Version 3, D0 and D3hot only, no PME.
        self.put16(PM + 2, 0x0003, 0);
        // D3hot to D0 does not reset.
        self.put16(PM_CONTROL, 1 << 3, PM_STATE);
    }

    pub(super) fn read(&self, offset: u64, bytes: &mut [u8]) {
        bytes.fill(0xff);
        let source = self.bytes.get(offset.min(CONFIG_SIZE as u64) as usize..).unwrap_or_default();
        for (byte, source) in bytes.iter_mut().zip(source) {
            *byte = *source;
        }
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) -> Effects {
        let mut effects = Effects::default();
        for (at, byte) in (offset.min(CONFIG_SIZE as u64) as usize..CONFIG_SIZE).zip(bytes) {
            let writable = self.writable[at];
            self.bytes[at] = self.bytes[at] & !writable | byte & writable;
            self.bytes[at] &= !(byte & self.write_1_clears[at]);
            effects.reset |= at == DEVICE_CONTROL + 1 && byte & (DEVICE_CONTROL_FLR >> 8) as u8 != 0;
        }
        effects
    }

    pub(super) fn reset(&mut self) {
        self.bytes.copy_from_slice(&*self.initial);
    }

    pub(super) fn bus_master(&self) -> bool {
        self.enables(COMMAND_BUS_MASTER)
    }

    pub(super) fn decodes_memory(&self) -> bool {
        self.enables(COMMAND_MEMORY)
    }

    /// Whether the command register enables it, and the power state allows it. PCI Power Management 1.2, 5.4.1: in
    /// D3hot a function answers configuration accesses alone.
    fn enables(&self, bit: u16) -> bool {
        self.get16(COMMAND) & bit != 0 && self.get16(PM_CONTROL) & PM_STATE == 0
    }

    /// Max_Payload_Size and Max_Read_Request_Size in bytes. PCIe 7.5.3.4.
    pub(super) fn request_sizes(&self) -> (u32, u32) {
        let control = self.get16(DEVICE_CONTROL);
        let bytes = |code: u16| 128 << (code & 7).min(5);
        (bytes(control >> 5), bytes(control >> 12))
    }

    pub(super) fn msix_control(&self) -> u16 {
        self.get16(MSIX + 2)
    }

    /// Sets the enable and mask bits of the MSI-X control word.
    pub(super) fn set_msix_control(&mut self, bits: u16) {
        let size = self.msix_control() & !(MSIX_ENABLE | MSIX_FUNCTION_MASK);
        self.bytes[MSIX + 2..MSIX + 4].copy_from_slice(&(size | bits).to_le_bytes());
    }

    fn get16(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    fn put16(&mut self, at: usize, value: u16, writable: u16) {
        self.bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
        self.writable[at..at + 2].copy_from_slice(&writable.to_le_bytes());
    }

    fn put32(&mut self, at: usize, value: u32, writable: u32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        self.writable[at..at + 4].copy_from_slice(&writable.to_le_bytes());
    }

    fn capability(&mut self, at: usize, id: u8, next: usize) {
        self.bytes[at..at + 2].copy_from_slice(&[id, next as u8]);
    }
}

/// PCI Express "Link Speeds": 3 for 8 GT/s, 4 for 16, 5 for 32.
fn link_speed(device_id: u16) -> u32 {
    match device_id {
        0x1021.. => 5,
        0x101b.. => 4,
        _ => 3,
    }
}
