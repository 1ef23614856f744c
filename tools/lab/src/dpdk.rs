//! DPDK of Debian, for guests: testpmd, and its driver of ConnectX cards.

use std::path::{Path, PathBuf};

use crate::error::LabError;
use crate::folder::LabFolder;
use crate::setup::{Tree, ensure};

/// `dpdk-testpmd`, DPDK's driver of ConnectX cards, and the libraries that guests do not have.
#[derive(Clone, Debug)]
pub struct Dpdk {
    tree: PathBuf,
}

impl Dpdk {
    /// Where guests are to see [`folder`](Self::folder): its loader path is in [`COMMAND`](Self::COMMAND).
    pub const PLACE: &str = "/opt/dpdk";

    /// A bash function `dpdk` that runs a program on DPDK's libraries: `dpdk dpdk-testpmd ...`.
    pub const COMMAND: &str = r#"
dpdk() {
    libraries=/opt/dpdk/usr/lib/x86_64-linux-gnu
    program=$1
    shift
    # In lines, so that what a command says is there before the next prompt.
    LD_LIBRARY_PATH=$libraries PATH=/opt/dpdk/usr/bin:$PATH stdbuf -oL $program \
        -d $libraries/librte_mempool_ring.so.25 "$@"
}
"#;

    /// Fetches it, some 6 MB, if it is missing.
    pub fn ready() -> Result<Self, LabError> {
        Ok(Self { tree: ensure(&LabFolder::find(), Tree::Dpdk)? })
    }

    /// The folder to share with guests.
    pub fn folder(&self) -> &Path {
        &self.tree
    }
}
