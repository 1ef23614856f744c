//! Many connections by one connection manager: librdmacm's `ucmatose` on this driver, or with `--datagrams` `udaddy`.
//!
//! Without a host both ends run in this process, on two functions of one software card. `--listen` waits for clients;
//! HOST connects to a server. The other end may be `ucmatose`: the server sends on each connection, the client answers,
//! the server disconnects. With datagrams, the client sends and the server answers. With `-C 0` it is `cmtime`: there
//! are connections alone, and the client disconnects.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use clap::Parser;
use mlx5_cm::{ConnectionId, ConnectionManager, Event, Parameters, Service, UDP_QKEY};
use mlx5_dv::objects::{AccessFlags, AddressHandle, Buffer, ExclusiveRegion, MemoryRegion, Pd};
use mlx5_dv::queue::{Connection, ConnectionOptions, DatagramOptions, DatagramQueue, GRH, Operation, Side};
use mlx5_examples::managed::{End, EndOptions, PATIENCE, route};
use mlx5_examples::pingpong::Failure;
use mlx5_open::program;

/// How long a queue pair takes to be made, at most: 4.096 us * 2^18, a second.
const SOON: u8 = 18;

/// Sends messages over many connections of one connection manager.
#[derive(Debug, Clone, Parser)]
#[command(name = "cm_messages")]
struct Options {
    #[command(flatten)]
    end: EndOptions,
    /// Datagrams instead of connections.
    #[arg(long)]
    datagrams: bool,
    /// Port of the server. Default: 7471, or 7174 with datagrams.
    #[arg(short, long)]
    port: Option<u16>,
    /// Number of connections.
    #[arg(short = 'c', long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    connections: u32,
    /// Messages of a connection, each way. With 0 the client disconnects once it has all connections.
    #[arg(short = 'C', long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=1024))]
    count: u32,
    /// Bytes of each.
    #[arg(short = 'S', long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1024))]
    size: u32,
}

impl Options {
    fn service(&self) -> Service {
        match self.datagrams {
            true => Service::udp(self.port.unwrap_or(7174)),
            false => Service::tcp(self.port.unwrap_or(7471)),
        }
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    program::run("cm_messages", || {
        if options.datagrams && options.count == 0 {
            return Err("--datagrams needs messages: -C 1 or more".into());
        }
        options.end.run(options.service(), |end| one_end(end, &options))
    })
}

fn one_end(End { device, manager, remote }: End, options: &Options) -> Result<(), Failure> {
    let pd = Pd::alloc(&device)?;
    match (options.datagrams, remote) {
        (false, Some(remote)) => Streams::new(pd, manager, options).client(remote),
        (false, None) => Streams::new(pd, manager, options).server(),
        (true, Some(remote)) => Datagrams::new(pd, manager, options).client(remote),
        (true, None) => Datagrams::new(pd, manager, options).server(),
    }
}

/// The next event. Sleeps on the manager's descriptor, as a loop with other descriptors would.
fn next_event(manager: &mut ConnectionManager) -> Result<(ConnectionId, Event), Failure> {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(event) = manager.poll()? {
            return Ok(event);
        }
        let left = end.checked_duration_since(Instant::now()).ok_or("the other end is silent")?;
        if let (Some(limit), Some(fd)) = (manager.prepare_sleep()?, manager.fd()) {
            let limit = rustix::event::Timespec::try_from(limit.min(left)).ok();
            let fd = rustix::event::PollFd::from_borrowed_fd(fd, rustix::event::PollFlags::IN);
            match rustix::event::poll(&mut [fd], limit.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Connected queue pairs, by connection.
struct Streams<'a> {
    pd: Arc<Pd>,
    manager: ConnectionManager,
    options: &'a Options,
    /// Those that wait for the other end, and those whose messages may go.
    links: HashMap<ConnectionId, Stream>,
    connected: u32,
    /// Those that the other end has disconnected.
    disconnected: u32,
}

struct Stream {
    connection: Connection,
    region: Arc<MemoryRegion>,
    received: u32,
    sent: u32,
}

impl<'a> Streams<'a> {
    fn new(pd: Arc<Pd>, manager: ConnectionManager, options: &'a Options) -> Self {
        Streams { pd, manager, options, links: HashMap::new(), connected: 0, disconnected: 0 }
    }

    /// A queue pair with its receives posted. Sends have the first half of the region.
    fn stream(&self) -> Result<Stream, Failure> {
        let (count, size) = (self.options.count as usize, self.options.size as usize);
        let region = MemoryRegion::allocate(&self.pd, 2 * count.max(1) * size, AccessFlags::LOCAL_WRITE)?;
        let mut options = ConnectionOptions::default();
        (options.send_depth, options.recv_depth) = (self.options.count.max(1), self.options.count.max(1));
        let mut connection = Connection::new(&self.pd, options)?;
        for slot in count..2 * count {
            connection.receive(region.buffer(slot * size..(slot + 1) * size)?)?;
        }
        Ok(Stream { connection, region, received: 0, sent: 0 })
    }

    fn client(mut self, remote: SocketAddr) -> Result<(), Failure> {
        let mut waiting = HashMap::new();
        for _ in 0..self.options.connections {
            let stream = self.stream()?;
            let parameters = Parameters::new(stream.connection.queue_pair().qpn(), 0);
            waiting.insert(self.manager.connect(remote, route(), &parameters)?, stream);
        }
        while self.connected < self.options.connections {
            match next_event(&mut self.manager)? {
                (id, Event::ConnectResponse { .. }) => {
                    let mut stream = waiting.remove(&id).ok_or("a response to no request")?;
                    let (rtr, rts) = self.manager.attributes(id)?;
                    stream.connection.connect_by(&rtr, &rts)?;
                    self.manager.ready(id, &[])?;
                    self.links.insert(id, stream);
                    self.connected += 1;
                }
                (_, other) => return Err(format!("no connection to {remote}: {other}").into()),
            }
        }
        println!("{} connected to {remote}", self.connected);
        match self.options.count {
            0 => self.disconnect_all()?,
            _ => self.exchange(true)?,
        }
        self.part()
    }

    fn server(mut self) -> Result<(), Failure> {
        while self.connected < self.options.connections {
            match next_event(&mut self.manager)? {
                (id, Event::ConnectRequest { .. }) if self.links.len() as u32 == self.options.connections => {
                    self.manager.reject(id, b"full")?;
                }
                (id, Event::ConnectRequest { .. }) => {
                    // The client need not ask again meanwhile.
                    self.manager.delay(id, SOON)?;
                    let mut stream = self.stream()?;
                    let (rtr, rts) = self.manager.attributes(id)?;
                    stream.connection.connect_by(&rtr, &rts)?;
                    self.manager.accept(id, &Parameters::new(stream.connection.queue_pair().qpn(), rtr.rq_psn))?;
                    self.links.insert(id, stream);
                }
                (_, Event::Established { .. }) => self.connected += 1,
                // Without messages a client may leave before the next one comes.
                (_, Event::Disconnected { confirmed: true, .. }) if self.options.count == 0 => self.disconnected += 1,
                (_, Event::TimewaitExit) => {}
                (_, other) => return Err(format!("a connection failed: {other}").into()),
            }
        }
        println!("{} clients connected", self.connected);
        if self.options.count > 0 {
            self.send_all()?;
            self.exchange(false)?;
            self.disconnect_all()?;
        }
        self.part()
    }

    fn disconnect_all(&mut self) -> Result<(), Failure> {
        for id in self.links.keys() {
            self.manager.disconnect(*id, &[])?;
        }
        Ok(())
    }

    fn send_all(&mut self) -> Result<(), Failure> {
        for stream in self.links.values_mut() {
            stream.send_all(self.options)?;
        }
        Ok(())
    }

    /// Until all have come and gone. `answers`: a connection sends when all of its own have come.
    fn exchange(&mut self, answers: bool) -> Result<(), Failure> {
        let (count, end) = (self.options.count, Instant::now() + PATIENCE);
        while self.links.values().any(|stream| (stream.sent, stream.received) != (count, count)) {
            // Before the completions: the server disconnects as soon as its own messages are complete. Those of a
            // connection that was disconnected after its last message are in the CQ by then.
            let event = self.manager.poll()?;
            for stream in self.links.values_mut() {
                while let Some(done) = stream.connection.poll()? {
                    match done.result?.operation {
                        Operation::Received => stream.received += 1,
                        _ => stream.sent += 1,
                    }
                    if answers && stream.received == count && stream.sent == 0 {
                        stream.send_all(self.options)?;
                    }
                }
            }
            if let Some((id, event)) = event {
                let all = self.links.get(&id).is_some_and(|stream| (stream.sent, stream.received) == (count, count));
                match event {
                    Event::Disconnected { confirmed, .. } if all => self.disconnected += u32::from(confirmed),
                    event => return Err(format!("a connection failed in the middle: {event}").into()),
                }
            }
            if Instant::now() > end {
                return Err("messages are missing".into());
            }
            std::thread::yield_now();
        }
        println!("{count} messages of {} bytes each way on each connection", self.options.size);
        Ok(())
    }

    /// Until all connections have ended, and are forgotten.
    fn part(mut self) -> Result<(), Failure> {
        let mut confirmed = self.disconnected;
        while self.manager.connections() > 0 {
            if let (_, Event::Disconnected { confirmed: true, .. }) = next_event(&mut self.manager)? {
                confirmed += 1;
            }
        }
        println!("{confirmed} disconnected");
        Ok(())
    }
}

impl Stream {
    fn send_all(&mut self, options: &Options) -> Result<(), Failure> {
        let size = options.size as usize;
        for slot in 0..options.count as usize {
            self.connection.send(self.region.buffer(slot * size..(slot + 1) * size)?)?;
        }
        Ok(())
    }
}

/// Queue pairs for datagrams.
struct Datagrams<'a> {
    pd: Arc<Pd>,
    manager: ConnectionManager,
    options: &'a Options,
}

/// A queue pair, whose receives are posted, its buffers of sends, and its remote.
struct Talk {
    queue: DatagramQueue,
    spare: Vec<Buffer>,
    remote: IpAddr,
    to: Option<AddressHandle>,
    received: u32,
    sent: u32,
}

impl<'a> Datagrams<'a> {
    fn new(pd: Arc<Pd>, manager: ConnectionManager, options: &'a Options) -> Self {
        Datagrams { pd, manager, options }
    }

    fn talk(&self, remote: IpAddr) -> Result<Talk, Failure> {
        let (count, size) = (self.options.count as usize, self.options.size as usize);
        let slot = GRH + size;
        let region = ExclusiveRegion::allocate(&self.pd, 2 * count * slot)?;
        let buffer = |number: usize, len: usize| region.buffer(number * slot..number * slot + len);
        let options = DatagramOptions::new(UDP_QKEY).send_depth(self.options.count).recv_depth(self.options.count);
        let mut queue = DatagramQueue::new(&self.pd, options)?;
        let mut receives = queue.receives();
        for number in 0..count {
            receives.receive(buffer(number, slot)?)?;
        }
        receives.ring();
        let spare = (count..2 * count).map(|number| buffer(number, size)).collect::<Result<_, _>>()?;
        Ok(Talk { queue, spare, remote, to: None, received: 0, sent: 0 })
    }

    /// Where to send: queue pair `qpn` of the talk's remote.
    fn address(&self, talk: &Talk, qpn: u32, qkey: u32) -> Result<AddressHandle, Failure> {
        let path = self.manager.path(talk.remote)?;
        Ok(AddressHandle::new(talk.queue.queue_pair().device(), &path, qpn, qkey)?)
    }

    fn client(mut self, remote: SocketAddr) -> Result<(), Failure> {
        for _ in 0..self.options.connections {
            self.manager.resolve(remote, &[])?;
        }
        let mut talks = Vec::new();
        while talks.len() < self.options.connections as usize {
            match next_event(&mut self.manager)? {
                (_, Event::Resolved { qpn, qkey, .. }) => {
                    let mut talk = self.talk(remote.ip())?;
                    talk.to = Some(self.address(&talk, qpn, qkey)?);
                    talks.push(talk);
                }
                (_, other) => return Err(format!("no service at {remote}: {other}").into()),
            }
        }
        println!("{} queue pairs found at {remote}", talks.len());
        for talk in &mut talks {
            talk.send_all()?;
        }
        self.exchange(&mut talks)
    }

    fn server(mut self) -> Result<(), Failure> {
        let mut talks = Vec::new();
        while talks.len() < self.options.connections as usize {
            match next_event(&mut self.manager)? {
                (id, Event::ResolveRequest { remote, .. }) => {
                    let talk = self.talk(remote.ip())?;
                    self.manager.answer(id, talk.queue.queue_pair().qpn(), UDP_QKEY, &[])?;
                    talks.push(talk);
                }
                (_, other) => return Err(format!("a request failed: {other}").into()),
            }
        }
        println!("{} clients asked", talks.len());
        self.exchange(&mut talks)
    }

    /// Until all have come and gone. Who has nowhere to send yet answers what comes: its sender says its queue pair.
    fn exchange(mut self, talks: &mut [Talk]) -> Result<(), Failure> {
        let (count, end) = (self.options.count, Instant::now() + PATIENCE);
        while talks.iter().any(|talk| (talk.sent, talk.received) != (count, count)) {
            for talk in &mut *talks {
                while let Some(done) = talk.queue.poll()? {
                    let completion = done.result?;
                    if completion.work.side == Side::Send {
                        talk.sent += 1;
                        continue;
                    }
                    talk.received += 1;
                    if talk.received == count && talk.to.is_none() {
                        let qpn = completion.imm().ok_or("a datagram that does not say its sender")?;
                        talk.to = Some(self.address(talk, qpn, UDP_QKEY)?);
                        talk.send_all()?;
                    }
                }
            }
            // Answers are repeated for a client that missed one.
            self.manager.poll()?;
            if Instant::now() > end {
                return Err("datagrams are missing".into());
            }
            std::thread::yield_now();
        }
        println!("{count} datagrams of {} bytes each way on each queue pair", self.options.size);
        Ok(())
    }
}

impl Talk {
    fn send_all(&mut self) -> Result<(), Failure> {
        let (qpn, to) = (self.queue.queue_pair().qpn(), self.to.as_ref().ok_or("nowhere to send")?);
        let mut batch = self.queue.batch().ok_or("no send queue")?;
        for buffer in self.spare.drain(..) {
            batch.send_imm(to, buffer, qpn)?;
        }
        batch.ring();
        Ok(())
    }
}
