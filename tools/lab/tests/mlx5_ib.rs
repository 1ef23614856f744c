//! Debian's unmodified mlx5_ib and libmlx5 drive the model.

mod common;

use std::time::Duration;

use common::{SOON, TestResult, assert_quiet, build, functions};
use mlx5_lab::{Guest, Model, skipped};

/// A probe takes a second; a command the model loses costs the driver a minute.
const PROBE: Duration = Duration::from_secs(150);

#[test]
fn the_function_is_an_rdma_device() -> TestResult {
    if skipped("the_function_is_an_rdma_device") {
        return Ok(());
    }
    let build = build()?;
    let model = Model::start(&build, 1, &[])?;
    let guest = Guest::builder("mlx5_ib").nic(&model.sockets()[0]).boot()?;
    functions(&guest)?.pop().ok_or("the guest sees no ConnectX")?;
    guest.check("modprobe mlx5_core", PROBE)?;
    let load = guest.check("modprobe mlx5_ib", PROBE);
    let said = guest.dmesg()?;
    assert_quiet(&said, "mlx5", &model);
    load?;
    let devinfo = guest.check("ibv_devinfo -v", SOON)?;
    println!("{devinfo}");
    assert!(devinfo.contains("PORT_ACTIVE"), "{devinfo}");
    guest.power_off()?;
    common::assert_lawful(&model);
    Ok(())
}
