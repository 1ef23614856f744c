//! TCP on a raw Ethernet queue, without the kernel: an iperf3 server and client.
//!
//! `tcp` alone measures between two functions of a software card. `tcp -d DEVICE --ip 10.0.0.4/24` serves
//! `iperf3 -c 10.0.0.4` of another host, with `-R`, `-P` and `-n`, too; `tcp -d DEVICE --ip 10.0.0.4/24 HOST` is the
//! client of `iperf3 -s`. With `-F` the data come from a file, and go to one.
//!
//! iperf3's protocol: a control connection carries states, of a byte each, and JSON; each stream is a connection of its
//! own, which starts with the cookie of the control connection.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use mlx5_dv::Device;
use mlx5_dv::objects::{LroOptions, Pd};
use mlx5_dv::queue::ethernet::{EthernetOptions, EthernetQueue, StridingOptions, StridingQueue};
use mlx5_examples::pingpong::Failure;
use mlx5_examples::stack::{Stack, groups_of, host};
use mlx5_neighbours::Network;
use mlx5_open::{Sim, program};
use mlx5_smoltcp::{Phy, PhyOptions};
use serde_json::{Value, json};
use smoltcp::iface::SocketHandle;

// States of the control connection.
const TEST_START: u8 = 1;
const TEST_RUNNING: u8 = 2;
const TEST_END: u8 = 4;
const PARAM_EXCHANGE: u8 = 9;
const CREATE_STREAMS: u8 = 10;
const EXCHANGE_RESULTS: u8 = 13;
const DISPLAY_RESULTS: u8 = 14;
const IPERF_DONE: u8 = 16;

type Cookie = [u8; 37];
/// Bytes that a stream takes at once.
const BLOCK: usize = 128 << 10;
/// Most bytes of the other end's JSON, and most streams.
const MOST_JSON: u32 = 1 << 20;
const MOST_STREAMS: u64 = 32;

/// TCP on a raw Ethernet queue: an iperf3 server and client.
#[derive(Debug, Clone, Parser)]
#[command(name = "tcp")]
struct Arguments {
    /// The server's address. Without it, serves one client.
    host: Option<IpAddr>,
    /// Device: vfio:0000:3b:00.0, vfio-user:/run/nic.sock; by default two functions of a software card.
    #[arg(short, long, requires = "ip")]
    device: Option<String>,
    /// Own IP address, such as 10.0.0.4/24.
    #[arg(long, value_name = "ADDRESS/PREFIX[,GATEWAY]", requires = "device")]
    ip: Option<Network>,
    /// Port of the server.
    #[arg(short, long, default_value_t = 5201)]
    port: u16,
    /// Client: bytes to send; 0 with -F means the whole file.
    #[arg(short = 'n', long, default_value_t = 16 << 20)]
    bytes: u64,
    /// Client: streams at once, 1 to 32.
    #[arg(short = 'P', long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=32))]
    parallel: u8,
    /// Send this file, or write what is received to it. One stream alone.
    #[arg(short = 'F', long)]
    file: Option<PathBuf>,
    /// Receive by a striding queue.
    #[arg(long)]
    striding: bool,
    /// Let the card join TCP segments (LRO).
    #[arg(long)]
    lro: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    program::run("tcp", || match (&arguments.device, arguments.ip) {
        (Some(name), Some(ip)) => {
            let device = mlx5_open::open(name)?;
            run(&device, ip, &arguments)
        }
        _ => both(&arguments),
    })
}

/// Both ends, on two functions of a software card.
fn both(arguments: &Arguments) -> Result<(), Failure> {
    let sim = Sim::builder().functions(2).build()?;
    let (near, far) = (sim.open(0)?, sim.open(1)?);
    let (ours, theirs) = (host([10, 0, 0], 1), host([10, 0, 0], 2));
    let client = Arguments { host: Some(theirs.address()), ..arguments.clone() };
    let server = Arguments { host: None, file: None, ..arguments.clone() };
    std::thread::scope(|scope| {
        let server = scope.spawn(|| run(&far, theirs, &server));
        run(&near, ours, &client)?;
        server.join().map_err(|_| "the server's thread panicked")?
    })
}

fn run(device: &std::sync::Arc<Device>, ip: Network, arguments: &Arguments) -> Result<(), Failure> {
    let lro = arguments.lro.then(LroOptions::default);
    let mut stack = match arguments.striding {
        false => {
            let mut options = PhyOptions::default();
            options.lro = lro;
            Stack::over(device, Phy::listen(device, &groups_of(ip), options)?, ip)
        }
        true => {
            let pd = Pd::alloc(device)?;
            let mut of_packets = StridingOptions::default();
            (of_packets.events, of_packets.lro) = (true, lro);
            let mut packets = StridingQueue::new(&pd, of_packets)?;
            packets.listen(&groups_of(ip))?;
            let mut of_sends = EthernetOptions::default();
            (of_sends.send_depth, of_sends.recv_depth) = (64, 1);
            Stack::over(device, Phy::striding(packets, EthernetQueue::new(&pd, of_sends)?, 64)?, ip)
        }
    };
    match arguments.host {
        Some(host) => client(&mut stack, SocketAddr::new(host, arguments.port), arguments),
        None => server(&mut stack, arguments),
    }
}

/// Serves one client.
fn server(stack: &mut Stack, arguments: &Arguments) -> Result<(), Failure> {
    let socket = stack.listen(arguments.port)?;
    println!("listening on port {}", arguments.port);
    stack.accept(socket, Duration::MAX)?;
    let mut control = Control { stack, socket };
    let mut cookie: Cookie = [0; 37];
    control.stack.read(socket, &mut cookie)?;
    control.say(PARAM_EXCHANGE)?;
    let parameters = control.hear_json()?;
    let number = |name: &str| parameters[name].as_u64().unwrap_or_default();
    let count = number("parallel").max(1);
    if parameters["tcp"] != true || count > MOST_STREAMS || parameters["bidirectional"] == true {
        return Err(format!("only TCP, one way, up to {MOST_STREAMS} streams: {parameters}").into());
    }
    let streams = (0..count).map(|_| control.stack.listen(arguments.port)).collect::<Result<Vec<_>, _>>()?;
    control.say(CREATE_STREAMS)?;
    for &stream in &streams {
        control.stack.accept(stream, Duration::from_secs(30))?;
        let mut theirs: Cookie = [0; 37];
        control.stack.read(stream, &mut theirs)?;
        if theirs != cookie {
            return Err("a stream with another cookie than the control connection's".into());
        }
    }
    let mut transfer = Transfer::new(streams, arguments.file.as_ref(), parameters["reverse"] == true)?;
    control.say(TEST_START)?;
    control.say(TEST_RUNNING)?;
    match transfer.sends {
        true => transfer.send_until(&mut control)?,
        false => transfer.receive_until(&mut control)?,
    }
    control.say(EXCHANGE_RESULTS)?;
    let theirs = control.hear_json()?;
    if !transfer.sends {
        transfer.receive_rest(&mut control, &theirs)?;
    }
    control.say_json(&transfer.results())?;
    control.say(DISPLAY_RESULTS)?;
    let last = control.hear()?;
    control.stack.close(socket);
    transfer.print(control.stack);
    if last == IPERF_DONE { Ok(()) } else { Err(format!("state {last} in place of {IPERF_DONE}").into()) }
}

/// Sends to a server.
fn client(stack: &mut Stack, server: SocketAddr, arguments: &Arguments) -> Result<(), Failure> {
    let socket = stack.connect(server)?;
    let mut control = Control { stack, socket };
    let mut cookie: Cookie = *b"mlx5 example tcp: one of its cookies.";
    cookie[36] = 0;
    control.stack.write(socket, &cookie)?;
    control.expect(PARAM_EXCHANGE)?;
    let (streams, bytes) = (arguments.parallel, arguments.bytes);
    control.say_json(&json!({
        "tcp": true, "omit": 0, "time": 0, "num": bytes, "blockcount": 0, "parallel": streams, "len": BLOCK,
        "pacing_timer": 1000, "client_version": "3.18",
    }))?;
    control.expect(CREATE_STREAMS)?;
    let mut all = Vec::new();
    for _ in 0..streams {
        let stream = control.stack.connect(server)?;
        control.stack.write(stream, &cookie)?;
        all.push(stream);
    }
    control.expect(TEST_START)?;
    control.expect(TEST_RUNNING)?;
    let mut transfer = Transfer::new(all, arguments.file.as_ref(), true)?;
    transfer.send_all(&mut control, bytes)?;
    control.say(TEST_END)?;
    control.expect(EXCHANGE_RESULTS)?;
    control.say_json(&transfer.results())?;
    let theirs = control.hear_json()?;
    control.expect(DISPLAY_RESULTS)?;
    control.say(IPERF_DONE)?;
    control.stack.close(socket);
    transfer.print(control.stack);
    println!("the server received {} bytes", bytes_of(&theirs).iter().sum::<u64>());
    Ok(())
}

/// The bytes of each stream in an end's results.
fn bytes_of(results: &Value) -> Vec<u64> {
    let streams = results["streams"].as_array().map(Vec::as_slice).unwrap_or_default();
    streams.iter().map(|stream| stream["bytes"].as_u64().unwrap_or_default()).collect()
}

/// The control connection.
struct Control<'a> {
    stack: &'a mut Stack,
    socket: SocketHandle,
}

impl Control<'_> {
    fn say(&mut self, state: u8) -> Result<(), Failure> {
        self.stack.write(self.socket, &[state])
    }

    fn hear(&mut self) -> Result<u8, Failure> {
        let mut state = [0];
        self.stack.read(self.socket, &mut state)?;
        Ok(state[0])
    }

    fn expect(&mut self, state: u8) -> Result<(), Failure> {
        match self.hear()? {
            heard if heard == state => Ok(()),
            heard => Err(format!("the server is in state {heard} in place of {state}").into()),
        }
    }

    fn say_json(&mut self, json: &Value) -> Result<(), Failure> {
        let text = json.to_string();
        self.stack.write(self.socket, &(text.len() as u32).to_be_bytes())?;
        self.stack.write(self.socket, text.as_bytes())
    }

    fn hear_json(&mut self) -> Result<Value, Failure> {
        let mut len = [0; 4];
        self.stack.read(self.socket, &mut len)?;
        let len = u32::from_be_bytes(len);
        if len > MOST_JSON {
            return Err(format!("{len} bytes of JSON, more than {MOST_JSON}").into());
        }
        let mut text = vec![0; len as usize];
        self.stack.read(self.socket, &mut text)?;
        Ok(serde_json::from_slice(&text)?)
    }

    /// Whether the client has ended the test.
    fn has_ended(stack: &mut Stack, socket: SocketHandle) -> Option<Result<(), Failure>> {
        let socket = stack.socket(socket);
        let mut state = [0];
        match socket.recv_slice(&mut state) {
            Ok(0) => None,
            Ok(_) if state[0] == TEST_END => Some(Ok(())),
            Ok(_) => Some(Err(format!("state {} in place of {TEST_END}", state[0]).into())),
            Err(error) => Some(Err(error.into())),
        }
    }
}

/// The data of a test.
struct Transfer {
    streams: Vec<SocketHandle>,
    /// Bytes of each.
    counts: Vec<u64>,
    file: Option<File>,
    sends: bool,
    /// What is sent without a file, or was read from it and not sent yet.
    block: Vec<u8>,
    begin: Instant,
    took: Duration,
}

impl Transfer {
    fn new(streams: Vec<SocketHandle>, file: Option<&PathBuf>, sends: bool) -> Result<Self, Failure> {
        if file.is_some() && streams.len() > 1 {
            return Err("-F is for one stream".into());
        }
        let open = |path| if sends { File::open(path) } else { File::create(path) };
        let file = file.map(open).transpose()?;
        let (counts, begin) = (vec![0; streams.len()], Instant::now());
        // With a file, read as it is sent.
        let block = if file.is_some() { Vec::new() } else { (0..BLOCK).map(|at| (at % 251) as u8).collect() };
        Ok(Transfer { streams, counts, file, sends, block, begin, took: Duration::ZERO })
    }

    /// Takes what has arrived.
    fn take(&mut self, stack: &mut Stack) -> Result<(), Failure> {
        for (&stream, count) in self.streams.iter().zip(&mut self.counts) {
            let socket = stack.socket(stream);
            while socket.can_recv() {
                let file = &mut self.file;
                *count += socket.recv(|bytes| match file {
                    Some(file) => (bytes.len(), file.write_all(bytes).map(|()| bytes.len() as u64)),
                    None => (bytes.len(), Ok(bytes.len() as u64)),
                })??;
            }
        }
        self.took = self.begin.elapsed();
        Ok(())
    }

    /// Receives until the client ends the test.
    fn receive_until(&mut self, control: &mut Control) -> Result<(), Failure> {
        let socket = control.socket;
        loop {
            let ended = control.stack.until("data", |stack| {
                let before = self.counts.clone();
                if let Err(error) = self.take(stack) {
                    return Some(Err(error));
                }
                match Control::has_ended(stack, socket) {
                    Some(ended) => Some(ended.map(|()| true)),
                    None => (before != self.counts).then_some(Ok(false)),
                }
            })??;
            if ended {
                return Ok(());
            }
        }
    }

    /// Receives what the client says that it has sent, and is still under way.
    fn receive_rest(&mut self, control: &mut Control, theirs: &Value) -> Result<(), Failure> {
        let sent: u64 = bytes_of(theirs).iter().sum();
        control.stack.until("rest of the data", |stack| match self.take(stack) {
            Err(error) => Some(Err(error)),
            Ok(()) => (self.counts.iter().sum::<u64>() >= sent).then_some(Ok(())),
        })?
    }

    /// Sends what there is room for; `most` bytes in all, or if that is 0, without an end but the file's. Returns
    /// whether all is sent.
    fn give(&mut self, stack: &mut Stack, most: u64) -> Result<bool, Failure> {
        for index in 0..self.streams.len() {
            let sum: u64 = self.counts.iter().sum();
            if let Some(file) = &mut self.file
                && self.block.is_empty()
            {
                file.take(BLOCK as u64).read_to_end(&mut self.block)?;
            }
            let left = if most == 0 { u64::MAX } else { most - sum };
            let len = self.block.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            if len == 0 {
                return Ok(true);
            }
            let sent = stack.socket(self.streams[index]).send_slice(&self.block[..len])?;
            if self.file.is_some() {
                self.block.drain(..sent);
            }
            self.counts[index] += sent as u64;
        }
        self.took = self.begin.elapsed();
        Ok(false)
    }

    /// Sends until the client ends the test, as iperf3's server does: only the client counts what it asked for.
    fn send_until(&mut self, control: &mut Control) -> Result<(), Failure> {
        let socket = control.socket;
        loop {
            let ended = control.stack.until("room to send, or an end", |stack| {
                let before = self.counts.clone();
                match (self.give(stack, 0), Control::has_ended(stack, socket)) {
                    (_, Some(ended)) => Some(ended.map(|()| true)),
                    (Err(error), None) => Some(Err(error)),
                    (Ok(_), None) => (before != self.counts).then_some(Ok(false)),
                }
            })??;
            if ended {
                return Ok(());
            }
        }
    }

    /// Sends all, and waits until all is acknowledged.
    fn send_all(&mut self, control: &mut Control, most: u64) -> Result<(), Failure> {
        let mut is_given = false;
        while !is_given {
            is_given = control.stack.until("room to send", |stack| {
                let before = self.counts.clone();
                let given = self.give(stack, most);
                (!matches!(given, Ok(false)) || before != self.counts).then_some(given)
            })??;
        }
        for &stream in &self.streams {
            control.stack.until("acknowledgement", |stack| (stack.socket(stream).send_queue() == 0).then_some(()))?;
        }
        self.took = self.begin.elapsed();
        Ok(())
    }

    /// As iperf3 tells them: of streams 1, 3, 4, ...
    fn results(&self) -> Value {
        let id = |index: usize| if index == 0 { 1 } else { index + 2 };
        let stream = |(index, bytes): (usize, &u64)| {
            json!({
                "id": id(index), "bytes": bytes, "retransmits": -1, "jitter": 0, "errors": 0, "packets": 0,
                "start_time": 0, "end_time": self.took.as_secs_f64(),
            })
        };
        let streams: Vec<_> = self.counts.iter().enumerate().map(stream).collect();
        json!({
            "cpu_util_total": 0, "cpu_util_user": 0, "cpu_util_system": 0, "sender_has_retransmits": -1,
            "streams": streams,
        })
    }

    fn print(&self, stack: &Stack) {
        let (bytes, seconds) = (self.counts.iter().sum::<u64>(), self.took.as_secs_f64());
        let (way, streams) = (if self.sends { "sent" } else { "received" }, self.streams.len());
        let rate = bytes as f64 * 8.0 / 1e6 / seconds.max(1e-9);
        println!("{way} {bytes} bytes by {streams} streams in {seconds:.2} s: {rate:.1} Mbit/s");
        println!("frames dropped for want of a buffer: {}", stack.phy().dropped());
        println!("segments joined to others: {}", stack.phy().joined());
    }
}
