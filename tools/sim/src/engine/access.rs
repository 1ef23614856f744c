//! Memory by key: is the access allowed, and where does it go?

use thiserror::Error;

use crate::dma::{Dma, DmaFault};
use crate::objects::{Mkey, MkeyRights, Table, Translation};

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

/// One access.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Access {
    pub key: u32,
    pub address: u64,
    pub len: u64,
    pub rights: MkeyRights,
    /// Protection domain of the queue pair.
    pub pd: u32,
    pub qpn: u32,
}

/// The key of `access`, if it allows it.
pub(crate) fn check(mkeys: &Table<Mkey>, access: Access) -> Result<&Mkey, Refusal> {
    let mkey = mkeys.get(access.key >> 8).ok_or(Refusal::Unknown)?;
    if mkey.variant != access.key as u8 {
        return Err(Refusal::Variant(mkey.variant));
    }
    if mkey.free {
        return Err(Refusal::Free);
    }
    if mkey.pd != access.pd {
        return Err(Refusal::Pd { key: mkey.pd, user: access.pd });
    }
    if let Some(qpn) = mkey.qpn.filter(|qpn| *qpn != access.qpn) {
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

/// Reads what an allowed access reaches.
pub(crate) fn read(mkey: &Mkey, dma: &Dma, address: u64, bytes: &mut [u8]) -> Result<(), DmaFault> {
    match &mkey.translation {
        Translation::Physical => dma.read(address, bytes),
        Translation::Pages(pages) => pages.read(dma, address.wrapping_sub(mkey.start), bytes),
    }
}

/// Writes what an allowed access reaches.
pub(crate) fn write(mkey: &Mkey, dma: &Dma, address: u64, bytes: &[u8]) -> Result<(), DmaFault> {
    match &mkey.translation {
        Translation::Physical => dma.write(address, bytes),
        Translation::Pages(pages) => pages.write(dma, address.wrapping_sub(mkey.start), bytes),
    }
}

/// Replaces a quadword that an allowed access reaches; the old one.
pub(crate) fn update(mkey: &Mkey, dma: &Dma, address: u64, change: impl Fn(u64) -> u64) -> Result<u64, DmaFault> {
    let iova = match &mkey.translation {
        Translation::Physical => address,
        Translation::Pages(pages) => {
            let at = address.wrapping_sub(mkey.start);
            pages.iova(at).ok_or(DmaFault::past_end(at, 8, true))?.0
        }
    };
    dma.update_be64(iova, change)
}
