//! Scapy, to check ICRCs, which tshark does not.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{IoContext, LabError};
use crate::folder::LabFolder;
use crate::root::loader;
use crate::setup::{Tree, ensure};

/// Debian's Scapy, and its Python.
#[derive(Clone, Debug)]
pub struct Scapy {
    tree: PathBuf,
    /// Empty, so that the user's own settings are not used.
    home: PathBuf,
}

impl Scapy {
    /// Fetches it, some 19 MB, if it is missing.
    pub fn ready() -> Result<Self, LabError> {
        let folder = LabFolder::find();
        let tree = ensure(&folder, Tree::Scapy)?;
        let home = folder.join("scapy-home");
        std::fs::create_dir_all(&home).doing("create", &home)?;
        Ok(Self { tree, home })
    }

    /// Python for a script that may import scapy, isolated from this machine's Python.
    pub fn run(&self, script: &Path) -> Command {
        let mut command = loader(&self.tree, "python3", "usr/bin/python3");
        for own in ["PYTHONPATH", "PYTHONSTARTUP", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"] {
            command.env_remove(own);
        }
        command
            .env("PYTHONHOME", self.tree.join("usr"))
            .env("PYTHONNOUSERSITE", "1")
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("HOME", &self.home)
            .arg(script);
        command
    }
}
