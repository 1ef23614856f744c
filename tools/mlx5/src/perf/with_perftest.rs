//! The other end is perftest's program: what it says, in its order.
//!
//! As in perftest's `src/{write,send,read,atomic}_{lat,bw}.c` and `src/perftest_communication.c`. Whatever is said, the
//! client says first, and the server answers with its own: over TCP, or with `-R` on a queue pair of its own. With `-R`
//! all connections are the connection manager's, on one port; the server takes those under test as they come, and ends
//! them.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Instant;

use mlx5_dv::Device;
use mlx5_open::rendezvous::{self, Listener};
use mlx5_open::watchdog::Lost;
use mlx5_prm::values::PathMtu;
use mlx5_tools::perftest::{self, Keys, Rates};

use super::arguments::{Amount, Operation, Plan, Test};
use super::control::Control;
use super::other_end::{OtherEnd, PATIENCE, has_message, reach, run_until};
use super::platform::Platform;
use super::progress::Progress;
use super::report::{Bandwidths, Measured, Table};
use super::run::Run;
use super::test_qp::{Role, TestQp, check_count, test_qps};
use crate::output::{self, Failure};

/// Largest page of a host: perftest's small messages wander over one.
const LARGEST_PAGE: u32 = 1 << 24;
/// Bytes of a cache line, for perftest's steps within a page.
const CACHE_LINE: u32 = 64;

/// What an end knows when both are about to measure.
struct Session<'a> {
    device: &'a Arc<Device>,
    plan: Plan,
    talk: Talk,
    /// The server's address.
    server: SocketAddr,
}

/// Measures with perftest's server on `host`.
pub fn client(
    device: &Arc<Device>,
    plan: &Plan,
    ours: &Platform,
    (host, port): (&str, u16),
    table: Table,
) -> Result<(Plan, Vec<Measured>), Failure> {
    let (way, server) = match plan.agreed.rdma_cm {
        true => {
            let server = (host, port).to_socket_addrs()?.next().ok_or_else(|| format!("{host} has no address"))?;
            (Way::Queue(Box::new(Control::call(device, plan, server)?)), server)
        }
        false => {
            let stream = reach((host, port))?;
            let server = stream.peer_addr()?;
            (Way::Tcp(stream), server)
        }
    };
    let mut talk = Talk::new(way, Role::Client);
    talk.versions()?;
    Session { device, plan: talk.agree(plan)?, talk, server }.measure(ours, table)
}

/// Waits for perftest's client, and serves what it measures. Over TCP strangers do not end the wait.
pub fn server(
    device: &Arc<Device>,
    plan: &Plan,
    ours: &Platform,
    port: u16,
    table: Table,
) -> Result<(Plan, Vec<Measured>), Failure> {
    let mut talk = match plan.agreed.rdma_cm {
        true => {
            waiting(port);
            let way = Way::Queue(Box::new(Control::be_called(device, plan, port)?));
            let mut talk = Talk::new(way, Role::Server);
            talk.versions()?;
            talk
        }
        false => {
            let listener = rendezvous::listen(port)?;
            waiting(listener.port());
            first_client(&listener)?
        }
    };
    let server = SocketAddr::from(([0; 4], port));
    Session { device, plan: talk.agree(plan)?, talk, server }.measure(ours, table)
}

fn waiting(port: u16) {
    output::note(&format!("waiting for perftest on port {port}, up to {} s", PATIENCE.as_secs()));
}

fn first_client(listener: &Listener) -> Result<Talk, Failure> {
    let begin = Instant::now();
    loop {
        let stream = listener.accept(PATIENCE.saturating_sub(begin.elapsed()))?;
        let mut talk = Talk::new(Way::Tcp(stream), Role::Server);
        match talk.versions() {
            Ok(()) => return Ok(talk),
            Err(reason) => output::note(&format!("a stranger connected, and was sent away: {reason}")),
        }
    }
}

impl Session<'_> {
    fn measure(mut self, ours: &Platform, table: Table) -> Result<(Plan, Vec<Measured>), Failure> {
        check_count(self.device, self.plan.agreed.qps)?;
        let mut qps = test_qps(self.device, &self.plan)?;
        if self.plan.agreed.rdma_cm {
            self.meet(&mut qps)?;
        }
        self.connect(&mut qps)?;
        table.begin(&self.plan, std::slice::from_ref(ours))?;
        let row = match self.talk.role {
            Role::Client => Some(self.call(&mut qps, table.gbits)?),
            Role::Server => self.serve(&mut qps, table.gbits)?,
        };
        row.iter().try_for_each(|row| table.row(row))?;
        if let Way::Queue(mut control) = self.talk.way {
            control.managed.end_as(self.talk.role == Role::Server)?;
            control.end();
        }
        Ok((self.plan, row.into_iter().collect()))
    }

    /// Connects the queue pairs by the connection manager.
    fn meet(&mut self, qps: &mut [TestQp]) -> Result<(), Failure> {
        self.talk.sync()?;
        if let Way::Queue(control) = &mut self.talk.way {
            match self.talk.role {
                Role::Client => control.managed.call(&self.plan, qps, self.server)?,
                Role::Server => control.managed.be_called(&self.plan, qps, || Ok(()))?,
            }
        }
        self.talk.sync()
    }

    /// Exchanges queue pairs and memory, twice, and connects what is not connected.
    fn connect(&mut self, qps: &mut [TestQp]) -> Result<(), Failure> {
        let (plan, agreed) = (&self.plan, &self.plan.agreed);
        if agreed.test == Test::Lat && agreed.operation != Operation::Send {
            self.talk.sync()?;
        }
        let ours = qps.iter().map(|qp| qp.keys(plan)).collect::<Result<Vec<Keys>, _>>()?;
        self.talk.first = *ours.first().ok_or("there is no queue pair to measure with")?;
        let theirs = self.talk.all_keys(&ours)?;
        for (index, qp) in qps.iter_mut().enumerate() {
            let to = match qp.remote_qpn() {
                // Its connections may have come in another order.
                Some(qpn) => theirs.iter().find(|keys| keys.qpn == qpn),
                None => theirs.get(index),
            };
            qp.connect_to_keys(to.ok_or("the other end has said nothing of a queue pair that is connected")?)?;
        }
        if agreed.operation == Operation::Send {
            self.talk.sync()?;
        }
        self.talk.all_keys(&ours).map(drop)
    }

    /// Measures, as the client.
    fn call(&mut self, qps: &mut [TestQp], gbits: bool) -> Result<Measured, Failure> {
        let (device, plan, size) = (self.device, &self.plan, self.plan.agreed.largest());
        let mut run = Run::new(qps, plan, size, Role::Client)?;
        self.talk.sync()?;
        let mut progress = Progress::new(plan);
        progress.begin(size);
        let spoken = run_until(&mut run, device, plan, &mut self.talk, |run| {
            progress.set(run.count());
            run.is_done()
        })?;
        if spoken {
            return Err("perftest said something in the middle of the measurement".into());
        }
        let row = run.end()?.ok_or("the client measured nothing")?;
        match (&row, ending(plan)) {
            (_, Ending::None) => {}
            (Measured::Bandwidth(rates), Ending::Rates) => {
                self.talk.sync()?;
                let rates = rates.rates(gbits);
                // perftest counts those of all queue pairs.
                let iterations = rates.iterations * plan.agreed.qps as u64;
                self.talk.rates(Rates { iterations, ..rates })?;
                self.talk.sync()?;
            }
            _ => self.talk.sync()?,
        }
        Ok(row)
    }

    /// Serves what the client measures. Returns what it says that it measured, if it says so.
    fn serve(&mut self, qps: &mut [TestQp], gbits: bool) -> Result<Option<Measured>, Failure> {
        let (device, plan, agreed) = (self.device, &self.plan, &self.plan.agreed);
        let size = agreed.largest();
        let mut run = Run::new(qps, plan, size, Role::Server)?;
        self.talk.sync()?;
        run_until(&mut run, device, plan, &mut self.talk, |run| run.has_served())?;
        let has_served = run.has_served();
        run.end()?;
        match ending(plan) {
            Ending::Rates => {
                self.talk.sync()?;
                let nothing = Rates { size: size as u64, iterations: 0, peak: 0.0, average: 0.0, message_rate: 0.0 };
                let rates = self.talk.rates(nothing)?;
                self.talk.sync()?;
                return Ok(Some(Measured::Bandwidth(measured(&self.plan, rates, gbits)?)));
            }
            // The card alone has served reads and atomics.
            _ if agreed.operation.fetches() => self.talk.sync()?,
            _ if !has_served => {
                return Err("perftest ended before all messages had come: give both ends the same -n and -s".into());
            }
            Ending::Sync => self.talk.sync()?,
            Ending::None => {}
        }
        output::note("all of the client's messages have come; it has the figures");
        Ok(None)
    }
}

/// What is said behind a measurement.
enum Ending {
    None,
    Sync,
    /// The client's results, between two syncs.
    Rates,
}

fn ending(plan: &Plan) -> Ending {
    match (plan.agreed.test, plan.agreed.operation) {
        (Test::Lat, Operation::Write) => Ending::None,
        (Test::Lat, _) | (_, Operation::Send) => Ending::Sync,
        _ => Ending::Rates,
    }
}

/// The client's results, if they are of as many messages of as many bytes as this end was told.
fn measured(plan: &Plan, rates: Rates, gbits: bool) -> Result<Bandwidths, Failure> {
    let (size, qps) = (plan.agreed.largest(), plan.agreed.qps as u64);
    let told = matches!(plan.agreed.amount, Amount::Messages { counted, .. } if rates.iterations == counted * qps);
    if !told || rates.size != size as u64 {
        let Rates { size, iterations, .. } = rates;
        let error =
            format!("perftest sent {iterations} messages of {size} bytes: give both ends the same -n, -s and -q");
        return Err(error.into());
    }
    let unit = if gbits { 1e9 / 8.0 } else { f64::from(1 << 20) };
    let peak = (rates.peak > 0.0).then(|| rates.peak * unit / size as f64);
    Ok(Bandwidths::of(size, rates.iterations / qps, rates.message_rate * 1e6, peak))
}

/// How the ends talk.
enum Way {
    Tcp(TcpStream),
    /// With `-R`.
    Queue(Box<Control>),
}

/// The conversation.
struct Talk {
    way: Way,
    role: Role,
    /// The other end's version, once it is known.
    version: f64,
    /// Those of the first queue pair, once it is connected.
    first: Keys,
}

impl OtherEnd for Talk {
    fn has_message(&mut self) -> Result<bool, Failure> {
        match &mut self.way {
            Way::Tcp(stream) => Ok(has_message(stream)?),
            Way::Queue(control) => control.has_message(),
        }
    }

    fn stream(&self) -> Option<&TcpStream> {
        match &self.way {
            Way::Tcp(stream) => Some(stream),
            Way::Queue(_) => None,
        }
    }
}

impl Talk {
    fn new(way: Way, role: Role) -> Self {
        let first = Keys { gid: Some([0; 16]), ..Keys::default() };
        Talk { way, role, version: perftest::VERSION, first }
    }

    fn read<const N: usize>(&mut self) -> Result<[u8; N], Failure> {
        match &mut self.way {
            Way::Tcp(stream) => {
                let mut bytes = [0; N];
                fill(stream, &mut bytes)?;
                Ok(bytes)
            }
            Way::Queue(control) => {
                let bytes = control.read()?;
                let wrong = || format!("perftest sent {} bytes instead of {N}: is it of the same test?", bytes.len());
                Ok(bytes.as_slice().try_into().map_err(|_| wrong())?)
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        match &mut self.way {
            Way::Tcp(stream) => {
                stream.write_all(bytes).map_err(|error| format!("cannot write to the other end: {error}").into())
            }
            Way::Queue(control) => control.write(bytes),
        }
    }

    /// One word each way.
    fn exchange<const N: usize>(&mut self, ours: [u8; N]) -> Result<[u8; N], Failure> {
        if self.role == Role::Client {
            self.write(&ours)?;
            return self.read();
        }
        let theirs = self.read()?;
        self.write(&ours)?;
        Ok(theirs)
    }

    fn versions(&mut self) -> Result<(), Failure> {
        let theirs = perftest::parse_version(&self.exchange(perftest::version())?)?;
        if theirs < perftest::OLDEST {
            return Err(format!("perftest {theirs} is too old: {} is the oldest", perftest::OLDEST).into());
        }
        self.version = theirs;
        Ok(())
    }

    /// The plan with what both ends can: the larger page, the smaller path MTU.
    fn agree(&mut self, plan: &Plan) -> Result<Plan, Failure> {
        let page = u32::from_be_bytes(self.exchange(u32::try_from(plan.slot_unit)?.to_be_bytes())?);
        if !page.is_power_of_two() || page > LARGEST_PAGE {
            return Err(format!("the other end's pages have {page} bytes, which is no page's size").into());
        }
        self.exchange(CACHE_LINE.to_be_bytes())?;
        let ours = plan.path_mtu.number() as u8;
        let mtu = perftest::parse_mtu(self.exchange(perftest::mtu(ours))?)?.min(ours);
        let mut plan = plan.clone();
        plan.slot_unit = plan.slot_unit.max(page as usize);
        plan.path_mtu = PathMtu::from_number(mtu.into());
        plan.agreed.mtu = 128 << mtu;
        Ok(plan)
    }

    fn say(&mut self, keys: &Keys) -> Result<(), Failure> {
        let bytes = match self.way {
            Way::Tcp(_) => keys.to_bytes(),
            Way::Queue(_) => keys.to_structure(self.version),
        };
        self.write(&bytes)
    }

    fn hear(&mut self) -> Result<Keys, Failure> {
        let stream = match &mut self.way {
            Way::Tcp(stream) => stream,
            Way::Queue(control) => return Ok(Keys::parse_structure(&control.read()?)?),
        };
        let mut first = [0; Keys::SHORT];
        fill(stream, &mut first)?;
        let mut whole = first.to_vec();
        whole.resize(Keys::length(&first), 0);
        fill(stream, &mut whole[Keys::SHORT..])?;
        Ok(Keys::parse(&whole)?)
    }

    fn keys(&mut self, ours: &Keys) -> Result<Keys, Failure> {
        if self.role == Role::Client {
            self.say(ours)?;
            return self.hear();
        }
        let theirs = self.hear()?;
        self.say(ours)?;
        Ok(theirs)
    }

    /// Those of each queue pair, of as many as both ends have.
    fn all_keys(&mut self, ours: &[Keys]) -> Result<Vec<Keys>, Failure> {
        ours.iter().map(|ours| self.keys(ours)).collect()
    }

    /// Waits until the other end is as far. perftest keeps what it is told of the first queue pair then.
    fn sync(&mut self) -> Result<(), Failure> {
        let first = self.first;
        self.keys(&first).map(drop)
    }

    fn rates(&mut self, ours: Rates) -> Result<Rates, Failure> {
        let mut theirs = [[0; 8]; 5];
        for (ours, theirs) in ours.to_words().into_iter().zip(&mut theirs) {
            *theirs = self.exchange(ours)?;
        }
        Ok(Rates::parse(theirs)?)
    }
}

fn fill(stream: &mut TcpStream, bytes: &mut [u8]) -> Result<(), Failure> {
    stream.read_exact(bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => Lost::Gone.into(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            "perftest says nothing: is it the program of the same test, with the same flags?".into()
        }
        _ => format!("cannot read from the other end: {error}").into(),
    })
}
