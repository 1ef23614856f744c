//! The GID table. IBTA A17.4.3.

use mlx5_prm::cmd::*;
use mlx5_prm::ctx::RoceAddrLayout;

use super::answer::Answer;
use super::syndromes::Syndrome;
use crate::function::Function;
use crate::objects::RoceAddress;

/// `roce_version`: RoCE v2.
const ROCE_V2: u8 = 2;
/// `roce_l3_type`.
const L3_IPV4: u8 = 0;
const L3_IPV6: u8 = 1;
/// Prefix of an IPv4-mapped IPv6 address. IBTA A17.4.1.1.
const IPV4_MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// `SET_ROCE_ADDRESS`. An address of all zeros clears the entry.
pub(super) fn set(f: &mut Function, command: &SetRoceAddressIn) -> Answer<SetRoceAddressOut> {
    if command.vhca_port_num() > 1 {
        return Err(Syndrome::PortNumber.into());
    }
    if !f.nic.firmware.caps.general().roce() {
        return Err(Syndrome::CapabilityNotAnnounced.into());
    }
    let layout = command.roce_address();
    let entry = if *layout.source_l3_address() == [0; 16] { None } else { Some(entry(layout)?) };
    if !f.nic.objects.gids.set(command.roce_address_index(), entry) {
        return Err(Syndrome::RoceIndex.into());
    }
    Ok(SetRoceAddressOut::ZERO)
}

fn entry(layout: &RoceAddrLayout) -> Result<RoceAddress, Syndrome> {
    if layout.roce_version() != ROCE_V2 {
        return Err(Syndrome::RoceVersion);
    }
    let gid = *layout.source_l3_address();
    let ipv4 = match layout.roce_l3_type() {
        L3_IPV4 if gid.starts_with(&IPV4_MAPPED) => true,
        L3_IPV6 => false,
        _ => return Err(Syndrome::RoceL3Type),
    };
    let (high, low) = (layout.source_mac_47_32().to_be_bytes(), layout.source_mac_31_0().to_be_bytes());
    let mac = [high[0], high[1], low[0], low[1], low[2], low[3]];
    if mac == [0; 6] || mac[0] & 1 != 0 {
        return Err(Syndrome::RoceMac);
    }
    let vlan = layout.vlan_valid().then(|| layout.vlan_id());
    Ok(RoceAddress { gid, mac, vlan, ipv4, layout: *layout })
}

/// `QUERY_ROCE_ADDRESS`.
pub(super) fn query(f: &mut Function, command: &QueryRoceAddressIn) -> Answer<QueryRoceAddressOut> {
    if command.vhca_port_num() > 1 {
        return Err(Syndrome::PortNumber.into());
    }
    let index = command.roce_address_index();
    if usize::from(index) >= f.nic.objects.gids.size() {
        return Err(Syndrome::RoceIndex.into());
    }
    let mut output = QueryRoceAddressOut::ZERO;
    if let Some(entry) = f.nic.objects.gids.get(index) {
        output.w().roce_address(&entry.layout);
    }
    Ok(output)
}
