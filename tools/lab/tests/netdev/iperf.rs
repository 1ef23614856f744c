//! iperf3 in the guest on the example `tcp`: smoltcp on a raw Ethernet queue of a third function, which a process on
//! the host owns. It has 10.0.0.6 or fd00::6, which nobody had before: the guest remembers whose an address was.

use std::io::{BufRead, BufReader, Read};
use std::net::IpAddr;
use std::process::{Child, Command, Stdio};

use mlx5_lab::{Build, Software, rounds};

use crate::common::{Report, TRAFFIC, TestResult};
use crate::net::Net;

/// The example as a server; killed if it is not waited for.
struct Server {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Server {
    /// At `address`, of a network with a prefix as long as that of the guest's.
    fn start(net: &Net, build: &Build, address: IpAddr, arguments: &[&str]) -> Result<Self, Report> {
        let device = format!("vfio-user:{}", net.lab.model.sockets()[2].display());
        let mut command = Command::new(build.program("tcp")?);
        let prefix = if address.is_ipv4() { 24 } else { 64 };
        command.args(["-d", &device, "--ip", &format!("{address}/{prefix}")]).args(arguments);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let said = BufReader::new(child.stdout.take().ok_or("standard output")?);
        let mut server = Server { child, said };
        let mut line = String::new();
        server.said.read_line(&mut line)?;
        if !line.starts_with("listening") {
            return Err(server.failed(&line));
        }
        Ok(server)
    }

    fn failed(&mut self, said: &str) -> Report {
        let (mut text, stderr) = (String::new(), self.child.stderr.take());
        let _ = self.child.kill();
        let _ = stderr.map(|mut stderr| stderr.read_to_string(&mut text));
        format!("our end said {said:?} and {text}").into()
    }

    /// What it said until its end, with success.
    fn ended(mut self) -> Result<String, Report> {
        let mut text = String::new();
        self.said.read_to_string(&mut text)?;
        match self.child.wait()?.success() {
            true => Ok(text),
            false => Err(self.failed(&text)),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Bytes that our end says it has sent or received.
fn count(said: &str) -> Result<u64, Report> {
    let word = said.split_whitespace().nth(1).ok_or_else(|| format!("no count in {said:?}"))?;
    Ok(word.parse()?)
}

/// Segments that the card of our end has joined to others.
fn joined(said: &str) -> Result<u64, Report> {
    let line = said.lines().find_map(|line| line.strip_prefix("segments joined to others: "));
    Ok(line.ok_or_else(|| format!("no segments in {said:?}"))?.parse()?)
}

/// iperf3 measures both ways, with several streams, over buffers and striding queues, with large receive offload, too;
/// then it sends a file, which arrives as it was though its segments are joined, and receives one. smoltcp checks each
/// packet's checksums, those of joined segments among them.
pub fn tcp(net: &Net, build: &Build) -> TestResult {
    let mebibytes = rounds(4, 1024) as u64;
    let (v4, v6): (IpAddr, IpAddr) = ("10.0.0.6".parse()?, "fd00::6".parse()?);
    let client = |server| format!("ip netns exec a {} -c {server} --connect-timeout 60000", Software::IPERF);
    let ways = [
        (v4, &[][..], "-P 2"),
        (v4, &["--striding"], ""),
        (v4, &[], "-R"),
        (v4, &["--striding"], "-R -P 3"),
        (v4, &["--striding", "--lro"], ""),
        (v6, &[], ""),
        (v6, &["--striding", "--lro"], "-P 2"),
    ];
    for (at, ours, theirs) in ways {
        let server = Server::start(net, build, at, ours)?;
        net.check(&format!("{} {theirs} -n {mebibytes}M 2>&1", client(at)), TRAFFIC * 4)?;
        let said = server.ended()?;
        println!("tcp at {at} {ours:?}, iperf3 {theirs}: {said}");
        assert!(count(&said)? >= mebibytes << 20, "{said}");
        assert_eq!(joined(&said)? > 0, ours.contains(&"--lro"), "{said}");
    }
    let folder = tempfile::tempdir()?;
    let (heard, given) = (folder.path().join("heard"), folder.path().join("given"));
    // Through a pipe: the guest's memory does not hold the long form's.
    let server = Server::start(net, build, v4, &["--lro", "-F", heard.to_str().ok_or("a path in UTF-8")?])?;
    let sum = net.check(
        &format!(
            "set -e; mkfifo /tmp/given; (head -c {mebibytes}M /dev/urandom | tee /tmp/given | sha256sum > /tmp/sum) &\n\
             {} -n {mebibytes}M -F /tmp/given 1>&2; wait; cat /tmp/sum",
            client(v4)
        ),
        TRAFFIC * 4,
    )?;
    let said = server.ended()?;
    assert_eq!(count(&said)?, mebibytes << 20, "{said}");
    assert!(joined(&said)? > 0, "{said}");
    assert_eq!(sha256(&heard)?, sum.split_whitespace().next().unwrap_or_default());

    let status = Command::new("head")
        .args(["-c", &format!("{mebibytes}M"), "/dev/urandom"])
        .stdout(std::fs::File::create(&given)?)
        .status()?;
    assert!(status.success());
    let server = Server::start(net, build, v4, &["-F", given.to_str().ok_or("a path in UTF-8")?])?;
    let sum = net.check(
        &format!(
            "set -e; mkfifo /tmp/heard; (sha256sum /tmp/heard > /tmp/sum) &\n\
             {} -R -n {mebibytes}M -F /tmp/heard 1>&2; wait; cat /tmp/sum",
            client(v4)
        ),
        TRAFFIC * 4,
    )?;
    server.ended()?;
    assert_eq!(sha256(&given)?, sum.split_whitespace().next().unwrap_or_default());
    net.lab.assert_quiet()
}

fn sha256(file: &std::path::Path) -> Result<String, Report> {
    let output = Command::new("sha256sum").arg(file).output()?;
    let text = String::from_utf8(output.stdout)?;
    Ok(text.split_whitespace().next().ok_or("no sum")?.to_owned())
}
