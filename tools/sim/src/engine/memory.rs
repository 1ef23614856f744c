//! Memory by key: is the access allowed, and where does it go?

use thiserror::Error;

use crate::dma::{Dma, DmaFault};
use crate::objects::{Mkey, MkeyRights, RESERVED_LKEY, Table, Translation, User};

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
    #[error("the keys behind it go deeper than {DEEPEST}")]
    Depth,
}

/// Keys behind keys behind a key, at most.
const DEEPEST: u32 = 4;

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
#[derive(Debug, Clone)]
pub(crate) enum Way<'a> {
    /// A key of pages, of bus addresses, or of memory on the card.
    Key(&'a Mkey),
    /// A key made of others: the parts of those that the access reaches, in order.
    Keys(Vec<Part<'a>>),
    /// The reserved local key: addresses are IOVAs.
    Reserved,
}

/// A part of an access that goes through keys behind a key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part<'a> {
    mkey: &'a Mkey,
    address: u64,
    len: u64,
}

/// The way of an access that is allowed.
pub(crate) fn check(mkeys: &Table<Mkey>, access: Access) -> Result<Way<'_>, Refusal> {
    let is_local = MkeyRights::LOCAL_READ.union(MkeyRights::LOCAL_WRITE).contains(access.rights);
    if access.key == RESERVED_LKEY && access.user.is_trusted && is_local {
        return Ok(Way::Reserved);
    }
    let mkey = check_key(mkeys, access)?;
    let Translation::Keys(_) = mkey.translation else { return Ok(Way::Key(mkey)) };
    let mut parts = Vec::new();
    check_behind(mkeys, mkey, access, DEEPEST, &mut parts)?;
    Ok(Way::Keys(parts))
}

/// Checks the keys behind `mkey`, down to those of pages, and lists what the access reaches of these.
fn check_behind<'a>(
    mkeys: &'a Table<Mkey>,
    mkey: &'a Mkey,
    access: Access,
    levels: u32,
    parts: &mut Vec<Part<'a>>,
) -> Result<(), Refusal> {
    let Translation::Keys(pieces) = &mkey.translation else {
        parts.push(Part { mkey, address: access.address, len: access.len });
        return Ok(());
    };
    let levels = levels.checked_sub(1).ok_or(Refusal::Depth)?;
    // Who may use a key from afar uses what is behind it as if from here.
    let writes = MkeyRights::LOCAL_WRITE | MkeyRights::REMOTE_WRITE | MkeyRights::REMOTE_ATOMIC;
    let rights = if access.rights.intersects(writes) { MkeyRights::LOCAL_WRITE } else { MkeyRights::LOCAL_READ };
    let (mut skip, mut left) = (access.address - mkey.start, access.len);
    for piece in pieces {
        let size = u64::from(piece.byte_count());
        let skipped = skip.min(size);
        let len = left.min(size - skipped);
        (skip, left) = (skip - skipped, left - len);
        if len > 0 {
            let address = piece.address().wrapping_add(skipped);
            let behind = Access { user: access.user, key: piece.mkey(), address, len, rights };
            check_behind(mkeys, check_key(mkeys, behind)?, behind, levels, parts)?;
        }
    }
    let covered = || pieces.iter().map(|piece| u64::from(piece.byte_count())).sum();
    if left > 0 { Err(Refusal::Bounds { start: mkey.start, len: covered() }) } else { Ok(()) }
}

fn check_key(mkeys: &Table<Mkey>, access: Access) -> Result<&Mkey, Refusal> {
    let mkey = mkeys.get(access.key >> 8).ok_or(Refusal::Unknown)?;
    if mkey.variant != access.key as u8 {
        return Err(Refusal::Variant(mkey.variant));
    }
    if mkey.is_free() {
        return Err(Refusal::Free);
    }
    if mkey.pd != access.user.pd && !access.user.every_pd {
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
    pub(crate) fn read(&self, dma: &Dma, address: u64, mut bytes: &mut [u8]) -> Result<(), DmaFault> {
        match self {
            Way::Reserved => dma.read(address, bytes),
            Way::Key(mkey) => match &mkey.translation {
                Translation::Pages(pages) => pages.read(dma, address.wrapping_sub(mkey.start), bytes),
                Translation::Device { bytes: memory, at } => match memory.read(at.wrapping_add(address), bytes) {
                    true => Ok(()),
                    false => Err(DmaFault::past_end(address, bytes.len(), false)),
                },
                Translation::Physical | Translation::Keys(_) => dma.read(address, bytes),
            },
            Way::Keys(parts) => {
                for part in parts {
                    let (now, later) = bytes.split_at_mut(part.len as usize);
                    Way::Key(part.mkey).read(dma, part.address, now)?;
                    bytes = later;
                }
                Ok(())
            }
        }
    }

    /// Writes what an allowed access reaches.
    pub(crate) fn write(&self, dma: &Dma, address: u64, mut bytes: &[u8]) -> Result<(), DmaFault> {
        match self {
            Way::Reserved => dma.write(address, bytes),
            Way::Key(mkey) => match &mkey.translation {
                Translation::Pages(pages) => pages.write(dma, address.wrapping_sub(mkey.start), bytes),
                Translation::Device { bytes: memory, at } => match memory.write(at.wrapping_add(address), bytes) {
                    true => Ok(()),
                    false => Err(DmaFault::past_end(address, bytes.len(), true)),
                },
                Translation::Physical | Translation::Keys(_) => dma.write(address, bytes),
            },
            Way::Keys(parts) => {
                for part in parts {
                    let (now, later) = bytes.split_at(part.len as usize);
                    Way::Key(part.mkey).write(dma, part.address, now)?;
                    bytes = later;
                }
                Ok(())
            }
        }
    }

    /// Replaces a quadword that an allowed access reaches; the old one.
    pub(crate) fn update(&self, dma: &Dma, address: u64, change: impl Fn(u64) -> u64) -> Result<u64, DmaFault> {
        let (mkey, address) = match self {
            Way::Reserved => return dma.update_be64(address, change),
            Way::Key(mkey) => (*mkey, address),
            Way::Keys(parts) => match parts.as_slice() {
                [part] => (part.mkey, part.address),
                // In two places at once, it cannot be replaced at once.
                _ => return Err(DmaFault::past_end(address, 8, true)),
            },
        };
        let at = address.wrapping_sub(mkey.start);
        let past_end = DmaFault::past_end(at, 8, true);
        match &mkey.translation {
            Translation::Pages(pages) => dma.update_be64(pages.iova(at).ok_or(past_end)?.0, change),
            Translation::Device { bytes, at: first } => {
                bytes.update_be64(first.wrapping_add(at), change).ok_or(past_end)
            }
            Translation::Physical | Translation::Keys(_) => dma.update_be64(address, change),
        }
    }
}
