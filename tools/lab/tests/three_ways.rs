//! Three ways to one card at once: a process of the host's has function 0 over vfio-user, the guest's kernel has function 1
//! and lends it by DevX, and a process of the guest's has function 2 over real vfio-pci.

mod common;

use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use common::{Report, TestResult, assert_lawful, assert_quiet, build, functions};
use mlx5_lab::{Build, Guest, Job, Model, skipped};

/// A probe takes seconds; a command that the model loses costs the driver a minute.
const PROBE: Duration = Duration::from_secs(150);
/// For one exchange: emulated processors are slow.
const RUN: Duration = Duration::from_secs(150);

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

/// Waits until something listens on port 18515 of the guest.
const LISTENS: &str =
    "for wait in $(seq 600); do grep -q ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6 && exit; sleep 0.1; done; exit 1";

struct Lab {
    build: Build,
    guest: Guest,
    model: Model,
    /// The host's port that leads to the guest's 18515.
    port: u16,
}

impl Lab {
    fn boot() -> Result<Self, Report> {
        let build = build()?;
        let model = Model::start(&build, 3, &[])?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let lan = format!("user,id=lan,hostfwd=tcp:127.0.0.1:{port}-10.0.2.15:18515");
        let guest = Guest::builder("three-ways")
            .iommu()
            .huge_pages_2m(64)
            .module("vfio_iommu_type1")
            .module("vfio-pci")
            .nic(&model.sockets()[1])
            .nic(&model.sockets()[2])
            .qemu_args(["-netdev", &lan, "-device", "virtio-net-pci,netdev=lan"])
            .programs(&build)
            .boot()?;
        Ok(Lab { build, guest, model, port })
    }

    fn explain(&self, error: impl std::fmt::Display) -> Report {
        format!("{error}\nthe model said:\n{}", self.model.stderr()).into()
    }

    /// A server in the guest, once it listens.
    fn serve(&self, command: &str) -> Result<Job<'_>, Report> {
        let server = self.guest.start(&format!("{command} 2>&1"))?;
        match self.guest.check(LISTENS, RUN) {
            Ok(_) => Ok(server),
            Err(error) => Err(self.explain(format!("{error}\nthe server said:\n{}", server.so_far()))),
        }
    }

    fn ended(&self, server: Job<'_>) -> TestResult {
        let output = server.wait(RUN)?;
        match output.status {
            0 => Ok(()),
            status => Err(self.explain(format!("the server ended with {status}:\n{}", output.text()))),
        }
    }

    /// The host's process, on function 0, calls `server` of the guest's.
    fn call_from_the_host(&self, server: &str) -> TestResult {
        let server = self.serve(server)?;
        let socket = self.model.sockets()[0].display();
        let client = Command::new(self.build.program("rc_pingpong")?)
            .args(["-c", "-n", "200", "-p", &self.port.to_string(), "-d", &format!("vfio-user:{socket}"), "127.0.0.1"])
            .output()?;
        if !client.status.success() {
            let said = String::from_utf8_lossy(&client.stderr).into_owned();
            return Err(self.explain(format!("the host's process: {said}\nthe server said:\n{}", server.so_far())));
        }
        self.ended(server)
    }

    /// `client` of the guest's calls `server` of the guest's.
    fn call_within_the_guest(&self, server: &str, client: &str) -> TestResult {
        let server = self.serve(server)?;
        self.guest.check(&format!("{client} 127.0.0.1 2>&1"), RUN).map_err(|error| self.explain(error))?;
        self.ended(server)
    }
}

#[test]
fn host_guest_kernel_and_guest_process_talk_to_each_other() -> TestResult {
    if skipped("host_guest_kernel_and_guest_process_talk_to_each_other") {
        return Ok(());
    }
    let lab = Lab::boot()?;
    let second = functions(&lab.guest)?.pop().ok_or("the guest sees no ConnectX")?;
    let set_up = format!("SECOND={second}{SET_UP}");
    lab.guest.check(&set_up, PROBE).map_err(|error| lab.explain(error))?;

    let kernel = "rc_pingpong -d devx:mlx5_0 -c -n 200";
    let process = format!("rc_pingpong -d vfio:{second} -c -n 200");
    lab.call_within_the_guest(&format!("{process} --listen"), kernel)?;
    lab.call_within_the_guest(&format!("{kernel} --listen"), &process)?;
    lab.call_from_the_host(&format!("{kernel} --listen"))?;
    lab.call_from_the_host(&format!("{process} --listen"))?;

    // What is left now is a leak, which strict mode reports at TEARDOWN_HCA.
    lab.guest.check("modprobe -r mlx5_ib && modprobe -r mlx5_core", PROBE).map_err(|error| lab.explain(error))?;
    assert_quiet(&lab.guest.dmesg()?, "mlx5", &lab.model);
    lab.guest.power_off()?;
    assert_lawful(&lab.model);
    Ok(())
}
