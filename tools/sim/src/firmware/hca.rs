//! Bring-up and teardown, capabilities, ISSI, adapter. PRM "ENABLE_HCA", "INIT_HCA", "TEARDOWN_HCA", "QUERY_HCA_CAP",
//! "QUERY_ISSI", "QUERY_ADAPTER".

use mlx5_prm::cmd::*;
use mlx5_prm::layout::Layout;

use super::answer::{Answer, own_function, own_or_embedded};
use super::pages;
use super::syndromes::Syndrome;
use crate::engine;
use crate::function::{Capabilities, Function, HcaState};
use crate::objects::{ABSENT_KEY, NULL_LKEY, RESERVED_LKEY};

/// `supported_issi_dw0`: ISSI 0 and 1.
const SUPPORTED_ISSI: u32 = 1 << 1 | 1 << 0;
/// Strict rule: Linux, and every later driver, sets step 1 where `QUERY_ISSI` announces it.
pub(super) const RULE_ISSI: &str = "INIT_HCA before SET_ISSI";
/// IEEE vendor id of the adapter's maker.
const IEEE_VENDOR_ID: u32 = 0x0002c9;
/// PCI vendor id of the adapter's maker.
const VSD_VENDOR_ID: u16 = 0x15b3;
/// `profile` of `TEARDOWN_HCA`: graceful close.
const GRACEFUL_CLOSE: u16 = 0;

/// `ENABLE_HCA`.
pub(super) fn enable(f: &mut Function, command: &EnableHcaIn) -> Answer<EnableHcaOut> {
    own_or_embedded(f, command.function_id(), command.embedded_cpu_function())?;
    f.nic.firmware.caps = Capabilities::new(&f.nic.profile);
    f.nic.firmware.state = HcaState::Enabled;
    Ok(EnableHcaOut::ZERO)
}

/// `DISABLE_HCA`.
pub(super) fn disable(f: &mut Function, command: &DisableHcaIn) -> Answer<DisableHcaOut> {
    own_or_embedded(f, command.function_id(), command.embedded_cpu_function())?;
    pages::disable(f);
    f.forget_objects();
    f.nic.port.restore();
    f.nic.firmware.current_issi = 0;
    f.nic.firmware.state = HcaState::Disabled;
    Ok(DisableHcaOut::ZERO)
}

/// `INIT_HCA`. A card goes on with the interface of step 0; no driver knows that one any more.
pub(super) fn init(f: &mut Function, _: &InitHcaIn) -> Answer<InitHcaOut> {
    f.nic.firmware.pages.check_init()?;
    if f.nic.firmware.current_issi == 0 {
        f.nic.strict.report(RULE_ISSI, || "commands have the meaning of interface step 0, the card announces 1".into());
    }
    f.nic.firmware.state = HcaState::Initialized;
    Ok(InitHcaOut::ZERO)
}

/// `TEARDOWN_HCA`. Destroys remaining objects: a card does so silently, strict mode reports them.
pub(super) fn teardown(f: &mut Function, command: &TeardownHcaIn) -> Answer<TeardownHcaOut> {
    if command.profile() != GRACEFUL_CLOSE {
        return Err(Syndrome::UnknownTeardownProfile.into());
    }
    forget_objects(f);
    f.nic.firmware.state = HcaState::Enabled;
    Ok(TeardownHcaOut::ZERO)
}

/// Destroys all objects, and keeps the port's settings.
fn forget_objects(f: &mut Function) {
    let left = f.object_count();
    if left > 0 {
        f.nic.strict.report("objects left at TEARDOWN_HCA", || describe(f));
    }
    engine::reset(f);
    let (gids, vport) = (f.nic.objects.gids.clone(), f.nic.objects.vport.clone());
    f.forget_objects();
    (f.nic.objects.gids, f.nic.objects.vport) = (gids, vport);
    f.nic.firmware.pages.empty();
}

fn describe(f: &Function) -> String {
    let (queues, objects) = (&f.queues, &f.nic.objects);
    let counts = [
        ("user contexts", objects.user_contexts.len()),
        ("PDs", objects.pds.len()),
        ("UARs", objects.uars.len()),
        ("umems", objects.umems.len()),
        ("mkeys", objects.mkeys.len()),
        ("EQs", objects.eqs.len()),
        ("CQs", objects.cqs.len()),
        ("QPs", queues.qps.len()),
        ("DCTs", queues.dcts.len()),
        ("transport domains", objects.transport_domains.len()),
        ("queue counters", objects.queue_counters.len()),
        ("L2 table entries", objects.l2_entries()),
        ("SQs", queues.sqs.len()),
        ("RQs", queues.rqs.len()),
        ("TISs", objects.tiss.len()),
        ("TIRs", objects.tirs.len()),
        ("RQTs", objects.rqts.len()),
        ("flow tables, groups and counters", objects.steering.count()),
    ];
    let named: Vec<_> =
        counts.iter().filter(|(_, count)| *count > 0).map(|(name, count)| format!("{count} {name}")).collect();
    named.join(", ")
}

/// `QUERY_ISSI`.
pub(super) fn query_issi(f: &mut Function, _: &QueryIssiIn) -> Answer<QueryIssiOut> {
    let mut output = QueryIssiOut::ZERO;
    output.w().current_issi(f.nic.firmware.current_issi).supported_issi_dw0(SUPPORTED_ISSI);
    Ok(output)
}

/// `SET_ISSI`.
pub(super) fn set_issi(f: &mut Function, command: &SetIssiIn) -> Answer<SetIssiOut> {
    let issi = command.current_issi();
    if issi > 31 || SUPPORTED_ISSI & 1 << issi == 0 {
        return Err(Syndrome::UnknownIssi.into());
    }
    f.nic.firmware.current_issi = issi;
    Ok(SetIssiOut::ZERO)
}

/// `QUERY_HCA_CAP`.
pub(super) fn query_cap(f: &mut Function, command: &QueryHcaCapIn) -> Answer<QueryHcaCapOut> {
    own_function(command.function_id(), command.other_function() || command.ec_vf_function())?;
    let page = f.nic.firmware.caps.query(command.op_mod())?;
    let mut capability = [0; 0x1000];
    capability[..page.len()].copy_from_slice(page);
    let mut output = QueryHcaCapOut::ZERO;
    output.w().capability(&capability);
    Ok(output)
}

/// `SET_HCA_CAP`.
pub(super) fn set_cap(f: &mut Function, command: &SetHcaCapIn) -> Answer<SetHcaCapOut> {
    own_function(command.function_id(), command.other_function() || command.ec_vf_function())?;
    f.nic.firmware.caps.set(command.op_mod(), command.capability())?;
    Ok(SetHcaCapOut::ZERO)
}

/// `QUERY_ADAPTER`.
pub(super) fn query_adapter(f: &mut Function, _: &QueryAdapterIn) -> Answer<QueryAdapterOut> {
    let mut output = QueryAdapterOut::ZERO;
    let mut adapter = *output.query_adapter_struct();
    let mut psid = [0; 16];
    psid[..f.nic.profile.psid.len().min(16)]
        .copy_from_slice(&f.nic.profile.psid.as_bytes()[..f.nic.profile.psid.len().min(16)]);
    adapter.w().ieee_vendor_id(IEEE_VENDOR_ID).vsd_vendor_id(VSD_VENDOR_ID).vsd_contd_psid(&psid);
    output.w().query_adapter_struct(&adapter);
    Ok(output)
}

/// `SET_DRIVER_VERSION`.
pub(super) fn set_driver_version(f: &mut Function, command: &SetDriverVersionIn) -> Answer<SetDriverVersionOut> {
    let text = command.driver_version();
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    f.nic.firmware.driver_version = String::from_utf8_lossy(&text[..end]).into_owned();
    tracing::info!(function = f.nic.index, driver = f.nic.firmware.driver_version, "driver version");
    Ok(SetDriverVersionOut::ZERO)
}

/// `QUERY_SPECIAL_CONTEXTS`. Of the special keys there are the reserved lkey, for queue pairs with `rlky`, the key of
/// the null region, for all, and the key that stands in lists of keys for absent memory.
pub(super) fn query_special_contexts(f: &mut Function, _: &QuerySpecialContextsIn) -> Answer<QuerySpecialContextsOut> {
    let mut output = QuerySpecialContextsOut::ZERO;
    output.w().resd_lkey(RESERVED_LKEY);
    if f.nic.firmware.caps.general().dump_fill_mkey() {
        output.w().dump_fill_mkey(NULL_LKEY);
    }
    if f.nic.firmware.caps.general().null_mkey() {
        output.w().null_mkey(ABSENT_KEY);
    }
    Ok(output)
}

/// `NOP`.
pub(super) fn nop(_: &mut Function, _: &NopIn) -> Answer<NopOut> {
    Ok(NopOut::ZERO)
}

/// A capability page must fit the output.
const _: () = assert!(mlx5_prm::caps::CmdHcaCap::SIZE <= 0x1000);
