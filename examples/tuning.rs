//! What a connection and a completion queue can be told: options that both ends agree on (ECE), and the moderation of
//! completion events.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use mlx5_dv::Device;
use mlx5_dv::objects::{
    AccessFlags, AddressPath, CqModeration, EceOptions, MemoryRegion, Pd, RtrAttributes, RtsAttributes,
};
use mlx5_dv::queue::{Connection, ConnectionOptions, EventSource, Peer};
use mlx5_examples::pingpong::Failure;
use mlx5_open::program;

/// Limit for each completion, and for what has to be seen once.
const PATIENCE: Duration = Duration::from_secs(60);
/// Events that are timed together.
const EVENTS: u32 = 20;
/// The longest period of moderation.
const PERIOD: Duration = Duration::from_micros(4095);

/// Agrees on a connection's options, and times completion events with moderation and without.
#[derive(Debug, Parser)]
#[command(name = "tuning")]
struct Options {
    /// Device: sim, vfio:0000:3b:00.0, devx:mlx5_0, vfio-user:/run/nic.sock.
    #[arg(short, long, default_value = "sim")]
    device: String,
}

fn main() -> ExitCode {
    let options = Options::parse();
    program::run("tuning", || run(&options))
}

fn run(options: &Options) -> Result<(), Failure> {
    let device = mlx5_open::open(&options.device)?;
    let pd = Pd::alloc(&device)?;
    let mut ours = Connection::new(&pd, ConnectionOptions::default().events())?;
    let mut theirs = Connection::new(&pd, ConnectionOptions::default())?;
    agree(&device, &mut ours, &mut theirs)?;

    let region = MemoryRegion::allocate(&pd, 4096, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE)?;
    let mut events = || time_of_events(&mut ours, &region);
    // Others may hold this process up, so that one attempt says nothing.
    let (begin, least) = (Instant::now(), PERIOD * (EVENTS - 1));
    let free = loop {
        match events()? {
            time if time < least => break time,
            time if begin.elapsed() > PATIENCE => return Err(format!("{EVENTS} events take {time:?}").into()),
            _ => {}
        }
    };
    ours.queue_pair().send_cq().moderate(&CqModeration::new(100, PERIOD))?;
    let mut events = || time_of_events(&mut ours, &region);
    let held = events()?;
    if held < least {
        return Err(
            format!("{EVENTS} events came in {held:?}, of which each is to wait {PERIOD:?} for the next").into()
        );
    }
    ours.queue_pair().send_cq().moderate(&CqModeration::default())?;
    println!("{EVENTS} events in {} us, and moderated in {} us", free.as_micros(), held.as_micros());
    Ok(())
}

/// Connects both, with the options that `ours`, the active end, is offered, and `theirs` has, too.
fn agree(device: &Arc<Device>, ours: &mut Connection, theirs: &mut Connection) -> Result<(), Failure> {
    let (here, there) = (ours.local()?, theirs.local()?);
    let Some(offered) = ours.queue_pair().ece() else {
        println!("the card has no options of a connection");
        theirs.connect(&here)?;
        return Ok(ours.connect(&there)?);
    };
    // One that no card has is dropped.
    let asked = EceOptions(offered.0 | 1 << 27);
    connect(device, theirs, (&there, &here), asked)?;
    let agreed = theirs.queue_pair().ece().ok_or("the options are gone")?;
    connect(device, ours, (&here, &there), agreed)?;
    if ours.queue_pair().ece() != Some(agreed) || agreed == asked {
        return Err(format!("{asked:?} was answered by {agreed:?}, {:?} is in use", ours.queue_pair().ece()).into());
    }
    println!("offered {:#x}, both ends agreed on {:#x}", offered.0, agreed.0);
    Ok(())
}

fn connect(
    device: &Arc<Device>,
    end: &mut Connection,
    (from, to): (&Peer, &Peer),
    options: EceOptions,
) -> Result<(), Failure> {
    let path = AddressPath::new(to.gid, to.mac.unwrap_or(device.mac()));
    let rtr = RtrAttributes::new(to.qpn, to.psn, path).ece(options);
    Ok(end.connect_by(&rtr, &RtsAttributes::new(from.psn))?)
}

/// How long it takes until [`EVENTS`] writes, one after the other, have completed, each by an event of its own.
fn time_of_events(connection: &mut Connection, region: &MemoryRegion) -> Result<Duration, Failure> {
    let begin = Instant::now();
    for number in 0..EVENTS {
        connection.request_event()?;
        connection.write_inline(&number.to_be_bytes(), region.remote())?;
        while connection.take_events() == 0 {
            if begin.elapsed() > PATIENCE {
                return Err(format!("no event of write {number}").into());
            }
            std::thread::yield_now();
        }
        let done = connection.poll()?.ok_or("an event without a completion")?;
        done.result?;
    }
    Ok(begin.elapsed())
}
