//! Soft-RoCE, the kernel's own RoCE v2 in software (rdma_rxe), on a virtio card of the model's wire: another's transport, headers
//! and ICRC against ours, over IPv4 and IPv6.

mod common;

use common::{Lab, PROBE, Report, TestResult, assert_lawful, build};
use mlx5_lab::{Guest, Model, skipped};

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
# The kernel gives a neighbour's address one second, which a busy machine may miss.
address() { $1 ip -6 -o addr show dev $2 scope link -tentative | sed -n 's/.*inet6 \\([^/]*\\).*/\\1/p'; }
for wait in $(seq 60); do
    a=$(address "ip netns exec a" eth0) c=$(address "" $lan)
    [ "$a" ] && [ "$c" ] && ip netns exec a busybox ping -c 1 -W 1 10.0.0.3 &&
        ip netns exec a busybox ping -c 1 -W 1 $c%eth0 && busybox ping -c 1 -W 1 $a%$lan && break
    sleep 0.5
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
    lab: Lab,
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
        let wire = Wire { lab: Lab { guest, model }, _dir: dir };
        wire.lab.check(SET_UP, PROBE)?;
        Ok(wire)
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
        let command = |device| format!("{program} -d {device} -g $(bash /tmp/index {device} {gid}) {options}");
        let ((there, server, address), (here, client, _)) = (server, client);
        let server = self.lab.serve_tcp(there, &command(server))?;
        self.lab.call(server, &format!("{here} {} {address}", command(client)))
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
    wire.lab.assert_quiet()?;
    wire.lab.check("rdma link delete rxe0 && rmmod rdma_ucm && rmmod mlx5_ib", PROBE)?;
    wire.lab.guest.power_off()?;
    assert_lawful(&wire.lab.model);
    Ok(())
}
