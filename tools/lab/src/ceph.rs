//! Ceph's messenger benchmark of Debian, for guests.

use std::path::{Path, PathBuf};

use crate::error::LabError;
use crate::folder::LabFolder;
use crate::setup::{Tree, ensure};

/// `ceph_perf_msgr_client` and `ceph_perf_msgr_server`, and the libraries that guests do not have.
#[derive(Clone, Debug)]
pub struct Ceph {
    tree: PathBuf,
}

impl Ceph {
    /// Where guests are to see [`folder`](Self::folder): its loader path is in [`COMMAND`](Self::COMMAND).
    pub const PLACE: &str = "/opt/ceph";

    /// A bash function `ceph` that runs one of its programs: `ceph ceph_perf_msgr_server ...`.
    pub const COMMAND: &str = r#"
ceph() {
    libraries=/opt/ceph/usr/lib/x86_64-linux-gnu
    program=$1
    shift
    LD_LIBRARY_PATH=$libraries:$libraries/ceph /opt/ceph/usr/bin/$program "$@"
}
"#;

    /// Fetches it, some 50 MB, if it is missing.
    pub fn ready() -> Result<Self, LabError> {
        Ok(Self { tree: ensure(&LabFolder::find(), Tree::Ceph)? })
    }

    /// The folder to share with guests.
    pub fn folder(&self) -> &Path {
        &self.tree
    }
}
