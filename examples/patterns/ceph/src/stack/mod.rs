//! The RDMA stack: byte streams ([`Streams`]), and the exchange that makes them (`src/msg/async/rdma/`).
//!
//! The client sends its line with peer number 0; the server connects its queue pair and answers; the client connects,
//! and repeats its line with the server's number. The connection that carried the lines stays: when it ends, the other
//! end's program is gone.

mod lines;
mod neighbours;
mod options;
mod streams;

pub use lines::{Lines, LinkId, Received, TcpLines};
pub use neighbours::{KernelNeighbours, Neighbour, Neighbours, OwnedNeighbours};
pub use options::StackOptions;
pub use streams::{StreamEvent, StreamId, Streams, Why};

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mlx5_dv::clock::Clock;
use mlx5_dv::queue::Peer;
use mlx5_dv::{Device, Error};
use mlx5_neighbours::address_of;

use crate::wire::Line;

/// What happened to a stack.
#[derive(Debug, PartialEq, Eq)]
pub enum StackEvent {
    /// Another end has connected, from this address.
    Accepted(StreamId, SocketAddr),
    /// A stream that was asked for is there.
    Connected(StreamId),
    /// Something happened to a stream. Before it is there, only that it is not going to be.
    Stream(StreamEvent),
}

/// Where an exchange is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The client's first line is not sent.
    Dialled,
    /// The client waits for the server's line.
    Asked,
    /// The client's second line is not sent.
    Answered,
    /// The server waits for the client's first line.
    Accepted,
    /// The server's line is not sent.
    Replying,
    /// The server waits for the client's second line.
    Replied,
    /// Bytes may flow.
    Done,
    /// The other end is gone, unless its FIN comes soon.
    Ended,
}

#[derive(Debug)]
struct Exchange {
    link: LinkId,
    stage: Stage,
    /// Where the client is, for a server.
    from: Option<SocketAddr>,
    /// The other end's queue pair number, once it is known.
    peer: u32,
    /// A line that names an end whose MAC address is being resolved, and when to ask for it again.
    unresolved: Option<(Line, Duration)>,
    /// Until when it has to be there; or until when the FIN may come.
    deadline: Duration,
}

/// How often connections that are being made are looked at, and those that are there.
const SOON: Duration = Duration::from_micros(200);
const LATER: Duration = Duration::from_millis(5);
/// How often a MAC address that is being resolved is asked for.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// How long a FIN may come after the connection of the lines has ended.
const GRACE: Duration = Duration::from_millis(200);

/// Byte streams, and the exchanges that make them.
#[derive(Debug)]
pub struct Stack {
    streams: Streams,
    lines: Box<dyn Lines>,
    neighbours: Box<dyn Neighbours>,
    exchanges: BTreeMap<StreamId, Exchange>,
    events: VecDeque<StackEvent>,
    clock: Clock,
    /// When to look at connections next.
    next_look: Duration,
    is_listening: bool,
}

impl Stack {
    /// A stack on `device`, whose lines go over TCP.
    ///
    /// # Errors
    /// As for [`Streams::new`].
    pub fn new(device: &Arc<Device>, options: StackOptions) -> Result<Self, Error> {
        Self::with_lines(device, options, Box::new(TcpLines::new()))
    }

    /// A stack whose lines go as `lines` carries them.
    ///
    /// # Errors
    /// As for [`Streams::new`].
    pub fn with_lines(device: &Arc<Device>, options: StackOptions, lines: Box<dyn Lines>) -> Result<Self, Error> {
        let neighbours = Box::new(KernelNeighbours::new(device, options.gid_index));
        Ok(Stack {
            streams: Streams::new(device, options)?,
            lines,
            neighbours,
            exchanges: BTreeMap::new(),
            events: VecDeque::new(),
            clock: device.clock().clone(),
            next_look: Duration::ZERO,
            is_listening: false,
        })
    }

    /// Finds MAC addresses by `neighbours`, and not by the kernel's: by [`OwnedNeighbours`] on a function that the
    /// program owns, which other ends do not find without them.
    pub fn find_by(&mut self, neighbours: Box<dyn Neighbours>) {
        self.neighbours = neighbours;
    }

    /// Its streams.
    pub fn streams(&mut self) -> &mut Streams {
        &mut self.streams
    }

    /// The time that it goes by.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Accepts streams at `address`. Returns where it listens.
    ///
    /// # Errors
    /// As for [`Lines::listen`].
    pub fn listen(&mut self, address: SocketAddr) -> io::Result<SocketAddr> {
        let at = self.lines.listen(address)?;
        self.is_listening = true;
        Ok(at)
    }

    /// Starts to connect to a stack that listens at `address`.
    ///
    /// # Errors
    /// As for [`Streams::open`]; [`Error::Io`] as for [`Lines::dial`].
    pub fn connect(&mut self, address: SocketAddr) -> Result<StreamId, Error> {
        let link = self.lines.dial(address).map_err(|error| Error::io("connecting to the other end", error))?;
        let opened = self.streams.open();
        let id = opened.inspect_err(|_| self.lines.close(link))?;
        self.exchange(id, link, Stage::Dialled, None);
        Ok(id)
    }

    fn exchange(&mut self, id: StreamId, link: LinkId, stage: Stage, from: Option<SocketAddr>) {
        let deadline = self.clock.now() + self.streams.options().patience;
        self.exchanges.insert(id, Exchange { link, stage, from, peer: 0, unresolved: None, deadline });
        self.next_look = Duration::ZERO;
    }

    /// Ends a stream after what was written, and the connection that carried its lines.
    pub fn close(&mut self, id: StreamId) {
        self.streams.close(id);
        self.forget(id);
    }

    /// Ends a stream at once.
    pub fn abort(&mut self, id: StreamId) {
        self.streams.abort(id);
        self.forget(id);
    }

    fn forget(&mut self, id: StreamId) {
        if let Some(exchange) = self.exchanges.remove(&id) {
            self.lines.close(exchange.link);
            // Who else waits for it asks again.
            exchange.unresolved.into_iter().for_each(|(line, _)| self.neighbours.forget(line.gid));
        }
    }

    /// What happened next.
    pub fn next_event(&mut self) -> Option<StackEvent> {
        self.events.pop_front()
    }

    /// Serves everything. Returns whether anything happened.
    ///
    /// # Errors
    /// As for [`Streams::poll`].
    pub fn poll(&mut self) -> Result<bool, Error> {
        let mut moved = self.streams.poll()?;
        while let Some(event) = self.streams.next_event() {
            // Bytes come only from an end that is there, whatever became of its last line.
            if let StreamEvent::Readable(id) = event {
                self.is_there(id);
            }
            self.events.push_back(StackEvent::Stream(event));
        }
        let now = self.clock.now();
        if now >= self.next_look {
            moved |= self.streams.look(now) | self.look(now)?;
        }
        Ok(moved)
    }

    /// Waits until [`poll`](Self::poll) may have something to do: for the card, and for a few milliseconds, as the
    /// connections that carry lines are looked at from time to time.
    ///
    /// # Errors
    /// As for [`Streams::wait`].
    pub fn wait(&mut self) -> Result<(), Error> {
        match self.next_look.saturating_sub(self.clock.now()) {
            Duration::ZERO => Ok(()),
            left if self.events.is_empty() => self.streams.wait(left),
            _ => Ok(()),
        }
    }

    /// Looks at the connections that carry lines.
    fn look(&mut self, now: Duration) -> Result<bool, Error> {
        let mut moved = false;
        while self.is_listening
            && let Some((link, from)) = self.lines.accept()
        {
            moved = true;
            match self.streams.open() {
                Ok(id) => self.exchange(id, link, Stage::Accepted, Some(from)),
                Err(error) => {
                    tracing::warn!(%error, %from, "no stream for a client");
                    self.lines.close(link);
                }
            }
        }
        let mut is_busy = false;
        for id in self.exchanges.keys().copied().collect::<Vec<_>>() {
            match self.advance(id, now) {
                Ok(is_done) => is_busy |= !is_done,
                Err(why) => {
                    moved = true;
                    tracing::debug!(%why, "an exchange failed");
                    self.streams.fail(id, why);
                    self.forget(id);
                }
            }
        }
        self.next_look = now + if is_busy { SOON } else { LATER };
        Ok(moved)
    }

    /// Goes on with an exchange. Returns whether it is done.
    fn advance(&mut self, id: StreamId, now: Duration) -> Result<bool, Why> {
        let Some(&Exchange { link, stage, deadline, peer, unresolved, .. }) = self.exchanges.get(&id) else {
            return Ok(true);
        };
        if stage == Stage::Ended {
            return if now >= deadline { Err(Why::Gone) } else { Ok(true) };
        }
        let next = match stage {
            _ if unresolved.is_some_and(|(_, again)| now < again) => None,
            Stage::Dialled => self.say(id, link, 0)?.then_some(Stage::Asked),
            Stage::Answered => self.say(id, link, peer)?.then_some(Stage::Done),
            Stage::Replying => self.say(id, link, peer)?.then_some(Stage::Replied),
            _ => match unresolved {
                Some((line, _)) => self.activate(id, stage, line, now)?,
                None => self.listen_to(id, link, stage, now)?,
            },
        };
        match next {
            None if stage != Stage::Done && now >= deadline => {
                let what = unresolved.map(|(line, _)| format!("no MAC address for {}", address_of(line.gid)));
                Err(Why::Exchange(what.unwrap_or_else(|| "no answer in time".into())))
            }
            None => Ok(stage == Stage::Done),
            Some(Stage::Done) => {
                self.is_there(id);
                Ok(true)
            }
            Some(next) => {
                if let Some(exchange) = self.exchanges.get_mut(&id) {
                    exchange.stage = next;
                    if next == Stage::Ended {
                        exchange.deadline = now + GRACE;
                    }
                }
                Ok(false)
            }
        }
    }

    /// Takes what the other end says. Returns the next stage, if it is reached.
    fn listen_to(&mut self, id: StreamId, link: LinkId, stage: Stage, now: Duration) -> Result<Option<Stage>, Why> {
        match self.lines.receive(link).map_err(failed)? {
            Received::Nothing => Ok(None),
            Received::Closed if stage == Stage::Done => Ok(Some(Stage::Ended)),
            Received::Closed => Err(Why::Gone),
            Received::Line(line) => self.hear(id, stage, &line, now),
        }
    }

    /// Sends this end's line. Returns whether it is sent.
    fn say(&mut self, id: StreamId, link: LinkId, peer_qpn: u32) -> Result<bool, Why> {
        let line = Line::new(&self.streams.local(id).map_err(failed)?, peer_qpn);
        self.lines.send(link, &line.to_bytes()).map_err(failed)
    }

    /// Tells that a stream is there, once.
    fn is_there(&mut self, id: StreamId) {
        let Some(exchange) = self.exchanges.get_mut(&id) else { return };
        if !matches!(exchange.stage, Stage::Done | Stage::Ended) {
            exchange.stage = Stage::Done;
            self.events.push_back(match exchange.from {
                Some(from) => StackEvent::Accepted(id, from),
                None => StackEvent::Connected(id),
            });
        }
    }

    /// Takes a line of the other end. Returns the next stage, if it is reached.
    fn hear(
        &mut self,
        id: StreamId,
        stage: Stage,
        line: &[u8; Line::BYTES],
        now: Duration,
    ) -> Result<Option<Stage>, Why> {
        let line = Line::from_bytes(line).map_err(|error| Why::Exchange(error.to_string()))?;
        let ours = self.streams.local(id).map_err(failed)?;
        match stage {
            Stage::Asked if line.peer_qpn == 0 || line.peer_qpn == ours.qpn => self.activate(id, stage, line, now),
            Stage::Accepted if line.peer_qpn == 0 => self.activate(id, stage, line, now),
            // The client's first bytes may have come before.
            Stage::Replied | Stage::Done if line.peer_qpn == ours.qpn => Ok(Some(Stage::Done)),
            _ => Err(Why::Exchange(format!("{line} is for another queue pair than {:#x}", ours.qpn))),
        }
    }

    /// Connects to the queue pair that `line` names, once its MAC address is known. Returns the next stage then.
    fn activate(&mut self, id: StreamId, stage: Stage, line: Line, now: Duration) -> Result<Option<Stage>, Why> {
        let ours = self.streams.local(id).map_err(failed)?.gid;
        let (ours, theirs) = (address_of(ours), address_of(line.gid));
        if ours.is_ipv4() != theirs.is_ipv4() {
            let what =
                format!("the other end's GID is {theirs}, and ours {ours}: give both ends GIDs of one IP version");
            return Err(Why::Exchange(what));
        }
        let Neighbour::Known(mac) = self.neighbours.mac_of(line.gid).map_err(failed)? else {
            if let Some(exchange) = self.exchanges.get_mut(&id) {
                exchange.unresolved = Some((line, now + ASK_AGAIN));
            }
            return Ok(None);
        };
        let Some(exchange) = self.exchanges.get_mut(&id) else { return Ok(None) };
        (exchange.peer, exchange.unresolved) = (line.qpn, None);
        self.streams.activate(id, &Peer { mac, ..line.peer() }).map_err(failed)?;
        Ok(Some(if stage == Stage::Asked { Stage::Answered } else { Stage::Replying }))
    }
}

fn failed(error: impl std::fmt::Display) -> Why {
    Why::Exchange(error.to_string())
}
