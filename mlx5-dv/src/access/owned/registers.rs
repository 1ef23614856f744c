//! The init segment's registers. PRM "Initialization Segment".

use std::io;
use std::sync::Arc;

use mlx5_prm::init_seg::{HealthBuffer, InitSegment, NicInterface};
use mlx5_prm::layout::Layout;

use crate::access::liveness::{Liveness, StopDma};
use crate::access::{Bar, read_timer};
use crate::error::Death;

const FW_REV: u64 = 0x00;
const CMD_INTERFACE_REV: u64 = 0x04;
const CMDQ_ADDRESS_HIGH: u64 = 0x10;
const CMDQ_ADDRESS_LOW: u64 = 0x14;
const COMMAND_DOORBELL: u64 = 0x18;
const INITIALIZING: u64 = 0x1fc;
const HEALTH_BUFFER: u64 = 0x200;
const TIMER_HIGH: u64 = 0x1000;
const TIMER_LOW: u64 = 0x1004;
const REAL_TIME_HIGH: u64 = 0x1040;
const REAL_TIME_LOW: u64 = 0x1044;
const HEALTH_COUNTER: u64 = 0x1010;

/// Value of any register of a card that is not present.
const ALL_ONES: u32 = u32::MAX;

/// BAR 0. A failing access marks the card dead.
#[derive(Debug)]
pub struct Registers {
    bar: Box<dyn Bar>,
    liveness: Arc<Liveness>,
}

impl StopDma for Registers {
    /// Clears bus mastering; if the bit does not clear, resets the function.
    fn stop_dma(&self) -> io::Result<()> {
        self.bar.set_bus_master(false).or_else(|error| self.bar.reset().map_err(|_| error))
    }
}

/// What the init segment reports of firmware and its command queue.
#[derive(Debug, Clone, Copy)]
pub struct Identity {
    /// Firmware version: major, minor, subminor.
    pub fw_version: (u16, u16, u16),
    /// Revision of the command interface.
    pub cmd_interface_rev: u16,
    /// Log of the number of command slots.
    pub log_cmdq_size: u8,
    /// Log of the distance between slots in bytes.
    pub log_cmdq_stride: u8,
}

impl Registers {
    /// Wraps `bar`.
    pub fn new(bar: Box<dyn Bar>, liveness: Arc<Liveness>) -> Self {
        Registers { bar, liveness }
    }

    /// The BAR itself.
    pub fn bar(&self) -> &dyn Bar {
        &*self.bar
    }

    /// Reads a dword. A failing access marks the card dead.
    pub fn read(&self, offset: u64) -> Result<u32, Death> {
        self.liveness.check()?;
        self.bar.read32(offset).map_err(|error| self.liveness.broken(&error))
    }

    /// Writes a dword. A failing access marks the card dead.
    ///
    /// # Safety
    /// As for [`Bar::write32`].
    pub unsafe fn write(&self, offset: u64, value: u32) -> Result<(), Death> {
        self.liveness.check()?;
        // SAFETY: by this function's contract.
        unsafe { self.bar.write32(offset, value) }.map_err(|error| self.liveness.broken(&error))
    }

    /// Writes an EQ's consumer index to the register at `offset`, in a UAR page of the event queues.
    pub fn ring_event_queue(&self, offset: u64, value: u32) -> Result<(), Death> {
        // SAFETY: a consumer index of our own EQ: it allows the card to reuse entries of the ring that it was given.
        unsafe { self.write(offset, value) }
    }

    /// Marks the card dead if its registers read as all ones. No firmware has that version.
    pub fn check_presence(&self) -> Result<(), Death> {
        if self.read(FW_REV)? == ALL_ONES {
            self.liveness.end(Death::Vanished);
        }
        self.liveness.check()
    }

    /// Whether firmware is still starting. All ones, as during a reset, count as starting.
    pub fn initializing(&self) -> Result<bool, Death> {
        Ok(self.read(INITIALIZING)? >> 31 != 0)
    }

    /// Whether this host is a processor on the card itself: then the function is one of its own. PRM "Initialization
    /// Segment", `embedded_cpu`.
    pub fn is_embedded_cpu(&self) -> Result<bool, Death> {
        let segment: InitSegment = self.segment(&[INITIALIZING])?;
        Ok(segment.embedded_cpu())
    }

    /// Firmware's version and the shape of the command queue.
    pub fn identity(&self) -> Result<Identity, Death> {
        let segment: InitSegment = self.segment(&[FW_REV, CMD_INTERFACE_REV, CMDQ_ADDRESS_LOW])?;
        Ok(Identity {
            fw_version: (segment.fw_rev_major(), segment.fw_rev_minor(), segment.fw_rev_subminor()),
            cmd_interface_rev: segment.cmd_interface_rev(),
            log_cmdq_size: segment.log_cmdq_size(),
            log_cmdq_stride: segment.log_cmdq_stride(),
        })
    }

    /// Writes the command queue's address, a multiple of 4096. The low half is written last: it takes effect then.
    ///
    /// # Safety
    /// A page is mapped for the card at `iova` and stays the command queue's until DMA has stopped.
    pub unsafe fn set_command_queue(&self, iova: u64) -> Result<(), Death> {
        // SAFETY: by this function's contract.
        unsafe {
            self.write(CMDQ_ADDRESS_HIGH, (iova >> 32) as u32)?;
            self.write(CMDQ_ADDRESS_LOW, iova as u32)
        }
    }

    /// Rings the doorbell for the slots of `mask`.
    ///
    /// # Safety
    /// Entries of these slots that the card owns are commands that may be sent: see
    /// [`Access::execute`](crate::access::Access::execute).
    pub unsafe fn ring_commands(&self, mask: u32) -> Result<(), Death> {
        // SAFETY: by this function's contract.
        unsafe { self.write(COMMAND_DOORBELL, mask) }
    }

    /// The health counter, 24 bits; it advances as long as firmware is alive.
    pub fn health_counter(&self) -> Result<u32, Death> {
        let value = self.read(HEALTH_COUNTER)?;
        if value == ALL_ONES {
            self.check_presence()?;
        }
        Ok(value & 0xff_ffff)
    }

    /// The free-running clock, in ticks.
    pub fn internal_timer(&self) -> Result<u64, Death> {
        self.clock(TIMER_HIGH, TIMER_LOW)
    }

    /// The real-time clock: seconds, and nanoseconds in the lower half.
    pub fn real_time(&self) -> Result<u64, Death> {
        self.clock(REAL_TIME_HIGH, REAL_TIME_LOW)
    }

    fn clock(&self, upper: u64, lower: u64) -> Result<u64, Death> {
        let time = read_timer(|high| self.read(if high { upper } else { lower }))?;
        if time == u64::MAX {
            self.check_presence()?;
        }
        Ok(time)
    }

    /// Whether firmware or another driver has disabled the function, or asks for its reset. PRM "Initialization
    /// Segment", `nic_interface`.
    pub fn interface_disabled(&self) -> Result<bool, Death> {
        let value = self.read(CMDQ_ADDRESS_LOW)?;
        if value == ALL_ONES {
            self.check_presence()?;
        }
        Ok(matches!(NicInterface::from_number(value >> 8 & 7), NicInterface::Disabled | NicInterface::SwReset))
    }

    /// The last two dwords of the health buffer: severity, rfr (reset required), and the syndrome.
    pub fn health(&self) -> Result<HealthBuffer, Death> {
        let mut bytes = [0; HealthBuffer::SIZE];
        for at in [0x38, 0x3c] {
            bytes[at..at + 4].copy_from_slice(&self.read(HEALTH_BUFFER + at as u64)?.to_be_bytes());
        }
        Ok(HealthBuffer::read(&bytes).unwrap_or(HealthBuffer::ZERO))
    }

    fn segment(&self, offsets: &[u64]) -> Result<InitSegment, Death> {
        let mut bytes = vec![0; InitSegment::SIZE];
        for offset in offsets {
            let at = *offset as usize;
            bytes[at..at + 4].copy_from_slice(&self.read(*offset)?.to_be_bytes());
        }
        Ok(InitSegment::read(&bytes).unwrap_or(InitSegment::ZERO))
    }
}
