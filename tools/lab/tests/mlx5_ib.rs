//! Debian's unmodified mlx5_ib on the model, and libmlx5 on top of it.

mod common;

use std::time::Duration;

use common::{SOON, TestResult, assert_lawful, assert_quiet, build};
use mlx5_lab::{Guest, Model, skipped};

/// A probe takes seconds; a command that the model loses costs the driver a minute.
const PROBE: Duration = Duration::from_secs(150);

#[test]
fn mlx5_ib_makes_an_active_device() -> TestResult {
    if skipped("mlx5_ib_makes_an_active_device") {
        return Ok(());
    }
    let mut model = Model::start(&build()?, 2, &[])?;
    let [first, second] = model.sockets() else { return Err("two sockets".into()) };
    let guest = Guest::builder("mlx5_ib").nic(first).nic(second).boot()?;
    guest.check("modprobe mlx5_ib && modprobe ib_uverbs", PROBE)?;
    let said = guest.check("ibv_devinfo -v", SOON);
    let log = guest.dmesg()?;
    assert!(model.runs(), "the model died:\n{}", model.stderr());
    assert_quiet(&log, "mlx5", &model);
    let said = said?;
    println!("{said}");
    assert!(said.contains("PORT_ACTIVE"), "{said}");
    guest.power_off()?;
    assert_lawful(&model);
    Ok(())
}
