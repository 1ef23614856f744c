//! The function's own vport: context and state. PRM `nic_vport_context`.

use mlx5_prm::caps::{CmdHcaCap, PortType};
use mlx5_prm::cmd::*;
use mlx5_prm::ctx::{HcaVportContext, ModifyNicVportFieldSelect, NicVportContext, TrafficCounter};
use mlx5_prm::layout::Layout;

use super::answer::Answer;
use super::link;
use super::syndromes::Syndrome;
use crate::function::Function;
use crate::objects::Vport;
use crate::transport::packet::Mac;
use crate::wire::{BothWays, Port, Traffic};

/// Smallest and largest `mtu`, of the vport and of the port.
pub(super) const MTU: std::ops::RangeInclusive<u16> = 68..=Port::MAX_MTU;
/// Bytes of a list entry.
const ENTRY: usize = 8;
/// `allowed_list_type`.
mod list {
    pub(super) const UNICAST: u8 = 0;
    pub(super) const MULTICAST: u8 = 1;
    pub(super) const VLAN: u8 = 2;
}
/// `pkey_index`: the whole table.
const ALL_PKEYS: u16 = 0xffff;
/// The default P_Key, full membership. IBTA 10.9.1.2.
const DEFAULT_PKEY: u16 = 0xffff;
/// LID of an InfiniBand port, and of its subnet manager.
const LID: u16 = 1;
/// `admin_state`: follows the port's state.
const ADMIN_AUTO: u8 = 2;

fn own(other_vport: bool, vport_number: u16) -> Result<(), Syndrome> {
    if other_vport || vport_number != 0 { Err(Syndrome::OtherVport) } else { Ok(()) }
}

/// Whether the port is InfiniBand's. PRM `cmd_hca_cap.port_type`.
pub(super) fn is_infiniband(f: &Function) -> bool {
    PortType::from_number(f.nic.firmware.caps.general().port_type().into()) == PortType::Ib
}

fn on_ethernet(f: &Function) -> Result<(), Syndrome> {
    if is_infiniband(f) { Err(Syndrome::NotEthernet) } else { Ok(()) }
}

/// `QUERY_NIC_VPORT_CONTEXT`: the context, and one of its lists.
pub(super) fn query_context(
    f: &mut Function,
    command: &QueryNicVportContextIn,
    _: &[u8],
    room: usize,
) -> Answer<(QueryNicVportContextOut, Vec<u8>)> {
    on_ethernet(f)?;
    own(command.other_vport(), command.vport_number())?;
    let vport = &f.nic.objects.vport;
    let entries: Vec<[u8; ENTRY]> = match command.allowed_list_type() {
        list::UNICAST => vport.unicast.iter().map(mac_entry).collect(),
        list::MULTICAST => vport.multicast.iter().map(mac_entry).collect(),
        list::VLAN => vport.vlans.iter().map(|vlan| u64::from(*vlan).to_be_bytes()).collect(),
        _ => return Err(Syndrome::VportListType.into()),
    };
    let fits = entries.len().min(room / ENTRY);
    let mut context = vport.context;
    context.w().allowed_list_type(command.allowed_list_type()).allowed_list_size(fits as u16);
    let mut output = QueryNicVportContextOut::ZERO;
    output.w().nic_vport_context(&context);
    Ok((output, entries[..fits].concat()))
}

fn mac_entry([a, b, c, d, e, f]: &[u8; 6]) -> [u8; ENTRY] {
    [0, 0, *a, *b, *c, *d, *e, *f]
}

/// `MODIFY_NIC_VPORT_CONTEXT`: the fields that `field_select` names.
pub(super) fn modify_context(
    f: &mut Function,
    command: &ModifyNicVportContextIn,
    tail: &[u8],
) -> Answer<ModifyNicVportContextOut> {
    on_ethernet(f)?;
    own(command.other_vport(), command.vport_number())?;
    let (select, wanted) = (command.field_select(), command.nic_vport_context());
    let mut vport = f.nic.objects.vport.clone();
    let unannounced = select.affiliation()
        || select.node_guid()
        || select.port_guid()
        || select.disable_uc_local_lb()
        || select.disable_mc_local_lb()
        // `nic_vport_change_event`: such events are never sent.
        || select.change_event();
    if unannounced {
        return Err(Syndrome::CapabilityNotAnnounced.into());
    }
    if select.mtu() && !MTU.contains(&wanted.mtu()) {
        return Err(Syndrome::VportMtu.into());
    }
    if select.addresses_list() {
        set_list(&mut vport, f.nic.firmware.caps.general(), wanted, tail)?;
    }
    set_fields(&mut vport.context, select, wanted);
    f.nic.objects.vport = vport;
    Ok(ModifyNicVportContextOut::ZERO)
}

fn set_fields(context: &mut NicVportContext, select: &ModifyNicVportFieldSelect, wanted: &NicVportContext) {
    if select.roce_en() {
        context.w().roce_en(wanted.roce_en());
    }
    if select.permanent_address() {
        context.w().permanent_address(wanted.permanent_address());
    }
    if select.mtu() {
        context.w().mtu(wanted.mtu());
    }
    if select.min_inline() {
        context.w().min_wqe_inline_mode(wanted.min_wqe_inline_mode());
    }
    if select.promisc() {
        context.w().promisc_uc(wanted.promisc_uc()).promisc_mc(wanted.promisc_mc()).promisc_all(wanted.promisc_all());
    }
}

/// Replaces one list, up to its announced maximum.
fn set_list(vport: &mut Vport, caps: &CmdHcaCap, wanted: &NicVportContext, tail: &[u8]) -> Result<(), Syndrome> {
    let log_most = match wanted.allowed_list_type() {
        list::UNICAST => caps.log_max_current_uc_list(),
        list::MULTICAST => caps.log_max_current_mc_list(),
        list::VLAN => caps.log_max_vlan_list(),
        _ => return Err(Syndrome::VportListType),
    };
    let size = usize::from(wanted.allowed_list_size());
    if size > 1 << log_most {
        return Err(Syndrome::VportList);
    }
    let (bytes, beyond) = tail.split_at_checked(size * ENTRY).ok_or(Syndrome::InputListLength)?;
    if beyond.iter().any(|byte| *byte != 0) {
        return Err(Syndrome::InputListLength);
    }
    let (entries, _) = bytes.as_chunks::<ENTRY>();
    match wanted.allowed_list_type() {
        list::UNICAST => vport.unicast = macs(entries, false)?,
        list::MULTICAST => vport.multicast = macs(entries, true)?,
        _ => vport.vlans = entries.iter().map(|entry| u16::from_be_bytes([entry[6], entry[7]]) & 0xfff).collect(),
    }
    Ok(())
}

/// The addresses of a list, which must be all multicast or all unicast.
fn macs(entries: &[[u8; ENTRY]], of_groups: bool) -> Result<Vec<Mac>, Syndrome> {
    let mac = |[high, low, a, b, c, d, e, f]: &[u8; ENTRY]| match (high, low, a & 1 != 0) {
        (0, 0, is_group) if is_group == of_groups => Ok([*a, *b, *c, *d, *e, *f]),
        _ => Err(Syndrome::VportListAddress),
    };
    entries.iter().map(mac).collect()
}

/// `QUERY_VPORT_STATE`. `op_mod` 0 is the function's own vport, 2 the uplink.
pub(super) fn query_state(f: &mut Function, command: &QueryVportStateIn) -> Answer<QueryVportStateOut> {
    own(command.other_vport(), command.vport_number())?;
    if !matches!(command.op_mod(), 0 | 2) {
        return Err(Syndrome::UnknownOpMod.into());
    }
    let mut output = QueryVportStateOut::ZERO;
    output.w().admin_state(f.nic.objects.vport.admin_state).state(u8::from(f.nic.port.link_up));
    Ok(output)
}

/// `MODIFY_VPORT_STATE`.
pub(super) fn modify_state(f: &mut Function, command: &ModifyVportStateIn) -> Answer<ModifyVportStateOut> {
    own(command.other_vport(), command.vport_number())?;
    if !matches!(command.op_mod(), 0 | 2) {
        return Err(Syndrome::UnknownOpMod.into());
    }
    if command.admin_state() > ADMIN_AUTO {
        return Err(Syndrome::VportAdminState.into());
    }
    f.nic.objects.vport.admin_state = command.admin_state();
    link::follow(f);
    Ok(ModifyVportStateOut::ZERO)
}

/// `QUERY_VPORT_COUNTER`: frames since power-on, or since a query that cleared the counters.
pub(super) fn query_counter(f: &mut Function, command: &QueryVportCounterIn) -> Answer<QueryVportCounterOut> {
    own(command.other_vport(), command.vport_number())?;
    let counters = &mut f.nic.port.counters;
    let traffic = |traffic: Traffic| {
        let mut counter = TrafficCounter::ZERO;
        counter.w().packets(traffic.packets).octets(traffic.octets);
        counter
    };
    let (BothWays { received, sent }, rdma) = (counters.ethernet, counters.rdma);
    let mut output = QueryVportCounterOut::ZERO;
    output
        .w()
        .received_eth_unicast(&traffic(received.unicast))
        .received_eth_multicast(&traffic(received.multicast))
        .received_eth_broadcast(&traffic(received.broadcast))
        .transmitted_eth_unicast(&traffic(sent.unicast))
        .transmitted_eth_multicast(&traffic(sent.multicast))
        .transmitted_eth_broadcast(&traffic(sent.broadcast))
        .received_ib_unicast(&traffic(rdma.received.unicast))
        .received_ib_multicast(&traffic(rdma.received.multicast))
        .transmitted_ib_unicast(&traffic(rdma.sent.unicast))
        .transmitted_ib_multicast(&traffic(rdma.sent.multicast));
    if command.clear() {
        (counters.ethernet, counters.rdma) = (BothWays::default(), BothWays::default());
    }
    Ok(output)
}

/// `QUERY_HCA_VPORT_CONTEXT`: that of a port whose subnet manager has done its work. Packets of InfiniBand are not
/// modelled.
pub(super) fn query_hca_context(f: &mut Function, command: &QueryHcaVportContextIn) -> Answer<QueryHcaVportContextOut> {
    /// PortState and PortPhysicalState. IBTA 14.2.5.6.
    const DOWN: (u8, u8) = (1, 2);
    const ACTIVE: (u8, u8) = (4, 5);
    const FOLLOWS: u8 = 2;
    if !is_infiniband(f) {
        return Err(Syndrome::NotInfiniband.into());
    }
    own(command.other_vport(), command.vport_number())?;
    if command.port_num() > f.nic.firmware.caps.general().num_ports() {
        return Err(Syndrome::PkeyPort.into());
    }
    let (state, physical) = if f.nic.port.link_up { ACTIVE } else { DOWN };
    let mut context = HcaVportContext::ZERO;
    context
        .w()
        .vport_state(state)
        .port_state(state)
        .port_physical_state(physical)
        .vport_state_policy(FOLLOWS)
        .lid(LID)
        .sm_lid(LID);
    let mut output = QueryHcaVportContextOut::ZERO;
    output.w().hca_vport_context(&context);
    Ok(output)
}

/// `QUERY_HCA_VPORT_PKEY`: the table has one entry, the default P_Key. IBTA A17.4.7.
pub(super) fn query_pkey(
    f: &mut Function,
    command: &QueryHcaVportPkeyIn,
    _: &[u8],
    room: usize,
) -> Answer<(QueryHcaVportPkeyOut, Vec<u8>)> {
    own(command.other_vport(), command.vport_number())?;
    if command.port_num() > f.nic.firmware.caps.general().num_ports() {
        return Err(Syndrome::PkeyPort.into());
    }
    if !matches!(command.pkey_index(), 0 | ALL_PKEYS) {
        return Err(Syndrome::PkeyTable.into());
    }
    let mut entry = Pkey::ZERO;
    entry.w().pkey(DEFAULT_PKEY);
    let list = if room < Pkey::SIZE { Vec::new() } else { entry.as_bytes().to_vec() };
    Ok((QueryHcaVportPkeyOut::ZERO, list))
}

/// The fixed part of the modify input ends where its lists start.
const _: () = assert!(ModifyNicVportContextIn::SIZE == 0x200);
