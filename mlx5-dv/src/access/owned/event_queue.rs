//! An event queue: the ring in which the card reports events. PRM "Event Queue", "Event Queue Entry Format".

use std::sync::Arc;

use mlx5_prm::cmd::{CreateEqIn, DestroyEqIn, WithTail};
use mlx5_prm::eqe::{Eqe, EventType};
use mlx5_prm::layout::{Be64, Layout};
use uar::{EqDoorbell, UarPage, barrier};

use super::registers::Registers;
use crate::access::{BarMapping, RawCommand};
use crate::error::{Death, Error};
use crate::memory::{DmaBuffer, DmaPool, Translation};

/// Entries to consume before the consumer index is updated.
const GIVE_BACK: u32 = 64;

/// An event queue, read by one thread.
#[derive(Debug)]
pub struct EventQueue {
    /// The EQ number.
    pub eqn: u8,
    ring: DmaBuffer,
    log_size: u8,
    consumed: u32,
    armed: bool,
    registers: Arc<Registers>,
    /// Offset in BAR 0 of the UAR page of its doorbells.
    uar_offset: u64,
    /// That page, where it is mapped for the reader.
    page: Option<BarMapping>,
}

/// The memory of an EQ that is not created yet.
#[derive(Debug)]
pub struct EventRing {
    ring: DmaBuffer,
    log_size: u8,
}

impl EventRing {
    /// Allocates a ring of `2^log_size` entries, all owned by hardware.
    pub fn allocate(pool: &Arc<DmaPool>, log_size: u8) -> Result<Self, Error> {
        let ring = pool.allocate(Eqe::SIZE << log_size)?;
        // Unwritten entries must read as owned by hardware. The card writes owner bit 0 in the first round, so it
        // starts as 1.
        let mut entry = Eqe::ZERO;
        entry.w().owner(true);
        for i in 0..1 << log_size {
            ring.copy_in(i * Eqe::SIZE, entry.as_bytes());
        }
        Ok(EventRing { ring, log_size })
    }

    /// The command that creates an EQ in this ring: it receives events of `types` and raises interrupt vector `vector`.
    pub fn create_command(&self, uar_page: u32, vector: u16, types: &[EventType]) -> RawCommand {
        let pages = Translation::of(self.ring.iova().0, self.ring.iova(), Eqe::SIZE << self.log_size);
        let mut create = CreateEqIn::default();
        let mut context = *create.eq_context_entry();
        let context_page = (pages.log_size - 12) as u8;
        context.w().log_eq_size(self.log_size).uar_page(uar_page).intr(vector).log_page_size(context_page);
        create.w().eq_context_entry(&context).event_bitmask(&event_bitmask(types));
        let list = pages.addresses().map(Be64::new).collect();
        RawCommand::new(&WithTail::new(create, list), format!("EQ of vector {vector}"))
    }

    /// Returns the memory.
    pub fn into_memory(self) -> DmaBuffer {
        self.ring
    }

    /// The EQ after its creation.
    pub fn created(self, eqn: u8, registers: Arc<Registers>, uar_offset: u64) -> EventQueue {
        EventQueue {
            eqn,
            ring: self.ring,
            log_size: self.log_size,
            consumed: 0,
            armed: false,
            registers,
            uar_offset,
            page: None,
        }
    }
}

impl EventQueue {
    /// Reads the next event, if there is one.
    pub fn next(&mut self) -> Result<Option<Eqe>, Death> {
        let index = self.consumed & ((1 << self.log_size) - 1);
        let at = index as usize * Eqe::SIZE;
        let round = self.consumed >> self.log_size & 1;
        if self.ring.load_be32(at + Eqe::SIZE - 4) & 1 != round {
            return Ok(None);
        }
        barrier::from_device();
        let mut bytes = [0; Eqe::SIZE];
        self.ring.copy_out(at, &mut bytes);
        self.armed = false;
        self.consumed = self.consumed.wrapping_add(1);
        if self.consumed.is_multiple_of(GIVE_BACK) {
            self.ring_doorbell(EqDoorbell::OFFSET)?;
        }
        Ok(Eqe::read(&bytes))
    }

    /// Updates the consumer index and requests an interrupt for the next event.
    pub fn arm(&mut self) -> Result<(), Death> {
        self.armed = true;
        self.ring_doorbell(EqDoorbell::ARM_OFFSET)
    }

    /// Returns the memory, which the card may write until the EQ is destroyed.
    pub fn into_memory(self) -> DmaBuffer {
        self.ring
    }

    /// Number of entries.
    pub fn capacity(&self) -> usize {
        1 << self.log_size
    }

    /// Whether an interrupt is requested: armed since the last event was read.
    pub fn armed(&self) -> bool {
        self.armed
    }

    /// The command that destroys it.
    pub fn destroy_command(&self) -> RawCommand {
        let mut destroy = DestroyEqIn::default();
        destroy.w().eq_number(self.eqn);
        RawCommand::new(&destroy, format!("EQ {:#x}", self.eqn))
    }

    /// Offset in BAR 0 of the UAR page of its doorbells.
    pub fn uar_offset(&self) -> u64 {
        self.uar_offset
    }

    /// From now on doorbells are stores to `page`, the mapped UAR page, if there is one.
    pub fn map_doorbells(&mut self, page: Option<BarMapping>) {
        self.page = page;
    }

    /// Ends [`map_doorbells`](Self::map_doorbells).
    pub fn unmap_doorbells(&mut self) {
        self.page = None;
    }

    fn ring_doorbell(&self, offset: usize) -> Result<(), Death> {
        barrier::before_reuse();
        if let Some(page) = &self.page {
            // SAFETY: the mapping covers a UAR page, whose registers are aligned in it, and outlives the doorbell. The
            // card may reuse entries of the ring that it was given.
            let mut doorbell = EqDoorbell::new(unsafe { UarPage::new(page.address()) });
            match offset {
                EqDoorbell::ARM_OFFSET => doorbell.arm(self.eqn, self.consumed),
                _ => doorbell.update(self.eqn, self.consumed),
            }
            return Ok(());
        }
        self.registers.ring_event_queue(self.uar_offset + offset as u64, EqDoorbell::value(self.eqn, self.consumed))
    }
}

/// One bit per event type, in four quadwords; the first holds the lowest types.
fn event_bitmask(types: &[EventType]) -> [Be64; 4] {
    let mut mask = [0u64; 4];
    for number in types.iter().map(|event_type| event_type.number() as usize) {
        if let Some(word) = mask.get_mut(number / 64) {
            *word |= 1 << (number % 64);
        }
    }
    mask.map(Be64::new)
}
