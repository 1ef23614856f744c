//! Debian's programs and libraries for guests, beyond those of their root file system.

use std::path::{Path, PathBuf};

use crate::error::LabError;
use crate::folder::LabFolder;
use crate::setup::{Tree, ensure};
use crate::verbs::compile;

/// Software for guests: share its [`folder`](Self::folder) with one at its [`place`](Self::place).
#[derive(Clone, Debug)]
pub struct Software {
    tree: PathBuf,
    place: &'static str,
}

impl Software {
    /// A command that runs one of the programs of [`ceph`](Self::ceph): its name follows, and its arguments.
    pub(crate) const CEPH: &str = "env PATH=/opt/ceph/usr/bin:$PATH \
        LD_LIBRARY_PATH=/opt/ceph/usr/lib/x86_64-linux-gnu:/opt/ceph/usr/lib/x86_64-linux-gnu/ceph";

    /// A bash function `dpdk` that runs a program on the libraries of [`dpdk`](Self::dpdk): `dpdk dpdk-testpmd ...`.
    pub const DPDK: &str = r#"
dpdk() {
    libraries=/opt/dpdk/usr/lib/x86_64-linux-gnu
    program=$1
    shift
    # In lines, so that what a command says is there before the next prompt.
    LD_LIBRARY_PATH=$libraries PATH=/opt/dpdk/usr/bin:$PATH stdbuf -oL $program \
        -d $libraries/librte_mempool_ring.so.25 "$@"
}
"#;

    /// A command that runs the iperf3 of [`iperf`](Self::iperf): its arguments follow.
    pub const IPERF: &str = "env LD_LIBRARY_PATH=/opt/iperf3/usr/lib/x86_64-linux-gnu /opt/iperf3/usr/bin/iperf3";

    /// A command that runs one of the programs of [`linuxptp`](Self::linuxptp): its name follows, and its arguments.
    pub const LINUXPTP: &str = "env PATH=/opt/linuxptp/usr/sbin:$PATH";

    /// A command that runs the `nvme` of [`nvme_cli`](Self::nvme_cli): its arguments follow.
    pub const NVME: &str = "env LD_LIBRARY_PATH=/opt/nvme-cli/usr/lib/x86_64-linux-gnu /opt/nvme-cli/usr/sbin/nvme";

    /// A command that runs the fio of [`fio`](Self::fio): its arguments follow.
    pub const FIO: &str = "env \
        LD_LIBRARY_PATH=/opt/fio/usr/lib/x86_64-linux-gnu:/opt/fio/usr/lib/x86_64-linux-gnu/ceph /opt/fio/usr/bin/fio";

    /// What a guest's command needs before it, so that its program finds the libraries of [`ucx`](Self::ucx).
    pub const UCX: &str = "LD_LIBRARY_PATH=/opt/ucx/usr/lib/x86_64-linux-gnu";

    /// Ceph's messenger benchmark, `ceph_perf_msgr_client` and `ceph_perf_msgr_server`: fetches some 50 MB if it is
    /// missing.
    pub fn ceph() -> Result<Self, LabError> {
        Self::of(Tree::Ceph, "/opt/ceph")
    }

    /// `dpdk-testpmd`, DPDK's driver of ConnectX cards, and its headers: fetches some 15 MB if they are missing.
    pub fn dpdk() -> Result<Self, LabError> {
        Self::of(Tree::Dpdk, "/opt/dpdk")
    }

    /// iperf3: fetches some 200 kB if it is missing.
    pub fn iperf() -> Result<Self, LabError> {
        Self::of(Tree::Iperf, "/opt/iperf3")
    }

    /// linuxptp, whose `ptp4l`, `phc2sys` and `phc_ctl` read, set and steer clocks: fetches some 300 kB if it is
    /// missing.
    pub fn linuxptp() -> Result<Self, LabError> {
        Self::of(Tree::LinuxPtp, "/opt/linuxptp")
    }

    /// nvme-cli: fetches some 900 kB if it is missing.
    pub fn nvme_cli() -> Result<Self, LabError> {
        Self::of(Tree::NvmeCli, "/opt/nvme-cli")
    }

    /// fio: fetches some 25 MB, most of it for storage that is not used, if it is missing.
    pub fn fio() -> Result<Self, LabError> {
        Self::of(Tree::Fio, "/opt/fio")
    }

    /// UCX, a communication library with code of its own for the queues of mlx5 cards, and its headers: fetches some
    /// 2 MB if it is missing.
    pub fn ucx() -> Result<Self, LabError> {
        Self::of(Tree::Ucx, "/opt/ucx")
    }

    fn of(tree: Tree, place: &'static str) -> Result<Self, LabError> {
        Ok(Self { tree: ensure(&LabFolder::find(), tree)?, place })
    }

    /// The folder to share with guests.
    pub fn folder(&self) -> &Path {
        &self.tree
    }

    /// Where guests are to see it: the commands above name that.
    pub fn place(&self) -> &'static str {
        self.place
    }

    /// Compiles the C file `source` to `program` with this machine's C compiler, on `libraries` of this software. For
    /// DPDK as Debian compiles that: its headers need SSE 4.2.
    ///
    /// # Errors
    /// [`LabError::Compiler`] if there is no compiler, or compilation fails; its messages are on stderr.
    pub fn compile<const N: usize>(&self, source: &Path, program: &Path, libraries: [&str; N]) -> Result<(), LabError> {
        let folder = self.tree.join("usr/lib/x86_64-linux-gnu");
        compile(source, program, &libraries.map(|library| folder.join(library)), |compiler| {
            let include = self.tree.join("usr/include");
            for folder in ["dpdk", "x86_64-linux-gnu/dpdk"].map(|folder| include.join(folder)) {
                if folder.is_dir() {
                    compiler.arg("-march=x86-64-v2").arg("-isystem").arg(folder);
                }
            }
            compiler.arg("-isystem").arg(include);
        })
    }
}
