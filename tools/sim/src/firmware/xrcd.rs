//! XRC domains. IBTA A14.

use mlx5_prm::cmd::*;

use super::answer::Answer;
use super::caps::next_below;
use super::pages;
use super::syndromes::Syndrome;
use crate::function::{Context, Function};
use crate::objects::Xrcd;

/// `ALLOC_XRCD`.
pub(super) fn alloc(f: &mut Function, _: &AllocXrcdIn) -> Answer<AllocXrcdOut> {
    let caps = f.nic.firmware.caps.general();
    if !caps.xrc() {
        return Err(Syndrome::CapabilityNotAnnounced.into());
    }
    next_below(&f.nic.objects.xrcds, caps.log_max_xrcd()).ok_or(Syndrome::TooManyXrcds)?;
    pages::reserve(f, Context::Xrcd)?;
    let xrcd = f.nic.objects.xrcds.insert(Xrcd::default()).map_err(|_| Syndrome::TooManyXrcds)?;
    let mut output = AllocXrcdOut::ZERO;
    output.w().xrcd(xrcd);
    Ok(output)
}

/// `DEALLOC_XRCD`.
pub(super) fn dealloc(f: &mut Function, command: &DeallocXrcdIn) -> Answer<DeallocXrcdOut> {
    let xrcd = f.nic.objects.xrcds.get(command.xrcd()).ok_or(Syndrome::NoSuchXrcd)?;
    if xrcd.users > 0 {
        return Err(Syndrome::XrcdInUse.into());
    }
    f.nic.objects.xrcds.remove(command.xrcd());
    pages::release(f, Context::Xrcd);
    Ok(DeallocXrcdOut::ZERO)
}
