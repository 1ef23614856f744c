//! Memory keys.

use mlx5_prm::ctx::{Klm, Mkc};
use mlx5_prm::layout::Layout;

use super::{Bytes, PageList};

/// Bytes of an octword, the unit in which translations are counted.
pub const OCTWORD: usize = 16;

bitflags::bitflags! {
    /// What a key allows.
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
    /// What a key's context allows.
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

/// How a key's addresses become IOVAs.
#[derive(Debug, Clone)]
pub enum Translation {
    /// They are IOVAs already (`access_mode` PA).
    Physical,
    /// Through pages (`access_mode` MTT); byte 0 is the key's `start_addr`.
    Pages(PageList),
    /// Through pieces of other keys (`access_mode` KLM), one after the other; byte 0 is the key's `start_addr`.
    Keys(Vec<Klm>),
    /// They count from 0 in memory on the card (`access_mode` MEMIC), of which byte `at` is the first; the key's
    /// `start_addr` says where in BAR 0 that is.
    Device {
        /// The memory.
        bytes: Bytes,
        /// The key's first byte of it.
        at: u64,
    },
}

/// The pieces of other keys that a list names, one to an octword.
pub fn pieces(list: &[u8]) -> impl Iterator<Item = Klm> {
    list.chunks(OCTWORD).filter_map(Klm::read)
}

/// The reserved local key: its addresses are IOVAs, and queue pairs with `rlky` may use it locally. In no table.
pub const RESERVED_LKEY: u32 = 1;

/// A memory key.
#[derive(Debug, Clone)]
pub struct Mkey {
    /// The low eight bits of the key.
    pub variant: u8,
    /// The protection domain.
    pub pd: u32,
    /// The only queue pair that may use it; `None` for any.
    pub qpn: Option<u32>,
    /// What it allows.
    pub rights: MkeyRights,
    /// First address.
    pub start: u64,
    /// Bytes; `None` for the whole address space (`length64`).
    pub len: Option<u64>,
    /// How addresses become IOVAs.
    pub translation: Translation,
    /// The context, for `QUERY_MKEY`. What each access looks at stands above as well.
    pub context: Mkc,
    /// The umem its pages came from.
    pub umem: Option<u32>,
    /// Bytes of firmware's pages that it was charged.
    pub charged: u64,
}

/// `qpn` of a key that every queue pair may use.
const ANY_QP: u32 = 0xff_ffff;

impl Mkey {
    /// A key of that context.
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

    /// Not usable until an update says otherwise.
    pub fn is_free(&self) -> bool {
        self.context.free()
    }

    /// Makes it free, or usable.
    pub fn set_free(&mut self, free: bool) {
        self.context.w().free(free);
    }

    /// Sets the key to what its context says; its translations stay.
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

/// Who makes an access: what of a queue pair matters to a key.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct User {
    pub pd: u32,
    pub qpn: u32,
    /// It updates keys for the kernel (`REG_UMR`), of whatever protection domain.
    pub every_pd: bool,
    /// It may use the reserved local key (`rlky`).
    pub is_trusted: bool,
}
