//! Soft-RoCE (rdma_rxe), the kernel's RoCE v2 in software, compared with the software card under mlx5_ib, in one guest.
//!
//! `cargo bench -p mlx5-benches --bench soft_roce` boots Debian's Linux with two functions of the software card and
//! soft-RoCE on a veth pair, and runs rdma-core's ping-pong and perftest on each. README.md explains the figures.

mod table;

use std::time::Duration;

use mlx5_benches::{Failure, guest};
use mlx5_lab::{Build, Guest, Model};
use table::{Figure, Table};

/// Number of repetitions.
const RUNS: usize = 5;
/// Timeout of loading the kernel's drivers.
const PROBE: Duration = Duration::from_secs(300);
/// Timeout of one run of a program.
const RUN: Duration = Duration::from_secs(300);

/// Brings up soft-RoCE and the functions, each with one address. Traffic between the two of a pair must leave by one
/// and arrive by the other, although both addresses are local: routing rules before the local table ensure that.
const SET_UP: &str = r#"
set -e
modprobe mlx5_ib
modprobe ib_uverbs
modprobe veth
modprobe rdma_rxe
for wait in $(seq 600); do [ -e /dev/infiniband/uverbs1 ] && break; sleep 0.1; done
ip link set lo up
ip link add veth0 type veth peer name veth1
sysctl -qw net.ipv4.conf.all.accept_local=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0
ip rule add pref 100 lookup local
join() {
    sysctl -qw net.ipv4.conf.$1.rp_filter=0
    ip link set $1 up
    ip addr add $2/24 dev $1
    ip rule add pref 1 iif $1 lookup local
    ip route add $3 dev $1 table $4
    ip rule add pref 10 from $2 to $3 lookup $4
}
join veth0 10.0.1.1 10.0.1.2 101
join veth1 10.0.1.2 10.0.1.1 102
join $(ls /sys/class/infiniband/mlx5_0/device/net) 10.0.2.1 10.0.2.2 103
join $(ls /sys/class/infiniband/mlx5_1/device/net) 10.0.2.2 10.0.2.1 104
ip rule del pref 0
rdma link add rxe0 type rxe netdev veth0
rdma link add rxe1 type rxe netdev veth1
for device in rxe0 rxe1 mlx5_0 mlx5_1; do
    ports=/sys/class/infiniband/$device/ports/1
    for wait in $(seq 600); do grep -q ACTIVE $ports/state && grep -qi ffff:0a00 $ports/gids/* && break; sleep 0.1; done
    grep -q ACTIVE $ports/state
done
busybox ping -c 1 -W 5 -I 10.0.1.1 10.0.1.2
busybox ping -c 1 -W 5 -I 10.0.2.1 10.0.2.2
# Runs a program at both ends, $1 and $2: the client's words.
cat > /tmp/both <<'SCRIPT'
there=$1 here=$2; shift 2
# The index of a GID that is an address of IPv4.
gid() { for at in /sys/class/infiniband/$1/ports/1/gids/*; do grep -qi ffff:0a00 $at && { basename $at; return; }; done; }
case $1 in ibv_*) option=-g;; *) option="-F -x";; esac
timeout 250 $@ -d $there $option $(gid $there) > /tmp/server 2>&1 &
for wait in $(seq 300); do grep -q ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6 && break; sleep 0.1; done
timeout 250 $@ -d $here $option $(gid $here) 127.0.0.1 || { cat /tmp/server; exit 1; }
wait $! || { cat /tmp/server; exit 1; }
SCRIPT
"#;

/// Rows of the table: description and command. perftest measures for [`COUNTED`], in the middle of four seconds.
const ROWS: [(&str, &str, Figure); 5] = [
    ("SEND 128 B to and fro, asleep between", "ibv_rc_pingpong -s 128 -n 1000 -e", Figure::Iteration),
    ("SEND 128 B to and fro, polled", "ibv_rc_pingpong -s 128 -n 1000", Figure::Iteration),
    ("SEND 128 B", "ib_send_bw -s 128 -D 4 -f 1", Figure::Rate),
    ("SEND 64 KiB", "ib_send_bw -s 65536 -D 4 -f 1", Figure::Bandwidth),
    ("RDMA WRITE 64 KiB", "ib_write_bw -s 65536 -D 4 -f 1", Figure::Bandwidth),
];

/// How long perftest measures.
const COUNTED: Duration = Duration::from_secs(2);

/// Both ends, for each column.
const COLUMNS: [(&str, &str); 4] = [("rxe0", "rxe0"), ("mlx5_0", "mlx5_0"), ("rxe1", "rxe0"), ("mlx5_1", "mlx5_0")];

fn main() -> Result<(), Failure> {
    if guest::is_left_out("soft_roce") {
        return Ok(());
    }
    let runs = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(RUNS);
    let build = Build::release(&["mlx5"], &[])?;
    let model = Model::start(&build, 2, &["--lenient"])?;
    let [first, second] = model.sockets() else { return Err("two sockets".into()) };
    let guest = Guest::builder("soft_roce_speed").nic(first).nic(second).key_cache().boot_patience(PROBE).boot()?;
    guest.check(SET_UP, PROBE)?;
    let mut table = Table::new(COLUMNS.len());
    for run in 1..=runs {
        eprintln!("run {run} of {runs}");
        for (row, words, figure) in ROWS {
            for (column, (there, here)) in COLUMNS.iter().enumerate() {
                let said = guest.check(&format!("bash /tmp/both {there} {here} {words} 2>&1"), RUN)?;
                table.add(row, figure, column, figure.read(&said, COUNTED)?);
            }
        }
    }
    println!(
        "| what | unit | soft-RoCE, one device | the software card, one function | soft-RoCE, two devices | two functions |"
    );
    println!("| --- | --- | ---: | ---: | ---: | ---: |\n{table}");
    guest.power_off()?;
    Ok(())
}
