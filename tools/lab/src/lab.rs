//! The lab itself: unpacked, ready to boot.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{IoContext, LabError};
use crate::place::Place;
use crate::setup::{Tree, ensure};

/// A lab that is set up.
#[derive(Clone, Debug)]
pub struct Lab {
    place: Place,
    root: PathBuf,
    kernel: String,
}

impl Lab {
    /// Sets the lab up if it is not, and returns it.
    ///
    /// The first time this fetches some 180 MB and unpacks them to 0.5 GB, with
    /// progress on stderr; later it only looks at a stamp. Callers in several
    /// processes take turns.
    pub fn ready() -> Result<Self, LabError> {
        let place = Place::find();
        let root = ensure(&place, Tree::Root)?;
        let kernel = kernel_release(&root)?;
        Ok(Self { place, root, kernel })
    }

    /// The guests' root file system, which holds QEMU too.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The guests' kernel, as `uname -r` says it.
    pub fn kernel_release(&self) -> &str {
        &self.kernel
    }

    /// Where the guests' logs are, a folder each.
    pub fn logs(&self) -> PathBuf {
        self.place.logs()
    }

    /// The kernel image.
    pub(crate) fn kernel_image(&self) -> PathBuf {
        self.root.join(format!("boot/vmlinuz-{}", self.kernel))
    }

    /// The kernel's modules.
    pub(crate) fn modules(&self) -> PathBuf {
        self.root.join("usr/lib/modules").join(&self.kernel)
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// QEMU, run with the libraries it was built with.
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

/// Folders of C headers that the layouts are judged by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Holds `linux/mlx5/mlx5_ifc.h` of the kernel the guests boot.
    pub kernel_include: PathBuf,
    /// Holds `infiniband/mlx5dv.h` of rdma-core.
    pub verbs_include: PathBuf,
}

/// Fetches the kernel's and rdma-core's headers, and nothing else, if they are
/// not there yet.
pub fn headers() -> Result<Headers, LabError> {
    let tree = ensure(&Place::find(), Tree::Headers)?;
    let sources = tree.join("usr/src");
    let kernel = fs::read_dir(&sources)
        .doing("read", &sources)?
        .flatten()
        .map(|entry| entry.path().join("include"))
        .find(|include| include.join("linux/mlx5/mlx5_ifc.h").is_file());
    let verbs_include = tree.join("usr/include");
    match kernel {
        Some(kernel_include) if verbs_include.join("infiniband/mlx5dv.h").is_file() => {
            Ok(Headers { kernel_include, verbs_include })
        }
        _ => Err(LabError::Missing { what: "mlx5_ifc.h and mlx5dv.h".into() }),
    }
}

/// The release of the one kernel in a tree.
pub(crate) fn kernel_release(root: &Path) -> Result<String, LabError> {
    let modules = root.join("usr/lib/modules");
    fs::read_dir(&modules)
        .doing("read", &modules)?
        .flatten()
        .find_map(|entry| entry.file_name().into_string().ok())
        .ok_or_else(|| LabError::Missing { what: "kernel modules".into() })
}

/// A program of a tree, run through that tree's own dynamic loader: the machine
/// may be older than the program.
pub(crate) fn loader(root: &Path, argv0: &str, program: &str) -> Command {
    let mut command = Command::new(root.join("usr/lib64/ld-linux-x86-64.so.2"));
    command
        .args(["--argv0", argv0, "--library-path"])
        .arg(libraries(root))
        .arg(root.join(program))
        // cargo points this at its own libraries while tests run.
        .env_remove("LD_LIBRARY_PATH");
    command
}

fn libraries(root: &Path) -> PathBuf {
    root.join("usr/lib/x86_64-linux-gnu")
}
