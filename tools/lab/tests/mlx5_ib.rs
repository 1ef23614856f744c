//! Debian's unmodified mlx5_ib on the model, and libmlx5, perftest and librdmacm on top of it: two functions of one card, the
//! network device of each in a namespace of its own.

mod common;

use std::time::Duration;

use common::{SOON, TestResult, assert_lawful, assert_quiet, build};
use mlx5_lab::{Guest, Model, skipped};

/// A probe takes seconds; a command that the model loses costs the driver a minute.
const PROBE: Duration = Duration::from_secs(240);
/// For one run of a program of few messages. Emulated processors are slow, and a busy host makes them slower.
const TRAFFIC: Duration = Duration::from_secs(180);

/// Loads the drivers, gives the functions' network devices the namespaces `a` and `b` and the addresses 10.0.0.1 and .2, and
/// waits until the kernel has put those into the GID tables.
const SET_UP: &str = r#"
set -e
modprobe mlx5_ib
modprobe ib_uverbs
modprobe rdma_ucm
names=(a b)
index=0
for device in mlx5_0 mlx5_1; do
    name=${names[$index]}
    index=$((index + 1))
    ip netns add $name
    ip link set $(ls /sys/class/infiniband/$device/device/net) netns $name name eth0
    ip -n $name link set lo up
    ip -n $name addr add 10.0.0.$index/24 dev eth0
    ip -n $name link set eth0 up
done
for device in mlx5_0 mlx5_1; do
    ready=0
    for wait in $(seq 300); do
        if grep -q ACTIVE /sys/class/infiniband/$device/ports/1/state &&
            grep -qi 'ffff:0a00:' /sys/class/infiniband/$device/ports/1/gids/1; then ready=1; break; fi
        sleep 0.1
    done
    [ $ready = 1 ] || { echo "$device: no GID of an IPv4 address on an active port"; exit 1; }
done
"#;

/// Runs a program as server in `a` and as client in `b`: `pair SECONDS PROGRAM SERVER-ARGUMENTS -- CLIENT-ARGUMENTS`. The client
/// is tried again until the server listens.
const PAIR: &str = r#"
cat > /tmp/pair <<'SCRIPT'
patience=$1 program=$2
shift 2
server=() client=()
while [ "$1" != -- ]; do server+=("$1"); shift; done
shift
client=("$@")
ip netns exec a timeout $patience $program "${server[@]}" > /tmp/server 2>&1 &
pid=$!
sleep 1.5
ip netns exec b timeout $patience $program "${client[@]}" > /tmp/client 2>&1
status=$?
wait $pid
served=$?
cat /tmp/client /tmp/server
echo "client $status, server $served"
[ $status = 0 ] && [ $served = 0 ]
SCRIPT
"#;

struct Verbs {
    guest: Guest,
    model: Model,
}

impl Verbs {
    fn boot() -> Result<Self, common::Report> {
        let model = Model::start(&build()?, 2, &[])?;
        let [first, second] = model.sockets() else { return Err("two sockets".into()) };
        let guest = Guest::builder("mlx5_ib").nic(first).nic(second).boot()?;
        let verbs = Verbs { guest, model };
        verbs.check(SET_UP, PROBE)?;
        verbs.check(PAIR, SOON)?;
        Ok(verbs)
    }

    fn check(&self, script: &str, patience: Duration) -> Result<String, common::Report> {
        self.guest.check(script, patience).map_err(|error| {
            let log = self.guest.dmesg();
            let kernel = log.map(|log| log.matching("mlx5").iter().map(|r| format!("{r}\n")).collect::<String>());
            let kernel = kernel.unwrap_or_default();
            format!("{error}\nthe kernel said:\n{kernel}\nthe model said:\n{}", self.model.stderr()).into()
        })
    }

    /// Runs a program's server and client; what both said.
    fn pair(&self, program: &str, server: &str, client: &str) -> Result<String, common::Report> {
        self.check(&format!("bash /tmp/pair 60 {program} {server} -- {client}"), TRAFFIC)
    }

    /// One of rdma-core's pingpongs.
    fn pingpong(&self, program: &str, options: &str) -> Result<String, common::Report> {
        self.pair(program, &format!("-d mlx5_0 -g 1 {options}"), &format!("-d mlx5_1 -g 1 {options} 10.0.0.1"))
    }

    /// One of perftest's programs.
    fn perftest(&self, command: &str) -> Result<String, common::Report> {
        let (program, options) = command.split_once(' ').unwrap_or((command, ""));
        let said = self.pair(
            program,
            &format!("-d mlx5_0 -x 1 -F {options}"),
            &format!("-d mlx5_1 -x 1 -F {options} 10.0.0.1"),
        )?;
        assert!(said.contains("#bytes") && said.contains("client 0, server 0"), "{command}:\n{said}");
        Ok(said)
    }

    fn assert_quiet(&self) -> TestResult {
        let log = self.guest.dmesg()?;
        for what in ["mlx5", "infiniband", "rdma"] {
            assert_quiet(&log, what, &self.model);
        }
        Ok(())
    }
}

#[test]
fn libmlx5_perftest_and_librdmacm_live_on_the_model() -> TestResult {
    if skipped("libmlx5_perftest_and_librdmacm_live_on_the_model") {
        return Ok(());
    }
    let verbs = Verbs::boot()?;
    attributes(&verbs)?;
    pingpongs(&verbs)?;
    perftest(&verbs)?;
    connection_manager(&verbs)?;
    port_events(&verbs)?;
    verbs.assert_quiet()?;
    reloaded(&verbs)?;
    verbs.assert_quiet()?;
    assert_lawful(&verbs.model);
    let Verbs { guest, mut model } = verbs;
    assert!(model.runs(), "the model died:\n{}", model.stderr());
    guest.power_off()?;
    Ok(())
}

fn attributes(verbs: &Verbs) -> TestResult {
    let said = verbs.check("ibv_devinfo -v -d mlx5_0", SOON)?;
    for expected in [
        "fw_ver:\t\t\t\t16.35.4030",
        "vendor_part_id:\t\t\t4119",
        "board_id:\t\t\tSIM0000000005",
        "state:\t\t\tPORT_ACTIVE (4)",
        "link_layer:\t\tEthernet",
        "max_mtu:\t\t4096 (5)",
        "atomic_cap:\t\t\tATOMIC_HCA (1)",
        "GID[  1]:\t\t::ffff:10.0.0.1, RoCE v2",
    ] {
        assert!(said.contains(expected), "{expected:?} in:\n{said}");
    }
    Ok(())
}

fn pingpongs(verbs: &Verbs) -> TestResult {
    // -c compares what arrives.
    verbs.pingpong("ibv_rc_pingpong", "-n 200 -c")?;
    verbs.pingpong("ibv_rc_pingpong", "-n 200 -e")?;
    verbs.pingpong("ibv_uc_pingpong", "-n 200 -c")?;
    verbs.pingpong("ibv_ud_pingpong", "-n 200 -c")?;
    verbs.pingpong("ibv_srq_pingpong", "-n 200 -c")?;
    let said = verbs.pingpong("ibv_xsrq_pingpong", "-n 200")?;
    assert_eq!(said.matches("success").count(), 2, "{said}");
    Ok(())
}

fn perftest(verbs: &Verbs) -> TestResult {
    for command in [
        "ib_write_bw -n 200",
        "ib_read_bw -n 200",
        "ib_send_bw -n 200",
        "ib_atomic_bw -n 200",
        "ib_write_lat -n 100",
        "ib_read_lat -n 100",
        "ib_send_lat -n 100",
        "ib_atomic_lat -n 100",
        "ib_atomic_lat -n 100 -A CMP_AND_SWAP",
        "ib_write_lat -n 100 -s 32 -I 64",
        "ib_send_bw -n 200 -e",
        "ib_send_bw -n 200 -b",
        "ib_write_bw -n 200 -q 4 -b",
        "ib_write_bw -n 200 -c UC",
        "ib_send_bw -n 200 -c UC",
        "ib_send_lat -n 100 -c UD",
    ] {
        verbs.perftest(command)?;
    }
    Ok(())
}

/// The kernel's connection manager: MADs over queue pair 1.
fn connection_manager(verbs: &Verbs) -> TestResult {
    let said = verbs.pair("rping", "-s -a 10.0.0.1 -C 20 -V -v", "-c -a 10.0.0.1 -C 20 -V -v")?;
    assert!(said.contains("ping data: rdma-ping-19"), "{said}");
    for program in ["ucmatose", "udaddy"] {
        let said = verbs.pair(program, "-b 10.0.0.1", "-s 10.0.0.1")?;
        assert_eq!(said.matches("return status 0").count(), 2, "{said}");
    }
    // A multicast group.
    let said = verbs.pair("mckey", "-m 239.1.2.3 -b 10.0.0.1", "-m 239.1.2.3 -b 10.0.0.2 -s")?;
    assert!(said.contains("receiving data transfers") && said.matches("return status 0").count() == 2, "{said}");
    Ok(())
}

fn port_events(verbs: &Verbs) -> TestResult {
    let said = verbs.check(
        "ibv_asyncwatch -d mlx5_0 > /tmp/events 2>&1 & watch=$!
        sleep 1
        ip -n a link set eth0 down
        for wait in $(seq 100); do grep -q PORT_ERR /tmp/events && break; sleep 0.1; done
        ip -n a link set eth0 up
        for wait in $(seq 100); do grep -q PORT_ACTIVE /tmp/events && break; sleep 0.1; done
        kill $watch
        cat /tmp/events",
        TRAFFIC,
    )?;
    assert!(said.contains("IBV_EVENT_PORT_ERR (10), port 1"), "{said}");
    assert!(said.contains("IBV_EVENT_PORT_ACTIVE (9), port 1"), "{said}");
    Ok(())
}

fn reloaded(verbs: &Verbs) -> TestResult {
    verbs.check("rmmod rdma_ucm && rmmod mlx5_ib && [ ! -e /sys/class/infiniband/mlx5_0 ]", PROBE)?;
    verbs.check("modprobe mlx5_ib && ls /sys/class/infiniband/mlx5_0 /sys/class/infiniband/mlx5_1", PROBE)?;
    Ok(())
}
