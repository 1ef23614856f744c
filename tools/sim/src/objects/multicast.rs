//! Multicast groups: who receives what is sent to a group's address.

use std::collections::BTreeMap;

use crate::transport::packet::{Mac, mac_of_group};

/// The queue pairs of each group, by the group's GID.
#[derive(Debug, Clone, Default)]
pub struct Groups(BTreeMap<[u8; 16], Vec<u32>>);

impl Groups {
    /// How many groups have a member.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The members of a group; none of one that nobody joined.
    pub fn members(&self, gid: &[u8; 16]) -> &[u32] {
        self.0.get(gid).map_or(&[], Vec::as_slice)
    }

    /// Whether any group's frames carry this address.
    pub fn has_address(&self, address: Mac) -> bool {
        self.0.keys().any(|gid| mac_of_group(gid) == address)
    }

    /// Whether the queue pair is in any group.
    pub fn has_member(&self, qpn: u32) -> bool {
        self.0.values().any(|members| members.contains(&qpn))
    }

    /// Adds a member.
    pub fn attach(&mut self, gid: [u8; 16], qpn: u32) {
        self.0.entry(gid).or_default().push(qpn);
    }

    /// Takes a member out. False if it was none.
    pub fn detach(&mut self, gid: &[u8; 16], qpn: u32) -> bool {
        let Some(members) = self.0.get_mut(gid) else { return false };
        let Some(at) = members.iter().position(|member| *member == qpn) else { return false };
        members.remove(at);
        if members.is_empty() {
            self.0.remove(gid);
        }
        true
    }
}
