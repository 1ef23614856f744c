//! Debian's unmodified mlx5_core binds to the model again and again, and behind an IOMMU.

mod common;

use std::time::Duration;

use common::{SOON, TestResult, assert_quiet, build, functions};
use mlx5_lab::{Guest, GuestError, Model, rounds};

/// A probe takes a second; a lost command makes the driver wait for a minute.
const PROBE: Duration = Duration::from_secs(150);

/// Loads mlx5_core and checks that it is bound and has logged no warning.
fn load(guest: &Guest, model: &mut Model, function: &str) -> TestResult {
    let loaded = guest.check("modprobe mlx5_core", PROBE);
    let log = guest.dmesg()?;
    assert!(model.runs(), "the model died:\n{}", model.stderr());
    assert_quiet(&log, "mlx5", model);
    loaded?;
    let bound = guest.check(&format!("readlink /sys/bus/pci/devices/{function}/driver"), SOON);
    match bound {
        Ok(driver) => assert!(driver.trim().ends_with("/mlx5_core"), "{driver}"),
        Err(GuestError::Failed { .. }) => panic!(
            "mlx5_core does not take the function; it says:\n{}",
            log.matching("mlx5").iter().map(|record| format!("{record}\n")).collect::<String>()
        ),
        Err(other) => return Err(other.into()),
    }
    assert!(!log.matching("firmware version").is_empty(), "probe says its firmware version");
    Ok(())
}

fn unload(guest: &Guest, model: &mut Model, function: &str) -> TestResult {
    guest.check("rmmod mlx5_core", PROBE)?;
    assert!(model.runs(), "the model died:\n{}", model.stderr());
    assert_quiet(&guest.dmesg()?, "mlx5", model);
    guest.check(&format!("[ ! -e /sys/bus/pci/devices/{function}/driver ]"), SOON)?;
    Ok(())
}

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn mlx5_core_binds_again_and_again() -> TestResult {
    let build = build()?;
    let mut model = Model::start(&build, 1, &[])?;
    let guest = Guest::builder("mlx5_core").nic(&model.sockets()[0]).boot()?;
    let function = functions(&guest)?.pop().ok_or("the guest sees no ConnectX")?;

    load(&guest, &mut model, &function)?;
    for _ in 0..rounds(4, 10) {
        unload(&guest, &mut model, &function)?;
        load(&guest, &mut model, &function)?;
    }
    // Long enough for the driver's health poll to find a counter that stands
    // still: it looks every two seconds, and complains after three misses.
    guest.check("sleep 10", SOON)?;
    assert_quiet(&guest.dmesg()?, "mlx5", &model);
    unload(&guest, &mut model, &function)?;
    guest.power_off()?;
    common::assert_lawful(&model);
    Ok(())
}

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn mlx5_core_binds_behind_an_iommu() -> TestResult {
    let build = build()?;
    let mut model = Model::start(&build, 1, &[])?;
    let guest = Guest::builder("mlx5_core-iommu").iommu().nic(&model.sockets()[0]).boot()?;
    let function = functions(&guest)?.pop().ok_or("the guest sees no ConnectX")?;
    load(&guest, &mut model, &function)?;
    unload(&guest, &mut model, &function)?;
    // A DMA that the IOMMU refused is a bug of the model that the driver does not see.
    assert_quiet(&guest.dmesg()?, "DMAR", &model);
    guest.power_off()?;
    common::assert_lawful(&model);
    Ok(())
}
