//! Each end in a program of its own. They exchange messages over TCP, one line of JSON each: queue pairs and memory
//! first; then, for each size, its start, its end, and what the server measured.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mlx5_cm::address_of;
use mlx5_dv::Device;
use mlx5_open::program;
use mlx5_open::rendezvous::{self, Listener};
use mlx5_open::watchdog::{Lost, Watchdog};
use serde::{Deserialize, Serialize};

use super::arguments::{Agreed, Plan};
use super::managed::Managed;
use super::other_end::{PATIENCE, has_message, reach, run_until};
use super::platform::Platform;
use super::progress::Progress;
use super::report::{Measured, Table};
use super::run::Run;
use super::test_qp::{Address, Role, TestQp, check_count, test_qps};
use crate::output::{self, Failure};

/// How long a server waits for the hello of one who has connected.
const HELLO: Duration = Duration::from_secs(10);
/// Version of the messages. Both ends must have the same.
const VERSION: u32 = 5;
/// Longest accepted line in bytes: enough for the largest number of queue pairs.
const LONGEST_LINE: u64 = 16 << 20;
/// Limits on what a client may request: queue pairs, and bytes of a message.
const MOST_QPS: usize = 16384;
const MOST_BYTES: usize = 1 << 30;
/// Bytes of one message of each queue pair.
const MOST_IN_ALL: usize = 1 << 34;

/// A message from one end to the other.
#[derive(Debug, Serialize, Deserialize)]
enum Message {
    /// The client's request.
    Hello { version: u32, agreed: Agreed, platform: Platform, ends: Vec<Address> },
    /// The server's answer, once its queue pairs are connected.
    Welcome { platform: Platform, ends: Vec<Address> },
    /// With -R: all queue pairs are connected.
    Connected,
    /// The client is ready to measure this size.
    Begin(usize),
    /// The server is ready, too.
    Ready,
    /// The client is done with this size.
    Done,
    /// The server is done, and the received data is correct. Carries what it measured, if it did.
    Checked(Option<Measured>),
    /// The results of all sizes.
    Results(Vec<Measured>),
    /// The sender failed, with this error.
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

    fn send(&mut self, message: &Message) -> Result<(), Failure> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.stream.write_all(&line).map_err(|error| format!("cannot write to the other end: {error}"))?;
        Ok(())
    }

    fn receive(&mut self) -> Result<Message, Failure> {
        let mut line = String::new();
        let read = (&mut self.lines).take(LONGEST_LINE).read_line(&mut line);
        if read.map_err(|error| format!("cannot read from the other end: {error}"))? == 0 {
            return Err(Lost::Gone.into());
        }
        message_of(line.as_bytes())
    }

    /// The first message of a client.
    ///
    /// # Errors
    /// What came is none, or came too late.
    fn hello(&mut self) -> Result<Message, Failure> {
        let (usual, deadline) = (self.stream.read_timeout()?, Instant::now() + HELLO);
        let mut line = Vec::new();
        while !line.ends_with(b"\n") && (line.len() as u64) < LONGEST_LINE {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(format!("it said no hello within {} s", HELLO.as_secs()).into());
            }
            self.stream.set_read_timeout(Some(left))?;
            let come = match self.lines.fill_buf() {
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => continue,
                come => come?,
            };
            if come.is_empty() {
                return Err("it hung up".into());
            }
            let used = come.iter().position(|byte| *byte == b'\n').map_or(come.len(), |end| end + 1);
            line.extend_from_slice(&come[..used]);
            self.lines.consume(used);
        }
        self.stream.set_read_timeout(usual)?;
        match message_of(&line)? {
            hello @ Message::Hello { .. } => Ok(hello),
            message => unexpected(&message),
        }
    }

    /// Whether a message from the other end is waiting.
    fn has_message(&self) -> Result<bool, Lost> {
        has_message(&self.stream)
    }

    /// Reports an error to the other end before returning it.
    fn report<T>(mut self, done: Result<T, Failure>) -> Result<T, Failure> {
        if let Err(error) = &done {
            // Best effort: the other end may be gone, which may be the error.
            let _ = self.send(&Message::Failed(program::chain(error.as_ref())));
        }
        done
    }
}

/// The message in a line; one that tells of the other end's failure is an error.
fn message_of(line: &[u8]) -> Result<Message, Failure> {
    match serde_json::from_slice(line) {
        Ok(Message::Failed(reason)) => Err(format!("the other end failed: {reason}").into()),
        Ok(message) => Ok(message),
        Err(error) => Err(format!("invalid message: the other end is no `mlx5 perf` of this version: {error}").into()),
    }
}

fn unexpected<T>(message: &Message) -> Result<T, Failure> {
    let name = match message {
        Message::Hello { .. } => "hello",
        Message::Welcome { .. } => "welcome",
        Message::Connected => "connected",
        Message::Begin(_) => "begin",
        Message::Ready => "ready",
        Message::Done => "done",
        Message::Checked(_) => "checked",
        Message::Results(_) => "results",
        Message::Failed(_) => "failed",
    };
    Err(format!("unexpected message {name:?} from the other end").into())
}

/// The results, and the other end's platform.
pub struct Outcome {
    /// What was measured; on the server, the client's request.
    pub plan: Plan,
    /// The other end's card.
    pub platform: Platform,
    /// The result of each size.
    pub rows: Vec<Measured>,
}

/// Measures every size with the server on `host`.
pub fn client(
    device: &Arc<Device>,
    plan: &Plan,
    ours: &Platform,
    server: (&str, u16),
    table: Table,
) -> Result<Outcome, Failure> {
    check_count(device, plan.agreed.qps)?;
    let mut qps = test_qps(device, plan)?;
    let mut peer = Peer::new(reach(server)?)?;
    let done = ask(device, plan, ours, &mut qps, (&mut peer, server.1), table);
    peer.report(done)
}

fn ask(
    device: &Arc<Device>,
    plan: &Plan,
    ours: &Platform,
    qps: &mut [TestQp],
    (peer, port): (&mut Peer, u16),
    table: Table,
) -> Result<Outcome, Failure> {
    let (agreed, platform, ends) = (plan.agreed.clone(), ours.clone(), addresses(qps)?);
    peer.send(&Message::Hello { version: VERSION, agreed, platform, ends })?;
    let (platform, ends) = match peer.receive()? {
        Message::Welcome { platform, ends } => (platform, ends),
        message => return unexpected(&message),
    };
    let managed = match plan.agreed.rdma_cm {
        true => Some(call(device, plan, qps, &ends, (peer, port))?),
        false => {
            connect(qps, &ends)?;
            None
        }
    };
    table.begin(plan, &[ours.clone(), platform.clone()])?;
    let mut progress = Progress::new(plan);
    let mut rows = Vec::new();
    for size in &plan.agreed.sizes {
        progress.begin(*size);
        let row = one_size(device, plan, *size, qps, peer, &progress)?;
        progress.aside(|| table.row(&row))?;
        rows.push(row);
    }
    peer.send(&Message::Results(rows.clone()))?;
    managed.into_iter().for_each(Managed::end);
    Ok(Outcome { plan: plan.clone(), platform, rows })
}

/// Connects the queue pairs by the connection manager, and waits until the server knows.
fn call(
    device: &Arc<Device>,
    plan: &Plan,
    qps: &mut [TestQp],
    ends: &[Address],
    (peer, port): (&mut Peer, u16),
) -> Result<Managed, Failure> {
    let mut managed = Managed::new(device, plan.network)?;
    let host = ends.first().ok_or("the other end has no queue pairs")?.gid();
    managed.call(plan, qps, SocketAddr::new(address_of(host), port))?;
    aim(qps, ends)?;
    managed.answer_until(|| Ok(peer.has_message()?))?;
    match peer.receive()? {
        Message::Connected => Ok(managed),
        message => unexpected(&message),
    }
}

/// Measures one size, as the client.
fn one_size(
    device: &Arc<Device>,
    plan: &Plan,
    size: usize,
    qps: &mut [TestQp],
    peer: &mut Peer,
    progress: &Progress,
) -> Result<Measured, Failure> {
    let mut run = Run::new(qps, plan, size, Role::Client)?;
    peer.send(&Message::Begin(size))?;
    match peer.receive()? {
        Message::Ready => {}
        message => return unexpected(&message),
    }
    let spoken = run_until(&mut run, device, plan, &mut &peer.stream, |run| {
        progress.set(run.count());
        run.is_done()
    })?;
    if spoken {
        return unexpected(&peer.receive()?);
    }
    peer.send(&Message::Done)?;
    // The server may still be sending: keep polling until it reports.
    run_until(&mut run, device, plan, &mut &peer.stream, |_| false)?;
    let theirs = match peer.receive()? {
        Message::Checked(theirs) => theirs,
        message => return unexpected(&message),
    };
    Ok(run.end()?.ok_or("the client measured nothing")?.and(theirs))
}

/// Waits for one client, and runs the server side of what that client measures. Strangers do not end the wait.
pub fn server(device: &Arc<Device>, plan: &Plan, ours: &Platform, port: u16, table: Table) -> Result<Outcome, Failure> {
    let listener = rendezvous::listen(port)?;
    output::note(&format!("waiting for a client on port {}, up to {} s", listener.port(), PATIENCE.as_secs()));
    let (mut peer, hello) = first_client(&listener, PATIENCE)?;
    let done = answer(device, plan, ours, (&mut peer, hello, listener.port()), table);
    peer.report(done)
}

/// The first client that says hello as `mlx5 perf` does. Whoever else connects, such as a port scanner, is sent away.
fn first_client(listener: &Listener, patience: Duration) -> Result<(Peer, Message), Failure> {
    let deadline = Instant::now() + patience;
    loop {
        let mut peer = Peer::new(listener.accept(deadline.saturating_duration_since(Instant::now()))?)?;
        match peer.hello() {
            Ok(hello) => return Ok((peer, hello)),
            Err(reason) => output::note(&format!("a stranger connected, and was sent away: {reason}")),
        }
    }
}

fn answer(
    device: &Arc<Device>,
    plan: &Plan,
    ours: &Platform,
    (peer, hello, port): (&mut Peer, Message, u16),
    table: Table,
) -> Result<Outcome, Failure> {
    let (agreed, platform, ends) = match hello {
        Message::Hello { version: VERSION, agreed, platform, ends } => (agreed, platform, ends),
        Message::Hello { version, .. } => {
            return Err(format!("client and server differ: protocol version {version} and {VERSION}").into());
        }
        message => return unexpected(&message),
    };
    let plan = agree(plan, agreed)?;
    check_count(device, plan.agreed.qps)?;
    let mut qps = test_qps(device, &plan)?;
    let welcome = Message::Welcome { platform: ours.clone(), ends: addresses(&qps)? };
    let managed = match plan.agreed.rdma_cm {
        true => Some(be_called(device, &plan, &mut qps, &ends, (peer, &welcome, port))?),
        false => {
            connect(&mut qps, &ends)?;
            peer.send(&welcome)?;
            None
        }
    };
    table.begin(&plan, &[ours.clone(), platform.clone()])?;
    loop {
        match peer.receive()? {
            Message::Begin(size) if plan.agreed.sizes.contains(&size) => serve(device, &plan, size, &mut qps, peer)?,
            Message::Results(rows) => {
                rows.iter().try_for_each(|row| table.row(row))?;
                managed.into_iter().for_each(Managed::end);
                return Ok(Outcome { plan, platform, rows });
            }
            message => return unexpected(&message),
        }
    }
}

/// Says `welcome` once the connection manager listens, and is called by the client for each queue pair.
fn be_called(
    device: &Arc<Device>,
    plan: &Plan,
    qps: &mut [TestQp],
    ends: &[Address],
    (peer, welcome, port): (&mut Peer, &Message, u16),
) -> Result<Managed, Failure> {
    let mut managed = Managed::listen(device, plan.network, port)?;
    peer.send(welcome)?;
    let connected = managed.be_called(plan, qps, || match peer.has_message()? {
        true => Err("the client failed to connect".into()),
        false => Ok(()),
    });
    if connected.is_err() && peer.has_message()? {
        return unexpected(&peer.receive()?);
    }
    connected?;
    aim(qps, ends)?;
    peer.send(&Message::Connected)?;
    Ok(managed)
}

/// Measures one size, as the server.
fn serve(device: &Arc<Device>, plan: &Plan, size: usize, qps: &mut [TestQp], peer: &mut Peer) -> Result<(), Failure> {
    let mut run = Run::new(qps, plan, size, Role::Server)?;
    peer.send(&Message::Ready)?;
    run_until(&mut run, device, plan, &mut &peer.stream, |_| false)?;
    match peer.receive()? {
        Message::Done => {}
        message => return unexpected(&message),
    }
    let mut watchdog = Watchdog::new(device).peer(&peer.stream)?;
    while !run.is_done() {
        let moved = run.turn()?;
        watchdog.check(moved)?;
    }
    peer.send(&Message::Checked(run.end()?))
}

/// The server's plan for the client's request, which must match the server's own flags and stay within limits.
fn agree(plan: &Plan, theirs: Agreed) -> Result<Plan, Failure> {
    let ours = &plan.agreed;
    if (ours.test, ours.operation) != (theirs.test, theirs.operation) {
        let (test, operation) = (theirs.test, theirs.operation);
        let words = format!("{test:?} {operation:?}").to_lowercase();
        return Err(format!("the client measures {words}: start the server with the same test and operation").into());
    }
    let reasonable = (1..=MOST_QPS).contains(&theirs.qps)
        && (1..=64).contains(&theirs.sizes.len())
        && theirs
            .sizes
            .iter()
            .all(|size| (1..=MOST_BYTES).contains(size) && size.saturating_mul(theirs.qps) <= MOST_IN_ALL)
        && theirs.amount.is_sound();
    if !reasonable {
        return Err(
            "the client requests more queue pairs, sizes or bytes, or less time, than this version allows".into()
        );
    }
    let flags = [
        ("-c", ours.connection == theirs.connection),
        ("-m", ours.mtu == theirs.mtu),
        ("-b", ours.both_ways == theirs.both_ways),
        ("-R", ours.rdma_cm == theirs.rdma_cm),
    ];
    for (flag, same) in flags {
        if !same {
            return Err(format!("{flag} differs between client and server: give both the same").into());
        }
    }
    let mut plan = plan.clone();
    plan.agreed = theirs;
    Ok(plan)
}

fn addresses(qps: &[TestQp]) -> Result<Vec<Address>, Failure> {
    qps.iter().map(TestQp::address).collect()
}

fn connect(qps: &mut [TestQp], ends: &[Address]) -> Result<(), Failure> {
    paired(qps, ends)?.try_for_each(|(qp, end)| qp.connect(end))
}

/// Targets the memory of the other end, of queue pairs that the connection manager has connected.
fn aim(qps: &mut [TestQp], ends: &[Address]) -> Result<(), Failure> {
    paired(qps, ends)?.for_each(|(qp, end)| qp.aim_at(end));
    Ok(())
}

fn paired<'a>(
    qps: &'a mut [TestQp],
    ends: &'a [Address],
) -> Result<impl Iterator<Item = (&'a mut TestQp, &'a Address)>, Failure> {
    if qps.len() != ends.len() {
        return Err(format!("the other end has {} queue pairs, this one {}", ends.len(), qps.len()).into());
    }
    Ok(qps.iter_mut().zip(ends))
}

#[cfg(test)]
mod tests {
    use std::str::FromStr as _;

    use hdrhistogram::Histogram;
    use mlx5_dv::queue::{Peer as QueuePairAddress, RemoteAddress};
    use serde_json::{Value, json};

    use super::super::arguments::{Amount, AtomicType, Connection, Goal, Operation, Test};
    use super::super::report::{Bandwidths, Latencies, Report};
    use super::*;

    fn agreed() -> Agreed {
        let amount = Amount::Messages { warm_up: 0, counted: 5 };
        let (test, operation, sizes) = (Test::Bw, Operation::Send, vec![64]);
        Agreed {
            test,
            operation,
            connection: Connection::Rc,
            atomic_type: AtomicType::FetchAdd,
            sizes,
            amount,
            qps: 1,
            both_ways: false,
            mtu: 1024,
            rdma_cm: false,
        }
    }

    #[test]
    fn a_server_takes_what_it_was_started_for_and_nothing_beyond_the_limits() {
        let (plan, second) = (Plan::example(agreed()), Duration::from_secs(1));
        assert_eq!(agree(&plan, Agreed { sizes: vec![2, 4], qps: 3, ..agreed() }).unwrap().agreed.qps, 3);
        for (theirs, message) in [
            (Agreed { operation: Operation::Read, ..agreed() }, "bw read"),
            (Agreed { test: Test::Lat, ..agreed() }, "lat send"),
            (Agreed { mtu: 256, ..agreed() }, "-m differs"),
            (Agreed { connection: Connection::Uc, ..agreed() }, "-c differs"),
            (Agreed { both_ways: true, ..agreed() }, "-b differs"),
            (Agreed { rdma_cm: true, ..agreed() }, "-R differs"),
            (Agreed { qps: 0, ..agreed() }, "than this version allows"),
            (Agreed { qps: usize::MAX, ..agreed() }, "than this version allows"),
            (Agreed { sizes: vec![], ..agreed() }, "than this version allows"),
            (Agreed { sizes: vec![0], ..agreed() }, "than this version allows"),
            (Agreed { sizes: vec![usize::MAX], ..agreed() }, "than this version allows"),
            (Agreed { sizes: vec![1 << 30], qps: 17, ..agreed() }, "than this version allows"),
            (Agreed { amount: Amount::Time { total: second, margin: second / 2 }, ..agreed() }, "less time"),
            (Agreed { amount: Amount::Time { total: second, margin: 2 * second }, ..agreed() }, "less time"),
        ] {
            let error = agree(&plan, theirs).expect_err(message).to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    /// A queue pair, as text.
    const PEER: &str = "0000:000057:5a3c1d:00000000000000000000ffff0a000001:02:00:c5:00:00:01";

    /// One of each message, as it goes over the wire.
    fn messages() -> Vec<Value> {
        let platform = || Platform {
            device: "sim".into(),
            board_id: Some("MT_0000000001".into()),
            firmware: "16.35.4030".into(),
            software_card: Some(true),
        };
        let (peer, memory) = (QueuePairAddress::from_str(PEER).unwrap(), RemoteAddress { addr: 0x1000, rkey: 0x100 });
        let end: Address = serde_json::from_value(json!({ "peer": peer, "memory": memory })).unwrap();
        let mut times = Histogram::<u64>::new(3).unwrap();
        times.record(2000).unwrap();
        let time = Amount::Time { total: Duration::from_secs(9), margin: Duration::from_secs(2) };
        let rows = vec![
            Measured::Latency(Latencies::of(64, &times, 2).unwrap()),
            Measured::Bandwidth(Bandwidths::of(64, 5, 1e6, Some(2e6))),
        ];
        let ends = vec![end.clone(), end];
        let all = [
            Message::Hello { version: VERSION, agreed: agreed(), platform: platform(), ends: ends.clone() },
            Message::Hello {
                version: VERSION,
                agreed: Agreed { amount: time, ..agreed() },
                platform: platform(),
                ends: ends.clone(),
            },
            Message::Welcome { platform: platform(), ends },
            Message::Connected,
            Message::Begin(64),
            Message::Ready,
            Message::Done,
            Message::Checked(rows.last().cloned()),
            Message::Results(rows),
            Message::Failed("no memory".into()),
        ];
        all.iter().map(|message| serde_json::to_value(message).unwrap()).collect()
    }

    /// Paths of all values within `value`, its own the first.
    fn values(value: &Value, path: &str, all: &mut Vec<String>) {
        all.push(path.to_owned());
        match value {
            Value::Array(items) => {
                items.iter().enumerate().for_each(|(index, item)| values(item, &format!("{path}/{index}"), all));
            }
            Value::Object(members) => {
                members.iter().for_each(|(name, member)| values(member, &format!("{path}/{name}"), all));
            }
            _ => {}
        }
    }

    /// What a stranger may say in place of something else.
    fn odd(which: usize) -> Value {
        let deep = (0..100).fold(json!([]), |inner, _| json!([inner]));
        let all = [
            json!(null),
            json!(true),
            json!(0),
            json!(-1),
            json!(u64::MAX),
            json!(i64::MIN),
            json!(1e300),
            json!(-1e-300),
            json!(""),
            json!("fe80::1"),
            json!(PEER),
            json!("ffff:ffffff:ffffff:00000000000000000000000000000000:ff:ff:ff:ff:ff:ff"),
            json!([]),
            json!({}),
            json!({ "secs": u64::MAX, "nanos": 999_999_999 }),
            json!({ "Messages": { "warm_up": u64::MAX, "counted": u64::MAX } }),
            json!({ "Latency": {} }),
            deep,
        ];
        all[which % all.len()].clone()
    }

    /// Does with a message what an end does, as far as that needs no card. What is agreed on is within the limits.
    fn digest(line: &[u8]) {
        let plan = Plan::example(agreed());
        match message_of(line) {
            Ok(Message::Hello { agreed: theirs, platform, .. }) => {
                let _ = platform.to_string();
                let Ok(plan) = agree(&plan, theirs) else { return };
                let Agreed { sizes, qps, amount, .. } = &plan.agreed;
                assert!((1..=MOST_QPS).contains(qps) && sizes.iter().all(|size| (1..=MOST_BYTES).contains(size)));
                let _ = (plan.agreed.largest(), plan.cq_mod(plan.agreed.largest()), Goal::from(*amount));
            }
            Ok(Message::Welcome { platform, .. }) => _ = platform.to_string(),
            Ok(Message::Checked(theirs)) => {
                let ours = Measured::Bandwidth(Bandwidths::of(64, 5, 1e6, None));
                let _ = ours.and(theirs).line(true);
            }
            Ok(Message::Results(rows)) => rows.iter().for_each(|row| {
                let _ = (row.line(false), row.line(true));
                let report = Report { plan: &plan, platforms: &[], gbits: false, rows: &rows };
                let _ = (report.json(), report.foot());
            }),
            Ok(message) => assert!(unexpected::<()>(&message).is_err()),
            Err(_) => {}
        }
    }

    #[test]
    fn each_message_is_read_as_it_was_written() {
        for message in messages() {
            let line = serde_json::to_vec(&message).unwrap();
            match message_of(&line) {
                Ok(read) => assert_eq!(serde_json::to_value(&read).unwrap(), message),
                Err(error) => assert_eq!(error.to_string(), "the other end failed: no memory"),
            }
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config { cases: 1024, ..Default::default() })]

        /// Messages of which some values, or bytes, are others: no panic, and nothing beyond the limits.
        #[test]
        fn what_a_stranger_says_panics_nowhere(
            which in 0..10usize,
            changes in proptest::collection::vec((0..1000usize, 0..1000usize), 0..4),
            flips in proptest::collection::vec((0..4096usize, 0..=255u8), 0..3),
        ) {
            let mut message = messages().swap_remove(which);
            for (place, what) in changes {
                let mut paths = Vec::new();
                values(&message, "", &mut paths);
                if let Some(value) = message.pointer_mut(&paths[place % paths.len()]) {
                    *value = odd(what);
                }
            }
            let mut line = serde_json::to_vec(&message).unwrap();
            for (at, byte) in flips {
                let at = at % line.len();
                line[at] = byte;
            }
            digest(&line);
        }
    }

    #[test]
    fn what_is_no_word_is_refused_and_a_reason_is_passed_on() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stranger = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut peer = Peer::new(listener.accept().unwrap().0).unwrap();
        stranger.write_all(b"GET / HTTP/1.1\n{\"Failed\":\"no memory\"}\n").unwrap();
        assert!(peer.receive().unwrap_err().to_string().contains("no `mlx5 perf`"));
        assert_eq!(peer.receive().unwrap_err().to_string(), "the other end failed: no memory");
        drop(stranger);
        assert!(peer.receive().unwrap_err().to_string().contains("is gone"));
    }
}
