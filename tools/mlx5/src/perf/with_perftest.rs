//! The other end is perftest's program: what it says, in its order.
//!
//! As in perftest's `src/{write,send,read,atomic}_{lat,bw}.c` and `src/perftest_communication.c`. Whatever is said, the
//! client says first, and the server answers with its own: over TCP, or with `-R` on a queue pair of its own. With `-R`
//! all connections are the connection manager's, on one port; the server takes those under test as they come, and ends
//! them.
//!
//! Of several sizes (`-a`) those of sends are begun and ended together; so is each size if both ends send (`-b`), which
//! then tell each other their results. Otherwise the client alone knows where one size ends. In a timed run (`-D`) each
//! end stops by its own clock, which a server of sends starts at the first message: what is in flight then may get no
//! answer, and sends no receive. The order of perftest 25.01 and 26.01 is the same.

use std::cell::Cell;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mlx5_dv::Device;
use mlx5_open::rendezvous::{self, Listener};
use mlx5_open::watchdog::SILENCE;
use mlx5_tools::perftest::{Keys, Rates};

use super::arguments::{Amount, Operation, Plan, Test};
use super::control::Control;
use super::other_end::{OtherEnd, PATIENCE, reach, run_until};
use super::platform::Platform;
use super::progress::Progress;
use super::report::{Bandwidths, Measured, Table};
use super::run::Run;
use super::talk::{Talk, Way};
use super::test_qp::{Role, TestQp, check_count, test_qps};
use crate::output::{self, Failure};

/// How long an end may take to go whose time is up.
const FAREWELL: Duration = Duration::from_secs(10);
/// A client who measures the latency of writes, and whose time should be up, has stopped if it writes nothing for so
/// long. With `-R` nothing else tells.
const QUIET: Duration = Duration::from_millis(500);
/// How many times as long as this end the other one may take for the same.
const SLOWER: u32 = 10;
/// Turns between two looks at the clock for it.
const LOOK_EVERY: u32 = 1 << 8;

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
        let role = self.talk.role;
        table.begin(&self.plan, std::slice::from_ref(ours))?;
        if self.plan.agreed.operation != Operation::Send {
            self.talk.sync()?;
        }
        let rows = if self.rests() { self.rest(&mut qps, table)? } else { self.measure_sizes(&mut qps, table)? };
        if let Way::Queue(mut control) = self.talk.way {
            control.managed.end_as(role == Role::Server)?;
            control.end();
        }
        Ok((self.plan, rows))
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

    /// Whether the card of this end does all: the client alone measures, what needs no answer.
    fn rests(&self) -> bool {
        let agreed = &self.plan.agreed;
        let answers = agreed.operation == Operation::Send || self.writes_back() || agreed.both_ways;
        self.talk.role == Role::Server && !answers
    }

    /// Whether the latency of writes is measured: the one test at whose end nothing is said.
    fn writes_back(&self) -> bool {
        self.plan.agreed.test == Test::Lat && self.plan.agreed.operation == Operation::Write
    }

    /// The whole time of a timed run.
    fn time(&self) -> Option<Duration> {
        match self.plan.agreed.amount {
            Amount::Messages { .. } => None,
            Amount::Time { total, .. } => Some(total),
        }
    }

    /// Waits while the client measures all sizes. Of a bandwidth it tells the result, which of several is the last.
    fn rest(&mut self, qps: &mut [TestQp], table: Table) -> Result<Vec<Measured>, Failure> {
        let size = self.plan.agreed.largest();
        let mut run = Run::new(qps, &self.plan, size, Role::Server)?;
        run_until(&mut run, self.device, &self.plan, &mut self.talk, |_| false)?;
        self.talk.sync()?;
        if self.plan.agreed.test == Test::Lat {
            output::note("the client has measured; it has the figures");
            return Ok(Vec::new());
        }
        let nothing = Rates { size: size as u64, iterations: 0, peak: 0.0, average: 0.0, message_rate: 0.0 };
        let row = self.exchange(nothing, table.gbits)?;
        table.row(&row)?;
        self.talk.sync()?;
        Ok(vec![row])
    }

    /// Measures each size, or answers.
    fn measure_sizes(&mut self, qps: &mut [TestQp], table: Table) -> Result<Vec<Measured>, Failure> {
        let measures = self.talk.role == Role::Client || self.plan.agreed.both_ways;
        let mut progress = measures.then(|| Progress::new(&self.plan));
        let mut rows = Vec::new();
        for size in self.plan.agreed.sizes.clone() {
            progress.iter_mut().for_each(|progress| progress.begin(size));
            let row = self.one_size(qps, size, progress.as_ref(), table.gbits)?;
            if let (Some(row), Some(progress)) = (row, &progress) {
                progress.aside(|| table.row(&row))?;
                rows.push(row);
            }
        }
        self.end(rows.last(), table.gbits)?;
        if !measures {
            output::note("all of the client's messages have come; it has the figures");
        }
        Ok(rows)
    }

    /// Measures one size, or answers. What has receives is begun by both ends at once, as are both directions.
    fn one_size(
        &mut self,
        qps: &mut [TestQp],
        size: usize,
        progress: Option<&Progress>,
        gbits: bool,
    ) -> Result<Option<Measured>, Failure> {
        let mut run = Run::new(qps, &self.plan, size, self.talk.role)?;
        let (several, timed) = (self.plan.agreed.sizes.len() > 1, self.time().is_some());
        let (sends, both_ways) = (self.plan.agreed.operation == Operation::Send, self.plan.agreed.both_ways);
        if sends || both_ways {
            self.talk.sync()?;
        }
        run.begin();
        let begin = Instant::now();
        self.run(&mut run, progress)?;
        // The other end began when this one did, but may be slower.
        self.talk.patience = Some(SILENCE + SLOWER * begin.elapsed());
        let mut row = run.end()?;
        if both_ways && several && !sends {
            self.talk.sync()?;
        }
        // In a timed run both ends count what each sends, and say nothing of it.
        if let Some(Measured::Bandwidth(ours)) = row.take_if(|_| both_ways && !(sends && timed)) {
            let theirs = self.exchange(self.rates(&ours, gbits), gbits)?;
            row = Some(Measured::Bandwidth(ours).and(Some(theirs)));
        }
        if sends && several && self.plan.agreed.test != Test::Lat {
            self.talk.sync()?;
        }
        Ok(row)
    }

    /// Runs until this end has done its part.
    fn run(&mut self, run: &mut Run, progress: Option<&Progress>) -> Result<(), Failure> {
        let (role, time, agreed) = (self.talk.role, self.time(), &self.plan.agreed);
        let (sends, both_ways) = (agreed.operation == Operation::Send, agreed.both_ways);
        if let (Role::Server, true, Some(time)) = (role, self.writes_back(), time) {
            return self.write_back(run, time);
        }
        let is_over = |run: &Run| {
            progress.iter().for_each(|progress| progress.set(run.count()));
            match role {
                Role::Server if !both_ways => run.has_served(),
                _ if both_ways && sends && time.is_none() => run.is_done() && run.has_served(),
                _ => run.is_done(),
            }
        };
        while run_until(run, self.device, &self.plan, &mut self.talk, is_over)? {
            match role {
                Role::Client => return Err("perftest said something in the middle of the measurement".into()),
                // The client is done with its own part.
                Role::Server if both_ways && !sends => {}
                Role::Server if time.is_some() => return Ok(()),
                Role::Server if both_ways && run.has_served() => {}
                Role::Server => {
                    let error = "perftest ended before all messages had come: give both ends the same -n, and -s or -a";
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }

    /// Writes back for a time. perftest's client stops, and says nothing: over TCP it exits, with `-R` it waits for
    /// the end of its connections. Its clock begins before its first message.
    fn write_back(&mut self, run: &mut Run, time: Duration) -> Result<(), Failure> {
        let (turns, begun, last) = (Cell::new(0_u32), Cell::new(None), Cell::new((0, Instant::now())));
        let is_up = |time: Duration| begun.get().is_some_and(|begun: Instant| begun.elapsed() >= time);
        let is_over = |run: &Run| {
            turns.set(turns.get().wrapping_add(1));
            if !turns.get().is_multiple_of(LOOK_EVERY) {
                return false;
            }
            let (count, since) = last.get();
            if count != run.count() {
                last.set((run.count(), Instant::now()));
                // The second answers the client's first.
                begun.set(begun.get().or_else(|| (run.count() > 1).then(Instant::now)));
                return false;
            }
            is_up(time) && since.elapsed() >= QUIET
        };
        match run_until(run, self.device, &self.plan, &mut self.talk, is_over) {
            Ok(false) => Ok(()),
            Ok(true) => Err("perftest said something in the middle of the measurement".into()),
            // What a client who has exited no longer took has failed.
            Err(_) if !self.plan.agreed.rdma_cm && is_up(time / 2) && self.is_left() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Waits until the other end has closed the connection. Returns whether it has.
    fn is_left(&mut self) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < FAREWELL {
            if self.talk.has_message().is_err() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }

    /// What is said behind all sizes.
    fn end(&mut self, last: Option<&Measured>, gbits: bool) -> Result<(), Failure> {
        let one_way = self.talk.role == Role::Client && !self.plan.agreed.both_ways;
        match last {
            // The queue pair answers the other end's card until its time, too, is up.
            _ if self.writes_back() => {
                if self.time().is_some() && !self.plan.agreed.rdma_cm {
                    self.is_left();
                }
                return Ok(());
            }
            Some(Measured::Bandwidth(row)) if one_way && self.plan.agreed.operation != Operation::Send => {
                self.talk.sync()?;
                let rates = self.rates(row, gbits);
                self.talk.rates(rates)?;
            }
            _ => {}
        }
        self.talk.sync()
    }

    /// What perftest is told of a result. It counts the messages of all queue pairs.
    fn rates(&self, row: &Bandwidths, gbits: bool) -> Rates {
        let rates = row.rates(gbits);
        let iterations = if self.time().is_some() { 1 } else { self.plan.agreed.qps as u64 } * rates.iterations;
        Rates { iterations, ..rates }
    }

    /// Exchanges results. Returns the other end's, if they are of as many messages of as many bytes as `ours` and as
    /// this end was told.
    fn exchange(&mut self, ours: Rates, gbits: bool) -> Result<Measured, Failure> {
        let rates = self.talk.rates(ours)?;
        let (size, qps) = (ours.size as usize, self.plan.agreed.qps as u64);
        let (told, iterations) = match self.plan.agreed.amount {
            Amount::Messages { counted, .. } => (rates.iterations == counted * qps, rates.iterations / qps),
            Amount::Time { .. } => (true, rates.iterations),
        };
        if !told || rates.size != ours.size {
            let Rates { size, iterations, .. } = rates;
            let same = "give both ends the same -n or -D, -s or -a, and -q";
            return Err(format!("perftest sent {iterations} messages of {size} bytes: {same}").into());
        }
        let unit = if gbits { 1e9 / 8.0 } else { f64::from(1 << 20) };
        let peak = (rates.peak > 0.0).then(|| rates.peak * unit / size as f64);
        Ok(Measured::Bandwidth(Bandwidths::of(size, iterations, rates.message_rate * 1e6, peak)))
    }
}
