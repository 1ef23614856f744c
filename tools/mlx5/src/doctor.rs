//! `mlx5 doctor`: checks what each way to open a card needs, and names the command that fixes what is missing.

use std::fmt;
use std::fs;
use std::path::PathBuf;

use mlx5_dv::discovery::{Card, Obstacle, Sysfs};
use serde::Serialize;

use crate::output::{Failure, print, print_json};

/// No arguments of its own.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    mlx5 doctor                              the report; its exit status is 1 if there is a problem\n  \
    mlx5 doctor --json                       the same as JSON, such as for a health check\n\n\
    Warnings cost speed and leave the exit status at 0.")]
pub struct Arguments {}

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Fine.
    Ok,
    /// Works, at a cost.
    Warning,
    /// Prevents opening a card.
    Problem,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was checked.
    pub check: String,
    /// Severity.
    pub severity: Severity,
    /// What was found, in a sentence.
    pub found: String,
    /// The command that fixes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// The ways to open a card that need it.
    pub needed_by: &'static [&'static str],
}

/// Whether one way to open a card works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The way, by the prefix of its device strings.
    pub way: &'static str,
    /// Whether it works.
    pub open: bool,
    /// The checks that failed.
    pub because: Vec<String>,
}

/// All findings and verdicts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// One per check.
    pub findings: Vec<Finding>,
    /// One per way.
    pub verdicts: Vec<Verdict>,
}

const SIM: &str = "sim";
const VFIO: &str = "vfio";
const DEVX: &str = "devx";
/// Memory for one function's rings, firmware pages and a few buffers.
const WORKING_SET: u64 = 64 << 20;

/// The machine to check. Tests use a folder as its root.
#[derive(Debug, Clone)]
pub struct Machine {
    /// `/`, or the root folder of a test.
    pub root: PathBuf,
    /// RLIMIT_MEMLOCK in bytes; `None` for unlimited.
    pub memlock: Option<u64>,
    /// Whether this process is exempt from the limit (CAP_IPC_LOCK).
    pub memlock_exempt: bool,
}

impl Machine {
    /// This machine, as this process sees it.
    pub fn here() -> Self {
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        Machine { root: PathBuf::from("/"), memlock: memlock_limit(&limits), memlock_exempt: may_lock(&status) }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.path(path)).ok().map(|text| text.trim().to_owned())
    }

    fn names(&self, path: &str) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.path(path))
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

/// The soft limit of locked memory in the text of `/proc/self/limits`; `None` for unlimited.
fn memlock_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find(|line| line.starts_with("Max locked memory"))?;
    line.split_whitespace().nth(3)?.parse().ok()
}

/// Whether the text of `/proc/self/status` shows CAP_IPC_LOCK in effect.
fn may_lock(status: &str) -> bool {
    const CAP_IPC_LOCK: u32 = 14;
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).is_some_and(|caps| caps >> CAP_IPC_LOCK & 1 == 1)
}

/// Checks this machine, and prints the report.
///
/// # Errors
/// There is a problem.
pub fn run(json: bool) -> Result<(), Failure> {
    let report = examine(&Machine::here());
    if json {
        print_json(&report)?;
    } else {
        print(&report.to_string())?;
    }
    report.outcome()
}

/// Runs all checks.
fn examine(machine: &Machine) -> Report {
    let mut findings = vec![huge_pages(machine), locked_memory(machine), iommu(machine), vfio_driver(machine)];
    findings.push(uverbs(machine));
    findings.extend(cards(machine));
    let verdicts = [SIM, VFIO, DEVX].into_iter().map(|way| verdict(way, &findings)).collect();
    Report { findings, verdicts }
}

fn verdict(way: &'static str, findings: &[Finding]) -> Verdict {
    let stops = |finding: &&Finding| finding.severity == Severity::Problem && finding.needed_by.contains(&way);
    let because: Vec<_> = findings.iter().filter(stops).map(|finding| finding.check.clone()).collect();
    Verdict { way, open: because.is_empty(), because }
}

fn huge_pages(machine: &Machine) -> Finding {
    let check = "huge pages".to_owned();
    let needed_by = &[SIM, VFIO, DEVX];
    let mut free = Vec::new();
    for (folder, size) in [("hugepages-1048576kB", "1 GiB"), ("hugepages-2048kB", "2 MiB")] {
        let path = format!("/sys/kernel/mm/hugepages/{folder}/free_hugepages");
        let count: u64 = machine.read(&path).and_then(|text| text.parse().ok()).unwrap_or(0);
        if count > 0 {
            free.push(format!("{count} of {size}"));
        }
    }
    if free.is_empty() {
        return Finding {
            check,
            severity: Severity::Warning,
            found: "none free: rings and buffers use 4 KiB pages, which causes IOMMU and TLB misses".into(),
            fix: Some("echo 512 | sudo tee /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages".into()),
            needed_by,
        };
    }
    Finding { check, severity: Severity::Ok, found: format!("free: {}", free.join(", ")), fix: None, needed_by }
}

fn locked_memory(machine: &Machine) -> Finding {
    let check = "locked memory".to_owned();
    let needed_by = &[VFIO, DEVX];
    let finding = |severity, found: String, fix| Finding { check: check.clone(), severity, found, fix, needed_by };
    match machine.memlock {
        None => finding(Severity::Ok, "no limit".into(), None),
        Some(limit) if machine.memlock_exempt => finding(
            Severity::Ok,
            format!("limit {} KiB, from which this process is exempt (CAP_IPC_LOCK)", limit >> 10),
            None,
        ),
        Some(limit) if limit >= WORKING_SET => finding(
            Severity::Warning,
            format!("limit {} MiB: enough to start, not for large registrations", limit >> 20),
            Some("ulimit -l unlimited   # or LimitMEMLOCK=infinity in the service's unit".into()),
        ),
        Some(limit) => finding(
            Severity::Problem,
            format!("limit {} KiB: mapping memory for the card will fail with ENOMEM", limit >> 10),
            Some("ulimit -l unlimited   # or LimitMEMLOCK=infinity in the service's unit".into()),
        ),
    }
}

fn iommu(machine: &Machine) -> Finding {
    let check = "IOMMU".to_owned();
    let needed_by = &[VFIO];
    let groups = machine.names("/sys/kernel/iommu_groups").len();
    if groups > 0 {
        return Finding { check, severity: Severity::Ok, found: format!("on, {groups} groups"), fix: None, needed_by };
    }
    Finding {
        check,
        severity: Severity::Problem,
        found: "off, or not present".into(),
        fix: Some(
            "enable VT-d or AMD-Vi in the BIOS setup, and boot with intel_iommu=on (Intel) or amd_iommu=on".into(),
        ),
        needed_by,
    }
}

fn vfio_driver(machine: &Machine) -> Finding {
    let check = "vfio-pci driver".to_owned();
    let needed_by = &[VFIO];
    if machine.path("/sys/bus/pci/drivers/vfio-pci").is_dir() {
        return Finding { check, severity: Severity::Ok, found: "loaded".into(), fix: None, needed_by };
    }
    Finding {
        check,
        severity: Severity::Problem,
        found: "not loaded".into(),
        fix: Some("sudo modprobe vfio-pci".into()),
        needed_by,
    }
}

/// What prevents opening each card. A card that cannot be opened is a mere warning if another can.
fn cards(machine: &Machine) -> Vec<Finding> {
    let sysfs = Sysfs::at(&machine.root);
    let cards = sysfs.cards();
    if cards.is_empty() {
        return vec![Finding {
            check: "cards".into(),
            severity: Severity::Problem,
            found: "no ConnectX found; the software card (device `sim`) needs none".into(),
            fix: None,
            needed_by: &[VFIO, DEVX],
        }];
    }
    let obstacles: Vec<_> = cards.iter().map(|card| sysfs.obstacles(card)).collect();
    let one_is_free = obstacles.iter().any(Vec::is_empty);
    let finding = |(card, obstacles): (&Card, &Vec<Obstacle>)| match obstacles.first() {
        None => Finding {
            check: card.address.to_string(),
            severity: Severity::Ok,
            found: format!("{}: ready for vfio:{}", card.model, card.address),
            fix: None,
            needed_by: &[VFIO],
        },
        Some(obstacle) => Finding {
            check: card.address.to_string(),
            severity: if one_is_free { Severity::Warning } else { Severity::Problem },
            found: format!("{}: {}", card.model, obstacle.reason),
            fix: Some(obstacle.fix.clone()),
            needed_by: &[VFIO],
        },
    };
    cards.iter().zip(&obstacles).map(finding).collect()
}

fn uverbs(machine: &Machine) -> Finding {
    let sysfs = Sysfs::at(&machine.root);
    let devices: Vec<_> = sysfs.rdma_names().iter().filter_map(|name| sysfs.rdma_device(name)).collect();
    let obstacles = devices.iter().map(|device| (device, sysfs.devx_obstacle(device)));
    let (open, shut): (Vec<_>, Vec<_>) = obstacles.partition(|(_, obstacle)| obstacle.is_none());
    let finding = |severity, found: String, fix: Option<String>| Finding {
        check: "mlx5_ib".into(),
        severity,
        found,
        fix,
        needed_by: &[DEVX],
    };
    if !open.is_empty() {
        let names: Vec<_> = open.iter().map(|(device, _)| device.name.as_str()).collect();
        return finding(Severity::Ok, names.join(", "), None);
    }
    match shut.into_iter().find_map(|(device, obstacle)| Some((device, obstacle?))) {
        Some((device, obstacle)) => {
            finding(Severity::Problem, format!("{}: {}", device.name, obstacle.reason), Some(obstacle.fix))
        }
        None => finding(
            Severity::Problem,
            "the kernel has no mlx5 RDMA device".into(),
            Some("sudo modprobe mlx5_ib".into()),
        ),
    }
}

impl Report {
    /// Success, unless something is a problem.
    fn outcome(&self) -> Result<(), Failure> {
        let problems = self.findings.iter().filter(|finding| finding.severity == Severity::Problem);
        match problems.map(|finding| finding.check.as_str()).collect::<Vec<_>>()[..] {
            [] => Ok(()),
            [one] => Err(format!("one problem: {one}").into()),
            ref all => Err(format!("{} problems: {}", all.len(), all.join(", ")).into()),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            let mark = match finding.severity {
                Severity::Ok => "ok",
                Severity::Warning => "warning",
                Severity::Problem => "problem",
            };
            writeln!(f, "{:<16} {mark:<8} {}", finding.check, finding.found)?;
            if let Some(fix) = &finding.fix {
                writeln!(f, "{:<16} {:<8}   {fix}", "", "")?;
            }
        }
        writeln!(f)?;
        for verdict in &self.verdicts {
            match verdict.open {
                true => writeln!(f, "{:<5} can be used", verdict.way)?,
                false => writeln!(f, "{:<5} cannot be used yet: {}", verdict.way, verdict.because.join(", "))?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
        let folder = tempfile::tempdir().expect("a folder");
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("its folder");
            fs::write(path, text).expect("the file");
        }
        let machine = Machine { root: folder.path().to_owned(), memlock: None, memlock_exempt: false };
        (folder, machine)
    }

    fn finding<'a>(report: &'a Report, check: &str) -> &'a Finding {
        report.findings.iter().find(|finding| finding.check == check).expect("the check")
    }

    fn verdict<'a>(report: &'a Report, way: &str) -> &'a Verdict {
        report.verdicts.iter().find(|verdict| verdict.way == way).expect("the way")
    }

    #[test]
    fn a_bare_machine_can_use_the_software_card_alone() {
        let (_folder, machine) = machine(&[]);
        let report = examine(&machine);
        assert!(verdict(&report, SIM).open);
        let told = report.outcome().expect_err("there are problems").to_string();
        assert_eq!(told, "4 problems: IOMMU, vfio-pci driver, mlx5_ib, cards");
        assert_eq!(verdict(&report, VFIO).because, ["IOMMU", "vfio-pci driver", "cards"]);
        assert_eq!(verdict(&report, DEVX).because, ["mlx5_ib", "cards"]);
    }

    #[test]
    fn a_card_on_the_kernels_driver_says_how_to_bind_it() {
        let (_folder, machine) = machine(&[
            ("sys/kernel/iommu_groups/7/type", "DMA"),
            ("sys/bus/pci/drivers/vfio-pci/bind", ""),
            ("sys/bus/pci/devices/0000:3b:00.0/vendor", "0x15b3\n"),
            ("sys/bus/pci/devices/0000:3b:00.0/device", "0x101d\n"),
            ("sys/bus/pci/devices/0000:3b:00.0/class", "0x020000\n"),
            ("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "512\n"),
        ]);
        let report = examine(&machine);
        assert_eq!(verdict(&report, VFIO).because, ["0000:3b:00.0"]);
        let card = finding(&report, "0000:3b:00.0");
        assert!(card.fix.as_ref().is_some_and(|fix| fix.contains("driver_override")), "{card:?}");
        assert_eq!(finding(&report, "huge pages").found, "free: 512 of 2 MiB");
    }

    #[test]
    fn a_low_memlock_limit_is_a_problem_unless_the_user_may_lock() {
        let (_folder, mut machine) = machine(&[]);
        machine.memlock = Some(8 << 20);
        assert_eq!(finding(&examine(&machine), "locked memory").severity, Severity::Problem);
        machine.memlock_exempt = true;
        assert_eq!(finding(&examine(&machine), "locked memory").severity, Severity::Ok);
    }

    #[test]
    fn warnings_are_no_failure() {
        let (_folder, machine) = machine(&[
            ("sys/kernel/iommu_groups/7/type", "DMA"),
            ("sys/bus/pci/drivers/vfio-pci/bind", ""),
            ("sys/bus/pci/devices/0000:3b:00.0/vendor", "0x15b3\n"),
        ]);
        let mut report = examine(&machine);
        report.findings.retain(|finding| finding.severity != Severity::Problem);
        assert!(report.findings.iter().any(|finding| finding.severity == Severity::Warning), "{report}");
        assert!(report.outcome().is_ok());
    }

    #[test]
    fn every_problem_of_this_machine_but_a_missing_card_says_how_to_mend_it() {
        let (_folder, machine) = machine(&[]);
        for finding in examine(&machine).findings {
            assert!(
                finding.severity == Severity::Ok || finding.fix.is_some() || finding.check == "cards",
                "{finding:?}"
            );
        }
    }

    #[test]
    fn the_kernels_texts_are_understood() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max locked memory         8388608              8388608              bytes\n";
        assert_eq!(memlock_limit(limits), Some(8 << 20));
        assert_eq!(memlock_limit("Max locked memory         unlimited            unlimited            bytes\n"), None);
        assert!(may_lock("Name:\tx\nCapEff:\t000001ffffffffff\n"));
        assert!(!may_lock("CapEff:\t0000000000000000\n"));
    }
}
