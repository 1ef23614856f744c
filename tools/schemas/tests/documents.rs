//! Every JSON document against its schema in docs/json/, by a validator of others.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn schemas() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json")
}

/// The program, which `.ci/schemas` builds.
fn program() -> OsString {
    std::env::var_os("MLX5").expect("MLX5 names the program: run .ci/schemas")
}

/// Why `document` is not as the schema `name` says; empty if it is.
fn objections(name: &str, document: &Value) -> Vec<String> {
    let text = std::fs::read_to_string(schemas().join(format!("{name}.json"))).expect("a schema");
    let schema: Value = serde_json::from_str(&text).expect("JSON");
    let validator = jsonschema::draft202012::new(&schema).expect("a valid schema");
    validator.iter_errors(document).map(|error| format!("{name}: {}: {error}", error.instance_path())).collect()
}

fn mlx5(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(program())
        .args(arguments)
        .env("RUST_LOG", "error")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("mlx5 runs");
    // It may end without reading.
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    child.wait_with_output().expect("it ends")
}

const REFUSED: &str = "mlx5_core 0000:3b:00.0: mlx5_cmd_out_err:808:(pid 9): CREATE_CQ(0x400) op_mod(0x0) failed, \
    status limits exceeded(0x8), syndrome (0x62bbc6), err(-12)";
const MAX_QP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../mlx5/tests/logs/max_qp.txt");

/// Schema, arguments, and whether each line of the output is a document.
const DOCUMENTS: [(&str, &[&str], bool); 20] = [
    ("list", &["list"], false),
    ("info", &["info"], false),
    ("counters", &["counters"], false),
    ("counters", &["counters", "-w", "1", "-n", "2", "phy"], true),
    ("caps", &["caps"], false),
    ("caps", &["caps", "--cur", "log_max"], false),
    ("caps-diff", &["caps", "--diff", "connectx5", "connectx7"], false),
    ("explain", &["explain", "wc", "12"], false),
    ("explain", &["explain", REFUSED], false),
    ("explain", &["explain", "command", MAX_QP], false),
    ("decode", &["decode", MAX_QP], true),
    ("decode", &["decode", "--all", MAX_QP], true),
    ("decode-layout", &["decode", "--as", "alloc_pd_in", "08000000 00000000 00000000 00000001 02"], false),
    ("decode-list", &["decode", "--list"], false),
    ("perf", &["perf", "lat", "write", "-n", "20"], false),
    ("perf", &["perf", "bw", "send", "-n", "20", "-b", "-l", "4", "-a"], false),
    ("perf-packet", &["perf", "packet", "tx", "-n", "500", "-q", "2", "-s", "64,1518"], false),
    ("perf-packet", &["perf", "packet", "lat", "-n", "20"], false),
    ("perf-packet", &["perf", "packet", "forward", "-n", "20"], false),
    ("doctor", &["doctor"], false),
];

#[test]
fn every_document_is_as_its_schema_says() {
    let mut wrong = Vec::new();
    for (schema, arguments, lines) in DOCUMENTS {
        let output = mlx5(&[&["--json"], arguments].concat(), "");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        let documents: Vec<&str> = if lines { text.lines().collect() } else { vec![&text] };
        assert!(!documents.is_empty(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        for document in documents {
            let document: Value =
                serde_json::from_str(document).unwrap_or_else(|e| panic!("{arguments:?}: {e}: {text}"));
            wrong.extend(objections(schema, &document).into_iter().map(|why| format!("{arguments:?}: {why}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_card_that_is_served_says_where_as_its_schema_says() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut child = Command::new(program())
        .args(["sim", "--json", "--socket"])
        .arg(dir.path().join("nic.sock"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("mlx5 runs");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    assert_eq!(objections("sim", &serde_json::from_str(&line).expect("JSON")), [""; 0]);
}

#[test]
fn an_error_is_one_line_of_json_on_stderr_with_the_exit_status() {
    let wrong: [(&[&str], i32, &str); 6] = [
        (&["caps", "-d", "nonsense"], 2, "nonsense"),
        (&["caps", "--max", "--cur"], 2, "cannot be used with"),
        (&["caps", "-d", "vfio-user:/nowhere/nic.sock"], 1, "/nowhere/nic.sock"),
        (&["explain", "-"], 1, "nothing recognised"),
        (&["decode", "/nowhere/\u{1b}[2J"], 1, "\\u{1b}[2J"),
        (&["perf", "bw", "write", "-l", "200"], 2, "raise -t"),
    ];
    for (arguments, status, words) in wrong {
        let output = mlx5(&[&["--json"], arguments].concat(), "");
        let text = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!((output.status.code(), text.lines().count()), (Some(status), 1), "{arguments:?}: {text}");
        let error: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {text}"));
        assert_eq!(objections("error", &error), [""; 0], "{arguments:?}");
        assert_eq!(error["exit_status"], status, "{arguments:?}");
        assert!(error["error"].as_str().is_some_and(|said| said.contains(words)), "{arguments:?}: {text}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_schema_refuses_what_is_missing_unknown_or_of_another_type() {
    let good = mlx5(&["--json", "counters", "tx_packets_phy"], "");
    let good: Value = serde_json::from_slice(&good.stdout).expect("JSON");
    assert_eq!(objections("counters", &good), [""; 0]);
    let mut without = good.clone();
    without.as_object_mut().expect("an object").remove("version");
    let mut more = good.clone();
    more["surprise"] = 1.into();
    let mut other = good.clone();
    other["groups"]["port"]["counters"]["tx_packets_phy"]["value"] = "12".into();
    for wrong in [without, more, other] {
        assert!(!objections("counters", &wrong).is_empty(), "{wrong}");
    }
}

#[test]
fn every_schema_is_used_and_listed() {
    let used = DOCUMENTS.iter().map(|(schema, ..)| *schema).chain(["sim", "error"]);
    let used: BTreeSet<String> = used.map(str::to_owned).collect();
    let files = std::fs::read_dir(schemas()).expect("the folder").map(|entry| entry.expect("an entry").path());
    let names = files.filter(|path| path.extension().is_some_and(|end| end == "json"));
    let names = names.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()));
    assert_eq!(names.collect::<BTreeSet<String>>(), used);
    let readme = std::fs::read_to_string(schemas().join("README.md")).expect("a README");
    used.iter().for_each(|name| assert!(readme.contains(&format!("{name}.json")), "{name}"));
}
