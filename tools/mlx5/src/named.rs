//! Layouts by name.

use mlx5_prm::cqe::{Cqe, Cqe128, CqeOpcode, ErrorCqe};
use mlx5_prm::decode::{self, Dump};
use mlx5_prm::eqe::Eqe;
use mlx5_prm::ib::{Bth, BthService, CnpBth};
use mlx5_prm::layout::{Info, Layout};
use mlx5_prm::registry::LAYOUTS;

/// Why a name is invalid.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// Unknown layout.
    #[error("unknown layout `{name}`; similar names: {nearest} (all: mlx5 decode --list)")]
    Name {
        /// The name.
        name: String,
        /// Similar names.
        nearest: String,
    },
}

/// Every layout, by its PRM name, in alphabetical order.
pub fn all() -> Vec<&'static Info> {
    let mut all = LAYOUTS.to_vec();
    all.sort_by_key(|info| info.prm_name());
    all
}

/// The layout `name`, by its name in the PRM, in the kernel's header or in Rust.
pub fn layout(name: &str) -> Result<&'static Info, Error> {
    let wanted = plain(name);
    // Several layouts may describe one PRM structure: the Rust names are unique.
    let by = |name: fn(&Info) -> &'static str| LAYOUTS.iter().find(|info| plain(name(info)) == wanted);
    let found = by(|info| info.name).or_else(|| by(Info::prm_name));
    found.copied().ok_or_else(|| Error::Name {
        name: name.to_owned(),
        nearest: nearest(&wanted, LAYOUTS.iter().map(|info| info.prm_name())).join(", "),
    })
}

/// The names most similar to `wanted`, best first.
pub fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut names: Vec<&str> = names.collect();
    let distance = |name: &str| (strsim::jaro_winkler(&plain(wanted), &plain(name)) * 1e6) as u64;
    names.sort_by_key(|name| (std::cmp::Reverse(distance(name)), *name));
    names.dedup();
    names.truncate(4);
    names
}

/// A name reduced to what all its spellings share.
fn plain(name: &str) -> String {
    let name = name.trim().to_ascii_lowercase();
    let name = name.strip_prefix("mlx5_").unwrap_or(&name);
    let name = name.strip_prefix("ifc_").unwrap_or(name);
    name.strip_suffix("_bits").unwrap_or(name).replace('_', "")
}

/// Decodes bytes as `info`. Parts whose layout depends on other fields, such as a capability page, are chosen by these.
pub fn decoded<'a>(info: &'static Info, bytes: &'a [u8]) -> Dump<'a> {
    let chosen = match info {
        _ if same(info, &Eqe::INFO) => decode::event(bytes),
        _ if same(info, &Cqe::INFO) || same(info, &ErrorCqe::INFO) => decode::completion(bytes),
        // The first half of an entry with error holds nothing.
        _ if same(info, &Cqe128::INFO) => {
            bytes.get(Cqe::SIZE..Cqe128::SIZE).filter(|half| fails(half)).and_then(decode::completion)
        }
        _ if same(info, &Bth::INFO) => {
            let notifies = Bth::read(bytes).is_some_and(|bth| bth.service() == BthService::Cnp);
            notifies.then(|| Dump::new(&CnpBth::INFO, bytes))
        }
        _ => decode::command_input(bytes).filter(|dump| same(dump.info(), info)),
    };
    chosen.unwrap_or(Dump::new(info, bytes))
}

fn fails(bytes: &[u8]) -> bool {
    let failures = [CqeOpcode::RequesterError, CqeOpcode::ResponderError, CqeOpcode::SignatureError];
    Cqe::read(bytes).is_some_and(|cqe| failures.contains(&cqe.opcode()))
}

fn same(one: &Info, other: &Info) -> bool {
    one.name == other.name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_is_found_by_each_of_its_names() {
        for name in ["create_cq_in", "CreateCqIn", "mlx5_ifc_create_cq_in_bits", "CREATE_CQ_IN", " create_cq_in "] {
            assert_eq!(layout(name).map(|info| info.name), Ok("CreateCqIn"), "{name}");
        }
        let Err(Error::Name { nearest, .. }) = layout("creat_cq") else { panic!("there is no such layout") };
        assert!(nearest.contains("create_cq_in") && nearest.contains("create_cq_out"), "{nearest}");
    }

    #[test]
    fn every_layout_is_found_by_the_names_it_is_listed_by() {
        for info in all() {
            assert_eq!(layout(info.name).map(|found| found.name), Ok(info.name));
            assert!(layout(info.prm_name()).is_ok_and(|found| found.prm_name() == info.prm_name()), "{}", info.name);
        }
    }

    #[test]
    fn an_error_in_an_entry_of_128_bytes_is_one() {
        let mut bytes = [0; 128];
        bytes[0x74..0x78].copy_from_slice(&[0xa1, 0x02, 0x88, 0x13]);
        bytes[0x7f] = 0xd0;
        assert!(decoded(&Cqe128::INFO, &bytes).to_string().contains("REMOTE_ACCESS_ERR"));
        bytes[0x7f] = 0x10;
        assert!(decoded(&Cqe128::INFO, &bytes).to_string().contains("RESP_WR_IMM"));
    }

    #[test]
    fn a_congestion_notification_is_no_send() {
        let mut bytes = [0x81, 0, 0xff, 0xff, 0x40, 0x12, 0x34, 0x56, 0, 0, 0, 0];
        let text = decoded(&Bth::INFO, &bytes).to_string();
        assert!(text.contains("service = CNP (0x4)") && text.contains("operation = 0x1\n"), "{text}");
        assert!(text.contains("becn = 1") && text.contains("dest_qp = 0x123456"), "{text}");
        bytes[0] = 0x01;
        assert!(decoded(&Bth::INFO, &bytes).to_string().contains("operation = SEND_MIDDLE"));
    }
}
