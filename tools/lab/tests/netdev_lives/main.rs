//! Debian's unmodified mlx5e is unloaded, loaded, reset and reloaded while its network devices have traffic.

#[path = "../common/mod.rs"]
mod common;
mod lives;
#[allow(dead_code, reason = "`netdev` has more to do")]
#[path = "../netdev/net.rs"]
mod net;

use common::{TestResult, assert_lawful};
use mlx5_lab::rounds;
use net::Net;

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn network_devices_go_and_come_back() -> TestResult {
    let mut net = Net::boot("netdev-lives")?;
    for life in 0..rounds(2, 20) {
        lives::unload(&mut net).map_err(|error| format!("life {life}: {error:?}"))?;
    }
    net.lab.assert_quiet()?;
    lives::function_level_reset(&net)?;
    lives::reload(&net)?;
    net.assert_healthy()?;
    net.lab.assert_quiet()?;
    net.lab.guest.power_off()?;
    assert_lawful(&net.lab.model);
    Ok(())
}
