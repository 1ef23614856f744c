//! Small buffers cut out of large ones, so that queues lie in huge pages too.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use super::{DmaBuffer, HostMemory, Iova, PageSize};
use crate::error::Error;
use crate::lock::lock;

/// The unit that small buffers are cut in: what firmware calls a page.
const UNIT: usize = PageSize::BASE.bytes();
/// What is asked of the system at once for small buffers: one huge page.
const CHUNK: usize = PageSize::HUGE_2M.bytes();
/// Instead of [`CHUNK`] where there are no huge pages: less is pinned for a program that needs little.
const SMALL_CHUNK: usize = 256 << 10;

/// Makes buffers that the device sees. The argument is the least number of bytes.
type Source = Box<dyn Fn(usize) -> Result<DmaBuffer, Error> + Send + Sync>;

/// Cuts small buffers out of shared huge pages. Any thread may call.
pub struct DmaPool {
    source: Source,
    chunks: Mutex<Vec<Chunk>>,
}

impl fmt::Debug for DmaPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DmaPool({} chunks)", self.chunks().len())
    }
}

/// A buffer that smaller ones are cut from.
struct Chunk {
    whole: Arc<DmaBuffer>,
    /// Which units are given out.
    used: Vec<bool>,
}

impl Chunk {
    fn new(whole: DmaBuffer) -> Self {
        let used = vec![false; whole.len() / UNIT];
        Chunk { whole: Arc::new(whole), used }
    }

    /// Takes `units` units that follow each other; their first.
    fn take(&mut self, units: usize) -> Option<usize> {
        let mut run = 0;
        for at in 0..self.used.len() {
            run = if self.used[at] { 0 } else { run + 1 };
            if run == units {
                let first = at + 1 - units;
                self.used[first..=at].fill(true);
                return Some(first);
            }
        }
        None
    }

    fn contains(&self, iova: Iova) -> bool {
        iova.0.checked_sub(self.whole.iova().0).is_some_and(|at| at < self.whole.len() as u64)
    }
}

impl DmaPool {
    /// A pool that gets its large buffers from `source`.
    pub fn new(source: impl Fn(usize) -> Result<DmaBuffer, Error> + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(DmaPool { source: Box::new(source), chunks: Mutex::default() })
    }

    fn chunks(&self) -> MutexGuard<'_, Vec<Chunk>> {
        lock(&self.chunks)
    }

    /// A zeroed buffer of at least `len` bytes. Errors: those of the source.
    pub fn allocate(self: &Arc<Self>, len: usize) -> Result<DmaBuffer, Error> {
        let units = len.max(1).div_ceil(UNIT);
        if units > SMALL_CHUNK / UNIT {
            return (self.source)(len);
        }
        let mut chunks = self.chunks();
        if let Some(buffer) = chunks.iter_mut().find_map(|chunk| self.cut(chunk, units)) {
            return Ok(buffer);
        }
        let mut chunk = Chunk::new(self.fresh()?);
        let buffer = self.cut(&mut chunk, units);
        chunks.push(chunk);
        buffer.ok_or_else(|| Error::Invalid(format!("{len} bytes do not fit in a fresh chunk of DMA memory")))
    }

    /// A huge page, or a modest number of ordinary ones.
    fn fresh(&self) -> Result<DmaBuffer, Error> {
        let whole = (self.source)(CHUNK)?;
        let huge = whole.memory().is_some_and(|memory| memory.page_size() >= CHUNK);
        if huge { Ok(whole) } else { (self.source)(SMALL_CHUNK) }
    }

    fn cut(self: &Arc<Self>, chunk: &mut Chunk, units: usize) -> Option<DmaBuffer> {
        let first = chunk.take(units)?;
        let memory = HostMemory::part(&chunk.whole, first * UNIT, units * UNIT)?;
        let iova = chunk.whole.iova().checked_add((first * UNIT) as u64)?;
        let pool = Arc::clone(self);
        let buffer = DmaBuffer::new(memory, iova, Box::new(move |memory, iova| pool.give_back(memory, iova)));
        buffer.zero(0, buffer.len());
        Some(buffer)
    }

    /// Takes back what [`cut`](Self::cut) gave. A chunk that nobody uses any more goes back to its source; one whose part
    /// was leaked stays for ever.
    fn give_back(&self, memory: HostMemory, iova: Iova) {
        let units = memory.len() / UNIT;
        drop(memory);
        let mut chunks = self.chunks();
        let Some(i) = chunks.iter().position(|chunk| chunk.contains(iova)) else { return };
        let chunk = &mut chunks[i];
        let first = (iova.0 - chunk.whole.iova().0) as usize / UNIT;
        chunk.used[first..first + units].fill(false);
        if !chunk.used.contains(&true) {
            let unused = chunks.swap_remove(i);
            drop(chunks);
            drop(unused);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

    /// A pool, and how many large buffers it holds.
    fn pool() -> (Arc<AtomicUsize>, Arc<DmaPool>) {
        let held = Arc::new(AtomicUsize::new(0));
        let (count, next) = (Arc::clone(&held), AtomicU64::new(1 << 32));
        let pool = DmaPool::new(move |len| {
            count.fetch_add(1, Relaxed);
            let (count, iova) = (Arc::clone(&count), next.fetch_add(1 << 30, Relaxed));
            let release = Box::new(move |_, _| {
                count.fetch_sub(1, Relaxed);
            });
            Ok(DmaBuffer::new(HostMemory::allocate(len)?, Iova(iova), release))
        });
        (held, pool)
    }

    #[test]
    fn small_buffers_share_a_chunk_and_the_last_gives_it_back() {
        let (held, pool) = pool();
        let buffers: Vec<_> = (0..10).map(|_| pool.allocate(5000).unwrap()).collect();
        assert_eq!(held.load(Relaxed), 1);
        let places: HashSet<_> = buffers.iter().map(DmaBuffer::iova).collect();
        assert_eq!(places.len(), 10);
        assert!(buffers.iter().all(|buffer| buffer.len() == 8192));
        assert!(buffers.iter().all(|buffer| buffer.memory().unwrap().iova() == Some(buffer.iova())));
        drop(buffers);
        assert_eq!(held.load(Relaxed), 0);
    }

    #[test]
    fn a_full_chunk_is_followed_by_another() {
        let (held, pool) = pool();
        let _buffers: Vec<_> = (0..SMALL_CHUNK / UNIT + 1).map(|_| pool.allocate(1).unwrap()).collect();
        let full = held.load(Relaxed);
        assert!(full == 1 || full == 2, "1 with huge pages, 2 without");
    }

    #[test]
    fn a_reused_buffer_is_zeroed() {
        let (_held, pool) = pool();
        let _keeps_the_chunk = pool.allocate(1).unwrap();
        let first = pool.allocate(4096).unwrap();
        first.fill(0, 4096, 0xff);
        let iova = first.iova();
        drop(first);
        let second = pool.allocate(4096).unwrap();
        assert_eq!((second.iova(), second.load_be32(0)), (iova, 0));
    }

    #[test]
    fn large_buffers_come_from_the_source_itself() {
        let (held, pool) = pool();
        let large = pool.allocate(3 << 20).unwrap();
        assert_eq!((held.load(Relaxed), pool.chunks().len()), (1, 0));
        drop(large);
        assert_eq!(held.load(Relaxed), 0);
    }

    #[test]
    fn a_leaked_part_keeps_its_chunk_for_ever() {
        let (held, pool) = pool();
        let (leaked, other) = (pool.allocate(4096).unwrap(), pool.allocate(4096).unwrap());
        leaked.leak();
        drop((other, pool));
        assert_eq!(held.load(Relaxed), 1);
    }
}
