//! Soft-RoCE, the kernel's own RoCE v2 in software (rdma_rxe), on a virtio card of the model's wire: another's transport, headers
//! and ICRC against ours, over IPv4 and IPv6.

mod common;

use std::time::Duration;

use common::{Report, SOON, TestResult, assert_lawful, assert_quiet, build};
use mlx5_lab::{Guest, Model, skipped};

/// A probe takes seconds; a command that the model loses costs the driver a minute.
const PROBE: Duration = Duration::from_secs(240);
/// For one run of a program of few messages. Emulated processors are slow, and a busy host makes them slower.
const TRAFFIC: Duration = Duration::from_secs(180);

/// Puts soft-RoCE on the virtio card, 10.0.0.3, and gives the function's network device, 10.0.0.1, a namespace: the kernel
/// takes what it hears from an address of its own for forged. (rdma_rxe itself works in the first namespace alone.)
const SET_UP: &str = r#"
set -e
modprobe mlx5_ib
modprobe ib_uverbs
modprobe rdma_ucm
modprobe virtio_net
modprobe rdma_rxe
for wait in $(seq 100); do [ -d /sys/bus/virtio/drivers/virtio_net/virtio*/net ] && break; sleep 0.1; done
lan=$(ls -d /sys/bus/virtio/drivers/virtio_net/virtio*/net/*)
lan=${lan##*/}
ip link set $lan up
ip addr add 10.0.0.3/24 dev $lan
rdma link add rxe0 type rxe netdev $lan
ip netns add a
ip link set $(ls /sys/class/infiniband/mlx5_0/device/net) netns a name eth0
ip -n a link set lo up
ip -n a addr add 10.0.0.1/24 dev eth0
ip -n a link set eth0 up
for wait in $(seq 30); do ip netns exec a busybox ping -c 1 -W 1 10.0.0.3 && break; done
for device in mlx5_0 rxe0; do
    for gid in fe80: ffff:0a00:; do
        found=0
        for wait in $(seq 100); do
            grep -qi "$gid" /sys/class/infiniband/$device/ports/1/gids/{0,1} && { found=1; break; }
            sleep 0.1
        done
        [ $found = 1 ] || { echo "$device has no GID $gid"; exit 1; }
    done
    grep -q ACTIVE /sys/class/infiniband/$device/ports/1/state
done
# The index of a GID: of IPv4, or link-local.
cat > /tmp/index <<'SCRIPT'
for index in 0 1 2 3; do
    grep -qi "$2" /sys/class/infiniband/$1/ports/1/gids/$index && { echo $index; exit; }
done
exit 1
SCRIPT
"#;

struct Wire {
    guest: Guest,
    model: Model,
    // Where the wire's sockets are.
    _dir: tempfile::TempDir,
}

/// Who is the server.
#[derive(Clone, Copy)]
enum Server {
    Soft,
    Ours,
}

impl Wire {
    fn boot() -> Result<Self, Report> {
        let dir = tempfile::Builder::new().prefix("mlx5-wire-").tempdir()?;
        let path = dir.path().join("wire");
        let model = Model::start(&build()?, 1, &["--wire", path.to_str().ok_or("a path in UTF-8")?])?;
        let guest = Guest::builder("soft_roce").nic(&model.sockets()[0]).wire(&path).boot()?;
        let wire = Wire { guest, model, _dir: dir };
        wire.check(SET_UP, PROBE)?;
        Ok(wire)
    }

    fn check(&self, script: &str, patience: Duration) -> Result<String, Report> {
        self.guest.check(script, patience).map_err(|error| {
            let log = self.guest.dmesg();
            let kernel = log.map(|log| log.matching("rxe").iter().map(|r| format!("{r}\n")).collect::<String>());
            format!(
                "{error}\nthe kernel said:\n{}\nthe model said:\n{}",
                kernel.unwrap_or_default(),
                self.model.stderr()
            )
            .into()
        })
    }

    /// One of rdma-core's ping-pongs. Their connections give up after half a second without an answer, for which a busy host
    /// may well forget the guest: so they are tried three times.
    fn pingpong(&self, server: Server, program: &str, gid: &str, options: &str) -> TestResult {
        let mut refusals = Vec::new();
        for _ in 0..3 {
            match self.pair(server, program, gid, options) {
                Ok(_) => return Ok(()),
                Err(refusal) => refusals.push(format!("{refusal:?}")),
            }
        }
        Err(refusals.join("\n\nagain:\n").into())
    }

    /// Runs a program at both ends, from and to GIDs that start with `gid`.
    fn pair(&self, server: Server, program: &str, gid: &str, options: &str) -> Result<String, Report> {
        let (soft, ours) = (("", "rxe0", "10.0.0.3"), ("ip netns exec a", "mlx5_0", "10.0.0.1"));
        let (server, client) = match server {
            Server::Soft => (soft, ours),
            Server::Ours => (ours, soft),
        };
        let ((there, server, address), (here, client, _)) = (server, client);
        let script = format!(
            "{there} timeout 60 {program} -d {server} -g $(bash /tmp/index {server} {gid}) {options} > /tmp/server 2>&1 &
             pid=$!
             sleep 1.5
             {here} timeout 60 {program} -d {client} -g $(bash /tmp/index {client} {gid}) {options} {address} 2>&1
             status=$?
             wait $pid
             served=$?
             cat /tmp/server
             echo \"client $status, server $served\"
             [ $status = 0 ] && [ $served = 0 ]"
        );
        self.check(&script, TRAFFIC)
    }
}

#[test]
fn soft_roce_and_the_model_understand_each_other() -> TestResult {
    if skipped("soft_roce_and_the_model_understand_each_other") {
        return Ok(());
    }
    let wire = Wire::boot()?;
    for gid in ["ffff:0a00:", "fe80:"] {
        wire.pingpong(Server::Soft, "ibv_rc_pingpong", gid, "-n 200 -c")?;
        wire.pingpong(Server::Ours, "ibv_rc_pingpong", gid, "-n 200 -c -s 20000")?;
        wire.pingpong(Server::Soft, "ibv_uc_pingpong", gid, "-n 200 -c")?;
        wire.pingpong(Server::Ours, "ibv_ud_pingpong", gid, "-n 200 -c -s 1000")?;
    }
    let log = wire.guest.dmesg()?;
    for what in ["mlx5", "infiniband", "rxe"] {
        assert_quiet(&log, what, &wire.model);
    }
    wire.guest.check("rdma link delete rxe0 && rmmod rdma_ucm && rmmod mlx5_ib", SOON.max(PROBE))?;
    wire.guest.power_off()?;
    assert_lawful(&wire.model);
    Ok(())
}
