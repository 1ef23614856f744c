//! Capabilities that the driver requires or changes at bring-up. PRM "SET_HCA_CAP".

use std::sync::atomic::Ordering;

use mlx5_prm::caps::{AtomicCaps, CmdHcaCap, RoceCap};
use mlx5_prm::cmd::*;
use mlx5_prm::layout::Layout;

use super::Owned;
use crate::access::hca_cap::query_page;
use crate::caps::{CapPage, Caps, HOST_ENDIANNESS};
use crate::error::Error;

/// `cmdif_checksum`: command signatures off, or on in both directions.
const CHECKSUM_OFF: u8 = 0;
const CHECKSUM_ON: u8 = 3;
/// Log of the most queue pairs to ask for, as Linux does: firmware keeps memory for them.
const LOG_MOST_QPS: u8 = 18;
/// Bytes of a cache line where the kernel does not say.
const CACHE_LINE: u32 = 64;

/// Checks the capabilities that all queues depend on.
pub(super) fn check_caps(caps: &Caps) -> Result<(), Error> {
    if caps.umem_uid_0 {
        return Ok(());
    }
    let what = "make umems, which all queues lie in, for a driver without a user context; update its firmware".into();
    Err(Error::Unsupported { what, capability: "umem_uid_0" })
}

/// Sets the current capabilities from the maximum ones, as Linux's `handle_hca_cap`: a card announces some features in
/// its current page only after the driver has set them there. PRM "SET_HCA_CAP".
pub(super) fn set_hca_cap(card: &Owned) -> Result<(), Error> {
    let raw = query_page(card, CapPage::General)?;
    let max = CmdHcaCap::read(&raw.max).unwrap_or(CmdHcaCap::ZERO);
    let mut want = CmdHcaCap::read(&raw.current).unwrap_or(CmdHcaCap::ZERO);
    let log_host_page = rustix::param::page_size().trailing_zeros();
    let sign = card.options.sign_replies;
    want.w().cmdif_checksum(if sign { CHECKSUM_ON } else { CHECKSUM_OFF }).log_uar_page_sz((log_host_page - 12) as u16);
    let uar_4k = max.uar_4k() && log_host_page > 12;
    if uar_4k {
        want.w().uar_4k(true);
    }
    if max.cache_line_128byte() {
        want.w().cache_line_128byte(cache_line() >= 128);
    }
    if max.dct() {
        want.w().dct(true);
    }
    if max.num_vhca_ports() > 0 {
        want.w().num_vhca_ports(max.num_vhca_ports());
    }
    want.w().log_max_qp(max.log_max_qp().min(LOG_MOST_QPS));
    if want.roce_rw_supported() && max.roce() {
        want.w().roce(true);
    }
    set_cap(card, CapPage::General, &raw.current, want.as_bytes())?;
    card.log_uar_page.store(if uar_4k { 12 } else { log_host_page }, Ordering::Relaxed);
    if let Some(commands) = card.commands.get() {
        commands.set_verify(sign);
    }
    if want.roce() {
        choose_roce(card)?;
    }
    if want.atomic() { choose_atomics(card) } else { Ok(()) }
}

/// Bytes of a cache line of this host's processors.
fn cache_line() -> u32 {
    let said = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index0/coherency_line_size");
    said.ok().and_then(|bytes| bytes.trim().parse().ok()).unwrap_or(CACHE_LINE)
}

/// Enables configurable UDP source ports for queue pairs, where supported.
fn choose_roce(card: &Owned) -> Result<(), Error> {
    let raw = query_page(card, CapPage::Roce)?;
    let max = RoceCap::read(&raw.max).unwrap_or(RoceCap::ZERO);
    let mut want = RoceCap::read(&raw.current).unwrap_or(RoceCap::ZERO);
    if want.sw_r_roce_src_udp_port() || !max.sw_r_roce_src_udp_port() {
        return Ok(());
    }
    want.w().sw_r_roce_src_udp_port(true);
    set_cap(card, CapPage::Roce, &raw.current, want.as_bytes())
}

/// Selects atomics in this host's byte order, where supported.
fn choose_atomics(card: &Owned) -> Result<(), Error> {
    let raw = query_page(card, CapPage::Atomic)?;
    let max = AtomicCaps::read(&raw.max).unwrap_or(AtomicCaps::ZERO);
    if !max.supported_atomic_req_8B_endianness_mode_1() {
        return Ok(());
    }
    let mut want = AtomicCaps::ZERO;
    want.w().atomic_req_8B_endianness_mode(HOST_ENDIANNESS);
    // The rest of the page is zero, as Linux sends it.
    set_cap(card, CapPage::Atomic, &[], want.as_bytes())
}

fn set_cap(card: &Owned, page: CapPage, current: &[u8], want: &[u8]) -> Result<(), Error> {
    let mut capability = [0; 0x1000];
    let len = current.len().min(capability.len());
    capability[..len].copy_from_slice(&current[..len]);
    capability[..want.len()].copy_from_slice(want);
    let mut set = SetHcaCapIn::default();
    set.w().op_mod(page.op_mod(false)).capability(&capability);
    // SAFETY: names no memory. The settings it changes (signatures, UAR page size) are made only here, and their users
    // are told.
    unsafe { card.run_raw(&set, &format!("{page} page")) }?;
    Ok(())
}
