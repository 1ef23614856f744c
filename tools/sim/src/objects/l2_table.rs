//! The L2 table: unicast MAC addresses for which the e-switch delivers frames to the function.
//! PRM "SET_L2_TABLE_ENTRY".

use std::collections::BTreeMap;

use mlx5_prm::caps::CmdHcaCap;

use crate::transport::packet::Mac;

/// The entries set by `SET_L2_TABLE_ENTRY`.
#[derive(Debug, Clone)]
pub struct L2Table {
    size: u32,
    entries: BTreeMap<u32, Mac>,
}

impl L2Table {
    /// An empty table of the size that `caps` announces; `None` for a function that does not manage the e-switch.
    pub fn of(caps: &CmdHcaCap) -> Option<Self> {
        let log_size = caps.log_max_l2_table();
        let manages = caps.eswitch_manager() && log_size > 0;
        manages.then(|| L2Table { size: 1 << log_size, entries: BTreeMap::new() })
    }

    /// Sets the entry at `index`. False if that is past the end.
    pub fn set(&mut self, index: u32, mac: Mac) -> bool {
        let fits = index < self.size;
        if fits {
            self.entries.insert(index, mac);
        }
        fits
    }

    /// The entry at `index`, if it is set.
    pub fn get(&self, index: u32) -> Option<Mac> {
        self.entries.get(&index).copied()
    }

    /// Clears the entry at `index`. Returns false if it was not set.
    pub fn remove(&mut self, index: u32) -> bool {
        self.entries.remove(&index).is_some()
    }

    /// Whether an entry has this address.
    pub fn holds(&self, mac: Mac) -> bool {
        self.entries.values().any(|entry| *entry == mac)
    }

    /// Number of entries set.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no entry is set.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}
