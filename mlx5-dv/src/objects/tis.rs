//! Transport domains, and send transport interfaces (TISs).

use std::sync::Arc;

use mlx5_prm::cmd::{AllocTransportDomainIn, CreateTisIn, DeallocTransportDomainIn, DestroyTisIn};
use mlx5_prm::ctx::Tisc;

use super::check::fits;
use super::object::{DestroyError, Object, destroy_sole};
use crate::device::Device;
use crate::error::Error;

/// Groups transport interfaces: frames sent through a TIS are not looped back to TIRs of the same domain. PRM
/// "Transport Domain".
#[derive(Debug)]
pub struct TransportDomain {
    number: u32,
    object: Object,
}

impl TransportDomain {
    /// Allocates a transport domain. Errors: [`Error::Command`].
    pub fn alloc(device: &Arc<Device>) -> Result<Arc<Self>, Error> {
        let (object, out) = Object::create(device, &AllocTransportDomainIn::default(), "", |out| {
            let mut end = DeallocTransportDomainIn::default();
            end.w().transport_domain(out.transport_domain());
            (end, format!("transport domain {:#x}", out.transport_domain()))
        })?;
        Ok(Arc::new(TransportDomain { number: out.transport_domain(), object }))
    }

    /// `transport_domain` for contexts, 24 bits.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The card.
    pub fn device(&self) -> &Arc<Device> {
        self.object.device()
    }

    /// Frees the domain. On an error it stays alive and is returned.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, |domain| domain.object.destroy())
    }
}

/// The transport interface of send queues: sets the priority of their frames. PRM "Transport Interface Send".
#[derive(Debug)]
pub struct Tis {
    tisn: u32,
    object: Object,
    domain: Arc<TransportDomain>,
}

impl Tis {
    /// Creates a TIS of `domain` for frames of Ethernet priority `priority`, 0 to 7.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a priority out of range, [`Error::Command`].
    pub fn create(domain: &Arc<TransportDomain>, priority: u8) -> Result<Arc<Self>, Error> {
        fits("priority", priority.into(), 3)?;
        let mut context = Tisc::default();
        // The field's lowest bit is not part of the priority.
        context.w().prio(priority << 1).transport_domain(domain.number());
        let mut create = CreateTisIn::default();
        create.w().ctx(&context);
        let (object, out) = Object::create(domain.device(), &create, "a TIS", |out| {
            let mut end = DestroyTisIn::default();
            end.w().tisn(out.tisn());
            (end, format!("TIS {:#x}", out.tisn()))
        })?;
        Ok(Arc::new(Tis { tisn: out.tisn(), object, domain: Arc::clone(domain) }))
    }

    /// `tisn`, 24 bits.
    pub fn tisn(&self) -> u32 {
        self.tisn
    }

    /// Its transport domain.
    pub fn transport_domain(&self) -> &Arc<TransportDomain> {
        &self.domain
    }

    /// The card.
    pub fn device(&self) -> &Arc<Device> {
        self.object.device()
    }

    /// Destroys it. Its send queues must be destroyed first. On an error the TIS stays alive and is returned.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, |tis| tis.object.destroy())
    }
}
