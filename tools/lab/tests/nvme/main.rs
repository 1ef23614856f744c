//! nvme-rdma and nvmet-rdma of Debian's unmodified kernel: on each other over one function of the model (fast
//! registration by the kernel's own users, fenced, with remote invalidation, in lists of as many pages as the card
//! announces), and each with the end of ours in a process on the host.

#[path = "../common/mod.rs"]
mod common;
mod layouts;
mod ours;

use common::disks::{AT_A_TIME, DISCONNECT, EACH_SIZE, HOST, NETWORK, TAKE_DOWN, TARGET, assert_quiet, transfers};
use common::{Lab, PROBE, TestResult, assert_lawful};
use mlx5_lab::{Build, Guest, Model, rounds};

/// MiB of each of the five sizes from 64 KiB: 1 GiB in all.
const LARGE_MIB: usize = 208;

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn nvme_over_rdma_reads_what_it_wrote_in_blocks_of_every_size() -> TestResult {
    let model = Model::start(&Build::dev(&["mlx5"], &[])?, 1, &[])?;
    let guest = Guest::builder("nvme").memory_mib(3072).nic(&model.sockets()[0]).boot()?;
    let lab = Lab { guest, model };
    let blocks = rounds(512, 16 << 10);
    lab.check(&format!("{NETWORK}\nSIZE={}\n{TARGET}", LARGE_MIB << 10), PROBE)?;
    lab.check(&format!("ADDRESS=10.0.0.1 NQN=lab\n{HOST}"), PROBE)?;
    let each = format!("DISKS='nvme0n1 ram0' COUNT={blocks} MOST={}\n{EACH_SIZE}", LARGE_MIB << 20);
    let said = lab.check(&each, transfers())?;
    let bytes: u64 = said.split(' ').next().and_then(|number| number.trim().parse().ok()).unwrap_or_default();
    assert!(bytes >= 1 << 30, "{said}");
    lab.check(AT_A_TIME, transfers())?;
    lab.check(DISCONNECT, PROBE)?;
    lab.check(TAKE_DOWN, PROBE)?;
    assert_quiet(&lab, &[])?;
    lab.guest.power_off()?;
    assert_lawful(&lab.model);
    Ok(())
}
