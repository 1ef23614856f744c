//! Protection domains and transport domains.

use mlx5_prm::cmd::*;

use super::caps::next_below;
use super::command::Answer;
use super::pages::{self, Context};
use super::syndromes::Syndrome;
use crate::function::Function;
use crate::objects::{Pd, TransportDomain};

/// `ALLOC_PD`.
pub(super) fn alloc(f: &mut Function, _: &AllocPdIn) -> Answer<AllocPdOut> {
    next_below(&f.objects.pds, f.firmware.caps.general().log_max_pd()).ok_or(Syndrome::TooManyPds)?;
    pages::reserve(f, Context::Pd)?;
    let pd = f.objects.pds.insert(Pd { users: 0 }).map_err(|_| Syndrome::TooManyPds)?;
    let mut output = AllocPdOut::ZERO;
    output.w().pd(pd);
    Ok(output)
}

/// `DEALLOC_PD`.
pub(super) fn dealloc(f: &mut Function, command: &DeallocPdIn) -> Answer<DeallocPdOut> {
    let pd = f.objects.pds.get(command.pd()).ok_or(Syndrome::NoSuchPd)?;
    if pd.users > 0 {
        return Err(Syndrome::PdInUse.into());
    }
    f.objects.pds.remove(command.pd());
    pages::release(f, Context::Pd);
    Ok(DeallocPdOut::ZERO)
}

/// `ALLOC_TRANSPORT_DOMAIN`.
pub(super) fn alloc_transport_domain(f: &mut Function, _: &AllocTransportDomainIn) -> Answer<AllocTransportDomainOut> {
    let limit = f.firmware.caps.general().log_max_transport_domain();
    next_below(&f.objects.transport_domains, limit).ok_or(Syndrome::TooManyTransportDomains)?;
    pages::reserve(f, Context::TransportDomain)?;
    let number = f
        .objects
        .transport_domains
        .insert(TransportDomain { users: 0 })
        .map_err(|_| Syndrome::TooManyTransportDomains)?;
    let mut output = AllocTransportDomainOut::ZERO;
    output.w().transport_domain(number);
    Ok(output)
}

/// `DEALLOC_TRANSPORT_DOMAIN`.
pub(super) fn dealloc_transport_domain(
    f: &mut Function,
    command: &DeallocTransportDomainIn,
) -> Answer<DeallocTransportDomainOut> {
    let number = command.transport_domain();
    if f.objects.transport_domains.get(number).ok_or(Syndrome::NoSuchTransportDomain)?.users > 0 {
        return Err(Syndrome::TransportDomainInUse.into());
    }
    f.objects.transport_domains.remove(number);
    pages::release(f, Context::TransportDomain);
    Ok(DeallocTransportDomainOut::ZERO)
}
