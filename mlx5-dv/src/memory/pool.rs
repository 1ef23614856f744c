//! Small buffers cut from large ones, so that queues use huge pages too.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use super::runs::FreeRuns;
use super::{DmaBuffer, HostMemory, Iova, PageSize};
use crate::error::{Error, Invalid};
use crate::lock::lock;

/// Allocation unit of small buffers: a firmware page.
const UNIT: usize = PageSize::BASE.bytes();
/// Size of the first chunk for small buffers: one huge page.
const CHUNK: usize = PageSize::HUGE_2M.bytes();
/// Used instead of [`CHUNK`] without huge pages: pins less memory for a small program.
const SMALL_CHUNK: usize = 256 << 10;
/// Size limit of a chunk.
const LARGE_CHUNK: usize = 32 << 20;

/// Allocates chunks. The argument is the minimum length.
type Source = Box<dyn Fn(usize) -> Result<DmaBuffer, Error> + Send + Sync>;

/// Cuts small buffers from shared huge pages. Any thread may call.
pub struct DmaPool {
    source: Source,
    growth: Growth,
    state: Mutex<State>,
}

impl fmt::Debug for DmaPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DmaPool({} chunks)", self.lock().chunks.len())
    }
}

/// How much is taken from the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Growth {
    /// Huge pages, doubled each time; large buffers one by one.
    Doubling,
    /// What the present buffer needs. The source may give more.
    AsNeeded,
}

/// The chunks, and their free parts.
#[derive(Default)]
struct State {
    /// Keyed by device address, which also identifies the chunk in `free`.
    chunks: BTreeMap<u64, Arc<DmaBuffer>>,
    /// Total size of all chunks.
    held: usize,
    free: FreeRuns,
    /// One unused chunk, kept so that repeated allocation and release of a buffer does not map and unmap it each time.
    unused: Option<u64>,
}

impl State {
    /// Adds an unused chunk.
    fn add(&mut self, whole: DmaBuffer) {
        let number = whole.iova().0;
        self.held += whole.len();
        self.free.give(number, 0, whole.len() / UNIT);
        self.chunks.insert(number, Arc::new(whole));
    }

    /// Removes a chunk that is entirely free.
    fn remove(&mut self, number: u64) -> Option<Arc<DmaBuffer>> {
        self.free.remove(number, 0);
        let whole = self.chunks.remove(&number)?;
        self.held -= whole.len();
        Some(whole)
    }

    /// Takes `units` consecutive units. Returns their chunk and the index of the first.
    fn take(&mut self, units: usize) -> Option<(Arc<DmaBuffer>, usize)> {
        let (number, first) = self.free.take(units)?;
        self.unused = self.unused.filter(|unused| *unused != number);
        Some((Arc::clone(self.chunks.get(&number)?), first))
    }

    /// Frees units. Returns chunks to release: none if the chunk is the pool's only unused one; all if nothing is in
    /// use.
    fn give(&mut self, iova: Iova, units: usize) -> Vec<Arc<DmaBuffer>> {
        let Some((&number, whole)) = self.chunks.range(..=iova.0).next_back() else { return Vec::new() };
        let chunk_units = whole.len() / UNIT;
        let free = self.free.give(number, (iova.0 - number) as usize / UNIT, units);
        if free < chunk_units {
            return Vec::new();
        }
        let is_last = self.chunks.len() == 1 + usize::from(self.unused.is_some());
        let others = if is_last { self.unused.take() } else { self.unused.replace(number) };
        let gone = others.into_iter().chain(is_last.then_some(number));
        gone.filter_map(|number| self.remove(number)).collect()
    }
}

/// The error for a chunk that is smaller than requested.
fn beyond_chunk(len: usize, chunk: usize) -> Error {
    Invalid::out_of_range("the length of DMA memory", len as u64, 1..=chunk as u64, "its chunk").into()
}

impl DmaPool {
    /// A pool that allocates its chunks by `source`.
    pub fn new(source: impl Fn(usize) -> Result<DmaBuffer, Error> + Send + Sync + 'static) -> Arc<Self> {
        Self::growing(Growth::Doubling, source)
    }

    /// A pool whose `source` is asked for no more than a buffer needs, once the present chunks have no room for it.
    /// What it gives beyond is used for other buffers.
    pub(crate) fn as_needed(source: impl Fn(usize) -> Result<DmaBuffer, Error> + Send + Sync + 'static) -> Arc<Self> {
        Self::growing(Growth::AsNeeded, source)
    }

    fn growing(
        growth: Growth,
        source: impl Fn(usize) -> Result<DmaBuffer, Error> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(DmaPool { source: Box::new(source), growth, state: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Allocates a zeroed buffer of at least `len` bytes. Errors: those of the source.
    pub fn allocate(self: &Arc<Self>, len: usize) -> Result<DmaBuffer, Error> {
        let units = len.max(1).div_ceil(UNIT);
        if self.growth == Growth::Doubling && units > SMALL_CHUNK / UNIT {
            return (self.source)(len);
        }
        let (whole, first) = self.take(units)?;
        let part = HostMemory::part(&whole, first * UNIT, units * UNIT);
        let iova = whole.iova().checked_add((first * UNIT) as u64);
        let (Some(memory), Some(iova)) = (part, iova) else {
            return Err(beyond_chunk(len, whole.len()));
        };
        let pool = Arc::clone(self);
        let buffer = DmaBuffer::new(
            memory,
            iova,
            Box::new(move |memory, iova| {
                pool.give_back(memory, iova);
                None
            }),
        );
        buffer.zero(0, buffer.len());
        Ok(buffer)
    }

    /// Takes `units` consecutive units, from a new chunk if necessary.
    fn take(&self, units: usize) -> Result<(Arc<DmaBuffer>, usize), Error> {
        let mut state = self.lock();
        if let Some(found) = state.take(units) {
            return Ok(found);
        }
        let fresh = match self.growth {
            Growth::Doubling => self.fresh(state.held)?,
            Growth::AsNeeded => (self.source)(units * UNIT)?,
        };
        let room = fresh.len();
        state.add(fresh);
        state.take(units).ok_or_else(|| beyond_chunk(units * UNIT, room))
    }

    /// Allocates a chunk as large as all present ones, so that many buffers need few chunks; the first is a huge page,
    /// or a small number of base pages.
    fn fresh(&self, held: usize) -> Result<DmaBuffer, Error> {
        let whole = (self.source)(held.next_power_of_two().clamp(CHUNK, LARGE_CHUNK))?;
        let huge = whole.memory().is_some_and(|memory| memory.page_size() >= CHUNK);
        if huge || held >= CHUNK { Ok(whole) } else { (self.source)(held.next_power_of_two().max(SMALL_CHUNK)) }
    }

    /// Frees a buffer of [`allocate`](Self::allocate). A chunk with a leaked part stays forever.
    fn give_back(&self, memory: HostMemory, iova: Iova) {
        let units = memory.len() / UNIT;
        drop(memory);
        let unused = self.lock().give(iova, units);
        // Without the lock: unmapping may take a while.
        drop(unused);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

    /// A pool, and its number of chunks.
    fn pool() -> (Arc<AtomicUsize>, Arc<DmaPool>) {
        let (held, source) = source(|len| len);
        (held, DmaPool::new(source))
    }

    type Gives = dyn Fn(usize) -> Result<DmaBuffer, Error> + Send + Sync;

    /// A source that gives `size(len)` bytes for `len`, and the number of its chunks that are held.
    fn source(size: fn(usize) -> usize) -> (Arc<AtomicUsize>, Box<Gives>) {
        let held = Arc::new(AtomicUsize::new(0));
        let (count, next) = (Arc::clone(&held), AtomicU64::new(1 << 32));
        let source = move |len| {
            count.fetch_add(1, Relaxed);
            let (count, iova) = (Arc::clone(&count), next.fetch_add(1 << 30, Relaxed));
            let release = Box::new(move |_, _| {
                count.fetch_sub(1, Relaxed);
                None
            });
            Ok(DmaBuffer::new(HostMemory::allocate(size(len))?, Iova(iova), release))
        };
        (held, Box::new(source))
    }

    #[test]
    fn a_source_that_is_asked_as_needed_is_asked_for_what_a_buffer_needs() {
        let (held, source) = source(|len| len.max(1 << 20));
        let pool = DmaPool::as_needed(source);
        // All of what it gave beyond serves.
        let buffers: Vec<_> = (0..4).map(|_| pool.allocate(256 << 10).unwrap()).collect();
        assert_eq!((held.load(Relaxed), buffers[0].len()), (1, 256 << 10));
        let large = pool.allocate((1 << 20) + 1).unwrap();
        assert_eq!((held.load(Relaxed), large.len()), (2, (1 << 20) + 4096));
        drop((buffers, large));
        assert_eq!(held.load(Relaxed), 0);
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
    fn many_buffers_need_few_chunks() {
        let (held, pool) = pool();
        let mut buffers: Vec<_> = (0..4096).map(|_| pool.allocate(8192).unwrap()).collect();
        let most = held.load(Relaxed);
        assert!(most <= 8, "32 MiB in {most} chunks");
        let places: HashSet<_> = buffers.iter().map(DmaBuffer::iova).collect();
        assert_eq!(places.len(), 4096);
        // Every other one first, so that the rest merges with free neighbours.
        let others: Vec<_> =
            buffers.drain(..).enumerate().filter_map(|(i, buffer)| (i % 2 == 1).then_some(buffer)).collect();
        assert_eq!(held.load(Relaxed), most);
        drop(others);
        assert_eq!(held.load(Relaxed), 0);
    }

    #[test]
    fn a_buffer_that_goes_to_and_fro_does_not_map_and_unmap() {
        let (held, pool) = pool();
        let full: Vec<_> = (0..SMALL_CHUNK / UNIT).map(|_| pool.allocate(1).unwrap()).collect();
        let chunks = |pool: &DmaPool| pool.lock().chunks.keys().copied().collect::<Vec<_>>();
        drop(pool.allocate(SMALL_CHUNK).unwrap());
        let before = chunks(&pool);
        drop(pool.allocate(SMALL_CHUNK).unwrap());
        assert_eq!(chunks(&pool), before);
        drop(full);
        assert_eq!((held.load(Relaxed), chunks(&pool).len()), (0, 0));
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
        assert_eq!((held.load(Relaxed), pool.lock().chunks.len()), (1, 0));
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
