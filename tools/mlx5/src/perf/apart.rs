//! Each end in a program of its own. They find each other over TCP, and tell each other what is needed, a line of JSON at a
//! time: queue pairs and memory first; then, of each size, that it begins, that it is done, what the server saw.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use mlx5_dv::Device;
use mlx5_open::meet::{self, Pending};
use mlx5_open::program;
use mlx5_open::watch::{Lost, Watch};
use serde::{Deserialize, Serialize};

use super::NAP;
use super::arguments::{Agreed, Plan};
use super::ground::Ground;
use super::lane::{Address, Lane, Role, lanes};
use super::play::Play;
use super::progress::Progress;
use super::report::Measured;
use crate::Failure;

/// How long a client waits for its server, and a server for its client.
const PATIENCE: Duration = Duration::from_secs(120);
/// What the words mean; another number is another meaning.
const VERSION: u32 = 1;
/// Bytes of the longest line: of the most queue pairs there can be.
const LONGEST_LINE: u64 = 16 << 20;
/// Idle turns between two looks whether the other end says something.
const QUIET: u32 = 1 << 16;
/// How long an end rests that has nothing to do.
const REST: Duration = Duration::from_millis(5);
/// Queue pairs and bytes of a message that a client may ask for.
const MOST_QPS: usize = 16384;
const MOST_BYTES: usize = 1 << 30;

/// What one end tells the other.
#[derive(Debug, Serialize, Deserialize)]
enum Word {
    /// The client's first word.
    Hello { version: u32, agreed: Agreed, ground: Ground, ends: Vec<Address> },
    /// The server's answer, once it is connected.
    Welcome { ground: Ground, ends: Vec<Address> },
    /// The client is ready to measure this size.
    Begin(usize),
    /// So is the server.
    Ready,
    /// The client is done with it.
    Done,
    /// The server is, too, and what came is what was sent. What it measured, if it measured.
    Checked(Option<Measured>),
    /// All that came of it.
    Results(Vec<Measured>),
    /// Something went wrong at this end.
    Failed(String),
}

/// The program at the other end.
#[derive(Debug)]
struct Peer {
    stream: TcpStream,
    lines: BufReader<TcpStream>,
}

impl Peer {
    fn new(stream: TcpStream) -> Result<Self, Failure> {
        let lines = BufReader::new(stream.try_clone()?);
        Ok(Peer { stream, lines })
    }

    fn say(&mut self, word: &Word) -> Result<(), Failure> {
        let mut line = serde_json::to_vec(word)?;
        line.push(b'\n');
        self.stream.write_all(&line).map_err(|error| format!("the other end does not listen: {error}"))?;
        Ok(())
    }

    fn hear(&mut self) -> Result<Word, Failure> {
        let mut line = String::new();
        let read = (&mut self.lines).take(LONGEST_LINE).read_line(&mut line);
        if read.map_err(|error| format!("the other end says nothing: {error}"))? == 0 {
            return Err(Lost::Gone.into());
        }
        match serde_json::from_str(&line) {
            Ok(Word::Failed(reason)) => Err(format!("the other end failed: {reason}").into()),
            Ok(word) => Ok(word),
            Err(error) => Err(format!("the other end is no `mlx5 perf` of this version: {error}").into()),
        }
    }

    /// Whether the other end says something.
    fn speaks(&self) -> Result<bool, Lost> {
        match meet::pending(&self.stream) {
            Pending::Nothing => Ok(false),
            Pending::Bytes => Ok(true),
            Pending::Closed => Err(Lost::Gone),
        }
    }

    /// Tells the other end why this one gives up.
    fn part<T>(mut self, done: Result<T, Failure>) -> Result<T, Failure> {
        if let Err(error) = &done {
            // It may be gone, which is then the reason.
            let _ = self.say(&Word::Failed(program::chain(error.as_ref())));
        }
        done
    }
}

fn unexpected<T>(word: &Word) -> Result<T, Failure> {
    let name = match word {
        Word::Hello { .. } => "hello",
        Word::Welcome { .. } => "welcome",
        Word::Begin(_) => "begin",
        Word::Ready => "ready",
        Word::Done => "done",
        Word::Checked(_) => "checked",
        Word::Results(_) => "results",
        Word::Failed(_) => "failed",
    };
    Err(format!("the other end said {name:?} where something else was due").into())
}

/// What came of it, and on what the other end ran.
pub struct Outcome {
    /// What was measured: the server is told.
    pub plan: Plan,
    /// The other end's card.
    pub ground: Ground,
    /// What came of each size.
    pub rows: Vec<Measured>,
}

/// Measures every size with the server on `host`.
pub fn client(device: &Arc<Device>, plan: &Plan, ours: &Ground, host: &str, port: u16) -> Result<Outcome, Failure> {
    let mut lanes = lanes(device, plan)?;
    let stream = meet::connect(host, port, PATIENCE).map_err(|error| format!("{host}, port {port}: {error}"))?;
    let mut peer = Peer::new(stream)?;
    let done = ask(device, plan, ours, &mut lanes, &mut peer);
    peer.part(done)
}

fn ask(
    device: &Arc<Device>,
    plan: &Plan,
    ours: &Ground,
    lanes: &mut [Lane],
    peer: &mut Peer,
) -> Result<Outcome, Failure> {
    let (agreed, ground, ends) = (plan.agreed.clone(), ours.clone(), addresses(lanes)?);
    peer.say(&Word::Hello { version: VERSION, agreed, ground, ends })?;
    let (ground, ends) = match peer.hear()? {
        Word::Welcome { ground, ends } => (ground, ends),
        word => return unexpected(&word),
    };
    connect(lanes, &ends)?;
    let mut progress = Progress::new(plan);
    let mut rows = Vec::new();
    for size in &plan.agreed.sizes {
        progress.begin(*size);
        rows.push(one_size(device, plan, *size, lanes, peer, &progress)?);
    }
    peer.say(&Word::Results(rows.clone()))?;
    Ok(Outcome { plan: plan.clone(), ground, rows })
}

/// The client's part.
fn one_size(
    device: &Arc<Device>,
    plan: &Plan,
    size: usize,
    lanes: &mut [Lane],
    peer: &mut Peer,
    progress: &Progress,
) -> Result<Measured, Failure> {
    let mut play = Play::new(lanes, plan, size, Role::Client)?;
    peer.say(&Word::Begin(size))?;
    match peer.hear()? {
        Word::Ready => {}
        word => return unexpected(&word),
    }
    let spoken = play_until(&mut play, device, plan, peer, |play| {
        progress.set(play.count());
        play.is_done()
    })?;
    if spoken {
        return unexpected(&peer.hear()?);
    }
    peer.say(&Word::Done)?;
    // The server may still be sending.
    play_until(&mut play, device, plan, peer, |_| false)?;
    let theirs = match peer.hear()? {
        Word::Checked(theirs) => theirs,
        word => return unexpected(&word),
    };
    Ok(play.end()?.ok_or("the client measured nothing")?.and(theirs))
}

/// Waits for one client, and does its part in what that client measures.
pub fn server(device: &Arc<Device>, plan: &Plan, ours: &Ground, port: u16) -> Result<Outcome, Failure> {
    eprintln!("waiting for a client on port {port}");
    let mut peer = Peer::new(meet::accept(port, PATIENCE)?)?;
    let done = answer(device, plan, ours, &mut peer);
    peer.part(done)
}

fn answer(device: &Arc<Device>, plan: &Plan, ours: &Ground, peer: &mut Peer) -> Result<Outcome, Failure> {
    let (agreed, ground, ends) = match peer.hear()? {
        Word::Hello { version: VERSION, agreed, ground, ends } => (agreed, ground, ends),
        Word::Hello { version, .. } => {
            return Err(format!("the client is of version {version}, the server of version {VERSION}").into());
        }
        word => return unexpected(&word),
    };
    let plan = agree(plan, agreed)?;
    let mut lanes = lanes(device, &plan)?;
    connect(&mut lanes, &ends)?;
    peer.say(&Word::Welcome { ground: ours.clone(), ends: addresses(&lanes)? })?;
    loop {
        match peer.hear()? {
            Word::Begin(size) if plan.agreed.sizes.contains(&size) => serve(device, &plan, size, &mut lanes, peer)?,
            Word::Results(rows) => return Ok(Outcome { plan, ground, rows }),
            word => return unexpected(&word),
        }
    }
}

/// The server's part.
fn serve(device: &Arc<Device>, plan: &Plan, size: usize, lanes: &mut [Lane], peer: &mut Peer) -> Result<(), Failure> {
    let mut play = Play::new(lanes, plan, size, Role::Server)?;
    peer.say(&Word::Ready)?;
    play_until(&mut play, device, plan, peer, |_| false)?;
    match peer.hear()? {
        Word::Done => {}
        word => return unexpected(&word),
    }
    let mut watch = Watch::new(device).peer(&peer.stream)?;
    while !play.is_done() {
        let moved = play.turn()?;
        watch.check(moved)?;
    }
    peer.say(&Word::Checked(play.end()?))
}

/// Plays until `is_over`, or until the other end says something: then true.
fn play_until(
    play: &mut Play,
    device: &Arc<Device>,
    plan: &Plan,
    peer: &Peer,
    is_over: impl Fn(&Play) -> bool,
) -> Result<bool, Failure> {
    let mut watch = Watch::new(device).peer(&peer.stream)?;
    let mut idle = 0;
    while !is_over(play) {
        if play.rests() {
            std::thread::sleep(REST);
            watch.is_there()?;
            idle = QUIET;
        } else if play.turn()? {
            watch.check(true)?;
            idle = 0;
        } else if plan.events {
            play.sleep(NAP)?;
            watch.slept(NAP)?;
            idle = QUIET;
        } else {
            watch.check(false)?;
            idle += 1;
        }
        if idle >= QUIET {
            if peer.speaks()? {
                return Ok(true);
            }
            idle = 0;
        }
    }
    Ok(false)
}

/// The server's plan for what the client wants, if that is what the server was started for and in bounds.
fn agree(plan: &Plan, theirs: Agreed) -> Result<Plan, Failure> {
    let ours = &plan.agreed;
    if (ours.test, ours.operation) != (theirs.test, theirs.operation) {
        let (test, operation) = (theirs.test, theirs.operation);
        let words = format!("{test:?} {operation:?}").to_lowercase();
        return Err(format!("the client measures {words}: start the server with the same words").into());
    }
    let reasonable = (1..=MOST_QPS).contains(&theirs.qps)
        && (1..=64).contains(&theirs.sizes.len())
        && theirs.sizes.iter().all(|size| (1..=MOST_BYTES).contains(size));
    if !reasonable {
        return Err("the client asks for what no client of this version asks for".into());
    }
    for (flag, same) in [("-m", ours.mtu == theirs.mtu), ("-b", ours.both_ways == theirs.both_ways)] {
        if !same {
            return Err(format!("{flag} differs between client and server: give both the same").into());
        }
    }
    let mut plan = plan.clone();
    plan.agreed = theirs;
    Ok(plan)
}

fn addresses(lanes: &[Lane]) -> Result<Vec<Address>, Failure> {
    lanes.iter().map(Lane::address).collect()
}

fn connect(lanes: &mut [Lane], ends: &[Address]) -> Result<(), Failure> {
    if lanes.len() != ends.len() {
        return Err(format!("the other end has {} queue pairs, this one {}", ends.len(), lanes.len()).into());
    }
    lanes.iter_mut().zip(ends).try_for_each(|(lane, end)| lane.connect(end))
}

#[cfg(test)]
mod tests {
    use super::super::arguments::{Amount, AtomicType, Operation, Test};
    use super::*;

    fn agreed() -> Agreed {
        let amount = Amount::Messages { warm_up: 0, counted: 5 };
        let (test, operation, sizes) = (Test::Bw, Operation::Send, vec![64]);
        Agreed {
            test,
            operation,
            atomic_type: AtomicType::FetchAdd,
            sizes,
            amount,
            qps: 1,
            both_ways: false,
            mtu: 1024,
        }
    }

    #[test]
    fn a_server_takes_what_it_was_started_for_and_no_absurd_wishes() {
        let plan = Plan::example(agreed());
        assert_eq!(agree(&plan, Agreed { sizes: vec![2, 4], qps: 3, ..agreed() }).unwrap().agreed.qps, 3);
        for (theirs, word) in [
            (Agreed { operation: Operation::Read, ..agreed() }, "bw read"),
            (Agreed { test: Test::Lat, ..agreed() }, "lat send"),
            (Agreed { mtu: 256, ..agreed() }, "-m differs"),
            (Agreed { both_ways: true, ..agreed() }, "-b differs"),
            (Agreed { qps: 0, ..agreed() }, "no client"),
            (Agreed { qps: usize::MAX, ..agreed() }, "no client"),
            (Agreed { sizes: vec![], ..agreed() }, "no client"),
            (Agreed { sizes: vec![0], ..agreed() }, "no client"),
            (Agreed { sizes: vec![usize::MAX], ..agreed() }, "no client"),
        ] {
            let error = agree(&plan, theirs).expect_err(word).to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn what_is_no_word_is_refused_and_a_reason_is_passed_on() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stranger = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut peer = Peer::new(listener.accept().unwrap().0).unwrap();
        stranger.write_all(b"GET / HTTP/1.1\n{\"Failed\":\"no memory\"}\n").unwrap();
        assert!(peer.hear().unwrap_err().to_string().contains("no `mlx5 perf`"));
        assert_eq!(peer.hear().unwrap_err().to_string(), "the other end failed: no memory");
        drop(stranger);
        assert!(peer.hear().unwrap_err().to_string().contains("is gone"));
    }
}
