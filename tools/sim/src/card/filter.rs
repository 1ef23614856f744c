//! Which frames from the wire a function receives.
//!
//! The switch in front of a port forwards unicast frames by what drivers have configured: by the L2 table
//! (`SET_L2_TABLE_ENTRY`) for a function that manages the e-switch, by the unicast list of the vport context for
//! others; on a card the e-switch's manager would copy that list to the L2 table. Multicast and broadcast frames reach
//! each function whose vport context lists the address, and a function that manages the e-switch also those of groups
//! with queue pairs of it. To others the manager's rules bring what their lists have (Linux
//! `esw_update_vport_addr_list`). Without configuration, a function receives nothing.

use crate::function::Function;
use crate::transport::packet::Mac;

/// How a function treats a destination address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    /// Its own unicast address.
    Own,
    /// A multicast address that it receives, or any address if it is promiscuous.
    Hears,
    /// It does not receive the frame.
    None,
}

pub(super) fn claim(function: &Function, destination: Mac) -> Claim {
    // A removed function receives nothing.
    if function.nic.faults.removed() {
        return Claim::None;
    }
    let objects = &function.nic.objects;
    let (vport, is_group) = (&objects.vport, destination[0] & 1 != 0);
    let is_own = match &objects.l2_table {
        Some(table) => table.holds(destination),
        None => vport.unicast.contains(&destination),
    };
    let hears = match is_group {
        true => {
            let is_manager = objects.l2_table.is_some();
            vport.hears_group(destination) || is_manager && objects.groups.has_address(destination)
        }
        false => vport.is_promiscuous(),
    };
    match (is_own, hears) {
        (true, _) => Claim::Own,
        (false, true) => Claim::Hears,
        (false, false) => Claim::None,
    }
}
