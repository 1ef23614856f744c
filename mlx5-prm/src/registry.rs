//! Tables of every layout and every enumeration of this crate, for tests that compare them with C headers and for tools
//! that search them. [`cmd::all`] lists the commands.
//!
//! Each folder lists its files and their tables in a `files!` block. A test here finds omissions.

use crate::layout::files::{Tables, tables};
use crate::layout::{Info, Layout, Values};
use crate::{caps, cmd, cqe, ctx, eqe, flow, ib, init_seg, obj, reg, values, wqe};

const FOLDERS: &[&[Tables]] =
    &[cmd::FILES, ctx::FILES, flow::FILES, obj::FILES, caps::FILES, reg::FILES, wqe::FILES, ib::FILES, FILES];

/// Files outside folders, and the tables of the folders' `mod.rs`.
const FILES: &[Tables] = &[
    tables!(caps: values),
    tables!(reg: values),
    tables!(obj: values),
    tables!(wqe: layouts values),
    tables!(cqe: layouts values),
    tables!(eqe: layouts values),
    tables!(init_seg: layouts values),
    tables!(values: values),
];

/// Joins one kind of table over all files at compile time; `$any` is a placeholder entry.
macro_rules! joined {
    ($table:ident: $T:ty, $any:expr) => {{
        const fn next(mut at: (usize, usize, usize)) -> Option<(usize, usize, usize)> {
            while at.0 < FOLDERS.len() {
                while at.1 < FOLDERS[at.0].len() {
                    if at.2 < FOLDERS[at.0][at.1].$table.len() {
                        return Some(at);
                    }
                    at = (at.0, at.1 + 1, 0);
                }
                at = (at.0 + 1, 0, 0);
            }
            None
        }
        const COUNT: usize = {
            let (mut at, mut count) = ((0, 0, 0), 0);
            while let Some((folder, file, entry)) = next(at) {
                at = (folder, file, entry + 1);
                count += 1;
            }
            count
        };
        const ALL: [$T; COUNT] = {
            let (mut all, mut at, mut i) = ([$any; COUNT], (0, 0, 0), 0);
            while let Some((folder, file, entry)) = next(at) {
                all[i] = FOLDERS[folder][file].$table[entry];
                at = (folder, file, entry + 1);
                i += 1;
            }
            all
        };
        &ALL
    }};
}

/// Every layout.
pub const LAYOUTS: &[&Info] = joined!(layouts: &'static Info, &cmd::InputHeader::INFO);

/// Every enumeration of a field's values.
pub const VALUES: &[&Values] = joined!(values: &'static Values, values::VALUES[0]);

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
        let mut all_declared = [declared("struct "), declared("union ")].concat();
        all_declared.sort_unstable();
        assert_eq!(layouts, all_declared);
        let mut values: Vec<_> = VALUES.iter().map(|values| values.name).collect();
        values.sort_unstable();
        assert_eq!(values, declared("enum "));
        assert!(layouts.len() > 130 && values.len() > 10);
    }

    /// A command's input and output by the command's name, under which the PRM has it; all else by what follows "PRM"
    /// or, on the wire, "IBTA".
    #[test]
    fn every_layout_names_its_section() {
        let sources = sources(Path::new(env!("CARGO_MANIFEST_DIR")).join("src").as_path());
        let (mut doc, mut nameless, mut seen) = (std::string::String::new(), Vec::new(), 0);
        for line in sources.lines().map(str::trim) {
            if let Some(text) = line.strip_prefix("///") {
                doc += text;
                continue;
            }
            let words: Vec<_> = line.split_whitespace().take(4).collect();
            if let ["pub", "struct" | "union", name, size] = words[..]
                && name.ends_with(':')
                && size.starts_with("0x")
            {
                seen += 1;
                if !["PRM", "IBTA", "Input of `", "Output of `"].iter().any(|by| doc.contains(by)) {
                    nameless.push(name);
                }
            }
            if !line.starts_with("#[") {
                doc.clear();
            }
        }
        assert!(nameless.is_empty(), "no section: {nameless:?}");
        assert!(seen >= LAYOUTS.len(), "{seen} declarations read, of {}", LAYOUTS.len());
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
