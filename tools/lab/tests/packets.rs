//! The examples of raw Ethernet queues on a software card in their own process; tshark reads what `capture` writes.

mod common;

use std::path::Path;
use std::process::{Command, Stdio};

use common::{Report, TestResult};
use mlx5_lab::{Build, Tshark};

/// Runs one of our programs to its end; it has to succeed. Returns its output.
fn run(build: &Build, program: &str, arguments: &[&str]) -> Result<String, Report> {
    let output = Command::new(build.program(program)?).args(arguments).stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.success() {
        true => Ok(said),
        false => Err(format!("{program} {arguments:?}: {said}{}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

fn build() -> Result<Build, Report> {
    Ok(Build::dev(&["mlx5"], &["tcp", "l2fwd", "capture", "marketdata"])?)
}

#[test]
fn frames_are_forwarded_each_once_and_whole() -> TestResult {
    let said = run(&build()?, "l2fwd", &["--iters", "3000", "--queues", "3"])?;
    assert!(said.contains("3000 received, 3000 sent, 0 dropped and 3000 received, 3000 sent, 0 dropped"), "{said}");
    Ok(())
}

#[test]
fn gaps_of_ticks_are_told_and_each_order_arrives() -> TestResult {
    let said = run(&build()?, "marketdata", &["--iters", "2000", "--lose", "70"])?;
    // 28 are left out; prices of 90 and more, each tenth, are answered.
    assert!(said.contains("1972 ticks, 28 gaps of 28 ticks, ") && said.contains("tick to trade"), "{said}");
    Ok(())
}

#[test]
fn tcp_carries_a_file_whole_over_both_kinds_of_queues() -> TestResult {
    let (build, folder) = (build()?, tempfile::tempdir()?);
    let given = folder.path().join("given");
    let bytes: Vec<u8> = (0..3_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    std::fs::write(&given, &bytes)?;
    for kind in ["--parallel=1", "--striding"] {
        let said = run(&build, "tcp", &["-n", "0", "-F", given.to_str().ok_or("UTF-8")?, kind])?;
        assert!(
            said.contains("received 3000000 bytes") && said.contains("the server received 3000000 bytes"),
            "{said}"
        );
    }
    Ok(())
}

/// The fields that tshark prints of each frame of a capture.
fn fields(tshark: &Tshark, capture: &Path, fields: &[&str]) -> Result<Vec<Vec<String>>, Report> {
    let mut command = tshark.read(capture);
    command.args(["-T", "fields"]);
    fields.iter().for_each(|field| _ = command.args(["-e", field]));
    let output = command.stdin(Stdio::null()).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect())
}

#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
#[test]
fn tshark_reads_each_file_of_a_capture_with_its_times_and_good_checksums() -> TestResult {
    let (build, folder, tshark) = (build()?, tempfile::tempdir()?, Tshark::ready()?);
    let first = folder.path().join("x.pcapng");
    let name = first.to_str().ok_or("UTF-8")?;
    let said = run(&build, "capture", &["-w", name, "-c", "100", "--rotate", "40", "-v", "-f", "udp,dport=5001"])?;
    assert!(said.contains("100 frames in 3 files, 0 lost"), "{said}");
    assert_eq!(said.matches(" IPV4 UDP l3_ok l4_ok").count(), 100, "{said}");
    let shown = ["frame.time_epoch", "frame.len", "ip.checksum.status", "udp.checksum.status", "udp.dstport"];
    let mut all = Vec::new();
    for (file, count) in [("x.pcapng", 40), ("x.1.pcapng", 40), ("x.2.pcapng", 20)] {
        let frames = fields(&tshark, &folder.path().join(file), &shown)?;
        assert_eq!(frames.len(), count, "{file}: {frames:?}");
        all.extend(frames);
    }
    let times: Vec<&str> = all.iter().map(|frame| &frame[0][..]).collect();
    assert!(times.is_sorted(), "{times:?}");
    // Nanoseconds, not microseconds: not all end in zeros.
    assert!(times.iter().all(|time| time.split('.').nth(1).is_some_and(|part| part.len() == 9)), "{times:?}");
    assert!(times.iter().any(|time| !time.ends_with("000")), "{times:?}");
    for (number, frame) in all.iter().enumerate() {
        assert_eq!(frame[1..], [(43 + number).to_string().as_str(), "1", "1", "5001"].map(str::to_owned), "{number}");
    }
    // The same times that the program printed.
    assert!(times.iter().all(|time| said.contains(&format!("{time} "))), "{said}");
    Ok(())
}

#[test]
fn each_frame_of_a_measurement_is_counted_as_received_or_lost() -> TestResult {
    let build = build()?;
    for mode in ["tx", "rx", "forward"] {
        let said = run(&build, "mlx5", &["--json", "perf", "packet", mode, "-n", "3000", "-q", "2", "-s", "64,1518"])?;
        let document: serde_json::Value = serde_json::from_str(&said)?;
        for (row, size) in [(0, 64), (1, 1518)] {
            let row = &document["results"][row];
            assert_eq!((&document["test"], &row["size"]), (&mode.into(), &size.into()), "{said}");
            assert_eq!(row["frames"].as_u64().zip(row["lost"].as_u64()).map(|(a, b)| a + b), Some(3000), "{said}");
            assert!(row["frames"].as_u64() > Some(0) && row["Mpps"].as_f64() > Some(0.0), "{said}");
        }
    }
    let said = run(&build, "mlx5", &["--json", "perf", "packet", "lat", "-n", "50"])?;
    let document: serde_json::Value = serde_json::from_str(&said)?;
    let latency = &document["results"][0]["latency"];
    assert_eq!((&document["test"], &latency["n_iterations"]), (&"lat".into(), &50.into()), "{said}");
    assert!(latency["t_min"].as_f64() > Some(0.0), "{said}");
    let refused = run(&build, "mlx5", &["perf", "packet", "tx", "-s", "9000"]).expect_err("longer than the MTU");
    assert!(format!("{refused:?}").contains("its MTU"), "{refused:?}");
    Ok(())
}
