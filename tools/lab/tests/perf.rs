//! `mlx5 perf` over DevX beside perftest over libmlx5: the same flags, the same table; and each with the other. The
//! times are printed, not checked; benches/README.md has them.

mod common;

use common::kernels::{FAR, boot, part};
use common::{Lab, Report, SOON, THEY_LISTEN, TestResult, assert_lawful};

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

/// The same for one of ours and one of perftest's that measure with each other. With `-R` by the connection manager.
const TOGETHER: [(&str, &str); 7] = [
    ("lat write -R -n 200 -s 64", "ib_write_lat -R -n 200 -s 64"),
    ("bw write -R -n 300 -s 4096 -q 2", "ib_write_bw -R -n 300 -s 4096 -q 2"),
    ("bw send -R -n 300 -s 4096 -q 2", "ib_send_bw -R -n 300 -s 4096 -q 2"),
    ("lat read -R -n 200 -s 64", "ib_read_lat -R -n 200 -s 64"),
    ("bw atomic -R -n 200", "ib_atomic_bw -R -n 200"),
    ("lat send -n 200 -s 64", "ib_send_lat -n 200 -s 64 -x 0"),
    ("bw read -n 300 -s 4096", "ib_read_bw -n 300 -s 4096 -x 0"),
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
    ours_and_perftest_measure_with_each_other(&lab)?;
    lab.assert_quiet()?;
    lab.guest.power_off()?;
    assert_lawful(&lab.model);
    Ok(())
}

/// Ours as the client of perftest's server, and as the server of perftest's client.
fn ours_and_perftest_measure_with_each_other(lab: &Lab) -> TestResult {
    lab.check("modprobe rdma_ucm && until [ -e /dev/infiniband/rdma_cm ]; do sleep 0.1; done", SOON)?;
    for (ours, theirs) in TOGETHER {
        let number = |flag: &str, usual| {
            let mut words = ours.split(' ').skip_while(|word| *word != flag);
            words.nth(1).map_or(Ok(usual), str::parse::<f64>)
        };
        // perftest's table counts the messages of all queue pairs, ours those of each.
        let (size, count) = (number("-s", 8.0)?, number("-n", 0.0)?);
        let (of_ours, of_theirs) = ([size, count], [size, count * number("-q", 1.0)?]);
        let ours = format!("mlx5 perf {ours} --perftest");
        for (server, client) in [
            (format!("{theirs} -d mlx5_1 -F"), format!("{ours} -d devx:mlx5_0 10.0.0.2")),
            (format!("{ours} -d devx:mlx5_1 --listen"), format!("{theirs} -d mlx5_0 -F 10.0.0.2")),
        ] {
            // By the connection manager, perftest's ends talk on a queue pair, too.
            let listening = if theirs.contains(" -R ") {
                lab.serve(&format!("{FAR} {server}"), THEY_LISTEN)
            } else {
                lab.serve_tcp(FAR, &server)
            };
            let said = listening.and_then(|listening| lab.call(listening, &client));
            let said = said.map_err(|error| format!("{server}, {client}: {error:?}"))?;
            let (at_client, at_server) =
                if client.starts_with("mlx5") { (of_ours, of_theirs) } else { (of_theirs, of_ours) };
            assert_eq!(Table::of(&said)?.row[..2], at_client, "{client}:\n{said}");
            // Of these the client tells the server what it measured.
            if ours.contains("perf bw") && !ours.contains("send") {
                let (_, servers) = said.rsplit_once(" #bytes").ok_or("no table of the server's")?;
                assert_eq!(Table::of(&format!(" #bytes{servers}"))?.row[..2], at_server, "{server}:\n{said}");
                assert_eq!(said.matches(" #bytes").count(), 2, "{said}");
            }
        }
    }
    let left = lab.check("rdma resource show cm_id", SOON)?;
    assert!(left.trim().is_empty(), "{left}");
    Ok(())
}
