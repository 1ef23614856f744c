//! `mlx5 perf` over DevX beside perftest over libmlx5: the same flags, the same table; and each with the other. The
//! times are printed, not checked; benches/README.md has them.

mod common;

use common::kernels::{FAR, boot, part};
use common::{Lab, Report, SOON, THEY_LISTEN, TestResult, assert_lawful};
use mlx5_lab::rounds;

/// Our arguments, and perftest's program and flags for the same.
const SAME: [(&str, &str); 8] = [
    ("lat write -n 200", "ib_write_lat -n 200"),
    ("lat send -n 200 -s 64", "ib_send_lat -n 200 -s 64"),
    ("bw send -n 500 -s 4096", "ib_send_bw -n 500 -s 4096"),
    ("bw write -n 500 -s 4096", "ib_write_bw -n 500 -s 4096"),
    ("bw write -c UC -n 500 -s 4096", "ib_write_bw -c UC -n 500 -s 4096"),
    ("lat send -c UC -n 200 -s 64", "ib_send_lat -c UC -n 200 -s 64"),
    ("lat atomic -n 200 -A CMP_AND_SWAP", "ib_atomic_lat -n 200 -A CMP_AND_SWAP"),
    ("bw atomic -n 500", "ib_atomic_bw -n 500"),
];

/// What one end of ours and one of perftest's measure with each other. With `-R` by the connection manager; `-a`: all
/// sizes, `-b`: both ends send, `-D`: for a time.
const TOGETHER: [&str; 12] = [
    "lat write -R -n 200 -s 64",
    "bw write -R -n 300 -s 4096 -q 2",
    "bw send -R -n 300 -s 4096 -q 2",
    "lat read -R -n 200 -s 64",
    "bw atomic -R -n 200",
    "lat send -n 200 -s 64",
    "bw read -n 300 -s 4096",
    "lat write -a -n 5",
    "bw write -b -n 300 -s 4096 -q 2",
    "lat write -R -D 1 -f 0 -s 64",
    "lat send -D 1 -f 0 -s 64",
    "bw send -R -b -D 1 -f 0 -s 4096",
];

/// All that perftest's two ends do of `-a`, `-b` and `-D`. Those of all sizes are the last: for each perftest measures
/// the processor's clock, which takes long on an emulated one.
fn all_modes() -> Vec<String> {
    let mut modes = Vec::new();
    for (operation, sized) in [("write", " -s 4096"), ("send", " -s 4096"), ("read", " -s 4096"), ("atomic", "")] {
        for way in ["", " -R"] {
            for both in ["", " -b"] {
                modes.push(format!("bw {operation}{way}{both} -D 1 -f 0{sized} -q 2"));
                modes.push(format!("bw {operation}{way}{both} -n 200{sized}"));
                modes.extend((!sized.is_empty()).then(|| format!("bw {operation}{way}{both} -a -n 5")));
            }
            modes.push(format!("lat {operation}{way} -D 1 -f 0{sized}"));
            modes.extend((!sized.is_empty()).then(|| format!("lat {operation}{way} -a -n 5")));
        }
    }
    modes.sort_by_key(|mode| mode.contains(" -a "));
    modes
}

/// A heading, and the rows below it.
struct Table {
    heading: String,
    rows: Vec<Vec<f64>>,
}

impl Table {
    /// All in the output of programs.
    fn all_of(said: &str) -> Vec<Table> {
        let mut tables: Vec<Table> = Vec::new();
        let mut is_open = false;
        for line in said.lines() {
            if line.starts_with(" #bytes") {
                tables.push(Table { heading: line.to_owned(), rows: Vec::new() });
                is_open = true;
            } else if line.starts_with("---") {
                is_open = false;
            }
            // In between perftest may warn about the processor's clock.
            let row = line.split_whitespace().map(|word| word.parse().ok()).collect::<Option<Vec<f64>>>();
            if let (true, Some(table), Some(row)) = (is_open, tables.last_mut(), row.filter(|row| !row.is_empty())) {
                table.rows.push(row);
            }
        }
        tables
    }

    /// The first, which has one row.
    fn of(said: &str) -> Result<Table, Report> {
        let first = Self::all_of(said).into_iter().next().filter(|table| table.rows.len() == 1);
        first.ok_or_else(|| format!("no table of one row in:\n{said}").into())
    }
}

/// The server on the second function, in a namespace of its own; the client on the first.
fn run(lab: &Lab, server: &str, client: &str) -> Result<String, Report> {
    let server = lab.serve_tcp(FAR, server)?;
    lab.call(server, client)
}

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn our_perf_prints_perftests_table_beside_perftest() -> TestResult {
    let lab = boot("perf")?;
    part(&lab)?;
    let mut printed = String::new();
    for (ours, theirs) in SAME {
        let said = run(
            &lab,
            &format!("mlx5 perf {ours} -d devx:mlx5_1 --listen"),
            &format!("mlx5 perf {ours} -d devx:mlx5_0 10.0.0.2"),
        )?;
        assert!(said.contains("software card: not a card's figure"), "{said}");
        let our_table = Table::of(&said)?;
        let said = run(&lab, &format!("{theirs} -d mlx5_1 -x 0 -F"), &format!("{theirs} -d mlx5_0 -x 0 -F 10.0.0.2"))?;
        let their_table = Table::of(&said)?;
        assert_eq!(our_table.heading, their_table.heading);
        let (our_row, their_row) = (&our_table.rows[0], &their_table.rows[0]);
        assert_eq!(our_row.len(), their_row.len(), "{our_row:?}\n{their_row:?}");
        assert_eq!(our_row[..2], their_row[..2], "bytes and iterations");
        printed += &format!("{}\n", our_table.heading);
        printed += &format!("{our_row:?} mlx5 perf {ours}\n{their_row:?} {theirs}\n");
    }
    println!("{printed}(the software card, in an emulated guest: not a card's figures)");
    ours_and_perftest_measure_with_each_other(&lab)?;
    lab.assert_quiet()?;
    lab.guest.power_off()?;
    assert_lawful(&lab.model);
    Ok(())
}

/// Ours as the client of perftest's server, and as the server of perftest's client.
fn ours_and_perftest_measure_with_each_other(lab: &Lab) -> TestResult {
    lab.check("modprobe rdma_ucm && until [ -e /dev/infiniband/rdma_cm ]; do sleep 0.1; done", SOON)?;
    let modes = if rounds(0, 1) == 1 { all_modes() } else { Vec::new() };
    for measurement in TOGETHER.map(Measurement::of).into_iter().chain(modes.iter().map(|mode| Measurement::of(mode))) {
        let measurement = measurement?;
        measurement.run(lab, true)?;
        measurement.run(lab, false)?;
    }
    let left = lab.check("rdma resource show cm_id", SOON)?;
    assert!(left.trim().is_empty(), "{left}");
    Ok(())
}

/// What an end of ours and one of perftest's measure together.
struct Measurement {
    /// Our arguments, and perftest's program and flags for the same.
    ours: String,
    theirs: String,
    /// Bytes of each message.
    sizes: Vec<f64>,
    /// Messages of each of so many queue pairs; of a timed run `None`.
    count: Option<f64>,
    qps: f64,
    /// Whether it is a bandwidth, of sends, in both directions, by the connection manager.
    bandwidth: bool,
    sends: bool,
    both_ways: bool,
    managed: bool,
}

impl Measurement {
    fn of(ours: &str) -> Result<Self, Report> {
        let mut words = ours.split(' ');
        let (test, operation) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let flags: Vec<&str> = words.collect();
        let has = |flag: &str| flags.contains(&flag);
        let number = |flag: &str| match flags.iter().position(|word| *word == flag) {
            Some(at) => flags.get(at + 1).map(|word| word.parse::<f64>()).transpose(),
            None => Ok(None),
        };
        let gid = if has("-R") { "" } else { " -x 0" };
        Ok(Measurement {
            ours: format!("mlx5 perf {ours} --perftest"),
            theirs: format!("ib_{operation}_{test} {}{gid} -F", flags.join(" ")),
            sizes: if has("-a") {
                (1..=23).map(|log| f64::from(1 << log)).collect()
            } else {
                vec![number("-s")?.unwrap_or(8.0)]
            },
            count: number("-n")?,
            qps: number("-q")?.unwrap_or(1.0),
            bandwidth: test == "bw",
            sends: operation == "send",
            both_ways: has("-b"),
            managed: has("-R"),
        })
    }

    /// Runs both ends; the client is ours, or perftest's.
    fn run(&self, lab: &Lab, we_call: bool) -> TestResult {
        let Measurement { ours, theirs, .. } = self;
        let (server, client) = match we_call {
            true => (format!("{theirs} -d mlx5_1"), format!("{ours} -d devx:mlx5_0 10.0.0.2")),
            false => (format!("{ours} -d devx:mlx5_1 --listen"), format!("{theirs} -d mlx5_0 10.0.0.2")),
        };
        // By the connection manager, perftest's ends talk on a queue pair, too.
        let listening = match self.managed {
            true => lab.serve(&format!("{FAR} {server}"), THEY_LISTEN),
            false => lab.serve_tcp(FAR, &server),
        };
        let said = listening.and_then(|listening| lab.call(listening, &client));
        let said = said.map_err(|error| format!("{server}, {client}: {error:?}"))?;
        let tables = Table::all_of(&said);
        let [at_client, at_server @ ..] = &tables[..] else { return Err(format!("no table in:\n{said}").into()) };
        self.check(&at_client.rows, &self.sizes, we_call, &said);
        let (none, no_rows) = (&[][..], Vec::new());
        let rows = at_server.first().map_or(&no_rows, |table| &table.rows);
        // The card alone serves what is not sent; then the client tells what it measured, of the last size. perftest's
        // server prints times of its own.
        let is_silent = !we_call || !(self.bandwidth || theirs.contains("_write_") || self.sends);
        let sizes = match self {
            Measurement { both_ways: true, .. } => &self.sizes,
            Measurement { bandwidth: true, sends: false, .. } => &self.sizes[self.sizes.len() - 1..],
            _ if is_silent => none,
            _ => &self.sizes,
        };
        self.check(rows, sizes, !we_call, &said);
        // Results that are exchanged are the same at both ends.
        if self.bandwidth && !self.sends || self.both_ways && self.count.is_some() {
            for (at_client, at_server) in at_client.rows.iter().rev().zip(rows.iter().rev()) {
                let [one, other] = [at_client, at_server].map(|row| row[3]);
                assert!((one - other).abs() <= 0.02 + one / 100.0, "{server}, {client}:\n{said}");
            }
        }
        Ok(())
    }

    /// Checks bytes and messages of the rows of an end. perftest's table counts the messages of all queue pairs, ours
    /// those of each.
    fn check(&self, rows: &[Vec<f64>], sizes: &[f64], is_ours: bool, said: &str) {
        assert_eq!(rows.iter().map(|row| row[0]).collect::<Vec<_>>(), sizes, "{}:\n{said}", self.ours);
        let qps = if is_ours { 1.0 } else { self.qps };
        for row in rows {
            match self.count {
                Some(count) => assert_eq!(row[1], count * qps, "{}:\n{said}", self.ours),
                None => assert!(row[1] > 0.0 && row[2..].iter().any(|number| *number > 0.0), "{}:\n{said}", self.ours),
            }
        }
    }
}
