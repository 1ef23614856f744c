//! User access region pages.

use std::sync::{Arc, Mutex, OnceLock};

use uar::{BlueFlame, Plain, Shared, UarPage};

use super::object::{DestroyError, destroy_sole};
use crate::access::{BarMapping, UarHandle, UarMapping};
use crate::caps::Caps;
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

/// Whether a queue copies work requests that it posts alone to the card (PRM "BlueFlame"): the card then need not fetch
/// them, which takes a round trip over PCIe off each message. Those that change keys are never copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Copying {
    /// Where the page is mapped write combining: with a kernel that has found that the machine combines writes
    /// (`devx:`), and a card with BlueFlame. Everywhere else a copy would be a PCIe write for each eight bytes.
    #[default]
    WhereItPays,
    /// On every card that has BlueFlame, though the page be uncached.
    Always,
    /// Nowhere: the doorbell alone.
    Never,
}

/// Queues of a page that copy work requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Copies {
    None,
    OfOneQueue,
    /// Any number, under a lock.
    OfAll,
}

/// A page of doorbell registers. Use one per thread: queues that share a page should run on the same thread. PRM "User
/// Access Region".
#[derive(Debug)]
pub struct Uar {
    /// The plain register under a lock, created on first use.
    shared_plain: OnceLock<Shared<Plain>>,
    blue_flame: Mutex<Holder>,
    /// Of [`AnyDoorbell`](super::AnyDoorbell)s.
    copies: Copies,
    index: u32,
    /// `None` once it is freed.
    handle: Option<UarHandle>,
    device: Arc<Device>,
}

impl Uar {
    /// Allocates a page for any doorbell. Errors: [`Error::Command`], [`Error::Io`] if it cannot be mapped.
    pub fn alloc(device: &Arc<Device>) -> Result<Arc<Self>, Error> {
        Self::mapped(device, UarMapping::Uncached, |_| Copies::None)
    }

    /// Allocates a page for one queue, whose [`AnyDoorbell`](super::AnyDoorbell) copies work requests as `copying`
    /// says.
    ///
    /// # Errors
    /// As for [`alloc`](Self::alloc); for [`Copying::Always`] [`Error::Unsupported`] on a card without BlueFlame.
    pub fn alloc_for_one_queue(device: &Arc<Device>, copying: Copying) -> Result<Arc<Self>, Error> {
        Self::for_queues(device, copying, Copies::OfOneQueue)
    }

    /// As [`alloc_for_one_queue`](Self::alloc_for_one_queue), for any number of queues: where they copy, they share the
    /// register under a lock, which nobody contends for while they belong to one thread.
    ///
    /// # Errors
    /// As there.
    pub fn alloc_for_queues(device: &Arc<Device>, copying: Copying) -> Result<Arc<Self>, Error> {
        Self::for_queues(device, copying, Copies::OfAll)
    }

    fn for_queues(device: &Arc<Device>, copying: Copying, copies: Copies) -> Result<Arc<Self>, Error> {
        let where_combining = |cached| if cached == UarMapping::WriteCombining { copies } else { Copies::None };
        match (copying, blue_flame_is_there(device.caps())) {
            (Copying::Always, Ok(())) => Self::mapped(device, UarMapping::WriteCombining, |_| copies),
            (Copying::Always, Err(error)) => Err(error),
            (Copying::WhereItPays, Ok(())) => Self::mapped(device, UarMapping::WriteCombining, where_combining),
            (Copying::WhereItPays, Err(_)) | (Copying::Never, _) => Self::alloc(device),
        }
    }

    /// Allocates a page for [`BlueFlame`] alone, mapped write combining if available (`devx:`). Errors: as for
    /// [`alloc`](Self::alloc).
    pub fn alloc_write_combining(device: &Arc<Device>) -> Result<Arc<Self>, Error> {
        let alone = |cached| if cached == UarMapping::WriteCombining { Copies::OfOneQueue } else { Copies::None };
        Self::mapped(device, UarMapping::WriteCombining, alone)
    }

    /// Allocates a page, whose queues copy as `copies` says of its mapping.
    fn mapped(
        device: &Arc<Device>,
        wanted: UarMapping,
        copies: impl FnOnce(UarMapping) -> Copies,
    ) -> Result<Arc<Self>, Error> {
        let handle = device.access().alloc_uar(wanted)?;
        let copies = copies(handle.cached());
        tracing::debug!(
            "UAR page {:#x}: {:?}, work requests posted alone are {}copied",
            handle.uar_page(),
            handle.cached(),
            if copies == Copies::None { "not " } else { "" }
        );
        Ok(Arc::new(Uar {
            copies,
            shared_plain: OnceLock::new(),
            blue_flame: Mutex::new(Holder::Nobody),
            index: handle.uar_page(),
            handle: Some(handle),
            device: Arc::clone(device),
        }))
    }

    /// `uar_page` for contexts.
    pub fn index(&self) -> u32 {
        self.index
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
        let cached = self.handle.as_ref().map(UarHandle::cached);
        self.is_mapped() && cached == Some(UarMapping::WriteCombining)
    }

    /// Whether a queue with [`AnyDoorbell`](super::AnyDoorbell) copies what it posts alone.
    pub fn copies(&self) -> bool {
        self.copied() != Copies::None
    }

    /// The queues that copy.
    pub(crate) fn copied(&self) -> Copies {
        if self.is_mapped() { self.copies } else { Copies::None }
    }

    /// The mapping of the page, if it could be mapped.
    pub(crate) fn mapping(&self) -> Option<&BarMapping> {
        self.handle.as_ref()?.mapping().filter(|mapping| mapping.len() >= uar::mmio::UAR_PAGE)
    }

    /// Writes to a page that is not mapped.
    pub(crate) fn write(&self, offset: usize, value: u64) -> Result<(), Error> {
        // Queues that ring hold the page, which is freed after them.
        let Some(handle) = &self.handle else { return Ok(()) };
        self.device.access().write_uar(handle, offset, value)
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
        let Some(handle) = self.handle.take() else { return Ok(()) };
        self.device.access().free_uar(handle).map_err(|failed| {
            let (handle, error) = *failed;
            self.handle = Some(handle);
            error
        })
    }
}

impl Drop for Uar {
    fn drop(&mut self) {
        if let Err(error) = self.free() {
            tracing::error!(%error, "a UAR page was not given back");
        }
    }
}

/// Log of the size of a BlueFlame register in crate `uar`.
const LOG_BLUE_FLAME_REGISTER: u8 = uar::mmio::BLUE_FLAME_REGISTER.trailing_zeros() as u8;

/// `Ok` if the card has BlueFlame registers of the size that crate `uar` supports.
pub(super) fn blue_flame_is_there(caps: &Caps) -> Result<(), Error> {
    let refused = |what: String, capability| Err(Error::Unsupported { what, capability });
    match (caps.bf, caps.log_bf_reg_size) {
        (false, _) => refused("BlueFlame; use the Plain doorbell, or AnyDoorbell".into(), "bf"),
        (true, LOG_BLUE_FLAME_REGISTER) => Ok(()),
        (true, other) => refused(
            format!("BlueFlame registers of 512 bytes, these have 2^{other}; use the Plain doorbell, or AnyDoorbell"),
            "log_bf_reg_size",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blue_flame_is_refused_where_the_card_has_none_or_another() {
        let caps = |bf, log_bf_reg_size| Caps { bf, log_bf_reg_size, ..Caps::default() };
        assert!(blue_flame_is_there(&caps(true, 9)).is_ok());
        for (caps, named) in [(caps(false, 9), "capability bf"), (caps(true, 8), "log_bf_reg_size")] {
            let text = blue_flame_is_there(&caps).unwrap_err().to_string();
            assert!(text.contains(named) && text.contains("AnyDoorbell"), "{text}");
        }
    }
}
