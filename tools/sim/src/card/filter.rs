//! Which frames from the wire a function gets.
//!
//! The switch in front of a port forwards unicast frames by what drivers told it, not by what a function calls its
//! address: the L2 table's entries (`SET_L2_TABLE_ENTRY`) of a function that manages the e-switch, and for any other
//! the list of unicast addresses in its vport context, from which the e-switch's manager would make such entries.
//! Frames to groups, and to everybody, come to each function whose vport context lists the address, and to those that
//! have a queue pair in the group. A function that was told nothing hears nothing.

use crate::function::Function;
use crate::transport::packet::Mac;

/// What a destination address is to a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    /// Its own.
    Own,
    /// A group's, or anybody's where it is promiscuous.
    Hears,
    /// Nothing: the frame does not come to it.
    None,
}

pub(super) fn claim(function: &Function, destination: Mac) -> Claim {
    // One that was removed takes nothing: it would never look at it.
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
        true => vport.hears_group(destination) || objects.groups.has_address(destination),
        false => vport.is_promiscuous(),
    };
    match (is_own, hears) {
        (true, _) => Claim::Own,
        (false, true) => Claim::Hears,
        (false, false) => Claim::None,
    }
}
