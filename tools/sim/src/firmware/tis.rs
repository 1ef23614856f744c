//! Transport interface send. PRM "Transport Interface Send".

use mlx5_prm::cmd::*;

use super::answer::Answer;
use super::caps::next_below;
use super::memory;
use super::pages;
use super::syndromes::Syndrome;
use crate::function::{Context, Function};
use crate::objects::Tis;

/// `CREATE_TIS`.
pub(super) fn create(f: &mut Function, command: &CreateTisIn) -> Answer<CreateTisOut> {
    let context = *command.ctx();
    let unannounced = context.strict_lag_tx_port_affinity()
        || context.tls_en()
        || context.lag_tx_port_affinity() != 0
        || context.underlay_qpn() != 0
        || context.pd() != 0;
    if unannounced {
        return Err(Syndrome::CapabilityNotAnnounced.into());
    }
    let number = context.transport_domain();
    f.nic.objects.transport_domains.get(number).ok_or(Syndrome::NoSuchTransportDomain)?;
    next_below(&f.nic.objects.tiss, f.nic.firmware.caps.general().log_max_tis()).ok_or(Syndrome::TooManyTiss)?;
    pages::reserve(f, Context::Interface)?;
    let tis = Tis { transport_domain: number, users: 0, context };
    let tisn = f.nic.objects.tiss.insert(tis).map_err(|_| Syndrome::TooManyTiss)?;
    use_domain(f, number, true);
    let mut output = CreateTisOut::ZERO;
    output.w().tisn(tisn);
    Ok(output)
}

/// Counts a TIS or TIR in or out of its transport domain.
pub(super) fn use_domain(f: &mut Function, number: u32, more: bool) {
    if let Some(domain) = f.nic.objects.transport_domains.get_mut(number) {
        memory::count(&mut domain.users, more);
    }
}

/// `MODIFY_TIS`: the priority.
pub(super) fn modify(f: &mut Function, command: &ModifyTisIn) -> Answer<ModifyTisOut> {
    let tis = f.nic.objects.tiss.get_mut(command.tisn()).ok_or(Syndrome::NoSuchTis)?;
    let select = command.bitmask();
    if select.lag_tx_port_affinity() || select.strict_lag_tx_port_affinity() {
        return Err(Syndrome::CapabilityNotAnnounced.into());
    }
    if select.prio() {
        tis.context.w().prio(command.ctx().prio());
    }
    Ok(ModifyTisOut::ZERO)
}

/// `QUERY_TIS`.
pub(super) fn query(f: &mut Function, command: &QueryTisIn) -> Answer<QueryTisOut> {
    let tis = f.nic.objects.tiss.get(command.tisn()).ok_or(Syndrome::NoSuchTis)?;
    let mut output = QueryTisOut::ZERO;
    output.w().tis_context(&tis.context);
    Ok(output)
}

/// `DESTROY_TIS`.
pub(super) fn destroy(f: &mut Function, command: &DestroyTisIn) -> Answer<DestroyTisOut> {
    let tis = f.nic.objects.tiss.get(command.tisn()).ok_or(Syndrome::NoSuchTis)?;
    if tis.users > 0 {
        return Err(Syndrome::TisInUse.into());
    }
    let domain = tis.transport_domain;
    f.nic.objects.tiss.remove(command.tisn());
    use_domain(f, domain, false);
    pages::release(f, Context::Interface);
    Ok(DestroyTisOut::ZERO)
}
