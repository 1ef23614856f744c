//! The report: perftest's text, and JSON with perftest's keys.

use std::fmt::Write;

use hdrhistogram::Histogram;
use mlx5_tools::fields::VERSION;
use mlx5_tools::perftest::Rates;
use serde_json::{Map, Value, json};

use super::arguments::{Operation, Plan, Test};
use super::platform::{Platform, note};
use crate::output::{Failure, print};

/// perftest's headings, as of version 25. Older versions said MB for MiB.
const LATENCY: &str = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] ";
const MIB: &str = " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]";
const GBITS: &str = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]";
const LINE: &str = "---------------------------------------------------------------------------------------";

/// The percentiles of the ladder.
pub const LADDER: [&str; 7] = ["50", "90", "99", "99.9", "99.99", "99.999", "100"];

/// The result of one size.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub enum Measured {
    /// Of a latency test.
    Latency(Latencies),
    /// Of a bandwidth or rate test.
    Bandwidth(Bandwidths),
}

/// Times in microseconds.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Latencies {
    /// Bytes of a message.
    pub size: usize,
    /// Messages measured.
    pub iterations: u64,
    min: f64,
    max: f64,
    /// The median.
    pub typical: f64,
    average: f64,
    stdev: f64,
    /// The percentiles of [`LADDER`], in its order.
    pub ladder: Vec<f64>,
    /// Points of the distribution: a fraction of the messages, and the longest time among them.
    #[serde(skip)]
    pub curve: Vec<(f64, f64)>,
}

impl Latencies {
    /// From times in nanoseconds, each divided by `ways`: 2 for a round trip.
    pub fn of(size: usize, times: &Histogram<u64>, ways: u32) -> Result<Self, Failure> {
        if times.is_empty() {
            return Err("no message was measured: give it more time".into());
        }
        let unit = 1e3 * f64::from(ways);
        let ladder =
            LADDER.iter().map(|rung| rung.parse().map(|rung: f64| times.value_at_percentile(rung) as f64 / unit));
        Ok(Latencies {
            size,
            iterations: times.len(),
            min: times.min() as f64 / unit,
            max: times.max() as f64 / unit,
            typical: times.value_at_percentile(50.0) as f64 / unit,
            average: times.mean() / unit,
            stdev: times.stdev() / unit,
            ladder: ladder.collect::<Result<_, _>>()?,
            curve: times
                .iter_quantiles(8)
                .map(|step| (step.quantile(), step.value_iterated_to() as f64 / unit))
                .collect(),
        })
    }

    /// The time at percentile `rung` of [`LADDER`].
    pub fn at(&self, rung: &str) -> f64 {
        let index = LADDER.iter().position(|name| *name == rung);
        index.and_then(|index| self.ladder.get(index)).copied().unwrap_or(f64::NAN)
    }

    fn row(&self) -> String {
        format!(
            " {:<7} {:<11}    {:<11.2}    {:<11.2}  {:<15.2}    {:<11.2}    {:<13.2}   {:<20.2}   {:<.2}",
            self.size,
            self.iterations,
            self.min,
            self.max,
            self.typical,
            self.average,
            self.stdev,
            self.at("99"),
            self.at("99.9")
        )
    }

    /// By perftest's keys.
    pub fn json(&self) -> Value {
        let ladder: Map<String, Value> =
            LADDER.iter().zip(&self.ladder).map(|(rung, time)| ((*rung).to_owned(), json!(time))).collect();
        json!({
            "MsgSize": self.size,
            "n_iterations": self.iterations,
            "t_min": self.min,
            "t_max": self.max,
            "t_typical": self.typical,
            "t_avg": self.average,
            "t_stdev": self.stdev,
            "percentile_99": self.at("99"),
            "percentile_99.9": self.at("99.9"),
            "percentiles": ladder,
        })
    }
}

/// Messages a second.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Bandwidths {
    /// Bytes of a message.
    pub size: usize,
    iterations: u64,
    per_second: f64,
    /// `None` if not measured.
    peak: Option<f64>,
}

impl Bandwidths {
    /// For messages of `size` bytes.
    pub fn of(size: usize, iterations: u64, per_second: f64, peak: Option<f64>) -> Self {
        Bandwidths { size, iterations, per_second, peak }
    }

    /// Both directions together.
    fn and(self, other: &Bandwidths) -> Self {
        let peak = self.peak.zip(other.peak).map(|(one, other)| one + other);
        Bandwidths { per_second: self.per_second + other.per_second, peak, ..self }
    }

    /// In MiB or Gb a second.
    fn amount(&self, per_second: f64, gbits: bool) -> f64 {
        let bytes = per_second * self.size as f64;
        if gbits { bytes * 8.0 / 1e9 } else { bytes / f64::from(1 << 20) }
    }

    /// The average, in MiB or Gb a second.
    pub fn average(&self, gbits: bool) -> f64 {
        self.amount(self.per_second, gbits)
    }

    /// In millions a second.
    pub fn message_rate(&self) -> f64 {
        self.per_second / 1e6
    }

    /// 0 if not measured, as in perftest.
    fn peak(&self, gbits: bool) -> f64 {
        self.peak.map_or(0.0, |peak| self.amount(peak, gbits))
    }

    /// As perftest's programs tell each other.
    pub fn rates(&self, gbits: bool) -> Rates {
        let (peak, average, message_rate) = (self.peak(gbits), self.average(gbits), self.message_rate());
        Rates { size: self.size as u64, iterations: self.iterations, peak, average, message_rate }
    }

    fn row(&self, gbits: bool) -> String {
        let (peak, average, rate) = (self.peak(gbits), self.average(gbits), self.message_rate());
        format!(" {:<7}    {:<11}    {peak:<16.2}    {average:<19.2}   {rate:<.6}", self.size, self.iterations)
    }

    fn json(&self, gbits: bool) -> Value {
        json!({
            "MsgSize": self.size,
            "n_iterations": self.iterations,
            "BW_peak": self.peak(gbits),
            "BW_average": self.average(gbits),
            "MsgRate": self.message_rate(),
        })
    }
}

impl Measured {
    /// Its row of the table.
    pub fn line(&self, gbits: bool) -> String {
        let row = match self {
            Measured::Latency(row) => row.row(),
            Measured::Bandwidth(row) => row.row(gbits),
        };
        row + "\n"
    }

    /// The results of both ends together.
    pub fn and(self, other: Option<Measured>) -> Self {
        match (self, other) {
            (Measured::Bandwidth(one), Some(Measured::Bandwidth(other))) => Measured::Bandwidth(one.and(&other)),
            (one, _) => one,
        }
    }
}

/// A whole report.
#[derive(Debug)]
pub struct Report<'a> {
    /// What was asked for.
    pub plan: &'a Plan,
    /// The platform of this end, then of the other end if that is another program.
    pub platforms: &'a [Platform],
    /// Bandwidth in Gb/s instead of MiB/s.
    pub gbits: bool,
    /// The result of each size.
    pub rows: &'a [Measured],
}

impl Report<'_> {
    /// What perftest prints before the run: the parameters, and the table's heading.
    pub fn head(&self) -> String {
        let mut text = format!("{LINE}\n                    {} Test\n", self.title(" "));
        for (name, value) in self.info() {
            let _ = writeln!(text, " {name:<16}: {value}");
        }
        self.platforms.iter().for_each(|platform| text += &format!(" Card            : {platform}\n"));
        text + &format!("{LINE}\n{}\n", self.heading())
    }

    /// What ends the table: the percentiles if there is one size, and the note.
    pub fn foot(&self) -> String {
        let mut text = format!("{LINE}\n");
        if let [Measured::Latency(row)] = self.rows {
            text += " percentile    t[usec]\n";
            LADDER.iter().zip(&row.ladder).for_each(|(rung, time)| text += &format!(" {rung:<10}    {time:.2}\n"));
            text += &format!("{LINE}\n");
        }
        text + &self.note().map_or_else(String::new, |note| format!("({note})\n"))
    }

    /// The note that all figures carry.
    pub fn note(&self) -> Option<&'static str> {
        note(self.platforms)
    }

    fn heading(&self) -> &'static str {
        match (self.plan.agreed.test, self.gbits) {
            (Test::Lat, _) => LATENCY,
            (_, false) => MIB,
            (_, true) => GBITS,
        }
    }

    /// perftest's name of the test, its words joined by `between`.
    pub fn title(&self, between: &str) -> String {
        let agreed = &self.plan.agreed;
        let mut words = vec![agreed.operation.title()];
        words.extend((agreed.operation == Operation::Atomic).then(|| agreed.atomic_type.title()));
        if agreed.test == Test::Lat {
            words.push("Latency");
        } else {
            words.extend(agreed.both_ways.then_some("Bidirectional"));
            words.extend((self.plan.post_list > 1).then_some("Post_List"));
            words.push("BW");
        }
        words.join(between)
    }

    /// The parameters, by perftest's names.
    fn info(&self) -> Vec<(&'static str, String)> {
        let (plan, agreed) = (self.plan, &self.plan.agreed);
        let mut info = vec![
            ("Device", self.platforms.first().map_or_else(String::new, |platform| platform.device.clone())),
            ("Number of qps", agreed.qps.to_string()),
            ("Connection type", agreed.connection.title().into()),
            ("TX depth", plan.tx_depth.to_string()),
        ];
        if plan.post_list > 1 {
            info.push(("Post List", plan.post_list.to_string()));
        }
        if agreed.operation == Operation::Send {
            info.push(("RX depth", plan.rx_depth.to_string()));
        }
        if agreed.test != Test::Lat {
            info.push(("CQ Moderation", plan.cq_mod(agreed.largest()).to_string()));
        }
        info.push(("Mtu", format!("{}[B]", agreed.mtu)));
        info.push(("Link type", "Ethernet".into()));
        info.push(("GID index", plan.gid_index.to_string()));
        info.push(match agreed.operation {
            operation if operation.fetches() => ("Outstand reads", plan.outs.to_string()),
            _ => ("Max inline data", format!("{}[B]", plan.inline)),
        });
        info
    }

    /// perftest's keys, and ours: the cards, the percentiles, and an array of results if there are several sizes.
    pub fn json(&self) -> Value {
        let (plan, agreed) = (self.plan, &self.plan.agreed);
        let mut info = json!({
            "test": format!("{}_Test", self.title("_")),
            "Dual_port": "OFF",
            "Device": self.platforms.first().map(|platform| &platform.device),
            "Number_of_qps": agreed.qps,
            "Transport_type": "IB",
            "Connection_type": agreed.connection.title(),
            "Using_SRQ": "OFF",
            "PCIe_relax_order": "OFF",
            "ibv_wr_API": "OFF",
            "TX_depth": plan.tx_depth,
            "Mtu": agreed.mtu,
            "Link_type": "Ethernet",
            "GID_index": plan.gid_index,
            "rdma_cm_QPs": if agreed.rdma_cm { "ON" } else { "OFF" },
            "Data_ex_method": "Ethernet",
        });
        if plan.post_list > 1 {
            info["Post_List"] = json!(plan.post_list);
        }
        if agreed.operation == Operation::Send {
            info["RX_depth"] = json!(plan.rx_depth);
        }
        if agreed.test != Test::Lat {
            info["CQ_Moderation"] = json!(plan.cq_mod(agreed.largest()));
        }
        match agreed.operation {
            operation if operation.fetches() => info["Outstand_reads"] = json!(plan.outs),
            _ => info["Max_inline_data"] = json!(plan.inline),
        }
        let mut results: Vec<Value> = self.rows.iter().map(|row| self.row_json(row)).collect();
        let results = if results.len() == 1 { results.remove(0) } else { Value::Array(results) };
        json!({ "version": VERSION, "test_info": info, "results": results, "cards": self.platforms, "note": self.note() })
    }

    fn row_json(&self, row: &Measured) -> Value {
        match row {
            Measured::Latency(row) => row.json(),
            Measured::Bandwidth(row) => row.json(self.gbits),
        }
    }
}

/// The table while it grows: its head before the run, then each row as it is measured. Nothing with `--json`.
#[derive(Debug, Clone, Copy)]
pub struct Table {
    /// Whether there is one.
    pub shown: bool,
    /// Bandwidth in Gb/s instead of MiB/s.
    pub gbits: bool,
}

impl Table {
    /// Prints the head.
    pub fn begin(self, plan: &Plan, platforms: &[Platform]) -> Result<(), Failure> {
        let report = Report { plan, platforms, gbits: self.gbits, rows: &[] };
        if self.shown { print(&report.head()) } else { Ok(()) }
    }

    /// Prints a row.
    pub fn row(self, row: &Measured) -> Result<(), Failure> {
        if self.shown { print(&row.line(self.gbits)) } else { Ok(()) }
    }
}
