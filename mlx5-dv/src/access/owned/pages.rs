//! Memory for firmware: pages that it requests at boot, at initialisation or later, and returns. PRM "MANAGE_PAGES",
//! "QUERY_PAGES".

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use mlx5_prm::cmd::{ManagePagesIn, QueryPagesIn, WithTail};
use mlx5_prm::eqe::PageRequestEvent;
use mlx5_prm::layout::Be64;

use super::space::Space;
use crate::access::RawCommand;
use crate::error::Error;
use crate::lock::lock;
use crate::memory::DmaBuffer;

/// Page size of MANAGE_PAGES, on every host.
pub const PAGE: usize = 4096;
/// Allocation size in bytes: one huge page.
const CHUNK: usize = 2 << 20;
/// Most pages in one command.
pub const BATCH: usize = 512;

/// `op_mod` of MANAGE_PAGES.
mod manage {
    pub const CANNOT_GIVE: u16 = 0;
    pub const GIVE: u16 = 1;
    pub const TAKE: u16 = 2;
}

/// A function that firmware wants pages for: this one, or another that its driver serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PageOwner {
    /// Its number.
    pub function: u16,
    /// Whether it is one of the card's own processor, whose functions have numbers of their own. Only a driver that
    /// runs there sees them.
    pub embedded: bool,
}

impl PageOwner {
    /// That of a page request.
    pub fn of(request: &PageRequestEvent) -> Self {
        PageOwner { function: request.func_id(), embedded: request.ec_function() & EC_FUNCTION != 0 }
    }
}

/// Bit of a page request's `ec_function`. Linux `EC_FUNCTION_MASK`.
const EC_FUNCTION: u16 = 1 << 15;

/// What QUERY_PAGES asks for: its `op_mod`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Boot pages: before any other command that needs memory.
    Boot = 1,
    /// Initialisation pages: before INIT_HCA.
    Init = 2,
}

/// The pages that firmware holds. This type only builds commands ([`give_command`](Self::give_command) and others) and
/// keeps account; bring-up and the background thread execute the commands, each in its own way.
#[derive(Debug)]
pub struct FirmwarePages {
    space: Arc<Space>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Keyed by device address.
    chunks: BTreeMap<u64, Chunk>,
    /// Device address of each page that is not given; the lowest is given first.
    free: BTreeSet<u64>,
    /// Device address of each page that firmware holds, and for whom.
    given: HashMap<u64, PageOwner>,
}

#[derive(Debug)]
struct Chunk {
    /// Owned for its Drop: only firmware accesses it.
    memory: DmaBuffer,
    /// Number of its pages that firmware holds.
    given: usize,
}

impl FirmwarePages {
    /// Starts with no pages given.
    pub fn new(space: Arc<Space>) -> Self {
        FirmwarePages { space, state: Mutex::default() }
    }

    /// Number of pages that firmware holds.
    pub fn held(&self) -> usize {
        self.lock().given.len()
    }

    /// Those that hold pages.
    pub fn holders(&self) -> Vec<PageOwner> {
        let mut holders: Vec<PageOwner> = self.lock().given.values().copied().collect();
        holders.sort_unstable();
        holders.dedup();
        holders
    }

    /// Asks for the number of pages that firmware needs in `phase`, for the function itself; `embedded` as for
    /// [`PageOwner`].
    pub fn query_command(phase: Phase, embedded: bool) -> QueryPagesIn {
        let mut query = QueryPagesIn::default();
        query.w().op_mod(phase as u16).embedded_cpu_function(embedded);
        query
    }

    /// A command that gives `count` pages ([`BATCH`] at most), and their addresses. If it fails, pass these to
    /// [`not_taken`](Self::not_taken).
    pub fn give_command(&self, owner: PageOwner, count: usize) -> Result<(RawCommand, Vec<u64>), Error> {
        let count = count.min(BATCH);
        let pages = self.take_pages(owner, count)?;
        let mut give = ManagePagesIn::default();
        give.w().op_mod(manage::GIVE).function_id(owner.function).embedded_cpu_function(owner.embedded);
        give.w().input_num_entries(count as u32);
        let list = pages.iter().map(|page| Be64::new(*page)).collect();
        Ok((RawCommand::new(&WithTail::new(give, list), format!("{count} pages")), pages))
    }

    /// Tells firmware that no pages are available.
    pub fn cannot_give_command(owner: PageOwner) -> RawCommand {
        let mut refuse = ManagePagesIn::default();
        refuse.w().op_mod(manage::CANNOT_GIVE).function_id(owner.function).embedded_cpu_function(owner.embedded);
        RawCommand::new(&refuse, "no pages")
    }

    /// A command that reclaims `count` pages, [`BATCH`] at most.
    pub fn take_command(owner: PageOwner, count: usize) -> RawCommand {
        let count = count.min(BATCH);
        let mut take = ManagePagesIn::default();
        take.w().op_mod(manage::TAKE).function_id(owner.function).embedded_cpu_function(owner.embedded);
        take.w().input_num_entries(count as u32);
        let mut take = WithTail::<_, Be64>::new(take, vec![]);
        take.out_tail = count;
        RawCommand::new(&take, format!("{count} pages"))
    }

    /// Frees the pages of a failed give command.
    pub fn not_taken(&self, pages: &[u64]) {
        let mut state = self.lock();
        for page in pages {
            state.set_free(*page);
        }
    }

    /// Parses the output of a take command; returns how many pages came back. An address that was never given is an
    /// error; pages before it in the list are freed.
    pub fn taken(&self, output: &[u8]) -> Result<usize, Error> {
        const HEAD: usize = 0x10;
        let word = |at: usize| output.get(at..at + 4).map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]));
        let count = word(8).unwrap_or(0) as usize;
        let list = output.get(HEAD..).unwrap_or_default();
        if list.len() / 8 < count {
            let room = list.len() as u64 / 8;
            return Err(Error::response("output_num_entries", count as u64, 0..=room, "pages given back"));
        }
        let mut state = self.lock();
        for entry in list.chunks_exact(8).take(count) {
            let page = entry.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
            if !state.set_free(page) {
                return Err(Error::response("pas", page, None, "firmware returned a page that it never had"));
            }
        }
        Ok(count)
    }

    fn take_pages(&self, owner: PageOwner, count: usize) -> Result<Vec<u64>, Error> {
        let mut state = self.lock();
        let mut pages = Vec::with_capacity(count);
        while pages.len() < count {
            let Some(page) = state.take(owner) else {
                match self.grow(&mut state, count - pages.len()) {
                    Ok(()) => continue,
                    Err(error) => {
                        for page in pages {
                            state.set_free(page);
                        }
                        return Err(error);
                    }
                }
            };
            pages.push(page);
        }
        Ok(pages)
    }

    fn grow(&self, state: &mut State, wanted: usize) -> Result<(), Error> {
        let len = if wanted * PAGE < CHUNK / 8 { CHUNK / 8 } else { CHUNK };
        let memory = self.space.allocate(len)?;
        let first = memory.iova().0;
        state.free.extend((0..memory.len() / PAGE).map(|i| first + (i * PAGE) as u64));
        state.chunks.insert(first, Chunk { memory, given: 0 });
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    /// Takes a free page for `owner`.
    fn take(&mut self, owner: PageOwner) -> Option<u64> {
        let page = self.free.pop_first()?;
        if let Some((_, chunk)) = self.chunks.range_mut(..=page).next_back() {
            chunk.given += 1;
        }
        self.given.insert(page, owner);
        Some(page)
    }

    /// Marks `page` as free. False if firmware never had it.
    fn set_free(&mut self, page: u64) -> bool {
        if self.given.remove(&page).is_none() {
            return false;
        }
        let Some((&first, chunk)) = self.chunks.range_mut(..=page).next_back() else { return false };
        self.free.insert(page);
        chunk.given -= 1;
        // Keep one unused chunk, so that a page given and returned repeatedly does not map and unmap it each time.
        if chunk.given == 0 && self.chunks.len() > 1 {
            self.remove(first);
        }
        true
    }

    fn remove(&mut self, first: u64) {
        let Some(chunk) = self.chunks.remove(&first) else { return };
        for i in 0..chunk.memory.len() / PAGE {
            self.free.remove(&(first + (i * PAGE) as u64));
        }
    }
}
