//! The function's port: RoCE, MAC address, MTU, link.
//!
//! A switch in front of each port forwards unicast frames by the addresses that drivers configure, and the port drops
//! frames above its MTU. Both are configured here as Linux does. Some functions may not change some of it (a virtual
//! function's port follows the physical one's). Then the port stays unchanged, and the log says so.

use mlx5_prm::caps::CmdHcaCap;
use mlx5_prm::cmd::*;
use mlx5_prm::ctx::{AllowedListType, MacAddressLayout, ModifyNicVportFieldSelect, NicVportContext};
use mlx5_prm::layout::Layout;
use mlx5_prm::reg::{
    McamEnhancedFeatures, McamReg, MpcntReg, PaosReg, PcamEnhancedFeatures, PcamReg, PmtuReg, PortCounterGroup,
    PpcntReg, PtysReg, RegisterId,
};

use super::Owned;
use super::steps::Step;
use crate::access::{Access, RawCommand};
use crate::caps::{CapPage, Caps};
use crate::error::{CommandError, Error, Invalid};
use crate::lock::lock;
use crate::net::{Mac, PATH_HEADERS, Promiscuous};

/// Port number, as registers count.
const PORT: u8 = 1;
/// Index of the own address in the L2 table; others follow. An owned function uses its table alone.
const L2_ENTRY: u32 = 0;
/// The default minimum of `PMTU`: fits RoCE's largest path MTU.
const ROOM_FOR_ROCE: u16 = 4096 + PATH_HEADERS as u16;

/// Reads or writes a register. PRM "ACCESS_REGISTER".
pub(super) fn register<R: Layout>(card: &Owned, id: RegisterId, write: bool, with: &R) -> Result<R, CommandError> {
    const READ: u16 = 1;
    let mut access = AccessRegisterIn::default();
    access.w().register_id(id.number() as u16).op_mod(if write { 0 } else { READ });
    let mut access = WithTail::new(access, Layout::as_bytes(with).to_vec());
    access.out_tail = R::SIZE;
    let raw = RawCommand::new(&access, id.to_string());
    // SAFETY: this module's registers configure the port and byte order; none names memory.
    let output = unsafe { card.execute(raw.clone()) }?;
    raw.reply(output.get(AccessRegisterOut::SIZE..).unwrap_or_default())
}

/// Modifies the fields of the vport context that `select` names, then `list`. PRM "MODIFY_NIC_VPORT_CONTEXT".
fn modify_vport(
    card: &Owned,
    about: &str,
    select: impl FnOnce(&mut ModifyNicVportFieldSelect),
    edit: impl FnOnce(&mut NicVportContext),
    list: Vec<MacAddressLayout>,
) -> Result<(), CommandError> {
    let (mut selected, mut context) = (ModifyNicVportFieldSelect::default(), NicVportContext::default());
    select(&mut selected);
    edit(&mut context);
    let mut modify = ModifyNicVportContextIn::default();
    modify.w().field_select(&selected).nic_vport_context(&context);
    card.run(&WithTail::new(modify, list), about).map(drop)
}

/// Enables RoCE on the vport, if the card supports it.
pub(super) fn enable_roce(card: &Owned, caps: &Caps) -> Result<(), Error> {
    if !caps.roce {
        return Ok(());
    }
    set_roce(card, true)?;
    card.done(Step::Roce);
    Ok(())
}

pub(super) fn set_roce(card: &Owned, enabled: bool) -> Result<(), CommandError> {
    let about = if enabled { "RoCE on" } else { "RoCE off" };
    modify_vport(card, about, |select| _ = select.w().roce_en(true), |context| _ = context.w().roce_en(enabled), vec![])
}

/// The function's MAC address. A virtual function without one gets a random address, as on Linux.
pub(super) fn address(card: &Owned) -> Result<Mac, Error> {
    let context = *card.run(&QueryNicVportContextIn::default(), "own address")?.nic_vport_context();
    match Mac::of(context.permanent_address()) {
        Mac([0, 0, 0, 0, 0, 0]) => {
            let mac = Mac::random().map_err(|error| Error::io("making an address", error))?;
            tracing::info!(device = card.name, %mac, "the function has no MAC address: using a random one");
            Ok(mac)
        }
        own => Ok(own),
    }
}

/// Directs frames for `mac` to the function.
///
/// The e-switch manager writes addresses to the L2 table in front of the port. For other functions the manager reads
/// their lists of unicast addresses. Like Linux, this sets both.
pub(super) fn set_unicast_address(card: &Owned, caps: &Caps, mac: Mac) -> Result<(), CommandError> {
    let general: CmdHcaCap = caps.current(CapPage::General).unwrap_or(CmdHcaCap::ZERO);
    match list_address(card, Some(mac)) {
        Ok(()) => card.done(Step::UnicastList),
        Err(error) => tolerate_refusal(card, error, "the e-switch was not told the function's address")?,
    }
    if !general.eswitch_manager() || general.log_max_l2_table() == 0 {
        return Ok(());
    }
    match set_l2_entry(card, L2_ENTRY, mac) {
        Ok(()) => card.done(Step::L2Entry),
        Err(error) => tolerate_refusal(card, error, "frames from the wire may not reach the function")?,
    }
    Ok(())
}

/// Logs a refusal by firmware and continues. No reply is an error as elsewhere.
fn tolerate_refusal(card: &Owned, error: CommandError, loss: &str) -> Result<(), CommandError> {
    if error.status().is_none() {
        return Err(error);
    }
    tracing::warn!(%error, device = card.name, "{loss}");
    Ok(())
}

/// Sets the vport's list of unicast addresses.
pub(super) fn list_address(card: &Owned, mac: Option<Mac>) -> Result<(), CommandError> {
    list(card, "unicast addresses", AllowedListType::Unicast, mac.as_slice())
}

/// Sets the vport's list of unicast addresses to `own` and `others`, and as many entries of the L2 table.
pub(crate) fn set_unicast_addresses(card: &Owned, caps: &Caps, own: Mac, others: &[Mac]) -> Result<(), Error> {
    let general: CmdHcaCap = caps.current(CapPage::General).unwrap_or(CmdHcaCap::ZERO);
    let most = (1u64 << general.log_max_current_uc_list().min(31)).saturating_sub(1);
    if others.len() as u64 > most {
        let refused = Invalid::out_of_range("unicast addresses", others.len() as u64, 0..=most, "this card");
        return Err(refused.capability("log_max_current_uc_list").into());
    }
    let all: Vec<Mac> = [own].iter().chain(others).copied().collect();
    list(card, "unicast addresses", AllowedListType::Unicast, &all)?;
    if !lock(&card.done).iter().any(|step| matches!(step, Step::L2Entry)) {
        return Ok(());
    }
    let mut entries = lock(&card.l2_entries);
    // Those that are no longer wanted first: an address has one entry.
    while let Some(index) = entries.pop() {
        delete_l2_entry(card, index)?;
    }
    for (index, mac) in (L2_ENTRY + 1..).zip(others) {
        set_l2_entry(card, index, *mac)?;
        entries.push(index);
    }
    Ok(())
}

/// Sets which frames the function receives beside those to its own addresses.
pub(crate) fn set_promiscuous(card: &Owned, mode: Promiscuous) -> Result<(), CommandError> {
    let edit = |context: &mut NicVportContext| {
        context
            .w()
            .promisc_uc(mode.contains(Promiscuous::UNICAST))
            .promisc_mc(mode.contains(Promiscuous::MULTICAST))
            .promisc_all(mode.contains(Promiscuous::ALL));
    };
    modify_vport(card, "promiscuous mode", |select| _ = select.w().promisc(true), edit, vec![])
}

/// Sets the vport's list of multicast addresses.
pub(crate) fn list_groups(card: &Owned, groups: &[Mac]) -> Result<(), CommandError> {
    list(card, "multicast addresses", AllowedListType::Multicast, groups)
}

fn list(card: &Owned, about: &str, kind: AllowedListType, addresses: &[Mac]) -> Result<(), CommandError> {
    let list: Vec<_> = addresses.iter().map(|mac| mac.layout()).collect();
    let (kind, size) = (kind.number() as u8, list.len() as u16);
    let edit = |context: &mut NicVportContext| _ = context.w().allowed_list_type(kind).allowed_list_size(size);
    modify_vport(card, about, |select| _ = select.w().addresses_list(true), edit, list)
}

fn set_l2_entry(card: &Owned, index: u32, mac: Mac) -> Result<(), CommandError> {
    let mut set = SetL2TableEntryIn::default();
    set.w().table_index(index).mac_address(&mac.layout());
    card.run(&set, &mac.to_string()).map(drop)
}

fn delete_l2_entry(card: &Owned, index: u32) -> Result<(), CommandError> {
    let mut delete = DeleteL2TableEntryIn::default();
    delete.w().table_index(index);
    card.run(&delete, "").map(drop)
}

/// Deletes the entries of all addresses.
pub(super) fn delete_l2_entries(card: &Owned) -> Result<(), CommandError> {
    while let Some(index) = lock(&card.l2_entries).pop() {
        delete_l2_entry(card, index)?;
    }
    delete_l2_entry(card, L2_ENTRY)
}

/// Reads the port's MTU register. PRM "PMTU".
pub(crate) fn mtu(card: &Owned) -> Result<PmtuReg, CommandError> {
    let mut ask = PmtuReg::default();
    ask.w().local_port(PORT);
    register(card, RegisterId::Pmtu, false, &ask)
}

/// Reads the port's link register. PRM "PTYS".
pub(crate) fn link(card: &Owned) -> Result<PtysReg, CommandError> {
    const ETHERNET: u8 = 1 << 2;
    let mut ask = PtysReg::default();
    ask.w().local_port(PORT).proto_mask(ETHERNET);
    register(card, RegisterId::Ptys, false, &ask)
}

/// Reads a group of port counters; `priority` selects one where the group has a set for each. PRM "PPCNT".
pub(crate) fn counters(card: &Owned, group: PortCounterGroup, priority: u8) -> Result<PpcntReg, CommandError> {
    /// `pnat`: the port's receive buffers for the host, which groups by traffic class are about.
    const HOST: u8 = 2;
    let by_class = [PortCounterGroup::PerTrafficClass, PortCounterGroup::PerTrafficClassCongestion].contains(&group);
    let mut ask = PpcntReg::default();
    ask.w().local_port(PORT).grp(group.number() as u8).prio_tc(priority).pnat(if by_class { HOST } else { 0 });
    register(card, RegisterId::Ppcnt, false, &ask)
}

/// Reads what the port's registers can. PRM "PCAM".
pub(crate) fn features(card: &Owned) -> Result<PcamEnhancedFeatures, CommandError> {
    Ok(*register(card, RegisterId::Pcam, false, &PcamReg::default())?.feature_cap_mask())
}

/// Reads the performance counters of PCIe, and which of them the card has. PRM "MCAM", "MPCNT".
pub(crate) fn pcie_counters(card: &Owned) -> Result<(McamEnhancedFeatures, MpcntReg), CommandError> {
    let features = *register(card, RegisterId::Mcam, false, &McamReg::default())?.mng_feature_cap_mask();
    match features.pcie_performance_group() {
        true => Ok((features, register(card, RegisterId::Mpcnt, false, &MpcntReg::default())?)),
        false => Ok((McamEnhancedFeatures::ZERO, MpcntReg::ZERO)),
    }
}

/// Sets the port's MTU to `Options::mtu`. Without it, raises the MTU to fit RoCE's largest path MTU.
///
/// It is not restored when the card is closed, as on Linux: other functions may use the port.
pub(super) fn set_mtu(card: &Owned) -> Result<(), Error> {
    let (asked, now) = match (card.options.mtu, mtu(card)) {
        (asked, Ok(now)) => (asked, now),
        (Some(_), Err(error)) => return Err(error.into()),
        (None, Err(error)) => {
            tracing::debug!(%error, "the port's MTU cannot be read");
            return Ok(());
        }
    };
    let wanted = asked.unwrap_or(now.admin_mtu().max(ROOM_FOR_ROCE.min(now.max_mtu())));
    if wanted > now.max_mtu() {
        let limit = 0..=now.max_mtu().into();
        let refused = Invalid::out_of_range("Options::mtu", wanted.into(), limit, "this port").capability("max_mtu");
        return Err(refused.into());
    }
    if wanted == now.admin_mtu() && asked.is_none() {
        return Ok(());
    }
    match write_mtu(card, wanted) {
        Err(error) if asked.is_none() => tracing::debug!(%error, "the port's MTU stays unchanged"),
        other => other?,
    }
    Ok(())
}

/// Writes the port's MTU, then the vport's, which only some firmware keeps separately.
fn write_mtu(card: &Owned, mtu: u16) -> Result<(), CommandError> {
    let mut set = PmtuReg::default();
    set.w().local_port(PORT).admin_mtu(mtu);
    register(card, RegisterId::Pmtu, true, &set)?;
    let set = modify_vport(card, "MTU", |select| _ = select.w().mtu(true), |context| _ = context.w().mtu(mtu), vec![]);
    if let Err(error) = set {
        tracing::debug!(%error, "the vport's MTU stays unchanged");
    }
    Ok(())
}

/// Brings the port up, if this function may. PRM "PAOS", "QUERY_VPORT_STATE".
pub(super) fn bring_up(card: &Owned) -> Result<(), Error> {
    const UP: u8 = 1;
    let state = card.run(&QueryVportStateIn::default(), "")?;
    if !card.options.port_up || state.state() == UP {
        return Ok(());
    }
    let mut paos = PaosReg::default();
    // ase: sets the admin status.
    paos.w().local_port(PORT).admin_status(UP).ase(true);
    if let Err(error) = register(card, RegisterId::Paos, true, &paos) {
        tracing::debug!(%error, "port stays unchanged");
    }
    Ok(())
}
