//! Capability pages: maximum and current values. PRM "SET_HCA_CAP".

use mlx5_prm::decode::uncovered;
use mlx5_prm::layout::{Kind, Layout};

use super::syndromes::Syndrome;
use crate::function::{Capabilities, Page};
use crate::objects::Table;

/// `op_mod` of `QUERY_HCA_CAP` and `SET_HCA_CAP`, without bit 0.
mod page {
    pub(super) const GENERAL: u16 = 0;
    pub(super) const ATOMIC: u16 = 3;
    pub(super) const ETHERNET: u16 = 1;
    pub(super) const ODP: u16 = 2;
    pub(super) const ROCE: u16 = 4;
    pub(super) const ESWITCH_FLOW_TABLE: u16 = 8;
    pub(super) const ESWITCH: u16 = 9;
    pub(super) const FLOW_TABLE: u16 = 7;
    pub(super) const QOS: u16 = 12;
    pub(super) const DEVICE_MEMORY: u16 = 15;
    pub(super) const GENERAL_2: u16 = 32;
}

/// The next object's number, if the current limit allows one more. `SET_HCA_CAP` may lower the limit below the table's
/// size, which is the maximum.
pub(super) fn next_below<T>(table: &Table<T>, log_limit: u8) -> Option<u32> {
    table.next_number().filter(|number| number.checked_shr(log_limit.into()).unwrap_or(0) == 0)
}

/// The same for a limit on the number of objects, whose numbers start above those of other objects.
pub(super) fn room_below<T>(table: &Table<T>, log_limit: u8) -> Option<()> {
    (table.len() < 1 << log_limit).then_some(())
}

impl Capabilities {
    /// The page that `op_mod` names: bits 15:1 select the page, bit 0 the current instead of the maximum values.
    pub(super) fn query(&self, op_mod: u16) -> Result<&[u8], Syndrome> {
        let current = op_mod & 1 != 0;
        match op_mod >> 1 {
            page::GENERAL => Ok(self.general.bytes(current)),
            page::ROCE if self.general.max.roce() => Ok(self.roce.bytes(current)),
            // The e-switch has only its L2 table; its pages are empty.
            page::ESWITCH_FLOW_TABLE | page::ESWITCH if self.general.max.eswitch_manager() => Ok(&[]),
            page::ATOMIC if self.general.max.atomic() => Ok(self.atomic.bytes(current)),
            page::ODP if self.general.max.pg() => Ok(self.odp.bytes(current)),
            page::ETHERNET if self.general.max.eth_net_offloads() => Ok(Layout::as_bytes(&self.ethernet)),
            page::FLOW_TABLE if self.general.max.nic_flow_table() => Ok(Layout::as_bytes(&self.flow_table)),
            page::QOS if self.general.max.qos() => Ok(Layout::as_bytes(&self.qos)),
            page::GENERAL_2 if self.general.max.hca_cap_2() => Ok(Layout::as_bytes(&self.general_2)),
            page::DEVICE_MEMORY if self.general.max.device_memory() => Ok(Layout::as_bytes(&self.device_memory)),
            _ => Err(Syndrome::UnknownCapabilityPage),
        }
    }

    /// Sets the current values of a page, if none exceeds its maximum.
    pub(super) fn set(&mut self, op_mod: u16, bytes: &[u8]) -> Result<(), Syndrome> {
        if op_mod & 1 != 0 {
            return Err(Syndrome::UnknownOpMod);
        }
        match op_mod >> 1 {
            page::GENERAL => self.general.set(bytes),
            page::ROCE if self.general.current.roce() => self.roce.set(bytes),
            page::ATOMIC if self.general.current.atomic() => self.set_atomic(bytes),
            page::ODP if self.general.current.pg() => self.set_odp(bytes),
            _ => Err(Syndrome::UnknownCapabilityPage),
        }
    }

    /// In the atomic page only the byte order can be set: Linux leaves all other fields zero, and still uses atomics.
    fn set_atomic(&mut self, bytes: &[u8]) -> Result<(), Syndrome> {
        let before = self.atomic.current;
        self.atomic.set(bytes)?;
        let chosen = self.atomic.current.atomic_req_8B_endianness_mode();
        self.atomic.current = before;
        self.atomic.current.w().atomic_req_8B_endianness_mode(chosen);
        Ok(())
    }
}

impl Capabilities {
    /// All of this page are single bits, most of them in pages of their own.
    fn set_odp(&mut self, bytes: &[u8]) -> Result<(), Syndrome> {
        let max = Layout::as_bytes(&self.odp.max);
        if bytes.iter().zip(max).any(|(wanted, max)| wanted & !max != 0) {
            return Err(Syndrome::CapabilityAboveMaximum);
        }
        self.odp.set(bytes)
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
