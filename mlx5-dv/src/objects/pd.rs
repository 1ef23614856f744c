//! Protection domains.

use std::sync::Arc;

use mlx5_prm::cmd::{AllocPdIn, DeallocPdIn};

use super::object::{DestroyError, Object, destroy_sole};
use crate::device::Device;
use crate::error::Error;

/// A protection domain: its queue pairs can use its keys. PRM "Protection Domain".
#[derive(Debug)]
pub struct Pd {
    pdn: u32,
    object: Object,
}

impl Pd {
    /// Allocates a protection domain. Errors: [`Error::Command`].
    pub fn alloc(device: &Arc<Device>) -> Result<Arc<Self>, Error> {
        let (object, out) = Object::create(device, &AllocPdIn::default(), "", |out| {
            let mut end = DeallocPdIn::default();
            end.w().pd(out.pd());
            (end, format!("PD {:#x}", out.pd()))
        })?;
        Ok(Arc::new(Pd { pdn: out.pd(), object }))
    }

    /// `pd` for contexts, 24 bits.
    pub fn pdn(&self) -> u32 {
        self.pdn
    }

    /// The card.
    pub fn device(&self) -> &Arc<Device> {
        self.object.device()
    }

    /// Frees the domain. On an error it stays alive and is returned.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, |pd| pd.object.destroy())
    }
}
