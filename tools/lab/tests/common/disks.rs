//! Disks over RDMA in a guest: nvmet-rdma and nvme-rdma of Debian's kernel, and what is done to a disk.

use std::time::Duration;

use mlx5_lab::rounds;

use super::{Lab, PROBE, TestResult};

/// MiB of each disk.
pub const DISK: u32 = 64;
/// The name of our subsystem.
pub const NQN: &str = "nqn.2014-08.example:ours";

/// How long all sizes, or a run of our program, may take on a busy machine: ten minutes, or two hours in the long form.
pub fn transfers() -> Duration {
    Duration::from_secs(rounds(600, 7200) as u64)
}

/// What programs need to create objects by DevX, and to use the kernel's connection manager.
pub const USER_SPACE: &str = "
set -e
modprobe ib_uverbs
modprobe rdma_ucm
until [ -e /dev/infiniband/uverbs0 ] && [ -e /dev/infiniband/rdma_cm ]; do sleep 0.1; done
";

/// A network device at 10.0.0.1.
pub const NETWORK: &str = r#"
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
pub const TARGET: &str = r#"
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
pub const HOST: &str = r#"
set -e
modprobe nvme-rdma
echo "transport=rdma,traddr=$ADDRESS,trsvcid=4420,nqn=$NQN,nr_io_queues=2,keep_alive_tmo=60" > /dev/nvme-fabrics
for wait in $(seq 300); do [ -b /dev/nvme0n1 ] && exit 0; sleep 0.1; done
echo "no /dev/nvme0n1"
exit 1
"#;

/// Writes fresh random bytes in blocks of each size, from 512 B to 1 MiB, and compares them as the host reads them back
/// and, of `DISKS`, as the target's disk holds them: `COUNT` blocks of a small size, at most `MOST` bytes; `MOST` bytes
/// of each of the five sizes from 64 KiB. No cache is between.
pub const EACH_SIZE: &str = r#"
set -e
set -o pipefail
total=0
for ((size = 512; size <= 1048576; size *= 2)); do
    bytes=$((size < 65536 && size * COUNT < MOST ? size * COUNT : MOST))
    head -c $bytes /dev/urandom > /tmp/sent
    dd if=/tmp/sent of=/dev/nvme0n1 bs=$size oflag=direct status=none
    for disk in $DISKS; do
        dd if=/dev/$disk bs=$size count=$((bytes / size)) iflag=direct status=none | cmp - /tmp/sent ||
            { echo "$disk: blocks of $size bytes differ"; exit 1; }
    done
    total=$((total + bytes))
done
echo "$total bytes in blocks of all sizes"
"#;

/// Four writers and four readers at a time, each in a part of the disk: registrations and invalidations overtake each
/// other.
pub const AT_A_TIME: &str = r#"
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
pub const DISCONNECT: &str = r#"
set -e
echo 1 > /sys/class/nvme/nvme0/delete_controller
modprobe -r nvme-rdma
"#;

/// Takes the target away.
pub const TAKE_DOWN: &str = r#"
set -e
cd /sys/kernel/config/nvmet
rm ports/1/subsystems/lab
rmdir ports/1 subsystems/lab/namespaces/1 subsystems/lab
cd /
modprobe -r nvmet-rdma
"#;

/// Fails if the kernel logged a warning about the card or its disks, other than `expected`.
pub fn assert_quiet(lab: &Lab, expected: &[&str]) -> TestResult {
    let log = lab.guest.dmesg()?.without(expected);
    for what in ["mlx5", "infiniband", "rdma", "nvme", "I/O error", "blk_"] {
        super::assert_quiet(&log, what, &lab.model);
    }
    Ok(())
}

/// Our host in the guest, on the device that the arguments `device` name, and the kernel's target at 10.0.0.1.
pub fn our_host_on_theirs(lab: &Lab, device: &str) -> TestResult {
    lab.check(&format!("SIZE={}\n{TARGET}", DISK << 10), PROBE)?;
    let run = |subcommand: &str, rest: &str| {
        lab.check(&format!("nvme_rdma {subcommand} {device} 10.0.0.1 {rest} 2>&1"), transfers())
    };
    let found = run("discover", "")?;
    assert!(found.contains("lab  10.0.0.1:4420"), "{found}");
    let commands = rounds(500, 250_000);
    for how in ["", "--fast-keys --no-in-capsule"] {
        let said = run("verify", &format!("--nqn lab --keep-alive 120 -n {commands} {how}"))?;
        assert!(said.contains("every block read held what was written last"), "{said}");
    }
    lab.check(TAKE_DOWN, PROBE).map(drop)
}

/// The kernel's host on our target in the guest, which is at `address`, on the device that the arguments `device` name.
pub fn their_host_on_ours(lab: &Lab, device: &str, address: &str) -> TestResult {
    let serve = format!("nvme_rdma serve {device} --ram {DISK} --nqn {NQN} 2>&1");
    let mut target = lab.guest.start(&format!("echo $$ > /tmp/target; exec {serve}"))?;
    target.wait_for("serving", PROBE)?;
    lab.check(&format!("ADDRESS={address} NQN={NQN}\n{HOST}"), PROBE)?;
    let (blocks, mib) = (rounds(64, 16 << 10), rounds(1, DISK as usize));
    let each = format!("DISKS=nvme0n1 COUNT={blocks} MOST={}\n{EACH_SIZE}", mib << 20);
    let said = lab.check(&each, transfers())?;
    assert!(said.contains("in blocks of all sizes"), "{said}");
    lab.check(AT_A_TIME, transfers())?;
    lab.check(DISCONNECT, PROBE)?;
    lab.check("kill $(cat /tmp/target)", PROBE)?;
    target.wait(PROBE)?;
    Ok(())
}
