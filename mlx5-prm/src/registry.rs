//! Every layout and every enumeration of this crate, for the tests that compare them with other people's headers and
//! for tools that search them. [`cmd::all`] lists the commands.

use crate::layout::{Info, Values};
use crate::{caps, cmd, cqe, ctx, eqe, init_seg, reg, values, wqe};

/// One table of many; the lengths are counted at compile time.
const fn joined<T: Copy, const N: usize>(tables: &[&[T]], mut all: [T; N]) -> [T; N] {
    let (mut table, mut at) = (0, 0);
    while table < tables.len() {
        let mut i = 0;
        while i < tables[table].len() {
            all[at] = tables[table][i];
            (i, at) = (i + 1, at + 1);
        }
        table += 1;
    }
    all
}

const fn count<T>(tables: &[&[T]]) -> usize {
    let (mut table, mut count) = (0, 0);
    while table < tables.len() {
        count += tables[table].len();
        table += 1;
    }
    count
}

const LAYOUT_TABLES: &[&[&Info]] = &[
    cmd::LAYOUTS,
    cmd::counter::LAYOUTS,
    cmd::cq::LAYOUTS,
    cmd::entry::LAYOUTS,
    cmd::eq::LAYOUTS,
    cmd::hca::LAYOUTS,
    cmd::l2_table::LAYOUTS,
    cmd::mkey::LAYOUTS,
    cmd::pages::LAYOUTS,
    cmd::pd::LAYOUTS,
    cmd::qp::LAYOUTS,
    cmd::register::LAYOUTS,
    cmd::transport_domain::LAYOUTS,
    cmd::uar::LAYOUTS,
    cmd::umem::LAYOUTS,
    cmd::vport::LAYOUTS,
    ctx::adapter::LAYOUTS,
    ctx::cqc::LAYOUTS,
    ctx::eqc::LAYOUTS,
    ctx::mkc::LAYOUTS,
    ctx::qpc::LAYOUTS,
    ctx::umem::LAYOUTS,
    ctx::vport::LAYOUTS,
    caps::atomic::LAYOUTS,
    caps::debug::LAYOUTS,
    caps::device_mem::LAYOUTS,
    caps::ethernet::LAYOUTS,
    caps::general::LAYOUTS,
    caps::odp::LAYOUTS,
    caps::qos::LAYOUTS,
    caps::roce::LAYOUTS,
    wqe::LAYOUTS,
    cqe::LAYOUTS,
    eqe::LAYOUTS,
    init_seg::LAYOUTS,
    reg::host::LAYOUTS,
    reg::port::LAYOUTS,
];

const VALUE_TABLES: &[&[&Values]] = &[
    caps::VALUES,
    caps::general::VALUES,
    ctx::cqc::VALUES,
    ctx::eqc::VALUES,
    ctx::mkc::VALUES,
    ctx::qpc::VALUES,
    ctx::vport::VALUES,
    cmd::vport::VALUES,
    cmd::status::VALUES,
    cmd::entry::VALUES,
    values::VALUES,
    wqe::VALUES,
    cqe::VALUES,
    eqe::VALUES,
    init_seg::VALUES,
    reg::VALUES,
];

/// Every layout.
pub const LAYOUTS: &[&Info] = &joined::<_, { count(LAYOUT_TABLES) }>(LAYOUT_TABLES, [LAYOUT_TABLES[0][0]; _]);

/// Every enumeration of a field's values.
pub const VALUES: &[&Values] = &joined::<_, { count(VALUE_TABLES) }>(VALUE_TABLES, [VALUE_TABLES[0][0]; _]);

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use std::path::Path;

    /// No module's table is missing above: compared with what the sources declare.
    #[test]
    fn nothing_is_forgotten() {
        let sources = sources(Path::new(env!("CARGO_MANIFEST_DIR")).join("src").as_path());
        let declared = |word: &str| -> Vec<&str> {
            let names = sources.lines().filter_map(|line| line.strip_prefix("    pub ")?.strip_prefix(word));
            let mut names: Vec<_> = names
                .filter_map(|rest| rest.split_once(':'))
                .filter(|(_, bits)| bits.ends_with('{'))
                .map(|(name, _)| name)
                .collect();
            names.sort_unstable();
            names
        };
        let mut layouts: Vec<_> = LAYOUTS.iter().map(|info| info.name).collect();
        layouts.sort_unstable();
        assert_eq!(layouts, declared("struct "));
        let mut values: Vec<_> = VALUES.iter().map(|values| values.name).collect();
        values.sort_unstable();
        assert_eq!(values, declared("enum "));
        assert!(layouts.len() > 130 && values.len() > 10);
    }

    fn sources(dir: &Path) -> std::string::String {
        let mut all = std::string::String::new();
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            all += &if path.is_dir() { sources(&path) } else { std::fs::read_to_string(&path).unwrap() };
        }
        all
    }
}
