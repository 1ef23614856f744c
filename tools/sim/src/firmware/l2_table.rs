//! The table of MAC addresses. PRM "SET_L2_TABLE_ENTRY", "QUERY_L2_TABLE_ENTRY", "DELETE_L2_TABLE_ENTRY".

use mlx5_prm::cmd::*;

use super::answer::Answer;
use super::syndromes::Syndrome;
use crate::function::Function;
use crate::objects::{L2Table, layout_of, mac_in};

fn table(f: &mut Function) -> Result<&mut L2Table, Syndrome> {
    f.nic.objects.l2_table.as_mut().ok_or(Syndrome::NoL2Table)
}

/// `SET_L2_TABLE_ENTRY`. Overwrites the entry.
pub(super) fn set(f: &mut Function, command: &SetL2TableEntryIn) -> Answer<SetL2TableEntryOut> {
    let table = table(f)?;
    if command.silent_mode_valid() || command.silent_mode() {
        return Err(Syndrome::CapabilityNotAnnounced.into());
    }
    if command.vlan_valid() || command.vlan() != 0 {
        return Err(Syndrome::L2Vlan.into());
    }
    let mac = mac_in(command.mac_address());
    if mac == [0; 6] || mac[0] & 1 != 0 {
        return Err(Syndrome::L2Mac.into());
    }
    if !table.set(command.table_index(), mac) {
        return Err(Syndrome::L2Index.into());
    }
    Ok(SetL2TableEntryOut::ZERO)
}

/// `QUERY_L2_TABLE_ENTRY`.
pub(super) fn query(f: &mut Function, command: &QueryL2TableEntryIn) -> Answer<QueryL2TableEntryOut> {
    let mac = table(f)?.get(command.table_index()).ok_or(Syndrome::L2Index)?;
    let mut output = QueryL2TableEntryOut::ZERO;
    output.w().mac_address(&layout_of(mac));
    Ok(output)
}

/// `DELETE_L2_TABLE_ENTRY`.
pub(super) fn delete(f: &mut Function, command: &DeleteL2TableEntryIn) -> Answer<DeleteL2TableEntryOut> {
    if !table(f)?.remove(command.table_index()) {
        return Err(Syndrome::L2Index.into());
    }
    Ok(DeleteL2TableEntryOut::ZERO)
}
