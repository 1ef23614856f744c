//! The lab: unpacked and ready to boot.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{IoContext, LabError};
use crate::folder::LabFolder;
use crate::root::{kernel_release, libraries, loader};
use crate::setup::{Tree, ensure, release_number};

/// Fetches everything that any test of the lab needs, some 700 MB, where it is missing. Otherwise each test fetches
/// what it needs itself.
pub fn set_up() -> Result<(), LabError> {
    let folder = LabFolder::find();
    Tree::ALL.into_iter().try_for_each(|tree| ensure(&folder, tree).map(drop))
}

/// A lab that is set up.
#[derive(Clone, Debug)]
pub struct Lab {
    folder: LabFolder,
    root: PathBuf,
    kernel: String,
}

impl Lab {
    /// Sets the lab up if needed.
    ///
    /// The first call fetches some 180 MB and unpacks them to 0.5 GB, with progress on stderr. Later calls only check a
    /// stamp. Callers in several processes wait for each other.
    pub fn ready() -> Result<Self, LabError> {
        let folder = LabFolder::find();
        let root = ensure(&folder, Tree::Root)?;
        let kernel = kernel_release(&root)?;
        Ok(Self { folder, root, kernel })
    }

    /// The guests' root file system, which also has QEMU.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The release of the guests' kernel, as in `uname -r`.
    pub fn kernel_release(&self) -> &str {
        &self.kernel
    }

    /// The kernel's file to boot: unpacked where that could be done.
    pub(crate) fn kernel_image(&self) -> PathBuf {
        let [unpacked, image] =
            ["vmlinux", "vmlinuz"].map(|name| self.root.join(format!("boot/{name}-{}", self.kernel)));
        if unpacked.is_file() { unpacked } else { image }
    }

    /// The kernel's modules.
    pub(crate) fn modules(&self) -> PathBuf {
        self.root.join("usr/lib/modules").join(&self.kernel)
    }

    pub(crate) fn folder(&self) -> &LabFolder {
        &self.folder
    }

    /// QEMU, with the libraries it was built with.
    pub(crate) fn qemu(&self) -> Command {
        let mut command = loader(&self.root, "qemu-system-x86_64", "usr/bin/qemu-system-x86_64");
        command
            .env("QEMU_MODULE_DIR", libraries(&self.root).join("qemu"))
            .arg("-L")
            .arg(self.root.join("usr/share/qemu"))
            .arg("-L")
            .arg(self.root.join("usr/share/seabios"));
        command
    }
}

/// C headers against which the layouts are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headers {
    /// The kernel of the guests: Debian stable's.
    pub guests_kernel: KernelHeaders,
    /// The newest kernel in Debian stable's backports.
    pub newest_kernel: KernelHeaders,
    /// The folder with `infiniband/mlx5dv.h` of rdma-core.
    pub verbs_include: PathBuf,
    /// The folder `drivers` of the newest kernel's source; only the parts of mlx5.
    pub newest_drivers: PathBuf,
    /// The folder with libmlx5's internal headers, from rdma-core's source.
    pub provider: PathBuf,
}

/// The headers of one kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelHeaders {
    /// The kernel's release without Debian's suffix: `6.12.94`.
    pub release: String,
    /// The folder with `linux/mlx5/mlx5_ifc.h`.
    pub include: PathBuf,
}

/// Fetches the headers of the kernels and of rdma-core, and the headers in their sources, if they are missing: some 190
/// MB, and 175 on disk.
pub fn headers() -> Result<Headers, LabError> {
    let tree = ensure(&LabFolder::find(), Tree::Headers)?;
    let mut kernels = kernel_headers(&tree.join("usr/src"))?;
    let verbs_include = tree.join("usr/include");
    match (kernels.pop(), verbs_include.join("infiniband/mlx5dv.h").is_file()) {
        (Some(newest_kernel), true) => {
            // If backports have no kernel, one kernel is both.
            let guests_kernel = kernels.into_iter().next().unwrap_or_else(|| newest_kernel.clone());
            let sources = tree.join("usr/src");
            let (newest_drivers, provider) = (sources.join("linux/drivers"), sources.join("rdma-core/providers/mlx5"));
            Ok(Headers { guests_kernel, newest_kernel, verbs_include, newest_drivers, provider })
        }
        _ => Err(LabError::Missing { what: "mlx5_ifc.h and mlx5dv.h".into() }),
    }
}

/// The kernels whose headers are in a folder, oldest first.
fn kernel_headers(sources: &Path) -> Result<Vec<KernelHeaders>, LabError> {
    let folders = fs::read_dir(sources).doing("read", sources)?.flatten();
    let mut found: Vec<_> = folders
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let number = release_number(name.strip_prefix("linux-headers-")?)?;
            let include = entry.path().join("include");
            include.join("linux/mlx5/mlx5_ifc.h").is_file().then_some((number, include))
        })
        .collect();
    found.sort();
    let release = |number: Vec<u32>| number.iter().map(u32::to_string).collect::<Vec<_>>().join(".");
    Ok(found.into_iter().map(|(number, include)| KernelHeaders { release: release(number), include }).collect())
}
