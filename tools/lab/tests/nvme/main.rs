//! nvme-rdma and nvmet-rdma of Debian's unmodified kernel: on each other over one function of the model (fast
//! registration by the kernel's own users, fenced, with remote invalidation, in lists of as many pages as the card
//! announces), and each with the end of ours in a process on the host.

#[path = "../common/mod.rs"]
mod common;
mod layouts;
mod ours;

use std::time::Duration;

use common::{Lab, PROBE, TestResult, assert_lawful};
use mlx5_lab::{Build, Guest, Model, rounds};

/// How long all sizes, or a run of our program, may take on a busy machine: ten minutes, or two hours in the long form.
fn transfers() -> Duration {
    Duration::from_secs(rounds(600, 7200) as u64)
}

/// A network device at 10.0.0.1.
const NETWORK: &str = r#"
set -e
modprobe mlx5_ib
device=$(ls /sys/class/infiniband/mlx5_0/device/net)
ip link set lo up
ip addr add 10.0.0.1/24 dev $device
ip link set $device up
for wait in $(seq 300); do
    grep -qi 'ffff:0a00:' /sys/class/infiniband/mlx5_0/ports/1/gids/1 && break
    sleep 0.1
done
grep -q ACTIVE /sys/class/infiniband/mlx5_0/ports/1/state
"#;

/// A target on a RAM disk of `SIZE` KiB at 10.0.0.1.
const TARGET: &str = r#"
modprobe brd rd_nr=1 rd_size=$SIZE
modprobe nvmet-rdma
mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
cd /sys/kernel/config/nvmet
mkdir subsystems/lab
echo 1 > subsystems/lab/attr_allow_any_host
mkdir subsystems/lab/namespaces/1
echo /dev/ram0 > subsystems/lab/namespaces/1/device_path
echo 1 > subsystems/lab/namespaces/1/enable
mkdir ports/1
echo rdma > ports/1/addr_trtype
echo ipv4 > ports/1/addr_adrfam
echo 10.0.0.1 > ports/1/addr_traddr
echo 4420 > ports/1/addr_trsvcid
ln -s /sys/kernel/config/nvmet/subsystems/lab ports/1/subsystems/lab
"#;

/// A host connected to the subsystem `NQN` at `ADDRESS`, which has `/dev/nvme0n1`. It is told by writing to
/// /dev/nvme-fabrics what `nvme connect` writes there. A busy machine may stop the guest for some seconds.
const HOST: &str = r#"
set -e
modprobe nvme-rdma
echo "transport=rdma,traddr=$ADDRESS,trsvcid=4420,nqn=$NQN,nr_io_queues=2,keep_alive_tmo=60" > /dev/nvme-fabrics
for wait in $(seq 300); do [ -b /dev/nvme0n1 ] && exit 0; sleep 0.1; done
echo "no /dev/nvme0n1"
exit 1
"#;

/// Writes fresh random bytes in blocks of each size, from 512 B to 1 MiB, and compares them as the host reads them back
/// and, of `DISKS`, as the target's disk holds them. At most `COUNT` blocks and `MOST` bytes of a size. No cache is
/// between.
const EACH_SIZE: &str = r#"
set -e
set -o pipefail
total=0
for ((size = 512; size <= 1048576; size *= 2)); do
    bytes=$((size * COUNT < MOST ? size * COUNT : MOST))
    head -c $bytes /dev/urandom > /tmp/sent
    dd if=/tmp/sent of=/dev/nvme0n1 bs=$size oflag=direct status=none
    for disk in $DISKS; do
        dd if=/dev/$disk bs=$size count=$((bytes / size)) iflag=direct status=none | busybox cmp - /tmp/sent ||
            { echo "$disk: blocks of $size bytes differ"; exit 1; }
    done
    total=$((total + bytes))
done
echo "$total bytes in blocks of all sizes"
"#;

/// Four writers and four readers at a time, each in a part of the disk: registrations and invalidations overtake each
/// other.
const AT_A_TIME: &str = r#"
set -e
part() { dd if=$1 of=$2 bs=256K count=8 skip=$3 seek=$4 $5=direct status=none || touch /tmp/failed; }
head -c 8M /dev/urandom > /tmp/sent
truncate -s 8M /tmp/found
for number in 0 1 2 3; do part /tmp/sent /dev/nvme0n1 $((number * 8)) $((number * 8)) oflag & done
wait
for number in 0 1 2 3; do
    dd if=/dev/nvme0n1 of=/tmp/found bs=256K count=8 skip=$((number * 8)) seek=$((number * 8)) \
        iflag=direct conv=notrunc status=none || touch /tmp/failed &
done
wait
[ ! -e /tmp/failed ]
busybox cmp /tmp/sent /tmp/found
"#;

/// Disconnects the host.
const DISCONNECT: &str = r#"
set -e
echo 1 > /sys/class/nvme/nvme0/delete_controller
modprobe -r nvme-rdma
"#;

/// Takes the target away.
const TAKE_DOWN: &str = r#"
set -e
cd /sys/kernel/config/nvmet
rm ports/1/subsystems/lab
rmdir ports/1 subsystems/lab/namespaces/1 subsystems/lab
cd /
modprobe -r nvmet-rdma
"#;

/// Fails if the kernel logged a warning about the card or its disks, other than `expected`.
fn assert_quiet(lab: &Lab, expected: &[&str]) -> TestResult {
    let log = lab.guest.dmesg()?.without(expected);
    for what in ["mlx5", "infiniband", "rdma", "nvme", "I/O error", "blk_"] {
        common::assert_quiet(&log, what, &lab.model);
    }
    Ok(())
}

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn nvme_over_rdma_reads_what_it_wrote_in_blocks_of_every_size() -> TestResult {
    let model = Model::start(&Build::dev(&["mlx5"], &[])?, 1, &[])?;
    let guest = Guest::builder("nvme").memory_mib(3072).nic(&model.sockets()[0]).boot()?;
    let lab = Lab { guest, model };
    // Tens of MiB, or 1 GiB and more.
    let (blocks, mib) = (rounds(512, 16 << 10), rounds(8, 128));
    lab.check(&format!("{NETWORK}\nSIZE={}\n{TARGET}", mib << 10), PROBE)?;
    lab.check(&format!("ADDRESS=10.0.0.1 NQN=lab\n{HOST}"), PROBE)?;
    let each = format!("DISKS='nvme0n1 ram0' COUNT={blocks} MOST={}\n{EACH_SIZE}", mib << 20);
    let said = lab.check(&each, transfers())?;
    assert!(said.contains("in blocks of all sizes"), "{said}");
    lab.check(AT_A_TIME, transfers())?;
    lab.check(DISCONNECT, PROBE)?;
    lab.check(TAKE_DOWN, PROBE)?;
    assert_quiet(&lab, &[])?;
    lab.guest.power_off()?;
    assert_lawful(&lab.model);
    Ok(())
}
