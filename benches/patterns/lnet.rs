//! Lustre's network driver (examples/patterns/lnet): a GET of 1 MiB in 256 fragments of 4 KiB, and what registering its
//! memory takes of that.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mlx5_benches::Failure;
use mlx5_benches::callgrind::{self, Counts};
use mlx5_dv::Device;
use mlx5_dv::objects::{AccessFlags, Buffer, MemoryRegion, Pd, UmrKeyOptions};
use mlx5_dv::queue::{Connection, ConnectionOptions, FastKey};
use mlx5_lnet::{Event, Lnet, Match, Nid, Options, PORT, Payload, TRANSFER_BYTES};
use mlx5_open::virtual_time::World;
use mlx5_sim::card::Card;
use mlx5_sim::world::Conditions;

const PAGE: usize = 4096;
const FRAGMENTS: usize = TRANSFER_BYTES / PAGE;
/// Between the starts of fragments with gaps.
const APART: usize = PAGE + 64;
const STEP: Duration = Duration::from_micros(20);
/// Transfers before the one that counts.
const WARM: usize = 3;
/// How often the cards get [`STEP`] until they have nothing to do.
const SETTLE: usize = 200;

/// Name, and the distance between the starts of fragments.
const CASES: [(&str, usize); 2] = [("without gaps: a direct list", PAGE), ("with gaps: an indirect key", APART)];

const SINK: [&str; 3] = ["asks", "is answered", "has closed the key"];
const SOURCE: [&str; 2] = ["writes", "has written"];
const KEY: [&str; 4] = ["fill", "register", "registered, invalidate", "invalidated, empty"];
const COPY: &str = "a copy of 1 MiB";

/// Prints the table.
pub fn report(counts: &Counts) {
    let count = |name: &str| counts.get(name).copied().unwrap_or(f64::NAN);
    println!("\n| GET of 1 MiB, 256 fragments | sink | of that: its key | source |\n| --- | ---: | ---: | ---: |");
    for (name, _) in CASES {
        let sum = |parts: &[&str]| parts.iter().map(|part| count(&format!("{name}: {part}"))).sum::<f64>();
        println!("| {name} | {:.0} | {:.0} | {:.0} |", sum(&SINK), sum(&KEY), sum(&SOURCE));
    }
    println!("| {COPY} | {:.0} | - | - |", count(COPY));
}

/// Runs in the child process.
pub fn child() -> Result<(), Failure> {
    for (name, apart) in CASES {
        let mut stage = Stage::new(apart)?;
        for _ in 0..WARM {
            stage.transfer(None)?;
        }
        stage.transfer(Some(name))?;
        key(name, apart)?;
    }
    copy()
}

fn counted<T>(name: Option<&str>, part: &str, work: impl FnOnce() -> T) -> T {
    match name {
        Some(name) => callgrind::count(&format!("{name}: {part}"), work),
        None => work(),
    }
}

fn settle(world: &World) {
    (0..SETTLE).for_each(|_| world.clock().pause(STEP));
}

fn fragments(region: &Arc<MemoryRegion>, apart: usize) -> Result<Vec<Buffer>, Failure> {
    let fragment = |number: usize| Ok(region.buffer(number * apart..number * apart + PAGE)?);
    (0..FRAGMENTS).map(fragment).collect()
}

fn region(pd: &Arc<Pd>) -> Result<Arc<MemoryRegion>, Failure> {
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
    Ok(MemoryRegion::allocate(pd, FRAGMENTS * APART, access)?)
}

fn devices(world: &World) -> Result<[Arc<Device>; 2], Failure> {
    let (cards, _) = world.simulated().joined([Card::builder(), Card::builder()], Conditions::default())?;
    Ok([world.open(&cards[0])?, world.open(&cards[1])?])
}

/// Two nodes on two cards: each works only when it is called.
struct Stage {
    world: World,
    nodes: [Lnet; 2],
    /// Memory of both.
    regions: [Arc<MemoryRegion>; 2],
    apart: usize,
}

fn nid(number: usize) -> Nid {
    Nid::o2ib([10, 0, 0, number as u8 + 1].into(), 0)
}

/// Takes all events of a node.
fn events(node: &mut Lnet) -> Result<Vec<Event>, Failure> {
    let mut all = Vec::new();
    while let Some(event) = node.poll()? {
        all.push(event);
    }
    Ok(all)
}

impl Stage {
    fn new(apart: usize) -> Result<Self, Failure> {
        let world = World::new(1);
        let devices = devices(&world)?;
        let node = |own: usize| -> Result<Lnet, Failure> {
            let other = 1 - own;
            let mut lnet = Lnet::new(&devices[own], None, Options::new(nid(own)))?;
            let gid = devices[other].gids().first().ok_or("the function has no GID")?.address;
            lnet.set_address(nid(other), SocketAddr::new(gid.into(), PORT));
            Ok(lnet)
        };
        let nodes = [node(0)?, node(1)?];
        let regions = [region(nodes[0].pd())?, region(nodes[1].pd())?];
        Ok(Stage { world, nodes, regions, apart })
    }

    fn payload(&self, of: usize) -> Result<Payload, Failure> {
        Ok(Payload::new(fragments(&self.regions[of], self.apart)?)?)
    }

    /// A GET of node 0.
    fn transfer(&mut self, name: Option<&str>) -> Result<(), Failure> {
        let (into, from) = (self.payload(0)?, self.payload(1)?);
        let sink = &mut self.nodes[0];
        counted(name, SINK[0], || -> Result<(), Failure> {
            sink.get(nid(1), Match::default(), into)?;
            events(sink).map(drop)
        })?;
        // The first transfer connects.
        let mut came = Vec::new();
        for _ in 0..SETTLE {
            settle(&self.world);
            if name.is_some() {
                break;
            }
            events(&mut self.nodes[0])?;
            came.extend(events(&mut self.nodes[1])?);
            if came.iter().any(|event| matches!(event, Event::Incoming { .. })) {
                break;
            }
        }
        let source = &mut self.nodes[1];
        counted(name, SOURCE[0], || -> Result<(), Failure> {
            came.extend(events(source)?);
            let is = |event: &Event| if let Event::Incoming { request, .. } = event { Some(*request) } else { None };
            let request = came.iter().find_map(is).ok_or("no request came")?;
            source.reply(request, from)?;
            events(source).map(drop)
        })?;
        settle(&self.world);
        let sink = &mut self.nodes[0];
        counted(name, SINK[1], || events(sink))?;
        settle(&self.world);
        let done = counted(name, SINK[2], || events(sink))?;
        let is_done = |event: &Event| matches!(event, Event::Done { result: Ok(TRANSFER_BYTES), .. });
        if !done.iter().any(is_done) {
            return Err(format!("no transfer: {done:?}").into());
        }
        let source = &mut self.nodes[1];
        counted(name, SOURCE[1], || events(source)).map(drop)
    }
}

/// Counts what a key takes, alone: it is filled, registered, invalidated and emptied.
fn key(name: &str, apart: usize) -> Result<(), Failure> {
    let world = World::new(1);
    let [device, _] = devices(&world)?;
    let pd = Pd::alloc(&device)?;
    let region = region(&pd)?;
    let mut connection = Connection::new(&pd, ConnectionOptions::default())?;
    connection.connect(&connection.local()?)?;
    let options = UmrKeyOptions::default().entries(FRAGMENTS as u32);
    let mut key = FastKey::create(&pd, if apart == PAGE { options.pages(12) } else { options })?;
    for turn in 0..=WARM {
        let name = (turn == WARM).then_some(name);
        let parts = fragments(&region, apart)?;
        counted(name, KEY[0], || parts.into_iter().try_for_each(|part| key.push(part)))
            .map_err(|_| "a key refuses a fragment")?;
        let rights = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
        counted(name, KEY[1], || connection.register(&mut key, rights))?;
        settle(&world);
        counted(name, KEY[2], || -> Result<(), Failure> {
            let done = connection.poll()?.ok_or("a registration is not done")?;
            key.settle(&done);
            connection.invalidate(&mut key)?;
            Ok(())
        })?;
        settle(&world);
        let parts = counted(name, KEY[3], || -> Result<Vec<Buffer>, Failure> {
            let done = connection.poll()?.ok_or("an invalidation is not done")?;
            key.settle(&done);
            Ok(key.parts().collect())
        })?;
        if parts.len() != FRAGMENTS {
            return Err("a key keeps fragments".into());
        }
    }
    Ok(())
}

/// What a bounce buffer would take, by vector registers: of longer pieces the C library copies by `rep movsb`, of which
/// each byte counts as an instruction.
fn copy() -> Result<(), Failure> {
    const PIECE: usize = 1024;
    let (from, mut to) = (vec![1u8; TRANSFER_BYTES], vec![0u8; TRANSFER_BYTES]);
    callgrind::count(COPY, || {
        for (to, from) in to.chunks_exact_mut(PIECE).zip(from.chunks_exact(PIECE)) {
            std::hint::black_box(to).copy_from_slice(std::hint::black_box(from));
        }
    });
    if std::hint::black_box(&to) != &from { Err("the copy differs".into()) } else { Ok(()) }
}
