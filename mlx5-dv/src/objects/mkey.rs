//! Memory keys.

use std::fmt;

use mlx5_prm::cmd::{CreateMkeyIn, DestroyMkeyIn, WithTail};
use mlx5_prm::ctx::Mkc;
use mlx5_prm::layout::Be64;

use super::{Object, Pd, atomics_are_not_built, within};
use crate::error::{CommandError, Error};
use crate::memory::DmaBuffer;

bitflags::bitflags! {
    /// What may be done with registered memory. Local reading is always allowed.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct AccessFlags: u32 {
        /// This side's receives and RDMA READs may write it.
        const LOCAL_WRITE = 1;
        /// The remote may write it.
        const REMOTE_WRITE = 2;
        /// The remote may read it.
        const REMOTE_READ = 4;
        /// The remote may change it atomically. Not built yet: refused wherever it is given.
        const REMOTE_ATOMIC = 8;
    }
}

/// `access_mode` of a key whose addresses go through pages.
const ACCESS_MODE_MTT: u8 = 1;
/// A key that any queue pair of its PD may use.
const ANY_QP: u32 = 0xff_ffff;
/// Rights of a page: read, and written if the key allows that.
const PAGE_PRESENT: u64 = 0b11;
/// More pages than this are counted in larger ones, where the addresses allow it.
const MANY_PAGES: u64 = 512;

/// A memory key: what addresses of a region mean, and who may use them. PRM "Memory Key".
pub struct Mkey {
    key: u32,
    log_page_size: u32,
    object: Object,
}

impl fmt::Debug for Mkey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mkey({:#x})", self.key)
    }
}

impl Mkey {
    /// A key of `pd` for `memory`'s data: any address, any length but zero. Its addresses are those of this process.
    pub(super) fn create(pd: &Pd, memory: &DmaBuffer, access: AccessFlags) -> Result<Self, Error> {
        let host = memory.memory().ok_or_else(|| Error::Invalid("a memory key of no memory".into()))?;
        atomics_are_not_built(access)?;
        if access.contains(AccessFlags::REMOTE_WRITE) && !access.contains(AccessFlags::LOCAL_WRITE) {
            return Err(Error::Invalid("REMOTE_WRITE needs LOCAL_WRITE as well".into()));
        }
        let caps = pd.device().caps();
        within("the region's length", host.data_len() as u64, "log_max_mrw_sz", caps.log_max_mrw_sz)?;

        let pages = Translation::of(host.address().as_ptr() as u64, memory.iova().0, host.len() as u64);
        let start = host.address().as_ptr() as u64 + host.data_offset() as u64;
        let octwords = pages.octwords()?;
        let mut context = Mkc::default();
        context
            .w()
            .access_mode_1_0(ACCESS_MODE_MTT)
            .lr(true)
            .lw(access.contains(AccessFlags::LOCAL_WRITE))
            .rr(access.contains(AccessFlags::REMOTE_READ))
            .rw(access.contains(AccessFlags::REMOTE_WRITE))
            .qpn(ANY_QP)
            .pd(pd.pdn())
            .start_addr(start)
            .len(host.data_len() as u64)
            .log_page_size(pages.log_size as u8)
            .translations_octword_size(octwords);
        let mut create = CreateMkeyIn::default();
        create.w().memory_key_mkey_entry(&context).translations_octword_actual_size(octwords);
        let what = format!("{} bytes of memory", host.data_len());
        let (object, out) = Object::create(pd.device(), &WithTail::new(create, pages.entries()), &what, |out| {
            let mut end = DestroyMkeyIn::default();
            end.w().mkey_index(out.reply.mkey_index());
            (end, format!("mkey {:#x}", out.reply.mkey_index()))
        })?;
        Ok(Mkey { key: out.reply.mkey_index() << 8, log_page_size: pages.log_size, object })
    }

    /// The key, local and remote alike: `mkey_index` and its variant.
    pub fn key(&self) -> u32 {
        self.key
    }

    /// log2 of the bytes of the pages that the card finds the memory by.
    pub(super) fn log_page_size(&self) -> u32 {
        self.log_page_size
    }

    /// Destroys the key: no access by it is possible afterwards.
    pub(super) fn destroy(&mut self) -> Result<(), CommandError> {
        self.object.destroy()
    }
}

/// Memory as pages of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Translation {
    first: u64,
    log_size: u32,
    count: u64,
}

impl Translation {
    /// `len` bytes that this process sees at `address` and the card at `iova`; all are multiples of 4 KiB.
    ///
    /// A page must start at a multiple of its size on both sides. The pages are the largest that also end with the memory;
    /// or, where these are many, larger ones: the last then ends behind the memory, which the key's length keeps the card
    /// from using.
    fn of(address: u64, iova: u64, len: u64) -> Self {
        let aligned = (address | iova).trailing_zeros().clamp(12, 30);
        let mut log_size = (address | iova | len).trailing_zeros().clamp(12, 30);
        while log_size < aligned && len.div_ceil(1 << log_size) > MANY_PAGES {
            log_size += 1;
        }
        Translation { first: iova, log_size, count: len.div_ceil(1 << log_size) }
    }

    /// Room the entries take, in units of 16 bytes: two entries each.
    fn octwords(&self) -> Result<u32, Error> {
        u32::try_from(self.count.div_ceil(2))
            .map_err(|_| Error::Invalid(format!("a region of {} pages: use huge pages for one this large", self.count)))
    }

    fn entries(&self) -> Vec<Be64> {
        let pages = (0..self.count).map(|i| Be64::new((self.first + (i << self.log_size)) | PAGE_PRESENT));
        let padding = (self.count % 2 == 1).then_some(Be64::ZERO);
        pages.chain(padding).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(address: u64, iova: u64, len: u64) -> (u32, u64) {
        let pages = Translation::of(address, iova, len);
        assert_eq!(pages.entries().len() as u64, pages.count.next_multiple_of(2));
        (pages.log_size, pages.count)
    }

    #[test]
    fn pages_are_as_large_as_both_sides_allow() {
        assert_eq!(pages(0x7f00_0000_1000, 0x20_0000, 0x1000), (12, 1));
        assert_eq!(pages(0x7f00_0020_0000, 0x20_0000, 0x20_0000), (21, 1));
        assert_eq!(pages(0x7f00_0020_0000, 0x4000_0000, 0x60_0000), (21, 3));
        assert_eq!(pages(0x7f00_4000_0000, 0x4000_0000, 1 << 31), (30, 2), "never above 1 GiB");
        assert_eq!(pages(0x7f00_0000_1000, 0x4000_0000, 1 << 30), (12, 1 << 18), "one side is aligned to 4 KiB only");
        let (log_size, count) = pages(0x7f00_4000_0000, 0x4000_0000, (1 << 29) + 4096);
        assert!(log_size > 12 && count <= MANY_PAGES);
    }

    #[test]
    fn entries_are_the_card_s_addresses_with_rights() {
        let entries = Translation::of(0x7f00_0000_3000, 0x20_3000, 0x3000).entries();
        let expected = [0x20_3003, 0x20_4003, 0x20_5003, 0];
        assert_eq!(entries.iter().map(|entry| entry.get()).collect::<Vec<u64>>(), expected);
    }
}
