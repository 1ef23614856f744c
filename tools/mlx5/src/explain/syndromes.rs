//! What is publicly known of the maker's unpublished numbers: firmware's syndromes of refused commands (`firmware.txt`)
//! and vendor syndromes of error CQEs (`vendor.txt`).

use serde::Serialize;

/// How sure a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// The maker's own list or code, as its people quoted it.
    MakersWord,
    /// Somebody found the cause.
    ReportedCause,
    /// Seen; the cause is not known.
    SeenCauseUnknown,
}

/// One row of either table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Known {
    /// The number.
    pub number: u32,
    /// The command it came from, or the CQE's syndrome; empty where the source does not say.
    pub of: &'static str,
    /// The command's status; empty where the source does not say.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub status: &'static str,
    /// How sure.
    pub confidence: Confidence,
    /// What is known.
    pub text: &'static str,
    /// Where to read more.
    pub source: &'static str,
}

/// What is known of a firmware syndrome.
pub fn firmware(number: u32) -> Option<Known> {
    all_firmware().find(|known| known.number == number)
}

/// What is known of a vendor syndrome.
pub fn vendor(number: u32) -> Option<Known> {
    all_vendor().find(|known| known.number == number)
}

fn all_firmware() -> impl Iterator<Item = Known> {
    rows(include_str!("firmware.txt")).filter_map(|row| match row[..] {
        [number, of, status, sure, text, source] => known(number, of, status, sure, text, source),
        _ => None,
    })
}

fn all_vendor() -> impl Iterator<Item = Known> {
    rows(include_str!("vendor.txt")).filter_map(|row| match row[..] {
        [number, of, sure, text, source] => known(number, of, "-", sure, text, source),
        _ => None,
    })
}

fn rows(text: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    text.lines().filter(|line| !line.starts_with('#')).map(|line| line.split('|').map(str::trim).collect())
}

fn known(
    number: &str,
    of: &'static str,
    status: &'static str,
    sure: &str,
    text: &'static str,
    source: &'static str,
) -> Option<Known> {
    let confidence = match sure {
        "list" => Confidence::MakersWord,
        "cause" => Confidence::ReportedCause,
        "seen" => Confidence::SeenCauseUnknown,
        _ => return None,
    };
    let blank = |word: &'static str| if word == "-" { "" } else { word };
    let number = u32::from_str_radix(number.strip_prefix("0x")?, 16).ok()?;
    Some(Known { number, of: blank(of), status: blank(status), confidence, text, source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlx5_prm::cmd::{CmdStatus, Opcode};
    use mlx5_prm::cqe::CqeSyndrome;

    fn whole(text: &'static str, known: Vec<Known>) {
        assert_eq!(known.len(), rows(text).count(), "a row is broken");
        for (at, one) in known.iter().enumerate() {
            assert!(!one.text.is_empty() && !one.source.is_empty(), "{one:?}");
            assert!(known[at + 1..].iter().all(|other| other.number != one.number), "{:#x} stands twice", one.number);
        }
    }

    #[test]
    fn every_row_is_whole_and_stands_once() {
        whole(include_str!("firmware.txt"), all_firmware().collect());
        whole(include_str!("vendor.txt"), all_vendor().collect());
        assert!(all_firmware().count() > 50);
    }

    #[test]
    fn rows_use_the_names_that_the_wire_has() {
        for one in all_firmware() {
            let opcode = Opcode::ALL.iter().any(|opcode| opcode.prm_name() == Some(one.of));
            assert!(one.of.is_empty() || opcode, "{}: no such command", one.of);
            let status = CmdStatus::ALL.iter().any(|status| status.prm_name() == Some(one.status));
            assert!(one.status.is_empty() || status, "{}: no such status", one.status);
        }
        for one in all_vendor() {
            let syndrome = CqeSyndrome::ALL.iter().any(|syndrome| syndrome.prm_name() == Some(one.of));
            assert!(syndrome, "{}: no such syndrome", one.of);
        }
    }
}
