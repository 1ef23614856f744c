//! Connections and storage over vfio-pci in a guest, behind an emulated IOMMU: our programs own one function, and
//! those of Linux, librdmacm and Ceph at the other end use another one by the kernel's driver.

mod common;

use common::disks::{NETWORK, USER_SPACE, assert_quiet, our_host_on_theirs, their_host_on_ours};
use common::{Lab, PROBE, Report, SOON, THEY_LISTEN, TRAFFIC, TestResult, functions, hand_to_vfio};
use mlx5_lab::ceph::{ADDRESS, CHUNKS, LISTENING, SETTINGS, command};
use mlx5_lab::{Build, Guest, Model, Software, rounds};

/// The link-local address of our function, from the MAC address that the kernel has from ARP, which the other programs
/// have answered. Nobody has looked for the address itself before.
const LINK_LOCAL: &str = r#"
set -e
device=$(ls /sys/class/infiniband/mlx5_0/device/net)
mac=$(ip neigh show 10.0.0.4 | sed -n 's/.*lladdr \([^ ]*\).*/\1/p')
IFS=: read a b c d e f <<< "$mac"
address=$(printf 'fe80::%02x%s:%sff:fe%s:%s%s' $((0x$a ^ 2)) $b $c $d $e $f)
[ -z "$(ip -6 neigh show $address)" ]
echo $address%$device
"#;

/// Index of the kernel's GID of 10.0.0.1.
const BY_IPV4: &str = "$(cd /sys/class/infiniband/mlx5_0/ports/1/gids && grep -li ffff:0a00:0001 * | tail -n 1)";

/// TCP, protocol 6, to our function's address goes to a namespace that has it, too; everything else to our function.
const TCP_GOES_ASIDE: &str = "
set -e
ip netns add aside
ip link add tcp0 type veth peer name tcp1 netns aside
ip addr add 10.9.0.1/24 dev tcp0
ip link set tcp0 up
ip -n aside link set lo up
ip -n aside addr add 10.9.0.2/24 dev tcp1
ip -n aside addr add 10.0.0.4/32 dev tcp1
ip -n aside link set tcp1 up
ip rule add pref 100 to 10.0.0.4 ipproto 6 lookup 100
ip route add 10.0.0.4 via 10.9.0.2 dev tcp0 table 100
";

/// A guest with a function that is ours.
struct Owned {
    lab: Lab,
    /// Of the function, for our programs.
    device: String,
}

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn the_kernels_ends_are_spoken_to_over_vfio() -> TestResult {
    let owned = Owned::boot()?;
    owned.is_called_by_rping()?;
    owned.calls_rping()?;
    owned.lab.calls_cmtime(&owned.ours("cm_messages -C 0", ""), "", "10.0.0.1")?;
    owned.is_called_by_cmtime()?;
    our_host_on_theirs(&owned.lab, &owned.host())?;
    their_host_on_ours(&owned.lab, &owned.host(), "10.0.0.4")?;
    owned.is_a_node_of_lnet()?;
    owned.is_an_end_of_perf()?;
    owned.is_an_end_of_ceph()?;
    let left = owned.lab.check("rdma resource show cm_id", SOON)?;
    assert!(left.trim().is_empty(), "{left}");
    owned.end()
}

impl Owned {
    fn boot() -> Result<Self, Report> {
        let build = Build::dev(&["mlx5", "nvme_rdma", "lnet", "ceph_msgr"], &["cm_messages", "cm_pingpong"])?;
        let model = Model::start(&build, 2, &[])?;
        let ceph = Software::ceph()?;
        let [first, second] = model.sockets() else { return Err("two sockets".into()) };
        let guest = Guest::builder("over_vfio")
            .iommu()
            .memory_mib(3072)
            .huge_pages_2m(256)
            .module("vfio_iommu_type1")
            .module("vfio-pci")
            .nic(first)
            .nic(second)
            .programs(&build)
            .share(ceph.folder(), ceph.place())
            .boot()?;
        let function = functions(&guest)?.into_iter().next().ok_or("the guest sees no ConnectX")?;
        hand_to_vfio(&guest, &function)?;
        let owned = Owned { lab: Lab { guest, model }, device: format!("vfio:{function}") };
        owned.lab.check(NETWORK, PROBE)?;
        owned.lab.check(USER_SPACE, PROBE)?;
        Ok(owned)
    }

    /// Arguments of our programs: our function, with its address.
    fn host(&self) -> String {
        format!("-d {} --ip 10.0.0.4/24", self.device)
    }

    /// A command of ours, on our function.
    fn ours(&self, program: &str, arguments: &str) -> String {
        format!("{program} {} {arguments}", self.host())
    }

    /// Calls a server of librdmacm's, which compares what comes back, as our client does.
    fn calls_rping(&self) -> TestResult {
        let server = self.lab.serve("rping -C 50 -S 20000 -V -v -s -a 10.0.0.1", THEY_LISTEN)?;
        let said = self.lab.call(server, &self.ours("cm_pingpong -C 50 -S 20000", "10.0.0.1"))?;
        assert!(said.contains("50 messages of 20000 bytes came back unchanged"), "{said}");
        assert!(said.contains("server ping data: rdma-ping-49"), "{said}");
        Ok(())
    }

    /// Is called by a client of librdmacm's.
    fn is_called_by_rping(&self) -> TestResult {
        let ours = self.ours("cm_pingpong -C 50 -S 20000", "--listen");
        let server = self.lab.serve_ours(&ours)?;
        let said = self.lab.call(server, "rping -C 50 -S 20000 -V -v -c -a 10.0.0.4")?;
        assert!(said.contains("ping data: rdma-ping-49") && said.contains("served 50 messages"), "{said}");
        Ok(())
    }

    /// cmtime's ends also meet by TCP, of which our function knows nothing.
    fn is_called_by_cmtime(&self) -> TestResult {
        self.lab.check(TCP_GOES_ASIDE, SOON)?;
        let echo = self.lab.serve_echo("ip netns exec aside")?;
        let server = self.lab.serve_ours(&self.ours("cm_messages -C 0", "-c 101 --listen"))?;
        let said = self.lab.call(server, "cmtime -c 50 -s 10.0.0.4")?;
        assert!(said.contains("101 clients connected") && said.contains("101 disconnected"), "{said}");
        assert_eq!(said.matches("destroy qp").count(), 2, "{said}");
        self.lab.ended(echo)?;
        self.lab.check("ip rule del pref 100 && ip netns del aside", SOON).map(drop)
    }

    /// The peer is ours, too, but connects by the kernel's connection manager, and its queue pairs are of DevX.
    fn is_a_node_of_lnet(&self) -> TestResult {
        let serve = self.ours("lnet serve", "> /tmp/node 2>&1");
        let server =
            self.lab.serve(&format!("echo $$ > /tmp/serving; exec {serve}"), "grep -q 'listens on port' /tmp/node")?;
        for how in ["ping", "brw -n 8", "brw -n 8 --gaps"] {
            let client = format!("lnet {how} -d devx:mlx5_0 --ip 10.0.0.1/24 10.0.0.4@o2ib 2>&1");
            let said = self.lab.check(&client, TRAFFIC)?;
            let says = if how == "ping" { "10.0.0.4@o2ib" } else { "8 writes and as many reads of 1048576 bytes" };
            assert!(said.contains(says), "{said}");
        }
        self.lab.check("kill $(cat /tmp/serving)", SOON)?;
        server.wait(TRAFFIC).map(drop).map_err(Into::into)
    }

    /// The peer is ours, too, connected by the kernel's connection manager. Either end may call.
    fn is_an_end_of_perf(&self) -> TestResult {
        let perf = "mlx5 perf bw send -n 100 -q 3 -R";
        let (ours, theirs) = (self.ours(perf, ""), format!("{perf} -d devx:mlx5_0 -x {BY_IPV4}"));
        for (server, client) in [(&ours, &theirs), (&theirs, &ours)] {
            let server = self.lab.serve_tcp("", &format!("{server} --listen"))?;
            let said = self.lab.call(server, &format!("{client} 127.0.0.1"))?;
            assert_eq!(said.matches("#bytes").count(), 2, "{said}");
        }
        Ok(())
    }

    /// Our server and Ceph's client by link-local addresses, then the other way round by IPv4: both ends find each
    /// other's MAC address themselves.
    fn is_an_end_of_ceph(&self) -> TestResult {
        let theirs = |program: &str| format!("{SETTINGS}{} 2>&1", command("mlx5_0", program));
        let ours = |end: &str| self.ours(&format!("ceph_msgr {end} {CHUNKS}"), "");
        let operations = rounds(100, 10_000);
        let address = self.lab.check(LINK_LOCAL, SOON)?;

        let serve = format!("echo $$ > /tmp/messenger; exec {} -x 0 {ADDRESS}", ours("server"));
        let server = self.lab.serve(&serve, LISTENING)?;
        let ping = format!("busybox ping -6 -c 1 -W 2 {}", address.trim());
        self.lab.wait_until("our function answers a ping to its link-local address", &ping)?;
        let client = theirs(&format!("ceph_perf_msgr_client {ADDRESS} 1 8 {operations} 0 4096"));
        let said = self.lab.check(&client, TRAFFIC).map_err(|error| format!("{error:?}\n{}", server.so_far()))?;
        assert!(said.contains(&format!("Total op {operations} run time")), "{said}");
        self.lab.check("kill $(cat /tmp/messenger)", SOON)?;
        server.wait(SOON)?;

        let by_ipv4 = format!("ceph_perf_msgr_server {ADDRESS} 1 0 --ms_async_rdma_gid_idx={BY_IPV4}");
        let server = self.lab.serve(&theirs(&by_ipv4), LISTENING)?;
        let client = format!("{} -n {operations} -s 4096 --jobs 4 {ADDRESS} 2>&1", ours("client"));
        let said = self.lab.check(&client, TRAFFIC).map_err(|error| format!("{error:?}\n{}", server.so_far()))?;
        assert!(said.contains(" operations of "), "{said}");
        Ok(())
    }

    fn end(self) -> TestResult {
        assert_quiet(&self.lab, &[])?;
        let log = self.lab.guest.dmesg()?;
        common::assert_quiet(&log, "DMAR", &self.lab.model);
        common::assert_quiet(&log, "vfio", &self.lab.model);
        self.lab.guest.power_off()?;
        // A program that is killed leaves its function at work until the kernel stops it.
        let violations = self.lab.model.violations();
        let others: Vec<_> = violations.iter().filter(|said| !said.ends_with("bus mastering is off")).collect();
        assert!(others.is_empty(), "strict mode reports:\n{others:#?}");
        Ok(())
    }
}
