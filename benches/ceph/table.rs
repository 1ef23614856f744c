//! Collects the output of the programs over all runs in a table.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::ends::{Ends, Whose};

/// A row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    pub bytes: usize,
    pub at_once: usize,
    pub ends: Ends,
}

/// Instructions for each operation, and the time that passes meanwhile.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    client: f64,
    server: f64,
    /// Nanoseconds of the guest.
    elapsed: f64,
}

impl Cost {
    /// Reads what two calls of a client printed, the second with `more` operations than the first.
    pub fn read(said: &str, more: usize) -> Option<Self> {
        let metered = said.lines().filter_map(|line| line.strip_prefix("meter: client "));
        let metered = metered.map(|line| {
            let (client, server) = line.split_once(" server ")?;
            Some((client.trim().parse::<f64>().ok()?, server.trim().parse::<f64>().ok()?))
        });
        let [few, many] = metered.collect::<Option<Vec<_>>>()?.try_into().ok()?;
        let elapsed: Vec<f64> = said.lines().filter_map(elapsed).collect();
        let [shorter, longer] = elapsed.try_into().ok()?;
        let each = |few: f64, many: f64| (many - few) / more as f64;
        Some(Cost { client: each(few.0, many.0), server: each(few.1, many.1), elapsed: each(shorter, longer) })
    }
}

/// Nanoseconds that all operations took, from the line in which a client says so: Ceph's in microseconds, ours in
/// seconds.
fn elapsed(line: &str) -> Option<f64> {
    if let Some((_, time)) = line.split_once(" run time ") {
        return Some(1e3 * time.split_whitespace().next()?.trim_end_matches("us.").parse::<f64>().ok()?);
    }
    let (_, time) = line.split_once(" bytes in ")?;
    Some(1e9 * time.split_whitespace().next()?.parse::<f64>().ok()?)
}

/// Samples of all rows.
#[derive(Default)]
pub struct Figures {
    rows: Vec<Row>,
    samples: BTreeMap<Row, Vec<Cost>>,
}

impl Figures {
    pub fn add(&mut self, row: Row, cost: Cost) {
        if !self.rows.contains(&row) {
            self.rows.push(row);
        }
        self.samples.entry(row).or_default().push(cost);
    }

    /// The medians in Markdown. Ratios are of both ends to both ends of Ceph.
    pub fn table(&self) -> String {
        let mut text = String::from(
            "| bytes | under way | client | server | client's | server's | of Ceph's pair | operations a second | spread \
             |\n| ---: | ---: | --- | --- | ---: | ---: | ---: | ---: | ---: |\n",
        );
        for row in &self.rows {
            let [client, server, elapsed] = self.medians(row);
            let theirs = Row { ends: Ends { client: Whose::Ceph, server: Whose::Ceph }, ..*row };
            let [their_client, their_server, _] = self.medians(&theirs);
            let name = |whose| if whose == Whose::Ceph { "Ceph's" } else { "ours" };
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {:.0} | {:.0} | {:.2} | {:.0} | {:.0} % |",
                row.bytes,
                row.at_once,
                name(row.ends.client),
                name(row.ends.server),
                client.0,
                server.0,
                (client.0 + server.0) / (their_client.0 + their_server.0),
                1e9 / elapsed.0,
                100.0 * client.1.max(server.1),
            );
        }
        text
    }

    /// The medians of client, server and time, each with its spread: maximum minus minimum, relative to it.
    fn medians(&self, row: &Row) -> [(f64, f64); 3] {
        let of = |part: fn(&Cost) -> f64| {
            let mut samples: Vec<f64> = self.samples.get(row).into_iter().flatten().map(part).collect();
            samples.sort_unstable_by(f64::total_cmp);
            match samples[..] {
                [] => (f64::NAN, f64::NAN),
                [least, ..] => {
                    let median = samples[samples.len() / 2];
                    (median, (samples[samples.len() - 1] - least) / median)
                }
            }
        };
        [of(|cost| cost.client), of(|cost| cost.server), of(|cost| cost.elapsed)]
    }
}
