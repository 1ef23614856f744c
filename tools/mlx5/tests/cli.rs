//! The command line as its users see it.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn mlx5(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mlx5")).args(arguments).output().expect("mlx5 runs")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(arguments: &[&str]) -> Value {
    let output = mlx5(arguments);
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).expect("JSON alone on stdout")
}

#[test]
fn a_file_that_may_not_be_read_is_not_said_to_be_missing() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::process::CommandExt;
    let dir = tempfile::tempdir().expect("a directory");
    let locked = dir.path().join("locked");
    std::fs::create_dir(&locked).expect("a directory");
    std::fs::write(locked.join("log"), "status 3").expect("a file");
    let mode = |path: &std::path::Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode));
    mode(&locked, 0o000).and_then(|()| mode(dir.path(), 0o755)).expect("its mode");
    let mut command = Command::new(env!("CARGO_BIN_EXE_mlx5"));
    if locked.metadata().expect("its owner").uid() == 0 {
        // Root may read everything, and its home may be locked to others.
        let copy = dir.path().join("mlx5");
        // Not by this process, whose other tests start programs, which would hold the copy open to be written.
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_mlx5")).arg(&copy).status().expect("cp runs");
        assert!(copied.success());
        command = Command::new(copy);
        command.uid(65534);
    }
    let output = command.args(["explain", "cqe"]).arg(locked.join("log")).output().expect("mlx5 runs");
    mode(&locked, 0o755).expect("its mode");
    let said = stderr(&output);
    assert!(said.contains("cannot read") && said.contains("Permission denied"), "{said}");
}

#[test]
fn a_line_without_end_is_refused_and_takes_no_memory_without_end() {
    for arguments in [&["explain"][..], &["explain", "cqe", "-"], &["explain", "/dev/zero"]] {
        let zeros = std::fs::File::open("/dev/zero").expect("zeros");
        let output = Command::new(env!("CARGO_BIN_EXE_mlx5")).args(arguments).stdin(zeros).output().expect("mlx5 runs");
        assert!(stderr(&output).contains("line 1 is longer than 8 MiB"), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn caps_prints_prm_names_with_maximum_and_current() {
    let output = mlx5(&["caps", "log_max_qp"]);
    let text = stdout(&output);
    assert!(output.status.success(), "{}", stderr(&output));
    let line = text.lines().find(|line| line.trim_start().starts_with("log_max_qp ")).expect("the capability");
    assert_eq!(line.split_whitespace().collect::<Vec<_>>()[1], "18", "{line}");
}

#[test]
fn caps_differ_between_profiles() {
    let of = |device: &str| json(&["caps", "--json", "-d", device])["pages"]["general"]["log_max_qp"]["max"].clone();
    assert_eq!(["sim", "sim:connectx5", "sim:connectx6dx", "sim:connectx7"].map(of), [18, 18, 17, 17]);
}

#[test]
fn caps_saved_as_json_are_read_back() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("card.json");
    let saved = mlx5(&["caps", "-d", "connectx7", "--json"]);
    std::fs::write(&file, &saved.stdout).expect("a file");
    let again = mlx5(&["caps", "-d", file.to_str().expect("UTF-8"), "--json"]);
    assert_eq!(stdout(&again), stdout(&saved), "{}", stderr(&again));
    let diff = mlx5(&["caps", "--diff", "sim:connectx7", file.to_str().expect("UTF-8")]);
    assert!(stdout(&diff).contains("no capability differs"), "{}{}", stdout(&diff), stderr(&diff));
}

#[test]
fn caps_diff_names_what_differs_and_what_drivers_make_of_it() {
    let diff = json(&["caps", "--json", "--diff", "connectx5", "connectx7"]);
    let all = diff["capabilities"].as_array().expect("capabilities");
    let qp = all.iter().find(|one| one["capability"] == "log_max_qp").expect("log_max_qp differs");
    assert_eq!((&qp["a"]["max"], &qp["b"]["max"]), (&18.into(), &17.into()));
    let of_clock = diff["features"].as_array().expect("features").iter();
    let of_clock: Vec<_> = of_clock.filter(|one| one["capability"] == "device_frequency_khz").collect();
    assert!(of_clock.iter().any(|one| one["source"].as_str().is_some_and(|s| s.contains("en_ethtool.c"))), "{diff}");
    let text = stdout(&mlx5(&["caps", "--diff", "connectx5", "connectx7", "log_max_qp$"]));
    assert!(text.contains("log_max_qp") && !text.contains("device_frequency_khz"), "{text}");
}

#[test]
fn caps_says_which_pages_the_card_has_not_got() {
    let caps = json(&["caps", "--json"]);
    assert!(caps["absent"].as_object().is_some_and(|absent| absent.contains_key("macsec")), "{}", caps["absent"]);
    assert!(stdout(&mlx5(&["caps"])).contains("macsec (page 0x1f): the model has no such page"));
}

#[test]
fn a_saved_file_that_is_missing_or_none_is_an_error() {
    let output = mlx5(&["caps", "-d", "/nowhere/card.json"]);
    assert!(stderr(&output).contains("mlx5 caps --json"), "{}", stderr(&output));
    let output = mlx5(&["caps", "--diff", "sim", env!("CARGO_MANIFEST_PATH")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("Cargo.toml"), "{}", stderr(&output));
}

/// `mlx5` with `input` on its standard input.
fn mlx5_reading(arguments: &[&str], input: &str) -> Output {
    use std::io::Write;
    use std::process::Stdio;
    let mut child = Command::new(env!("CARGO_BIN_EXE_mlx5"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("mlx5 runs");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
    child.wait_with_output().expect("it ends")
}

const REFUSED: &str = "mlx5_core 0000:3b:00.0: mlx5_cmd_out_err:808:(pid 9): CREATE_CQ(0x400) op_mod(0x0) failed, \
    status limits exceeded(0x8), syndrome (0x62bbc6), err(-12)";

#[test]
fn explain_takes_a_line_as_arguments_from_a_file_and_from_standard_input() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("dmesg");
    std::fs::write(&file, REFUSED).expect("a file");
    let words: Vec<&str> = std::iter::once("explain").chain(REFUSED.split_whitespace()).collect();
    let outputs = [
        mlx5(&["explain", REFUSED]),
        mlx5(&words),
        mlx5(&["explain", file.to_str().expect("UTF-8")]),
        mlx5_reading(&["explain"], REFUSED),
        mlx5_reading(&["explain", "-"], REFUSED),
    ];
    for output in outputs {
        let text = stdout(&output);
        assert!(text.contains("CREATE_CQ failed") && text.contains("snabbco/snabb"), "{text}{}", stderr(&output));
    }
}

#[test]
fn explain_speaks_json() {
    let explained = json(&["explain", "--json", "wc", "12"])["explained"].clone();
    let syndrome = &explained[0]["fields"]["syndrome"];
    assert_eq!((&syndrome["value"], &syndrome["name"]), (&0x15.into(), &"TRANSPORT_RETRY_EXC_ERR".into()));
    assert_eq!(syndrome["text"], "TRANSPORT_RETRY_EXC_ERR (0x15)");
    assert!(explained[0]["causes"].as_array().is_some_and(|causes| !causes.is_empty()));
}

#[test]
fn explain_reads_what_dumpers_print() {
    let bytes = include_bytes!("hex/bytes.bin");
    // An error CQE is the 64 bytes from 0x10: what follows a dump of these is od's default, by octal words.
    let od: String = (0..4).fold(String::new(), |text, row| {
        let words = bytes[16 + row * 16..32 + row * 16].chunks(2);
        let words: Vec<String> = words.map(|w| format!("{:06o}", u16::from_le_bytes([w[0], w[1]]))).collect();
        format!("{text}{:07o} {}\n", row * 16, words.join(" "))
    }) + "0000100\n";
    let output = mlx5_reading(&["explain", "cqe", "-"], &od);
    let text = stdout(&output);
    assert!(text.contains("LOCAL_PROT_ERR of a send"), "{text}{}", stderr(&output));
    assert!(text.contains("words of 2 bytes, read as numbers of a little-endian host"), "{text}");
    let output = mlx5_reading(&["explain"], &od);
    assert!(stdout(&output).contains("LOCAL_PROT_ERR of a send"), "also without the kind: {}", stderr(&output));
}

#[test]
fn limits_of_the_software_card_are_named_as_a_models() {
    let caps = mlx5(&["caps", "-d", "sim:connectx7", "log_max_qp$"]);
    assert!(stdout(&caps).starts_with("limits of the software card sim:connectx7 (a model"), "{}", stdout(&caps));
    let diff = stdout(&mlx5(&["caps", "--diff", "connectx5", "connectx7"]));
    assert_eq!(diff.matches("the software card, a model whose limits are not a card's").count(), 2, "{diff}");
    let input = format!("0400{:028}{:024}19000000{}", 0, 0, "0".repeat(0xf0 * 2));
    let text = stdout(&mlx5(&["explain", "--caps", "connectx7", "command", &input]));
    assert!(text.contains("exceeds the limits of the software card") && !text.contains("a card would"), "{text}");
}

#[test]
fn a_closed_stderr_is_no_panic() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_mlx5"))
        .args(["caps", "-d", "nonsense"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("mlx5 runs");
    drop(child.stderr.take());
    assert_eq!(child.wait().expect("an end").code(), Some(2));
}

#[test]
fn explain_names_the_field_that_the_card_refuses() {
    let input = format!("0400{:028}{:024}19000000{}", 0, 0, "0".repeat(0xf0 * 2));
    let output = mlx5(&["explain", "--caps", "connectx5", "command", &input]);
    let text = stdout(&output);
    assert!(text.contains("CREATE_CQ: cq_context.log_cq_size=25 > log_max_cq_sz 22"), "{text}{}", stderr(&output));
}

#[test]
fn explain_says_what_it_cannot_explain_and_how_to_go_on() {
    for wrong in [&["explain", "hello"][..], &["explain", "cqe", "12"], &["explain", "command", "xyz"]] {
        let output = mlx5(wrong);
        assert_eq!(output.status.code(), Some(1), "{wrong:?}");
        assert_eq!(stdout(&output), "", "{wrong:?}");
        assert!(stderr(&output).starts_with("mlx5: ") && !stderr(&output).contains("panicked"), "{}", stderr(&output));
    }
}

#[test]
fn caps_says_what_its_logarithms_mean() {
    let text = stdout(&mlx5(&["caps", "^general.log_max_qp$"]));
    assert!(text.contains("18 (0x12)") && text.contains("262144 queue pairs"), "{text}");
}

#[test]
fn info_shows_the_card_and_says_why_it_does_not_know_the_rest() {
    let info = json(&["info", "--json"]);
    assert_eq!((&info["version"], &info["device"]), (&1.into(), &"sim".into()));
    assert_eq!(info["psid"], "SIM0000000005");
    assert_eq!((&info["port"]["speed_mbps"], &info["port"]["lanes"]), (&100_000.into(), &4.into()));
    assert_eq!((&info["port"]["state"], &info["gids"][0]["type"]), (&"up".into(), &"RoCE v2".into()));
    let limits = info["limits"].as_array().expect("limits");
    let qp = limits.iter().find(|limit| limit["capability"] == "log_max_qp").expect("queue pairs");
    assert_eq!((&qp["limit"], &qp["unit"]), (&262_144.into(), &"queue pairs".into()));
    for (key, reason) in info["unknown"].as_object().expect("reasons") {
        let value = info.pointer(&format!("/{}", key.replace('.', "/")));
        assert_eq!(value, Some(&Value::Null), "{key}: {reason}");
        assert!(reason.as_str().is_some_and(|reason| !reason.is_empty()), "{key}");
    }
    assert!(info["unknown"]["numa_node"].as_str().is_some_and(|reason| reason.contains("no PCI place")), "{info}");
    let text = stdout(&mlx5(&["info"]));
    assert!(text.contains("SIM0000000005") && text.contains("262144 queue pairs"), "{text}");
    assert_eq!(mlx5(&["info", "-d", "nonsense"]).status.code(), Some(2));
}

#[test]
fn list_offers_the_software_card() {
    let list = json(&["list", "--json"]);
    let cards = list["cards"].as_array().expect("cards");
    assert!(cards.iter().any(|card| card["ways"][0]["device"] == "sim" && card["ways"][0]["usable"] == true));
}

#[test]
fn doctor_gives_a_verdict_for_each_way() {
    // Where something is a problem, its status is not 0.
    let report = mlx5(&["doctor", "--json"]).stdout;
    let report: Value = serde_json::from_slice(&report).expect("JSON alone on stdout");
    let ways: Vec<&str> =
        report["verdicts"].as_array().expect("verdicts").iter().filter_map(|v| v["way"].as_str()).collect();
    assert_eq!(ways, ["sim", "vfio", "devx"]);
}

#[test]
fn a_wrong_device_string_is_an_error_on_stderr_alone() {
    for device in ["", "nonsense", "vfio:", "vfio:3b", "vfio-user:", "sim:connectx99", "0000:3b:00.0"] {
        let output = mlx5(&["caps", "-d", device]);
        assert_eq!(output.status.code(), Some(2), "{device:?}");
        assert_eq!(stdout(&output), "", "{device:?}");
        assert!(stderr(&output).starts_with("mlx5: "), "{device:?}: {}", stderr(&output));
        assert!(!stderr(&output).contains("panicked"), "{}", stderr(&output));
    }
}

#[test]
fn a_missing_device_says_what_is_missing() {
    let output = mlx5(&["caps", "-d", "vfio:ffff:ff:1f.7"]);
    assert!(stderr(&output).contains("no such PCI function"), "{}", stderr(&output));
    let output = mlx5(&["caps", "-d", "vfio-user:/nowhere/nic.sock"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("/nowhere/nic.sock"), "{}", stderr(&output));
    let output = mlx5(&["caps", "-d", "devx:mlx5_none"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("cannot open devx:mlx5_none"), "{}", stderr(&output));
}

#[test]
fn a_pattern_that_matches_nothing_is_an_error() {
    let output = mlx5(&["caps", "no_such_capability"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("no_such_capability"));
}

#[test]
fn sim_refuses_what_it_cannot_serve() {
    let dir = tempfile::tempdir().expect("a folder");
    let socket = dir.path().join("nic.sock");
    let socket = socket.to_str().expect("UTF-8");
    let wrong: [(&[&str], &str); 3] = [
        (&["--profile", "connectx99"], "connectx5"),
        (&["--mac", "01:00:00:00:00:00"], "unicast"),
        (&["--fault", "nonsense"], "nonsense"),
    ];
    for (arguments, expected) in wrong {
        let output = mlx5(&[&["sim", "--socket", socket], arguments].concat());
        assert!(!output.status.success(), "{arguments:?}");
        assert!(stderr(&output).contains(expected), "{arguments:?}: {}", stderr(&output));
    }
    std::fs::write(socket, "not a socket").expect("a file");
    let output = mlx5(&["sim", "--socket", socket]);
    assert!(stderr(&output).contains("is not a socket"), "{}", stderr(&output));
}

const TEARDOWN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/logs/teardown.txt");
const MAX_QP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/logs/max_qp.txt");

#[test]
fn decode_reads_a_kernel_log_from_a_file_and_from_a_pipe() {
    let output = mlx5(&["decode", MAX_QP]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("FAILED, status BAD_RESOURCE (0x5), syndrome 0x65b500"), "{text}");
    assert!(text.ends_with("2 commands: 1 failed, 0 without an answer; 0 problems\n"), "{text}");
    let piped = fed(&["decode"], &std::fs::read(MAX_QP).expect("the log"));
    assert_eq!(stdout(&piped), text);
}

#[test]
fn decode_prints_one_json_object_a_command() {
    let text = stdout(&mlx5(&["decode", "--json", MAX_QP]));
    let commands: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let results: Vec<&str> = commands.iter().filter_map(|command| command["result"].as_str()).collect();
    assert_eq!(results, ["ok", "failed"]);
    for key in ["layout", "fields", "uncovered", "bytes", "missing", "problems"] {
        assert!(!commands[0]["input"][key].is_null(), "{key}");
    }
    let failed = stdout(&mlx5(&["decode", "--json", "--failed", "--opcode", "create_qp", MAX_QP]));
    assert_eq!(failed.lines().collect::<Vec<_>>(), text.lines().skip(1).collect::<Vec<_>>());
    assert_eq!(stdout(&mlx5(&["decode", "--json", "--opcode", "0x400", MAX_QP])), "");
}

#[test]
fn decode_reads_hex_as_a_named_layout() {
    let hex = "07000000 00000010 00000000 00000000";
    let expected = stdout(&mlx5(&["decode", "--as", "cmd_layout", hex]));
    assert!(expected.contains("input_length = 0x10"), "{expected}");
    assert_eq!(
        stdout(&mlx5(&["decode", "--as", "CommandQueueEntry", "07000000", "00000010", "00000000", "00000000"])),
        expected
    );
    assert_eq!(
        stdout(&fed(&["decode", "--as", "mlx5_cmd_layout"], b"000: 07000000 00000010 00000000 00000000\r\n")),
        expected
    );
    let json = json(&["decode", "--json", "--as", "alloc_pd_in", "08000000 00000000 00000000 00000001"]);
    assert_eq!((json["layout"].as_str(), json["uncovered"][0]["offset"].as_u64()), (Some("alloc_pd_in"), Some(12)));
    let list = stdout(&mlx5(&["decode", "--list"]));
    assert!(list.lines().any(|line| line.starts_with("create_cq_in ") && line.contains("CreateCqIn")), "{list}");
}

#[test]
fn decode_says_what_it_cannot_read() {
    let wrong: [(&[&str], i32, &str); 6] = [
        (&["decode", "/nowhere/log"], 1, "/nowhere/log"),
        (&["decode", "--as", "creat_cq_in", "00"], 2, "create_cq_in"),
        (&["decode", "--as", "create_cq_in", "0g"], 1, "`0g`"),
        (&["decode", "--opcode", "CREATE_QQ", TEARDOWN], 2, "CREATE_CQ"),
        (&["decode", TEARDOWN, MAX_QP], 2, "one log at a time"),
        (&["decode", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")], 1, "dynamic_debug/control"),
    ];
    for (arguments, status, expected) in wrong {
        let output = mlx5(arguments);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}");
        assert_eq!(stdout(&output), "", "{arguments:?}");
        assert!(stderr(&output).contains(expected), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn decode_ends_in_peace_when_nobody_reads() {
    let log = std::fs::read(MAX_QP).expect("the log").repeat(200);
    let mut child = Command::new(env!("CARGO_BIN_EXE_mlx5"))
        .arg("decode")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("mlx5 runs");
    drop(child.stdout.take());
    // It stops reading, too.
    let _ = child.stdin.take().expect("a pipe").write_all(&log);
    let output = child.wait_with_output().expect("an end");
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
}

/// Runs `mlx5` with `input` on its stdin.
fn fed(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_mlx5"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("mlx5 runs");
    let mut pipe = child.stdin.take().expect("a pipe");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || pipe.write_all(&input));
    let output = child.wait_with_output().expect("an end");
    writer.join().expect("no panic").expect("it reads to the end");
    output
}

#[test]
fn doctor_fails_if_and_only_if_something_is_a_problem() {
    let output = mlx5(&["doctor", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON alone on stdout");
    let findings = report["findings"].as_array().expect("findings");
    let problems = findings.iter().filter(|finding| finding["severity"] == "problem").count();
    assert_eq!(output.status.code(), Some(i32::from(problems > 0)), "{report}");
    assert_eq!(stderr(&output).is_empty(), problems == 0, "{}", stderr(&output));
}

#[test]
fn counters_have_the_names_of_linux_and_count_what_was_sent() {
    let counters = json(&["counters", "--json"]);
    let port = counters["groups"]["port"]["counters"].as_object().expect("the port's counters");
    for name in ["tx_packets_phy", "rx_discards_phy", "rx_64_bytes_phy", "link_down_events_phy", "rx_prio7_pause"] {
        assert!(port[name]["value"].is_u64(), "{name}");
    }
    assert_eq!(port["tx_packets_phy"]["prm"], "a_frames_transmitted_ok");
    assert!(counters["groups"]["vport"]["counters"]["rx_vport_rdma_unicast_packets"]["value"].is_u64());
    for group in ["queue", "infiniband", "netdev", "port.PHYSICAL_LAYER_STATISTICAL"] {
        assert!(counters["unknown"][group].as_str().is_some_and(|reason| !reason.is_empty()), "{group}: {counters}");
    }
    assert_eq!(counters["unknown"]["port.PHYSICAL_LAYER_STATISTICAL"], "the card has none: pcam_reg is 0");
    let text = stdout(&mlx5(&["counters", "^port\\.tx_packets", "-w", "1"]));
    assert!(text.contains("rates over 1.") && text.contains("0.0/s") && !text.contains("rx_"), "{text}");
}

#[test]
fn help_is_help_after_a_kind_too() {
    for arguments in [["explain", "--help"].as_slice(), &["explain", "cqe", "--help"], &["explain", "wc", "-h"]] {
        assert!(stdout(&mlx5(arguments)).contains("Usage: mlx5 explain"), "{arguments:?}");
    }
}

#[test]
fn manual_pages_and_completions_know_every_command() {
    let dir = tempfile::tempdir().expect("a folder");
    let output = mlx5(&["man", dir.path().to_str().expect("UTF-8")]);
    assert!(output.status.success(), "{}", stderr(&output));
    let help = stdout(&mlx5(&["--help"]));
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let commands: Vec<&str> = commands.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(commands.len() > 10, "{help}");
    for name in commands.iter().filter(|name| **name != "help") {
        let page = std::fs::read_to_string(dir.path().join(format!("mlx5-{name}.1"))).expect("a page");
        assert!(page.contains(".TH") && page.contains("Exit status:"), "{page}");
        for shell in ["bash", "zsh", "fish"] {
            let script = stdout(&mlx5(&["completions", shell]));
            assert!(script.contains(name), "{shell} does not know {name}");
        }
    }
    let nowhere = mlx5(&["man", "/nowhere/man1"]);
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(stderr(&nowhere).contains("/nowhere/man1"), "{}", stderr(&nowhere));
}

#[test]
fn explain_tells_what_it_reads_before_its_input_ends() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_mlx5"))
        .arg("explain")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("mlx5 runs");
    let mut input = child.stdin.take().expect("a pipe");
    writeln!(input, "{REFUSED}").expect("it reads");
    let mut output = std::io::BufReader::new(child.stdout.take().expect("a pipe"));
    let mut told = String::new();
    // The pipe stays open: what is told now is told before the end.
    while !told.contains("CREATE_CQ failed") {
        assert_ne!(std::io::BufRead::read_line(&mut output, &mut told).expect("a line"), 0, "it ended: {told}");
    }
    drop(input);
    assert!(child.wait().expect("an end").success());
}
