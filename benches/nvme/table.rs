//! Collects the output of the programs over all runs in a table.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::Failure;

/// Budget: our instructions relative to the kernel's.
const BUDGET: f64 = 0.25;

/// Columns: three modes of the kernel, and ours.
const COLUMNS: usize = 4;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    pub operation: &'static str,
    pub keys: String,
    pub depth: usize,
}

impl Row {
    fn title(&self) -> &'static str {
        match (self.operation, self.keys.as_str()) {
            ("write", _) => "write in the capsule",
            (_, "each") => "read, key for each command",
            _ => "read, standing key",
        }
    }
}

/// Instructions for each I/O.
#[derive(Default)]
pub struct Figures {
    /// Rows, in order of first appearance.
    rows: Vec<Row>,
    /// Samples by row and column, one for each run.
    samples: BTreeMap<(Row, usize), Vec<f64>>,
}

impl Figures {
    /// Adds what a program said.
    pub fn add(&mut self, row: &Row, column: usize, said: &str) -> Result<(), Failure> {
        let figure = said.trim().parse().map_err(|_| format!("no figure: {said:?}"))?;
        if !self.rows.contains(row) {
            self.rows.push(row.clone());
        }
        self.samples.entry((row.clone(), column)).or_default().push(figure);
        Ok(())
    }

    /// The median of a row and column, and its spread: maximum minus minimum, relative to the median.
    fn figure(&self, row: &Row, column: usize) -> Option<(f64, f64)> {
        let mut samples = self.samples.get(&(row.clone(), column))?.clone();
        samples.sort_unstable_by(f64::total_cmp);
        let (least, most, median) = (samples.first()?, samples.last()?, samples[samples.len() / 2]);
        Some((median, (most - least) / median))
    }

    /// The table in Markdown, and the number of rows within the budget. Ratios are to the kernel's by interrupts, as
    /// Linux is by default, and to its best.
    pub fn table(&self) -> String {
        let mut text = String::from(
            "| 4 KiB | under way | nvme-rdma, interrupts | polled | passthrough, polled | mlx5-nvme | of interrupts | \
             of the best | spread |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
        );
        let mut kept = [0, 0];
        for row in &self.rows {
            let figures = (0..COLUMNS).map(|column| self.figure(row, column).unwrap_or((f64::NAN, f64::NAN)));
            let figures: Vec<_> = figures.collect();
            let (ours, theirs) = (figures[COLUMNS - 1].0, &figures[..COLUMNS - 1]);
            let best = theirs.iter().map(|(median, _)| *median).fold(f64::NAN, f64::min);
            let ratios = [theirs[0].0, best].map(|theirs| ours / theirs);
            kept.iter_mut().zip(ratios).for_each(|(kept, ratio)| *kept += usize::from(ratio <= BUDGET));
            let _ = write!(text, "| {} | {} |", row.title(), row.depth);
            figures.iter().for_each(|(median, _)| _ = write!(text, " {median:.0} |"));
            let spread = 100.0 * figures.iter().map(|(_, spread)| *spread).fold(0.0, f64::max);
            let _ = writeln!(text, " {:.2} | {:.2} | {spread:.1} % |", ratios[0], ratios[1]);
        }
        let (all, [interrupts, best]) = (self.rows.len(), kept);
        let of = format!("within {BUDGET} of nvme-rdma");
        let _ = write!(text, "\n{interrupts} of {all} rows are {of} by interrupts, {best} {of} at its best");
        text
    }
}
