//! Protection domains.

use std::fmt;
use std::sync::Arc;

use mlx5_prm::cmd::{AllocPdIn, DeallocPdIn};

use super::kernel_object::{KernelObject, PdHandle, shared};
use super::object::{DestroyError, Object, destroy_sole};
use crate::access::{KernelObjectKind, ObjectHandle};
use crate::device::Device;
use crate::error::{Error, Invalid};
use crate::memory::{DmaBuffer, DmaPool, HostMemory};

/// A protection domain: its queue pairs can use its keys. PRM "Protection Domain".
///
/// On `devx:` it is the kernel's, so that processes which share a context ([`Device::export`]) can share it, and
/// libibverbs's programs too: one gives its [`handle`](Self::handle), the other [imports](Self::import) it.
#[derive(Debug)]
pub struct Pd {
    pdn: u32,
    holder: Holder,
}

/// Who has made the object.
#[derive(Debug)]
enum Holder {
    Firmware(Object),
    Kernel(KernelObject),
    Parent(Parent),
}

/// A domain whose rings lie in memory of the user's.
struct Parent {
    rings: Arc<DmaPool>,
    base: Arc<Pd>,
}

impl fmt::Debug for Parent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parent").field("base", &self.base).finish_non_exhaustive()
    }
}

/// What is shared, in errors.
const WHAT: &str = "a protection domain for several processes";

impl Pd {
    /// Allocates a protection domain. Errors: [`Error::Command`].
    pub fn alloc(device: &Arc<Device>) -> Result<Arc<Self>, Error> {
        if let Some(kernel) = device.access().kernel_verbs() {
            let (handle, pdn) = kernel.alloc_pd()?;
            let holder = Holder::Kernel(KernelObject::made(device, KernelObjectKind::Pd, handle));
            return Ok(Arc::new(Pd { pdn, holder }));
        }
        let (object, out) = Object::create(device, &AllocPdIn::default(), "", |out| {
            let mut end = DeallocPdIn::default();
            end.w().pd(out.pd());
            (end, format!("PD {:#x}", out.pd()))
        })?;
        Ok(Arc::new(Pd { pdn: out.pd(), holder: Holder::Firmware(object) }))
    }

    /// The same domain, for queues whose rings and doorbell records lie in memory of the user's: huge pages of a size,
    /// a file, the pages of a NUMA node. Queues that are created with what this returns have theirs there, and so do
    /// completion queues with [`CqOptions::parent_domain`](super::CqOptions::parent_domain). Everything else is that of
    /// this domain. (`ibv_alloc_parent_domain` with allocators.)
    ///
    /// `memory` is asked for at least so many bytes, whole pages that are writable, when a ring has no room in what it
    /// gave before; it may give more, for the rings that follow. It must not create queues of this domain. What it gave
    /// is dropped when the last ring in it was destroyed, at the latest with the last ring of all: an owner
    /// ([`HostMemory::of`]) learns it by its own drop. Memory that the card may still use never comes back.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use mlx5_dv::memory::{HostMemory, PageSize, Pages};
    /// # use mlx5_dv::objects::Pd;
    /// # fn f(pd: &Arc<Pd>) {
    /// let pd = pd.alloc_parent(|len| HostMemory::allocate_in(len, Pages::Exactly(PageSize::HUGE_2M)));
    /// # }
    /// ```
    ///
    /// A thread domain is the [`Uar`](super::Uar), which each creation names.
    pub fn alloc_parent<M>(self: &Arc<Self>, memory: M) -> Arc<Self>
    where
        M: Fn(usize) -> Result<HostMemory, Error> + Send + Sync + 'static,
    {
        let device = Arc::clone(self.device());
        let rings = DmaPool::as_needed(move |len| {
            let given = memory(len)?;
            check_rings(&given, len)?;
            Arc::clone(device.access()).show(given)
        });
        Arc::new(Pd { pdn: self.pdn, holder: Holder::Parent(Parent { rings, base: Arc::clone(self.base()) }) })
    }

    /// The domain that this is, or is a parent domain of.
    fn base(self: &Arc<Self>) -> &Arc<Self> {
        match &self.holder {
            Holder::Parent(parent) => &parent.base,
            Holder::Firmware(_) | Holder::Kernel(_) => self,
        }
    }

    /// Whether keys of one are those of the other: parent domains are interchangeable with their domain.
    pub(crate) fn is_same(self: &Arc<Self>, other: &Arc<Self>) -> bool {
        Arc::ptr_eq(self, other) || Arc::ptr_eq(self.base(), other.base())
    }

    /// Whether rings of its queues lie in memory of the user's.
    pub(super) fn has_rings(&self) -> bool {
        matches!(self.holder, Holder::Parent(_))
    }

    /// Memory for a ring of `len` bytes.
    pub(super) fn alloc_ring(&self, len: usize) -> Result<DmaBuffer, Error> {
        match &self.holder {
            Holder::Parent(parent) => parent.rings.allocate(len),
            Holder::Firmware(_) | Holder::Kernel(_) => Arc::clone(self.device().access()).alloc_dma(len),
        }
    }

    /// Takes part in a protection domain of another process that shares `device`'s context. Dropping it leaves the
    /// domain as it is. (`ibv_import_pd`, `ibv_unimport_pd`.)
    ///
    /// Its maker can free the domain once no object of the card uses it; what is made here afterwards is refused by the
    /// card.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a handle that is no domain of this context, or on a function that this process owns.
    pub fn import(device: &Arc<Device>, handle: PdHandle) -> Result<Arc<Self>, Error> {
        let handle = ObjectHandle(handle.0);
        let pdn = shared(device, WHAT)?.query_pd(handle)?;
        let holder = Holder::Kernel(KernelObject::imported(device, KernelObjectKind::Pd, handle));
        Ok(Arc::new(Pd { pdn, holder }))
    }

    /// Names the domain to processes that share the context: `handle` of libibverbs's `ibv_pd`.
    ///
    /// # Errors
    /// [`Error::Invalid`] on a function that this process owns: nobody shares it.
    pub fn handle(&self) -> Result<PdHandle, Error> {
        shared(self.device(), WHAT)?;
        Ok(PdHandle(self.kernel_handle().0))
    }

    /// The kernel's handle; 0 on a function that this process owns.
    pub(super) fn kernel_handle(&self) -> ObjectHandle {
        match &self.holder {
            Holder::Firmware(_) => ObjectHandle(0),
            Holder::Kernel(object) => object.handle(),
            Holder::Parent(parent) => parent.base.kernel_handle(),
        }
    }

    /// `pd` for contexts, 24 bits.
    pub fn pdn(&self) -> u32 {
        self.pdn
    }

    /// The card.
    pub fn device(&self) -> &Arc<Device> {
        match &self.holder {
            Holder::Firmware(object) => object.device(),
            Holder::Kernel(object) => object.device(),
            Holder::Parent(parent) => parent.base.device(),
        }
    }

    /// Frees the domain, if it is not imported; of a parent domain only this handle ends. On an error it stays alive
    /// and is returned.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, |pd| match &mut pd.holder {
            Holder::Firmware(object) => object.destroy(),
            Holder::Kernel(object) => object.destroy(),
            Holder::Parent(_) => Ok(()),
        })
    }
}

/// `Ok` if `memory` can hold rings of `len` bytes.
fn check_rings(memory: &HostMemory, len: usize) -> Result<(), Invalid> {
    let page = memory.page_size() as u64;
    for (what, given) in
        [("the start of memory for rings", memory.data_offset()), ("the length of memory for rings", memory.data_len())]
    {
        if !(given as u64).is_multiple_of(page) {
            return Err(Invalid::Misaligned { what, given: given as u64, multiple_of: page });
        }
    }
    if !memory.is_writable() {
        let what = "memory for rings".into();
        return Err(Invalid::Requires { what, requires: "an owner that nobody else reads (MemoryOwner::WRITABLE)" });
    }
    if memory.len() < len {
        let (given, limit) = (memory.len() as u64, len as u64..=u64::MAX);
        return Err(Invalid::out_of_range("the length of memory for rings", given, limit, "what was asked for"));
    }
    Ok(())
}
