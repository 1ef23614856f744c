//! Time from start to the first message, by step.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mlx5_benches::{Failure, median};
use mlx5_dv::Options;
use mlx5_dv::access::trace::{CommandRecord, Direction};
use mlx5_open::Sim;

use super::extent::Extent;
use super::stage::Stage;

const RUNS: usize = 25;
const SHORT: usize = 2;

/// Commands and the time of their answers, by sender.
type Commands = Arc<Mutex<BTreeMap<String, (usize, Duration)>>>;

/// Samples of a step: microseconds, commands, microseconds of the commands.
#[derive(Default)]
struct Step {
    time: Vec<f64>,
    commands: usize,
    waited: Vec<f64>,
}

/// All runs, by step, in order.
#[derive(Default)]
struct Steps(Vec<(&'static str, Step)>);

impl Steps {
    fn of(&mut self, name: &'static str) -> &mut Step {
        let at = self.0.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
            self.0.push((name, Step::default()));
            self.0.len() - 1
        });
        &mut self.0[at].1
    }
}

/// Prints the tables.
pub fn measure(extent: Extent) -> Result<(), Failure> {
    let runs = if extent == Extent::Full { RUNS } else { SHORT };
    let mut steps = Steps::default();
    let mut slowest = BTreeMap::new();
    for _ in 0..runs {
        run(&mut steps, &mut slowest)?;
    }
    println!("| step | us | commands | us of these until the answer |");
    println!("| --- | ---: | ---: | ---: |");
    for (name, step) in &mut steps.0 {
        let (time, waited) = (median(&mut step.time), median(&mut step.waited));
        println!("| {name} | {time:.0} | {} | {waited:.0} |", step.commands / runs);
    }
    println!("\n| command of the device's opening | times | us together |\n| --- | ---: | ---: |");
    let mut slowest: Vec<_> = slowest.into_iter().collect();
    slowest.sort_by_key(|(_, (_, time))| std::cmp::Reverse(*time));
    for (name, (count, time)) in slowest.into_iter().take(8) {
        println!("| {name} | {} | {:.0} |", count / runs, time.as_secs_f64() * 1e6 / runs as f64);
    }
    Ok(())
}

fn run(steps: &mut Steps, slowest: &mut BTreeMap<String, (usize, Duration)>) -> Result<(), Failure> {
    let commands = Commands::default();
    let mut step = |name, started: Instant| {
        let time = started.elapsed();
        let seen = std::mem::take(&mut *commands.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
        let step = steps.of(name);
        step.time.push(time.as_secs_f64() * 1e6);
        step.commands += seen.values().map(|(count, _)| count).sum::<usize>();
        step.waited.push(seen.values().map(|(_, time)| time.as_secs_f64() * 1e6).sum());
        if name == "open the device" {
            for (command, (count, time)) in seen {
                let all = slowest.entry(command).or_default();
                *all = (all.0 + count, all.1 + time);
            }
        }
    };
    let mut options = Options::default();
    let observer = Arc::clone(&commands);
    options.observers.push(Arc::new(move |record: &CommandRecord| {
        if record.direction == Direction::Output {
            let mut seen = observer.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let entry = seen.entry(record.opcode.to_string()).or_default();
            *entry = (entry.0 + 1, entry.1 + record.elapsed);
        }
    }));

    let started = Instant::now();
    let sim = Sim::builder().strict(false).build()?;
    step("power the software card on", started);

    let started = Instant::now();
    let device = sim.open_with(0, options)?;
    step("open the device", started);

    let started = Instant::now();
    let stage = Stage::of(sim, device)?;
    step("protection domain, 4 KiB of memory", started);

    let started = Instant::now();
    let mut desk = stage.desk()?;
    step("UAR, completion queue", started);

    let started = Instant::now();
    let qp = stage.create(&desk.uar, desk.completions.cq())?;
    step("queue pair", started);

    let started = Instant::now();
    stage.connect(std::slice::from_ref(&qp))?;
    step("RST to INIT, RTR, RTS", started);

    let started = Instant::now();
    let sends = stage.send_queues(&mut desk, std::slice::from_ref(&qp))?;
    step("first message, until its completion", started);

    let started = Instant::now();
    drop((sends, qp, desk, stage));
    step("close all", started);
    Ok(())
}
