//! Collects the output of the programs over all runs in a table.

use std::fmt;
use std::time::Duration;

use super::Failure;

const MIB: f64 = (1 << 20) as f64;

/// Which figure of a program's output is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// Microseconds of a round trip, of rdma-core's ping-pong.
    Iteration,
    /// Thousands of messages per second: perftest.
    Rate,
    /// MiB per second: perftest.
    Bandwidth,
}

impl Figure {
    fn unit(self) -> &'static str {
        match self {
            Figure::Iteration => "us",
            Figure::Rate => "thousand messages/s",
            Figure::Bandwidth => "MiB/s",
        }
    }

    /// The figure in a program's output, measured over `counted`.
    ///
    /// perftest computes its averages from processor cycles, whose rate it measures at the end. If others use its
    /// processor then, it measures none or a wrong one, and prints 0.0 or a wrong figure. So the number of messages is
    /// used.
    pub fn read(self, said: &str, counted: Duration) -> Result<f64, Failure> {
        let rate = || Some(column(said, "#iterations")? / counted.as_secs_f64());
        let figure = match self {
            Figure::Iteration => {
                said.lines().find_map(|line| line.strip_suffix(" usec/iter")?.rsplit(' ').next()?.parse().ok())
            }
            Figure::Rate => rate().map(|messages| messages / 1e3),
            Figure::Bandwidth => rate().zip(column(said, "#bytes")).map(|(messages, bytes)| messages * bytes / MIB),
        };
        figure.ok_or_else(|| format!("no figure in what a program said:\n{said}").into())
    }
}

/// perftest's table: headings are two spaces apart.
fn column(said: &str, heading: &str) -> Option<f64> {
    let mut lines = said.lines().skip_while(|line| !line.starts_with(" #bytes"));
    let headings = lines.next()?.split("  ").map(str::trim).filter(|word| !word.is_empty());
    let at = headings.into_iter().position(|word| word == heading)?;
    // perftest may print warnings about the processor clock between both.
    let row = |line: &str| line.split_whitespace().map(|word| word.parse().ok()).collect::<Option<Vec<f64>>>();
    lines.find_map(row)?.get(at).copied()
}

/// By row and column, one sample for each run.
pub struct Table {
    columns: usize,
    rows: Vec<(&'static str, Figure, Vec<Vec<f64>>)>,
}

impl Table {
    pub fn new(columns: usize) -> Self {
        Table { columns, rows: Vec::new() }
    }

    pub fn add(&mut self, name: &'static str, figure: Figure, column: usize, sample: f64) {
        let known = self.rows.iter().position(|row| (row.0, row.1) == (name, figure));
        let at = known.unwrap_or_else(|| {
            self.rows.push((name, figure, vec![Vec::new(); self.columns]));
            self.rows.len() - 1
        });
        self.rows[at].2[column].push(sample);
    }
}

/// Medians, with minimum and maximum.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, figure, columns) in &self.rows {
            write!(f, "| {name} | {} |", figure.unit())?;
            for samples in columns {
                let mut samples = samples.clone();
                samples.sort_unstable_by(f64::total_cmp);
                let digits = if samples[0] < 10.0 { 1 } else { 0 };
                let [median, least, most] = [samples.len() / 2, 0, samples.len() - 1].map(|at| samples[at]);
                write!(f, " {median:.digits$} ({least:.digits$} to {most:.digits$}) |")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
