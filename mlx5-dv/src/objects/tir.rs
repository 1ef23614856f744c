//! Receive transport interfaces (TIRs).

use std::sync::Arc;

use mlx5_prm::cmd::{CreateTirIn, DestroyTirIn};
use mlx5_prm::ctx::{TirDispType, Tirc};

use super::check::one_device;
use super::object::{DestroyError, Object, destroy_sole};
use super::rq::Rq;
use super::tis::TransportDomain;
use crate::access::ObjectHandle;
use crate::device::Device;
use crate::error::Error;

/// Destination of [flow rules](super::FlowRule): forwards to a receive queue. PRM "Transport Interface Receive".
#[derive(Debug)]
pub struct Tir {
    tirn: u32,
    object: Object,
    rq: Arc<Rq>,
    domain: Arc<TransportDomain>,
}

impl Tir {
    /// Creates a TIR of `domain` for `rq`. It does not receive frames that send queues of `domain` sent.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the parents are of different cards, [`Error::Command`].
    pub fn create(domain: &Arc<TransportDomain>, rq: &Arc<Rq>) -> Result<Arc<Self>, Error> {
        one_device("a TIR's transport domain and RQ", domain.device(), [rq.device()])?;
        let mut context = Tirc::default();
        context.w().disp_type(TirDispType::Direct).inline_rqn(rq.rqn()).transport_domain(domain.number());
        let mut create = CreateTirIn::default();
        create.w().ctx(&context);
        let (object, out) = Object::create(domain.device(), &create, "a TIR", |out| {
            let mut end = DestroyTirIn::default();
            end.w().tirn(out.tirn());
            (end, format!("TIR {:#x}", out.tirn()))
        })?;
        Ok(Arc::new(Tir { tirn: out.tirn(), object, rq: Arc::clone(rq), domain: Arc::clone(domain) }))
    }

    /// `tirn`, 24 bits.
    pub fn tirn(&self) -> u32 {
        self.tirn
    }

    /// Its receive queue.
    pub fn rq(&self) -> &Arc<Rq> {
        &self.rq
    }

    /// Its transport domain.
    pub fn transport_domain(&self) -> &Arc<TransportDomain> {
        &self.domain
    }

    /// The access's handle.
    pub(super) fn handle(&self) -> ObjectHandle {
        self.object.handle()
    }

    /// The card.
    pub fn device(&self) -> &Arc<Device> {
        self.object.device()
    }

    /// Destroys it. Rules that forward to it must be deleted first. On an error the TIR stays alive and is returned.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, |tir| tir.object.destroy())
    }
}
