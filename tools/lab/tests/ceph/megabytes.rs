//! 100 000 operations of 1 MiB, each way, with frames lost and without. Each takes so long that it is a test of its
//! own, which is asked for by name, with our end in the release profile.

use mlx5_lab::Build;
use mlx5_lab::ceph::{ADDRESS, LISTENING, SETTINGS, command};

use super::common::{Lab, PROBE, TestResult, assert_lawful};
use super::{boot_with, run};

/// Operations of each test.
const OPERATIONS: usize = 100_000;
/// Operations of one call of a client: each call says how many were done so far.
const OF_A_CALL: usize = 2000;
const BYTES: usize = 1 << 20;
/// A model that loses one frame in a hundred.
const LOSSY: [&str; 2] = ["--fault", "loss:1%"];

/// What a client has under way.
struct Load {
    connections: usize,
    /// Operations of each connection.
    at_once: usize,
}

const ALONE: Load = Load { connections: 1, at_once: 2 };
/// Where frames are lost, a connection stands still now and then until a card's timer expires, and Ceph's has 1.07
/// seconds (`Infiniband.cc`, `qpa.timeout = 0x12`): meanwhile others go on.
const MANY: Load = Load { connections: 16, at_once: 1 };

/// Added to the settings of Ceph's ends: chunks of 128 KiB, as by default, and no polling, which holds up the other end
/// where processors take turns. Ours have as many by default.
const LARGE_CHUNKS: &str = "CEPH_ARGS+=' --ms_async_rdma_buffer_size=131072 --ms_async_rdma_send_buffers=128 \
    --ms_async_rdma_receive_buffers=1024 --ms_async_rdma_polling_us=0'\n";
/// Of our ends.
const NO_POLLING: &str = "--empty-turns 0";

/// Ceph's client on our server, which compares every byte.
fn cephs_client_on_our_server(name: &str, arguments: &[&str], load: Load) -> TestResult {
    let lab = boot_with(name, &Build::release(&["ceph_msgr"], &[])?, arguments)?;
    let mut server = lab.serve(&format!("ceph_msgr server -d devx:mlx5_0 {NO_POLLING} {ADDRESS}"), LISTENING)?;
    let Load { connections, at_once } = load;
    let each = OF_A_CALL / connections;
    let client = ceph("mlx5_1", &format!("ceph_perf_msgr_client {ADDRESS} {connections} {at_once} {each} 0 {BYTES}"));
    let (mut done, mut ended) = (0, 0);
    // It may go before its last operations are answered.
    while done < OPERATIONS {
        let said = run(&lab, &server, &client)?;
        ended += connections;
        server.wait_until(|said| said.matches("connection ended").count() >= ended, PROBE)?;
        let before = std::mem::replace(&mut done, checked(&server.so_far()));
        println!("{done} operations of Ceph's client, compared:{}", said.rsplit("Total op").next().unwrap_or(""));
        assert!(done > before, "{said}\n{}", server.so_far());
    }
    drop(server);
    end(lab)
}

/// A script that runs one of Ceph's programs on function `device`.
fn ceph(device: &str, program: &str) -> String {
    format!("{SETTINGS}{LARGE_CHUNKS}{}", command(device, program))
}

/// How many operations our server has compared, by what it `said`.
fn checked(said: &str) -> usize {
    let numbers = said.lines().rev().find_map(|line| line.split_once("; ")?.1.split_once(" bytes checked"));
    let (operations, bytes) = numbers.and_then(|(both, _)| both.split_once(" operations, ")).unwrap_or(("0", "0"));
    let operations = operations.parse().unwrap_or(0);
    assert_eq!(bytes.parse(), Ok(operations * BYTES), "{said}");
    operations
}

/// Our client on Ceph's server, which calculates the CRC of every byte.
fn our_client_on_cephs_server(name: &str, arguments: &[&str], load: Load) -> TestResult {
    let lab = boot_with(name, &Build::release(&["ceph_msgr"], &[])?, arguments)?;
    let server = lab.serve(&ceph("mlx5_0", &format!("ceph_perf_msgr_server {ADDRESS} 1 0")), LISTENING)?;
    let Load { connections, at_once } = load;
    let each = OF_A_CALL / connections;
    let load = format!("--jobs {connections} --concurrency {at_once} -n {each} -s {BYTES} {NO_POLLING}");
    for call in 1..=OPERATIONS / OF_A_CALL {
        let said = run(&lab, &server, &format!("ceph_msgr client -d devx:mlx5_1 {load} {ADDRESS}"))?;
        assert!(said.contains(&format!("{OF_A_CALL} operations of {BYTES} bytes")), "{said}");
        println!("{} operations of ours, answered: {}", call * OF_A_CALL, said.lines().last().unwrap_or(""));
    }
    drop(server);
    end(lab)
}

/// Nothing was wrong with the guest and the model.
fn end(lab: Lab) -> TestResult {
    lab.assert_quiet()?;
    lab.guest.power_off()?;
    assert_lawful(&lab.model);
    Ok(())
}

#[test]
#[ignore = "takes long: 98 GiB through emulated processors"]
fn megabytes_of_cephs_client_reach_our_server() -> TestResult {
    cephs_client_on_our_server("ceph_megabytes_in", &[], ALONE)
}

#[test]
#[ignore = "takes long: 98 GiB through emulated processors"]
fn megabytes_of_our_client_reach_cephs_server() -> TestResult {
    our_client_on_cephs_server("ceph_megabytes_out", &[], ALONE)
}

#[test]
#[ignore = "takes long: 98 GiB through emulated processors"]
fn megabytes_of_cephs_client_reach_our_server_though_frames_are_lost() -> TestResult {
    cephs_client_on_our_server("ceph_lossy_megabytes_in", &LOSSY, MANY)
}

#[test]
#[ignore = "takes long: 98 GiB through emulated processors"]
fn megabytes_of_our_client_reach_cephs_server_though_frames_are_lost() -> TestResult {
    our_client_on_cephs_server("ceph_lossy_megabytes_out", &LOSSY, MANY)
}
