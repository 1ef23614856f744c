//! A Rust compiler for aarch64, and QEMU to run the results.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::LabError;
use crate::folder::{LabFolder, workspace};
use crate::setup::{Tree, ensure};

/// Debian's Rust compiler with the standard library for aarch64, its binutils, and QEMU's user mode emulation.
#[derive(Clone, Debug)]
pub struct Aarch64 {
    tree: PathBuf,
    target_dir: PathBuf,
}

impl Aarch64 {
    /// The compiler's name for the target.
    pub const TARGET: &str = "aarch64-unknown-linux-gnu";

    /// Fetches everything, some 250 MB, if it is missing.
    pub fn ready() -> Result<Self, LabError> {
        let folder = LabFolder::find();
        Ok(Self { tree: ensure(&folder, Tree::Aarch64)?, target_dir: folder.join("aarch64-target") })
    }

    /// This machine's cargo with that compiler, in the workspace. Programs built for [`Aarch64::TARGET`] run in QEMU.
    pub fn cargo(&self, subcommand: &str) -> Command {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command
            .args([subcommand, "--target", Self::TARGET])
            .current_dir(workspace())
            .env("RUSTC", self.program("rustc"))
            .env("CARGO_TARGET_DIR", &self.target_dir)
            .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", self.program("aarch64-linux-gnu-ld"))
            .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", self.program("qemu"));
        // Nobody debugs or edits there.
        command.env("CARGO_PROFILE_DEV_DEBUG", "none").env("CARGO_INCREMENTAL", "0");
        // The compiler takes minutes, QEMU a second.
        command.env("CARGO_PROFILE_DEV_OPT_LEVEL", "0");
        // Flags for this machine's compiler do not apply.
        for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER"] {
            command.env_remove(name);
        }
        command
    }

    /// Prints the disassembly of an object file or library, with Rust names.
    pub fn disassemble(&self, file: &Path) -> Command {
        let mut command = Command::new(self.program("objdump"));
        command.args(["--disassemble", "--demangle=rust", "--no-show-raw-insn"]).arg(file);
        command
    }

    /// Cargo's output folder for release builds.
    pub fn release_dir(&self) -> PathBuf {
        self.target_dir.join(Self::TARGET).join("release")
    }

    fn program(&self, name: &str) -> PathBuf {
        self.tree.join("bin").join(name)
    }
}
