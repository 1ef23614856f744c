//! tshark, to check captures.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{IoContext, LabError};
use crate::folder::LabFolder;
use crate::root::loader;
use crate::setup::{Tree, ensure};

/// Debian's tshark.
#[derive(Clone, Debug)]
pub struct Tshark {
    tree: PathBuf,
    /// Empty, so that the user's own settings are not used.
    settings: PathBuf,
}

impl Tshark {
    /// Fetches it, some 45 MB, if it is missing.
    pub fn ready() -> Result<Self, LabError> {
        let folder = LabFolder::find();
        let tree = ensure(&folder, Tree::Tshark)?;
        let settings = folder.join("tshark-settings");
        std::fs::create_dir_all(&settings).doing("create", &settings)?;
        Ok(Self { tree, settings })
    }

    /// tshark for a capture: one pass, no name resolution, all checksums verified.
    pub fn read(&self, capture: &Path) -> Command {
        let mut command = loader(&self.tree, "tshark", "usr/bin/tshark");
        command.env("WIRESHARK_CONFIG_DIR", &self.settings).arg("-n").arg("-r").arg(capture);
        for checked in ["ip", "tcp", "udp"] {
            command.args(["-o", &format!("{checked}.check_checksum:TRUE")]);
        }
        command
    }
}
