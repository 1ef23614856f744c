//! Debian's unmodified mlx5_ib on the model, and libmlx5, perftest and librdmacm on top of it: two functions of one card, the
//! network device of each in a namespace of its own.

mod common;

use std::path::Path;

use common::{Lab, PROBE, Report, SOON, TRAFFIC, TestResult, assert_lawful, build};
use mlx5_lab::{Guest, Model, skipped, verbs_program};
use tempfile::TempDir;

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
# The kernel gives a neighbour's address one second, which a busy machine may miss.
for wait in $(seq 30); do ip netns exec b busybox ping -c 1 -W 1 10.0.0.1 && exit; done
exit 1
"#;

/// Runs a command in the server's namespace.
const A: &str = "ip netns exec a";
/// Runs a command in the client's namespace.
const B: &str = "ip netns exec b";

/// Where the guest sees what is compiled of `verbs/`.
const C_PROGRAMS: &str = "/opt/verbs";

struct Verbs {
    lab: Lab,
    _programs: TempDir,
}

impl Verbs {
    fn boot() -> Result<Self, Report> {
        let model = Model::start(&build()?, 2, &[])?;
        let [first, second] = model.sockets() else { return Err("two sockets".into()) };
        let programs = tempfile::tempdir()?;
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/verbs/events.c");
        verbs_program(&source, &programs.path().join("events"))?;
        let guest = Guest::builder("mlx5_ib").nic(first).nic(second).share(programs.path(), C_PROGRAMS).boot()?;
        let verbs = Verbs { lab: Lab { guest, model }, _programs: programs };
        verbs.lab.check(SET_UP, PROBE)?;
        Ok(verbs)
    }

    /// Runs a program that exchanges addresses over TCP as server in `a` and as client in `b`; what both said.
    fn pair(&self, program: &str, server: &str, client: &str) -> Result<String, Report> {
        let server = self.lab.serve_tcp(A, &format!("{program} {server}"))?;
        self.lab.call(server, &format!("{B} {program} {client}"))
    }

    /// The same for a program that the kernel's connection manager connects.
    fn managed(&self, program: &str, server: &str, client: &str) -> Result<String, Report> {
        let server = self.lab.serve(&format!("{A} {program} {server}"), "rdma resource show cm_id | grep -q LISTEN")?;
        self.lab.call(server, &format!("{B} {program} {client}"))
    }

    /// One of rdma-core's pingpongs.
    fn pingpong(&self, program: &str, options: &str) -> Result<String, Report> {
        self.pair(program, &format!("-d mlx5_0 -g 1 {options}"), &format!("-d mlx5_1 -g 1 {options} 10.0.0.1"))
    }

    /// One of perftest's programs.
    fn perftest(&self, command: &str) -> Result<String, Report> {
        let (program, options) = command.split_once(' ').unwrap_or((command, ""));
        let said = self.pair(
            program,
            &format!("-d mlx5_0 -x 1 -F {options}"),
            &format!("-d mlx5_1 -x 1 -F {options} 10.0.0.1"),
        )?;
        assert!(said.contains("#bytes"), "{command}:\n{said}");
        Ok(said)
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
    verbs.lab.assert_quiet()?;
    reloaded(&verbs)?;
    verbs.lab.assert_quiet()?;
    assert_lawful(&verbs.lab.model);
    object_events(&verbs)?;
    let Lab { guest, mut model } = verbs.lab;
    assert!(model.runs(), "the model died:\n{}", model.stderr());
    guest.power_off()?;
    Ok(())
}

fn attributes(verbs: &Verbs) -> TestResult {
    let said = verbs.lab.check("ibv_devinfo -v -d mlx5_0", SOON)?;
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
    let said = verbs.managed("rping", "-s -a 10.0.0.1 -C 20 -V -v", "-c -a 10.0.0.1 -C 20 -V -v")?;
    assert!(said.contains("ping data: rdma-ping-19"), "{said}");
    for program in ["ucmatose", "udaddy"] {
        let said = verbs.managed(program, "-b 10.0.0.1", "-s 10.0.0.1")?;
        assert_eq!(said.matches("return status 0").count(), 2, "{said}");
    }
    // Sockets; both ends have to be told the same.
    let said = verbs.managed("rstream", "-b 10.0.0.1 -S 65536 -C 20 -T v", "-s 10.0.0.1 -S 65536 -C 20 -T v")?;
    assert_eq!(said.matches("custom    64k     20").count(), 2, "{said}");
    // A multicast group.
    let server = verbs.lab.serve(
        &format!("{A} stdbuf -oL mckey -m 239.1.2.3 -b 10.0.0.1 > /tmp/mckey; cat /tmp/mckey"),
        "grep -q 'receiving data transfers' /tmp/mckey",
    )?;
    let said = verbs.lab.call(server, &format!("{B} mckey -m 239.1.2.3 -b 10.0.0.2 -s"))?;
    assert!(said.contains("receiving data transfers") && said.matches("return status 0").count() == 2, "{said}");
    Ok(())
}

fn port_events(verbs: &Verbs) -> TestResult {
    let said = verbs.lab.check(
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
    verbs.lab.check("rmmod rdma_ucm && rmmod mlx5_ib && [ ! -e /sys/class/infiniband/mlx5_0 ]", PROBE)?;
    verbs.lab.check("modprobe mlx5_ib && ls /sys/class/infiniband/mlx5_0 /sys/class/infiniband/mlx5_1", PROBE)?;
    Ok(())
}

/// What a program on libibverbs is told of its queue pairs and queues. It does what strict mode and the kernel complain of:
/// names a key that is none, and lets a completion queue overrun.
fn object_events(verbs: &Verbs) -> TestResult {
    verbs
        .lab
        .wait_until("the GID table is filled", "grep -qi ffff:0a00: /sys/class/infiniband/mlx5_0/ports/1/gids/1")?;
    let said = verbs.lab.check(&format!("{A} {C_PROGRAMS}/events mlx5_0 1 2>&1"), TRAFFIC)?;
    assert!(said.contains("all came"), "{said}");
    let violations = verbs.lab.model.violations();
    assert!(!violations.is_empty());
    let expected = ["no such key", "entries, all unconsumed", "full after its first"];
    let others: Vec<_> = violations.iter().filter(|said| !expected.iter().any(|part| said.contains(part))).collect();
    assert!(others.is_empty(), "{others:#?}");
    Ok(())
}
