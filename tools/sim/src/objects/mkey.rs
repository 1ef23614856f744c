//! Memory keys. PRM "Memory Key".

use mlx5_prm::ctx::{Klm, Mkc};
use mlx5_prm::layout::Layout;
use mlx5_prm::wqe::{RepeatBlockSeg, RepeatEntry};

use super::{Bytes, OnDemand, PageList};

/// Bytes of an octword, the unit in which translations are counted.
pub const OCTWORD: usize = 16;

bitflags::bitflags! {
    /// Access rights of a key.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct MkeyRights: u8 {
        /// Local read.
        const LOCAL_READ = 1;
        /// Local write.
        const LOCAL_WRITE = 2;
        /// Remote read.
        const REMOTE_READ = 4;
        /// Remote write.
        const REMOTE_WRITE = 8;
        /// Remote atomic.
        const REMOTE_ATOMIC = 16;
    }
}

impl MkeyRights {
    /// The rights in a key's context.
    pub fn of(context: &Mkc) -> Self {
        let mut rights = MkeyRights::empty();
        rights.set(MkeyRights::LOCAL_READ, context.lr());
        rights.set(MkeyRights::LOCAL_WRITE, context.lw());
        rights.set(MkeyRights::REMOTE_READ, context.rr());
        rights.set(MkeyRights::REMOTE_WRITE, context.rw());
        rights.set(MkeyRights::REMOTE_ATOMIC, context.a());
        rights
    }
}

/// How a key's addresses are translated to IOVAs.
#[derive(Debug, Clone)]
pub enum Translation {
    /// Not at all: addresses are IOVAs (`access_mode` PA).
    Physical,
    /// By pages (`access_mode` MTT); byte 0 is at the key's `start_addr`.
    Pages(PageList),
    /// The same, but pages may be absent.
    OnDemand(OnDemand),
    /// By parts of other keys (`access_mode` KLM), concatenated; byte 0 is at the key's `start_addr`.
    Keys(Vec<Klm>),
    /// The same, with parts of one size (`access_mode` KSM): `1 << log_page_size` bytes.
    FixedKeys(Vec<Klm>),
    /// By parts of other keys that take turns; byte 0 is at the key's `start_addr`.
    Pattern(Pattern),
    /// To device memory (`access_mode` MEMIC), starting at its byte `at`. Addresses count from 0; `start_addr` is the
    /// position in BAR 0.
    Device {
        /// The memory.
        bytes: Bytes,
        /// Offset of the key's first byte.
        at: u64,
    },
}

impl Translation {
    /// Whether it leads to other keys.
    pub fn is_indirect(&self) -> bool {
        matches!(self, Translation::Keys(_) | Translation::FixedKeys(_) | Translation::Pattern(_))
    }
}

/// Interleaved memory: a piece of each entry, then the next piece of each, and so on. PRM "Repeat Block Segment".
#[derive(Debug, Clone)]
pub struct Pattern {
    /// Bytes of one turn of all entries; never 0.
    pub cycle: u64,
    /// Who takes turns; none of their pieces is empty.
    pub entries: Vec<RepeatEntry>,
}

/// `op` of a repeat block. It stands where a list's first key would, so no key has this number.
pub const REPEAT: u32 = 0x400;

/// The translation by other keys in `list`: a repeat block, or a key to each octword, which take the places of those of
/// `old` from `offset` on. `None` if it is a repeat block in the middle of a list, or one that is not sound.
pub fn keys_of(old: &[Klm], offset: usize, list: &[u8]) -> Option<Translation> {
    let block = RepeatBlockSeg::read(list).filter(|block| block.op() == REPEAT);
    match block {
        Some(block) if offset == 0 => pattern(&block, list).map(Translation::Pattern),
        Some(_) => None,
        None => Some(Translation::Keys(spliced(old, offset, list.chunks(OCTWORD).filter_map(Klm::read)))),
    }
}

fn pattern(block: &RepeatBlockSeg, list: &[u8]) -> Option<Pattern> {
    let entries: Vec<_> = list.chunks(OCTWORD).skip(1).filter_map(RepeatEntry::read).collect();
    let entries = entries.get(..usize::from(block.num_entries()))?;
    let cycle = entries.iter().map(|entry| u64::from(entry.bcount())).sum();
    let is_sound = cycle != 0 && cycle == u64::from(block.bcount_per_cycle());
    (is_sound && entries.iter().all(|entry| entry.bcount() != 0)).then(|| Pattern { cycle, entries: entries.to_vec() })
}

impl Pattern {
    /// Key, address and length of the pieces that `len` bytes from byte `from` on lie in, in their order.
    pub fn pieces(&self, from: u64, len: u64) -> impl Iterator<Item = (u32, u64, u64)> {
        let (mut turn, mut skip, mut left) = (from / self.cycle, from % self.cycle, len);
        let mut entries = self.entries.iter().cycle().enumerate();
        std::iter::from_fn(move || {
            while left > 0 {
                let (number, entry) = entries.next()?;
                turn += u64::from(number > 0 && number % self.entries.len() == 0);
                let size = u64::from(entry.bcount());
                let skipped = skip.min(size);
                skip -= skipped;
                let now = left.min(size - skipped);
                left -= now;
                if now > 0 {
                    let at = entry.va().wrapping_add(turn.wrapping_mul(entry.stride().into())).wrapping_add(skipped);
                    return Some((entry.key(), at, now));
                }
            }
            None
        })
    }

    /// Key, address and length of what holds all pieces of each entry in these bytes: a stretch from the first on.
    pub fn stretches(&self, from: u64, len: u64) -> impl Iterator<Item = (u32, u64, u64)> {
        let (first, last) = (from / self.cycle, from.saturating_add(len.saturating_sub(1)) / self.cycle);
        self.entries.iter().map(move |entry| {
            let stride = u64::from(entry.stride());
            let start = entry.va().wrapping_add(first.wrapping_mul(stride));
            (entry.key(), start, (last - first).saturating_mul(stride).saturating_add(entry.bcount().into()))
        })
    }
}

/// The `old` entries with `new` ones from `offset` on; a gap between is filled with default values.
pub fn spliced<T: Clone + Default>(old: &[T], offset: usize, new: impl Iterator<Item = T>) -> Vec<T> {
    let mut all = old.to_vec();
    splice(&mut all, offset, new);
    all
}

/// The same to `all` itself.
pub fn splice<T: Clone + Default>(all: &mut Vec<T>, offset: usize, new: impl Iterator<Item = T>) {
    for (at, entry) in (offset..).zip(new) {
        all.resize(all.len().max(at + 1), T::default());
        all[at] = entry;
    }
}

/// The reserved lkey: addresses are IOVAs, local access only, by queue pairs with `rlky`. It is in no table.
pub const RESERVED_LKEY: u32 = 1;

/// The key of the null region (PRM `dump_fill_mkey`): reads find zeros, writes are discarded, local access only. It is
/// in no table.
pub const NULL_LKEY: u32 = 2;

/// A memory key.
#[derive(Debug, Clone)]
pub struct Mkey {
    /// The low eight bits of the key.
    pub variant: u8,
    /// The protection domain.
    pub pd: u32,
    /// The only queue pair that may use it; `None`: any.
    pub qpn: Option<u32>,
    /// Access rights.
    pub rights: MkeyRights,
    /// Start address.
    pub start: u64,
    /// Length in bytes; `None` for the whole address space (`length64`).
    pub len: Option<u64>,
    /// How addresses are translated.
    pub translation: Translation,
    /// The context, for `QUERY_MKEY`. The fields used by each access are repeated above.
    pub context: Mkc,
    /// The umem of its pages.
    pub umem: Option<u32>,
    /// Bytes of firmware pages charged for it.
    pub charged: u64,
}

/// `qpn` of a key that any queue pair may use.
const ANY_QP: u32 = 0xff_ffff;

impl Mkey {
    /// A key with that context.
    pub fn new(context: &Mkc, translation: Translation, umem: Option<u32>) -> Self {
        let mut mkey = Mkey {
            variant: 0,
            pd: 0,
            qpn: None,
            rights: MkeyRights::empty(),
            start: 0,
            len: None,
            translation,
            context: *context,
            umem,
            charged: 0,
        };
        mkey.adopt(context);
        mkey
    }

    /// Free: not usable until a UMR changes it.
    pub fn is_free(&self) -> bool {
        self.context.free()
    }

    /// Makes it free or usable.
    pub fn set_free(&mut self, free: bool) {
        self.context.w().free(free);
    }

    /// Copies the context's fields to the key; its translations stay.
    pub fn adopt(&mut self, context: &Mkc) {
        self.variant = context.mkey_7_0();
        self.pd = context.pd();
        self.qpn = (context.qpn() != ANY_QP).then(|| context.qpn());
        self.rights = MkeyRights::of(context);
        self.start = match &self.translation {
            Translation::Device { .. } => 0,
            _ => context.start_addr(),
        };
        self.len = (!context.length64()).then(|| context.len());
        self.context = *context;
    }
}

/// Who accesses memory: the properties of a queue pair that keys check.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct User {
    pub pd: u32,
    pub qpn: u32,
    /// May use keys of any protection domain (`REG_UMR`).
    pub every_pd: bool,
    /// May use the reserved lkey (`rlky`).
    pub is_trusted: bool,
    /// May register pages by UMR (`fre`).
    pub registers_pages: bool,
}
