//! BAR 0 of a function: the memory of its UAR pages and its memory on the card, and the state of doorbells.
//! PRM "User Access Region".

use super::blueflame::BlueFlame;
use super::uar_memory::{MemoryError, Shared, UarArea, UarMemory};
use super::write_combining::WriteCombining;
use crate::objects::{FIRST_UAR, LOG_PAGE, PAGE};
use crate::profile::Profile;
use std::sync::Arc;
use std::time::Instant;

/// BAR 0 of one function.
#[derive(Debug)]
pub struct Bar {
    pub(crate) log_size: u32,
    /// End of the UAR pages.
    pub(crate) uar_end: u64,
    /// End of the memory on the card, which follows them.
    memory_end: u64,
    /// The first UAR page that is backed by memory; `None` if every doorbell is a message.
    pub(crate) first_shared: Option<u32>,
    /// The memory; `None` until a card assigns it.
    pub(crate) shared: Option<Arc<Shared>>,
    /// The UAR without users to poll next.
    pub(crate) unused: u32,
    /// First half of a doorbell written as two dwords: offset in the BAR, and value.
    pub(crate) half: Option<(u64, u32)>,
    pub(crate) audit: Audit,
    pub(crate) blueflame: BlueFlame,
    /// Copies that arrive in parts; `None` if parts are not joined.
    pub(crate) combining: Option<WriteCombining>,
    /// Log of all doorbells, if enabled.
    pub(crate) log: Option<Vec<Rung>>,
}

/// A doorbell that was rung.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rung {
    /// UAR page.
    pub uar: u32,
    /// Byte offset in the page.
    pub register: u64,
    /// The big-endian value written; 32 bits for an EQ doorbell.
    pub value: u64,
}

impl Bar {
    /// The state after power-on: every doorbell is a message.
    pub fn new(profile: &Profile) -> Self {
        let (uar_end, size) = (profile.device_memory.memic_bar_start_addr(), profile.device_memory.memic_bar_size());
        Bar {
            log_size: profile.log_bar_size,
            uar_end,
            memory_end: uar_end + u64::from(size),
            first_shared: None,
            shared: None,
            unused: 0,
            half: None,
            audit: Audit::default(),
            blueflame: BlueFlame::default(),
            combining: None,
            log: None,
        }
    }

    /// Backs all UAR pages but the first `trapped` with memory that clients can map. Use
    /// [`Function::share_bar`](super::Function::share_bar).
    ///
    /// # Errors
    /// The memory cannot be allocated.
    pub(super) fn share(&mut self, trapped: u32) -> Result<(), MemoryError> {
        let first = FIRST_UAR.saturating_add(trapped);
        if u64::from(first) << LOG_PAGE < self.uar_end {
            self.shared = Some(Arc::new(Shared::new(self.size())?));
            self.first_shared = Some(first);
        }
        Ok(())
    }

    /// Replaces the memory that clients can map: stores to old mappings have no effect.
    ///
    /// # Errors
    /// The memory cannot be allocated; the old one stays.
    pub(super) fn renew(&mut self) -> Result<(), MemoryError> {
        if self.shared.is_some() {
            self.shared = Some(Arc::new(Shared::new(self.size())?));
        }
        Ok(())
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        1 << self.log_size
    }

    /// Whether clients can map the UAR page, so that a doorbell may be overwritten before it is read.
    pub(crate) fn is_mapped(&self, uar: u32) -> bool {
        self.first_shared.is_some_and(|first| uar >= first)
    }

    /// The parts of the BAR that clients can map; no areas if every doorbell is a message.
    ///
    /// # Errors
    /// The process is out of file descriptors.
    pub fn uar_memory(&self) -> Result<UarMemory, MemoryError> {
        let (Some(shared), Some(first)) = (&self.shared, self.first_shared) else { return Ok(UarMemory::default()) };
        let offset = u64::from(first) << LOG_PAGE;
        Ok(UarMemory { file: Some(shared.file()?), areas: vec![UarArea { offset, len: self.memory_end - offset }] })
    }

    /// Joins stores to a BlueFlame buffer that arrive one by one. Only those that are messages can be.
    pub fn combine_writes(&mut self) {
        self.combining.get_or_insert_default();
    }

    /// Starts to log doorbells for [`take_rung`](Self::take_rung).
    pub fn log_doorbells(&mut self) {
        self.log.get_or_insert_default();
    }

    /// The doorbells since the last call, if they are [logged](Self::log_doorbells).
    pub fn take_rung(&mut self) -> Vec<Rung> {
        self.log.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Function level reset: drops pending doorbells.
    pub fn reset(&mut self) {
        self.half = None;
        self.audit = Audit::default();
        self.blueflame = BlueFlame::default();
        self.combining = self.combining.take().map(|_| WriteCombining::default());
        if let Some(shared) = &self.shared {
            shared.clear();
        }
    }

    /// Clears the page of a freed UAR, so that old doorbells do not affect its next owner.
    pub(crate) fn release(&mut self, uar: u32) {
        self.blueflame.release(uar);
        if let Some(combining) = &mut self.combining {
            combining.release(uar);
        }
        if let Some(shared) = self.shared.as_ref().filter(|_| self.is_mapped(uar)) {
            shared.clear_range(u64::from(uar) << LOG_PAGE, PAGE);
        }
    }
}

/// Time of the last audit, and the half doorbells it found.
#[derive(Debug, Default)]
pub struct Audit {
    pub(crate) last: Option<Instant>,
    pub(crate) halves: Vec<(u64, u64)>,
}
