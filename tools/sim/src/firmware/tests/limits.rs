//! The table of limits in mlx5-prm, judged by what the model does with all that the tests here send: a command that was
//! done was within the card's limits, and its lists were long enough; of one that was refused for a limit, something is
//! said.

use mlx5_prm::caps::CapPage;
use mlx5_prm::limits::{self, Card, number_at};

use crate::firmware::caps::Capabilities;
use crate::firmware::command::{Answer, Stop};
use crate::firmware::syndromes::Syndrome;

impl Card for Capabilities {
    fn current(&self, page: CapPage, name: &str) -> Option<u64> {
        announced(self, page, true, name)
    }

    fn max(&self, page: CapPage, name: &str) -> Option<u64> {
        announced(self, page, false, name)
    }
}

/// A page that the card refuses announces nothing.
fn announced(caps: &Capabilities, page: CapPage, current: bool, name: &str) -> Option<u64> {
    let mut bytes = caps.query(page.op_mod(current)).unwrap_or_default().to_vec();
    bytes.resize(0x1000, 0);
    number_at(page.layout()?, &bytes, name)
}

/// What the table says of a command that the card is about to look at.
pub(in crate::firmware) fn said(caps: &Capabilities, input: &[u8]) -> Vec<String> {
    let broken = limits::check(input, caps).into_iter().chain(limits::check_lists(input));
    broken.map(|one| one.to_string()).collect()
}

/// Why a command is refused that is above a capability, or asks for what is not announced.
const LIMITS: &[Syndrome] = &[
    Syndrome::CapabilityAboveMaximum,
    Syndrome::EqSize,
    Syndrome::CqSize,
    Syndrome::CqResize,
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
];

/// Fails where the table and the card are of two minds.
pub(in crate::firmware) fn agrees(said: &[String], answer: &Answer<Vec<u8>>) {
    match answer {
        Ok(_) => assert!(said.is_empty(), "the card did it, and yet: {said:?}"),
        Err(Stop::Refused(syndrome)) if LIMITS.contains(syndrome) => {
            assert!(!said.is_empty(), "the card refused it, and nothing is said: {}", syndrome.reason());
        }
        Err(_) => {}
    }
}
