//! Our driver in a guest: real vfio-pci, a real (emulated) IOMMU, and the model.

mod common;

use std::time::Duration;

use common::{Report, SOON, TestResult, build, functions};
use mlx5_lab::{Guest, Model, skipped};
use serde_json::Value;

const RUN: Duration = Duration::from_secs(120);

/// Hands a function to vfio-pci, as an administrator does.
fn bind(guest: &Guest, function: &str) -> TestResult {
    let device = format!("/sys/bus/pci/devices/{function}");
    guest.check(
        &format!(
            "echo vfio-pci > {device}/driver_override &&
             echo {function} > /sys/bus/pci/drivers_probe &&
             [ $(basename $(readlink {device}/driver)) = vfio-pci ] &&
             [ -c /dev/vfio/$(basename $(readlink {device}/iommu_group)) ]"
        ),
        SOON,
    )?;
    Ok(())
}

/// The device string `mlx5 list --json` gives for the function.
fn listed(guest: &Guest, function: &str) -> Result<String, Report> {
    let text = guest.check("mlx5 list --json", RUN)?;
    let list: Value = serde_json::from_str(&text)?;
    let wanted = format!("vfio:{function}");
    match strings(&list).any(|name| name == wanted) {
        true => Ok(wanted),
        false => Err(format!("`mlx5 list --json` does not offer {wanted}:\n{text}").into()),
    }
}

/// Every string in a JSON value.
fn strings(value: &Value) -> Box<dyn Iterator<Item = &str> + '_> {
    match value {
        Value::String(text) => Box::new(std::iter::once(text.as_str())),
        Value::Array(items) => Box::new(items.iter().flat_map(strings)),
        Value::Object(fields) => Box::new(fields.values().flat_map(strings)),
        _ => Box::new(std::iter::empty()),
    }
}

/// Runs one of our programs, and on failure shows what the model saw of it.
fn program(guest: &Guest, model: &mut Model, command: &str) -> Result<String, Report> {
    let result = guest.check(command, RUN);
    let state = if model.runs() { "" } else { " died, and" };
    let stderr = model.stderr();
    let output = result.map_err(|error| format!("{error}\nthe model{state} said:\n{stderr}"))?;
    assert!(state.is_empty(), "the model died:\n{stderr}");
    Ok(output)
}

#[test]
fn our_driver_runs_over_real_vfio() -> TestResult {
    if skipped("our_driver_runs_over_real_vfio") {
        return Ok(());
    }
    let build = build()?;
    let mut model = Model::start(&build, 1, &[])?;
    let guest = Guest::builder("vfio")
        .iommu()
        .huge_pages_2m(128)
        .module("vfio_iommu_type1")
        .module("vfio-pci")
        .nic(&model.sockets()[0])
        .programs(&build)
        .boot()?;
    let function = functions(&guest)?.pop().ok_or("the guest sees no ConnectX")?;
    bind(&guest, &function)?;

    let device = format!("vfio:{function}");
    for _ in 0..2 {
        let caps = program(&guest, &mut model, &format!("mlx5 caps -d {device}"))?;
        assert!(caps.contains("log_max_qp"), "{caps}");
        program(&guest, &mut model, &format!("rc_pingpong -d {device} -c"))?;
    }
    let found = listed(&guest, &function)?;
    let caps = program(&guest, &mut model, &format!("mlx5 caps --json -d {found}"))?;
    serde_json::from_str::<Value>(&caps)?;
    program(&guest, &mut model, &format!("rc_pingpong -d {found} -c"))?;

    let log = guest.dmesg()?;
    common::assert_quiet(&log, "DMAR", &model);
    common::assert_quiet(&log, "vfio", &model);
    guest.power_off()?;
    common::assert_lawful(&model);
    Ok(())
}
