//! Mapped ranges by address, and the mapped files.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use rustix::fs::{SealFlags, fcntl_add_seals};
use vm_memory::mmap::MmapRegionBuilder;
use vm_memory::{FileOffset, MmapRegion};

use super::backing::Backing;
use super::map::{Access, MapError, Source};

/// A mapped range.
#[derive(Debug)]
pub(super) struct Range {
    /// Start address.
    pub start: u64,
    /// Length in bytes, at least 1.
    pub len: u64,
    /// Access rights.
    pub access: Access,
    /// Its memory.
    pub backing: Backing,
}

impl Range {
    fn contains(&self, iova: u64) -> bool {
        iova.wrapping_sub(self.start) < self.len
    }
}

/// Number of recently used ranges that are cached.
const HOT: usize = 64;
/// Number of files that are always kept.
const FEW_FILES: usize = 16;

/// All ranges, in numbered slots. The cache holds slot numbers: a stale number leads to an empty slot or to a range
/// without the address, and costs one search.
#[derive(Debug)]
pub(super) struct Space {
    slots: Vec<Option<Range>>,
    free: Vec<u32>,
    by_start: BTreeMap<u64, u32>,
    hot: [AtomicU32; HOT],
    /// Mapped files by device and inode; dropped with the last range that refers to them.
    files: HashMap<(u64, u64), Weak<MmapRegion>>,
    /// Number of files at which unused ones are dropped.
    files_most: usize,
}

impl Default for Space {
    fn default() -> Self {
        Space {
            slots: Vec::new(),
            free: Vec::new(),
            by_start: BTreeMap::new(),
            hot: [const { AtomicU32::new(u32::MAX) }; HOT],
            files: HashMap::new(),
            files_most: FEW_FILES,
        }
    }
}

impl Space {
    pub(super) fn len(&self) -> usize {
        self.by_start.len()
    }

    /// The range that contains `iova`.
    pub(super) fn find(&self, iova: u64) -> Option<&Range> {
        let hot = &self.hot[(iova >> 12) as usize % HOT];
        let recent = self.slots.get(hot.load(Ordering::Relaxed) as usize).and_then(Option::as_ref);
        if let Some(range) = recent
            && range.contains(iova)
        {
            return Some(range);
        }
        let slot = *self.by_start.range(..=iova).next_back()?.1;
        let range = self.slots.get(slot as usize)?.as_ref().filter(|range| range.contains(iova))?;
        hot.store(slot, Ordering::Relaxed);
        Some(range)
    }

    pub(super) fn map(&mut self, iova: u64, len: u64, access: Access, source: Source) -> Result<(), MapError> {
        let last = iova.checked_add(len.wrapping_sub(1)).filter(|_| len > 0).ok_or(MapError::NoRange { iova, len })?;
        if let Some((&other, &slot)) = self.by_start.range(..=last).next_back()
            && self.slots[slot as usize].as_ref().is_some_and(|range| other + (range.len - 1) >= iova)
        {
            return Err(MapError::Overlap { iova, len, other });
        }
        let backing = match source {
            Source::File { file, offset } => self.map_file(file, offset, len, access)?,
            Source::Process { mem, address } => Backing::Process { mem, at: address },
            Source::Unreachable => Backing::Unreachable,
        };
        self.insert(Range { start: iova, len, access, backing });
        Ok(())
    }

    pub(super) fn unmap(&mut self, iova: u64, len: u64) -> u64 {
        let Some(len_minus_1) = len.checked_sub(1) else { return 0 };
        let last = iova.saturating_add(len_minus_1);
        let mut unmapped = 0;
        while let Some((&start, &slot)) = self.by_start.range(..=last).next_back() {
            let touches = self.slots[slot as usize].as_ref().is_some_and(|range| start + (range.len - 1) >= iova);
            if !touches {
                break;
            }
            let Some(range) = self.remove(start) else { break };
            unmapped += range.len;
            unmapped -= self.keep_rest(range, iova, last);
        }
        unmapped
    }

    /// Reinserts the parts of a removed range outside of `first..=last`; returns their length in bytes.
    fn keep_rest(&mut self, range: Range, first: u64, last: u64) -> u64 {
        let range_last = range.start + (range.len - 1);
        let mut kept = 0;
        if range.start < first {
            let len = first - range.start;
            kept += len;
            self.insert(Range { start: range.start, len, access: range.access, backing: range.backing.skip(0) });
        }
        if range_last > last {
            let len = range_last - last;
            kept += len;
            let backing = range.backing.skip(range.len - len);
            self.insert(Range { start: last + 1, len, access: range.access, backing });
        }
        kept
    }

    pub(super) fn clear(&mut self) {
        *self = Space::default();
    }

    fn insert(&mut self, range: Range) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.by_start.insert(range.start, slot);
        self.slots[slot as usize] = Some(range);
    }

    fn remove(&mut self, start: u64) -> Option<Range> {
        let slot = self.by_start.remove(&start)?;
        self.free.push(slot);
        self.slots.get_mut(slot as usize)?.take()
    }

    fn map_file(&mut self, file: File, offset: u64, len: u64, access: Access) -> Result<Backing, MapError> {
        let meta = file.metadata().map_err(MapError::Mmap)?;
        // A device's file has no length: map only the requested part.
        if !meta.is_file() {
            return Ok(Backing::Mapped { region: mmap(file, offset, len, access)?, at: 0 });
        }
        let end = offset.checked_add(len).filter(|end| *end <= meta.len());
        let end = end.ok_or(MapError::PastEndOfFile { offset, len, file_len: meta.len() })?;
        let key = (meta.dev(), meta.ino());
        let known = self.files.get(&key).and_then(Weak::upgrade).filter(|region| {
            region.size() as u64 >= end && (!access.contains(Access::WRITE) || region.prot() & libc::PROT_WRITE != 0)
        });
        let region = match known {
            Some(region) => region,
            None => {
                keep_length(&file);
                let file_len = file.metadata().map_err(MapError::Mmap)?.len();
                if file_len < end {
                    return Err(MapError::PastEndOfFile { offset, len, file_len });
                }
                let region = mmap(file, 0, file_len, access)?;
                self.forget_files();
                self.files.insert(key, Arc::downgrade(&region));
                region
            }
        };
        Ok(Backing::Mapped { region, at: offset })
    }

    /// Drops unused files once their number has doubled since the last time, so that the cost for each file stays
    /// constant.
    fn forget_files(&mut self) {
        if self.files.len() >= self.files_most {
            self.files.retain(|_, region| region.strong_count() > 0);
            self.files_most = FEW_FILES.max(2 * self.files.len());
        }
    }
}

/// Seals a file against being shortened, if it is a memfd that can be sealed: an access past its end would be `SIGBUS`.
fn keep_length(file: &File) {
    if let Err(error) = fcntl_add_seals(file, SealFlags::SHRINK) {
        tracing::debug!("a client's memory cannot be sealed, and must not be shortened: {error}");
    }
}

/// Maps `len` bytes of a file: writable if required or possible.
fn mmap(file: File, offset: u64, len: u64, access: Access) -> Result<Arc<MmapRegion>, MapError> {
    let size = usize::try_from(len).map_err(|_| MapError::NoRange { iova: 0, len })?;
    let file = Arc::new(file);
    let build = |prot| {
        MmapRegionBuilder::<()>::new(size)
            .with_mmap_prot(prot)
            .with_mmap_flags(libc::MAP_SHARED | libc::MAP_NORESERVE)
            .with_file_offset(FileOffset::from_arc(file.clone(), offset))
            .build()
    };
    let region = build(libc::PROT_READ | libc::PROT_WRITE).or_else(|error| match access.contains(Access::WRITE) {
        true => Err(error),
        false => build(libc::PROT_READ),
    });
    region.map(Arc::new).map_err(|error| MapError::Mmap(std::io::Error::other(error)))
}
