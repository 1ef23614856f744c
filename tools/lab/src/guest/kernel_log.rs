//! The guest kernel's log, with the level of every line.

use std::collections::BTreeMap;
use std::fmt;

/// One record of the kernel's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelRecord {
    /// 0 emergency, 3 error, 4 warning, 6 information, 7 debug.
    pub level: u8,
    /// Sequence number; consecutive.
    pub sequence: u64,
    /// Microseconds since boot.
    pub micros: u64,
    /// The text, without level and time.
    pub text: String,
}

impl KernelRecord {
    /// Reads a line of `/dev/kmsg`: `level,sequence,micros,flags;text`.
    fn parse(line: &str) -> Option<Self> {
        let (head, text) = line.split_once(';')?;
        let mut numbers = head.split(',');
        let priority: u64 = numbers.next()?.parse().ok()?;
        Some(Self {
            // Higher bits are the facility: kernel or user.
            level: (priority & 7) as u8,
            sequence: numbers.next()?.parse().ok()?,
            micros: numbers.next()?.parse().ok()?,
            text: text.to_owned(),
        })
    }
}

impl fmt::Display for KernelRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.micros / 1_000_000, self.micros % 1_000_000);
        write!(f, "<{}>[{seconds:5}.{micros:06}] {}", self.level, self.text)
    }
}

/// The kernel's log, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelLog {
    /// Its records.
    pub records: Vec<KernelRecord>,
}

impl KernelLog {
    pub(super) fn parse(text: &str) -> Self {
        // Records repeat if reading was restarted.
        let records: BTreeMap<u64, KernelRecord> =
            text.lines().filter_map(KernelRecord::parse).map(|record| (record.sequence, record)).collect();
        Self { records: records.into_values().collect() }
    }

    /// The records of warnings and worse whose text contains `what`.
    pub fn problems(&self, what: &str) -> Vec<&KernelRecord> {
        const WARNING: u8 = 4;
        self.records.iter().filter(|record| record.level <= WARNING && record.text.contains(what)).collect()
    }

    /// All but the records whose text contains one of `expected`.
    pub fn without(mut self, expected: &[&str]) -> KernelLog {
        self.records.retain(|record| !expected.iter().any(|text| record.text.contains(text)));
        self
    }

    /// The records whose text contains `what`.
    pub fn matching(&self, what: &str) -> Vec<&KernelRecord> {
        self.records.iter().filter(|record| record.text.contains(what)).collect()
    }
}

impl fmt::Display for KernelLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.records.iter().try_for_each(|record| writeln!(f, "{record}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KMSG: &str = "6,339,5140900,-;mlx5_core 0000:01:00.0: firmware version: 16.35\n \
                        SUBSYSTEM=pci\n\
                        4,340,5140901,-;mlx5_core 0000:01:00.0: too bad; really\n\
                        4,340,5140901,-;mlx5_core 0000:01:00.0: too bad; really\n\
                        12,341,5140902,-;user warning\n";

    #[test]
    fn levels_and_doubles() {
        let log = KernelLog::parse(KMSG);
        assert_eq!(log.records.len(), 3);
        let problems = log.problems("mlx5");
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].text, "mlx5_core 0000:01:00.0: too bad; really");
        assert_eq!(log.records[2].level, 4);
        assert_eq!(log.matching("firmware").len(), 1);
        assert_eq!(log.clone().without(&["too good; really"]), log);
        assert_eq!(log.clone().without(&["too bad; really"]).problems("mlx5"), Vec::<&KernelRecord>::new());
        assert_eq!(log.records[0].to_string(), "<6>[    5.140900] mlx5_core 0000:01:00.0: firmware version: 16.35");
    }
}
