//! Memory by key: is the access allowed, and where does it go?

use thiserror::Error;

use crate::dma::{Dma, DmaFault};
use crate::objects::{Mkey, MkeyRights, PageList, RESERVED_LKEY, Table, Translation};

/// Why a key does not allow an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum Refusal {
    #[error("no such key")]
    Unknown,
    #[error("the key's low byte is {0:#04x}")]
    Variant(u8),
    #[error("the key is free")]
    Free,
    #[error("the key is of protection domain {key}, the queue pair of {user}")]
    Pd { key: u32, user: u32 },
    #[error("the key is for queue pair {0} alone")]
    QueuePair(u32),
    #[error("the key allows {0:?} only")]
    Rights(MkeyRights),
    #[error("the key covers {len:#x} bytes from {start:#x} on")]
    Bounds { start: u64, len: u64 },
}

/// Who makes an access: what of a queue pair matters to a key.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct User {
    pub pd: u32,
    pub qpn: u32,
    /// It may use the reserved local key (`rlky`).
    pub is_trusted: bool,
}

/// One access.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Access {
    pub user: User,
    pub key: u32,
    pub address: u64,
    pub len: u64,
    pub rights: MkeyRights,
}

/// What an allowed access goes through.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Way<'a> {
    /// A key.
    Key(&'a Mkey),
    /// The reserved local key: addresses are IOVAs.
    Reserved,
}

/// The way of an access that is allowed.
pub(crate) fn check(mkeys: &Table<Mkey>, access: Access) -> Result<Way<'_>, Refusal> {
    let is_local = MkeyRights::LOCAL_READ.union(MkeyRights::LOCAL_WRITE).contains(access.rights);
    if access.key == RESERVED_LKEY && access.user.is_trusted && is_local {
        return Ok(Way::Reserved);
    }
    check_key(mkeys, access).map(Way::Key)
}

fn check_key(mkeys: &Table<Mkey>, access: Access) -> Result<&Mkey, Refusal> {
    let mkey = mkeys.get(access.key >> 8).ok_or(Refusal::Unknown)?;
    if mkey.variant != access.key as u8 {
        return Err(Refusal::Variant(mkey.variant));
    }
    if mkey.free {
        return Err(Refusal::Free);
    }
    if mkey.pd != access.user.pd {
        return Err(Refusal::Pd { key: mkey.pd, user: access.user.pd });
    }
    if let Some(qpn) = mkey.qpn.filter(|qpn| *qpn != access.user.qpn) {
        return Err(Refusal::QueuePair(qpn));
    }
    if !mkey.rights.contains(access.rights) {
        return Err(Refusal::Rights(mkey.rights));
    }
    let within = |len: u64| {
        let offset = access.address.checked_sub(mkey.start)?;
        (offset.checked_add(access.len)? <= len).then_some(())
    };
    match mkey.len {
        Some(len) => within(len).ok_or(Refusal::Bounds { start: mkey.start, len })?,
        None => within(u64::MAX).ok_or(Refusal::Bounds { start: mkey.start, len: u64::MAX })?,
    }
    Ok(mkey)
}

impl Way<'_> {
    /// Reads what an allowed access reaches.
    pub(crate) fn read(self, dma: &Dma, address: u64, bytes: &mut [u8]) -> Result<(), DmaFault> {
        match self.pages() {
            Some((pages, start)) => pages.read(dma, address.wrapping_sub(start), bytes),
            None => dma.read(address, bytes),
        }
    }

    /// Writes what an allowed access reaches.
    pub(crate) fn write(self, dma: &Dma, address: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        match self.pages() {
            Some((pages, start)) => pages.write(dma, address.wrapping_sub(start), bytes),
            None => dma.write(address, bytes),
        }
    }

    /// Replaces a quadword that an allowed access reaches; the old one.
    pub(crate) fn update(self, dma: &Dma, address: u64, change: impl Fn(u64) -> u64) -> Result<u64, DmaFault> {
        let iova = match self.pages() {
            Some((pages, start)) => {
                let at = address.wrapping_sub(start);
                pages.iova(at).ok_or(DmaFault::past_end(at, 8, true))?.0
            }
            None => address,
        };
        dma.update_be64(iova, change)
    }

    /// The pages that addresses go through, and the address of their first byte; `None` where addresses are IOVAs.
    fn pages(&self) -> Option<(&PageList, u64)> {
        match self {
            Way::Key(Mkey { translation: Translation::Pages(pages), start, .. }) => Some((pages, *start)),
            Way::Key(_) | Way::Reserved => None,
        }
    }
}
