//! Transport domains, and send transport interfaces (TISs).

use std::sync::Arc;

use mlx5_prm::caps::CmdHcaCap;
use mlx5_prm::cmd::{AllocTransportDomainIn, CreateTisIn, DeallocTransportDomainIn, DestroyTisIn, QueryTisIn};
use mlx5_prm::ctx::Tisc;

use super::check::{fits, lag_port};
use super::object::{DestroyError, Object, destroy_sole};
use crate::caps::{CapPage, Caps};
use crate::device::Device;
use crate::error::Error;
use crate::setters::setters;

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

/// Options of a [`Tis`].
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct TisOptions {
    /// Ethernet priority of its frames, 0 to 7. Default: 0.
    pub priority: u8,
    /// The port of a bond by which its frames leave, from 1 (`lag_tx_port_affinity`). Default: the card's choice.
    pub lag_port: Option<u8>,
}

setters! {
    TisOptions {
        priority: u8;
        lag_port: Some(u8);
    }
}

impl TisOptions {
    /// The context, without its domain, for a card with `caps`.
    fn context(&self, caps: &Caps) -> Result<Tisc, Error> {
        fits("priority", self.priority.into(), 3)?;
        let general: CmdHcaCap = caps.current(CapPage::General).unwrap_or_default();
        let may_choose = ("lag_tx_port_affinity", general.lag_tx_port_affinity());
        let mut context = Tisc::default();
        // The priority field's lowest bit is not part of it.
        context.w().prio(self.priority << 1);
        context.w().lag_tx_port_affinity(lag_port(self.lag_port, "a TIS", &general, may_choose)?);
        Ok(context)
    }
}

/// The transport interface of send queues: sets the priority of their frames, and their port of a bond. PRM "Transport
/// Interface Send".
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
        Self::with_options(domain, TisOptions::default().priority(priority))
    }

    /// Creates a TIS of `domain`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a port where the card is no bond (`num_lag_ports`), or its TISs choose none
    /// (`lag_tx_port_affinity`); otherwise as for [`create`](Self::create).
    pub fn with_options(domain: &Arc<TransportDomain>, options: TisOptions) -> Result<Arc<Self>, Error> {
        let mut context = options.context(domain.device().caps())?;
        context.w().transport_domain(domain.number());
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

    /// Asks the card for its context, under PRM names: transport domain, priority, port of a bond. PRM "QUERY_TIS".
    /// Errors: [`Error::Command`].
    pub fn query(&self) -> Result<Tisc, Error> {
        let mut query = QueryTisIn::default();
        query.w().tisn(self.tisn);
        Ok(*self.object.query(&query)?.tis_context())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caps::RawPage;
    use mlx5_prm::layout::Layout;

    #[test]
    fn the_port_of_a_bond_is_beside_the_priority_in_the_context() {
        let caps = |may_choose: bool| {
            let mut general = CmdHcaCap::ZERO;
            general.w().num_lag_ports(2).lag_tx_port_affinity(may_choose);
            let page = RawPage { page: CapPage::General, max: vec![], current: general.as_bytes().to_vec() };
            Caps { pages: vec![page], ..Caps::default() }
        };
        let options = TisOptions::default().priority(5);
        let context = options.context(&caps(false)).unwrap();
        assert_eq!((context.prio(), context.lag_tx_port_affinity()), (10, 0));
        let context = options.lag_port(2).context(&caps(true)).unwrap();
        assert_eq!((context.prio(), context.lag_tx_port_affinity()), (10, 2));
        let refused = options.lag_port(2).context(&caps(false)).unwrap_err().to_string();
        assert!(refused.contains("a TIS's choice of a port of a bond") && refused.contains("lag_tx_port_affinity"));
    }
}
