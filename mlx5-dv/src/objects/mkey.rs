//! Memory keys.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use mlx5_prm::caps::CmdHcaCap;
use mlx5_prm::cmd::{CreateMkeyIn, DestroyMkeyIn, QueryMkeyIn, WithTail};
use mlx5_prm::ctx::{AccessMode, Mkc};
use mlx5_prm::layout::Be64;

use super::check::within;
use super::kernel_object::{KernelObject, shared};
use super::object::Object;
use super::pd::Pd;
use crate::access::{KernelObjectKind, KernelRegion, MemicHandle, ObjectHandle};
use crate::caps::{CapPage, Caps};
use crate::device::Device;
use crate::error::{CommandError, Error, Invalid};
use crate::kernel::abi::{
    IB_UVERBS_ACCESS_LOCAL_WRITE, IB_UVERBS_ACCESS_ON_DEMAND, IB_UVERBS_ACCESS_RELAXED_ORDERING,
    IB_UVERBS_ACCESS_REMOTE_ATOMIC, IB_UVERBS_ACCESS_REMOTE_READ, IB_UVERBS_ACCESS_REMOTE_WRITE,
};
use crate::memory::{DmaBuffer, Iova, Translation};

bitflags::bitflags! {
    /// Access rights to registered memory. Local reads are always allowed.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct AccessFlags: u32 {
        /// Local receives and RDMA READs may write it.
        const LOCAL_WRITE = 1;
        /// The remote may write it by RDMA WRITE.
        const REMOTE_WRITE = 2;
        /// The remote may read it by RDMA READ.
        const REMOTE_READ = 4;
        /// The remote may execute atomics on it.
        const REMOTE_ATOMIC = 8;
        /// The card's writes to it may pass each other on PCIe, which is faster on some hosts. Completions still come
        /// after their data; data that is polled for does not come in its order. A hint, as in verbs: a card without
        /// `relaxed_ordering_write` and `relaxed_ordering_read` ignores it.
        const RELAXED_ORDERING = 16;
    }
}

/// `access_mode` of a key that is translated by pages.
const ACCESS_MODE_MTT: u8 = 1;
/// `qpn` of a key for all queue pairs of its PD.
pub(super) const ANY_QP: u32 = 0xff_ffff;
/// Bytes of the smallest page of a key.
pub(super) const SMALLEST: usize = 1 << Translation::LOG_SMALLEST;
/// Rights of a page in a list with `pg_access`: read and write; the key restricts them.
const PAGE_PRESENT: u64 = 0b11;

/// A memory key: the address range and access rights of a region. PRM "Memory Key".
pub struct Mkey {
    key: u32,
    log_page_size: u32,
    holder: Holder,
}

/// Who has made the key: where only the kernel knows DMA addresses, it registers the memory.
#[derive(Debug)]
enum Holder {
    Firmware(Object),
    Kernel(KernelObject),
    /// The key is a region's of all addresses, which somebody else holds.
    Implicit,
}

impl fmt::Debug for Mkey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mkey({:#x})", self.key)
    }
}

impl Mkey {
    /// Creates a key of `pd` for `memory`'s data: any address, any length but zero. `start` is the first address of its
    /// range; it has the data's offset in a page of 4 KiB.
    ///
    /// `on_demand`: the kernel brings the pages when the card needs them.
    pub(super) fn create(
        pd: &Pd,
        memory: &Arc<DmaBuffer>,
        access: AccessFlags,
        start: u64,
        on_demand: bool,
    ) -> Result<Self, Error> {
        let host = memory.memory().ok_or(Invalid::Empty { what: "a memory key", lacks: "memory" })?;
        Self::check(pd, host.data_len() as u64, access)?;
        if on_demand {
            check_answered(pd.device())?;
            pd.device().caps().check_on_demand()?;
        }
        if let Some(kernel) = pd.device().access().kernel_verbs() {
            let rights = kernel_rights(access) | if on_demand { IB_UVERBS_ACCESS_ON_DEMAND } else { 0 };
            // SAFETY: grants access to `memory`'s data and no other byte. `MemoryRegion` keeps the buffer until the key
            // is destroyed, and leaks it if that fails; nobody has a reference to the data.
            let region = unsafe { kernel.reg_mr(pd.kernel_handle(), host, start, rights) }?;
            return Ok(Mkey::of_kernel(pd, region));
        }
        // The whole pages before the data are left out where their addresses would be negative.
        let skipped = if start < host.data_offset() as u64 { host.data_offset() & !(SMALLEST - 1) } else { 0 };
        let (first, iova) = (start - (host.data_offset() - skipped) as u64, Iova(memory.iova().0 + skipped as u64));
        let pages = Translation::of(first, iova, host.len() - skipped);
        let octwords = octwords(pages.count)?;
        let mut context = Mkc::default();
        set_pages(&mut context, pd, access);
        context
            .w()
            .start_addr(start)
            .len(host.data_len() as u64)
            .log_page_size(pages.log_size as u8)
            .translations_octword_size(octwords);
        let mut create = CreateMkeyIn::default();
        // As Linux: only a card with on-demand paging takes rights in the list, and `pg_access` says they are there.
        let with_rights = pd.device().caps().current::<CmdHcaCap>(CapPage::General).is_some_and(|general| general.pg());
        create.w().pg_access(with_rights).memory_key_mkey_entry(&context).translations_octword_actual_size(octwords);
        let what = format!("{} bytes of memory", host.data_len());
        let create = WithTail::new(create, entries(pages, if with_rights { PAGE_PRESENT } else { 0 }));
        // SAFETY: grants access to `memory`'s data and no other byte: `start_addr` and `len` are the data's.
        // `MemoryRegion` keeps the buffer until the key is destroyed, and leaks it if that fails; nobody has a
        // reference to the data.
        let created =
            unsafe { Object::create_over_memory(pd.device(), &create, &what, |out| end_of(out.reply.mkey_index())) };
        let (object, out) = created?;
        let key = out.reply.mkey_index() << 8;
        Ok(Mkey { key, log_page_size: pages.log_size, holder: Holder::Firmware(object) })
    }

    /// Creates a key of `pd` for all addresses of this process, on demand, for local work requests.
    pub(super) fn of_all_addresses(pd: &Pd) -> Result<Self, Error> {
        check_answered(pd.device())?;
        pd.device().caps().check_on_demand_implicit()?;
        let rights = IB_UVERBS_ACCESS_LOCAL_WRITE | IB_UVERBS_ACCESS_ON_DEMAND;
        // SAFETY: the key gives remotes no access. Of this process's work requests, the safe ones name by it only the
        // bytes of a `MemoryRegion` in it, and who posts holds that until the card is done with it, or forever.
        let region = unsafe { shared(pd.device(), "memory on demand")?.reg_implicit_mr(pd.kernel_handle(), rights) }?;
        Ok(Mkey::of_kernel(pd, region))
    }

    /// The key of a region of all addresses, for memory in it. Destroying it leaves the region.
    pub(super) fn in_implicit(key: u32) -> Self {
        Mkey { key, log_page_size: Translation::LOG_SMALLEST, holder: Holder::Implicit }
    }

    /// Error for a region of `len` bytes that no card has, or not this one.
    pub(super) fn check(pd: &Pd, len: u64, access: AccessFlags) -> Result<(), Error> {
        let caps = pd.device().caps();
        check_access(access, caps)?;
        check_remote_writes(access)?;
        Ok(within("the length of a memory region", len, "log_max_mrw_sz", caps.log_max_mrw_sz)?)
    }

    /// Creates a key of `pd` for `len` bytes of a umem: its number, and where in it they start. `start` is the first
    /// address of the key's range; it has the same offset in a page of 4 KiB.
    pub(super) fn of_umem(
        pd: &Pd,
        (umem_id, offset): (u32, u64),
        len: u64,
        start: u64,
        access: AccessFlags,
    ) -> Result<Self, Error> {
        let log_page_size = Translation::LOG_SMALLEST;
        let count = (start % SMALLEST as u64 + len).div_ceil(SMALLEST as u64);
        let octwords = octwords(count)?;
        let mut context = Mkc::default();
        set_pages(&mut context, pd, access);
        context.w().start_addr(start).len(len).log_page_size(log_page_size as u8).translations_octword_size(octwords);
        let mut create = CreateMkeyIn::default();
        create
            .w()
            .memory_key_mkey_entry(&context)
            .translations_octword_actual_size(octwords)
            .mkey_umem_valid(true)
            .mkey_umem_id(umem_id)
            .mkey_umem_offset(offset);
        let what = format!("{len} bytes of a umem");
        let create = WithTail::new(create, Vec::<Be64>::new());
        // SAFETY: grants access to bytes of the umem, which is a dma-buf's: no memory that Rust owns.
        let created =
            unsafe { Object::create_over_memory(pd.device(), &create, &what, |out| end_of(out.reply.mkey_index())) };
        let (object, out) = created?;
        Ok(Mkey { key: out.reply.mkey_index() << 8, log_page_size, holder: Holder::Firmware(object) })
    }

    /// The key of a region that the kernel has registered. Both keys are one, as mlx5's are; the kernel does not tell
    /// its page size, which is at least the smallest.
    fn of_kernel(pd: &Pd, region: KernelRegion) -> Self {
        let object = KernelObject::made(pd.device(), KernelObjectKind::Region, region.handle);
        Mkey { key: region.lkey, log_page_size: Translation::LOG_SMALLEST, holder: Holder::Kernel(object) }
    }

    /// Creates a key of `pd` for the bytes `range` of device memory. Its addresses count from 0. PRM "Memory Key",
    /// access mode MEMIC.
    pub(super) fn of_device_memory(
        pd: &Pd,
        memory: &MemicHandle,
        range: Range<u64>,
        access: AccessFlags,
    ) -> Result<Self, Error> {
        check_access(access, pd.device().caps())?;
        check_remote_writes(access)?;
        let (start, len) = (memory.start() + range.start, range.end - range.start);
        if let Some(kernel) = pd.device().access().kernel_verbs() {
            let rights = kernel_rights(access - AccessFlags::RELAXED_ORDERING);
            return Ok(Mkey::of_kernel(pd, kernel.reg_dm_mr(pd.kernel_handle(), memory, range.start, len, rights)?));
        }
        let mut context = Mkc::default();
        context.set_access_mode(AccessMode::Memic);
        set_rights(&mut context, access);
        context.w().qpn(ANY_QP).pd(pd.pdn()).start_addr(start).len(len);
        let mut create = CreateMkeyIn::default();
        create.w().memory_key_mkey_entry(&context);
        let what = format!("{len} bytes of device memory");
        // SAFETY: names no memory of this process.
        let created =
            unsafe { Object::create_over_memory(pd.device(), &create, &what, |out| end_of(out.mkey_index())) };
        let (object, out) = created?;
        Ok(Mkey { key: out.mkey_index() << 8, log_page_size: 0, holder: Holder::Firmware(object) })
    }

    /// The key, both local and remote: `mkey_index` and the variant.
    pub fn key(&self) -> u32 {
        self.key
    }

    /// The kernel's handle, if the kernel has registered it.
    pub(super) fn kernel_handle(&self) -> Option<ObjectHandle> {
        match &self.holder {
            // Who got the handle of a region of all addresses could name any of them.
            Holder::Firmware(_) | Holder::Implicit => None,
            Holder::Kernel(object) => Some(object.handle()),
        }
    }

    /// Asks the card for its context.
    pub(super) fn query(&self) -> Result<Mkc, Error> {
        match &self.holder {
            Holder::Firmware(object) => query_context(object, self.key >> 8),
            Holder::Kernel(_) | Holder::Implicit => Err(Error::NotImplemented {
                what: format!("the context of memory key {:#x}, which the kernel has made", self.key),
                instead: "Linux passes on no query of its own keys: `rdma resource show mr` lists them".into(),
            }),
        }
    }

    /// Log of the page size in the card's translation.
    pub(super) fn log_page_size(&self) -> u32 {
        self.log_page_size
    }

    /// Destroys the key. Afterwards it grants no access.
    pub(super) fn destroy(&mut self) -> Result<(), CommandError> {
        match &mut self.holder {
            Holder::Firmware(object) => object.destroy(),
            Holder::Kernel(object) => object.destroy(),
            Holder::Implicit => Ok(()),
        }
    }
}

/// Asks the card for the context of `object`, the memory key of this index. PRM "QUERY_MKEY".
pub(super) fn query_context(object: &Object, mkey_index: u32) -> Result<Mkc, Error> {
    let mut query = QueryMkeyIn::default();
    query.w().mkey_index(mkey_index);
    Ok(*object.query(&query)?.memory_key_mkey_entry())
}

/// `Ok` if the kernel answers page faults of `device`; a function's owner pins its memory.
fn check_answered(device: &Device) -> Result<(), Error> {
    if device.access().kernel_verbs().is_some() {
        return Ok(());
    }
    let mend = "open the kernel's device (devx:), which answers page faults; here all registered memory is pinned";
    Err(Invalid::WrongAccess { what: "memory on demand", device: device.name().to_owned(), kernel: false, mend }.into())
}

/// Size of the entries of `pages` pages in units of 16 bytes, two entries each.
fn octwords(pages: u64) -> Result<u32, Invalid> {
    u32::try_from(pages.div_ceil(2)).map_err(|_| {
        let limit = 1..=2 * u64::from(u32::MAX);
        Invalid::out_of_range("the number of a memory region's pages", pages, limit, "a memory key")
            .mend("use huge pages for a region this large")
    })
}

/// The list of `pages`, each with `rights`.
fn entries(pages: Translation, rights: u64) -> Vec<Be64> {
    let padding = (pages.count % 2 == 1).then_some(Be64::ZERO);
    pages.addresses().map(|page| Be64::new(page | rights)).chain(padding).collect()
}

/// The command that destroys a key, and the key's name.
pub(super) fn end_of(mkey_index: u32) -> (DestroyMkeyIn, String) {
    let mut end = DestroyMkeyIn::default();
    end.w().mkey_index(mkey_index);
    (end, format!("mkey {mkey_index:#x}"))
}

/// What all keys that pages translate have: of `pd`, for all its queue pairs, with relaxed ordering where the card has
/// it.
fn set_pages(context: &mut Mkc, pd: &Pd, access: AccessFlags) {
    let general: CmdHcaCap = pd.device().caps().current(CapPage::General).unwrap_or_default();
    let relaxed = access.contains(AccessFlags::RELAXED_ORDERING);
    context
        .w()
        .access_mode_1_0(ACCESS_MODE_MTT)
        .relaxed_ordering_write(relaxed && general.relaxed_ordering_write())
        .relaxed_ordering_read(relaxed && general.relaxed_ordering_read())
        .qpn(ANY_QP)
        .pd(pd.pdn());
    set_rights(context, access);
}

fn set_rights(context: &mut Mkc, access: AccessFlags) {
    context
        .w()
        .lr(true)
        .lw(access.contains(AccessFlags::LOCAL_WRITE))
        .rr(access.contains(AccessFlags::REMOTE_READ))
        .rw(access.contains(AccessFlags::REMOTE_WRITE))
        .a(access.contains(AccessFlags::REMOTE_ATOMIC));
}

/// `access` as the kernel has it.
fn kernel_rights(access: AccessFlags) -> u32 {
    [
        (AccessFlags::LOCAL_WRITE, IB_UVERBS_ACCESS_LOCAL_WRITE),
        (AccessFlags::REMOTE_WRITE, IB_UVERBS_ACCESS_REMOTE_WRITE),
        (AccessFlags::REMOTE_READ, IB_UVERBS_ACCESS_REMOTE_READ),
        (AccessFlags::REMOTE_ATOMIC, IB_UVERBS_ACCESS_REMOTE_ATOMIC),
        (AccessFlags::RELAXED_ORDERING, IB_UVERBS_ACCESS_RELAXED_ORDERING),
    ]
    .into_iter()
    .filter(|(flag, _)| access.contains(*flag))
    .fold(0, |rights, (_, right)| rights | right)
}

/// Error for a remote's right to write without LOCAL_WRITE.
fn check_remote_writes(access: AccessFlags) -> Result<(), Invalid> {
    let remote_writes = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
    if access.intersects(remote_writes) && !access.contains(AccessFlags::LOCAL_WRITE) {
        let what = "a memory key with REMOTE_WRITE or REMOTE_ATOMIC".into();
        return Err(Invalid::Requires { what, requires: "LOCAL_WRITE as well" });
    }
    Ok(())
}

/// Error for REMOTE_ATOMIC on a card without atomics.
pub(crate) fn check_access(access: AccessFlags, caps: &Caps) -> Result<(), Error> {
    if access.contains(AccessFlags::REMOTE_ATOMIC) { caps.check_atomics() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_the_card_s_addresses_with_rights() {
        for (rights, expected) in [(3, [0x20_3003, 0x20_4003, 0x20_5003, 0]), (0, [0x20_3000, 0x20_4000, 0x20_5000, 0])]
        {
            let entries = entries(Translation::of(0x7f00_0000_3000, Iova(0x20_3000), 0x3000), rights);
            assert_eq!(entries.iter().map(|entry| entry.get()).collect::<Vec<u64>>(), expected);
        }
    }
}
