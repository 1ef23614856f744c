//! Collects the output of the programs, and the page lists given to the card, in a table.

use std::fmt;

use super::Failure;

/// The page list of a registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed {
    entries: u64,
    /// Page size in bytes.
    page: u64,
}

impl Listed {
    /// Log filter that makes the model report page lists.
    pub const SAID: &str = "warn,mlx5_sim::translations=debug";

    /// From the model's `log` of this many equal `registrations`.
    pub fn read(log: &str, registrations: usize) -> Result<Self, Failure> {
        let lists = log.lines().filter_map(|line| {
            let (before, page) = line.strip_suffix(" bytes")?.split_once(" pages of ")?;
            Some((before.rsplit(' ').next()?.parse::<u64>().ok()?, page.parse::<u64>().ok()?))
        });
        let lists: Vec<_> = lists.collect();
        let page = lists.iter().map(|(_, page)| *page).max().ok_or("the model says of no list")?;
        let entries = lists.iter().map(|(entries, _)| entries).sum::<u64>() / registrations as u64;
        Ok(Listed { entries, page })
    }
}

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.entries, size(self.page))
    }
}

/// Results of a program's runs.
pub struct Runs {
    /// For each run: instructions to register, nanoseconds, instructions to deregister, nanoseconds.
    samples: [Vec<f64>; 4],
    listed: Listed,
}

impl Runs {
    /// From a program's output.
    pub fn read(said: &str, listed: Listed) -> Result<Self, Failure> {
        let mut samples = <[Vec<f64>; 4]>::default();
        for line in said.lines() {
            let figures = line.split(' ').map(str::parse).collect::<Result<Vec<f64>, _>>();
            let figures: [f64; 4] = figures?.try_into().map_err(|_| format!("no four figures: {line:?}"))?;
            samples.iter_mut().zip(figures).for_each(|(samples, figure)| samples.push(figure));
        }
        if samples[0].is_empty() {
            return Err("a program printed nothing".into());
        }
        samples.iter_mut().for_each(|samples| samples.sort_unstable_by(f64::total_cmp));
        Ok(Runs { samples, listed })
    }

    /// Medians: instructions to register and to deregister, microseconds to register and to deregister.
    fn medians(&self) -> [f64; 4] {
        let [registered, registering, gone, going] =
            [0, 1, 2, 3].map(|at| self.samples[at][self.samples[at].len() / 2]);
        [registered, gone, registering / 1e3, going / 1e3]
    }

    /// Spread of the instructions to register (maximum minus minimum), relative to the median.
    fn spread(&self) -> f64 {
        let samples = &self.samples[0];
        (samples[samples.len() - 1] - samples[0]) / samples[samples.len() / 2]
    }
}

/// One memory size.
pub struct Row {
    pub pages: &'static str,
    pub bytes: u64,
    pub theirs: Runs,
    pub ours: Runs,
}

impl Row {
    pub const HEADING: &str = "\
        | pages | bytes | `ibv_reg_mr` | mlx5-dv | ratio | `ibv_dereg_mr` | mlx5-dv | ratio | spread | \
        us to register, `ibv_reg_mr` | mlx5-dv | entries by `ibv_reg_mr` | by mlx5-dv |\n\
        | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |";
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (theirs, ours) = (self.theirs.medians(), self.ours.medians());
        write!(f, "| {} | {}", self.pages, size(self.bytes))?;
        for at in [0, 1] {
            write!(f, " | {:.0} | {:.0} | {:.2}", theirs[at], ours[at], ours[at] / theirs[at])?;
        }
        let spread = 100.0 * self.theirs.spread().max(self.ours.spread());
        write!(f, " | {spread:.0} % | {:.0} | {:.0}", theirs[2], ours[2])?;
        write!(f, " | {} | {} |", self.theirs.listed, self.ours.listed)
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        bytes if bytes >= 1 << 30 => format!("{} GiB", bytes >> 30),
        bytes if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        bytes => format!("{} KiB", bytes >> 10),
    }
}
