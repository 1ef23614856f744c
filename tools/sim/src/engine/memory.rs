//! Access to memory by key: checks the rights, and translates the address.

use mlx5_prm::ctx::Klm;
use thiserror::Error;

use crate::dma::{Counted, Dma, DmaFault, Purpose};
use crate::objects::{
    ABSENT_KEY, Absent, Mkey, MkeyRights, NULL_LKEY, OnDemand, READ_PAGE, RESERVED_LKEY, Table, Translation, User,
    WRITE_PAGE,
};

/// Why a key refuses an access.
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
    #[error("the key is bound to queue pair {0}")]
    QueuePair(u32),
    #[error("the key only allows {0:?}")]
    Rights(MkeyRights),
    #[error("the key covers {len:#x} bytes from {start:#x} on")]
    Bounds { start: u64, len: u64 },
    #[error("keys are nested more than {DEEPEST} deep")]
    Depth,
    #[error("the access passes more than {MOST_ENTRIES} entries of keys")]
    Entries,
    /// Allowed, once the pages are there.
    #[error("pages are absent: {0:x?}")]
    Absent(Absent),
}

/// Maximum nesting of keys made of other keys.
const DEEPEST: u32 = 4;
/// Most entries of lists of keys that one access passes. The longest message passes half as many of 4 KiB. Keys of keys
/// multiply them: without a limit one access would take hours.
const MOST_ENTRIES: usize = 1 << 20;

/// One access.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Access {
    pub user: User,
    pub key: u32,
    pub address: u64,
    pub len: u64,
    pub rights: MkeyRights,
}

/// How an allowed access is translated.
#[derive(Debug, Clone)]
pub(crate) enum Way<'a> {
    /// Through one key: pages, bus addresses, or memory on the card.
    Key(&'a Mkey),
    /// Through a key made of other keys: the parts that the access reaches, in order.
    Keys(Vec<Part<'a>>),
    /// Through the reserved local key: addresses are IOVAs.
    Reserved,
    /// Through the key of the null region: to nothing.
    Nothing,
}

/// A part of an access through a key made of other keys.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part<'a> {
    mkey: &'a Mkey,
    address: u64,
    len: u64,
}

/// Checks an access; returns its translation. R_Key checks: IBTA 9.7.4.1.5.
pub(crate) fn check(mkeys: &Table<Mkey>, access: Access) -> Result<Way<'_>, Refusal> {
    if is_reserved(access) {
        return Ok(Way::Reserved);
    }
    if is_null(access) {
        return Ok(Way::Nothing);
    }
    let mkey = check_key(mkeys, access)?;
    if !mkey.translation.is_indirect() {
        check_present(mkey, access)?;
        return Ok(Way::Key(mkey));
    }
    let mut parts = Vec::new();
    Behind { mkeys, parts: Some(&mut parts), passed: 0 }.check(mkey, access, DEEPEST)?;
    Ok(Way::Keys(parts))
}

/// Whether the pages of an access through a key of pages are there.
fn check_present(mkey: &Mkey, access: Access) -> Result<(), Refusal> {
    let Translation::OnDemand(list) = &mkey.translation else { return Ok(()) };
    match list.absent(access.address.wrapping_sub(mkey.start), access.len, needed(access.rights)) {
        None => Ok(()),
        Some(at) => {
            let address = mkey.start.wrapping_add(at);
            let len = access.len - address.wrapping_sub(access.address);
            Err(Refusal::Absent(Absent { key: access.key, address, len }))
        }
    }
}

/// What an access needs of a page.
fn needed(rights: MkeyRights) -> u8 {
    match rights {
        MkeyRights::REMOTE_ATOMIC => READ_PAGE | WRITE_PAGE,
        rights if writes(rights) => WRITE_PAGE,
        _ => READ_PAGE,
    }
}

fn writes(rights: MkeyRights) -> bool {
    rights.intersects(MkeyRights::LOCAL_WRITE | MkeyRights::REMOTE_WRITE | MkeyRights::REMOTE_ATOMIC)
}

/// Whether an access is allowed, if its pages are there or not. Where keys take turns, what lies between the pieces of
/// one must be its key's, too: so the check of a message costs the same however small its pieces are.
pub(crate) fn allows(mkeys: &Table<Mkey>, access: Access) -> Result<(), Refusal> {
    if is_reserved(access) || is_null(access) {
        return Ok(());
    }
    Behind { mkeys, parts: None, passed: 0 }.check(check_key(mkeys, access)?, access, DEEPEST)
}

fn is_reserved(access: Access) -> bool {
    access.key == RESERVED_LKEY && access.user.is_trusted && is_local(access)
}

fn is_null(access: Access) -> bool {
    access.key == NULL_LKEY && is_local(access)
}

fn is_local(access: Access) -> bool {
    MkeyRights::LOCAL_READ.union(MkeyRights::LOCAL_WRITE).contains(access.rights)
}

/// Checks the keys below a key, down to those with pages.
struct Behind<'a, 'p> {
    mkeys: &'a Table<Mkey>,
    /// Takes what the access reaches of those of pages, if anybody asks.
    parts: Option<&'p mut Vec<Part<'a>>>,
    /// Entries of lists that were looked at.
    passed: usize,
}

impl<'a> Behind<'a, '_> {
    fn check(&mut self, mkey: &'a Mkey, access: Access, levels: u32) -> Result<(), Refusal> {
        let from = access.address.wrapping_sub(mkey.start);
        match &mkey.translation {
            Translation::Keys(_) | Translation::FixedKeys(_) | Translation::Pattern(_) if levels == 0 => {
                Err(Refusal::Depth)
            }
            Translation::Keys(pieces) => self.check_list(pieces, mkey, access, levels),
            Translation::FixedKeys(pieces) => self.check_fixed(pieces, mkey, access, levels),
            Translation::Pattern(pattern) if self.parts.is_some() => {
                self.pass(pattern.entries.len())?;
                pattern.pieces(from, access.len).try_for_each(|piece| self.check_piece(piece, access, levels))
            }
            Translation::Pattern(pattern) => {
                self.pass(pattern.entries.len())?;
                pattern.stretches(from, access.len).try_for_each(|piece| self.check_piece(piece, access, levels))
            }
            Translation::Physical | Translation::Pages(_) | Translation::OnDemand(_) | Translation::Device { .. } => {
                if let Some(parts) = &mut self.parts {
                    check_present(mkey, access)?;
                    parts.push(Part { mkey, address: access.address, len: access.len });
                }
                Ok(())
            }
        }
    }

    fn check_list(&mut self, pieces: &[Klm], mkey: &Mkey, access: Access, levels: u32) -> Result<(), Refusal> {
        let (mut skip, mut left) = (access.address.wrapping_sub(mkey.start), access.len);
        for piece in pieces {
            if left == 0 {
                return Ok(());
            }
            self.pass(1)?;
            let size = u64::from(piece.byte_count());
            let skipped = skip.min(size);
            let len = left.min(size - skipped);
            (skip, left) = (skip - skipped, left - len);
            if len > 0 {
                self.check_piece((piece.mkey(), piece.address().wrapping_add(skipped), len), access, levels)?;
            }
        }
        let covered = || pieces.iter().map(|piece| u64::from(piece.byte_count())).sum();
        if left > 0 { Err(Refusal::Bounds { start: mkey.start, len: covered() }) } else { Ok(()) }
    }

    /// As [`check_list`](Self::check_list), where all pieces have one size.
    fn check_fixed(&mut self, pieces: &[Klm], mkey: &Mkey, access: Access, levels: u32) -> Result<(), Refusal> {
        let size = 1u64 << mkey.context.log_page_size();
        let (mut at, mut left) = (access.address.wrapping_sub(mkey.start), access.len);
        while left > 0 {
            let piece = usize::try_from(at / size).ok().and_then(|index| pieces.get(index));
            let covered = (pieces.len() as u64).saturating_mul(size);
            let piece = piece.ok_or(Refusal::Bounds { start: mkey.start, len: covered })?;
            let skipped = at % size;
            let len = left.min(size - skipped);
            self.pass(1)?;
            self.check_piece((piece.mkey(), piece.address().wrapping_add(skipped), len), access, levels)?;
            (at, left) = (at.wrapping_add(len), left - len);
        }
        Ok(())
    }

    /// Counts entries that are looked at.
    fn pass(&mut self, entries: usize) -> Result<(), Refusal> {
        self.passed = self.passed.saturating_add(entries);
        if self.passed > MOST_ENTRIES { Err(Refusal::Entries) } else { Ok(()) }
    }

    fn check_piece(&mut self, piece: (u32, u64, u64), access: Access, levels: u32) -> Result<(), Refusal> {
        // The remote rights are checked at the top key; the keys below need only the local rights.
        let rights = if writes(access.rights) { MkeyRights::LOCAL_WRITE } else { MkeyRights::LOCAL_READ };
        let (key, address, len) = piece;
        if key == ABSENT_KEY {
            return if self.parts.is_some() { Err(Refusal::Absent(Absent { key, address, len })) } else { Ok(()) };
        }
        let behind = Access { user: access.user, key, address, len, rights };
        self.check(check_key(self.mkeys, behind)?, behind, levels - 1)
    }
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
    /// Reads the memory of an allowed access.
    pub(crate) fn read(&self, dma: &Dma, address: u64, bytes: &mut [u8]) -> Result<(), DmaFault> {
        self.read_counted(dma.counted(Purpose::Data), address, bytes)
    }

    fn read_counted(&self, dma: Counted<'_>, address: u64, mut bytes: &mut [u8]) -> Result<(), DmaFault> {
        match self {
            Way::Reserved => dma.read(address, bytes),
            Way::Nothing => {
                bytes.fill(0);
                Ok(())
            }
            Way::Key(mkey) => match &mkey.translation {
                Translation::Pages(pages) | Translation::OnDemand(OnDemand { pages, .. }) => {
                    pages.read(dma, address.wrapping_sub(mkey.start), bytes)
                }
                Translation::Device { bytes: memory, at } => match memory.read(at.wrapping_add(address), bytes) {
                    true => Ok(()),
                    false => Err(DmaFault::past_end(address, bytes.len(), false)),
                },
                Translation::Physical | Translation::Keys(_) | Translation::FixedKeys(_) | Translation::Pattern(_) => {
                    dma.read(address, bytes)
                }
            },
            Way::Keys(parts) => {
                for part in parts {
                    let (now, later) = bytes.split_at_mut(part.len as usize);
                    Way::Key(part.mkey).read_counted(dma, part.address, now)?;
                    bytes = later;
                }
                Ok(())
            }
        }
    }

    /// Writes the memory of an allowed access.
    pub(crate) fn write(&self, dma: &Dma, address: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        self.write_counted(dma.counted(Purpose::Data), address, bytes)
    }

    fn write_counted(&self, dma: Counted<'_>, address: u64, mut bytes: &[u8]) -> Result<(), DmaFault> {
        match self {
            Way::Reserved => dma.write(address, bytes),
            Way::Nothing => Ok(()),
            Way::Key(mkey) => match &mkey.translation {
                Translation::Pages(pages) | Translation::OnDemand(OnDemand { pages, .. })
                    if mkey.context.relaxed_ordering_write() =>
                {
                    pages.write_relaxed(dma, address.wrapping_sub(mkey.start), bytes)
                }
                Translation::Pages(pages) | Translation::OnDemand(OnDemand { pages, .. }) => {
                    pages.write(dma, address.wrapping_sub(mkey.start), bytes)
                }
                Translation::Device { bytes: memory, at } => match memory.write(at.wrapping_add(address), bytes) {
                    true => Ok(()),
                    false => Err(DmaFault::past_end(address, bytes.len(), true)),
                },
                Translation::Physical | Translation::Keys(_) | Translation::FixedKeys(_) | Translation::Pattern(_) => {
                    dma.write(address, bytes)
                }
            },
            Way::Keys(parts) => {
                for part in parts {
                    let (now, later) = bytes.split_at(part.len as usize);
                    Way::Key(part.mkey).write_counted(dma, part.address, now)?;
                    bytes = later;
                }
                Ok(())
            }
        }
    }

    /// Atomically replaces a quadword of an allowed access; returns the old value.
    pub(crate) fn update(&self, dma: &Dma, address: u64, change: impl Fn(u64) -> u64) -> Result<u64, DmaFault> {
        let dma = dma.counted(Purpose::Data);
        let (mkey, address) = match self {
            Way::Reserved => return dma.update_be64(address, change),
            Way::Nothing => return Err(DmaFault::past_end(address, 8, true)),
            Way::Key(mkey) => (*mkey, address),
            Way::Keys(parts) => match parts.as_slice() {
                [part] => (part.mkey, part.address),
                // A quadword that crosses two pages cannot be replaced atomically.
                _ => return Err(DmaFault::past_end(address, 8, true)),
            },
        };
        let at = address.wrapping_sub(mkey.start);
        let past_end = DmaFault::past_end(at, 8, true);
        match &mkey.translation {
            Translation::Pages(pages) | Translation::OnDemand(OnDemand { pages, .. }) => {
                dma.update_be64(pages.iova(at).ok_or(past_end)?.0, change)
            }
            Translation::Device { bytes, at: first } => {
                bytes.update_be64(first.wrapping_add(at), change).ok_or(past_end)
            }
            Translation::Physical | Translation::Keys(_) | Translation::FixedKeys(_) | Translation::Pattern(_) => {
                dma.update_be64(address, change)
            }
        }
    }
}
