//! `mlx5 decode` and `mlx5 explain` on the command log of Debian's unmodified mlx5_core. Every command that the model
//! executed is found in the log, byte for byte, and no successful one is reported as faulty.

mod common;

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use common::{TestResult, build};
use mlx5_lab::{Build, Guest, Model};
use serde_json::Value;

/// A probe takes a second, longer with every command logged.
const PROBE: Duration = Duration::from_secs(300);

/// Inputs and outputs of each slot, in hex, in order.
type Slots = BTreeMap<u64, Vec<(String, String)>>;

/// The commands that the model logs as executed.
fn carried_out(said: &str) -> Slots {
    let mut slots = Slots::new();
    for line in said.lines() {
        let Some((_, message)) = line.split_once("mlx5_sim::command: slot ") else { continue };
        let mut words = message.splitn(3, ' ');
        let slot = words.next().and_then(|slot| slot.parse().ok()).expect("a slot");
        let (way, bytes) = (words.next().expect("a way"), words.next().expect("bytes"));
        let hex = bytes.trim_matches(['[', ']']).replace(", ", "");
        let commands: &mut Vec<(String, String)> = slots.entry(slot).or_default();
        match (way, commands.last_mut()) {
            ("input", _) => commands.push((hex, String::new())),
            (_, Some((_, output))) => *output = hex,
            (_, None) => panic!("an output without input: {line}"),
        }
    }
    slots
}

/// What `mlx5` prints for a log.
fn said(build: &Build, arguments: &[&str], log: &str) -> Result<String, common::Report> {
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("dmesg.txt");
    std::fs::write(&file, log)?;
    let output = Command::new(build.program("mlx5")?).args(arguments).arg(&file).output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// The commands that `mlx5 decode` finds in a log.
fn decoded(build: &Build, log: &str) -> Result<Vec<Value>, common::Report> {
    let text = said(build, &["decode", "--json"], log)?;
    Ok(text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
}

/// Fails if `mlx5 explain` finds fault with a command that succeeded: beyond a capability, or contradicting itself.
fn assert_within_limits(build: &Build, log: &str) -> TestResult {
    let explained = said(build, &["explain", "--json", "--all", "--caps", "sim", "command"], log)?;
    let explained: Value = serde_json::from_str(&explained)?;
    let reports = explained["explained"].as_array().expect("a list");
    assert!(reports.len() > 20, "a probe takes more than {} commands", reports.len());
    let refused = |report: &&Value| report["fields"]["outcome"].is_string();
    for report in reports.iter().filter(|report| !refused(report)) {
        assert!(report["offending"].is_null(), "{}: {}", report["what"], report["offending"]);
    }
    Ok(())
}

/// Fails if a command is damaged, unanswered, or has bits that no layout covers.
fn assert_whole(command: &Value) {
    let name = &command["command"];
    assert_ne!(command["result"], "unanswered", "{name}: {}", command["reason"]);
    for message in [&command["input"], &command["output"]] {
        assert!(message["layout"].is_string(), "{name} has no layout");
        for what in ["problems", "uncovered", "missing"] {
            assert_eq!(message[what], serde_json::json!([]), "{name}: {what}, line {}", message["line"]);
        }
    }
}

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn every_command_of_a_probe_is_decoded_from_the_kernels_log() -> TestResult {
    let build = build()?;
    let model = Model::start_saying(&build, 1, &[], "warn,mlx5_sim::command=trace")?;
    let guest = Guest::builder("decode").nic(&model.sockets()[0]).kernel_arg("log_buf_len=32M").boot()?;
    guest.check("modprobe mlx5_core dyndbg=+p", PROBE)?;
    guest.check("rmmod mlx5_core", PROBE)?;
    // By dmesg, as the log is long and the lab follows it line by line.
    let log = guest.check("dmesg", PROBE)?;
    let commands = decoded(&build, &log)?;
    commands.iter().for_each(assert_whole);
    assert_within_limits(&build, &log)?;

    let expected = carried_out(&model.stderr());
    let count = expected.values().map(Vec::len).sum::<usize>();
    assert!(count > 20, "a probe takes more than {count} commands");
    assert_eq!(commands.len(), count, "commands in the log, and commands the model carried out");
    let mut found = Slots::new();
    for command in &commands {
        let bytes = |message: &Value| message["bytes"].as_str().unwrap_or_default().to_owned();
        let slot = command["slot"].as_u64().expect("this kernel names slots");
        found.entry(slot).or_default().push((bytes(&command["input"]), bytes(&command["output"])));
    }
    for (slot, expected) in &expected {
        for (at, ((input, output), (sent, got))) in expected.iter().zip(&found[slot]).enumerate() {
            assert_eq!(input, sent, "input {at} of slot {slot}");
            // The driver may have given more room than the output needs.
            let room = got.get(output.len().min(got.len())..).unwrap_or_default();
            assert!(output.starts_with(got.as_str()) || got.starts_with(output.as_str()), "output {at} of slot {slot}");
            assert!(room.bytes().all(|digit| digit == b'0'), "output {at} of slot {slot}: {room}");
        }
    }
    guest.power_off()?;
    Ok(())
}
