//! Multicast groups: the queue pairs attached to each group address.
//! PRM "ATTACH_TO_MCG"; IBTA 10.5.

use std::collections::BTreeMap;

use crate::transport::packet::{Mac, mac_of_group};

/// Queue pairs by group GID.
#[derive(Debug, Clone, Default)]
pub struct Groups(BTreeMap<[u8; 16], Vec<u32>>);

impl Groups {
    /// Number of groups with members.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The members of a group.
    pub fn members(&self, gid: &[u8; 16]) -> &[u32] {
        self.0.get(gid).map_or(&[], Vec::as_slice)
    }

    /// Whether this MAC address is that of any group.
    pub fn has_address(&self, address: Mac) -> bool {
        self.0.keys().any(|gid| mac_of_group(gid) == address)
    }

    /// Whether the queue pair is attached to any group.
    pub fn has_member(&self, qpn: u32) -> bool {
        self.0.values().any(|members| members.contains(&qpn))
    }

    /// Adds a member.
    pub fn attach(&mut self, gid: [u8; 16], qpn: u32) {
        self.0.entry(gid).or_default().push(qpn);
    }

    /// Removes a member. Returns false if it was not attached.
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
