//! Two software cards in two processes with one wire, as on two hosts, with `rc_pingpong` as server and client.

mod common;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::{TestResult, build, free_port};
use mlx5_lab::{Build, Model};

/// `rc_pingpong` on the card at `socket`.
fn pingpong(build: &Build, socket: &Path, arguments: &[&str]) -> Result<Command, common::Report> {
    let mut command = Command::new(build.program("rc_pingpong")?);
    command.arg("-d").arg(format!("vfio-user:{}", socket.display())).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command)
}

fn assert_success(who: &str, output: &Output, models: &[&Model]) {
    let said: String = models.iter().map(|model| model.stderr()).collect();
    assert!(
        output.status.success(),
        "the {who} ended with {}:\n{}{}\nthe models said:\n{said}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Runs the server on `server` and the client on `client`, every byte checked.
fn play(build: &Build, models: &[&Model], server: &Path, client: &Path, arguments: &[&str]) -> TestResult {
    let port = free_port()?.to_string();
    let common: Vec<&str> = ["-c", "-p", &port].into_iter().chain(arguments.iter().copied()).collect();
    let listening: Vec<&str> = common.iter().copied().chain(["--listen"]).collect();
    let calling: Vec<&str> = common.iter().copied().chain(["127.0.0.1"]).collect();
    let server = pingpong(build, server, &listening)?.spawn()?;
    let client = pingpong(build, client, &calling)?.output()?;
    assert_success("client", &client, models);
    assert_success("server", &server.wait_with_output()?, models);
    let said = String::from_utf8_lossy(&client.stdout).into_owned();
    assert!(said.contains("remote address: LID 0x0000, QPN 0x"), "{said}");
    Ok(())
}

/// As [`play`], connected by the connection managers of both; the server's function has the address `host`.
fn play_managed(
    build: &Build,
    models: &[&Model],
    server: &Path,
    client: &Path,
    host: &str,
    more: &[&str],
) -> TestResult {
    let common = [&["-c", "-R"], more].concat();
    let mut server = pingpong(build, server, &[&common[..], &["--listen"]].concat())?.spawn()?;
    let mut lines = BufReader::new(server.stdout.take().ok_or("standard output of the server")?).lines();
    while !lines.next().ok_or("the server ended before it listened")??.contains("listening on port") {}
    let client = pingpong(build, client, &[&common[..], &[host]].concat())?.output()?;
    assert_success("client", &client, models);
    let said: String = lines.collect::<Result<_, _>>()?;
    assert_success("server", &server.wait_with_output()?, models);
    assert!(said.contains("connected from [fe80::"), "{said}");
    Ok(())
}

/// `mlx5 perf` with `-R`, by both operations that need the other end's memory or its receives.
fn measure_managed(build: &Build, models: &[&Model], server: &Path, client: &Path) -> TestResult {
    for test in ["lat write -n 50", "bw send -n 50 -q 20"] {
        let port = free_port()?.to_string();
        let perf = |socket: &Path, end: &str| -> Result<Command, common::Report> {
            let mut command = Command::new(build.program("mlx5")?);
            command.arg("perf").args(test.split(' ')).args(["-R", "-p", &port, "-d"]);
            command.arg(format!("vfio-user:{}", socket.display())).arg(end);
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            Ok(command)
        };
        let server = perf(server, "--listen")?.spawn()?;
        let client = perf(client, "127.0.0.1")?.output()?;
        assert_success("client", &client, models);
        assert_success("server", &server.wait_with_output()?, models);
    }
    Ok(())
}

#[test]
fn two_functions_of_one_card_talk_over_its_wire() -> TestResult {
    let build = build()?;
    let model = Model::start(&build, 2, &[])?;
    let [first, second] = model.sockets() else { return Err("two sockets".into()) };
    play(&build, &[&model], first, second, &["-n", "500"])?;
    play(&build, &[&model], second, first, &["-n", "20", "-s", "100000", "-m", "4096"])?;
    // The MAC address of the second function, as the model numbers them.
    play_managed(&build, &[&model], second, first, "fe80::c5ff:fe00:2", &["--uc", "-n", "100"])?;
    measure_managed(&build, &[&model], second, first)?;
    assert!(model.violations().is_empty(), "{}", model.stderr());
    Ok(())
}

#[test]
fn two_cards_in_two_processes_talk_over_a_wire_that_loses_packets() -> TestResult {
    let build = build()?;
    let dir = tempfile::tempdir()?;
    let wire = dir.path().join("wire");
    let wire = wire.to_str().ok_or("a path in UTF-8")?;
    let first = Model::start(&build, 1, &["--wire", wire, "--mac", "02:00:c5:00:01:00", "--fault", "loss:1%"])?;
    let second = Model::start(&build, 1, &["--wire", wire, "--mac", "02:00:c5:00:02:00"])?;
    let models = [&first, &second];
    play(&build, &models, &first.sockets()[0], &second.sockets()[0], &["-n", "300", "-s", "9000", "-m", "2048"])?;
    let (near, far) = (&first.sockets()[0], &second.sockets()[0]);
    play_managed(&build, &models, far, near, "fe80::c5ff:fe00:200", &["-n", "100", "-s", "9000", "-m", "2048"])?;
    for model in models {
        assert!(model.violations().is_empty(), "{}", model.stderr());
    }
    Ok(())
}
