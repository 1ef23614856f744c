//! Code shared by the lab's tests.

// Each test program uses only a part of this.
#![allow(dead_code)]

pub mod disks;
pub mod kernels;

use std::error::Error;
use std::fmt::Display;
use std::net::TcpListener;
use std::time::Duration;

use mlx5_lab::{Build, Guest, Job, KernelLog, Model};

/// Timeout of short commands on a busy host.
pub const SOON: Duration = Duration::from_secs(60);

/// What a test returns: its error is shown with all its causes.
pub type TestResult = Result<(), Report>;

/// An error and its causes, for the test runner, which prints by `Debug`.
pub struct Report(Box<dyn Error>);

impl<E: Into<Box<dyn Error>>> From<E> for Report {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl std::fmt::Debug for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, "\n  because: {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

/// Our programs that guests and hosts run.
pub fn build() -> Result<Build, Report> {
    let examples = [
        "rc_pingpong",
        "cm_pingpong",
        "cm_messages",
        "byte_stream",
        "srq_pingpong",
        "ud_pingpong",
        "datagrams",
        "xsrq_pingpong",
        "xrc_domain",
        "multicast",
        "timestamps",
        "poll_data",
        "frames",
        "segments",
        "reserved_qpns",
        "tuning",
        "tcp",
        "spread",
        "rules",
        "atomics",
        "dynamic",
        "operations",
        "fast_keys",
        "shared",
        "dma_buf",
        "asyncwatch",
        "tokio",
    ];
    Ok(Build::dev(&["mlx5"], &examples)?)
}

/// A free TCP port of the host's.
pub fn free_port() -> Result<u16, Report> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// QEMU's arguments for a virtio card of MAC address `mac` that brings the host's `port` to the guest's 18515, where
/// the card has the address 10.0.2.15.
pub fn host_card(port: u16, mac: &str) -> [String; 4] {
    let backend = format!("user,id=host,hostfwd=tcp:127.0.0.1:{port}-10.0.2.15:18515");
    let card = format!("virtio-net-pci,netdev=host,mac={mac},romfile=");
    ["-netdev".into(), backend, "-device".into(), card]
}

/// The addresses of the ConnectX functions in a guest.
pub fn functions(guest: &Guest) -> Result<Vec<String>, Report> {
    let text = guest.check("lspci -D -n -d 15b3:", SOON)?;
    let addresses = text.lines().filter_map(|line| line.split(' ').next());
    Ok(addresses.map(str::to_owned).collect())
}

/// Hands a function to vfio-pci, as an administrator does.
pub fn hand_to_vfio(guest: &Guest, function: &str) -> TestResult {
    let device = format!("/sys/bus/pci/devices/{function}");
    guest.check(
        &format!(
            "echo vfio-pci > {device}/driver_override &&
             echo {function} > /sys/bus/pci/drivers_probe &&
             [ $(basename $(readlink {device}/driver)) = vfio-pci ] &&
             [ -c /dev/vfio/$(basename $(readlink {device}/iommu_group)) ]"
        ),
        SOON,
    )?;
    Ok(())
}

/// Timeout of a probe, which takes seconds; after a lost command the driver waits for a minute.
pub const PROBE: Duration = Duration::from_secs(240);

/// Timeout of one run of a program with few messages, on emulated processors of a busy host.
pub const TRAFFIC: Duration = Duration::from_secs(180);

/// A condition: a server listens by the kernel's connection manager.
pub const THEY_LISTEN: &str = "rdma resource show cm_id | grep -q LISTEN";

/// Waits until ping-pongs or perftest listen on TCP port 18515, 4853 in hexadecimal, in the network namespace that it
/// runs in. It starts no program but `sleep`: on an emulated processor that takes longer than to look.
const LISTENING: &str = "for ((wait = 0; wait < 6000; wait++)); do \
    [[ $(</proc/net/tcp)$(</proc/net/tcp6) =~ :4853\\ [0-9A-F]+:[0-9A-F]+\\ 0A\\  ]] && exit; \
    sleep 0.02; done; exit 1";

/// A guest and its card.
pub struct Lab {
    pub guest: Guest,
    pub model: Model,
}

impl Lab {
    /// Runs a script that has to succeed.
    pub fn check(&self, script: &str, patience: Duration) -> Result<String, Report> {
        self.guest.check(script, patience).map_err(|error| self.explain(error))
    }

    /// An error, with what the kernel and the model have logged so far.
    pub fn explain(&self, error: impl Display) -> Report {
        let log = self.guest.dmesg();
        let kernel: String = match &log {
            Ok(log) => ["mlx5", "infiniband", "rxe"]
                .iter()
                .flat_map(|what| log.matching(what))
                .map(|record| format!("{record}\n"))
                .collect(),
            Err(error) => format!("nothing that could be read: {error}\n"),
        };
        format!("{error}\nthe kernel said:\n{kernel}\nthe model said:\n{}", self.model.stderr()).into()
    }

    /// Waits until `condition`, of bash, is true; `what` describes it.
    pub fn wait_until(&self, what: &str, condition: &str) -> TestResult {
        let wait = format!("for wait in $(seq 1200); do {condition} && exit 0; sleep 0.1; done; exit 1");
        match self.guest.check(&wait, TRAFFIC) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.explain(format!("{what}: not so after two minutes\n{error}"))),
        }
    }

    /// Waits until two network devices have resolved each other's link-local addresses, and the second one's IPv4
    /// `address`. The kernel gives a ping-pong one second for this, which may be too short on a busy machine. A device
    /// is given by the prefix that runs a command in its namespace, and by its name, for bash.
    pub fn make_neighbours(&self, near: (&str, &str), far: (&str, &str), address: &str) -> TestResult {
        let ((here, near), (there, far)) = (near, far);
        let link_local = |within: &str, device: &str| {
            let addresses = format!("{within} ip -6 -o addr show dev {device} scope link -tentative");
            format!("$({addresses} | sed -n 's/.*inet6 \\([^/]*\\).*/\\1/p')")
        };
        let condition = format!(
            "near={} && far={} && [ \"$near\" ] && [ \"$far\" ] && {here} busybox ping -c 1 -W 1 {address} &&
                {here} busybox ping -c 1 -W 1 $far%{near} && {there} busybox ping -c 1 -W 1 $near%{far}",
            link_local(here, near),
            link_local(there, far)
        );
        self.wait_until("two network devices know each other", &condition)
    }

    /// Starts a server in the guest, and waits until `condition`, of bash, is true.
    pub fn serve(&self, server: &str, condition: &str) -> Result<Job<'_>, Report> {
        self.serving(server, |what| self.wait_until(what, condition))
    }

    /// Starts a server of ours in the guest, and waits until it says that it is listening.
    pub fn serve_ours(&self, server: &str) -> Result<Job<'_>, Report> {
        // What an earlier server said is gone first.
        self.check("rm -f /tmp/ours", SOON)?;
        let listens = "grep -q listening /tmp/ours 2> /dev/null";
        self.serve(&format!("set -o pipefail; {server} 2>&1 | tee /tmp/ours"), listens)
    }

    /// Starts a server that listens on TCP port 18515. `within` is the prefix that runs a command in its namespace.
    pub fn serve_tcp(&self, within: &str, server: &str) -> Result<Job<'_>, Report> {
        self.serving(&format!("{within} {server}"), |_| {
            self.check(&format!("{within} bash -c '{LISTENING}'"), TRAFFIC)?;
            Ok(())
        })
    }

    /// Starts what sends back each byte on TCP port 7471, by which cmtime's ends meet, and waits until it listens.
    /// `within` is the prefix that runs a command in its namespace.
    pub fn serve_echo(&self, within: &str) -> Result<Job<'_>, Report> {
        let listens = format!("{within} grep -q ':1D2F .* 0A ' /proc/net/tcp /proc/net/tcp6");
        self.serve(&format!("{within} busybox nc -l -p 7471 -e cat"), &listens)
    }

    /// Starts a server in the guest and `wait`s for what is described to it.
    fn serving(&self, server: &str, wait: impl FnOnce(&str) -> TestResult) -> Result<Job<'_>, Report> {
        let job = self.guest.start(&format!("{server} 2>&1"))?;
        match wait(&format!("`{server}` is ready")) {
            Ok(()) => Ok(job),
            Err(error) => Err(format!("{error:?}\nthe server said:\n{}", job.so_far()).into()),
        }
    }

    /// Runs a client, then waits for the server's end. Returns the output of both.
    pub fn call(&self, server: Job<'_>, client: &str) -> Result<String, Report> {
        match self.guest.check(&format!("{client} 2>&1"), TRAFFIC) {
            Ok(said) => Ok(said + &self.ended(server)?),
            Err(error) => Err(self.explain(format!("{error}\nthe server said:\n{}", server.so_far()))),
        }
    }

    /// `ours`, a command of ours for connections without messages, calls librdmacm's `cmtime` at `address`, which
    /// `within` runs, in its three rounds: one connection, 50, and 50 to queue pairs that do not exist.
    pub fn calls_cmtime(&self, ours: &str, within: &str, address: &str) -> TestResult {
        // A byte each way by TCP, in octal, before each round, and after its connections are made and ended: the number
        // of the step. In bash.
        let synchronise = format!(
            "set -e
until exec 3<>/dev/tcp/{address}/7471; do sleep 0.1; done 2>/dev/null
synchronise() {{ printf \\\\$1 >&3; head -c 1 <&3 > /dev/null; }}
"
        );
        let server = self.serve(&format!("{within} cmtime -c 50 -b {address}"), THEY_LISTEN)?;
        let round = |count: u32| format!("synchronise 0; {ours} -c {count} {address}; synchronise 14; synchronise 16");
        let said = self.call(server, &[synchronise, [round(1), round(50), round(50)].join("\n")].concat())?;
        assert!(said.matches("50 disconnected").count() == 2 && said.matches("destroy qp").count() == 2, "{said}");
        Ok(())
    }

    /// Waits for the end of a server, which has to succeed. Returns its output.
    pub fn ended(&self, server: Job<'_>) -> Result<String, Report> {
        let output = server.wait(TRAFFIC).map_err(|error| self.explain(error))?;
        match output.status {
            0 => Ok(output.text()),
            status => Err(self.explain(format!("the server ended with {status}:\n{}", output.text()))),
        }
    }

    /// Fails if the kernel logged a warning about the card.
    pub fn assert_quiet(&self) -> TestResult {
        let log = self.guest.dmesg()?;
        for what in ["mlx5", "infiniband", "rdma", "rxe"] {
            assert_quiet(&log, what, &self.model);
        }
        Ok(())
    }
}

/// Fails if the kernel logged a warning about `what`; shows all its records of that, and the `model`'s log.
pub fn assert_quiet(log: &KernelLog, what: &str, model: &Model) {
    let problems: Vec<String> = log.problems(what).iter().map(|record| record.to_string()).collect();
    assert!(
        problems.is_empty(),
        "the kernel complains:\n{}\n\nall it said of {what}:\n{}\nthe model said:\n{}",
        problems.join("\n"),
        log.matching(what).iter().map(|record| format!("{record}\n")).collect::<String>(),
        model.stderr()
    );
}

/// Fails if strict mode reported anything: with Linux as driver a false alarm, with ours a bug.
pub fn assert_lawful(model: &Model) {
    assert_of_strict_mode(model.violations());
}

/// As [`assert_lawful`], but strict mode may have reported what is `expected`.
pub fn assert_lawful_but(model: &Model, expected: &str) {
    let violations = model.violations().into_iter().filter(|line| !line.contains(expected));
    assert_of_strict_mode(violations.collect());
}

fn assert_of_strict_mode(violations: Vec<String>) {
    assert!(violations.is_empty(), "strict mode reports:\n{}", violations.join("\n"));
}

/// What the model logs when a function is reset: whenever a client comes or leaves.
#[derive(Debug, Clone, Copy)]
pub struct Reset {
    pub objects: u64,
    pub pages: u64,
    pub ranges: u64,
    pub frames: u64,
}

impl Reset {
    /// The log filter that makes the model log it.
    pub const SAID: &str = "warn,mlx5_sim::card=debug";

    /// Every reset of a function so far.
    pub fn all(model: &Model, function: usize) -> Vec<Self> {
        let mark = format!("function {function} is reset: ");
        let said = model.stderr();
        let counts = said.lines().filter_map(|line| line.split_once(&mark).map(|(_, counts)| counts));
        let number = |part: &str| part.split(' ').next()?.parse().ok();
        let read = |counts: &str| match counts.split(", ").map(number).collect::<Option<Vec<u64>>>()?[..] {
            [objects, pages, ranges, frames] => Some(Reset { objects, pages, ranges, frames }),
            _ => None,
        };
        counts.filter_map(read).collect()
    }

    /// Whether the client had left nothing behind.
    pub fn is_clean(&self) -> bool {
        (self.objects, self.pages, self.ranges) == (0, 0, 0)
    }
}
