//! Transport interface receive. PRM "Transport Interface Receive".

use std::time::Duration;

use mlx5_prm::cmd::*;
use mlx5_prm::ctx::{
    L3ProtType, L4ProtType, LRO_SIZE_UNIT, MERGE_IPV4_LRO, MERGE_IPV6_LRO, RxHashFn, TirDispType, Tirc,
};

use super::answer::Answer;
use super::caps::next_below;
use super::pages;
use super::syndromes::Syndrome;
use super::tis::use_domain;
use crate::function::{Context, Function};
use crate::objects::{Dispatch, Lro, Tir};
use crate::steering::Use;
use crate::steering::hash::{FIELDS, Hashing};

/// `self_lb_block`. Despite the name, a set bit lets own frames through: drivers that use loopback set it, and Linux
/// clears it so that a bridge does not receive its own broadcasts.
const TAKE_UNICAST: u8 = 1;
const TAKE_MULTICAST: u8 = 2;

/// `transport_domain` of a TIR that takes no frames of its own: DPDK's for frames to be dropped, which it makes before
/// it has a domain.
const NO_DOMAIN: u32 = 0;

/// `CREATE_TIR`.
pub(super) fn create(f: &mut Function, command: &CreateTirIn) -> Answer<CreateTirOut> {
    let context = *command.ctx();
    let (dispatch, lro) = (dispatch(f, &context)?, lro(f, &context)?);
    let number = context.transport_domain();
    if number != NO_DOMAIN {
        f.nic.objects.transport_domains.get(number).ok_or(Syndrome::NoSuchTransportDomain)?;
    }
    next_below(&f.nic.objects.tirs, f.nic.firmware.caps.general().log_max_tir()).ok_or(Syndrome::TooManyTirs)?;
    pages::reserve(f, Context::Interface)?;
    let tir = Tir {
        dispatch,
        transport_domain: number,
        takes_own: takes_own(&context),
        looks_inside: context.tunneled_offload_en(),
        lro,
        context,
    };
    let tirn = f.nic.objects.tirs.insert(tir).map_err(|_| Syndrome::TooManyTirs)?;
    use_domain(f, number, true);
    let mut output = CreateTirOut::ZERO;
    output.w().tirn(tirn);
    Ok(output)
}

fn takes_own(context: &Tirc) -> (bool, bool) {
    let take = context.self_lb_block();
    (take & TAKE_UNICAST != 0, take & TAKE_MULTICAST != 0)
}

fn dispatch(f: &Function, context: &Tirc) -> Result<Dispatch, Syndrome> {
    let inner = context.rx_hash_field_selector_inner();
    let caps = f.nic.firmware.capabilities().ethernet();
    let looks_inside = caps.tunnel_stateless_vxlan()
        || caps.tunnel_stateless_gre()
        || caps.tunnel_stateless_geneve_rx()
        || caps.tunnel_stateless_ip_over_ip_rx();
    // A hash of inner headers needs a TIR that looks at them.
    let asks = context.tunneled_offload_en() || inner.selected_fields() != 0;
    if context.tls_en() || asks && !(looks_inside && context.tunneled_offload_en()) {
        return Err(Syndrome::CapabilityNotAnnounced);
    }
    match context.disp_type() {
        TirDispType::Direct => {
            f.queues.rqs.get(context.inline_rqn()).ok_or(Syndrome::NoSuchRq)?;
            Ok(Dispatch::Direct(context.inline_rqn()))
        }
        TirDispType::Indirect => {
            f.nic.objects.rqts.get(context.indirect_table()).ok_or(Syndrome::NoSuchRqt)?;
            Ok(Dispatch::Indirect(context.indirect_table(), hashing(context)?))
        }
        _ => Err(Syndrome::TirDispatch),
    }
}

/// Large receive offload as the context asks for it.
fn lro(f: &Function, context: &Tirc) -> Result<Option<Lro>, Syndrome> {
    let (mask, caps) = (context.packet_merge_mask(), &f.nic.firmware.capabilities().ethernet);
    let asks = mask != 0 || context.lro_timeout_period_usecs() != 0 || context.lro_max_ip_payload_size() != 0;
    if asks && !caps.lro_cap() || mask & !(MERGE_IPV4_LRO | MERGE_IPV6_LRO) != 0 {
        return Err(Syndrome::CapabilityNotAnnounced);
    }
    if mask == 0 {
        return Ok(None);
    }
    if context.lro_max_ip_payload_size() == 0 {
        return Err(Syndrome::LroSize);
    }
    let period = u32::from(context.lro_timeout_period_usecs());
    if !caps.lro_timer_supported_periods().iter().any(|supported| supported.get() == period) {
        return Err(Syndrome::LroTimeout);
    }
    Ok(Some(Lro {
        joins: (mask & MERGE_IPV4_LRO != 0, mask & MERGE_IPV6_LRO != 0),
        largest: (u32::from(context.lro_max_ip_payload_size()) * LRO_SIZE_UNIT) as usize,
        least_data: caps.lro_min_mss_size().into(),
        patience: Duration::from_micros(period.into()),
    }))
}

fn hashing(context: &Tirc) -> Result<Hashing, Syndrome> {
    let function = context.rx_hash_fn();
    if matches!(function, RxHashFn::Unknown(_)) {
        return Err(Syndrome::TirHash);
    }
    let inner = context.rx_hash_field_selector_inner();
    let is_inner = inner.selected_fields() != 0;
    let outer = context.rx_hash_field_selector_outer();
    let select = if is_inner { inner } else { outer };
    if is_inner && outer.selected_fields() != 0 {
        return Err(Syndrome::TirHash);
    }
    if select.selected_fields() & !FIELDS != 0 {
        return Err(Syndrome::TirHash);
    }
    let mut key = [0; 40];
    for (place, word) in key.chunks_exact_mut(4).zip(context.rx_hash_toeplitz_key()) {
        place.copy_from_slice(&word.get().to_be_bytes());
    }
    Ok(Hashing {
        function,
        key,
        is_symmetric: context.rx_hash_symmetric(),
        is_v6: select.l3_prot_type() == L3ProtType::Ipv6,
        is_udp: select.l4_prot_type() == L4ProtType::Udp,
        fields: select.selected_fields(),
        is_inner,
    })
}

/// `MODIFY_TIR`: the hash, large receive offload, and whether frames of its own transport domain are accepted.
pub(super) fn modify(f: &mut Function, command: &ModifyTirIn) -> Answer<ModifyTirOut> {
    let (select, wanted) = (command.bitmask(), command.ctx());
    let mut context = f.nic.objects.tirs.get(command.tirn()).ok_or(Syndrome::NoSuchTir)?.context;
    if select.packet_merge() {
        context
            .w()
            .packet_merge_mask(wanted.packet_merge_mask())
            .lro_max_ip_payload_size(wanted.lro_max_ip_payload_size())
            .lro_timeout_period_usecs(wanted.lro_timeout_period_usecs());
    }
    if select.hash() {
        context
            .w()
            .rx_hash_fn(wanted.rx_hash_fn())
            .rx_hash_symmetric(wanted.rx_hash_symmetric())
            .rx_hash_toeplitz_key(wanted.rx_hash_toeplitz_key())
            .rx_hash_field_selector_outer(wanted.rx_hash_field_selector_outer())
            .rx_hash_field_selector_inner(wanted.rx_hash_field_selector_inner());
    }
    if select.self_lb_en() {
        context.w().self_lb_block(wanted.self_lb_block());
    }
    let (dispatch, lro) = (dispatch(f, &context)?, lro(f, &context)?);
    if let Some(tir) = f.nic.objects.tirs.get_mut(command.tirn()) {
        *tir = Tir { dispatch, takes_own: takes_own(&context), lro, context, ..*tir };
    }
    Ok(ModifyTirOut::ZERO)
}

/// `QUERY_TIR`.
pub(super) fn query(f: &mut Function, command: &QueryTirIn) -> Answer<QueryTirOut> {
    let tir = f.nic.objects.tirs.get(command.tirn()).ok_or(Syndrome::NoSuchTir)?;
    let mut output = QueryTirOut::ZERO;
    output.w().tir_context(&tir.context);
    Ok(output)
}

/// `DESTROY_TIR`, if no flow entry uses it.
pub(super) fn destroy(f: &mut Function, command: &DestroyTirIn) -> Answer<DestroyTirOut> {
    let tir = f.nic.objects.tirs.get(command.tirn()).ok_or(Syndrome::NoSuchTir)?;
    let domain = tir.transport_domain;
    if f.nic.objects.steering.is_used(Use::Tir(command.tirn())) {
        return Err(Syndrome::TirInUse.into());
    }
    f.nic.objects.tirs.remove(command.tirn());
    use_domain(f, domain, false);
    pages::release(f, Context::Interface);
    Ok(DestroyTirOut::ZERO)
}
