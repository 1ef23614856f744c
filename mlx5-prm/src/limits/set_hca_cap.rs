//! `SET_HCA_CAP` against the most that the card can.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::convert::Infallible;

use super::card::{Card, Violation};
use super::input::Path;
use crate::caps::CapPage;
use crate::cmd::{Opcode, SetHcaCapIn};
use crate::decode::walk;
use crate::layout::{Kind, Layout, Reading};

/// Capabilities that the driver tells the card, not the card the driver: the maximum says nothing of them.
/// Linux core/main.c `handle_hca_cap` sets it from its own page size.
const DRIVERS_OWN: &[&str] = &["log_uar_page_sz"];

/// Every capability that is asked to be above its maximum, unless it is so already. Those of other functions are not
/// checked: their maximum is another.
pub(super) fn check(input: &[u8], card: &dyn Card) -> Vec<Violation> {
    let Some(set) = SetHcaCapIn::read(input).filter(|set| set.opcode() == Opcode::SetHcaCap && !set.other_function())
    else {
        return Vec::new();
    };
    let page = CapPage::from_op_mod(set.op_mod());
    let Some(info) = page.layout() else { return Vec::new() };
    let (mut broken, mut path) = (Vec::new(), Path::default());
    let _: Result<(), Infallible> = walk(info, set.capability(), &mut |at| {
        let name = path.name(&at);
        let Some(asked) = at.number.filter(|_| !DRIVERS_OWN.contains(&name)) else { return Ok(()) };
        // Elements of arrays have no name of their own in a page.
        let known = card.max(page, name).filter(|_| at.index.is_none());
        let above = |max: u64| asked > max && is_quantity(&at.field.kind) && card.current(page, name) != Some(asked);
        if let Some(max) = known.filter(|max| above(*max)) {
            let words = format!("SET_HCA_CAP: capability.{name}={asked} > {max}, the most the card can");
            let (field, capability) = (format!("capability.{name}"), name.to_string());
            broken.push(Violation { opcode: Opcode::SetHcaCap, field, capability, source: "PRM", words });
        }
        Ok(())
    });
    broken
}

/// Whether more of it is more: named values are in no order.
fn is_quantity(kind: &Kind) -> bool {
    matches!(kind, Kind::Bits { reading: Reading::Number | Reading::Flag, .. })
}
