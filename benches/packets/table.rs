//! Collects the output of the programs in tables.

use std::collections::BTreeMap;
use std::fmt::Write;

use mlx5_sim::dma::{Crossed, Purpose, Traffic};

/// Budgets, relative to DPDK's least: our instructions, and what of ours crosses PCIe.
const INSTRUCTIONS: f64 = 0.5;
const CROSSED: f64 = 1.0;

/// A form of queues: its name, and arguments that make it.
pub struct Column {
    pub name: &'static str,
    pub of: &'static str,
}

/// What crossed PCIe, and for how many frames.
struct Load {
    traffic: Traffic,
    frames: u32,
}

/// Figures of all rows and columns.
#[derive(Default)]
pub struct Figures {
    /// Rows, in order of first appearance.
    rows: Vec<String>,
    /// Instructions a frame by row and column.
    instructions: BTreeMap<(String, String), f64>,
    loads: BTreeMap<(String, String), Load>,
}

impl Figures {
    pub fn instructions(&mut self, row: &str, column: &str, figure: f64) {
        if !self.rows.iter().any(|known| known == row) {
            self.rows.push(row.into());
        }
        self.instructions.insert((row.into(), column.into()), figure);
    }

    pub fn crossed(&mut self, row: &str, column: &str, traffic: Traffic, frames: u32) {
        self.loads.insert((row.into(), column.into()), Load { traffic, frames });
    }

    fn count(&self, row: &str, column: &Column) -> Option<f64> {
        self.instructions.get(&(row.into(), column.name.into())).copied()
    }

    /// Bytes a frame, both ways.
    fn bytes(&self, row: &str, column: &Column) -> Option<f64> {
        let load = self.loads.get(&(row.into(), column.name.into()))?;
        Some(bytes(load.traffic.total()) / f64::from(load.frames))
    }

    /// Requests a frame, both ways.
    fn requests(&self, row: &str, column: &Column) -> Option<f64> {
        let load = self.loads.get(&(row.into(), column.name.into()))?;
        Some(requests(load.traffic.total()) / f64::from(load.frames))
    }

    /// All tables in Markdown.
    pub fn tables(&self, theirs: &[Column], ours: &[Column]) -> String {
        let mut text = self.table(theirs, ours, Self::count, 1, INSTRUCTIONS);
        let _ = writeln!(text, "\nBytes across PCIe, a frame:\n");
        text += &self.table(theirs, ours, Self::bytes, 1, CROSSED);
        let _ = writeln!(text, "\nRequests across PCIe, a frame:\n");
        text += &self.table(theirs, ours, Self::requests, 2, CROSSED);
        let _ = writeln!(text, "\nOf that, bytes/requests a frame of each kind, 64 a burst:\n");
        text + &self.purposes(theirs, ours)
    }

    /// A table of one figure, with the least of each side and their ratio.
    fn table(
        &self,
        theirs: &[Column],
        ours: &[Column],
        figure: impl Fn(&Self, &str, &Column) -> Option<f64>,
        digits: usize,
        budget: f64,
    ) -> String {
        let all = || theirs.iter().chain(ours);
        let heading: String = all().map(|column| format!("{} | ", column.name)).collect();
        let mut text =
            format!("| operation | {heading}ratio of the least |\n| --- |{}\n", " ---: |".repeat(all().count() + 1));
        let mut kept = 0;
        for row in &self.rows {
            let least = |columns: &[Column]| columns.iter().filter_map(|c| figure(self, row, c)).reduce(f64::min);
            let ratio = least(ours).zip(least(theirs)).map(|(ours, theirs)| ours / theirs);
            kept += usize::from(ratio.is_some_and(|ratio| ratio <= budget));
            let cell = |column| figure(self, row, column).map_or("- | ".into(), |f| format!("{f:.digits$} | "));
            let cells: String = all().map(cell).collect();
            let ratio = ratio.map_or("-".into(), |ratio| format!("{ratio:.2}"));
            let _ = writeln!(text, "| {} | {cells}{ratio} |", title(row));
        }
        let _ = writeln!(text, "\n{kept} of {} rows are within {budget} of DPDK", self.rows.len());
        text
    }

    /// What crossed PCIe in bursts of 64, by purpose.
    fn purposes(&self, theirs: &[Column], ours: &[Column]) -> String {
        let names: String = Purpose::ALL.iter().map(|purpose| format!("{} | ", purpose.name())).collect();
        let mut text = format!("| operation | form | {names}\n| --- | --- |{}\n", " ---: |".repeat(Purpose::ALL.len()));
        for row in self.rows.iter().filter(|row| row.ends_with("/64")) {
            for column in theirs.iter().chain(ours) {
                let Some(load) = self.loads.get(&(row.clone(), column.name.into())) else { continue };
                let frames = f64::from(load.frames);
                let cell = |crossed| format!("{:.1}/{:.2} | ", bytes(crossed) / frames, requests(crossed) / frames);
                let cells: String = Purpose::ALL.iter().map(|&purpose| cell(load.traffic.of(purpose))).collect();
                let _ = writeln!(text, "| {} | {} | {}", title(row), column.name, cells.trim_end());
            }
        }
        text
    }
}

fn bytes(crossed: Crossed) -> f64 {
    (crossed.read_bytes + crossed.write_bytes) as f64
}

fn requests(crossed: Crossed) -> f64 {
    (crossed.reads + crossed.writes) as f64
}

/// Description of a row.
fn title(row: &str) -> String {
    row.replace('/', ", ") + " a burst"
}
