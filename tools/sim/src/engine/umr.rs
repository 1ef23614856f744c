//! User memory region updates (UMR): WQEs that change an mkey's context and translations. PRM "UMR Control Segment".
//!
//! The kernel registers user memory with them, in a queue pair of its own that may change every key (service
//! `REG_UMR`). Other queue pairs may change keys of their protection domain: fast registration, invalidation, memory
//! windows.

use std::sync::Arc;

use mlx5_prm::cqe::CqeSyndrome;
use mlx5_prm::ctx::{AccessMode, Klm, Mkc};
use mlx5_prm::layout::Layout;
use mlx5_prm::wqe::{CtrlSeg, DataSeg, MkeyMaskBit, SEGMENT, UmrCheck, UmrCtrlSeg, mkey_mask};
use thiserror::Error;

use crate::function::Nic;
use crate::objects::{
    Failure, List, MAX_PAGE_SHIFT, MIN_PAGE_SHIFT, Mkey, MkeyRights, OCTWORD, OnDemand, PRESENT, PageList,
    TRANSLATIONS, Translation, Update, User, addresses, keys_of, page_rights, splice, spliced,
};
use crate::strict::rules;

/// Translation lists are a multiple of this number of octwords.
const BLOCK: u64 = 4;
/// Copies a part of one context to another.
type Take = fn(&Mkc, &mut Mkc);
/// Parts of a context that a UMR may change: `mkey_mask`. Others need capabilities that are not announced.
const PARTS: &[(MkeyMaskBit, Take)] = &[
    (MkeyMaskBit::Len, |new, key| _ = key.w().len(new.len()).length64(new.length64())),
    (MkeyMaskBit::PageSize, |new, key| _ = key.w().log_page_size(new.log_page_size())),
    (MkeyMaskBit::StartAddr, |new, key| _ = key.w().start_addr(new.start_addr())),
    (MkeyMaskBit::Pd, |new, key| _ = key.w().pd(new.pd())),
    (MkeyMaskBit::EnRinval, |new, key| _ = key.w().en_rinval(new.en_rinval())),
    (MkeyMaskBit::Key, |new, key| _ = key.w().mkey_7_0(new.mkey_7_0())),
    (MkeyMaskBit::Qpn, |new, key| _ = key.w().qpn(new.qpn())),
    (MkeyMaskBit::LocalRead, |new, key| _ = key.w().lr(new.lr())),
    (MkeyMaskBit::LocalWrite, |new, key| _ = key.w().lw(new.lw())),
    (MkeyMaskBit::RemoteRead, |new, key| _ = key.w().rr(new.rr())),
    (MkeyMaskBit::RemoteWrite, |new, key| _ = key.w().rw(new.rw())),
    (MkeyMaskBit::Atomic, |new, key| _ = key.w().a(new.a())),
    (MkeyMaskBit::SmallFence, |new, key| {
        _ = key.w().small_fence_on_rdma_read_response(new.small_fence_on_rdma_read_response());
    }),
    (MkeyMaskBit::RelaxedOrderingWrite, |new, key| {
        _ = key.w().relaxed_ordering_write(new.relaxed_ordering_write());
    }),
    (MkeyMaskBit::RelaxedOrderingRead, |new, key| _ = key.w().relaxed_ordering_read(new.relaxed_ordering_read())),
    (MkeyMaskBit::Free, |new, key| _ = key.w().free(new.free())),
];

/// Why a UMR is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
enum Refusal {
    #[error("no such key")]
    Unknown,
    #[error("the key was made without umr_en")]
    NotEnabled,
    #[error("the key is of another protection domain")]
    Pd,
    #[error("the key's low byte is {0:#04x}")]
    Variant(u8),
    #[error("the key is bound to another queue pair")]
    QueuePair,
    #[error("the key is in use, but check_free requires it to be free")]
    InUse,
    #[error("the key is free, but the UMR requires it to be in use")]
    Free,
    #[error("mkey_mask {0:#x} has fields that cannot be changed")]
    Mask(u64),
    #[error("the key has room for {0:#x} octwords of translations")]
    Room(u64),
    #[error("the key's access mode has no translations")]
    AccessMode,
    #[error("a pattern of keys in the middle of a list, or whose bcount_per_cycle is not the sum of its entries")]
    Pattern,
    #[error("no such protection domain")]
    NoSuchPd,
    #[error("log_page_size is not between 12 and 31")]
    PageSize,
    #[error("a page is not aligned to the page size")]
    Misaligned,
    #[error("a list of pages, but the queue pair was made without fre")]
    NoFastRegistration,
}

/// Parses the segments after the control segment. `wqe` is the whole WQE.
pub(super) fn parse(ctrl: &CtrlSeg, wqe: &[u8]) -> Option<Update> {
    let control = UmrCtrlSeg::read(wqe.get(SEGMENT..)?)?;
    let context = wqe.get(SEGMENT + UmrCtrlSeg::SIZE..)?;
    let list = context.get(Mkc::SIZE..)?;
    let context = Mkc::read(context)?;
    let len = usize::from(control.xlt_octowords()) * OCTWORD;
    let list = if control.inline() || len == 0 {
        List::Inline(list.get(..len)?.to_vec())
    } else {
        let data = DataSeg::read(list)?;
        List::Memory { key: data.lkey(), address: data.addr() }
    };
    Some(Update { key: ctrl.imm(), control, context, list })
}

/// Applies the update, completely or not at all.
pub(crate) fn apply(user: User, nic: &mut Nic, update: &Update) -> Result<(), Failure> {
    let list = update.read_list(user, nic)?;
    change(user, nic, update, &list).map_err(|refusal| {
        nic.strict.report(rules::UMR, || format!("QP {:#x}: key {:#x}: {refusal}", user.qpn, update.key));
        Failure::new(CqeSyndrome::MemoryWindowBind)
    })
}

fn change(user: User, nic: &mut Nic, update: &Update, list: &[u8]) -> Result<(), Refusal> {
    let may_be_absent = nic.firmware.caps.general().pg();
    let mkey = nic.objects.mkeys.get_mut(update.key >> 8).ok_or(Refusal::Unknown)?;
    update.check(user, mkey)?;
    let context = update.merge(&mkey.context);
    if context.pd() != mkey.pd && nic.objects.pds.get(context.pd()).is_none() {
        return Err(Refusal::NoSuchPd);
    }
    let translation = update.translation(mkey, &context, list, may_be_absent)?;
    if context.pd() != mkey.pd {
        nic.objects.pds.get_mut(context.pd()).ok_or(Refusal::NoSuchPd)?.users += 1;
        if let Some(pd) = nic.objects.pds.get_mut(mkey.pd) {
            pd.users = pd.users.saturating_sub(1);
        }
    }
    if let (Translation::Pages(pages), false) = (&translation, list.is_empty()) {
        let (count, page) = (list.len() / size_of::<u64>(), 1u64 << pages.page_shift);
        tracing::debug!(target: TRANSLATIONS, "key {:#x} by an update: {count} pages of {page} bytes", update.key);
    }
    mkey.translation = translation;
    mkey.adopt(&context);
    Ok(())
}

impl Update {
    fn read_list(&self, user: User, nic: &Nic) -> Result<Vec<u8>, Failure> {
        match &self.list {
            List::Inline(bytes) => Ok(bytes.clone()),
            List::Memory { key, address } => {
                let mut bytes = vec![0; usize::from(self.control.xlt_octowords()) * OCTWORD];
                if nic.read(user, *key, *address, &mut bytes, MkeyRights::LOCAL_READ) {
                    return Ok(bytes);
                }
                nic.allows(user, *key, *address, bytes.len() as u64, MkeyRights::LOCAL_READ); // reports the reason
                Err(Failure::new(CqeSyndrome::LocalProtection))
            }
        }
    }

    fn changes(&self, part: MkeyMaskBit) -> bool {
        self.control.mkey_mask() & mkey_mask(&[part]) != 0
    }

    /// Whether the queue pair may change this key, and whether the key is in the state that `check_free` expects.
    fn check(&self, user: User, mkey: &Mkey) -> Result<(), Refusal> {
        let is_for_all = user.every_pd;
        let changeable = PARTS.iter().fold(0, |mask, (part, _)| mask | mkey_mask(&[*part]));
        let beyond = self.control.mkey_mask() & !changeable;
        if beyond != 0 || self.changes(MkeyMaskBit::Pd) && !is_for_all {
            return Err(Refusal::Mask(self.control.mkey_mask()));
        }
        if !mkey.context.umr_en() {
            return Err(Refusal::NotEnabled);
        }
        if mkey.pd != user.pd && !is_for_all {
            return Err(Refusal::Pd);
        }
        if mkey.variant != self.key as u8 && !self.changes(MkeyMaskBit::Key) {
            return Err(Refusal::Variant(mkey.variant));
        }
        let has_pages = self.control.xlt_octowords() != 0 && mkey.context.access_mode() == AccessMode::Mtt;
        if has_pages && !user.registers_pages {
            return Err(Refusal::NoFastRegistration);
        }
        if self.control.check_qpn() && mkey.qpn != Some(user.qpn) {
            return Err(Refusal::QueuePair);
        }
        match UmrCheck::from_number(self.control.check_free().into()) {
            UmrCheck::NotFree if !mkey.is_free() => Err(Refusal::InUse),
            UmrCheck::Free if mkey.is_free() => Err(Refusal::Free),
            _ => Ok(()),
        }
    }

    /// The key's context with the parts that `mkey_mask` names replaced.
    fn merge(&self, old: &Mkc) -> Mkc {
        let mut merge = *old;
        for (part, take) in PARTS {
            if self.changes(*part) {
                take(&self.context, &mut merge);
            }
        }
        merge
    }

    /// The key's translations with `list` inserted, whose pages may be absent.
    fn translation(
        &self,
        mkey: &mut Mkey,
        context: &Mkc,
        list: &[u8],
        may_be_absent: bool,
    ) -> Result<Translation, Refusal> {
        let offset = if self.control.translation_offset_en() {
            usize::try_from(u64::from(self.control.xlt_offset_47_16()) << 16 | u64::from(self.control.xlt_offset()))
                .unwrap_or(usize::MAX)
        } else {
            0
        };
        // Lists are padded with zeros to 64 bytes; so is the key's room for them.
        let octwords = u64::from(context.translations_octword_size());
        let room = if mkey.umem.is_some() { 0 } else { octwords.next_multiple_of(BLOCK) };
        let end = offset.checked_add(list.len() / OCTWORD).filter(|end| list.is_empty() || *end as u64 <= room);
        end.ok_or(Refusal::Room(room))?;
        match &mkey.translation {
            Translation::Pages(old) if mkey.umem.is_some() => Ok(Translation::Pages(old.clone())),
            Translation::Pages(old) => {
                check_aligned(context, list, may_be_absent)?;
                let pages = pages(old, context, offset, list)?;
                Ok(with_rights(pages, None, old.pages.len(), offset, list, may_be_absent))
            }
            Translation::OnDemand(OnDemand { pages: old, rights }) => {
                check_aligned(context, list, may_be_absent)?;
                let pages = pages(old, context, offset, list)?;
                Ok(with_rights(pages, Some(rights), old.pages.len(), offset, list, may_be_absent))
            }
            Translation::FixedKeys(_) if page_shift(context).is_err() && !context.free() => Err(Refusal::PageSize),
            keys if keys.is_indirect() && list.is_empty() => Ok(keys.clone()),
            // In place: for all addresses of a process it is long, and is written bit by bit.
            Translation::FixedKeys(_) => {
                let Translation::FixedKeys(mut keys) = std::mem::replace(&mut mkey.translation, Translation::Physical)
                else {
                    return Err(Refusal::AccessMode);
                };
                splice(&mut keys, offset, list.chunks(OCTWORD).filter_map(Klm::read));
                Ok(Translation::FixedKeys(keys))
            }
            Translation::Keys(old) => keys_of(old, offset, list).ok_or(Refusal::Pattern),
            // What is left of a pattern is no list that could be continued.
            Translation::Pattern(_) if offset == 0 => keys_of(&[], 0, list).ok_or(Refusal::Pattern),
            Translation::Pattern(_) => Err(Refusal::Pattern),
            other @ (Translation::Physical | Translation::Device { .. }) if list.is_empty() => Ok(other.clone()),
            Translation::Physical | Translation::Device { .. } => Err(Refusal::AccessMode),
        }
    }
}

/// Pages of a key that is used from now on are aligned, as those in `CREATE_MKEY`'s list. Of those that are absent, the
/// address means nothing. While a key is free, Linux writes pages of another size than the context still says: the last
/// update of several changes that.
fn check_aligned(context: &Mkc, list: &[u8], may_be_absent: bool) -> Result<(), Refusal> {
    if context.free() || list.is_empty() {
        return Ok(());
    }
    let inside = (1u64 << page_shift(context)?) - 1;
    let mut entries = addresses(list).zip(page_rights(list));
    let is_misaligned = |(page, rights)| page & inside != 0 && (rights != 0 || !may_be_absent);
    if entries.any(is_misaligned) { Err(Refusal::Misaligned) } else { Ok(()) }
}

/// The key's pages, two to an octword, with `list` written from octword `offset` on.
fn pages(old: &PageList, context: &Mkc, offset: usize, list: &[u8]) -> Result<PageList, Refusal> {
    let is_unused = list.is_empty() && context.free();
    let page_shift = match page_shift(context) {
        Err(refusal) if !is_unused => return Err(refusal),
        _ => u32::from(context.log_page_size()),
    };
    let pages = match list {
        [] => old.pages.clone(),
        list => spliced(&old.pages, offset * 2, addresses(list)).into(),
    };
    let offset = context.start_addr() & ((1u64 << page_shift) - 1);
    Ok(PageList { page_shift, offset, pages })
}

/// `pages` with what each allows: the `count` old ones' rights, with those in `list` from octword `offset` on.
fn with_rights(
    pages: PageList,
    old: Option<&Arc<[u8]>>,
    count: usize,
    offset: usize,
    list: &[u8],
    may_be_absent: bool,
) -> Translation {
    let are_all_present = old.is_none() && page_rights(list).all(|rights| rights == PRESENT);
    if !may_be_absent || are_all_present {
        return Translation::Pages(pages);
    }
    let rights = match (old, list) {
        (Some(old), []) => old.clone(),
        (old, list) => {
            let old = old.map_or_else(|| vec![PRESENT; count], |old| old.to_vec());
            spliced(&old, offset * 2, page_rights(list)).into()
        }
    };
    Translation::OnDemand(OnDemand { pages, rights })
}

/// log2 of the bytes of a page, or of a key of fixed size.
fn page_shift(context: &Mkc) -> Result<u32, Refusal> {
    let shift = u32::from(context.log_page_size());
    if (MIN_PAGE_SHIFT..=MAX_PAGE_SHIFT).contains(&shift) { Ok(shift) } else { Err(Refusal::PageSize) }
}
