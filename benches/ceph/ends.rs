//! The command lines of the ends.

use mlx5_lab::Software;

/// Where servers listen.
const ADDRESS: &str = "127.0.0.1:6800";

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

/// As many chunks as in [`CHUNKS`]. Ceph's polling thread sleeps as soon as there is nothing to do, too: what it polls
/// meanwhile, a millisecond by default, would be counted. It wants memory that may be locked.
const SETTINGS: &str = "
ulimit -l unlimited
export CEPH_ARGS='--no-config-file --ms_type=async+rdma --ms_async_rdma_buffer_size=8192'
CEPH_ARGS+=' --ms_async_rdma_send_buffers=512 --ms_async_rdma_receive_buffers=8192'
CEPH_ARGS+=' --ms_async_rdma_receive_queue_len=512 --ms_async_op_threads=1 --ms_async_rdma_polling_us=0'
";

/// Chunks of our ends, which sleep as soon as there is nothing to do.
const CHUNKS: &str = "--buffer-size 8192 --send-buffers 512 --receive-queue-len 1023 --empty-turns 0";

impl Ends {
    /// Bash: what both need, then the server in the background, process `$server`.
    pub fn serve(self) -> String {
        let command = match self.server {
            Whose::Ceph => ceph("mlx5_0", &format!("ceph_perf_msgr_server {ADDRESS} 1 0")),
            Whose::Ours => format!("ceph_msgr server -d devx:mlx5_0 {CHUNKS} {ADDRESS}"),
        };
        format!(
            "{SETTINGS}{command} > /tmp/server 2>&1 & server=$!
for wait in $(seq 600); do grep -q ':1A90 .* 0A ' /proc/net/tcp && break; sleep 0.1; done
grep -q ':1A90 .* 0A ' /proc/net/tcp || {{ cat /tmp/server; exit 1; }}
"
        )
    }

    /// The client's command line.
    pub fn call(self, load: Load) -> String {
        let Load { bytes, at_once, operations } = load;
        match self.client {
            Whose::Ceph => {
                ceph("mlx5_1", &format!("ceph_perf_msgr_client {ADDRESS} 1 {at_once} {operations} 0 {bytes}"))
            }
            Whose::Ours => {
                format!(
                    "ceph_msgr client -d devx:mlx5_1 {CHUNKS} --jobs 1 -c {at_once} -n {operations} -s {bytes} {ADDRESS}"
                )
            }
        }
    }
}

/// A command line of Ceph's on `device`.
fn ceph(device: &str, command: &str) -> String {
    format!("{} {command} --ms_async_rdma_device_name={device}", Software::CEPH)
}
