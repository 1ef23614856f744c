//! Our host on Linux's nvmet-rdma, and Linux's nvme-rdma on our target: `nvme_rdma` in a process on the host, which
//! owns the first function, 10.0.0.4, while the guest has the second one; then in the guest, by DevX, on the function
//! that the kernel's end has, too.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use mlx5_lab::{Build, Guest, Model, Software, rounds};

use crate::common::disks::{
    AT_A_TIME, DISCONNECT, DISK, EACH_SIZE, HOST, NETWORK, NQN, TAKE_DOWN, TARGET, USER_SPACE, assert_quiet,
    our_host_on_theirs, their_host_on_ours, transfers,
};
use crate::common::{Lab, PROBE, Report, TestResult, assert_lawful};

/// A host that nvme-cli connects to the subsystem `NQN` at `ADDRESS`, once it has discovered it. It prints what it
/// finds there.
const BY_NVME_CLI: &str = r#"
set -e
modprobe nvme-rdma
there="-t rdma -a $ADDRESS -s 4420"
$NVME discover $there
$NVME connect $there -n $NQN --nr-io-queues=2 --keep-alive-tmo=60
for wait in $(seq 300); do [ -b /dev/nvme0n1 ] && [ -b /dev/nvme0n2 ] && break; sleep 0.1; done
$NVME list
$NVME id-ctrl /dev/nvme0
$NVME id-ns /dev/nvme0n1
"#;

/// Has nvme-cli disconnect it.
const LEAVE_BY_NVME_CLI: &str = "
set -e
$NVME disconnect -n $NQN
modprobe -r nvme-rdma
";

/// fio writes the first `SIZE` MiB of the disk in blocks of random size and place, many under way at once, then reads
/// them back and compares their checksums.
const BY_FIO: &str = "
set -e
$FIO --name=lab --filename=/dev/nvme0n1 --ioengine=libaio --direct=1 --thread --iodepth=32 --rw=randwrite \
    --bsrange=512-256k --size=${SIZE}M --verify=crc32c --verify_fatal=1
";

/// Two hosts, 0 and 1, of names and identifiers of their own, of which Linux makes disks of their own: /tmp/disk0 and
/// /tmp/disk1, of the controllers whose names /tmp/host0 and /tmp/host1 have.
const TWO_HOSTS: &str = r#"
set -e
for module in nvmet-rdma nvmet nvme-fabrics nvme-core; do modprobe -q -r $module || true; done
modprobe nvme-core multipath=N
grep -qx N /sys/module/nvme_core/parameters/multipath || { lsmod | grep nvme; exit 1; }
modprobe nvme-rdma
cat > /tmp/connect <<SCRIPT
id=11111111-2222-4333-8444-00000000000\$1
$NVME connect -t rdma -a $ADDRESS -s 4420 -n $NQN --hostnqn=nqn.2014-08.org.nvmexpress:uuid:\$id --hostid=\$id \
    --nr-io-queues=2 --keep-alive-tmo=60
for wait in \$(seq 300); do
    for controller in \$(grep -l \$id /sys/class/nvme/nvme*/hostnqn); do
        name=\$(basename \$(dirname \$controller))
        [ -b /dev/\${name}n1 ] || continue
        echo \$name > /tmp/host\$1
        ln -sf /dev/\${name}n1 /tmp/disk\$1
        exit 0
    done
    sleep 0.1
done
echo "host \$1 has no disk"
exit 1
SCRIPT
for host in 0 1; do bash /tmp/connect $host; done
"#;

/// What one host has written the other one reads. Both write and compare at once, each a half; then the second one
/// does, while the first one leaves and comes back.
const AT_ONE_DISK: &str = r#"
set -e
head -c 4M /dev/urandom > /tmp/sent
dd if=/tmp/sent of=/tmp/disk0 bs=256K oflag=direct status=none
dd if=/tmp/disk1 bs=256K count=16 iflag=direct status=none | busybox cmp - /tmp/sent
fio="$FIO --ioengine=libaio --direct=1 --thread --iodepth=16 --rw=randwrite --bsrange=512-64k --size=${SIZE}M \
    --verify=crc32c --verify_fatal=1"
$fio --name=first --filename=/tmp/disk0 --name=second --filename=/tmp/disk1 --offset=32M
{ for round in $(seq $ROUNDS); do $fio --name=second --filename=/tmp/disk1 --offset=32M || exit 1; done; } &
second=$!
for round in 1 2 3; do
    $NVME disconnect -d $(cat /tmp/host0)
    rm /tmp/disk0
    bash /tmp/connect 0
done
wait $second
dd if=/tmp/sent of=/tmp/disk0 bs=256K oflag=direct status=none
dd if=/tmp/disk1 bs=256K count=16 iflag=direct status=none | busybox cmp - /tmp/sent
"#;

/// Linux's block layer, then nvme-cli, have a part of the disk zeroed, and have it flushed. Reads what is there then.
const ZEROES_AND_FLUSHES: &str = r#"
set -e
limits=/sys/block/nvme0n1/queue
[ "$(cat $limits/write_cache)" = "write back" ]
[ $(cat $limits/write_zeroes_max_bytes) -ge 1048576 ]
head -c 4M /dev/urandom > /tmp/sent
dd if=/tmp/sent of=/dev/nvme0n1 bs=256K oflag=direct status=none
blkdiscard --zeroout --offset 1M --length 1M /dev/nvme0n1
$NVME write-zeroes /dev/nvme0n1 --start-block=6144 --block-count=15
sync /dev/nvme0n1
$NVME flush /dev/nvme0n1
dd if=/dev/zero of=/tmp/sent bs=1M seek=1 count=1 conv=notrunc status=none
dd if=/dev/zero of=/tmp/sent bs=512 seek=6144 count=16 conv=notrunc status=none
dd if=/dev/nvme0n1 bs=256K count=16 iflag=direct status=none | busybox cmp - /tmp/sent
"#;

struct Pair {
    build: Build,
    lab: Lab,
}

/// A process of ours, killed if it is not waited for.
struct Process {
    child: Child,
    /// The lines of its standard output, as they come.
    lines: Receiver<String>,
    /// What it said so far.
    said: String,
}

impl Process {
    /// Reads until a line that contains `what`.
    fn await_line(&mut self, what: &str) -> TestResult {
        self.await_line_where(what, transfers(), |line| line.contains(what))
    }

    /// Reads until a line of which `holds` is true, which `what` describes.
    fn await_line_where(&mut self, what: &str, patience: Duration, holds: impl Fn(&str) -> bool) -> TestResult {
        let deadline = Instant::now() + patience;
        loop {
            let line = match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => line,
                Err(RecvTimeoutError::Disconnected) => {
                    let stderr = self.stderr();
                    return Err(format!("our process ended without {what:?}:\n{}{stderr}", self.said).into());
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.child.kill()?;
                    let stderr = self.stderr();
                    let seconds = patience.as_secs();
                    return Err(format!("no {what:?} in {seconds} s:\n{}{stderr}", self.said).into());
                }
            };
            self.said.push_str(&line);
            self.said.push('\n');
            if holds(&line) {
                return Ok(());
            }
        }
    }

    /// WRITE ZEROES and FLUSH commands that a target has counted, by the last of its reports that came.
    fn counted(&mut self) -> [u64; 2] {
        for line in self.lines.try_iter() {
            self.said.push_str(&line);
            self.said.push('\n');
        }
        self.said.lines().rev().find_map(counts).unwrap_or_default()
    }

    fn stderr(&mut self) -> String {
        let mut text = String::new();
        let _ = self.child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut text));
        text
    }

    /// Waits for its end, which has to be a success. Returns what it said.
    fn ended(mut self, lab: &Lab) -> Result<String, Report> {
        let mut said = std::mem::take(&mut self.said);
        self.lines.iter().for_each(|line| said.extend([&line, "\n"]));
        let stderr = self.stderr();
        match self.child.wait()? {
            status if status.success() => Ok(said),
            status => Err(lab.explain(format!("our process ended with {status}:\n{said}{stderr}"))),
        }
    }
}

/// WRITE ZEROES and FLUSH commands of a target's report.
fn counts(line: &str) -> Option<[u64; 2]> {
    let (_, kinds) = line.split_once(" commands (")?;
    let (kinds, _) = kinds.split_once(')')?;
    let of = |kind| kinds.split(", ").find_map(|count| count.strip_suffix(kind))?.trim_end().parse().ok();
    Some([of("write zeroes")?, of("flushes")?])
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Pair {
    /// A guest of this name, and a model that gets `arguments`.
    fn boot(name: &str, arguments: &[&str]) -> Result<Self, Report> {
        let build = Build::dev(&["mlx5", "nvme_rdma"], &[])?;
        let model = Model::start(&build, 2, arguments)?;
        let (nvme_cli, fio) = (Software::nvme_cli()?, Software::fio()?);
        let guest = Guest::builder(name).nic(&model.sockets()[1]).programs(&build);
        let guest = guest.share(nvme_cli.folder(), nvme_cli.place());
        let guest = guest.share(fio.folder(), fio.place()).boot()?;
        let pair = Pair { build, lab: Lab { guest, model } };
        pair.lab.check(NETWORK, PROBE)?;
        Ok(pair)
    }

    /// Starts our program with `arguments`, split at blanks.
    fn start(&self, arguments: &str) -> Result<Process, Report> {
        let mut command = Command::new(self.build.program("nvme_rdma")?);
        let (subcommand, rest) = arguments.split_once(' ').unwrap_or((arguments, ""));
        let socket = self.lab.model.sockets()[0].display();
        command.args([subcommand, "-d", &format!("vfio-user:{socket}"), "--ip", "10.0.0.4/24"]);
        command.args(rest.split_whitespace()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let stdout = BufReader::new(child.stdout.take().ok_or("standard output of our process")?);
        let (sender, lines) = channel();
        std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Ok(Process { child, lines, said: String::new() })
    }

    /// Runs our program to its end.
    fn run(&self, arguments: &str) -> Result<String, Report> {
        self.start(arguments)?.ended(&self.lab)
    }

    /// The kernel may have said what is `expected`, and an answer of its target may have reached nobody: of such an end
    /// of a controller it says two lines, unless that is taken down in between.
    fn end(self, expected: &[&str]) -> TestResult {
        let unheard = ["failed with status transport retry counter exceeded", "fatal error occurred!"];
        assert_quiet(&self.lab, &[expected, &unheard].concat())?;
        self.lab.guest.power_off()?;
        assert_lawful(&self.lab.model);
        Ok(())
    }
}

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn ours_and_linux_s_ends_read_what_was_written() -> TestResult {
    let pair = Pair::boot("nvme_ours", &[])?;
    our_host(&pair)?;
    their_host(&pair)?;
    // In the guest: the kernel's connection manager connects two ends on one function.
    pair.lab.check(USER_SPACE, PROBE)?;
    our_host_on_theirs(&pair.lab, "-d devx:mlx5_0")?;
    their_host_on_ours(&pair.lab, "-d devx:mlx5_0", "10.0.0.1")?;
    pair.lab.wait_until("nothing is left of it", "[ -z \"$(rdma resource show cm_id)\" ]")?;
    // Our host may connect again before its subsystem is back: it is refused, or the target ends its queues while they
    // are connected. It is killed while the target answers. A target that stood still finds that its host has said
    // nothing. Two disks of one namespace are what Linux advises against.
    let called_early = ["connect request for invalid subsystem lab!", "trying to establish a connected queue"];
    let of_one_namespace = ["but multipathing not supported", "shared namespaces without CONFIG_NVME_MULTIPATH"];
    pair.end(&[called_early.as_slice(), &of_one_namespace, &["keep-alive timer"]].concat())
}

/// How often a form may have to connect again. A card gives a connection up if what it needs next was lost eight times
/// in a row (7 retries). For a READ that is the request or the next packet of the answer, so one try in ten is in vain;
/// with some ten million packets, one of thirty long forms loses a connection so.
const MOST_RECONNECTED: usize = 2;

/// Frames of both functions are lost, those of the connection manager and of ARP among them.
#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn our_host_reads_what_it_wrote_though_one_frame_in_twenty_is_lost() -> TestResult {
    let pair = Pair::boot("nvme_lossy", &["--fault", "loss:5%"])?;
    pair.lab.check(&format!("SIZE={}\n{TARGET}", DISK << 10), PROBE)?;
    // A queue mostly waits for a lost acknowledgement, so many are faster, once they are connected.
    let (commands, queues) = (rounds(200, 500_000), rounds(2, 16));
    for how in ["", "--fast-keys --no-in-capsule"] {
        let to = format!("verify 10.0.0.1 --nqn lab --queues {queues} --keep-alive 120 --reconnect 120");
        let said = pair.run(&format!("{to} -n {commands} {how}"))?;
        assert!(said.contains("every block read held what was written last"), "{said}");
        let reconnected = said.lines().filter(|line| *line == "connected again").count();
        assert!(reconnected <= MOST_RECONNECTED, "{said}");
    }
    pair.lab.check(TAKE_DOWN, PROBE)?;
    // A host that has left does not acknowledge again what it has acknowledged in vain.
    pair.end(&[])
}

/// Our host on Linux's target, which goes and comes back.
fn our_host(pair: &Pair) -> TestResult {
    pair.lab.check(&format!("SIZE={}\n{TARGET}", DISK << 10), PROBE)?;
    let found = pair.run("discover 10.0.0.1")?;
    assert!(found.contains("lab  10.0.0.1:4420"), "{found}");
    let commands = rounds(2_000, 250_000);
    for how in ["", "--no-in-capsule", "--fast-keys", "--fast-keys --no-in-capsule --depth 128 --longest 1048576"] {
        let said = pair.run(&format!("verify 10.0.0.1 --nqn lab --keep-alive 60 -n {commands} {how}"))?;
        assert!(said.contains("every block read held what was written last"), "{said}");
    }
    for (test, column) in [("lat", "t_typical[usec]"), ("bw", "BW average[MiB/sec]")] {
        let said = pair.run(&format!("perf {test} read 10.0.0.1 --nqn lab -n 200"))?;
        assert!(said.contains(column) && said.lines().any(|line| line.starts_with(" 4096 ")), "{said}");
    }
    let mut host = pair.start("verify 10.0.0.1 --nqn lab --keep-alive 60 -n 100000000 --reconnect 120 --fast-keys")?;
    host.await_line("namespace 1")?;
    for _ in 0..2 {
        pair.lab.check("rm /sys/kernel/config/nvmet/ports/1/subsystems/lab", PROBE)?;
        host.await_line("commands: ")?;
        pair.lab.check("cd /sys/kernel/config/nvmet && ln -s $PWD/subsystems/lab ports/1/subsystems/lab", PROBE)?;
        host.await_line("connected again")?;
    }
    drop(host);
    a_silent_target_is_noticed(pair)?;
    pair.lab.check(TAKE_DOWN, PROBE).map(drop)
}

/// The target's processors stand still, while its card acknowledges what comes: only the keep-alive tells. Once they go
/// on, our host connects again.
fn a_silent_target_is_noticed(pair: &Pair) -> TestResult {
    let verify = "verify 10.0.0.1 --nqn lab --keep-alive 5 -n 100000000 --reconnect 120";
    let mut host = pair.start(verify)?;
    host.await_line("queues are open")?;
    let paused = pair.lab.guest.pause()?;
    let soon = Duration::from_secs(60);
    host.await_line_where("a keep-alive without an answer", soon, |line| line.contains("KEEP ALIVE"))?;
    drop(paused);
    host.await_line("connected again")
}

/// Linux's host on our target, twice, once on a disk in memory, then on a file. nvme-cli connects it the second time.
fn their_host(pair: &Pair) -> TestResult {
    let file = tempfile::NamedTempFile::new()?;
    file.as_file().set_len(u64::from(DISK) << 20)?;
    let path = file.path().display();
    let mut target = pair.start(&format!("serve --ram {DISK} --file {path} --nqn {NQN}"))?;
    target.await_line("serving")?;
    let (blocks, mib) = (rounds(128, 16 << 10), rounds(2, DISK as usize));
    let with = format!("ADDRESS=10.0.0.4 NQN={NQN} NVME='{}'", Software::NVME);
    for (nsid, connect, disconnect) in [(1, HOST, DISCONNECT), (2, BY_NVME_CLI, LEAVE_BY_NVME_CLI)] {
        let said = pair.lab.check(&format!("{with}\n{connect}"), PROBE)?;
        if connect == BY_NVME_CLI {
            assert_nvme_cli_saw(&said);
        }
        // Linux finds namespaces in any order, and numbers disks as it finds them.
        let find = format!("grep -lx {nsid} /sys/block/nvme0n*/nsid");
        let disk = format!("basename $(dirname $({find}))");
        pair.lab.wait_until("the namespace is a disk", &format!("[ -b /dev/$({disk}) ]"))?;
        let disk = pair.lab.check(&disk, PROBE)?;
        let on = |script: &str| script.replace("nvme0n1", disk.trim());
        let before = target.counted();
        pair.lab.check(&on(&format!("{with}\n{ZEROES_AND_FLUSHES}")), transfers())?;
        // Two of each; Linux may have more.
        let what = format!("a report with two more than {before:?} of WRITE ZEROES and FLUSH");
        target.await_line_where(&what, PROBE, |line| {
            counts(line).is_some_and(|after| after.iter().zip(before).all(|(after, before)| *after >= before + 2))
        })?;
        let each = on(&format!("DISKS=nvme0n1 COUNT={blocks} MOST={}\n{EACH_SIZE}", mib << 20));
        let said = pair.lab.check(&each, transfers())?;
        assert!(said.contains("in blocks of all sizes"), "{said}");
        pair.lab.check(&on(AT_A_TIME), transfers())?;
        let by_fio = on(&format!("FIO='{}' SIZE={}\n{BY_FIO}", Software::FIO, rounds(4, DISK as usize)));
        assert_fio_compared(&pair.lab.check(&by_fio, transfers())?);
        pair.lab.check(&format!("{with}\n{disconnect}"), PROBE)?;
    }
    several_hosts(pair, &mut target, &with)
}

/// Two hosts of Linux's, of one guest, on our target at once.
fn several_hosts(pair: &Pair, target: &mut Process, with: &str) -> TestResult {
    pair.lab.check(&format!("{with}\n{TWO_HOSTS}"), PROBE)?;
    target.await_line_where("a report of two hosts", PROBE, |line| line.starts_with("2 hosts, "))?;
    let (mib, rounds) = (rounds(2, 32), rounds(2, 8));
    let work = format!("{with} FIO='{}' SIZE={mib} ROUNDS={rounds}\n{AT_ONE_DISK}", Software::FIO);
    let said = pair.lab.check(&work, transfers())?;
    assert_eq!(said.matches("err= 0").count(), 2 + rounds, "{said}");
    pair.lab.check(&format!("{with}\n{LEAVE_BY_NVME_CLI}"), PROBE).map(drop)
}

/// Fails if nvme-cli did not find what our target is: in discovery, in the list of disks, in the identify pages.
fn assert_nvme_cli_saw(said: &str) {
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let blocks = u64::from(DISK) << 20 >> 9;
    let disk = |nsid: u32| format!(" mlx5-nvme mlx5-nvme {nsid:#x} 67.11 MB / 67.11 MB 512 B + 0 B ");
    let found = format!("trsvcid: 4420 subnqn: {NQN} traddr: 10.0.0.4 ");
    let controller = [" mn : mlx5-nvme ".to_owned(), " nn : 2 ".to_owned(), format!(" subnqn : {NQN} ")];
    let namespace = [format!(" nsze : {blocks:#x} "), " lbads:9 rp:0 (in use)".to_owned()];
    let expected = ["Number of Records 1,".to_owned(), found, disk(1), disk(2)];
    for what in expected.iter().chain(&controller).chain(&namespace) {
        assert!(said.contains(what.as_str()), "nvme-cli does not say {what:?}:\n{said}");
    }
}

/// Fails if fio did not read all that it wrote.
fn assert_fio_compared(said: &str) {
    let issued = said.lines().find_map(|line| line.trim().strip_prefix("issued rwts: total="));
    let counts = issued.unwrap_or_else(|| panic!("fio counts nothing:\n{said}"));
    let mut counts = counts.split(',').map_while(|count| count.parse::<u64>().ok());
    let (read, written) = (counts.next(), counts.next());
    assert!(read == written && read > Some(0) && said.contains("err= 0"), "{said}");
}
