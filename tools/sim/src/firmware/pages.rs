//! Firmware pages: the driver's memory for firmware's contexts. What firmware requests at boot, at init and at run
//! time, what it holds, and what it returns. PRM "QUERY_PAGES", "MANAGE_PAGES".
//!
//! The model keeps no data in them, but the accounting is real: contexts use pages, creating an object waits for pages
//! if there are none free, and a returned page is checked to be unchanged.

use std::collections::BTreeSet;

use mlx5_prm::cmd::{ManagePagesIn, ManagePagesOut, QueryPagesIn, QueryPagesOut};
use mlx5_prm::eqe::{EventType, PageRequestEvent};
use mlx5_prm::layout::Layout;

use super::answer::{Answer, Stop, own_or_embedded};
use super::syndromes::Syndrome;
use crate::engine;
use crate::function::{Context, Function, HcaState, PAGE, Pages};

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

impl Pages {
    /// Whether the boot pages and the init pages were given.
    pub(super) fn check_init(&self) -> Result<(), Syndrome> {
        if self.missing(self.needs.boot) > 0 {
            return Err(Syndrome::BootPagesMissing);
        }
        if self.missing(self.needs.boot + self.needs.init) > 0 {
            return Err(Syndrome::InitPagesMissing);
        }
        Ok(())
    }
}

/// `QUERY_PAGES`.
pub(super) fn query(f: &mut Function, command: &QueryPagesIn) -> Answer<QueryPagesOut> {
    own_or_embedded(f, command.function_id(), command.embedded_cpu_function())?;
    let pages = &f.nic.firmware.pages;
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
    own_or_embedded(f, command.function_id(), command.embedded_cpu_function())?;
    let entries = command.input_num_entries();
    match command.op_mod() {
        manage_op::CANNOT_GIVE => {
            f.nic.firmware.pages.deny();
            Ok((ManagePagesOut::ZERO, Vec::new()))
        }
        manage_op::GIVE => match give(f, entries, list) {
            Ok(()) => Ok((ManagePagesOut::ZERO, Vec::new())),
            Err(syndrome) => {
                // A driver may not notice: Linux does not even log a warning.
                tracing::warn!("function {}: {entries} pages refused: {}", f.nic.index, syndrome.reason());
                f.nic.firmware.pages.deny();
                Err(syndrome.into())
            }
        },
        manage_op::TAKE => take(f, entries, room),
        _ => Err(Syndrome::UnknownOpMod.into()),
    }
}

/// Accepts all pages of the list, or none.
fn give(f: &mut Function, entries: u32, list: &[u8]) -> Result<(), Syndrome> {
    let (addresses, rest) = list.as_chunks::<8>();
    if addresses.len() != entries as usize || !rest.is_empty() {
        return Err(Syndrome::PageCount);
    }
    let mut new = BTreeSet::new();
    for address in addresses.iter().map(|bytes| u64::from_be_bytes(*bytes)) {
        if !address.is_multiple_of(PAGE) {
            return Err(Syndrome::PageMisaligned);
        }
        if f.nic.firmware.pages.addresses.contains(&address) || !new.insert(address) {
            return Err(Syndrome::PageGivenTwice);
        }
    }
    for address in &new {
        if f.nic.dma.write(*address, &mark(*address)).is_err() {
            return Err(Syndrome::PageUnreachable);
        }
    }
    tracing::debug!("function {}: {entries} pages given", f.nic.index);
    let pages = &mut f.nic.firmware.pages;
    pages.addresses.extend(new);
    pages.asked = (pages.asked - i64::from(entries)).max(0);
    pages.changed = true;
    Ok(())
}

/// Returns up to `wanted` pages: any page before `INIT_HCA` and after `TEARDOWN_HCA`, only unused ones between.
fn take(f: &mut Function, wanted: u32, room: usize) -> Answer<(ManagePagesOut, Vec<u8>)> {
    let floor = if f.nic.firmware.state == HcaState::Initialized { f.nic.firmware.pages.floor() } else { 0 };
    let pages = &mut f.nic.firmware.pages;
    let spare = pages.held().saturating_sub(floor).min(u64::from(wanted)).min(room as u64 / 8);
    let addresses: Vec<u64> = (0..spare).map_while(|_| pages.addresses.pop_last()).collect();
    pages.asked = (pages.asked + addresses.len() as i64).min(0);
    for address in &addresses {
        check_mark(f, *address);
    }
    tracing::debug!("function {}: {} pages given back, {wanted} wanted", f.nic.index, addresses.len());
    let mut output = ManagePagesOut::ZERO;
    output.w().output_num_entries(addresses.len() as u32);
    Ok((output, addresses.iter().flat_map(|address| address.to_be_bytes()).collect()))
}

/// Pattern that firmware writes to a page that it holds.
fn mark(address: u64) -> [u8; 16] {
    let mut bytes = *b"firmware's page ";
    for (byte, mix) in bytes.iter_mut().zip(address.to_be_bytes()) {
        *byte ^= mix;
    }
    bytes
}

fn check_mark(f: &Function, address: u64) {
    let mut bytes = [0; 16];
    // Strict mode has recorded the fault: the page was unmapped while firmware held it.
    if f.nic.dma.read(address, &mut bytes).is_ok() && bytes != mark(address) {
        f.nic.strict.report("page changed while firmware held it", || format!("page {address:#x}"));
    }
}

/// Bytes of a context with a list of `entries` translations.
pub(super) fn with_list(context: Context, entries: usize) -> u64 {
    context as u64 + entries as u64 * size_of::<u64>() as u64
}

/// Makes sure that one more context fits; otherwise requests pages and postpones the command.
pub(super) fn reserve(f: &mut Function, context: Context) -> Answer<()> {
    reserve_bytes(f, context as u64)
}

/// Like [`reserve`], for a context of `bytes` bytes.
pub(super) fn reserve_bytes(f: &mut Function, bytes: u64) -> Answer<()> {
    check_room(f, bytes)?;
    f.nic.firmware.pages.filled += bytes;
    Ok(())
}

/// Whether a context of `bytes` bytes fits. If not, pages are requested, unless they are already.
pub(super) fn check_room(f: &mut Function, bytes: u64) -> Answer<()> {
    let pages = &f.nic.firmware.pages;
    let missing = pages.needed(bytes).saturating_sub(pages.held());
    if missing == 0 {
        return Ok(());
    }
    if pages.denied {
        return Err(Syndrome::PagesRefused.into());
    }
    if !subscribed(f) {
        return Err(Syndrome::PagesUnasked.into());
    }
    if f.nic.firmware.pages.asked <= 0 {
        let batch = u64::from(f.nic.firmware.pages.needs.batch.max(1)).max(missing);
        request(f, i32::try_from(batch).unwrap_or(i32::MAX));
    }
    Err(Stop::PagesNeeded(bytes))
}

/// A context was freed. If that leaves many pages unused, firmware asks the driver to take them back.
pub(super) fn release(f: &mut Function, context: Context) {
    release_bytes(f, context as u64);
}

/// Like [`release`], for a context of `bytes` bytes.
pub(super) fn release_bytes(f: &mut Function, bytes: u64) {
    let pages = &mut f.nic.firmware.pages;
    pages.filled = pages.filled.saturating_sub(bytes);
    let batch = u64::from(pages.needs.batch.max(1));
    // Hysteresis of two batches: creating and destroying one object must not move pages each time.
    if pages.held() >= pages.floor() + 2 * batch && pages.asked >= 0 && subscribed(f) {
        request(f, -(batch as i32));
    }
}

/// Whether an EQ is subscribed to page requests.
fn subscribed(f: &Function) -> bool {
    let bit = 1 << EventType::PageRequest.number();
    f.nic.objects.eqs.iter().any(|(_, eq)| eq.event_mask[0] & bit != 0)
}

/// Bit of `ec_function`: the function is one of the card's own processor. Linux `EC_FUNCTION_MASK`.
const EC_FUNCTION: u16 = 1 << 15;

/// Requests `count` pages by an event; a negative number asks the driver to take pages back. PRM "Event Types".
pub(super) fn request(f: &mut Function, count: i32) {
    tracing::debug!("function {}: asks for {count} pages, {} held", f.nic.index, f.nic.firmware.pages.held());
    f.nic.firmware.pages.asked = i64::from(count);
    let mut event = PageRequestEvent::ZERO;
    let of_embedded = if f.nic.profile.embedded_cpu { EC_FUNCTION } else { 0 };
    event.w().ec_function(of_embedded).num_pages(count as u32);
    let mut data = [0; 28];
    data.copy_from_slice(event.as_bytes());
    engine::post_event(f, EventType::PageRequest, 0, data);
}

/// `DISABLE_HCA`: the driver cannot get back pages that firmware still holds.
pub(super) fn disable(f: &mut Function) {
    let held = f.nic.firmware.pages.held();
    if held > 0 {
        f.nic.strict.report("pages not taken back before DISABLE_HCA", || format!("{held} pages of {PAGE} bytes"));
    }
    f.nic.firmware.pages = Pages::new(f.nic.profile.pages);
}
