//! Memory keys that work requests configure (UMR).

use std::fmt;
use std::sync::Arc;

use mlx5_prm::caps::CmdHcaCap;
use mlx5_prm::cmd::CreateMkeyIn;
use mlx5_prm::ctx::{AccessMode, Mkc};
use mlx5_prm::wqe::{MkeyMaskBit, mkey_mask};

use super::check::within;
use super::mkey::{ANY_QP, end_of, query_context};
use super::object::{DestroyError, Object, destroy_sole};
use super::pd::Pd;
use crate::caps::CapPage;
use crate::error::{CommandError, Error, Invalid};
use crate::memory::Translation;

/// The octwords of a translation list are a multiple of this.
const BLOCK: u32 = 4;

/// Translation of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyLayout {
    /// Parts of other keys, of any length, one after the other or interleaved (PRM "KLM"). Requires `imaicl`.
    Parts,
    /// Pages of one size, by device address (PRM "MTT"). Only on an owned function: the kernel does not report device
    /// addresses.
    Pages {
        /// Log of the page size in bytes: 12 to 31.
        log_page_size: u8,
    },
}

/// Options of an [`UmrKey`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct UmrKeyOptions {
    /// Its translation. Default: [`KeyLayout::Parts`].
    pub layout: KeyLayout,
    /// Maximum number of parts or pages. Default: 16.
    pub entries: u32,
    /// Whether the remote may invalidate it by a SEND with invalidate. Default: yes.
    pub remote_invalidate: bool,
}

impl Default for UmrKeyOptions {
    fn default() -> Self {
        UmrKeyOptions { layout: KeyLayout::Parts, entries: 16, remote_invalidate: true }
    }
}

impl UmrKeyOptions {
    /// Sets [`entries`](Self::entries).
    pub fn entries(mut self, entries: u32) -> Self {
        self.entries = entries;
        self
    }

    /// Sets [`layout`](Self::layout) to pages of `1 << log_page_size` bytes.
    pub fn pages(mut self, log_page_size: u8) -> Self {
        self.layout = KeyLayout::Pages { log_page_size };
        self
    }

    /// Sets [`remote_invalidate`](Self::remote_invalidate).
    pub fn remote_invalidate(mut self, allowed: bool) -> Self {
        self.remote_invalidate = allowed;
        self
    }
}

/// A memory key that is free until a work request (UMR) registers memory and rights with it, and again after it was
/// invalidated. PRM "Memory Key", "UMR Control Segment".
///
/// The card changes it in the order of the send queue's work requests, without a command. It does not hold memory: see
/// [`SendBatch::register`](crate::queue::SendBatch::register), and [`FastKey`](crate::queue::FastKey), which does.
pub struct UmrKey {
    base: u32,
    options: UmrKeyOptions,
    room: u32,
    atomics: bool,
    changed: u64,
    object: Object,
    pd: Arc<Pd>,
}

impl fmt::Debug for UmrKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UmrKey({:#x}, room for {} {:?})", self.base, self.options.entries, self.options.layout)
    }
}

impl UmrKey {
    /// Creates a free key of `pd`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the card does not support this translation; [`Error::Invalid`] for zero entries, more
    /// than `log_max_klm_list_size` allows, an invalid page size, or pages on DevX; [`Error::Command`].
    pub fn create(pd: &Arc<Pd>, options: UmrKeyOptions) -> Result<Self, Error> {
        let caps = pd.device().caps();
        let general: CmdHcaCap = caps.current(CapPage::General).unwrap_or_default();
        check(pd, &options, &general)?;
        let room = octwords(&options);
        let mut context = Mkc::default();
        context
            .w()
            .free(true)
            .umr_en(true)
            .lr(true)
            .en_rinval(options.remote_invalidate)
            .qpn(ANY_QP)
            .pd(pd.pdn())
            .translations_octword_size(room);
        match options.layout {
            KeyLayout::Parts => context.set_access_mode(AccessMode::Klms),
            KeyLayout::Pages { log_page_size } => {
                context.set_access_mode(AccessMode::Mtt);
                context.w().log_page_size(log_page_size);
            }
        }
        let mut create = CreateMkeyIn::default();
        create.w().memory_key_mkey_entry(&context);
        let what = format!("a free memory key with room for {} entries", options.entries);
        // SAFETY: the key is free and has no list, so it names no memory. Whoever posts a registration is responsible
        // for its memory.
        let created =
            unsafe { Object::create_over_memory(pd.device(), &create, &what, |out| end_of(out.mkey_index())) };
        let (object, out) = created?;
        let atomics = caps.check_atomics().is_ok() && !general.umr_modify_atomic_disabled();
        let changed = changed(atomics, &general);
        Ok(UmrKey { base: out.mkey_index() << 8, options, room, atomics, changed, object, pd: Arc::clone(pd) })
    }

    /// The key with the low eight bits `variant`, for local and remote work requests.
    pub fn key(&self, variant: u8) -> u32 {
        self.base | u32::from(variant)
    }

    /// Asks the card for its context, under PRM names: whether it is free, and what its registration set. PRM
    /// "QUERY_MKEY". Errors: [`Error::Command`].
    pub fn query(&self) -> Result<Mkc, Error> {
        query_context(&self.object, self.base >> 8)
    }

    /// Its options.
    pub fn options(&self) -> &UmrKeyOptions {
        &self.options
    }

    /// Octwords of its translation list.
    pub(crate) fn room(&self) -> u32 {
        self.room
    }

    /// Whether a registration can grant REMOTE_ATOMIC.
    pub(crate) fn atomics(&self) -> bool {
        self.atomics
    }

    /// Which fields a registration changes: bits of `mkey_mask`.
    pub(crate) fn changed(&self) -> u64 {
        self.changed
    }

    /// The protection domain.
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Destroys the key, registered or not. Afterwards it grants no access. On an error the key stays alive and is
    /// returned.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, UmrKey::end)
    }

    /// The key; this value then destroys nothing.
    pub(crate) fn take(&mut self) -> Self {
        UmrKey { object: self.object.take(), pd: Arc::clone(&self.pd), ..*self }
    }

    /// As [`destroy`](Self::destroy), for the only owner.
    pub(crate) fn end(&mut self) -> Result<(), CommandError> {
        self.object.destroy()
    }
}

/// What every registration changes.
const ALWAYS: u64 = mkey_mask(&[
    MkeyMaskBit::Len,
    MkeyMaskBit::StartAddr,
    MkeyMaskBit::Key,
    MkeyMaskBit::LocalWrite,
    MkeyMaskBit::RemoteRead,
    MkeyMaskBit::RemoteWrite,
    MkeyMaskBit::Free,
]);

/// What a registration changes on this card.
fn changed(atomics: bool, general: &CmdHcaCap) -> u64 {
    let write = general.relaxed_ordering_write_umr() && general.relaxed_ordering_write();
    let read = general.relaxed_ordering_read_umr() && general.relaxed_ordering_read();
    let fields = [
        (atomics, MkeyMaskBit::Atomic),
        (write, MkeyMaskBit::RelaxedOrderingWrite),
        (read, MkeyMaskBit::RelaxedOrderingRead),
    ];
    fields.iter().filter(|(offered, _)| *offered).fold(ALWAYS, |mask, (_, field)| mask | mkey_mask(&[*field]))
}

/// The longest list that a work request can change: its octwords have 16 bits (`xlt_octowords`).
const LONGEST_LIST: u32 = u16::MAX as u32 / BLOCK * BLOCK;

/// Octwords of the translation list: one per part, or one per two pages.
fn octwords(options: &UmrKeyOptions) -> u32 {
    let octwords = match options.layout {
        KeyLayout::Parts => options.entries,
        KeyLayout::Pages { .. } => options.entries.div_ceil(2),
    };
    octwords.checked_next_multiple_of(BLOCK).unwrap_or(u32::MAX)
}

fn check(pd: &Pd, options: &UmrKeyOptions, general: &CmdHcaCap) -> Result<(), Error> {
    if options.entries == 0 {
        return Err(Invalid::Empty { what: "a memory key for fast registration", lacks: "entries" }.into());
    }
    if octwords(options) > LONGEST_LIST {
        let limit = 1..=u64::from(LONGEST_LIST);
        return Err(Invalid::out_of_range("octwords", octwords(options).into(), limit, "a work request's list").into());
    }
    match options.layout {
        KeyLayout::Parts => {
            check_parts(general)?;
            within("entries", options.entries.into(), "log_max_klm_list_size", general.log_max_klm_list_size())?;
        }
        KeyLayout::Pages { log_page_size } => {
            let limit = u64::from(Translation::LOG_SMALLEST)..=31;
            if !limit.contains(&log_page_size.into()) {
                return Err(Invalid::out_of_range("log_page_size", log_page_size.into(), limit, "a memory key").into());
            }
            within("entries", options.entries.into(), "log_max_klm_list_size", general.log_max_klm_list_size())?;
            let access = pd.device().access();
            if !access.knows_addresses() {
                let (what, device) = ("addresses of pages", access.name().to_owned());
                let mend = "use KeyLayout::Parts, which names memory by keys";
                return Err(Invalid::WrongAccess { what, device, kernel: true, mend }.into());
            }
        }
    }
    Ok(())
}

/// Error if the card does not support keys of parts.
fn check_parts(general: &CmdHcaCap) -> Result<(), Error> {
    let capability = match general {
        general if !general.imaicl() => "imaicl",
        general if general.umr_indirect_mkey_disabled() => "umr_indirect_mkey_disabled",
        _ => return Ok(()),
    };
    Err(Error::Unsupported { what: "changing memory keys of parts by work requests".into(), capability })
}
