//! Two functions on one wire, which the kernel's own drivers keep: where DevX and libmlx5 run side by side.

use mlx5_lab::{Guest, Model};

use super::{Lab, PROBE, Report, build};

/// Loads the kernel's driver, and brings both network devices up.
pub const SET_UP: &str = "
set -e
modprobe mlx5_ib
modprobe ib_uverbs
for wait in $(seq 600); do [ -e /dev/infiniband/uverbs1 ] && break; sleep 0.1; done
for device in mlx5_0 mlx5_1; do
    ip link set $(ls /sys/class/infiniband/$device/device/net) up
    for wait in $(seq 600); do grep -q ACTIVE /sys/class/infiniband/$device/ports/1/state && break; sleep 0.1; done
    grep -q ACTIVE /sys/class/infiniband/$device/ports/1/state
done
";

/// Runs a command in the namespace that [`FAR_AWAY`] makes.
pub const FAR: &str = "ip netns exec far";

/// Gives the second function's network device a namespace of its own: the kernel takes what it hears from an address of its
/// own for forged. The near one becomes 10.0.0.1, the far one 10.0.0.2. Then waits until both know each other's link-local
/// address: for that, the kernel gives a ping-pong one second.
pub const FAR_AWAY: &str = "
set -e
near=$(ls /sys/class/infiniband/mlx5_0/device/net)
ip netns add far
ip link set $(ls /sys/class/infiniband/mlx5_1/device/net) netns far name eth0
ip -n far link set lo up
ip -n far addr add 10.0.0.2/24 dev eth0
ip -n far link set eth0 up
ip addr add 10.0.0.1/24 dev $near
for wait in $(seq 100); do grep -q fe80 /sys/class/infiniband/mlx5_1/ports/1/gids/0 && break; sleep 0.1; done
address() { ip -6 -o $1 addr show dev $2 scope link -tentative | sed -n 's/.*inet6 \\([^/]*\\).*/\\1/p'; }
for wait in $(seq 60); do
    here=$(address \"\" $near) there=$(address \"-n far\" eth0)
    [ \"$here\" ] && [ \"$there\" ] && busybox ping -c 1 -W 1 10.0.0.2 && busybox ping -c 1 -W 1 $there%$near &&
        ip netns exec far busybox ping -c 1 -W 1 $here%eth0 && exit
    sleep 0.5
done
exit 1
";

/// Two functions on one wire, both the kernel's.
pub fn boot(name: &str) -> Result<Lab, Report> {
    let build = build()?;
    let model = Model::start_saying(&build, 2, &[], "warn,mlx5_sim::firmware::uctx=debug")?;
    let [first, second] = model.sockets() else { return Err("two sockets".into()) };
    let guest = Guest::builder(name).nic(first).nic(second).programs(&build).boot()?;
    let lab = Lab { guest, model };
    lab.check(SET_UP, PROBE)?;
    Ok(lab)
}
