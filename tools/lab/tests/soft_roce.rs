//! The kernel's soft-RoCE (rdma_rxe) at the other end of the model's wire: an independent transport, over IPv4 and
//! IPv6. At our end is libmlx5 in the same guest, or our driver in a process on the host, which finds neighbours by
//! itself; tshark checks how.

mod common;

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{Lab, PROBE, Report, THEY_LISTEN, TRAFFIC, TestResult, assert_lawful, build, free_port, host_card};
use mlx5_lab::{Build, Guest, Model, Tshark, log_file};

/// Puts soft-RoCE on the virtio card of the wire, 10.0.0.3, and moves the function's network device, 10.0.0.1, to a
/// namespace: otherwise the kernel drops packets from its own address as forged. (rdma_rxe only works in the first
/// namespace.) The other virtio card is connected to the host's ports.
const SET_UP: &str = r#"
set -e
modprobe mlx5_ib
modprobe ib_uverbs
modprobe rdma_ucm
modprobe virtio_net
modprobe rdma_rxe
card() {
    for wait in $(seq 100); do
        grep -l "$1" /sys/bus/virtio/drivers/virtio_net/virtio*/net/*/address && return
        sleep 0.1
    done 2>/dev/null | sed 's,/address$,,; s,.*/,,'
}
lan=$(card 52:54:00:00:00:01)
host=$(card 52:54:00:00:00:02)
echo $lan > /tmp/lan
ip link set $host up
ip addr add 10.0.2.15/24 dev $host
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
# The index of a GID: of IPv4, or link-local.
cat > /tmp/index <<'SCRIPT'
for index in 0 1 2 3; do
    grep -qi "$2" /sys/class/infiniband/$1/ports/1/gids/$index && { echo $index; exit; }
done
exit 1
SCRIPT
"#;

/// Puts the virtio card of the wire into VLAN 5, and leaves the index of soft-RoCE's GID there in /tmp/vlan. Nobody
/// answers for our function in the VLAN.
const VLAN: &str = r#"
set -e
modprobe 8021q
ip link add link $(cat /tmp/lan) name v5 type vlan id 5
ip link set v5 up
ip -6 neigh replace fe80::c5ff:fe00:1 lladdr 02:00:c5:00:00:01 dev v5 nud permanent
cd /sys/class/infiniband/rxe0/ports/1/gid_attrs/ndevs
for wait in $(seq 100); do
    for index in *; do
        [ "$(cat $index 2>/dev/null)" = v5 ] && { echo $index > /tmp/vlan; exit; }
    done
    sleep 0.1
done
exit 1
"#;

/// What awaits a GID of soft-RoCE that has `$1`.
const AWAIT_GID: &str = r#"
await_gid() {
    for wait in $(seq 100); do
        grep -qi $1 /sys/class/infiniband/rxe0/ports/1/gids/* && return
        sleep 0.1
    done
    echo "rxe0 has no GID with $1"
    return 1
}
"#;

/// Gives soft-RoCE an address in our function's network of IPv6.
const IPV6: &str = "
set -e
ip addr add 2001:db8::3/64 dev $(cat /tmp/lan) nodad
await_gid 2001:0db8
";

/// Puts a router between the wire and soft-RoCE: the kernel forwards between the virtio card, which keeps 10.0.0.3 and
/// 2001:db8::3, and other networks, where soft-RoCE becomes 10.1.0.2 and 2001:db8:1::2.
const ROUTER: &str = r#"
set -e
lan=$(cat /tmp/lan)
rdma link delete rxe0
ip netns add router
ip link set $lan netns router
ip -n router addr add 10.0.0.3/24 dev $lan
ip -n router addr add 2001:db8::3/64 dev $lan nodad
ip -n router link set $lan up
ip link add s0 type veth peer name r0 netns router
ip -n router addr add 10.1.0.1/24 dev r0
ip -n router addr add 2001:db8:1::1/64 dev r0 nodad
ip -n router link set r0 up
ip netns exec router sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding'
ip addr add 10.1.0.2/24 dev s0
ip addr add 2001:db8:1::2/64 dev s0 nodad
ip link set s0 up
ip route add 10.0.0.0/24 via 10.1.0.1
ip route add 2001:db8::/64 via 2001:db8:1::1
rdma link add rxe0 type rxe netdev s0
await_gid ffff:0a01:0002
await_gid 2001:0db8:0001
"#;

/// Makes a switch of the router: a bridge that watches membership of multicast groups. It asks for members each second.
const SWITCH: &str = r#"
set -e
lan=$(cat /tmp/lan)
ip -n router addr flush dev $lan
ip -n router link add br0 type bridge mcast_snooping 1 mcast_querier 1 mcast_query_interval 100 \
    mcast_query_response_interval 50 mcast_startup_query_interval 100
ip -n router link set $lan master br0
ip -n router addr add 10.0.0.3/24 dev br0
ip -n router link set br0 up
"#;

/// How long the switch remembers a member that does not answer, in hundredths of a second.
const BRIEFLY: u32 = 300;
const FOR_LONG: u32 = 60_000;

/// What makes the switch remember members as long as that, from their next answer on.
fn remembering(hundredths: u32) -> String {
    format!("ip -n router link set br0 type bridge mcast_membership_interval {hundredths}")
}

struct Wire {
    build: Build,
    lab: Lab,
    /// The host's port that leads to the guest's 18515.
    port: u16,
    capture: PathBuf,
    // Where the wire's sockets are.
    _dir: tempfile::TempDir,
}

/// Which end is the server.
#[derive(Clone, Copy)]
enum Server {
    Soft,
    Ours,
}

impl Wire {
    fn boot() -> Result<Self, Report> {
        let dir = tempfile::Builder::new().prefix("mlx5-wire-").tempdir()?;
        let (build, path, capture) = (build()?, dir.path().join("wire"), log_file("capture.pcap")?);
        let text = |path: &Path| path.to_str().map(str::to_owned).ok_or("a path in UTF-8");
        let model = Model::start(&build, 2, &["--wire", &text(&path)?, "--pcap", &text(&capture)?])?;
        let port = free_port()?;
        let guest = Guest::builder("soft_roce")
            .parallel()
            .nic(&model.sockets()[1])
            .wire(&path)
            .qemu_args(host_card(port, "52:54:00:00:00:02"))
            .boot()?;
        let wire = Wire { build, lab: Lab { guest, model }, port, capture, _dir: dir };
        wire.lab.check(SET_UP, PROBE)?;
        wire.lab.make_neighbours(("ip netns exec a", "eth0"), ("", "$(cat /tmp/lan)"), "10.0.0.3")?;
        Ok(wire)
    }

    /// One of rdma-core's ping-pongs at both ends.
    fn pingpong(&self, server: Server, program: &str, gid: &str, options: &str) -> TestResult {
        let run = || self.pair(server, program, gid, options).map(drop);
        if program == "ibv_rc_pingpong" { thrice(run) } else { run() }
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

/// Tries reliable connections three times. A busy host may stop the guest for half a second, and our end gives up after
/// seven retries, 67 ms apart, as the ping-pongs ask for (to soft-RoCE seven means forever). Guests stopped for 300 ms
/// in mid-traffic always went on; stopped for 800 ms, our end reported "transport retry counter exceeded".
/// Unacknowledged transports are tried once.
fn thrice(run: impl Fn() -> TestResult) -> TestResult {
    let mut refusals = Vec::new();
    for _ in 0..3 {
        match run() {
            Ok(()) => return Ok(()),
            Err(refusal) => refusals.push(format!("{refusal:?}")),
        }
    }
    Err(refusals.join("\n\nagain:\n").into())
}

/// Our driver, in a process on the host that owns the first function, 10.0.0.4.
impl Wire {
    /// `rc_pingpong` from the GID at `gid_index`, with further `arguments`.
    fn ours(&self, gid_index: u8, arguments: &[&str]) -> Result<Command, Report> {
        let mut command = Command::new(self.build.program("rc_pingpong")?);
        let socket = self.lab.model.sockets()[0].display();
        command.args(["-d", &format!("vfio-user:{socket}"), "--ip", "10.0.0.4/24", "-g", &gid_index.to_string()]);
        command.args(["-c", "-n", "200", "-s", "20000"]).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(command)
    }

    /// `ibv_rc_pingpong` on soft-RoCE, from a GID that starts with `gid`.
    fn theirs(gid: &str) -> String {
        format!("ibv_rc_pingpong -d rxe0 -g $(bash /tmp/index rxe0 {gid}) -c -n 200 -s 20000")
    }

    fn succeeded(&self, output: &Output, other: &str) -> TestResult {
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(self.lab.explain(format!("our process: {said}\nthe other end said:\n{other}")))
    }

    /// Our driver is the client of soft-RoCE.
    fn call(&self, gid_index: u8, gid: &str) -> TestResult {
        let server = self.lab.serve_tcp("", &Self::theirs(gid))?;
        let output = self.ours(gid_index, &["-p", &self.port.to_string(), "127.0.0.1"])?.output()?;
        self.succeeded(&output, &server.so_far())?;
        self.lab.ended(server).map(drop)
    }

    /// Soft-RoCE is the client of our driver, which also answers ping while it waits.
    fn be_called(&self, gid_index: u8, gid: &str, address: &str) -> TestResult {
        let port = free_port()?;
        let mut server = Running(self.ours(gid_index, &["--listen", "-p", &port.to_string()])?.spawn()?);
        await_listener(port, &mut server.0)?;
        self.lab.wait_until(&format!("{address} answers ping"), &format!("busybox ping -c 1 -W 2 {address}"))?;
        let said = self.lab.check(&format!("{} -p {port} 10.0.2.2 2>&1", Self::theirs(gid)), TRAFFIC)?;
        let output = server.output()?;
        self.succeeded(&output, &said)
    }
}

impl Wire {
    /// Our driver is the client of soft-RoCE in VLAN 5, with priority 3.
    fn call_in_a_vlan(&self) -> TestResult {
        let server = self.lab.serve_tcp("", "ibv_rc_pingpong -d rxe0 -g $(cat /tmp/vlan) -c -n 200 -s 20000")?;
        let port = self.port.to_string();
        let output = self.ours(2, &["--vlan", "5", "-l", "3", "-p", &port, "127.0.0.1"])?.output()?;
        self.succeeded(&output, &server.so_far())?;
        self.lab.ended(server).map(drop)
    }
}

/// tshark finds RoCE in VLAN 5 in the capture: ours with priority 3, and the answers.
fn assert_tagged(tshark: &Tshark, capture: &Path) -> TestResult {
    for filter in ["vlan.priority == 3 && eth.src == 02:00:c5:00:00:01", "eth.dst == 02:00:c5:00:00:01"] {
        let filter = format!("vlan.id == 5 && infiniband && {filter}");
        assert!(!packets(tshark, capture, &filter)?.is_empty(), "no {filter:?}");
    }
    Ok(())
}

/// A program of ours that is connected by the connection manager, and librdmacm's, which may be the other end.
struct Managed {
    /// Of our function: its address, and the gateway to all other networks.
    network: &'static str,
    ours: &'static [&'static str],
    /// Their command lines: the server is at ADDRESS.
    server: &'static str,
    client: &'static str,
    /// What ends say that succeed: ours, and theirs.
    say: [&'static str; 2],
}

/// Each message is compared with what comes back.
const RPING: Managed = Managed {
    network: "10.0.0.4/24,10.0.0.3",
    ours: &["cm_pingpong", "-C", "50", "-S", "20000"],
    server: "rping -s -a ADDRESS -V -v -C 50 -S 20000",
    client: "rping -c -a ADDRESS -V -v -C 50 -S 20000",
    say: ["50 messages", "ping data: rdma-ping-49"],
};

/// The same, over IPv6.
const RPING_V6: Managed = Managed { network: "2001:db8::4/64,2001:db8::3", ..RPING };

const MANAGED_PROGRAMS: [Managed; 4] = [
    RPING,
    Managed {
        network: RPING.network,
        ours: &["cm_messages", "-c", "40"],
        server: "ucmatose -c 40 -b ADDRESS",
        client: "ucmatose -c 40 -s ADDRESS",
        say: ["40 disconnected", "return status 0"],
    },
    Managed {
        network: RPING.network,
        ours: &["cm_messages", "-c", "4", "--datagrams"],
        server: "udaddy -c 4 -b ADDRESS",
        client: "udaddy -c 4 -s ADDRESS",
        say: ["10 datagrams of 100 bytes each way", "return status 0"],
    },
    // A byte stream, of which each end checks each byte.
    Managed {
        network: RPING.network,
        ours: &["byte_stream", "-C", "20", "-S", "65536"],
        server: "rstream -b ADDRESS -S 65536 -C 20 -T v",
        client: "rstream -s ADDRESS -S 65536 -C 20 -T v",
        say: ["1310720 bytes went each way, and came unchanged", "custom"],
    },
];

/// Our function by our connection manager, with the kernel's at the other end.
impl Wire {
    fn managed(&self, programs: &Managed, arguments: &[&str]) -> Result<Command, Report> {
        let [program, options @ ..] = programs.ours else { return Err("a program".into()) };
        let mut command = Command::new(self.build.program(program)?);
        let socket = self.lab.model.sockets()[0].display();
        command.args(["-d", &format!("vfio-user:{socket}"), "--ip", programs.network]).args(options).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(command)
    }

    /// Our client calls a server in the guest, which `within` runs, at `address`.
    fn call_managed(&self, programs: &Managed, within: &str, address: &str) -> TestResult {
        self.call_managed_at(programs, within, address, address)
    }

    /// As [`call_managed`](Self::call_managed); the guest calls the address `theirs`, for instance with its interface.
    fn call_managed_at(&self, programs: &Managed, within: &str, address: &str, theirs: &str) -> TestResult {
        let server = format!("{within} {}", programs.server.replace("ADDRESS", theirs));
        let server = self.lab.serve(&server, THEY_LISTEN)?;
        let output = self.managed(programs, &[address])?.output()?;
        self.succeeded(&output, &server.so_far())?;
        let said = [String::from_utf8_lossy(&output.stdout).into_owned(), self.lab.ended(server)?];
        assert!(programs.say.iter().zip(&said).all(|(words, said)| said.contains(words)), "{said:?}");
        Ok(())
    }

    /// Our server, which listens, and what it prints after it said so.
    fn serve_managed(&self, programs: &Managed) -> Result<(Running, BufReader<ChildStdout>), Report> {
        let mut server = Running(self.managed(programs, &["--listen"])?.spawn()?);
        let mut stdout = BufReader::new(server.0.stdout.take().ok_or("standard output of our server")?);
        let mut line = String::new();
        stdout.read_line(&mut line)?;
        assert!(line.starts_with("listening"), "{line:?}");
        Ok((server, stdout))
    }

    /// A client in the guest, which `within` runs, calls our server at `address`.
    fn be_called_managed(&self, programs: &Managed, within: &str, address: &str) -> TestResult {
        let (server, mut stdout) = self.serve_managed(programs)?;
        let client = format!("{within} {} 2>&1", programs.client.replace("ADDRESS", address));
        let theirs = self.lab.check(&client, TRAFFIC)?;
        let mut ours = String::new();
        stdout.read_to_string(&mut ours)?;
        let output = server.output()?;
        self.succeeded(&output, &theirs)?;
        let said = [ours, theirs];
        assert!(programs.say.iter().zip(&said).all(|(words, said)| said.contains(words)), "{said:?}");
        Ok(())
    }

    /// Calls of ports where nobody listens, ours and theirs.
    fn wrong_ports_are_refused(&self) -> TestResult {
        let [_, ucmatose, udaddy, _] = &MANAGED_PROGRAMS;
        for (programs, reason) in [(ucmatose, "INVALID_SERVICE_ID"), (udaddy, "UNSUPPORTED")] {
            let output = self.managed(programs, &["-p", "7999", "10.0.0.3"])?.output()?;
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && said.contains(reason), "{said}");
        }
        let _server = self.serve_managed(ucmatose)?;
        let theirs = self.lab.guest.run("ucmatose -c 1 -s 10.0.0.4 -p 7999 2>&1", TRAFFIC)?;
        assert!(theirs.text().contains("RDMA_CM_EVENT_REJECTED, error: 8"), "{}", theirs.text());
        Ok(())
    }
}

/// Multicast groups, on a network with a switch that watches membership.
impl Wire {
    /// Our function is a member of `group`. Returns once the switch knows it, and knows it by answers to its questions,
    /// too.
    fn member_of(&self, group: &str) -> Result<Running, Report> {
        self.lab.check(&remembering(BRIEFLY), PROBE)?;
        let mut command = Command::new(self.build.program("multicast")?);
        let socket = self.lab.model.sockets()[0].display();
        command.args(["-d", &format!("vfio-user:{socket}"), "--ip", "10.0.0.4/24", "--listen", group]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let member = Running(command.spawn()?);
        let known = format!("bridge -n router mdb show dev br0 | grep \"port $(cat /tmp/lan) grp {group} \"");
        self.lab.wait_until(&format!("the switch knows a member of {group}"), &known)?;
        // Longer than it reports unasked, and than the switch remembers that.
        self.lab.check("sleep 5", PROBE)?;
        self.lab.wait_until(&format!("a member of {group} has answered the switch"), &known)?;
        // From its next answer on, the switch forgets it when it says that it leaves, and not before.
        self.lab.check(&remembering(FOR_LONG), PROBE)?;
        self.lab.check("sleep 3", PROBE)?;
        self.lab.wait_until(&format!("a member of {group} has answered the switch again"), &known)?;
        Ok(member)
    }

    fn switches_are_told_of_groups(&self) -> TestResult {
        self.lab.check(SWITCH, PROBE)?;
        let member = self.member_of("239.1.2.3")?;
        // From the card's other function. Our member succeeds, and leaves, when it has heard all.
        let theirs = self.lab.check("ip netns exec a mckey -m 239.1.2.3 -b 10.0.0.1 -s 2>&1", TRAFFIC)?;
        let output = member.output()?;
        self.succeeded(&output, &theirs)?;
        let forgotten = "! bridge -n router mdb show dev br0 | grep \"port $(cat /tmp/lan) grp 239.1.2.3 \"";
        self.lab.wait_until("the switch knows that the member has left", forgotten)?;
        // To this one nobody sends: on RoCE the kernel's connection manager joins no groups of IPv6.
        drop(self.member_of("ff15::1:2")?);
        Ok(())
    }
}

/// Soft-RoCE made anew, which numbers its queue pairs as the time before. A client of it, connected to our server and
/// without messages, dies while its link is down, so that nobody is told. Of its successors the first one's queue pair
/// has the same number.
const DIE_UNNOTICED: &str = "
set -e
lan=$(cat /tmp/lan)
anew() {
    rdma link delete rxe0
    ip link set $lan up
    rdma link add rxe0 type rxe netdev $lan
    until grep -qi ffff:0a00 /sys/class/infiniband/rxe0/ports/1/gids/*; do sleep 0.1; done
}
anew
stdbuf -oL rping -c -d -a 10.0.0.4 -p 7471 > /tmp/first 2>&1 & first=$!
until grep -q 'rdma_connect successful' /tmp/first; do sleep 0.1; done
ip link set $lan down
kill -9 $first
wait $first || true
anew
";

/// Connections of which one end has died without a word, and its successor calls with the same queue pair.
impl Wire {
    /// The kernel rejects our successor's request, and takes it later.
    fn kernel_knows_our_dead(&self) -> TestResult {
        let server = "stdbuf -oL rping -s -P -d -S 20000 -a 10.0.0.3";
        let mut server = self.lab.serve(server, THEY_LISTEN)?;
        // It waits for a message, and rping for one of it.
        let silent = Managed { ours: &["cm_messages", "-p", "7174"], ..RPING };
        let dead = Running(self.managed(&silent, &["10.0.0.3"])?.spawn()?);
        server.wait_for("RDMA_CM_EVENT_ESTABLISHED", TRAFFIC)?;
        drop(dead);
        let output = self.managed(&RPING, &["10.0.0.3"])?.output()?;
        self.succeeded(&output, &server.so_far())?;
        self.lab.check("pkill -x rping", PROBE)?;
        server.wait(TRAFFIC)?;
        Ok(())
    }

    /// Our server rejects their successor's request, ends what it knows, and takes the next one.
    fn ours_knows_their_dead(&self) -> TestResult {
        let server = Managed { ours: &["cm_messages", "-C", "0", "-c", "2"], ..MANAGED_PROGRAMS[1] };
        let (server, mut stdout) = self.serve_managed(&server)?;
        self.lab.check(DIE_UNNOTICED, PROBE)?;
        let successor = "ucmatose -C 0 -c 1 -s 10.0.0.4";
        let theirs = self.lab.guest.run(&format!("{successor} 2>&1"), TRAFFIC)?.text();
        assert!(theirs.contains("RDMA_CM_EVENT_REJECTED, error: 10"), "{theirs}");
        let theirs = self.lab.guest.start(&format!("{successor} 2>&1"))?;
        let mut ours = String::new();
        stdout.read_line(&mut ours)?;
        // This one's end is told.
        self.lab.check("pkill -9 -x ucmatose", PROBE)?;
        stdout.read_to_string(&mut ours)?;
        self.succeeded(&server.output()?, &theirs.so_far())?;
        assert_eq!(ours, "2 clients connected\n2 disconnected\n");
        Ok(())
    }
}

/// A process of ours, killed if it is not waited for.
struct Running(Child);

impl Running {
    fn output(mut self) -> Result<Output, Report> {
        let mut output = Output { status: self.0.wait()?, stdout: Vec::new(), stderr: Vec::new() };
        if let Some(stderr) = &mut self.0.stderr {
            stderr.read_to_end(&mut output.stderr)?;
        }
        Ok(output)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until `server` listens on `port`.
fn await_listener(port: u16, server: &mut Child) -> TestResult {
    let listening = format!(":{port:04X} ");
    let begin = Instant::now();
    loop {
        let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| std::fs::read_to_string(path).unwrap_or_default());
        if tables.iter().flat_map(|table| table.lines()).any(|line| line.contains(&listening) && line.contains(" 0A "))
        {
            return Ok(());
        }
        if let Some(status) = server.try_wait()? {
            return Err(format!("our server ended with {status} before it listened").into());
        }
        if begin.elapsed() > TRAFFIC {
            return Err(format!("nobody listens on port {port}").into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The lines that tshark prints for the packets that match `filter`.
fn packets(tshark: &Tshark, capture: &Path, filter: &str) -> Result<Vec<String>, Report> {
    let output = tshark.read(capture).args(["-Y", filter]).stdin(Stdio::null()).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

/// tshark finds our function's ARP, neighbour discovery and ping in the capture, and nothing malformed.
fn assert_neighbourly(tshark: &Tshark, capture: &Path) -> TestResult {
    let wrong = packets(tshark, capture, "_ws.malformed || (icmpv6 && icmpv6.checksum.status == 0)")?;
    assert_eq!(wrong, [""; 0], "tshark finds these wrong");
    for (what, filter) in [
        ("ARP request", "arp.opcode == 1 && arp.src.proto_ipv4 == 10.0.0.4 && arp.dst.proto_ipv4 == 10.0.0.3"),
        ("ARP reply", "arp.opcode == 2 && arp.src.proto_ipv4 == 10.0.0.4"),
        ("neighbour advertisement", "icmpv6.type == 136 && icmpv6.nd.na.flag.s == 1 && eth.src == 02:00:c5:00:00:01"),
        ("answer to ping", "icmp.type == 0 && ip.src == 10.0.0.4"),
    ] {
        assert!(!packets(tshark, capture, filter)?.is_empty(), "our function sent no {what}: no {filter:?}");
    }
    Ok(())
}

/// Messages of the connection manager, by attribute, that our function sends and gets. The kernel's end sends an MRA
/// only where it is slow.
const MANAGED: &[(&str, u16)] = &[
    ("REQ", 0x10),
    ("MRA", 0x11),
    ("REJ", 0x12),
    ("REP", 0x13),
    ("RTU", 0x14),
    ("DREQ", 0x15),
    ("DREP", 0x16),
    ("SIDR_REQ", 0x17),
    ("SIDR_REP", 0x18),
];

/// tshark reads each message of the connection manager in the capture, from our function and to it.
fn assert_managed(tshark: &Tshark, capture: &Path) -> TestResult {
    for (message, attribute) in MANAGED {
        let sides: &[&str] = if *message == "MRA" { &["src"] } else { &["src", "dst"] };
        for side in sides {
            let of_cm = "infiniband.mad.mgmtclass == 7 && infiniband.mad.classversion == 2";
            let filter = format!("ip.{side} == 10.0.0.4 && {of_cm} && infiniband.mad.attributeid == {attribute:#x}");
            assert!(!packets(tshark, capture, &filter)?.is_empty(), "no {message} with ip.{side} our function's");
        }
    }
    for side in ["src", "dst"] {
        for ours in ["fe80::c5ff:fe00:1", "2001:db8::4"] {
            let filter = format!("ipv6.{side} == {ours} && infiniband.mad.attributeid == 0x10");
            assert!(!packets(tshark, capture, &filter)?.is_empty(), "no REQ with ipv6.{side} {ours}");
        }
        let filter = format!("ip.{side} == 10.0.0.4 && infiniband.cm.rej.reason == 10");
        assert!(!packets(tshark, capture, &filter)?.is_empty(), "no REJ of a stale connection with ip.{side} ours");
    }
    Ok(())
}

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn soft_roce_and_ours_are_connected_by_the_connection_managers_of_both() -> TestResult {
    let wire = Wire::boot()?;
    // soft-RoCE, and mlx5_ib on the model, each with the kernel's connection manager.
    for (within, address) in [("", "10.0.0.3"), ("ip netns exec a", "10.0.0.1")] {
        for programs in &MANAGED_PROGRAMS {
            wire.call_managed(programs, within, address)?;
            wire.be_called_managed(programs, within, "10.0.0.4")?;
        }
    }
    wire.wrong_ports_are_refused()?;
    wire.be_called_managed(&RPING, "", "fe80::c5ff:fe00:1%$(cat /tmp/lan)")?;
    let theirs = "fe80::5054:ff:fe00:1";
    wire.call_managed_at(&RPING, "", theirs, &format!("{theirs}%$(cat /tmp/lan)"))?;
    wire.lab.check(&[AWAIT_GID, IPV6].concat(), PROBE)?;
    wire.call_managed(&RPING_V6, "", "2001:db8::3")?;
    wire.be_called_managed(&RPING_V6, "", "2001:db8::4")?;
    wire.kernel_knows_our_dead()?;
    wire.ours_knows_their_dead()?;
    wire.lab.check(&[AWAIT_GID, ROUTER].concat(), PROBE)?;
    for (programs, theirs, ours) in [(&RPING, "10.1.0.2", "10.0.0.4"), (&RPING_V6, "2001:db8:1::2", "2001:db8::4")] {
        wire.call_managed(programs, "", theirs)?;
        wire.be_called_managed(programs, "", ours)?;
    }
    wire.switches_are_told_of_groups()?;
    wire.lab.assert_quiet()?;
    wire.lab.check("rdma link delete rxe0 && rmmod rdma_ucm && rmmod mlx5_ib", PROBE)?;
    wire.lab.guest.power_off()?;
    assert_lawful(&wire.lab.model);
    drop(wire.lab.model);
    let tshark = Tshark::ready()?;
    assert_eq!(packets(&tshark, &wire.capture, "_ws.malformed")?, [""; 0], "tshark finds these wrong");
    assert_managed(&tshark, &wire.capture)
}

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn soft_roce_and_ours_understand_each_other() -> TestResult {
    let wire = Wire::boot()?;
    for gid in ["ffff:0a00:", "fe80:"] {
        wire.pingpong(Server::Soft, "ibv_rc_pingpong", gid, "-n 200 -c")?;
        wire.pingpong(Server::Ours, "ibv_rc_pingpong", gid, "-n 200 -c -s 20000")?;
        wire.pingpong(Server::Soft, "ibv_uc_pingpong", gid, "-n 200 -c")?;
        wire.pingpong(Server::Ours, "ibv_ud_pingpong", gid, "-n 200 -c -s 1000")?;
    }
    let link_local = "fe80::c5ff:fe00:1%$(cat /tmp/lan)";
    for (gid_index, gid, address) in [(1, "ffff:0a00:", "10.0.0.4"), (0, "fe80:", link_local)] {
        thrice(|| wire.be_called(gid_index, gid, address))?;
        thrice(|| wire.call(gid_index, gid))?;
    }
    wire.lab.check(VLAN, PROBE)?;
    thrice(|| wire.call_in_a_vlan())?;
    wire.lab.assert_quiet()?;
    wire.lab.check("rdma link delete rxe0 && rmmod rdma_ucm && rmmod mlx5_ib", PROBE)?;
    wire.lab.guest.power_off()?;
    assert_lawful(&wire.lab.model);
    drop(wire.lab.model);
    let tshark = Tshark::ready()?;
    assert_neighbourly(&tshark, &wire.capture)?;
    assert_tagged(&tshark, &wire.capture)
}
