//! Ceph's messenger of Debian over RDMA (`ms_type = async+rdma`): its two ends on each other over two functions of the
//! model, and each with the end of ours, `ceph_msgr`.

#[path = "../common/mod.rs"]
mod common;

use std::time::Duration;

mod megabytes;

use common::{Lab, PROBE, Report, TestResult, assert_lawful};
use mlx5_lab::ceph::{ADDRESS, CHUNKS, LISTENING, NETWORK, SETTINGS, command};
use mlx5_lab::{Build, Guest, Job, Model, Software, rounds};

/// How long a client may take on emulated processors of a busy host: a long form has up to a thousand broken
/// connections.
fn patience() -> Duration {
    Duration::from_secs(rounds(600, 4 * 3600) as u64)
}

/// Of our client: as many messages of 1 MiB at a time as Ceph's server has received chunks for, which ends by an
/// assertion of its own when it has none left.
const FEW: &str = "--jobs 1 --concurrency 2";

/// A guest of this name, and a model that gets `arguments`.
fn boot(name: &str, arguments: &[&str]) -> Result<Lab, Report> {
    boot_with(name, &Build::dev(&["ceph_msgr"], &[])?, arguments)
}

/// The same, with `ceph_msgr` of this build. The model is optimized in any.
fn boot_with(name: &str, build: &Build, arguments: &[&str]) -> Result<Lab, Report> {
    let ceph = Software::ceph()?;
    let model = Model::start(&Build::dev(&["mlx5"], &[])?, 2, arguments)?;
    let sockets = model.sockets();
    let guest =
        Guest::builder(name).memory_mib(3072).nic(&sockets[0]).nic(&sockets[1]).share(ceph.folder(), ceph.place());
    // Each end calculates the CRC of every byte.
    let guest = guest.hide_crc().programs(build);
    let lab = Lab { guest: guest.boot()?, model };
    lab.check("modprobe mlx5_ib", PROBE)?;
    lab.check(NETWORK, PROBE)?;
    Ok(lab)
}

/// A script that runs one of Ceph's programs on function `device`.
fn ceph(device: &str, program: &str) -> String {
    format!("{SETTINGS}{}", command(device, program))
}

/// Ceph's server, on the first function.
fn their_server() -> String {
    ceph("mlx5_0", &format!("ceph_perf_msgr_server {ADDRESS} 1 0"))
}

/// Runs Ceph's client on the second function: `operations` of `bytes`, some at a time.
fn their_client(lab: &Lab, server: &Job<'_>, bytes: usize, operations: usize) -> TestResult {
    let at_once = if bytes > 4096 { 2 } else { 8 };
    let client = format!("ceph_perf_msgr_client {ADDRESS} 1 {at_once} {operations} 0 {bytes}");
    let said = run(lab, server, &ceph("mlx5_1", &client))?;
    assert!(said.contains(&format!("Total op {operations} run time")), "{said}");
    println!(
        "Ceph's client: {operations} operations of {bytes} bytes:{}",
        said.rsplit("run time").next().unwrap_or("")
    );
    Ok(())
}

/// Runs a client to its end. An error has what the server said.
fn run(lab: &Lab, server: &Job<'_>, client: &str) -> Result<String, Report> {
    let ran = lab.guest.check(&format!("{client} 2>&1"), patience());
    ran.map_err(|error| lab.explain(format!("{error}\nthe server said:\n{}", server.so_far())))
}

/// Ceph's own two ends: a test of the model alone.
fn theirs_on_theirs(lab: &Lab) -> TestResult {
    let server = lab.serve(&their_server(), LISTENING)?;
    their_client(lab, &server, 4096, rounds(200, 20_000))?;
    their_client(lab, &server, 1 << 20, rounds(5, 500))
}

/// Ceph's client on our server, which checks every byte. Once it breaks the connection now and then: the client comes
/// back to its session, and nothing is done twice or left out.
fn their_client_on_our_server(lab: &Lab) -> TestResult {
    // Ceph's client takes seconds to come back.
    for kill in ["".into(), format!("--kill-every {}", rounds(100, 1000))] {
        let server = lab.serve(&format!("ceph_msgr server -d devx:mlx5_0 {CHUNKS} {kill} {ADDRESS}"), LISTENING)?;
        their_client(lab, &server, 4096, rounds(300, 100_000))?;
        their_client(lab, &server, 1 << 20, rounds(5, 1000))?;
        let said = server.so_far();
        let last = said.lines().rfind(|line| line.contains("bytes checked")).unwrap_or_default();
        assert!(!last.is_empty() && last.contains(" 0 sessions resumed") == kill.is_empty(), "{said}");
    }
    Ok(())
}

/// Sessions at the same time, each of a connection of its own.
const MANY: usize = 200;

/// As many clients of Ceph's on our server as the hub has connections for, nearly. Ceph's client goes when it has given
/// its last operation to its messenger, with those it may have at a time and one more still unanswered: our server may
/// not get these, and gets every other one.
fn many_of_theirs_on_our_server(lab: &Lab) -> TestResult {
    const AT_ONCE: usize = 2;
    let mut server = lab.serve(&format!("ceph_msgr server -d devx:mlx5_0 {CHUNKS} {ADDRESS}"), LISTENING)?;
    let operations = rounds(10, 500);
    let client = format!("ceph_perf_msgr_client {ADDRESS} {MANY} {AT_ONCE} {operations} 0 4096");
    let said = run(lab, &server, &ceph("mlx5_1", &client))?;
    println!("Ceph's client, {MANY} connections:{}", said.rsplit("Total op").next().unwrap_or(""));
    server.wait_until(|said| said.matches("connection ended").count() >= MANY, PROBE)?;
    let said = server.so_far();
    // On a busy machine an exchange may take longer than either end waits, and is done once more.
    let clients = said.matches("a client is there").count();
    assert!((MANY..MANY + MANY / 10).contains(&clients), "{clients} clients\n{said}");
    let at_a_time = most_at_a_time(&said);
    println!("{at_a_time} connections at a time");
    assert!(at_a_time > MANY / 2, "{at_a_time} connections at a time\n{said}");
    let all = MANY * operations;
    let done = (all - MANY * (AT_ONCE + 1)..=all)
        .find(|done| said.contains(&format!("; {done} operations, {} bytes checked", done * 4096)));
    assert!(done.is_some(), "{said}");
    Ok(())
}

/// The most connections that the server whose output is `said` had at a time.
fn most_at_a_time(said: &str) -> usize {
    let (mut now, mut most) = (0usize, 0);
    for line in said.lines() {
        now += usize::from(line == "a client is there");
        now = now.saturating_sub(usize::from(line.contains("connection ended")));
        most = most.max(now);
    }
    most
}

/// Our client on Ceph's server, whose sessions are lossy: what was not answered when a connection broke is sent again.
fn our_client_on_their_server(lab: &Lab) -> TestResult {
    let server = lab.serve(&their_server(), LISTENING)?;
    for (bytes, operations, more) in [
        (4096, rounds(100, 25_000), "--jobs 4"),
        (1 << 20, rounds(5, 1000), FEW),
        (4096, rounds(100, 5000), "--jobs 2 --kill-every 60"),
        // Four times a keep-alive without a sign of life would be an end: Ceph's server answers each.
        (4096, 2, "--jobs 2 --keepalive 0.25 --think-time 2 -c 1"),
    ] {
        let client = format!("ceph_msgr client -d devx:mlx5_1 {CHUNKS} -n {operations} -s {bytes} {more} {ADDRESS}");
        let said = run(lab, &server, &client)?;
        println!("our client, {more}: {said}");
        assert!(said.contains(" operations of "), "{said}");
        assert_eq!(said.contains("a connection broke"), more.contains("kill"), "{said}");
    }
    Ok(())
}

/// IPv4 addresses of the two functions. Prints the indices of their GIDs.
const IPV4: &str = r#"
set -e
for number in 0 1; do
    port=/sys/class/infiniband/mlx5_$number
    ip addr add 10.1.0.$((number + 1))/24 dev $(ls $port/device/net)
    cd $port/ports/1/gids
    for wait in $(seq 300); do grep -qi ffff:0a01:000$((number + 1)) * 2> /dev/null && break; sleep 0.1; done
    grep -li ffff:0a01:000$((number + 1)) * 2> /dev/null | tail -n 1
done
"#;

/// Our two ends by IPv4, whose GIDs say nothing of MAC addresses: the kernel tells them.
fn ours_on_ours_by_ipv4(lab: &Lab) -> TestResult {
    let indices = lab.check(IPV4, PROBE)?;
    let mut indices = indices.split_whitespace();
    let (near, far) = (indices.next().ok_or("a GID")?, indices.next().ok_or("a second GID")?);
    let server = lab.serve(&format!("ceph_msgr server -d devx:mlx5_0 -x {near} {CHUNKS} {ADDRESS}"), LISTENING)?;
    let client = format!("ceph_msgr client -d devx:mlx5_1 -x {far} {CHUNKS} -n 50 -s 4096 --jobs 2 {ADDRESS}");
    let said = run(lab, &server, &client)?;
    assert!(said.contains(" operations of "), "{said}");
    Ok(())
}

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn operations_pass_between_cephs_messenger_and_ours() -> TestResult {
    let lab = boot("ceph", &[])?;
    ours_on_ours_by_ipv4(&lab)?;
    their_client_on_our_server(&lab)?;
    many_of_theirs_on_our_server(&lab)?;
    our_client_on_their_server(&lab)?;
    theirs_on_theirs(&lab)?;
    lab.assert_quiet()?;
    lab.guest.power_off()?;
    assert_lawful(&lab.model);
    Ok(())
}

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn operations_pass_though_one_frame_in_a_hundred_is_lost() -> TestResult {
    let lab = boot("ceph_lossy", &["--fault", "loss:1%"])?;
    let server = lab.serve(&format!("ceph_msgr server -d devx:mlx5_0 {CHUNKS} {ADDRESS}"), LISTENING)?;
    their_client(&lab, &server, 4096, rounds(100, 100_000))?;
    their_client(&lab, &server, 1 << 20, rounds(3, 200))?;
    drop(server);
    let server = lab.serve(&their_server().replace("6800", "6801"), &LISTENING.replace("1A90", "1A91"))?;
    for (bytes, operations, more) in [(4096, rounds(100, 100_000), ""), (1 << 20, rounds(3, 200), FEW)] {
        let client =
            format!("ceph_msgr client -d devx:mlx5_1 {CHUNKS} -n {operations} -s {bytes} {more} 127.0.0.1:6801");
        let said = run(&lab, &server, &client)?;
        assert!(said.contains(" operations of "), "{said}");
    }
    drop(server);
    lab.assert_quiet()?;
    lab.guest.power_off()?;
    assert_lawful(&lab.model);
    Ok(())
}
