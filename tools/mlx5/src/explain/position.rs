//! Which function a line of a log is about, and when it was printed.

use std::sync::LazyLock;

use regex::Regex;

use super::spans::Lines;

/// Function and time of a line.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LogPosition {
    /// A PCI address, or the name of a subfunction or RDMA device.
    pub function: Option<String>,
    /// The time as printed.
    pub time: Option<String>,
    /// Number of the line, from 0.
    pub line: usize,
}

static FUNCTION: LazyLock<Regex> = LazyLock::new(|| {
    let pci = r"\b(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-1][0-9a-f]\.[0-7]\b";
    Regex::new(&format!(r"(?i)mlx5_core (?<core>{pci})|mlx5_core\.sf\.\d+|\b(?<pci>{pci})|\bmlx5_(?:bond_)?\d+\b|\b(?:roce|ibp|ibs)\w*\d\b|\binfiniband (?<ib>[\w-]+):|(?<qp>[\w-]+)/\d+: QP "))
        .expect("a regex")
});

static TIME: LazyLock<Regex> = LazyLock::new(|| {
    let iso = r"\d{4}-\d\d-\d\d[T ][\d:.,+-]+";
    Regex::new(&format!(
        r"^(?:<\d+>)?\s*(?:\[\s*(?<seconds>\d+\.\d+)\]|\[(?<long>[A-Z][a-z]{{2}} [^\]]+)\]|(?<iso>{iso})|(?<syslog>[A-Z][a-z]{{2}} +\d+ [\d:]{{8}}))"
    ))
    .expect("a regex")
});

impl LogPosition {
    /// The position of the line at byte `at`; of a dump without a function of its own, that of the lines before it.
    pub fn of(lines: &Lines<'_>, at: usize) -> LogPosition {
        /// Lines of a heading before a dump.
        const HEADING: usize = 3;
        let line = lines.number(at);
        let before = (line.saturating_sub(HEADING)..line).rev().map(|line| lines.near(lines.start(line)));
        let function = std::iter::once(lines.near(at)).chain(before).find_map(function);
        LogPosition { function, time: time(lines.near(lines.start(line))), line }
    }

    /// Whether both can be about one function. Names of RDMA devices do not tell their PCI address.
    pub fn may_be(&self, other: &LogPosition) -> bool {
        let pci = |position: &LogPosition| position.function.clone().filter(|function| function.contains(':'));
        match (pci(self), pci(other)) {
            (Some(one), Some(other)) => one.ends_with(&other) || other.ends_with(&one),
            _ => true,
        }
    }

    /// Whether `other` was printed shortly before this, or with it.
    pub fn is_near(&self, other: &LogPosition) -> bool {
        const SECONDS: f64 = 5.0;
        const LINES: usize = 50;
        let seconds = |position: &LogPosition| position.time.as_ref().and_then(|time| time.parse::<f64>().ok());
        match (seconds(self), seconds(other)) {
            (Some(now), Some(then)) => (-0.5..=SECONDS).contains(&(now - then)),
            _ => (other.line..=other.line + LINES).contains(&self.line),
        }
    }
}

/// The function that a line names.
pub fn function(line: &str) -> Option<String> {
    let found = FUNCTION.captures(line)?;
    // A root port reports for the device that stands last in its line.
    let last = FUNCTION.find_iter(line).last().map(|found| found.as_str().to_owned());
    let named = ["core", "ib", "qp"].into_iter().find_map(|name| found.name(name));
    named.map(|named| named.as_str().to_owned()).or(last)
}

fn time(line: &str) -> Option<String> {
    let captures = TIME.captures(line)?;
    captures.iter().skip(1).flatten().next().map(|time| time.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn function_and_time_are_read_from_every_kind_of_prefix() {
        for (line, function, time) in [
            ("[   12.345678] mlx5_core 0000:3b:00.0: x", Some("0000:3b:00.0"), Some("12.345678")),
            ("[Sun Nov 22 10:11:12 2026] infiniband mlx5_0: x", Some("mlx5_0"), Some("Sun Nov 22 10:11:12 2026")),
            (
                "Nov 22 10:11:12 host kernel: mlx5_core.sf mlx5_core.sf.4: x",
                Some("mlx5_core.sf.4"),
                Some("Nov 22 10:11:12"),
            ),
            (
                "2026-11-22T10:11:12,5+00:00 h kernel: DMAR: device [3b:00.0] x",
                Some("3b:00.0"),
                Some("2026-11-22T10:11:12,5+00:00"),
            ),
            ("pcieport 0000:3a:00.0: AER: error received: 0000:3b:00.1", Some("0000:3b:00.1"), None),
            ("infiniband rocep59s0f0: dump_cqe:272:(pid 1): dump error cqe", Some("rocep59s0f0"), None),
            ("infiniband card_a: dump_cqe:272:(pid 1): dump error cqe", Some("card_a"), None),
            ("rocep2s0/1: QP 137 error: fatal error (0x41 0x0 0x0)", Some("rocep2s0"), None),
            ("ibp59s0: x", Some("ibp59s0"), None),
            ("nothing", None, None),
        ] {
            let position = LogPosition::of(&Lines::of(line), 0);
            assert_eq!((position.function.as_deref(), position.time.as_deref()), (function, time), "{line}");
        }
    }
}
