//! The lab itself: guests boot, run commands, and report failures with their cause.

mod common;

use std::time::{Duration, Instant};

use common::{SOON, TestResult};
use mlx5_lab::{Guest, GuestError, Lab};

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn a_guest_runs_debians_kernel() -> TestResult {
    let lab = Lab::ready()?;
    let guest = Guest::builder("boot").boot()?;
    let release = guest.check("uname -r", SOON)?;
    assert_eq!(release.trim(), lab.kernel_release());
    assert!(release.starts_with("6.12."), "{release}");

    let about = guest.check("modinfo mlx5_core", SOON)?;
    assert!(about.contains("alias:          pci:v000015B3d00001017"), "{about}");
    for tool in ["ibv_devinfo", "ibv_rc_pingpong", "ib_write_bw", "rdma", "devlink", "ethtool", "strace"] {
        guest.check(&format!("command -v {tool}"), SOON)?;
    }
    guest.power_off()?;
    Ok(())
}

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn commands_are_kept_apart_and_in_time() -> TestResult {
    let shared = tempfile::tempdir()?;
    std::fs::write(shared.path().join("a file"), "from the host")?;
    let guest = Guest::builder("commands").share_writable(shared.path(), "/mnt/host").boot()?;

    let output = guest.run("echo out; echo err >&2; exit 3", SOON)?;
    assert_eq!((output.status, output.text(), output.error_text()), (3, "out\n".into(), "err\n".into()));

    // Binary output, larger than any buffer on the way.
    let bytes = guest.run("head -c 3000000 /dev/urandom | tee /mnt/host/copy", SOON)?;
    assert_eq!(bytes.stdout, std::fs::read(shared.path().join("copy"))?);
    assert_eq!(guest.check("cat '/mnt/host/a file'", SOON)?, "from the host");

    // Two commands run at once.
    let mut server = guest.start("echo up; until [ -e /tmp/go ]; do sleep 0.1; done; echo went")?;
    server.wait_for("up", SOON)?;
    guest.check("touch /tmp/go", SOON)?;
    assert_eq!(server.wait(SOON)?.text(), "up\nwent\n");

    // A paused guest says nothing.
    let mut ticks = guest.start("while sleep 0.05; do echo tick; done")?;
    ticks.wait_for("tick", SOON)?;
    let paused = guest.pause()?;
    let so_far = ticks.so_far();
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(ticks.so_far(), so_far);
    drop(paused);
    ticks.wait_until(|said| said.len() > so_far.len(), SOON)?;
    drop(ticks);

    let start = Instant::now();
    let late = guest.run("echo begun; sleep 100 & sleep 100", Duration::from_secs(1));
    assert!(matches!(&late, Err(GuestError::Timeout { output, .. }) if output == "begun"), "{late:?}");
    assert!(start.elapsed() < Duration::from_secs(8));
    // Its processes are gone, and the guest still works.
    assert!(!guest.run("pgrep sleep", SOON)?.success());
    let failed = guest.check("echo no; false", SOON);
    assert!(matches!(failed, Err(GuestError::Failed { status: 1, .. })));

    guest.check("echo '<3>mlx5_core: made up' > /dev/kmsg", SOON)?;
    let log = guest.dmesg()?;
    assert_eq!(log.problems("mlx5_core").len(), 1);
    assert!(log.matching("Linux version 6.12").len() == 1, "the log is whole");
    guest.power_off()?;
    Ok(())
}

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn a_crash_is_told_at_once() -> TestResult {
    let guest = Guest::builder("crash").boot()?;
    let start = Instant::now();
    let crashed = guest.run("echo c > /proc/sysrq-trigger; sleep 100", Duration::from_secs(100));
    let Err(GuestError::Ended { evidence, .. }) = crashed else {
        panic!("{crashed:?}");
    };
    assert!(evidence.tail.contains("sysrq triggered crash"), "{evidence}");
    assert!(start.elapsed() < Duration::from_secs(20));
    // The log up to the crash is still readable.
    assert_eq!(guest.dmesg()?.matching("Linux version").len(), 1);
    assert!(guest.run("true", SOON).is_err());
    Ok(())
}

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn a_boot_that_fails_says_so() {
    let no_module = Guest::builder("no-module").module("no_such_module").boot();
    let Err(GuestError::Boot { reason, .. }) = no_module else {
        panic!("{no_module:?}");
    };
    assert_eq!(reason, "failed: modprobe no_such_module");

    let no_card = Guest::builder("no-card").nic("/nonexistent/nic.sock").boot();
    let Err(GuestError::Boot { evidence, .. }) = no_card else {
        panic!("{no_card:?}");
    };
    assert!(evidence.tail.contains("/nonexistent/nic.sock"), "{evidence}");
}

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn an_iommu_guest_is_ready_for_vfio() -> TestResult {
    let guest = Guest::builder("iommu").iommu().huge_pages_2m(64).module("vfio-pci").boot()?;
    let groups = guest.check("ls /sys/kernel/iommu_groups", SOON)?;
    assert!(groups.split_whitespace().count() > 1, "{groups}");
    let log = guest.dmesg()?;
    assert!(!log.matching("DMAR: Intel(R) Virtualization Technology for Directed I/O").is_empty());
    assert!(!log.matching("Enabled IRQ remapping").is_empty(), "VFIO refuses without");
    let pages = guest.check("grep HugePages_Free /proc/meminfo", SOON)?;
    assert_eq!(pages.split_whitespace().last(), Some("64"));
    // Huge pages can be added at run time.
    guest.check("echo 72 > /proc/sys/vm/nr_hugepages; grep -q 'Total: *72$' /proc/meminfo", SOON)?;
    guest.check("[ -c /dev/vfio/vfio ] && [ -d /sys/bus/pci/drivers/vfio-pci ]", SOON)?;
    guest.power_off()?;
    Ok(())
}
