//! An event queue: the ring the card reports events in. PRM "Event Queue", "Event Queue Entry Format".

use std::sync::Arc;

use mlx5_prm::cmd::{CreateEqIn, DestroyEqIn, WithTail};
use mlx5_prm::eqe::{Eqe, EventType};
use mlx5_prm::layout::{Be64, Layout};
use uar::{EqDoorbell, barrier};

use super::registers::Registers;
use crate::access::RawCommand;
use crate::error::{Death, Error};
use crate::memory::{DmaBuffer, DmaPool, Translation};

/// Entries handled before the card is told that their places are free.
const GIVE_BACK: u32 = 64;

/// A ring of events, read by one thread.
#[derive(Debug)]
pub struct EventQueue {
    /// The card's number for it.
    pub eqn: u8,
    ring: DmaBuffer,
    log_size: u8,
    consumed: u32,
    armed: bool,
    registers: Arc<Registers>,
    /// Offset in BAR 0 of the UAR page its doorbells are in.
    uar_offset: u64,
}

/// A ring that no EQ uses yet.
#[derive(Debug)]
pub struct EventRing {
    ring: DmaBuffer,
    log_size: u8,
}

impl EventRing {
    /// Room for `2^log_size` events, all owned by the card.
    pub fn allocate(pool: &Arc<DmaPool>, log_size: u8) -> Result<Self, Error> {
        let ring = pool.allocate(Eqe::SIZE << log_size)?;
        // Whoever looks at an entry the card has not written must find it owned by hardware: the first round's owner
        // bit is 0 once written, so it starts as 1.
        let mut entry = Eqe::ZERO;
        entry.w().owner(true);
        for i in 0..1 << log_size {
            ring.copy_in(i * Eqe::SIZE, entry.as_bytes());
        }
        Ok(EventRing { ring, log_size })
    }

    /// The command that makes an EQ of it: events of `types` come to it, and raise interrupt vector `vector`.
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

    /// Its memory.
    pub fn into_memory(self) -> DmaBuffer {
        self.ring
    }

    /// The EQ that the command made of it.
    pub fn created(self, eqn: u8, registers: Arc<Registers>, uar_offset: u64) -> EventQueue {
        EventQueue { eqn, ring: self.ring, log_size: self.log_size, consumed: 0, armed: false, registers, uar_offset }
    }
}

impl EventQueue {
    /// The next event, if there is one.
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

    /// Gives the places of all events read back, and asks for an interrupt at the next.
    pub fn arm(&mut self) -> Result<(), Death> {
        self.armed = true;
        self.ring_doorbell(EqDoorbell::ARM_OFFSET)
    }

    /// Its memory, which the card may write until the EQ is destroyed.
    pub fn into_memory(self) -> DmaBuffer {
        self.ring
    }

    /// How many events it holds.
    pub fn capacity(&self) -> usize {
        1 << self.log_size
    }

    /// Whether the card has been asked for an interrupt since the queue was last found with an event.
    pub fn armed(&self) -> bool {
        self.armed
    }

    /// The command that ends it.
    pub fn destroy_command(&self) -> RawCommand {
        let mut destroy = DestroyEqIn::default();
        destroy.w().eq_number(self.eqn);
        RawCommand::new(&destroy, format!("EQ {:#x}", self.eqn))
    }

    fn ring_doorbell(&self, offset: usize) -> Result<(), Death> {
        barrier::before_reuse();
        self.registers.ring_event_queue(self.uar_offset + offset as u64, EqDoorbell::value(self.eqn, self.consumed))
    }
}

/// One bit an event type, in four quadwords, the first of them the lowest types.
fn event_bitmask(types: &[EventType]) -> [Be64; 4] {
    let mut mask = [0u64; 4];
    for number in types.iter().map(|event_type| event_type.number() as usize) {
        if let Some(word) = mask.get_mut(number / 64) {
            *word |= 1 << (number % 64);
        }
    }
    mask.map(Be64::new)
}
