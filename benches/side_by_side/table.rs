//! What the programs print, gathered over the runs, as a table.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::Failure;

/// The columns, as the programs call them.
const CLASSIC: &str = "classic";
const WR: &str = "wr";
const PLAIN: &str = "plain";
const BLUE_FLAME: &str = "blueflame";

/// What DESIGN.md allows: ours to theirs.
const BUDGET: f64 = 0.5;

/// Instructions an operation.
#[derive(Default)]
pub struct Figures {
    /// As first seen.
    rows: Vec<String>,
    /// By row and column, one a run.
    samples: BTreeMap<(String, String), Vec<f64>>,
}

/// Of all runs.
struct Figure {
    median: f64,
    /// The most less the least.
    spread: f64,
}

impl Figures {
    /// Takes what a program printed: "row column figure", a line each.
    pub fn read(&mut self, said: &str) -> Result<(), Failure> {
        for line in said.lines() {
            let [row, column, figure] = line.split(' ').collect::<Vec<_>>()[..] else {
                return Err(format!("no figure: {line:?}").into());
            };
            if !self.rows.iter().any(|known| known == row) {
                self.rows.push(row.into());
            }
            self.samples.entry((row.into(), column.into())).or_default().push(figure.parse()?);
        }
        Ok(())
    }

    fn figure(&self, row: &str, column: &str) -> Option<Figure> {
        let mut samples = self.samples.get(&(row.into(), column.into()))?.clone();
        samples.sort_unstable_by(f64::total_cmp);
        let (least, most) = (*samples.first()?, *samples.last()?);
        Some(Figure { median: samples[samples.len() / 2], spread: most - least })
    }

    /// Everything, in Markdown, and how many rows keep the budget. Ratios are to libmlx5's better interface.
    pub fn table(&self) -> String {
        let mut text = String::from(
            "| operation | `ibv_post_*`, `ibv_poll_cq` | `ibv_wr_*`, `ibv_start_poll` | mlx5-dv, Plain | ratio | \
             mlx5-dv, BlueFlame | ratio | spread |\n\
             | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
        );
        let mut kept = 0;
        for row in &self.rows {
            let [classic, wr, plain, blue_flame] =
                [CLASSIC, WR, PLAIN, BLUE_FLAME].map(|column| self.figure(row, column));
            let best = [&classic, &wr].into_iter().flatten().map(|figure| figure.median).reduce(f64::min);
            let ratio = |ours: &Option<Figure>| Some(ours.as_ref()?.median / best?);
            let ratios = [ratio(&plain), ratio(&blue_flame)];
            kept += usize::from(ratios.iter().all(|ratio| ratio.is_some_and(|ratio| ratio <= BUDGET)));
            let spread = [&classic, &wr, &plain, &blue_flame].into_iter().flatten().map(|figure| figure.spread);
            let cell = |figure: &Option<Figure>| figure.as_ref().map_or("-".into(), |f| format!("{:.1}", f.median));
            let ratio = ratios.map(|ratio| ratio.map_or("-".into(), |ratio| format!("{ratio:.2}")));
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} | {:.1} |",
                title(row),
                cell(&classic),
                cell(&wr),
                cell(&plain),
                ratio[0],
                cell(&blue_flame),
                ratio[1],
                spread.fold(0.0, f64::max)
            );
        }
        let _ = writeln!(text, "\n{kept} of {} rows are within {BUDGET} of libmlx5", self.rows.len());
        text
    }
}

/// A row's name in words.
fn title(row: &str) -> String {
    let parts: Vec<&str> = row.split('/').collect();
    let operation = match parts[0] {
        "write_inline" => "RDMA WRITE 64 B inline",
        "write" => "RDMA WRITE 64 B from memory",
        "send_inline" => "SEND 64 B inline",
        "send" => "SEND 64 B from memory",
        "read" => "RDMA READ 64 B",
        "receive" => "RECV",
        "ud_inline" => "UD SEND 64 B inline",
        "ud" => "UD SEND 64 B from memory",
        "frame_inline" => "Ethernet frame of 64 B inline",
        "frame" => "Ethernet frame of 64 B, 46 of them from memory",
        "poll_send" => "poll a send",
        "receive_frame" => "Ethernet RECV",
        "poll_receive" => "poll a receive",
        "poll_frame" => "poll a frame",
        other => other,
    };
    match parts[1..] {
        [batch, signal] => format!("{operation}, {batch} a doorbell, {}", signalled(signal)),
        [width] if parts[0].starts_with("poll") => format!("{operation}, {width} at a time"),
        [batch] => format!("{operation}, {batch} a doorbell record"),
        _ => operation.into(),
    }
}

fn signalled(every: &str) -> String {
    match every {
        "1" => "all signalled".into(),
        other => format!("one in {other} signalled"),
    }
}
