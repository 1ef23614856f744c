//! Collects the output of the programs over all runs in a table.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::Failure;

/// The programs' names for what they measure: libmlx5's two interfaces, and ours.
const APIS: [&str; 3] = ["classic", "wr", "ours"];

/// Budget: our instructions relative to libmlx5's.
const BUDGET: f64 = 0.5;

/// A row in which each post rings, so that it is copied where the doorbell is by BlueFlame.
const COPIED: &str = "write_inline/1/1";

/// How a program rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Doorbell {
    /// Eight bytes.
    Plain,
    /// By a copy of the work request, where the driver thinks that it pays.
    BlueFlame,
}

/// Instructions per operation.
#[derive(Default)]
pub struct Figures {
    /// Rows, in order of first appearance.
    rows: Vec<String>,
    /// Samples by row, doorbell and API, one for each run.
    samples: BTreeMap<(String, Doorbell, &'static str), Vec<f64>>,
}

/// Summary of all runs.
struct Figure {
    median: f64,
    /// Maximum minus minimum.
    spread: f64,
}

impl Figures {
    /// Adds the output of a program that rings so: lines "row api figure".
    pub fn read(&mut self, doorbell: Doorbell, said: &str) -> Result<(), Failure> {
        for line in said.lines() {
            let parts = line.split(' ').collect::<Vec<_>>();
            let api = |name| APIS.into_iter().find(|api| *api == name);
            let (row, api, figure) = match parts[..] {
                [row, name, figure] => (row, api(name), figure),
                _ => ("", None, ""),
            };
            let api = api.ok_or_else(|| format!("no figure: {line:?}"))?;
            if !self.rows.iter().any(|known| known == row) {
                self.rows.push(row.into());
            }
            self.samples.entry((row.into(), doorbell, api)).or_default().push(figure.parse()?);
        }
        Ok(())
    }

    /// Fails unless libmlx5 copies: the copy of a work request takes instructions.
    pub fn check_copies(&self) -> Result<(), Failure> {
        for api in ["classic", "wr"] {
            let [plain, copied] =
                [Doorbell::Plain, Doorbell::BlueFlame].map(|doorbell| self.figure(COPIED, doorbell, api));
            match (plain, copied) {
                (Some(plain), Some(copied)) if copied.median > plain.median => {}
                _ => return Err(format!("libmlx5 does not copy by BlueFlame: {COPIED}, {api}").into()),
            }
        }
        Ok(())
    }

    fn figure(&self, row: &str, doorbell: Doorbell, api: &'static str) -> Option<Figure> {
        let mut samples = self.samples.get(&(row.into(), doorbell, api))?.clone();
        samples.sort_unstable_by(f64::total_cmp);
        let (least, most) = (*samples.first()?, *samples.last()?);
        Some(Figure { median: samples[samples.len() / 2], spread: most - least })
    }

    /// The table in Markdown, and the number of rows within the budget, of those that libmlx5 has. Ratios are to its
    /// faster interface, by the same doorbell.
    pub fn table(&self) -> String {
        let mut text = String::from(
            "| operation | `ibv_post_*`, `ibv_poll_cq` | `ibv_wr_*`, `ibv_start_poll` | mlx5-dv, Plain | ratio | \
             BlueFlame: `ibv_post_*` | `ibv_wr_*` | mlx5-dv | ratio | spread |\n\
             | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
        );
        let (mut compared, mut kept) = (0, 0);
        for row in &self.rows {
            let ways = [Doorbell::Plain, Doorbell::BlueFlame]
                .map(|doorbell| Way(APIS.map(|api| self.figure(row, doorbell, api))));
            compared += usize::from(ways.iter().all(|way| way.best().is_some()));
            kept += usize::from(ways.iter().all(|way| way.ratio().is_some_and(|ratio| ratio <= BUDGET)));
            let spread = ways.iter().flat_map(|way| way.0.iter().flatten()).map(|figure| figure.spread);
            let spread = spread.fold(0.0, f64::max);
            let _ = writeln!(text, "| {} | {} | {} | {spread:.1} |", title(row), ways[0].cells(), ways[1].cells());
        }
        let _ = writeln!(text, "\n{kept} of {compared} rows are within {BUDGET} of libmlx5");
        text
    }
}

/// The figures of a row by one doorbell, in the order of [`APIS`].
struct Way([Option<Figure>; 3]);

impl Way {
    /// libmlx5's better one.
    fn best(&self) -> Option<f64> {
        self.0[..2].iter().flatten().map(|figure| figure.median).reduce(f64::min)
    }

    fn ratio(&self) -> Option<f64> {
        Some(self.0[2].as_ref()?.median / self.best()?)
    }

    /// All figures, and the ratio.
    fn cells(&self) -> String {
        let figures = self.0.iter().map(|figure| cell(figure.as_ref().map(|figure| figure.median), 1));
        figures.chain([cell(self.ratio(), 2)]).collect::<Vec<_>>().join(" | ")
    }
}

fn cell(number: Option<f64>, digits: usize) -> String {
    number.map_or("-".into(), |number| format!("{number:.digits$}"))
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
