//! Two functions on one wire, both bound to the kernel's drivers: DevX and libmlx5 run side by side.

use mlx5_lab::{Guest, GuestBuilder, Model};

use super::{Lab, PROBE, Report, TestResult, build};

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

/// Runs a command in the namespace that [`part`] makes.
pub const FAR: &str = "ip netns exec far";

const FAR_AWAY: &str = "
set -e
ip netns add far
ip link set $(ls /sys/class/infiniband/mlx5_1/device/net) netns far name eth0
ip -n far link set lo up
ip -n far addr add 10.0.0.2/24 dev eth0
ip -n far link set eth0 up
ip addr add 10.0.0.1/24 dev $(ls /sys/class/infiniband/mlx5_0/device/net)
for wait in $(seq 100); do grep -q fe80 /sys/class/infiniband/mlx5_1/ports/1/gids/0 && break; sleep 0.1; done
";

/// Gives the second function's network device a namespace of its own, as the kernel drops packets that come from one of
/// its own addresses. The near device becomes 10.0.0.1, the far one 10.0.0.2.
pub fn part(lab: &Lab) -> TestResult {
    lab.check(FAR_AWAY, PROBE)?;
    lab.make_neighbours(("", "$(ls /sys/class/infiniband/mlx5_0/device/net)"), (FAR, "eth0"), "10.0.0.2")
}

/// Boots a guest with two functions on one wire, both bound to the kernel's drivers.
pub fn boot(name: &str) -> Result<Lab, Report> {
    boot_with(name, |guest| guest)
}

/// As [`boot`], with what `add` adds to the guest.
pub fn boot_with(name: &str, add: impl FnOnce(GuestBuilder) -> GuestBuilder) -> Result<Lab, Report> {
    let build = build()?;
    let model = Model::start_saying(&build, 2, &[], "warn,mlx5_sim::firmware::uctx=debug")?;
    let [first, second] = model.sockets() else { return Err("two sockets".into()) };
    let guest = add(Guest::builder(name).nic(first).nic(second).programs(&build)).boot()?;
    let lab = Lab { guest, model };
    lab.check(SET_UP, PROBE)?;
    Ok(lab)
}
