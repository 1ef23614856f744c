//! User access region pages.

use std::sync::{Arc, Mutex, OnceLock};

use uar::{BlueFlame, Plain, Shared, UarPage};

use super::object::{DestroyError, destroy_sole};
use crate::access::{BarMapping, UarHandle, UarMapping};
use crate::device::Device;
use crate::error::{CommandError, Error};
use crate::lock::lock;

/// The register for plain doorbells: 8-byte stores, from any number of queues. WQEs are never copied there: such a
/// store could land in the middle of one.
pub(crate) const PLAIN_REGISTER: usize = 0;
/// The register for BlueFlame: WQEs are copied here, by one queue at a time.
const BLUE_FLAME_REGISTER: usize = 1;

/// User of a page's BlueFlame register.
#[derive(Debug)]
enum Holder {
    Nobody,
    /// One queue.
    Queue,
    /// Any number of queues under a lock, as long as the page lives.
    Shared(Shared<BlueFlame>),
}

/// A page of doorbell registers. Use one per thread: queues that share a page should run on the same thread. PRM "User
/// Access Region".
#[derive(Debug)]
pub struct Uar {
    /// The plain register under a lock, created on first use.
    shared_plain: OnceLock<Shared<Plain>>,
    blue_flame: Mutex<Holder>,
    freed: bool,
    handle: UarHandle,
    device: Arc<Device>,
}

impl Uar {
    /// Allocates a page for any doorbell. Errors: [`Error::Command`], [`Error::Io`] if it cannot be mapped.
    pub fn alloc(device: &Arc<Device>) -> Result<Arc<Self>, Error> {
        Self::mapped(device, UarMapping::Uncached)
    }

    /// Allocates a page for [`BlueFlame`] alone, mapped write combining if available (`devx:`). Errors: as for
    /// [`alloc`](Self::alloc).
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

    /// Whether doorbells are direct stores. If not, each is a call of the access.
    pub fn is_mapped(&self) -> bool {
        self.mapping().is_some()
    }

    /// Whether stores are write combining: then the plain register cannot be used.
    pub fn is_write_combining(&self) -> bool {
        self.is_mapped() && self.handle.cached() == UarMapping::WriteCombining
    }

    /// The mapping of the page, if it could be mapped.
    pub(crate) fn mapping(&self) -> Option<&BarMapping> {
        self.handle.mapping().filter(|mapping| mapping.len() >= uar::mmio::UAR_PAGE)
    }

    /// Writes to a page that is not mapped.
    pub(crate) fn write(&self, offset: usize, value: u64) -> Result<(), Error> {
        self.device.access().write_uar(&self.handle, offset, value)
    }

    /// The plain register under a lock.
    pub(crate) fn shared_plain(&self, page: UarPage) -> Shared<Plain> {
        self.shared_plain.get_or_init(|| Shared::new(Plain::new(page, PLAIN_REGISTER))).clone()
    }

    /// Reserves the BlueFlame register for a single queue, until [`give_blue_flame_back`](Self::give_blue_flame_back);
    /// `None` if it is reserved or shared.
    pub(crate) fn take_blue_flame(&self, page: UarPage) -> Option<BlueFlame> {
        let mut holder = lock(&self.blue_flame);
        let free = matches!(*holder, Holder::Nobody);
        free.then(|| {
            *holder = Holder::Queue;
            BlueFlame::new(page, BLUE_FLAME_REGISTER)
        })
    }

    /// Releases the register that [`take_blue_flame`](Self::take_blue_flame) reserved.
    pub(crate) fn give_blue_flame_back(&self) {
        *lock(&self.blue_flame) = Holder::Nobody;
    }

    /// The BlueFlame register under a lock, created on first use; `None` if a queue has reserved it.
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

    /// Frees the page. On an error it stays alive and is returned.
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
