//! User access region pages.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use uar::mmio::BLUE_FLAME_REGISTERS;
use uar::{BlueFlame, Plain, Shared, UarPage};

use super::{DestroyError, destroy_sole};
use crate::Device;
use crate::access::{BarMapping, UarHandle};
use crate::error::{CommandError, Error};

/// A page of doorbell registers. One a thread: queues that ring through the same page should be of the same thread.
/// PRM "User Access Region".
#[derive(Debug)]
pub struct Uar {
    /// Which BlueFlame registers belong to a queue of their own, a bit each.
    taken: AtomicU8,
    /// Register 0 under a lock, once someone asked for that.
    shared_plain: OnceLock<Shared<Plain>>,
    shared_blue_flame: OnceLock<Shared<BlueFlame>>,
    freed: bool,
    handle: UarHandle,
    device: Arc<Device>,
}

impl Uar {
    /// A page of our own. Errors: [`Error::Command`], [`Error::Io`] where it cannot be mapped.
    pub fn alloc(device: &Arc<Device>) -> Result<Arc<Self>, Error> {
        let handle = device.access().alloc_uar()?;
        Ok(Arc::new(Uar {
            taken: AtomicU8::new(0),
            shared_plain: OnceLock::new(),
            shared_blue_flame: OnceLock::new(),
            freed: false,
            handle,
            device: Arc::clone(device),
        }))
    }

    /// `uar_page` for contexts.
    pub fn index(&self) -> u32 {
        self.handle.uar_page
    }

    /// The card.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Whether doorbells are stores of this process. If not, each is a call of the access.
    pub fn is_mapped(&self) -> bool {
        self.mapping().is_some()
    }

    /// The page in this process, where it can be mapped.
    pub(crate) fn mapping(&self) -> Option<&BarMapping> {
        self.handle.mapping.as_ref().filter(|mapping| mapping.len >= uar::mmio::UAR_PAGE)
    }

    /// Stores to a page that is not mapped.
    pub(crate) fn write(&self, offset: usize, value: u64) -> Result<(), Error> {
        self.device.access().write_uar(&self.handle, offset, value)
    }

    /// Takes a BlueFlame register for one queue alone; `None` when all are taken.
    pub(crate) fn take_register(&self) -> Option<usize> {
        (0..BLUE_FLAME_REGISTERS).find(|register| {
            let bit = 1 << register;
            self.taken.fetch_or(bit, Ordering::AcqRel) & bit == 0
        })
    }

    pub(crate) fn give_register_back(&self, register: usize) {
        self.taken.fetch_and(!(1 << register), Ordering::AcqRel);
    }

    pub(crate) fn shared_plain(&self, page: UarPage) -> Shared<Plain> {
        self.shared_plain.get_or_init(|| Shared::new(Plain::new(page, 0))).clone()
    }

    pub(crate) fn shared_blue_flame(&self, page: UarPage, register: usize) -> Shared<BlueFlame> {
        self.shared_blue_flame.get_or_init(|| Shared::new(BlueFlame::new(page, register))).clone()
    }

    pub(crate) fn has_shared_blue_flame(&self) -> bool {
        self.shared_blue_flame.get().is_some()
    }

    /// Gives it back. Errors: the page, kept alive, and why.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, Uar::free)
    }

    fn free(&mut self) -> Result<(), CommandError> {
        if !self.freed {
            self.device.access().free_uar(&self.handle)?;
            self.freed = true;
        }
        Ok(())
    }
}

impl Drop for Uar {
    fn drop(&mut self) {
        if let Err(error) = self.free() {
            tracing::error!(%error, "a UAR page was not given back");
        }
    }
}
