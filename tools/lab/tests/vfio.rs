//! Our driver over vfio-pci in a guest, behind an emulated IOMMU.

mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use common::{Report, Reset, SOON, TestResult, build, functions, hand_to_vfio};
use mlx5_lab::{Guest, Model, rounds, verbs_program};
use serde_json::Value;

const RUN: Duration = Duration::from_secs(240);
/// Where the guest sees the C program on libmlx5's own VFIO driver.
const C_PROGRAMS: &str = "/opt/verbs";

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

/// Runs one of our programs; on failure prints the model's log.
fn program(guest: &Guest, model: &mut Model, command: &str) -> Result<String, Report> {
    let result = guest.check(command, RUN);
    let state = if model.runs() { "" } else { " died, and" };
    let stderr = model.stderr();
    let output = result.map_err(|error| format!("{error}\nthe model{state} said:\n{stderr}"))?;
    assert!(state.is_empty(), "the model died:\n{stderr}");
    Ok(output)
}

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn our_driver_runs_over_real_vfio() -> TestResult {
    let build = build()?;
    // Not among the logs: it is for `kill_in_traffic` alone, and grows to tens of megabytes.
    let folder = tempfile::tempdir()?;
    let capture = folder.path().join("every.pcap");
    let arguments = ["--pcap", capture.to_str().ok_or("a path in UTF-8")?];
    let mut model = Model::start_saying(&build, 1, &arguments, "warn,mlx5_sim::serve=trace,mlx5_sim::card=debug")?;
    let programs = tempfile::tempdir()?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/verbs/vfio.c");
    verbs_program(&source, &programs.path().join("vfio"))?;
    let guest = Guest::builder("vfio")
        .share(programs.path(), C_PROGRAMS)
        .iommu()
        .memory_mib(6144)
        .huge_pages_2m(128)
        .huge_pages_1g(2)
        .module("vfio_iommu_type1")
        .module("vfio-pci")
        .nic(&model.sockets()[0])
        .programs(&build)
        .boot()?;
    let function = functions(&guest)?.pop().ok_or("the guest sees no ConnectX")?;
    hand_to_vfio(&guest, &function)?;

    let device = format!("vfio:{function}");
    for _ in 0..2 {
        let caps = program(&guest, &mut model, &format!("mlx5 caps -d {device}"))?;
        assert!(caps.contains("log_max_qp"), "{caps}");
        let said = program(&guest, &mut model, &format!("rc_pingpong -d {device} -c 2>&1"))?;
        assert!(!said.contains("huge pages"), "the guest has huge pages, but they are not used:\n{said}");
    }
    let found = listed(&guest, &function)?;
    let caps = program(&guest, &mut model, &format!("mlx5 caps --json -d {found}"))?;
    serde_json::from_str::<Value>(&caps)?;
    program(&guest, &mut model, &format!("rc_pingpong -d {found} -c"))?;
    a_page_of_1_gib_is_one_mapping_and_one_entry(&guest, &mut model, &found)?;
    let said = program(&guest, &mut model, &format!("{C_PROGRAMS}/vfio {function} 2>&1"))?;
    assert!(said.contains("up, written, read, and down"), "libmlx5's VFIO driver: {said}");
    common::assert_lawful(&model);
    a_killed_program_leaves_nothing(&guest, &mut model, &found, &capture)?;

    who_wants_a_function_back_gets_it(&guest, &function)?;

    let log = guest.dmesg()?;
    common::assert_quiet(&log, "DMAR", &model);
    common::assert_quiet(&log, "vfio", &model);
    guest.power_off()?;
    assert_lawful_but_for_deaths(&model);
    Ok(())
}

/// Who unbinds a function from vfio-pci waits until our program has closed it, which is told of that.
fn who_wants_a_function_back_gets_it(guest: &Guest, function: &str) -> TestResult {
    let mut job = guest.start(&format!("asyncwatch vfio:{function} 2>&1"))?;
    job.wait_for("port up", RUN)?;
    guest.check(&format!("echo {function} > /sys/bus/pci/drivers/vfio-pci/unbind"), RUN)?;
    let output = job.wait(RUN)?;
    assert!(output.status == 0 && output.text().contains("WANTED_BACK"), "{}", output.text());
    guest.check(&format!("[ ! -e /sys/bus/pci/devices/{function}/driver ]"), SOON)?;
    hand_to_vfio(guest, function)
}

/// A page of 1 GiB is one mapping of the IOMMU's and one translation entry of the card's. If there are too few, the
/// error says so.
fn a_page_of_1_gib_is_one_mapping_and_one_entry(guest: &Guest, model: &mut Model, device: &str) -> TestResult {
    let command = format!("rc_pingpong -d {device} -c --iters 100 --page-size 1G");
    let before = model.stderr().len();
    let said = program(guest, model, &command)?;
    let whole = "1048576 KiB, pages of 1048576 KiB here, of 1048576 KiB to the card";
    assert_eq!(said.matches(whole).count(), 2, "{said}");
    let model_said = model.stderr();
    let mapped = model_said[before..].lines().filter(|line| line.contains(": map ") && line.contains(" + 0x40000000 "));
    assert_eq!(mapped.count(), 2, "not one mapping each:\n{}", &model_said[before..]);

    guest.check("echo 1 > /sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", SOON)?;
    let said = refusal(guest, &command)?;
    assert!(said.contains("no 1 GiB huge pages") && said.contains("hugepages-1048576kB/nr_hugepages"), "{said}");
    Ok(())
}

/// A program is killed in mid-traffic, repeatedly: vfio-pci and the IOMMU release everything, and the card goes on.
fn a_killed_program_leaves_nothing(guest: &Guest, model: &mut Model, device: &str, capture: &Path) -> TestResult {
    let kills = rounds(10, 100);
    let before = Reset::all(model, 0).len();
    for _ in 0..kills {
        kill_in_traffic(guest, device, capture)?;
    }
    program(guest, model, &format!("rc_pingpong -d {device} -c -n 100 2>&1"))?;
    let resets = Reset::all(model, 0).split_off(before);
    let deaths: Vec<_> = resets.windows(2).filter(|pair| pair[1].objects > 0).collect();
    assert_eq!(deaths.len(), kills, "{resets:?}");
    assert!(deaths.iter().all(|pair| pair[1].frames > pair[0].frames), "killed without traffic: {resets:?}");
    Ok(())
}

/// Starts a ping-pong and kills it once its frames are in `capture`.
fn kill_in_traffic(guest: &Guest, device: &str, capture: &Path) -> TestResult {
    /// Growth of the capture: hundreds of messages.
    const TRAFFIC: u64 = 64 * 1024;
    const KILLED: i32 = 128 + 9;
    let length = || std::fs::metadata(capture).map(|file| file.len());
    let before = length()?;
    let mut job = guest.start(&format!("rc_pingpong -n 1000000000 -s 64 -d {device} -r 16 2>&1"))?;
    job.wait_for("remote address", RUN)?;
    let deadline = Instant::now() + RUN;
    while length()? < before + TRAFFIC {
        if !job.runs() || Instant::now() > deadline {
            return Err(format!("no traffic: {}", job.so_far()).into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    guest.check("pkill -9 -x rc_pingpong", SOON)?;
    let output = job.wait(SOON)?;
    assert_eq!(output.status, KILLED, "{}", output.text());
    Ok(())
}

/// When a process is killed, the kernel first turns the function's bus mastering off, in mid-traffic, then resets it.
fn assert_lawful_but_for_deaths(model: &Model) {
    let violations = model.violations();
    let others: Vec<_> = violations.iter().filter(|said| !said.ends_with("bus mastering is off")).collect();
    assert!(others.is_empty(), "strict mode reports:\n{others:#?}");
}

/// The output of a program of ours that must fail.
fn refusal(guest: &Guest, command: &str) -> Result<String, Report> {
    let output = guest.run(&format!("{command} 2>&1"), RUN)?;
    let said = output.text();
    match output.status {
        1 => Ok(said),
        status => Err(format!("`{command}` ended with {status}, not with 1:\n{said}").into()),
    }
}

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn what_the_kernel_refuses_is_explained_with_its_fix() -> TestResult {
    let build = build()?;
    let model = Model::start(&build, 1, &[])?;
    let guest = Guest::builder("vfio-refusals")
        .iommu()
        .module("vfio_iommu_type1")
        .module("vfio-pci")
        .nic(&model.sockets()[0])
        .programs(&build)
        .boot()?;
    let function = functions(&guest)?.pop().ok_or("the guest sees no ConnectX")?;
    let caps = format!("mlx5 caps -d vfio:{function}");
    let nobody = format!("chroot --userspec=65534:65534 / $(command -v mlx5) caps -d vfio:{function}");

    let said = refusal(&guest, &caps)?;
    assert!(said.contains("bound to no driver") && said.contains("driver_override"), "unbound: {said}");

    hand_to_vfio(&guest, &function)?;
    let said = refusal(&guest, &nobody)?;
    assert!(said.contains("may not open") && said.contains("chown"), "no permission: {said}");

    guest.check("chmod 666 /dev/vfio/*", SOON)?;
    let said = refusal(&guest, &format!("ulimit -l 64; {nobody}"))?;
    assert!(said.contains("locked memory") && said.contains("ulimit -l"), "memlock: {said}");

    guest.check(&format!("ulimit -l unlimited; {nobody}"), RUN)?;
    guest.power_off()?;
    Ok(())
}

/// Names a kernel image with iommufd and VFIO's character devices built in, which Debian's kernel lacks.
/// `tools/lab/iommufd.config` says how to build it.
const IOMMUFD_KERNEL: &str = "MLX5_LAB_IOMMUFD_KERNEL";

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
#[cfg_attr(not(any(lab_skipped, iommufd_kernel)), ignore = "MLX5_LAB_IOMMUFD_KERNEL names no kernel image")]
fn our_driver_runs_over_iommufd() -> TestResult {
    let kernel = std::env::var_os(IOMMUFD_KERNEL).ok_or("MLX5_LAB_IOMMUFD_KERNEL names no kernel image")?;
    let build = build()?;
    let mut model = Model::start(&build, 1, &[])?;
    let guest = Guest::builder("vfio-iommufd")
        .kernel(kernel)
        .kernel_arg("iommufd.allow_unsafe_interrupts=1")
        .iommu()
        .huge_pages_2m(128)
        .nic(&model.sockets()[0])
        .programs(&build)
        .boot()?;
    let function = functions(&guest)?.pop().ok_or("the guest sees no ConnectX")?;
    hand_to_vfio(&guest, &function)?;
    // Without groups only iommufd is left.
    guest.check("rm -r /dev/vfio/[0-9]* /dev/vfio/vfio && ls /dev/iommu /dev/vfio/devices", SOON)?;
    let device = format!("vfio:{function}");
    for _ in 0..2 {
        let caps = program(&guest, &mut model, &format!("mlx5 caps -d {device}"))?;
        assert!(caps.contains("log_max_qp"), "{caps}");
        program(&guest, &mut model, &format!("rc_pingpong -d {device} -c 2>&1"))?;
    }
    common::assert_quiet(&guest.dmesg()?, "DMAR", &model);
    guest.power_off()?;
    common::assert_lawful(&model);
    Ok(())
}
