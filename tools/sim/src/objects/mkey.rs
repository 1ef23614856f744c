//! Memory keys.

use super::PageList;

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

/// How a key's addresses become IOVAs.
#[derive(Debug, Clone)]
pub enum Translation {
    /// They are IOVAs already (`access_mode` PA).
    Physical,
    /// Through pages (`access_mode` MTT); byte 0 is the key's `start_addr`.
    Pages(PageList),
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
    /// Not usable until a UMR frees it (`free`).
    pub free: bool,
    /// The context as it was given, for `QUERY_MKEY`.
    pub context: mlx5_prm::ctx::Mkc,
    /// The umem its pages came from.
    pub umem: Option<u32>,
}
