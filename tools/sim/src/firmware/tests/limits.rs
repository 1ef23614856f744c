//! Checks the table of limits in mlx5-prm against the model, for all commands that the tests here send: an executed
//! command must be within the limits, and its lists long enough; for a command refused because of a limit, the table
//! must name one.

use std::collections::BTreeMap;

use mlx5_prm::caps::CapPage;
use mlx5_prm::cmd::{CmdStatus, DeliveryStatus, OutputHeader};
use mlx5_prm::layout::Layout;
use mlx5_prm::limits::{self, Card, number_at};

use crate::firmware::syndromes::Syndrome;
use crate::function::{At, Capabilities, Observer, Seen};

impl Card for Capabilities {
    fn current(&self, page: CapPage, name: &str) -> Option<u64> {
        announced(self, page, true, name)
    }

    fn max(&self, page: CapPage, name: &str) -> Option<u64> {
        announced(self, page, false, name)
    }
}

/// A rejected page announces nothing.
fn announced(caps: &Capabilities, page: CapPage, current: bool, name: &str) -> Option<u64> {
    let mut bytes = caps.query(page.op_mod(current)).unwrap_or_default().to_vec();
    bytes.resize(0x1000, 0);
    number_at(page.layout()?, &bytes, name)
}

/// Refusals for a value above a capability, or for a feature not announced.
const LIMITS: &[Syndrome] = &[
    Syndrome::CapabilityAboveMaximum,
    Syndrome::EqSize,
    Syndrome::CqSize,
    Syndrome::CqResize,
    Syndrome::KlmList,
    Syndrome::QpSize,
    Syndrome::MessageLimit,
    Syndrome::SrqSize,
    Syndrome::ReadsResponder,
    Syndrome::ReadsRequester,
    Syndrome::Atomics,
    Syndrome::WqSize,
    Syndrome::WqStride,
    Syndrome::FlowTableSize,
    Syndrome::RoceIndex,
    Syndrome::RoceVersion,
    Syndrome::RateIndex,
    Syndrome::RateRange,
    Syndrome::ObjectType,
    Syndrome::ReservedQpnRange,
    Syndrome::GeneveOptionLength,
    Syndrome::FlowMeterRange,
];

/// What mlx5-prm says of a command before it is answered.
#[derive(Debug)]
struct Said {
    broken: Vec<String>,
    /// The capability that bounds the number of objects.
    count: Option<&'static str>,
}

/// Checks each answered command.
#[derive(Debug, Default)]
pub(in crate::firmware) struct Judge(BTreeMap<u32, Said>);

impl Observer for Judge {
    /// Fails if table and model disagree.
    fn see(&mut self, _: At, what: Seen<'_>) {
        match what {
            Seen::Command { slot, input, caps } => {
                let broken = limits::check(input, caps).into_iter().chain(limits::check_lists(input));
                let broken = broken.map(|one| one.to_string()).collect();
                self.0.insert(slot, Said { broken, count: limits::count_of(input) });
            }
            Seen::Answer { slot, output, delivery: DeliveryStatus::Ok } => {
                let (Some(said), Some(header)) = (self.0.remove(&slot), OutputHeader::read(output)) else { return };
                let refusal = Syndrome::ALL.iter().find(|syndrome| syndrome.number() == header.syndrome());
                match (header.status(), refusal) {
                    (CmdStatus::Ok, _) => assert!(said.broken.is_empty(), "the card did it, and yet: {said:?}"),
                    (_, Some(syndrome)) if LIMITS.contains(syndrome) => {
                        let reason = syndrome.reason();
                        assert!(!said.broken.is_empty(), "the card refused it, and nothing is said: {reason}");
                    }
                    (_, Some(syndrome)) if is_count(syndrome.reason()) => {
                        let is_it = |count| syndrome.reason().contains(count);
                        assert!(said.count.is_some_and(is_it), "{:?} bounds them: {}", said.count, syndrome.reason());
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
}

/// Whether a refusal is for want of room for one object more.
fn is_count(reason: &str) -> bool {
    reason.starts_with("more ") && reason.ends_with(" allows")
}
