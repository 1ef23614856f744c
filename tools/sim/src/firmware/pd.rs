//! Protection domains and transport domains. PRM "Protection Domain", "Transport Domain".

use mlx5_prm::cmd::*;

use super::answer::Answer;
use super::caps::next_below;
use super::pages;
use super::syndromes::Syndrome;
use crate::function::{Context, Function};
use crate::objects::{Pd, TransportDomain};

/// `ALLOC_PD`.
pub(super) fn alloc(f: &mut Function, _: &AllocPdIn) -> Answer<AllocPdOut> {
    next_below(&f.nic.objects.pds, f.nic.firmware.caps.general().log_max_pd()).ok_or(Syndrome::TooManyPds)?;
    pages::reserve(f, Context::Pd)?;
    let pd = f.nic.objects.pds.insert(Pd { users: 0 }).map_err(|_| Syndrome::TooManyPds)?;
    let mut output = AllocPdOut::ZERO;
    output.w().pd(pd);
    Ok(output)
}

/// `DEALLOC_PD`.
pub(super) fn dealloc(f: &mut Function, command: &DeallocPdIn) -> Answer<DeallocPdOut> {
    let pd = f.nic.objects.pds.get(command.pd()).ok_or(Syndrome::NoSuchPd)?;
    if pd.users > 0 {
        return Err(Syndrome::PdInUse.into());
    }
    f.nic.objects.pds.remove(command.pd());
    pages::release(f, Context::Pd);
    Ok(DeallocPdOut::ZERO)
}

/// `ALLOC_TRANSPORT_DOMAIN`.
pub(super) fn alloc_transport_domain(f: &mut Function, _: &AllocTransportDomainIn) -> Answer<AllocTransportDomainOut> {
    let limit = f.nic.firmware.caps.general().log_max_transport_domain();
    next_below(&f.nic.objects.transport_domains, limit).ok_or(Syndrome::TooManyTransportDomains)?;
    pages::reserve(f, Context::TransportDomain)?;
    let number = f
        .nic
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
    if f.nic.objects.transport_domains.get(number).ok_or(Syndrome::NoSuchTransportDomain)?.users > 0 {
        return Err(Syndrome::TransportDomainInUse.into());
    }
    f.nic.objects.transport_domains.remove(number);
    pages::release(f, Context::TransportDomain);
    Ok(DeallocTransportDomainOut::ZERO)
}
