//! `mlx5 perf` on the software card: both ends in one program, and in two.

use std::fs::File;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// How long anything may take that is to succeed.
const SOON: Duration = Duration::from_secs(120);

/// perftest's headings, blanks and all.
const LATENCY: &str = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] ";
const BANDWIDTH: &str = " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]";

fn perf(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mlx5"));
    command.arg("perf").args(arguments.split_whitespace()).env("RUST_LOG", "error").stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a run that succeeds prints.
fn printed(arguments: &str) -> String {
    let output = perf(arguments).output().expect("mlx5 runs");
    assert!(output.status.success(), "{arguments}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON alone on stdout")
}

/// The numbers of the row below `heading`.
fn row(printed: &str, heading: &str) -> Vec<f64> {
    let mut lines = printed.lines().skip_while(|line| *line != heading);
    assert!(lines.next().is_some(), "no heading {heading:?} in:\n{printed}");
    let numbers = lines.next().expect("a row").split_whitespace().map(|number| number.parse().expect("a number"));
    numbers.collect()
}

fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value.as_object().expect("an object").keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

#[test]
fn the_table_of_latency_is_perftests() {
    for operation in ["write", "send", "read"] {
        let printed = printed(&format!("lat {operation} -n 50 -s 64"));
        let row = row(&printed, LATENCY);
        let [bytes, iterations, min, max, typical, average, stdev, p99, p999] = row[..] else { panic!("{printed}") };
        assert_eq!((bytes, iterations), (64.0, 50.0));
        assert!(0.0 < min && min <= typical && typical <= p99 && p99 <= p999 && p999 <= max, "{printed}");
        assert!(min <= average && average <= max && stdev >= 0.0, "{printed}");
        assert!(printed.contains(" percentile    t[usec]\n 50 ") && printed.contains("\n 99.999 "), "{printed}");
        assert!(printed.ends_with("(software card: not a card's figure)\n"), "{printed}");
    }
}

#[test]
fn atomics_are_titled_as_perftests() {
    for (arguments, title, test) in [
        ("lat atomic -n 50", "Atomic FETCH_AND_ADD Latency Test", "Atomic_FETCH_AND_ADD_Latency_Test"),
        (
            "bw atomic -n 50 -A CMP_AND_SWAP -b",
            "Atomic CMP_AND_SWAP Bidirectional BW Test",
            "Atomic_CMP_AND_SWAP_Bidirectional_BW_Test",
        ),
    ] {
        let heading = if arguments.starts_with("lat") { LATENCY } else { BANDWIDTH };
        let printed = printed(arguments);
        assert_eq!(row(&printed, heading)[..2], [8.0, 50.0]);
        assert!(printed.contains(title) && printed.contains("Outstand reads"), "{printed}");
        let report = json(&perf(&format!("{arguments} --json")).output().expect("mlx5 runs"));
        assert_eq!((&report["test_info"]["test"], &report["test_info"]["Outstand_reads"]), (&test.into(), &16.into()));
    }
}

#[test]
fn the_table_of_bandwidth_is_perftests() {
    for test in ["bw", "rate"] {
        for operation in ["write", "send", "read"] {
            let printed = printed(&format!("{test} {operation} -n 200"));
            let row = row(&printed, BANDWIDTH);
            let [bytes, iterations, peak, average, rate] = row[..] else { panic!("{printed}") };
            assert_eq!((bytes, iterations), (if test == "bw" { 65536.0 } else { 2.0 }, 200.0));
            assert!(peak >= average && rate > 0.0, "{printed}");
            assert!(printed.contains("software card: not a card's figure"), "{printed}");
        }
    }
    let printed = printed("bw write -n 200 -s 4096 --report_gbits -N");
    let gbits = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]";
    assert_eq!(row(&printed, gbits)[2], 0.0, "perftest prints 0 for a peak it did not look for");
}

#[test]
fn the_keys_of_the_json_are_perftests_and_ours() {
    let report = json(&perf("lat write -n 50 --json").output().expect("mlx5 runs"));
    let ours =
        ["MsgSize", "n_iterations", "percentile_99", "percentile_99.9", "percentiles", "t_avg", "t_max", "t_min"];
    assert_eq!(keys(&report["results"]), [&ours[..], &["t_stdev", "t_typical"]].concat());
    assert_eq!(keys(&report["results"]["percentiles"]), ["100", "50", "90", "99", "99.9", "99.99", "99.999"]);
    assert_eq!(report["test_info"]["test"], "RDMA_Write_Latency_Test");
    assert_eq!(report["test_info"]["Max_inline_data"], 220);
    assert_eq!(report["cards"][0]["software_card"], true);
    assert_eq!(report["cards"][0]["board_id"], "SIM0000000005");
    assert_eq!(report["note"], "software card: not a card's figure");

    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("out.json");
    printed(&format!("bw send -n 200 -b -l 4 -c UC --out_json_file {}", file.display()));
    let report: Value = serde_json::from_slice(&std::fs::read(file).expect("a file")).expect("JSON");
    assert_eq!(keys(&report["results"]), ["BW_average", "BW_peak", "MsgRate", "MsgSize", "n_iterations"]);
    assert_eq!(report["test_info"]["test"], "Send_Bidirectional_Post_List_BW_Test");
    assert_eq!(report["test_info"]["Connection_type"], "UC");
    let of = |key: &str| report["test_info"][key].clone();
    let named = ["TX_depth", "RX_depth", "CQ_Moderation", "Post_List", "Mtu", "Number_of_qps"].map(of);
    assert_eq!(named, [128, 512, 4, 4, 1024, 1].map(Value::from));
}

#[test]
fn lists_moderation_queue_pairs_directions_events_and_inline_data_work() {
    for arguments in [
        "bw write -n 500 -s 64 -l 16 -t 64",
        "bw write -n 500 -s 3000 -c UC",
        "bw send -n 300 -s 1000 -c UC -q 3",
        "lat send -n 50 -c UC",
        "lat write -n 50 -s 2000 -c UC",
        "bw write -n 501 -s 64 -Q 10 -I 64",
        "bw send -n 300 -s 1000 -q 3 -Q 7",
        "bw send -n 300 -s 64 -b -r 8",
        "bw read -n 300 -s 5000 -b -o 1",
        "bw write -n 300 -s 3000 -b -m 256",
        "bw send -n 300 -s 64 -e",
        "lat send -n 50 -e",
        "lat read -n 50 -e",
        "lat atomic -n 50 -A CMP_AND_SWAP",
        "lat atomic -n 50 -e",
        "bw atomic -n 300 -q 3 -b -Q 7",
        "bw atomic -n 500 -A CMP_AND_SWAP -l 16 -t 64",
        "rate atomic -D 1 -f 0",
        "lat write -n 300 -s 5000 --warm-up 0",
        "lat send -n 50 -s 20 -I 0",
        "rate write -D 1 -f 0",
        "lat write -D 1 -f 0",
    ] {
        assert!(printed(arguments).contains("software card"), "{arguments}");
    }
}

#[test]
fn a_sweep_has_a_row_for_each_size_and_a_drawing() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("sweep.svg");
    let printed = printed(&format!("bw write -a -n 5 --warm-up 1 -F --svg {}", file.display()));
    let sizes: Vec<u64> = (1..=23).map(|log| 1 << log).collect();
    let rows = printed.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok());
    assert_eq!(rows.collect::<Vec<u64>>(), sizes, "{printed}");
    let svg = std::fs::read_to_string(file).expect("a file");
    assert!(svg.starts_with("<svg") && svg.contains("MiB/sec") && svg.contains("4 Mi"), "{svg}");
    assert!(svg.contains("not a card"), "{svg}");
}

#[test]
fn a_latency_is_drawn_as_a_distribution() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("latency.svg");
    printed(&format!("lat send -n 500 --svg {}", file.display()));
    let svg = std::fs::read_to_string(file).expect("a file");
    for expected in ["Send Latency Test, 2 bytes", "usec", "\n90 %\n", "\n99 %\n", "polyline", "not a card"] {
        assert!(svg.contains(expected), "{expected} in:\n{svg}");
    }
}

#[test]
fn what_cannot_be_measured_says_why() {
    for (arguments, word) in [
        ("lat atomic -s 16", "an atomic has 8 bytes"),
        ("bw write -c UD", "only RC and UC queue pairs"),
        ("bw write -x 3", "no such GID"),
        ("bw write -d vfio-user:/nowhere", "/nowhere"),
        ("bw write --svg /nowhere/x.svg -a -n 5 -s 2", "cannot be used with"),
        ("lat write -n 5 --svg /nowhere/x.svg", "/nowhere/x.svg"),
    ] {
        let output = perf(arguments).output().expect("mlx5 runs");
        assert!(!output.status.success() && text(&output.stderr).contains(word), "{}", text(&output.stderr));
    }
}

/// A program that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn of(command: &mut Command) -> Running {
        Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("mlx5 runs"))
    }

    /// Waits for its end.
    fn end(mut self) -> Output {
        let deadline = Instant::now() + SOON;
        while self.0.try_wait().expect("a child").is_none() {
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        self.0.stdout.take().expect("a pipe").read_to_end(&mut stdout).expect("read");
        self.0.stderr.take().expect("a pipe").read_to_end(&mut stderr).expect("read");
        Output { status: self.0.wait().expect("a child"), stdout, stderr }
    }
}

/// The software card in a program of its own, two functions on one wire. What it warns of is in `card.log`.
struct Served {
    card: Running,
    /// What it prints.
    lines: Lines<BufReader<ChildStdout>>,
    dir: tempfile::TempDir,
}

impl Served {
    fn new() -> Served {
        Served::with(tempfile::tempdir().expect("a folder"), &[])
    }

    /// As [`new`](Self::new), with a capture of all frames: its path.
    fn capturing() -> (Served, PathBuf) {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("frames.pcap");
        let card = Served::with(dir, &["--pcap", path.to_str().expect("UTF-8")]);
        (card, path)
    }

    fn with(dir: tempfile::TempDir, arguments: &[&str]) -> Served {
        let sockets = [0, 1].map(|index| dir.path().join(format!("{index}.sock")));
        let mut command = Command::new(env!("CARGO_BIN_EXE_mlx5"));
        command.arg("sim").arg("--socket").arg(&sockets[0]).arg("--socket").arg(&sockets[1]).args(arguments);
        let log = File::create(dir.path().join("card.log")).expect("a file");
        let child = command.env("RUST_LOG", "warn").stdout(Stdio::piped()).stderr(log).spawn();
        let mut card = Running(child.expect("mlx5 runs"));
        let mut lines = BufReader::new(card.0.stdout.take().expect("a pipe")).lines();
        for _ in 0..2 {
            let line = lines.next().expect("a line").expect("text");
            assert!(line.starts_with("listening on"), "{line}");
        }
        Served { card, lines, dir }
    }

    fn end(&self, index: usize, arguments: &str) -> Running {
        let socket = self.dir.path().join(format!("{index}.sock"));
        Running::of(&mut perf(&format!("{arguments} -d vfio-user:{}", socket.display())))
    }
}

/// Waits until some hundred frames more are in `capture`.
fn wait_for_traffic(capture: &Path) {
    const FRAMES: u64 = 64 * 1024;
    let length = || std::fs::metadata(capture).expect("a capture").len();
    let (before, deadline) = (length(), Instant::now() + SOON);
    while length() < before + FRAMES {
        assert!(Instant::now() < deadline, "no traffic");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").port()
}

/// The numbers to six digits: on their way as text the last bit may change.
fn rounded(results: &Value) -> Vec<String> {
    let one = |(key, value): (&String, &Value)| match value {
        Value::Object(_) => rounded(value),
        _ => vec![format!("{key} {:.5e}", value.as_f64().expect("a number"))],
    };
    results.as_object().expect("an object").iter().flat_map(one).collect()
}

#[test]
fn two_programs_measure_together_and_both_report_the_same() {
    let card = Served::new();
    for arguments in [
        "lat write -n 50",
        "lat send -n 50",
        "lat read -n 50",
        "lat atomic -n 50 -A CMP_AND_SWAP",
        "bw atomic -n 200",
        "bw write -n 200 -s 4096",
        "bw send -n 200 -s 4096",
        "bw read -n 200 -s 4096",
        "bw send -n 200 -s 4096 -b",
        "rate write -n 500 -q 2",
        // The second list would end beyond what may be in flight, and no message of the first is signaled.
        "bw write -n 1000 -s 64 -l 100 -Q 128 -t 128",
        "rate send -n 300 -e",
    ] {
        let port = free_port();
        let server = card.end(0, &format!("{arguments} -p {port} --listen --json"));
        let client = card.end(1, &format!("{arguments} -p {port} 127.0.0.1 --json"));
        let (client, server) = (client.end(), server.end());
        assert!(client.status.success(), "{arguments}: {}{}", text(&client.stderr), text(&server.stderr));
        let (client, server) = (json(&client), json(&server));
        assert_eq!(rounded(&client["results"]), rounded(&server["results"]), "{arguments}");
        assert!(client["cards"][0]["device"].as_str().is_some_and(|name| name.ends_with("1.sock")), "{client}");
        assert_eq!(client["cards"][0], server["cards"][1], "{arguments}");
        assert_eq!(client["note"], "software card: not a card's figure");
    }
}

/// Each end says and hears what perftest's other end would. perftest itself is the judge in the lab's test `perf`.
#[test]
fn two_ends_measure_together_in_perftests_words() {
    let card = Served::new();
    for (arguments, at_client, at_server) in [
        ("lat write -a -n 5", 23, 0),
        ("lat send -a -n 5", 23, 0),
        ("bw send -a -n 5 -b", 23, 23),
        ("bw read -a -n 5", 23, 1),
        ("bw write -a -n 5 -b", 23, 23),
        ("bw write -n 200 -s 64 -b -q 2", 1, 1),
        ("bw atomic -D 1 -f 0 -b", 1, 1),
        ("bw send -D 1 -f 0 -s 64 -b -q 2", 1, 1),
        ("bw send -D 1 -f 0 -s 64", 1, 0),
        ("lat write -D 1 -f 0", 1, 0),
        ("lat send -D 1 -f 0", 1, 0),
        ("lat read -D 1 -f 0", 1, 0),
    ] {
        let port = free_port();
        let server = card.end(0, &format!("{arguments} --perftest -p {port} --listen --json"));
        let client = card.end(1, &format!("{arguments} --perftest -p {port} 127.0.0.1 --json"));
        let ends = [(client.end(), at_client), (server.end(), at_server)];
        let errors = ends.each_ref().map(|(end, _)| text(&end.stderr));
        for (end, expected) in ends {
            assert!(end.status.success(), "{arguments}: {errors:?}");
            let report = json(&end);
            let rows = report["results"].as_array().map_or(1, Vec::len);
            assert_eq!(rows, expected, "{arguments}: {report}");
        }
    }
}

#[test]
fn an_end_that_was_told_other_sizes_than_perftests_says_so() {
    let (card, port) = (Served::new(), free_port());
    let server = card.end(0, &format!("bw write -a -n 5 --perftest -p {port} --listen"));
    let client = card.end(1, &format!("bw write -s 64 -n 5 --perftest -p {port} 127.0.0.1"));
    let server = server.end();
    let error = text(&server.stderr);
    assert!(!server.status.success() && error.contains("5 messages of 64 bytes: give both ends the same"), "{error}");
    assert!(!client.end().status.success());
}

/// The receives of `perf` have one buffer, as those of perftest.
#[test]
fn a_card_that_watches_receives_reports_a_buffer_that_is_posted_twice() {
    for (arguments, is_reported) in [(&["--watch-receives"][..], true), (&[], false)] {
        let card = Served::with(tempfile::tempdir().expect("a folder"), arguments);
        let port = free_port();
        let arguments = format!("bw send -n 200 -s 64 -p {port}");
        let (server, client) =
            (card.end(0, &format!("{arguments} --listen")), card.end(1, &format!("{arguments} 127.0.0.1")));
        assert!(client.end().status.success() && server.end().status.success());
        let log = std::fs::read_to_string(card.dir.path().join("card.log")).expect("a log");
        assert_eq!(log.contains("receive buffer posted twice: QP"), is_reported, "{log}");
    }
}

#[test]
fn the_card_says_what_has_crossed_pcie_of_each_function() {
    const WRITTEN: u64 = 200 * 4096;
    let mut card = Served::with(tempfile::tempdir().expect("a folder"), &["--stats", "1"]);
    let port = free_port();
    let arguments = format!("bw write -n 200 -s 4096 -p {port}");
    let (server, client) =
        (card.end(0, &format!("{arguments} --listen")), card.end(1, &format!("{arguments} 127.0.0.1")));
    assert!(client.end().status.success() && server.end().status.success());
    // Bytes that were read and written, of the row `name` in the next table of function `index`.
    let mut bytes = |index: usize, name: &str| {
        let mut lines = card.lines.by_ref().map(|line| line.expect("text"));
        let heading = format!("function {index} ");
        assert!(lines.any(|line| line.starts_with(&heading)), "no table of function {index}");
        let row = lines.find(|line| line.starts_with(&format!("  {name} "))).expect("a row");
        let numbers: Vec<u64> =
            row[name.len() + 2..].split_whitespace().map(|number| number.parse().expect("a number")).collect();
        let [_, read, _, written] = numbers[..] else { panic!("{row}") };
        (read, written)
    };
    // The tables that began before the end of it are skipped.
    for _ in 0..2 {
        bytes(1, "all");
    }
    let ((_, received), (sent, _)) = (bytes(0, "data"), bytes(1, "data"));
    assert!(received >= WRITTEN && sent >= WRITTEN, "{received} bytes written, {sent} bytes read");
    let (of_all, _) = bytes(1, "all");
    assert!(of_all > sent, "work requests are read, too");
}

#[test]
fn a_port_that_is_taken_is_named_before_anything_waits() {
    let card = Served::new();
    let taken = TcpListener::bind("[::]:0").expect("a free port");
    let port = taken.local_addr().expect("its address").port();
    let output = card.end(0, &format!("lat send -p {port} --listen")).end();
    let said = text(&output.stderr);
    assert!(said.contains(&format!("TCP port {port}")) && !said.contains("waiting"), "{said}");
}

#[test]
fn thousands_of_queue_pairs_share_a_uar_page() {
    let printed = printed("bw write -q 2000 -n 5 -s 64 --warm-up 0 -t 1");
    assert_eq!(row(&printed, BANDWIDTH)[..2], [64.0, 5.0]);
}

#[test]
fn a_server_that_measures_something_else_says_so_on_both_sides() {
    let card = Served::new();
    let port = free_port();
    let server = card.end(0, &format!("lat send -p {port} --listen"));
    let client = card.end(1, &format!("bw write -p {port} 127.0.0.1"));
    let (client, server) = (client.end(), server.end());
    for output in [client, server] {
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains("the client measures bw write"), "{said}");
    }
}

#[test]
fn packets_are_of_as_many_flows_as_asked_for() {
    const FLOWS: u16 = 1000;
    let (card, capture) = Served::capturing();
    let sent = card.end(0, &format!("packet tx -n 4000 --flows {FLOWS} --to 02:00:00:00:00:99")).end();
    assert!(sent.status.success(), "{}", text(&sent.stderr));
    drop(card.card);
    let capture = std::fs::read(capture).expect("a capture");
    let (mut left, mut ports) = (&capture[24..], std::collections::HashMap::new());
    while let Some((header, rest)) = left.split_at_checked(16) {
        let len = u32::from_le_bytes(header[8..12].try_into().expect("four bytes")) as usize;
        let Some((frame, rest)) = rest.split_at_checked(len) else { break };
        if frame.get(12..14) == Some(&[8, 0]) && frame.get(23) == Some(&17) {
            *ports.entry([frame[34], frame[35]]).or_insert(0u32) += 1;
        }
        left = rest;
    }
    assert_eq!(ports.len(), usize::from(FLOWS));
}

#[test]
fn an_end_that_vanishes_is_an_error_of_the_other_within_seconds() {
    let (card, capture) = Served::capturing();
    for (arguments, victim) in [("lat write", 0), ("bw write", 0), ("lat send", 1), ("bw read", 1)] {
        let port = free_port();
        let server = card.end(0, &format!("{arguments} -p {port} --listen"));
        let client = card.end(1, &format!("{arguments} -p {port} -D 600 127.0.0.1"));
        wait_for_traffic(&capture);
        let mut ends = [server, client];
        ends[victim].0.kill().expect("killed");
        let [server, client] = ends;
        let survivor = if victim == 0 { client } else { server };
        let output = survivor.end();
        let said = text(&output.stderr);
        assert!(!output.status.success(), "{arguments}");
        // Its card may notice first: the acknowledgements stay away.
        let expected = ["is gone", "TRANSPORT_RETRY", "the other end", "Connection refused"];
        assert!(expected.iter().any(|word| said.contains(word)), "{arguments}: {said}");
    }
}

/// The next line of a program's stderr, and a thread that keeps what follows.
fn first_line(program: &mut Running) -> (String, std::thread::JoinHandle<String>) {
    let mut stderr = BufReader::new(program.0.stderr.take().expect("a pipe"));
    let mut line = String::new();
    stderr.read_line(&mut line).expect("a line");
    let rest = std::thread::spawn(move || {
        let mut rest = String::new();
        stderr.read_to_string(&mut rest).expect("text");
        rest
    });
    (line, rest)
}

#[test]
fn a_server_says_which_port_it_took_and_survives_strangers() {
    let card = Served::new();
    let mut server = card.end(0, "bw write -n 50 -s 64 -p 0 --listen");
    let (line, rest) = first_line(&mut server);
    let told = line.split("waiting for a client on port ").nth(1).expect("a port");
    let port: u16 = told.split(',').next().expect("a number").parse().expect("a number");
    assert!(port > 0 && told.contains("up to 120 s"), "{line}");
    let mut scanner = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    scanner.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("written");
    drop(TcpStream::connect(("127.0.0.1", port)).expect("it listens"));
    let mut liar = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    liar.write_all(b"\"Ready\"\n").expect("written");
    let client = card.end(1, &format!("bw write -n 50 -s 64 -p {port} 127.0.0.1")).end();
    assert!(client.status.success(), "{}", text(&client.stderr));
    assert!(server.0.wait().expect("an end").success());
    let said = rest.join().expect("no panic");
    assert_eq!(said.matches("a stranger connected, and was sent away").count(), 3, "{said}");
}

#[test]
fn a_client_says_that_it_waits_and_for_how_long() {
    let card = Served::new();
    let port = free_port();
    let mut client = card.end(1, &format!("bw write -n 50 -s 64 -p {port} 127.0.0.1"));
    let (line, rest) = first_line(&mut client);
    assert!(line.contains(&format!("waiting for the server on 127.0.0.1, port {port}, up to 120 s")), "{line}");
    let server = card.end(0, &format!("bw write -n 50 -s 64 -p {port} --listen")).end();
    assert!(server.status.success(), "{}", text(&server.stderr));
    assert!(client.0.wait().expect("an end").success(), "{}", rest.join().expect("no panic"));
}

#[test]
fn the_heading_is_printed_before_the_run() {
    let mut run = Running::of(&mut perf("bw write -D 1000 -f 0"));
    let mut lines = BufReader::new(run.0.stdout.take().expect("a pipe")).lines();
    // The run takes longer than any test may.
    assert!(lines.any(|line| line.expect("text") == BANDWIDTH), "it ended without a heading");
}

/// A program called `nvme_rdma` that prints its arguments, one a line.
fn stand_in() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("nvme_rdma");
    std::fs::write(&program, "#!/bin/sh\nprintf '%s\\n' \"$@\"\nexit 3\n").expect("written");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("executable");
    folder
}

#[test]
fn nvme_is_measured_by_the_program_of_its_pattern() {
    // A copy, beside which no program of the build is.
    let alone = tempfile::tempdir().expect("a folder");
    let mlx5 = alone.path().join("mlx5");
    std::fs::copy(env!("CARGO_BIN_EXE_mlx5"), &mlx5).expect("copied");
    let run = |arguments: &str, path: &Path| {
        let mut command = Command::new(&mlx5);
        command.args(arguments.split_whitespace()).env("PATH", path).stdin(Stdio::null()).output().expect("it runs")
    };
    let folder = stand_in();
    let output = run("perf nvme bw write -d devx:mlx5_0 10.0.0.1 -n 5 --help", folder.path());
    let passed = "perf\nbw\nwrite\n-d\ndevx:mlx5_0\n10.0.0.1\n-n\n5\n--help\n";
    assert_eq!((text(&output.stdout).as_str(), output.status.code()), (passed, Some(3)), "{}", text(&output.stderr));
    let output = run("perf nvme lat read", alone.path().join("nothing").as_path());
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("cargo run --release -p mlx5-nvme -- perf"), "{said}");
    let output = run("--json perf nvme lat read", folder.path());
    assert!(output.status.code() == Some(2) && text(&output.stderr).contains("no JSON"), "{}", text(&output.stderr));
}
