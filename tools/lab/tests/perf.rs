//! `mlx5 perf` over DevX beside perftest over libmlx5: the same flags, the same table. The times are printed, not
//! checked; benches/README.md has them.

mod common;

use common::kernels::{FAR, boot, part};
use common::{Lab, Report, TestResult, assert_lawful};

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

/// A heading, and the row below it.
struct Table {
    heading: String,
    row: Vec<f64>,
}

impl Table {
    /// The first in a program's output.
    fn of(said: &str) -> Result<Table, Report> {
        let mut lines = said.lines().skip_while(|line| !line.starts_with(" #bytes"));
        let heading = lines.next().ok_or_else(|| format!("no heading in:\n{said}"))?.to_owned();
        // In between perftest may warn about the processor's clock.
        let row =
            lines.find_map(|line| line.split_whitespace().map(|word| word.parse().ok()).collect::<Option<Vec<f64>>>());
        let row = row.filter(|row| !row.is_empty()).ok_or_else(|| format!("no row in:\n{said}"))?;
        Ok(Table { heading, row })
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
        assert_eq!(our_table.row.len(), their_table.row.len(), "{:?}\n{:?}", our_table.row, their_table.row);
        assert_eq!(our_table.row[..2], their_table.row[..2], "bytes and iterations");
        printed += &format!("{}\n", our_table.heading);
        printed += &format!("{:?} mlx5 perf {ours}\n{:?} {theirs}\n", our_table.row, their_table.row);
    }
    println!("{printed}(the software card, in an emulated guest: not a card's figures)");
    lab.assert_quiet()?;
    lab.guest.power_off()?;
    assert_lawful(&lab.model);
    Ok(())
}
