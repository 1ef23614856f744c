//! Trees of unpacked packages, and how they are made.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::aarch64;
use super::apt::{Apt, Archive, no_apt};
use super::kernel;
use super::sources::{self, release_number};
use crate::error::{IoContext, LabError};
use crate::folder::LabFolder;
use crate::lock::FileLock;
use crate::process::{run_logged, tail};
use crate::progress::{Progress, say};
use crate::root::{kernel_release, loader};

/// Increase it when the processing of a tree after unpacking changes.
const REVISION: u32 = 4;
/// How long to wait for another process that sets up the lab.
const PATIENCE: Duration = Duration::from_secs(30 * 60);
/// How long unpacking one package may take.
const QUIET: Duration = Duration::from_secs(300);

/// The kernel; its exact version determines the package of its headers.
const KERNEL: &str = "linux-image-amd64";

/// A tree of unpacked packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tree {
    /// QEMU, the guests' kernel and their root file system.
    Root,
    /// Headers only, for checks without a guest: rdma-core's, those of two kernels (the guests' and the newest), and
    /// the internal ones of the newest kernel's drivers and connection manager, and of libmlx5.
    Headers,
    /// A Rust compiler for aarch64, and QEMU to run the results.
    Aarch64,
    /// tshark.
    Tshark,
    /// Scapy, which checks ICRCs.
    Scapy,
    /// iperf3, for guests: what it needs beyond their root file system.
    Iperf,
    /// linuxptp, for guests: what it needs beyond their root file system.
    LinuxPtp,
    /// nvme-cli, for guests: what it needs beyond their root file system.
    NvmeCli,
    /// fio, for guests: what it needs beyond their root file system.
    Fio,
    /// Ceph's messenger benchmark, for guests: what it needs beyond their root file system.
    Ceph,
    /// UCX, for guests and to compile with.
    Ucx,
    /// DPDK's testpmd with its driver of ConnectX cards, for guests and to compile with, and what else they need.
    Dpdk,
}

impl Tree {
    /// Every tree. What tests wait for first comes first.
    pub(crate) const ALL: [Self; 12] = [
        Self::Root,
        Self::Headers,
        Self::Aarch64,
        Self::Dpdk,
        Self::Ceph,
        Self::Ucx,
        Self::Iperf,
        Self::LinuxPtp,
        Self::NvmeCli,
        Self::Fio,
        Self::Tshark,
        Self::Scapy,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Headers => "headers",
            Self::Aarch64 => "aarch64",
            Self::Tshark => "tshark",
            Self::Scapy => "scapy",
            Self::Iperf => "iperf3",
            Self::LinuxPtp => "linuxptp",
            Self::NvmeCli => "nvme-cli",
            Self::Fio => "fio",
            Self::Ceph => "ceph",
            Self::Ucx => "ucx",
            Self::Dpdk => "dpdk",
        }
    }

    fn packages(self) -> &'static [&'static str] {
        match self {
            Self::Root => &[
                "qemu-system-x86",
                KERNEL,
                "libibverbs-dev",
                "ibverbs-utils",
                "ibverbs-providers",
                "rdma-core",
                "perftest",
                "rdmacm-utils",
                "iproute2",
                "pciutils",
                "ethtool",
                "kmod",
                "busybox-static",
                "strace",
                "base-files",
                "bash",
                "coreutils",
                "diffutils",
                "findutils",
                "grep",
                "mawk",
                "procps",
                "sed",
                "util-linux",
                "zstd",
            ],
            Self::Headers => &["libibverbs-dev"],
            Self::Aarch64 => &[
                "rustc-web",
                "libstd-rust-web-dev",
                "libstd-rust-web-dev:arm64",
                "binutils-aarch64-linux-gnu",
                "libc6-dev-arm64-cross",
                "libgcc-14-dev-arm64-cross",
                "qemu-user",
            ],
            Self::Tshark => &["tshark"],
            Self::Scapy => &["python3", "python3-scapy"],
            Self::Iperf => &["iperf3", "libiperf0", "libsctp1"],
            Self::LinuxPtp => &["linuxptp"],
            Self::NvmeCli => &["nvme-cli", "libnvme1t64", "libjson-c5"],
            Self::Fio => &["fio"],
            Self::Ceph => &[
                "ceph-test",
                "librados2",
                "libboost-iostreams1.83.0",
                "libboost-thread1.83.0",
                "libfmt10",
                "libgoogle-perftools4t64",
                "libstdc++6",
                "libunwind8",
            ],
            Self::Ucx => &["libucx0", "libucx-dev"],
            Self::Dpdk => &[
                "dpdk-dev",
                "libdpdk-dev",
                "librte-bitratestats25",
                "librte-bpf25",
                "librte-bus-auxiliary25",
                "librte-bus-dpaa25",
                "librte-bus-pci25",
                "librte-bus-vdev25",
                "librte-cmdline25",
                "librte-common-dpaax25",
                "librte-common-iavf25",
                "librte-common-mlx5-25",
                "librte-crypto-scheduler25",
                "librte-cryptodev25",
                "librte-dmadev25",
                "librte-eal25",
                "librte-ethdev25",
                "librte-eventdev25",
                "librte-gro25",
                "librte-gso25",
                "librte-hash25",
                "librte-ip-frag25",
                "librte-kvargs25",
                "librte-latencystats25",
                "librte-log25",
                "librte-mbuf25",
                "librte-mempool-dpaa25",
                "librte-mempool-ring25",
                "librte-mempool25",
                "librte-meter25",
                "librte-metrics25",
                "librte-net-bnxt25",
                "librte-net-bond25",
                "librte-net-dpaa25",
                "librte-net-i40e25",
                "librte-net-iavf25",
                "librte-net-ice25",
                "librte-net-ixgbe25",
                "librte-net-mlx5-25",
                "librte-net25",
                "librte-pcapng25",
                "librte-pci25",
                "librte-pdump25",
                "librte-rcu25",
                "librte-reorder25",
                "librte-ring25",
                "librte-sched25",
                "librte-security25",
                "librte-telemetry25",
                "librte-timer25",
                "libbsd0",
                "libdbus-1-3",
                "libelf1t64",
                "libfdt1",
                "libjansson4",
                "libmd0",
                "libnuma1",
                "libpcap0.8t64",
                "libsystemd0",
            ],
        }
    }

    /// The stamp of a current tree.
    fn stamp(self) -> String {
        let kernels =
            if self == Self::Headers { "headers of two kernels, sources of three drivers and the CM\n" } else { "" };
        format!("revision {REVISION}\n{}\n{kernels}", self.packages().join("\n"))
    }

    fn is_current(self, dir: &Path) -> bool {
        fs::read_to_string(stamp_file(dir)).is_ok_and(|stamp| stamp == self.stamp())
    }
}

/// Makes sure that a tree exists and is current; returns its folder.
pub(crate) fn ensure(folder: &LabFolder, tree: Tree) -> Result<PathBuf, LabError> {
    let dir = folder.join(tree.name());
    if tree.is_current(&dir) {
        return Ok(dir);
    }
    if std::env::consts::ARCH != "x86_64" {
        return Err(LabError::Host { arch: std::env::consts::ARCH });
    }
    let _lock = FileLock::any(&[folder.join("setup.lock")], PATIENCE, || {
        say("another process is setting the lab up, waiting for it");
    })?;
    // Another process may have made it while we waited.
    if !tree.is_current(&dir) {
        make(folder, tree, &dir)?;
    }
    Ok(dir)
}

fn make(folder: &LabFolder, tree: Tree, dir: &Path) -> Result<(), LabError> {
    say(&format!("setting up {} (first time only)", dir.display()));
    let arm64 = tree == Tree::Aarch64;
    let apt = Apt::new(folder.join(if arm64 { "apt-arm64" } else { "apt" }), arm64)?;
    apt.update()?;
    let plan = download(&apt, tree)?;

    // Unpacked to a temporary folder and renamed when complete, so that a tree is never partial.
    let partial = folder.join(&format!("{}.partial", tree.name()));
    remove_tree(&partial)?;
    unpack(&apt, &plan, &partial)?;
    match tree {
        Tree::Root => finish_root(&partial, &apt.log())?,
        Tree::Aarch64 => aarch64::finish(&partial)?,
        Tree::Headers => finish_headers(&apt, &partial)?,
        Tree::Tshark
        | Tree::Scapy
        | Tree::Iperf
        | Tree::LinuxPtp
        | Tree::NvmeCli
        | Tree::Fio
        | Tree::Ceph
        | Tree::Ucx
        | Tree::Dpdk => {}
    }
    let stamp = stamp_file(&partial);
    fs::write(&stamp, tree.stamp()).doing("write", &stamp)?;
    remove_tree(dir)?;
    fs::rename(&partial, dir).doing("rename", &partial)?;
    for archive in &plan {
        let file = apt.archives().join(&archive.file_name);
        fs::remove_file(&file).doing("remove", &file)?;
    }
    say("set up");
    Ok(())
}

/// Downloads the packages of a tree; returns their list.
fn download(apt: &Apt, tree: Tree) -> Result<Vec<Archive>, LabError> {
    let mut packages: Vec<String> = tree.packages().iter().map(|&name| name.to_owned()).collect();
    let plan = match tree {
        Tree::Root => {
            packages.push(guests_headers(apt)?);
            apt.closure(&packages)?
        }
        Tree::Headers => {
            let newest = newest_headers(apt)?;
            packages.extend([guests_headers(apt)?, newest.clone()]);
            packages.dedup();
            packages.extend(sources::of_headers(&newest));
            apt.alone(&packages)?
        }
        Tree::Tshark | Tree::Scapy => apt.closure(&packages)?,
        Tree::Iperf | Tree::LinuxPtp | Tree::NvmeCli | Tree::Ceph | Tree::Ucx | Tree::Dpdk => apt.alone(&packages)?,
        Tree::Fio => beyond_root(apt, &packages)?,
        Tree::Aarch64 => apt.closure(&packages)?.into_iter().filter(aarch64::is_needed).collect(),
    };
    // Of what these depend on, a part is left out: each package has to be named.
    if matches!(tree, Tree::Fio | Tree::Aarch64) {
        packages = plan.iter().map(Archive::package).collect();
    }
    let is_alone = !matches!(tree, Tree::Root | Tree::Tshark | Tree::Scapy);
    apt.fetch(&packages, &plan, is_alone)?;
    Ok(plan)
}

/// The downloads for `packages` and what they depend on that guests' root file system has not. Python is for scripts
/// beside fio alone.
fn beyond_root(apt: &Apt, packages: &[String]) -> Result<Vec<Archive>, LabError> {
    let root: Vec<String> = Tree::Root.packages().iter().map(|&name| name.to_owned()).collect();
    let root: Vec<String> = apt.closure(&root)?.iter().map(Archive::package).collect();
    let is_needed = |name: String| !root.contains(&name) && !name.contains("python3");
    Ok(apt.closure(packages)?.into_iter().filter(|archive| is_needed(archive.package())).collect())
}

/// The headers package of the guests' kernel.
fn guests_headers(apt: &Apt) -> Result<String, LabError> {
    let image = apt.closure(&[KERNEL.to_owned()])?;
    image
        .iter()
        .find_map(|archive| {
            let name = archive.file_name.split('_').next()?;
            let abi = name.strip_prefix("linux-image-")?.strip_suffix("-amd64")?;
            abi.starts_with(|first: char| first.is_ascii_digit()).then(|| format!("linux-headers-{abi}-common"))
        })
        .ok_or_else(|| LabError::Missing { what: "kernel image".into() })
}

/// The headers package of the newest kernel, including backports.
fn newest_headers(apt: &Apt) -> Result<String, LabError> {
    const PREFIX: &str = "linux-headers-";
    let names = apt.names(PREFIX)?.into_iter();
    let release = |name: &str| release_number(name.strip_prefix(PREFIX)?.strip_suffix("-common")?);
    names
        .filter(|name| release(name).is_some())
        .max_by_key(|name| release(name))
        .ok_or_else(|| LabError::Missing { what: "kernel headers".into() })
}

fn unpack(apt: &Apt, plan: &[Archive], dir: &Path) -> Result<(), LabError> {
    const STEP: &str = "unpacking the packages";
    fs::create_dir_all(dir).doing("create", dir)?;
    let bar = Progress::step(STEP, plan.len() as u64, false);
    for (done, archive) in (0..).zip(plan) {
        bar.set(done);
        let mut command = Command::new("dpkg");
        command.arg("-x").arg(apt.archives().join(&archive.file_name)).arg(dir);
        let status = run_logged(&mut command, STEP, &apt.log(), QUIET, || 0)?;
        if !status.map_err(no_apt("dpkg"))?.success() {
            return Err(step_failed(STEP, &apt.log()));
        }
    }
    Ok(())
}

/// Keeps only the parts of the sources that declare layouts.
fn finish_headers(apt: &Apt, tree: &Path) -> Result<(), LabError> {
    let kernel =
        sources::of_headers(&newest_headers(apt)?).ok_or_else(|| LabError::Missing { what: "kernel".into() })?;
    sources::finish_kernel(tree, &kernel, &apt.log())?;
    let archive = apt.archives().join(apt.source(sources::RDMA_CORE)?.file_name);
    apt.fetch_source(sources::RDMA_CORE)?;
    sources::finish_rdma_core(tree, &archive, &apt.log())?;
    fs::remove_file(&archive).doing("remove", &archive)
}

/// Does what the packages' installation scripts would do.
fn finish_root(root: &Path, log: &Path) -> Result<(), LabError> {
    for (name, target) in [("usr/bin/sh", "bash"), ("usr/bin/awk", "mawk")] {
        let link = root.join(name);
        if link.symlink_metadata().is_err() {
            symlink(target, &link).doing("create", &link)?;
        }
    }
    for (name, text) in [
        ("etc/passwd", "root:x:0:0:root:/root:/bin/bash\n"),
        ("etc/group", "root:x:0:\n"),
        ("etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"),
        ("etc/hostname", "lab\n"),
    ] {
        let path = root.join(name);
        fs::write(&path, text).doing("write", &path)?;
    }
    keep_own_providers(&root.join("etc/libibverbs.d"))?;
    // A guest would do it each time that it loads one, on an emulated processor.
    let mut unpack = Command::new("find");
    unpack.arg(root.join("usr/lib/modules")).args(["-name", "*.ko.xz", "-exec", "xz", "--decompress", "{}", "+"]);
    finish_step("unpacking the kernel's modules (needs xz: apt-get install xz-utils)", &mut unpack, log)?;
    let release = kernel_release(root)?;
    let [image, unpacked] = ["vmlinuz", "vmlinux"].map(|name| root.join(format!("boot/{name}-{release}")));
    if let Some(mut unpack) = kernel::unpack(root, &image, &unpacked)? {
        finish_step("unpacking the kernel", &mut unpack, log)?;
    }
    let mut depmod = loader(root, "depmod", "usr/bin/kmod");
    depmod.arg("-b").arg(root).arg(release);
    finish_step("listing the kernel's modules", &mut depmod, log)
}

/// libibverbs loads each provider that is configured, before it knows the devices: of 17 that is most of the time that
/// a program takes to start.
fn keep_own_providers(folder: &Path) -> Result<(), LabError> {
    for entry in fs::read_dir(folder).doing("read", folder)? {
        let path = entry.doing("read", folder)?.path();
        if !["mlx5.driver", "rxe.driver"].iter().any(|own| path.ends_with(own)) {
            fs::remove_file(&path).doing("remove", &path)?;
        }
    }
    Ok(())
}

fn finish_step(step: &'static str, command: &mut Command, log: &Path) -> Result<(), LabError> {
    let bar = Progress::step(step, 0, false);
    let status = run_logged(command, step, log, QUIET, || 0)?;
    drop(bar);
    match status {
        Ok(status) if status.success() => Ok(()),
        _ => Err(step_failed(step, log)),
    }
}

fn step_failed(step: &'static str, log: &Path) -> LabError {
    LabError::Step { step, log: log.to_owned(), tail: tail(log, 12) }
}

fn stamp_file(dir: &Path) -> PathBuf {
    dir.join(".lab-stamp")
}

fn remove_tree(dir: &Path) -> Result<(), LabError> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error).doing("remove", dir),
        _ => Ok(()),
    }
}
