//! SIGKILL in mid-traffic: of a program, of the software card, of a whole guest. The survivors report it or go on.

mod common;

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use common::kernels::SET_UP;
use common::{Lab, PROBE, Report, Reset, TRAFFIC, TestResult, assert_lawful, build};
use mlx5_lab::{Build, Guest, Model};
use tempfile::TempDir;

/// For short waits on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Output of `rc_pingpong` before its first message.
const CONNECTING: &str = "remote address";
/// A practically unlimited number of exchanges.
const FOR_EVER: &str = "1000000000";

/// Waits until `done` returns true.
fn until(what: &str, mut done: impl FnMut() -> Result<bool, Report>) -> TestResult {
    let deadline = Instant::now() + PATIENCE;
    while !done()? {
        if Instant::now() >= deadline {
            return Err(format!("{what}: not within {} s", PATIENCE.as_secs()).into());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// `rc_pingpong` on the host. Dropping it kills it.
struct Program {
    child: Child,
    dir: TempDir,
}

impl Program {
    fn start(build: &Build, socket: &Path, options: &[&str]) -> Result<Self, Report> {
        let dir = tempfile::tempdir()?;
        let output = |name| File::create(dir.path().join(name));
        let child = Command::new(build.program("rc_pingpong")?)
            .arg("-d")
            .arg(format!("vfio-user:{}", socket.display()))
            .args(options)
            .stdin(Stdio::null())
            .stdout(output("stdout")?)
            .stderr(output("stderr")?)
            .spawn()?;
        Ok(Program { child, dir })
    }

    fn said(&self) -> Result<String, Report> {
        let read = |name| fs::read_to_string(self.dir.path().join(name));
        Ok(format!("{}{}", read("stdout")?, read("stderr")?))
    }

    /// Waits until it has printed `text`.
    fn says(&mut self, text: &str) -> TestResult {
        until(text, || match (self.said()?, self.child.try_wait()?) {
            (said, _) if said.contains(text) => Ok(true),
            (said, Some(status)) => Err(format!("it ended with {status}:\n{said}").into()),
            _ => Ok(false),
        })
    }

    /// Waits for its end.
    fn ends(&mut self) -> Result<ExitStatus, Report> {
        let mut status = None;
        let ended = until("its end", || {
            status = self.child.try_wait()?;
            Ok(status.is_some())
        });
        match (ended, status) {
            (Ok(()), Some(status)) => Ok(status),
            _ => Err(format!("it does not end; it said:\n{}", self.said()?).into()),
        }
    }

    /// Waits for its end, which must be a success.
    fn succeeds(mut self, model: &Model) -> TestResult {
        let status = self.ends()?;
        assert!(status.success(), "it ended with {status}:\n{}the model said:\n{}", self.said()?, model.stderr());
        Ok(())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Both fail only if the program has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A pause of random length, so that processes are killed at different points.
fn some_pause(round: usize) {
    std::thread::sleep(Duration::from_millis(round as u64 * 7 % 30));
}

/// The card is killed during bring-up and in mid-traffic, under a program that polls and one that sleeps. The program
/// ends with an error that names the cause; the median takes less than a second.
#[test]
fn a_killed_card_is_named_by_whoever_was_using_it() -> TestResult {
    const ROUNDS: usize = 10;
    let build = build()?;
    let mut took = vec![];
    for how in [&["-n", FOR_EVER][..], &["-n", FOR_EVER, "-e"]] {
        for (round, in_traffic) in (0..ROUNDS).flat_map(|round| [(round, true), (round, false)]) {
            let mut model = Model::start(&build, 1, &[])?;
            let mut program = Program::start(&build, &model.sockets()[0], how)?;
            if in_traffic {
                program.says(CONNECTING)?;
            }
            some_pause(round);
            let killed = Instant::now();
            model.kill();
            let status = program.ends()?;
            took.push(killed.elapsed());
            let said = program.said()?;
            assert_eq!(status.code(), Some(1), "{how:?}, round {round}: {status}\n{said}");
            let named = said.contains("the device's server is gone") || said.contains("mlx5 sim --socket");
            assert!(named, "{how:?}, round {round}:\n{said}");
        }
    }
    took.sort();
    // Single rounds may be late on a busy machine; the median may not.
    assert!(took[took.len() / 2] < Duration::from_secs(1), "{took:?}");
    Ok(())
}

/// Resources of the model's process: descriptors, threads, mappings of shared memory.
fn held(model: &Model) -> Result<[usize; 3], Report> {
    let process = Path::new("/proc").join(model.process().to_string());
    let entries = |name: &str| fs::read_dir(process.join(name)).map(Iterator::count);
    let maps = fs::read_to_string(process.join("maps"))?;
    Ok([entries("fd")?, entries("task")?, maps.lines().filter(|line| line.contains("/memfd:")).count()])
}

#[test]
fn a_program_killed_a_hundred_times_leaves_nothing() -> TestResult {
    const KILLS: usize = 100;
    let build = build()?;
    let model = Model::start_saying(&build, 1, &[], Reset::SAID)?;
    let socket = &model.sockets()[0];
    let before = held(&model)?;
    for round in 0..KILLS {
        let mut program = Program::start(&build, socket, &["-n", FOR_EVER])?;
        program.says(CONNECTING)?;
        some_pause(round);
    }
    Program::start(&build, socket, &["-c", "-n", "100"])?.succeeds(&model)?;

    until("all that left forgotten", || Ok(Reset::all(&model, 0).len() == 2 * (KILLS + 1)))?;
    let resets = Reset::all(&model, 0);
    let mut in_traffic = 0;
    for (round, pair) in resets.chunks_exact(2).enumerate() {
        let (came, left) = (pair[0], pair[1]);
        assert!(came.is_clean(), "before round {round}: {came:?}");
        assert!(left.is_clean() == (round == KILLS), "after round {round}: {left:?}");
        in_traffic += usize::from(left.frames > came.frames);
    }
    assert!(in_traffic > KILLS / 4, "only {in_traffic} had traffic: {resets:?}");
    let after = held(&model)?;
    // A server that is about to accept its next client may hold a few more.
    let kept = before.iter().zip(after).any(|(before, after)| after >= before + KILLS / 10);
    assert!(!kept, "descriptors, threads, shared memory: {before:?}, then {after:?}");
    assert_lawful(&model);
    Ok(())
}

/// Starts traffic on the first function.
const KEEP_BUSY: &str = "
rc_pingpong -d devx:mlx5_0 -n 1000000000 > /tmp/out 2>&1 &
for wait in $(seq 1200); do grep -q 'remote address' /tmp/out && exit; sleep 0.1; done
cat /tmp/out
exit 1
";

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn after_a_killed_guest_the_card_is_ready_for_the_next() -> TestResult {
    let build = build()?;
    let model = Model::start_saying(&build, 2, &[], Reset::SAID)?;
    let boot = |name, model: Model| -> Result<Lab, Report> {
        let [first, second] = model.sockets() else { return Err("two sockets".into()) };
        let guest = Guest::builder(name).nic(first).nic(second).programs(&build).boot()?;
        let lab = Lab { guest, model };
        lab.check(SET_UP, PROBE)?;
        Ok(lab)
    };

    let lab = boot("death", model)?;
    lab.check(KEEP_BUSY, TRAFFIC)?;
    let Lab { guest, model } = lab;
    let known = [0, 1].map(|function| Reset::all(&model, function).len());
    // By SIGKILL.
    drop(guest);
    for socket in model.sockets() {
        Program::start(&build, socket, &["-c", "-n", "100"])?.succeeds(&model)?;
    }
    for function in [0, 1] {
        // Resets: when the guest ends, when our program begins, perhaps when it ends.
        let left = Reset::all(&model, function).split_off(known[function]);
        assert!(left.len() >= 2 && left[0].objects > 0 && left[1..].iter().all(Reset::is_clean), "{left:?}");
    }

    let lab = boot("death-next", model)?;
    for device in ["mlx5_0", "mlx5_1"] {
        lab.check(&format!("rc_pingpong -d devx:{device} -c -n 100 2>&1"), TRAFFIC)?;
    }
    // Strict mode reports objects left at TEARDOWN_HCA.
    lab.check("modprobe -r mlx5_ib && modprobe -r mlx5_core", PROBE)?;
    lab.assert_quiet()?;
    let Lab { guest, mut model } = lab;
    guest.power_off()?;
    assert_lawful(&model);
    assert!(model.runs(), "the model died:\n{}", model.stderr());
    Ok(())
}
