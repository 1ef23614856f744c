//! The command lines of the ends.

use mlx5_lab::ceph::{ADDRESS, CHUNKS, LISTENING, SETTINGS, command};

/// Whose messenger an end is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whose {
    Ceph,
    Ours,
}

/// A pair of ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ends {
    pub client: Whose,
    pub server: Whose,
}

/// What a client does.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    pub bytes: usize,
    pub at_once: usize,
    pub operations: usize,
}

/// Argument of Ceph's ends: their polling thread sleeps as soon as there is nothing to do. What it polls meanwhile, a
/// millisecond by default, would be counted.
const SLEEP: &str = "--ms_async_rdma_polling_us=0";
/// That of ours.
const OURS_SLEEP: &str = "--empty-turns 0";

impl Ends {
    /// Bash: what both need, then the server in the background, process `$server`.
    pub fn serve(self) -> String {
        let command = match self.server {
            Whose::Ceph => command("mlx5_0", &format!("ceph_perf_msgr_server {ADDRESS} 1 0 {SLEEP}")),
            Whose::Ours => format!("ceph_msgr server -d devx:mlx5_0 {CHUNKS} {OURS_SLEEP} {ADDRESS}"),
        };
        format!(
            "{SETTINGS}{command} > /tmp/server 2>&1 & server=$!
for wait in $(seq 600); do {LISTENING} && break; sleep 0.1; done
{LISTENING} || {{ cat /tmp/server; exit 1; }}
"
        )
    }

    /// The client's command line.
    pub fn call(self, load: Load) -> String {
        let Load { bytes, at_once, operations } = load;
        match self.client {
            Whose::Ceph => command(
                "mlx5_1",
                &format!("ceph_perf_msgr_client {ADDRESS} 1 {at_once} {operations} 0 {bytes} {SLEEP}"),
            ),
            Whose::Ours => {
                format!(
                    "ceph_msgr client -d devx:mlx5_1 {CHUNKS} {OURS_SLEEP} --jobs 1 -c {at_once} -n {operations} -s {bytes} {ADDRESS}"
                )
            }
        }
    }
}
