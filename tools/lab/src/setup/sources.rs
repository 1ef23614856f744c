//! Source packages, of which the lab keeps only the files that declare layouts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::error::{IoContext, LabError};
use crate::process::{run_logged, tail};
use crate::progress::Progress;

/// The source package of libmlx5.
pub(super) const RDMA_CORE: &str = "rdma-core";

/// What is kept of the kernel's source.
const OF_KERNEL: [&str; 4] = [
    "*/drivers/fwctl/mlx5/*.[ch]",
    "*/drivers/infiniband/core/cm*.[ch]",
    "*/drivers/infiniband/hw/mlx5/*.[ch]",
    "*/drivers/net/ethernet/mellanox/mlx5/core/*.[ch]",
];
const OF_RDMA_CORE: [&str; 1] = ["*/providers/mlx5/*.[ch]"];

/// How long unpacking may take: a kernel has some 1.5 GB.
const QUIET: Duration = Duration::from_secs(600);

/// The source package for a package of kernel headers: `linux-headers-7.3.4+deb13-common`.
pub(super) fn of_headers(package: &str) -> Option<String> {
    let release = release_number(package.strip_prefix("linux-headers-")?)?;
    Some(format!("linux-source-{}.{}", release.first()?, release.get(1)?))
}

/// `6.12.94+deb13` as numbers, for comparison; `None` if it does not start like a release.
pub(crate) fn release_number(release: &str) -> Option<Vec<u32>> {
    let dotted = release.split(|c: char| c != '.' && !c.is_ascii_digit()).next()?;
    dotted.split('.').map(|number| number.parse().ok()).collect()
}

/// Replaces the packed kernel source in a tree by the files that are kept.
pub(super) fn finish_kernel(tree: &Path, package: &str, log: &Path) -> Result<(), LabError> {
    let archive = tree.join("usr/src").join(format!("{package}.tar.xz"));
    unpack(&archive, &tree.join("usr/src/linux"), &OF_KERNEL, log)?;
    fs::remove_file(&archive).doing("remove", &archive)
}

/// Unpacks the files of rdma-core's source that are kept.
pub(super) fn finish_rdma_core(tree: &Path, archive: &Path, log: &Path) -> Result<(), LabError> {
    unpack(archive, &tree.join("usr/src").join(RDMA_CORE), &OF_RDMA_CORE, log)
}

fn unpack(archive: &Path, into: &PathBuf, kept: &[&str], log: &Path) -> Result<(), LabError> {
    const STEP: &str = "unpacking sources (tar needs xz: apt-get install xz-utils)";
    fs::create_dir_all(into).doing("create", into)?;
    let bar = Progress::step("unpacking sources", 0, false);
    let mut tar = Command::new("tar");
    tar.arg("-xf").arg(archive).arg("-C").arg(into).args(["--strip-components=1", "--wildcards"]).args(kept);
    let status = run_logged(&mut tar, STEP, log, QUIET, || 0)?;
    drop(bar);
    match status {
        Ok(status) if status.success() => Ok(()),
        _ => Err(LabError::Step { step: STEP, log: log.to_owned(), tail: tail(log, 12) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernels_source_is_named_after_its_headers() {
        assert_eq!(of_headers("linux-headers-7.3.4+deb13-common").as_deref(), Some("linux-source-7.3"));
        assert_eq!(of_headers("linux-headers-amd64"), None);
    }

    #[test]
    fn releases_compare_as_numbers() {
        assert_eq!(release_number("6.12.94+deb13"), Some(vec![6, 12, 94]));
        assert!(release_number("7.3.4+deb13") > release_number("6.12.107+deb13"));
        assert!(release_number("7.3.12+deb13") > release_number("7.3.4+deb13"));
        assert_eq!(release_number("amd64"), None);
    }
}
