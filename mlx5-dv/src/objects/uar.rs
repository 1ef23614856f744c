//! User access region pages.

use std::sync::{Arc, Mutex, OnceLock};

use uar::{BlueFlame, Plain, Shared, UarPage};

use super::object::{DestroyError, destroy_sole};
use crate::access::{BarMapping, UarHandle, UarMapping};
use crate::device::Device;
use crate::error::{CommandError, Error};
use crate::lock::lock;

/// The register of plain doorbells: eight bytes at a time, which any number of queues may store. No WQE is ever copied
/// there, or such a store would land in the middle of it.
pub(crate) const PLAIN_REGISTER: usize = 0;
/// The register that WQEs are copied to, by one queue at a time.
const BLUE_FLAME_REGISTER: usize = 1;

/// Who has the BlueFlame register of a page.
#[derive(Debug)]
enum Holder {
    Nobody,
    /// One queue.
    Queue,
    /// Any number of queues, in turn, for as long as the page lives.
    Shared(Shared<BlueFlame>),
}

/// A page of doorbell registers. One a thread: queues that ring through the same page should be of the same thread.
/// PRM "User Access Region".
#[derive(Debug)]
pub struct Uar {
    /// The plain register under a lock, once someone asked for that.
    shared_plain: OnceLock<Shared<Plain>>,
    blue_flame: Mutex<Holder>,
    freed: bool,
    handle: UarHandle,
    device: Arc<Device>,
}

impl Uar {
    /// A page of our own, for any doorbell. Errors: [`Error::Command`], [`Error::Io`] where it cannot be mapped.
    pub fn alloc(device: &Arc<Device>) -> Result<Arc<Self>, Error> {
        Self::mapped(device, UarMapping::Uncached)
    }

    /// A page of our own, mapped write-combining where that can be had (`devx:`): for [`BlueFlame`] alone. Errors: as
    /// for [`alloc`](Self::alloc).
    pub fn alloc_write_combining(device: &Arc<Device>) -> Result<Arc<Self>, Error> {
        Self::mapped(device, UarMapping::WriteCombining)
    }

    fn mapped(device: &Arc<Device>, wanted: UarMapping) -> Result<Arc<Self>, Error> {
        let handle = device.access().alloc_uar(wanted)?;
        Ok(Arc::new(Uar {
            shared_plain: OnceLock::new(),
            blue_flame: Mutex::new(Holder::Nobody),
            freed: false,
            handle,
            device: Arc::clone(device),
        }))
    }

    /// `uar_page` for contexts.
    pub fn index(&self) -> u32 {
        self.handle.uar_page()
    }

    /// The card.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Whether doorbells are stores of this process. If not, each is a call of the access.
    pub fn is_mapped(&self) -> bool {
        self.mapping().is_some()
    }

    /// Whether stores to it are gathered until a barrier, so that the plain register does not serve.
    pub fn is_write_combining(&self) -> bool {
        self.is_mapped() && self.handle.cached() == UarMapping::WriteCombining
    }

    /// The page in this process, where it can be mapped.
    pub(crate) fn mapping(&self) -> Option<&BarMapping> {
        self.handle.mapping().filter(|mapping| mapping.len() >= uar::mmio::UAR_PAGE)
    }

    /// Stores to a page that is not mapped.
    pub(crate) fn write(&self, offset: usize, value: u64) -> Result<(), Error> {
        self.device.access().write_uar(&self.handle, offset, value)
    }

    /// The plain register under a lock.
    pub(crate) fn shared_plain(&self, page: UarPage) -> Shared<Plain> {
        self.shared_plain.get_or_init(|| Shared::new(Plain::new(page, PLAIN_REGISTER))).clone()
    }

    /// The BlueFlame register for one queue alone, until [`give_blue_flame_back`](Self::give_blue_flame_back); `None`
    /// where it is taken or shared.
    pub(crate) fn take_blue_flame(&self, page: UarPage) -> Option<BlueFlame> {
        let mut holder = lock(&self.blue_flame);
        let free = matches!(*holder, Holder::Nobody);
        free.then(|| {
            *holder = Holder::Queue;
            BlueFlame::new(page, BLUE_FLAME_REGISTER)
        })
    }

    /// After [`take_blue_flame`](Self::take_blue_flame), by the queue that took it.
    pub(crate) fn give_blue_flame_back(&self) {
        *lock(&self.blue_flame) = Holder::Nobody;
    }

    /// The BlueFlame register under a lock, which the first to ask makes; `None` where a queue has it alone.
    pub(crate) fn shared_blue_flame(&self, page: UarPage) -> Option<Shared<BlueFlame>> {
        let mut holder = lock(&self.blue_flame);
        match &*holder {
            Holder::Queue => None,
            Holder::Shared(doorbell) => Some(doorbell.clone()),
            Holder::Nobody => {
                let doorbell = Shared::new(BlueFlame::new(page, BLUE_FLAME_REGISTER));
                *holder = Holder::Shared(doorbell.clone());
                Some(doorbell)
            }
        }
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
