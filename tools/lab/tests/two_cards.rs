//! Two software cards in two processes with one wire, as on two hosts, with `rc_pingpong` as server and client.

mod common;

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

#[test]
fn two_functions_of_one_card_talk_over_its_wire() -> TestResult {
    let build = build()?;
    let model = Model::start(&build, 2, &[])?;
    let [first, second] = model.sockets() else { return Err("two sockets".into()) };
    play(&build, &[&model], first, second, &["-n", "500"])?;
    play(&build, &[&model], second, first, &["-n", "20", "-s", "100000", "-m", "4096"])?;
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
    for model in models {
        assert!(model.violations().is_empty(), "{}", model.stderr());
    }
    Ok(())
}
