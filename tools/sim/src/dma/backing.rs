//! The memory behind a mapped range.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use vm_memory::{MmapRegion, VolatileMemory, VolatileSlice};

/// Where a range's bytes are. An access returns `None` if they cannot be accessed.
#[derive(Debug)]
pub(super) enum Backing {
    /// In our own mapping, from byte `at` on.
    Mapped { region: Arc<MmapRegion>, at: u64 },
    /// In a process, from address `at` on.
    Process { mem: Arc<File>, at: u64 },
    /// Not accessible.
    Unreachable,
}

/// Up to this length, memory is read quadword by quadword.
const SHORT: usize = 256;

impl Backing {
    /// The same memory, `by` bytes further.
    pub(super) fn skip(&self, by: u64) -> Backing {
        match self {
            Backing::Mapped { region, at } => Backing::Mapped { region: region.clone(), at: at + by },
            Backing::Process { mem, at } => Backing::Process { mem: mem.clone(), at: at.wrapping_add(by) },
            Backing::Unreachable => Backing::Unreachable,
        }
    }

    pub(super) fn read(&self, offset: u64, bytes: &mut [u8]) -> Option<()> {
        match self {
            Backing::Mapped { region, at } => {
                let memory = slice(region, at + offset, bytes.len())?;
                read_slice(&memory, bytes)
            }
            Backing::Process { mem, at } => mem.read_exact_at(bytes, at.wrapping_add(offset)).ok(),
            Backing::Unreachable => None,
        }
    }

    /// Lower addresses first; the last store is a releasing one.
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> Option<()> {
        match self {
            Backing::Mapped { region, at } => {
                let memory = slice(region, at + offset, bytes.len())?;
                write_slice(&memory, bytes)
            }
            Backing::Process { mem, at } => {
                // Two system calls, so that the last quadword is written last.
                let at = at.wrapping_add(offset);
                let (body, tail) = bytes.split_at(bytes.len().saturating_sub(8));
                mem.write_all_at(body, at).ok()?;
                mem.write_all_at(tail, at.wrapping_add(body.len() as u64)).ok()
            }
            Backing::Unreachable => None,
        }
    }

    pub(super) fn load_be32(&self, offset: u64) -> Option<u32> {
        if let Backing::Mapped { region, at } = self
            && let Ok(dword) = slice(region, at + offset, 4)?.get_atomic_ref::<AtomicU32>(0)
        {
            return Some(u32::from_be(dword.load(Ordering::Acquire)));
        }
        let mut bytes = [0; 4];
        self.read(offset, &mut bytes)?;
        fence(Ordering::Acquire);
        Some(u32::from_be_bytes(bytes))
    }

    pub(super) fn update_be64(&self, offset: u64, change: impl Fn(u64) -> u64) -> Option<u64> {
        if let Backing::Mapped { region, at } = self {
            let memory = slice(region, at + offset, 8)?;
            let quadword = memory.get_atomic_ref::<AtomicU64>(0).ok()?;
            let update = |old| Some(change(u64::from_be(old)).to_be());
            let (Ok(old) | Err(old)) = quadword.fetch_update(Ordering::AcqRel, Ordering::Acquire, update);
            return Some(u64::from_be(old));
        }
        // Through a file, this is atomic only towards the device, which has one thread, not towards the process.
        let mut bytes = [0; 8];
        self.read(offset, &mut bytes)?;
        let old = u64::from_be_bytes(bytes);
        self.write(offset, &change(old).to_be_bytes())?;
        Some(old)
    }
}

fn slice(region: &MmapRegion, at: u64, len: usize) -> Option<VolatileSlice<'_>> {
    region.get_slice(usize::try_from(at).ok()?, len).ok()
}

/// Bytes before the first quadword boundary of the mapping. The pointer is not dereferenced.
fn head(memory: &VolatileSlice<'_>, len: usize) -> usize {
    ((memory.ptr_guard().as_ptr() as usize).wrapping_neg() % 8).min(len)
}

fn read_slice(memory: &VolatileSlice<'_>, bytes: &mut [u8]) -> Option<()> {
    if bytes.len() > SHORT {
        memory.copy_to(bytes);
        return Some(());
    }
    let first = head(memory, bytes.len());
    let (lead, rest) = bytes.split_at_mut(first);
    if !lead.is_empty() {
        memory.copy_to(lead);
    }
    let mut at = first;
    let mut quadwords = rest.chunks_exact_mut(8);
    for bytes in &mut quadwords {
        let quadword = memory.get_atomic_ref::<AtomicU64>(at).ok()?.load(Ordering::Relaxed);
        bytes.copy_from_slice(&quadword.to_ne_bytes());
        at += 8;
    }
    let tail = quadwords.into_remainder();
    if !tail.is_empty() {
        memory.offset(at).ok()?.copy_to(tail);
    }
    Some(())
}

/// Quadword by quadword, each after those before it: who polls any byte of it finds all before that. A function that
/// announces `qp_data_in_order` promises as much, which no `memcpy` does.
fn write_slice(memory: &VolatileSlice<'_>, bytes: &[u8]) -> Option<()> {
    let first = head(memory, bytes.len());
    let (lead, rest) = bytes.split_at(first);
    if !lead.is_empty() {
        memory.copy_from(lead);
    }
    let mut at = first;
    let mut quadwords = rest.chunks_exact(8);
    for quadword in &mut quadwords {
        let value = u64::from_ne_bytes(quadword.try_into().ok()?);
        memory.get_atomic_ref::<AtomicU64>(at).ok()?.store(value, Ordering::Release);
        at += 8;
    }
    let tail = quadwords.remainder();
    if !tail.is_empty() {
        fence(Ordering::Release);
        memory.offset(at).ok()?.copy_from(tail);
    }
    Some(())
}
