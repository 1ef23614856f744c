//! Protection domains.

use std::sync::Arc;

use mlx5_prm::cmd::{AllocPdIn, DeallocPdIn};

use super::kernel_object::{KernelObject, PdHandle, shared};
use super::object::{DestroyError, Object, destroy_sole};
use crate::access::{KernelObjectKind, ObjectHandle};
use crate::device::Device;
use crate::error::Error;

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
        }
    }

    /// Frees the domain, if it is not imported. On an error it stays alive and is returned.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, |pd| match &mut pd.holder {
            Holder::Firmware(object) => object.destroy(),
            Holder::Kernel(object) => object.destroy(),
        })
    }
}
