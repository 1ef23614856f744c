//! Checks `SET_HCA_CAP` against the maximum capabilities.

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

/// Capabilities that the driver chooses freely: the maximum does not limit them.
/// Linux core/main.c `handle_hca_cap` sets it from its own page size.
const DRIVERS_OWN: &[&str] = &["log_uar_page_sz"];

/// Returns the capabilities set above their maximum, unless they already are. Other functions are not checked: their
/// maximum differs.
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
        // Array elements have no names of their own.
        let known = card.max(page, name).filter(|_| at.index.is_none());
        let above = |max: u64| asked > max && is_quantity(&at.field.kind) && card.current(page, name) != Some(asked);
        if let Some(max) = known.filter(|max| above(*max)) {
            let words = format!("SET_HCA_CAP: capability.{name}={asked} > maximum {max}");
            let (field, capability) = (format!("capability.{name}"), name.to_string());
            broken.push(Violation { opcode: Opcode::SetHcaCap, field, capability, source: "PRM", words });
        }
        Ok(())
    });
    broken
}

/// Whether larger numbers mean more; named values have no order.
fn is_quantity(kind: &Kind) -> bool {
    matches!(kind, Kind::Bits { reading: Reading::Number | Reading::Flag, .. })
}
