//! UCX of Debian, for guests: a communication library with code of its own for the queues of mlx5 cards.

use std::path::{Path, PathBuf};

use crate::error::LabError;
use crate::folder::LabFolder;
use crate::setup::{Tree, ensure};
use crate::verbs::compile;

/// UCX's libraries and headers.
#[derive(Clone, Debug)]
pub struct Ucx {
    tree: PathBuf,
}

impl Ucx {
    /// Where guests are to see [`folder`](Self::folder).
    pub const PLACE: &str = "/opt/ucx";

    /// What a guest's command needs before it, so that its program finds the libraries.
    pub const ENVIRONMENT: &str = "LD_LIBRARY_PATH=/opt/ucx/usr/lib/x86_64-linux-gnu";

    /// Fetches it, some 2 MB, if it is missing.
    pub fn ready() -> Result<Self, LabError> {
        Ok(Self { tree: ensure(&LabFolder::find(), Tree::Ucx)? })
    }

    /// The folder to share with guests.
    pub fn folder(&self) -> &Path {
        &self.tree
    }

    /// Compiles the C file `source` to `program` with this machine's C compiler, on UCX.
    ///
    /// # Errors
    /// [`LabError::Compiler`] if there is no compiler, or compilation fails; its messages are on stderr.
    pub fn program(&self, source: &Path, program: &Path) -> Result<(), LabError> {
        let libraries = self.tree.join("usr/lib/x86_64-linux-gnu");
        compile(source, program, &["libucp.so.0", "libucs.so.0"].map(|library| libraries.join(library)), |compiler| {
            compiler.arg("-isystem").arg(self.tree.join("usr/include"));
        })
    }
}
