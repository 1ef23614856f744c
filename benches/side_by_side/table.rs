//! Collects the output of the programs over all runs in a table.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::Failure;

/// The columns, by the programs' names for them.
const CLASSIC: &str = "classic";
const WR: &str = "wr";
const PLAIN: &str = "plain";
const BLUE_FLAME: &str = "blueflame";

/// Budget: our instructions relative to libmlx5's.
const BUDGET: f64 = 0.5;

/// Instructions per operation.
#[derive(Default)]
pub struct Figures {
    /// Rows, in order of first appearance.
    rows: Vec<String>,
    /// Samples by row and column, one for each run.
    samples: BTreeMap<(String, String), Vec<f64>>,
}

/// Summary of all runs.
struct Figure {
    median: f64,
    /// Maximum minus minimum.
    spread: f64,
}

impl Figures {
    /// Adds a program's output: lines "row column figure".
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

    /// The table in Markdown, and the number of rows within the budget, of those that libmlx5 has. Ratios are to its
    /// faster interface.
    pub fn table(&self) -> String {
        let mut text = String::from(
            "| operation | `ibv_post_*`, `ibv_poll_cq` | `ibv_wr_*`, `ibv_start_poll` | mlx5-dv, Plain | ratio | \
             mlx5-dv, BlueFlame | ratio | spread |\n\
             | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
        );
        let (mut compared, mut kept) = (0, 0);
        for row in &self.rows {
            let [classic, wr, plain, blue_flame] =
                [CLASSIC, WR, PLAIN, BLUE_FLAME].map(|column| self.figure(row, column));
            let best = [&classic, &wr].into_iter().flatten().map(|figure| figure.median).reduce(f64::min);
            let ratio = |ours: &Option<Figure>| Some(ours.as_ref()?.median / best?);
            let ratios = [ratio(&plain), ratio(&blue_flame)];
            compared += usize::from(best.is_some());
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
        let _ = writeln!(text, "\n{kept} of {compared} rows are within {BUDGET} of libmlx5");
        text
    }
}

/// Description of a row.
fn title(row: &str) -> String {
    let parts: Vec<&str> = row.split('/').collect();
    let operation = match parts[0] {
        "write_inline" => "RDMA WRITE 64 B inline",
        "write" => "RDMA WRITE 64 B from memory",
        "send_inline" => "SEND 64 B inline",
        "send" => "SEND 64 B from memory",
        "read" => "RDMA READ 64 B",
        "fetch_add" => "fetch and add, 8 B",
        "compare_swap" => "compare and swap, 8 B",
        "masked_add" => "masked fetch and add, 8 B",
        "masked_swap" => "masked compare and swap, 8 B",
        "receive" => "RECV",
        "receive_shared" => "RECV of a shared receive queue",
        "poll_receive_shared" => "poll a receive of a shared receive queue",
        "ud_inline" => "UD SEND 64 B inline",
        "ud" => "UD SEND 64 B from memory",
        "frame_inline" => "Ethernet frame of 64 B inline",
        "frame" => "Ethernet frame of 64 B, 46 of them from memory",
        "dc_inline" => "DC RDMA WRITE 64 B inline",
        "dc" => "DC RDMA WRITE 64 B from memory",
        "xrc_inline" => "XRC SEND 64 B inline",
        "xrc" => "XRC SEND 64 B from memory",
        "receive_extended" => "RECV of a shared receive queue of an XRC domain",
        "poll_receive_extended" => "poll a receive of a shared receive queue of an XRC domain",
        "register_1" => "fast registration of one part",
        "register_4" => "fast registration of four parts",
        "poll_many" => "poll a send of one of many queue pairs",
        "hub_post" => "SEND 64 B inline of one of many connections, by the hub",
        "hub_poll" => "poll a send of one of many connections, with its context, by the hub",
        "poll_send" => "poll a send",
        "receive_frame" => "Ethernet RECV",
        "poll_receive" => "poll a receive",
        "poll_frame" => "poll a frame",
        other => other,
    };
    match parts[1..] {
        [batch, signal] => format!("{operation}, {batch} a doorbell, {}", signalled(signal)),
        [count] if matches!(parts[0], "poll_many" | "hub_post" | "hub_poll") => format!("{operation}, {count} in turn"),
        [batch] if parts[0].starts_with("register") => format!("{operation}, {batch} a doorbell"),
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
