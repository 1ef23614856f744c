//! XRC domains.

use std::sync::Arc;

use mlx5_prm::caps::CmdHcaCap;
use mlx5_prm::cmd::{AllocXrcdIn, DeallocXrcdIn};

use super::object::{DestroyError, Object, destroy_sole};
use crate::caps::CapPage;
use crate::device::Device;
use crate::error::Error;

/// An XRC domain: a target queue pair of one hands messages to the shared receive queues of it, whichever a message
/// names. IBTA A14.
#[derive(Debug)]
pub struct Xrcd {
    xrcd: u32,
    object: Object,
}

impl Xrcd {
    /// A new domain. Errors: [`Error::Unsupported`] on a card without XRC, [`Error::Command`].
    pub fn alloc(device: &Arc<Device>) -> Result<Arc<Self>, Error> {
        if !device.caps().current::<CmdHcaCap>(CapPage::General).is_some_and(|general| general.xrc()) {
            return Err(Error::Unsupported { what: "extended reliable connections".into(), capability: "xrc" });
        }
        let (object, out) = Object::create(device, &AllocXrcdIn::default(), "", |out| {
            let mut end = DeallocXrcdIn::default();
            end.w().xrcd(out.xrcd());
            (end, format!("XRC domain {:#x}", out.xrcd()))
        })?;
        Ok(Arc::new(Xrcd { xrcd: out.xrcd(), object }))
    }

    /// `xrcd` for contexts, 24 bits.
    pub fn xrcd(&self) -> u32 {
        self.xrcd
    }

    /// The card.
    pub fn device(&self) -> &Arc<Device> {
        self.object.device()
    }

    /// Gives it back. Its queues must be gone. Errors: the domain, kept alive, and why.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, |xrcd| xrcd.object.destroy())
    }
}
