//! XRC domains.

use std::sync::Arc;

use mlx5_prm::caps::CmdHcaCap;
use mlx5_prm::cmd::{AllocXrcdIn, DeallocXrcdIn};

use super::object::{DestroyError, Object, destroy_sole};
use crate::caps::CapPage;
use crate::device::Device;
use crate::error::Error;

/// An XRC domain. A target queue pair delivers each message to the shared receive queue of its domain that the message
/// names. IBTA A14.
#[derive(Debug)]
pub struct Xrcd {
    xrcd: u32,
    object: Object,
}

impl Xrcd {
    /// Allocates a domain. Errors: [`Error::Unsupported`] on a card without XRC, [`Error::Command`].
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

    /// Deallocates the domain. Its queues must have been destroyed. Errors: the domain, which stays alive, and the
    /// reason.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, |xrcd| xrcd.object.destroy())
    }
}
