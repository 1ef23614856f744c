//! Pages: the client's memory that firmware keeps its contexts in. What it asks for at boot, at init and at run time,
//! what it holds, and what it gives back.
//!
//! Nothing of the model really lives in them. Their bookkeeping is real all the same: contexts fill them, an object that
//! finds none free waits until the driver has given more, and a page taken back is checked to be as firmware left it.

use std::collections::BTreeSet;

use mlx5_prm::cmd::{ManagePagesIn, ManagePagesOut, QueryPagesIn, QueryPagesOut};
use mlx5_prm::eqe::{EventType, PageRequestEvent};
use mlx5_prm::layout::Layout;

use super::HcaState;
use super::command::{Answer, Stop};
use super::hca::own_function;
use super::syndromes::Syndrome;
use crate::engine;
use crate::function::Function;
use crate::profile::PageNeeds;

/// Bytes of a page, and log2 of it.
const PAGE: u64 = 1 << 12;

/// `op_mod` of `QUERY_PAGES`.
mod query_op {
    pub(super) const BOOT: u16 = 1;
    pub(super) const INIT: u16 = 2;
    pub(super) const REGULAR: u16 = 3;
}

/// `op_mod` of `MANAGE_PAGES`.
mod manage_op {
    pub(super) const CANNOT_GIVE: u16 = 0;
    pub(super) const GIVE: u16 = 1;
    pub(super) const TAKE: u16 = 2;
}

/// Objects whose contexts fill pages, and how many bytes of them.
#[derive(Debug, Clone, Copy)]
pub(super) enum Context {
    Pd = 64,
    TransportDomain = 32,
    Umem = 128,
    Mkey = 256,
    Eq = 512,
    Cq = 384,
    Qp = 1024,
    Counter = 320,
    Srq = 192,
    Xrcd = 48,
    /// SQ, RQ or RQT.
    Queue = 448,
    /// TIS or TIR.
    Interface = 288,
    FlowTable = 960,
    FlowGroup = 520,
    /// An entry, or a flow counter.
    FlowEntry = 96,
    User = 40,
}

/// The pages of one function.
#[derive(Debug)]
pub struct Pages {
    needs: PageNeeds,
    addresses: BTreeSet<u64>,
    /// Bytes that contexts fill.
    filled: u64,
    /// Pages asked for by an event and not given yet (to be taken back, if negative).
    asked: i64,
    /// Pages came, or were refused: commands that wait for them can go on.
    pub(super) changed: bool,
    /// The driver said that it cannot give any.
    pub(super) denied: bool,
}

impl Pages {
    /// None held.
    pub(super) fn new(needs: PageNeeds) -> Self {
        Pages { needs, addresses: BTreeSet::new(), filled: 0, asked: 0, changed: false, denied: false }
    }

    /// Where they are.
    #[cfg(test)]
    pub(super) fn addresses(&self) -> impl Iterator<Item = u64> {
        self.addresses.iter().copied()
    }

    /// How many pages firmware holds.
    pub fn held(&self) -> u64 {
        self.addresses.len() as u64
    }

    /// Pages that firmware itself needs, contexts not counted.
    fn own(&self) -> u64 {
        u64::from(self.needs.boot) + u64::from(self.needs.init.saturating_sub(self.needs.contexts))
    }

    /// Pages needed once `more` bytes of contexts are added.
    pub(super) fn needed(&self, more: u64) -> u64 {
        self.own() + (self.filled + more).div_ceil(PAGE)
    }

    /// Pages below which none is given back while the HCA is in use.
    fn floor(&self) -> u64 {
        (u64::from(self.needs.boot) + u64::from(self.needs.init)).max(self.needed(0))
    }

    /// Boot or init pages that are still missing.
    fn missing(&self, wanted: u32) -> u32 {
        wanted.saturating_sub(u32::try_from(self.held()).unwrap_or(u32::MAX))
    }

    /// Whether boot, and init, pages were given.
    pub(super) fn check_init(&self) -> Result<(), Syndrome> {
        if self.missing(self.needs.boot) > 0 {
            return Err(Syndrome::BootPagesMissing);
        }
        if self.missing(self.needs.boot + self.needs.init) > 0 {
            return Err(Syndrome::InitPagesMissing);
        }
        Ok(())
    }

    /// What was asked for does not come.
    fn deny(&mut self) {
        (self.asked, self.denied, self.changed) = (0, true, true);
    }

    /// Contexts are gone, all of them.
    pub(super) fn empty(&mut self) {
        (self.filled, self.asked, self.denied) = (0, 0, false);
    }
}

/// `QUERY_PAGES`.
pub(super) fn query(f: &mut Function, command: &QueryPagesIn) -> Answer<QueryPagesOut> {
    own_function(command.function_id(), command.embedded_cpu_function())?;
    let pages = &f.firmware.pages;
    let needs = pages.needs;
    let wanted = match command.op_mod() {
        query_op::BOOT => pages.missing(needs.boot),
        query_op::INIT => pages.missing(needs.boot + needs.init),
        query_op::REGULAR => pages.asked as i32 as u32,
        _ => return Err(Syndrome::UnknownOpMod.into()),
    };
    let mut output = QueryPagesOut::ZERO;
    output.w().num_pages(wanted);
    Ok(output)
}

/// `MANAGE_PAGES`.
pub(super) fn manage(
    f: &mut Function,
    command: &ManagePagesIn,
    list: &[u8],
    room: usize,
) -> Answer<(ManagePagesOut, Vec<u8>)> {
    own_function(command.function_id(), command.embedded_cpu_function())?;
    let entries = command.input_num_entries();
    match command.op_mod() {
        manage_op::CANNOT_GIVE => {
            f.firmware.pages.deny();
            Ok((ManagePagesOut::ZERO, Vec::new()))
        }
        manage_op::GIVE => match give(f, entries, list) {
            Ok(()) => Ok((ManagePagesOut::ZERO, Vec::new())),
            Err(syndrome) => {
                // The driver believes that it has done what it was asked: Linux does not even warn.
                tracing::warn!("function {}: {entries} pages refused: {}", f.index, syndrome.reason());
                f.firmware.pages.deny();
                Err(syndrome.into())
            }
        },
        manage_op::TAKE => take(f, entries, room),
        _ => Err(Syndrome::UnknownOpMod.into()),
    }
}

/// Takes all pages of the list in, or none.
fn give(f: &mut Function, entries: u32, list: &[u8]) -> Result<(), Syndrome> {
    let (addresses, rest) = list.as_chunks::<8>();
    if addresses.len() != entries as usize || !rest.is_empty() {
        return Err(Syndrome::PageCount);
    }
    let mut new = BTreeSet::new();
    for address in addresses.iter().map(|bytes| u64::from_be_bytes(*bytes)) {
        if address == 0 || !address.is_multiple_of(PAGE) {
            return Err(Syndrome::PageMisaligned);
        }
        if f.firmware.pages.addresses.contains(&address) || !new.insert(address) {
            return Err(Syndrome::PageGivenTwice);
        }
    }
    for address in &new {
        if f.dma.write(*address, &mark(*address)).is_err() {
            return Err(Syndrome::PageUnreachable);
        }
    }
    tracing::debug!("function {}: {entries} pages given", f.index);
    let pages = &mut f.firmware.pages;
    pages.addresses.extend(new);
    pages.asked = (pages.asked - i64::from(entries)).max(0);
    pages.changed = true;
    Ok(())
}

/// Gives back at most `wanted` pages: all there are before `INIT_HCA` and after `TEARDOWN_HCA`, those not needed between.
fn take(f: &mut Function, wanted: u32, room: usize) -> Answer<(ManagePagesOut, Vec<u8>)> {
    let floor = if f.firmware.state == HcaState::Initialized { f.firmware.pages.floor() } else { 0 };
    let pages = &mut f.firmware.pages;
    let spare = pages.held().saturating_sub(floor).min(u64::from(wanted)).min(room as u64 / 8);
    let addresses: Vec<u64> = (0..spare).map_while(|_| pages.addresses.pop_last()).collect();
    pages.asked = (pages.asked + addresses.len() as i64).min(0);
    for address in &addresses {
        check_mark(f, *address);
    }
    tracing::debug!("function {}: {} pages given back, {wanted} wanted", f.index, addresses.len());
    let mut output = ManagePagesOut::ZERO;
    output.w().output_num_entries(addresses.len() as u32);
    Ok((output, addresses.iter().flat_map(|address| address.to_be_bytes()).collect()))
}

/// What firmware leaves in a page that it holds.
fn mark(address: u64) -> [u8; 16] {
    let mut bytes = *b"firmware's page ";
    for (byte, mix) in bytes.iter_mut().zip(address.to_be_bytes()) {
        *byte ^= mix;
    }
    bytes
}

fn check_mark(f: &Function, address: u64) {
    let mut bytes = [0; 16];
    // A fault here is in the strict record already: the page was unmapped while firmware held it.
    if f.dma.read(address, &mut bytes).is_ok() && bytes != mark(address) {
        f.strict.report("page changed while firmware held it", || format!("page {address:#x}"));
    }
}

/// Bytes of a context with a list of `entries` translations of its own.
pub(super) fn with_list(context: Context, entries: usize) -> u64 {
    context as u64 + entries as u64 * size_of::<u64>() as u64
}

/// Makes sure that there is room for one more context; else asks the driver for pages and puts the command off.
pub(super) fn reserve(f: &mut Function, context: Context) -> Answer<()> {
    reserve_bytes(f, context as u64)
}

/// As [`reserve`], for a context of that many bytes.
pub(super) fn reserve_bytes(f: &mut Function, bytes: u64) -> Answer<()> {
    let pages = &mut f.firmware.pages;
    let missing = pages.needed(bytes).saturating_sub(pages.held());
    if missing == 0 {
        pages.filled += bytes;
        return Ok(());
    }
    if pages.denied {
        return Err(Syndrome::PagesRefused.into());
    }
    if !subscribed(f) {
        return Err(Syndrome::PagesUnasked.into());
    }
    if f.firmware.pages.asked <= 0 {
        let batch = u64::from(f.firmware.pages.needs.batch.max(1)).max(missing);
        request(f, i32::try_from(batch).unwrap_or(i32::MAX));
    }
    Err(Stop::PagesNeeded)
}

/// A context is gone. When that leaves many pages unused, firmware asks the driver to take them back.
pub(super) fn release(f: &mut Function, context: Context) {
    release_bytes(f, context as u64);
}

/// As [`release`], for a context of that many bytes.
pub(super) fn release_bytes(f: &mut Function, bytes: u64) {
    let pages = &mut f.firmware.pages;
    pages.filled = pages.filled.saturating_sub(bytes);
    let batch = u64::from(pages.needs.batch.max(1));
    // Twice the batch, so that one object made and unmade at the border does not move pages to and fro.
    if pages.held() >= pages.floor() + 2 * batch && pages.asked >= 0 && subscribed(f) {
        request(f, -(batch as i32));
    }
}

/// Whether an EQ takes page requests.
fn subscribed(f: &Function) -> bool {
    let bit = 1 << EventType::PageRequest.number();
    f.objects.eqs.iter().any(|(_, eq)| eq.event_mask[0] & bit != 0)
}

/// Asks the driver for pages by an event; to take pages back, if negative.
pub(super) fn request(f: &mut Function, count: i32) {
    tracing::debug!("function {}: asks for {count} pages, {} held", f.index, f.firmware.pages.held());
    f.firmware.pages.asked = i64::from(count);
    let mut event = PageRequestEvent::ZERO;
    event.w().num_pages(count as u32);
    let mut data = [0; 28];
    data.copy_from_slice(event.as_bytes());
    engine::post_event(f, EventType::PageRequest, 0, data);
}

/// `DISABLE_HCA`: pages that firmware still holds are lost to the driver.
pub(super) fn disable(f: &mut Function) {
    let held = f.firmware.pages.held();
    if held > 0 {
        f.strict.report("pages not taken back before DISABLE_HCA", || format!("{held} pages of {PAGE} bytes"));
    }
    f.firmware.pages = Pages::new(f.profile.pages);
}
