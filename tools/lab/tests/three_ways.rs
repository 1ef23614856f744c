//! Three ways to one card at once: vfio-user, DevX and vfio-pci. A process on the host has function 0, the guest's
//! kernel shares function 1 over DevX, and a process in the guest has function 2 over real vfio-pci.

mod common;

use std::process::Command;

use common::{Lab, PROBE, Report, TestResult, assert_lawful, build, free_port, functions, host_card};
use mlx5_lab::{Build, Guest, Model};

/// Gives the second function to vfio-pci, the first to the kernel, and the guest its address on the host's network.
const SET_UP: &str = "
set -e
modprobe vfio-pci
echo vfio-pci > /sys/bus/pci/devices/$SECOND/driver_override
echo $SECOND > /sys/bus/pci/drivers_probe
modprobe mlx5_ib
modprobe ib_uverbs
for wait in $(seq 200); do [ -e /dev/infiniband/uverbs0 ] && break; sleep 0.1; done
ip link set $(ls /sys/class/infiniband/mlx5_0/device/net) up
for wait in $(seq 100); do grep -q ACTIVE /sys/class/infiniband/mlx5_0/ports/1/state && break; sleep 0.1; done
grep -q ACTIVE /sys/class/infiniband/mlx5_0/ports/1/state
modprobe virtio_net
for wait in $(seq 100); do [ -d /sys/bus/virtio/drivers/virtio_net/virtio*/net ] && break; sleep 0.1; done
lan=$(ls /sys/bus/virtio/drivers/virtio_net/virtio*/net)
ip addr add 10.0.2.15/24 dev $lan
ip link set $lan up
";

struct ThreeWays {
    build: Build,
    lab: Lab,
    /// The host's port that leads to the guest's 18515.
    port: u16,
}

impl ThreeWays {
    fn boot() -> Result<Self, Report> {
        let build = build()?;
        let model = Model::start(&build, 3, &[])?;
        let port = free_port()?;
        let guest = Guest::builder("three-ways")
            .iommu()
            .huge_pages_2m(64)
            .module("vfio_iommu_type1")
            .module("vfio-pci")
            .nic(&model.sockets()[1])
            .nic(&model.sockets()[2])
            .qemu_args(host_card(port, "52:54:00:00:00:02"))
            .programs(&build)
            .boot()?;
        Ok(ThreeWays { build, lab: Lab { guest, model }, port })
    }

    /// The host's process, on function 0, calls `server` of the guest's.
    fn call_from_the_host(&self, server: &str) -> TestResult {
        let server = self.lab.serve_tcp("", server)?;
        let socket = self.lab.model.sockets()[0].display();
        let client = Command::new(self.build.program("rc_pingpong")?)
            .args(["-c", "-n", "200", "-p", &self.port.to_string(), "-d", &format!("vfio-user:{socket}"), "127.0.0.1"])
            .output()?;
        if !client.status.success() {
            let said = String::from_utf8_lossy(&client.stderr).into_owned();
            let error = format!("the host's process: {said}\nthe server said:\n{}", server.so_far());
            return Err(self.lab.explain(error));
        }
        self.lab.ended(server)?;
        Ok(())
    }

    /// `client` of the guest's calls `server` of the guest's.
    fn call_within_the_guest(&self, server: &str, client: &str) -> TestResult {
        let server = self.lab.serve_tcp("", server)?;
        self.lab.call(server, &format!("{client} 127.0.0.1"))?;
        Ok(())
    }
}

/// Extended reliable connections between `ibv_xsrq_pingpong` on the kernel's function and ours on function `second`.
fn messages_name_shared_queues_of_libmlx5_and_of_ours(ways: &ThreeWays, second: &str) -> TestResult {
    let theirs = "ibv_xsrq_pingpong -d mlx5_0 -g 0 -n 50";
    let ours = format!("xsrq_pingpong -d vfio:{second} -n 50");
    for (server, client) in [(theirs, ours.as_str()), (&format!("{ours} --listen"), theirs)] {
        let server = ways.lab.serve_tcp("", server)?;
        let said = ways.lab.call(server, &format!("{client} 127.0.0.1"))?;
        assert_eq!(said.matches("success").count(), 2, "{said}");
    }
    Ok(())
}

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn host_guest_kernel_and_guest_process_talk_to_each_other() -> TestResult {
    let ways = ThreeWays::boot()?;
    let second = functions(&ways.lab.guest)?.pop().ok_or("the guest sees no ConnectX")?;
    ways.lab.check(&format!("SECOND={second}{SET_UP}"), PROBE)?;

    let kernel = "rc_pingpong -d devx:mlx5_0 -c -n 200";
    let process = format!("rc_pingpong -d vfio:{second} -c -n 200");
    ways.call_within_the_guest(&format!("{process} --listen"), kernel)?;
    ways.call_within_the_guest(&format!("{kernel} --listen"), &process)?;
    ways.call_from_the_host(&format!("{kernel} --listen"))?;
    ways.call_from_the_host(&format!("{process} --listen"))?;

    messages_name_shared_queues_of_libmlx5_and_of_ours(&ways, &second)?;

    // Strict mode reports objects left at TEARDOWN_HCA.
    ways.lab.check("modprobe -r mlx5_ib && modprobe -r mlx5_core", PROBE)?;
    ways.lab.assert_quiet()?;
    ways.lab.guest.power_off()?;
    assert_lawful(&ways.lab.model);
    Ok(())
}
