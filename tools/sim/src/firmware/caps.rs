//! Capability pages: what can be set, what is in force.

use mlx5_prm::decode::uncovered;
use mlx5_prm::layout::{Kind, Layout};

use super::syndromes::Syndrome;
use crate::function::{Capabilities, Page};
use crate::objects::Table;

/// `op_mod` of `QUERY_HCA_CAP` and `SET_HCA_CAP` without its lowest bit.
mod page {
    pub(super) const GENERAL: u16 = 0;
    pub(super) const ATOMIC: u16 = 3;
    pub(super) const ETHERNET: u16 = 1;
    pub(super) const ROCE: u16 = 4;
    pub(super) const ESWITCH_FLOW_TABLE: u16 = 8;
    pub(super) const ESWITCH: u16 = 9;
    pub(super) const FLOW_TABLE: u16 = 7;
    pub(super) const DEVICE_MEMORY: u16 = 15;
}

/// The number that the next object gets, where the limit in force leaves one: `SET_HCA_CAP` can lower it below the size
/// of the table, which is that of the maximum.
pub(super) fn next_below<T>(table: &Table<T>, log_limit: u8) -> Option<u32> {
    table.next_number().filter(|number| number.checked_shr(log_limit.into()).unwrap_or(0) == 0)
}

/// The same where the limit is on how many there are, as numbers begin above those of other objects.
pub(super) fn room_below<T>(table: &Table<T>, log_limit: u8) -> Option<()> {
    (table.len() < 1 << log_limit).then_some(())
}

impl Capabilities {
    /// The bytes of the page that `op_mod` names: bits 15:1 which, bit 0 whether the one in force.
    pub(super) fn query(&self, op_mod: u16) -> Result<&[u8], Syndrome> {
        let current = op_mod & 1 != 0;
        match op_mod >> 1 {
            page::GENERAL => Ok(self.general.bytes(current)),
            page::ROCE if self.general.max.roce() => Ok(self.roce.bytes(current)),
            // The e-switch has its L2 table, and nothing that could be said here.
            page::ESWITCH_FLOW_TABLE | page::ESWITCH if self.general.max.eswitch_manager() => Ok(&[]),
            page::ATOMIC if self.general.max.atomic() => Ok(self.atomic.bytes(current)),
            page::ETHERNET if self.general.max.eth_net_offloads() => Ok(Layout::as_bytes(&self.ethernet)),
            page::FLOW_TABLE if self.general.max.nic_flow_table() => Ok(Layout::as_bytes(&self.flow_table)),
            page::DEVICE_MEMORY if self.general.max.device_memory() => Ok(Layout::as_bytes(&self.device_memory)),
            _ => Err(Syndrome::UnknownCapabilityPage),
        }
    }

    /// Puts a page in force, when none of it is above its maximum.
    pub(super) fn set(&mut self, op_mod: u16, bytes: &[u8]) -> Result<(), Syndrome> {
        if op_mod & 1 != 0 {
            return Err(Syndrome::UnknownOpMod);
        }
        match op_mod >> 1 {
            page::GENERAL => self.general.set(bytes),
            page::ROCE if self.general.current.roce() => self.roce.set(bytes),
            page::ATOMIC if self.general.current.atomic() => self.set_atomic(bytes),
            _ => Err(Syndrome::UnknownCapabilityPage),
        }
    }

    /// Of the atomic page only the byte order can be chosen: Linux leaves all else of it zero, and goes on with
    /// atomics.
    fn set_atomic(&mut self, bytes: &[u8]) -> Result<(), Syndrome> {
        let before = self.atomic.current;
        self.atomic.set(bytes)?;
        let chosen = self.atomic.current.atomic_req_8B_endianness_mode();
        self.atomic.current = before;
        self.atomic.current.w().atomic_req_8B_endianness_mode(chosen);
        Ok(())
    }
}

impl<L: Layout> Page<L> {
    fn bytes(&self, current: bool) -> &[u8] {
        Layout::as_bytes(if current { &self.current } else { &self.max })
    }

    fn set(&mut self, bytes: &[u8]) -> Result<(), Syndrome> {
        let wanted = L::read(bytes).ok_or(Syndrome::InputTooShort)?;
        if uncovered(&L::INFO, bytes).is_some() || bytes[L::SIZE..].iter().any(|byte| *byte != 0) {
            return Err(Syndrome::ReservedSet);
        }
        for field in L::FIELDS {
            let Kind::Bits { .. } = field.kind else { continue };
            let (max, wanted) = (field.number(Layout::as_bytes(&self.max)), field.number(bytes));
            if wanted > max {
                tracing::debug!("SET_HCA_CAP: {} is {wanted:x?}, at most {max:x?}", field.name);
                return Err(Syndrome::CapabilityAboveMaximum);
            }
        }
        self.current = wanted;
        Ok(())
    }
}
