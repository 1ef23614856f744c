//! Ceph's messenger over RDMA in a guest, and the ends of ours beside it: what all who run them share.

use crate::software::Software;

/// Bash: the network devices of two functions, in whose link-local GIDs Ceph's ends meet. They know each other from the
/// start: the kernel looks for the neighbour when it connects a queue pair, and Ceph's ends abort if it takes too long.
pub const NETWORK: &str = r#"
set -e
ip link set lo up
for number in 0 1; do
    port=/sys/class/infiniband/mlx5_$number
    ip link set $(ls $port/device/net) up
    for wait in $(seq 300); do grep -q ACTIVE $port/ports/1/state && break; sleep 0.1; done
    grep -q ACTIVE $port/ports/1/state
done
addresses() { ip -6 -o addr show scope link -tentative; }
for wait in $(seq 300); do [ $(addresses | wc -l) = 2 ] && break; sleep 0.1; done
know() {
    address=$(addresses | sed -n "s,.* $2 *inet6 \([^/]*\).*,\1,p")
    ip neigh replace $address lladdr $(cat /sys/class/net/$2/address) dev $1 nud permanent
}
near=$(ls /sys/class/infiniband/mlx5_0/device/net)
far=$(ls /sys/class/infiniband/mlx5_1/device/net)
know $near $far
know $far $near
"#;

/// Where servers listen.
pub const ADDRESS: &str = "127.0.0.1:6800";

/// Bash: whether a server listens there.
pub const LISTENING: &str = "grep -q ':1A90 .* 0A ' /proc/net/tcp";

/// Arguments of our ends: few and small chunks, as the guest is small and an operation of 1 MiB takes many.
pub const CHUNKS: &str = "--buffer-size 8192 --send-buffers 512 --receive-queue-len 1023";

/// Bash: what Ceph's ends need before their commands. As many bytes of chunks, and memory that may be locked.
pub const SETTINGS: &str = "
ulimit -l unlimited
export CEPH_ARGS='--no-config-file --ms_type=async+rdma --ms_async_rdma_buffer_size=8192'
CEPH_ARGS+=' --ms_async_rdma_send_buffers=512 --ms_async_rdma_receive_buffers=8192'
CEPH_ARGS+=' --ms_async_rdma_receive_queue_len=512 --ms_async_op_threads=1'
";

/// A command line that runs one of the programs of [`Software::ceph`] on the RDMA device `device`.
pub fn command(device: &str, command: &str) -> String {
    format!("{} {command} --ms_async_rdma_device_name={device}", Software::CEPH)
}
