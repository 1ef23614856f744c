//! A client that does as a test likes: it speaks by a connection of its own, and posts receives or not.

use std::sync::Arc;

use mlx5_ceph::msgr2::{Heard, Identity, Message, Protocol, Session, State};
use mlx5_ceph::stack::{Lines, LinkId, Received};
use mlx5_ceph::wire::{EntityAddress, EntityKind, EntityName, Limits, Line};
use mlx5_dv::objects::{Buffer, ExclusiveRegion, Pd, RtsAttributes};
use mlx5_dv::queue::{Connection, ConnectionOptions, Side};
use mlx5_prm::values::PathMtu;

use super::{MemoryLines, Pair, SERVER};

/// Bytes of its chunks, and how many it has for each direction.
const CHUNK: usize = 1024;
const CHUNKS: usize = 8;

pub struct Stranger {
    lines: MemoryLines,
    link: LinkId,
    connection: Connection,
    protocol: Protocol,
    free: Vec<Buffer>,
    is_connected: bool,
    /// Whether receives are posted again.
    pub reads: bool,
    /// Bytes to send as they are, behind what the protocol says.
    pub raw: Vec<u8>,
    /// Whether it says nothing else.
    pub is_raw: bool,
    /// Whether its queue pair has failed: the server has ended the connection.
    pub is_broken: bool,
    _region: ExclusiveRegion,
}

impl Stranger {
    /// One that calls the server from the first card. Strangers of different numbers are different clients.
    pub fn call(pair: &Pair, number: u32) -> Self {
        let pd = Pd::alloc(&pair.devices[0]).unwrap();
        let mut options = ConnectionOptions::default();
        (options.send_depth, options.recv_depth) = (CHUNKS as u32, CHUNKS as u32);
        options.path_mtu = Some(PathMtu::Mtu1024);
        options.rts = RtsAttributes {
            timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
            max_rd_atomic: Some(1),
            ..RtsAttributes::new(0)
        };
        let mut connection = Connection::new(&pd, options).unwrap();
        let region = ExclusiveRegion::allocate(&pd, 2 * CHUNKS * CHUNK).unwrap();
        let mut free = region.buffers(CHUNK).unwrap();
        for buffer in free.drain(..CHUNKS) {
            connection.receive(buffer).unwrap();
        }
        let lines = pair.lines[0].clone();
        let link = lines.call(format!("10.0.1.{number}:40000").parse().unwrap());
        lines.say(link, Line::new(&connection.local().unwrap(), 0).to_bytes());
        let address = EntityAddress { kind: EntityAddress::MSGR2, nonce: number, socket: None };
        let name = EntityName { kind: EntityKind::CLIENT, number: number.into() };
        let identity = Identity { name, addresses: vec![address], is_lossy: true, limits: Limits::default() };
        let server = EntityAddress::msgr2(SERVER.parse().unwrap(), 0);
        let protocol = Protocol::client(Arc::new(identity), server, Session::default(), number.into());
        Stranger {
            lines,
            link,
            connection,
            protocol,
            free,
            is_connected: false,
            reads: true,
            raw: vec![],
            is_raw: false,
            is_broken: false,
            _region: region,
        }
    }

    /// Whether its session is there.
    pub fn is_ready(&self) -> bool {
        self.protocol.state() == State::Ready
    }

    /// Whether the server has taken all that it had to say.
    pub fn has_said_all(&self) -> bool {
        self.protocol.to_send() == 0 && self.raw.is_empty() && self.free.len() == CHUNKS
    }

    /// Whether its card has nothing left to receive into.
    pub fn is_full(&self) -> bool {
        self.connection.in_flight().1 == 0
    }

    pub fn send(&mut self, message: Message) {
        self.protocol.session().push(message);
    }

    /// Serves it. Returns the messages that came.
    pub fn turn(&mut self) -> Vec<Message> {
        if !self.is_connected {
            let Received::Line(line) = self.lines.receive(self.link).unwrap() else { return vec![] };
            let line = Line::from_bytes(&line).unwrap();
            self.connection.connect(&line.peer()).unwrap();
            self.lines.say(self.link, Line::new(&self.connection.local().unwrap(), line.qpn).to_bytes());
            self.is_connected = true;
        }
        let mut messages = vec![];
        while let Some(done) = self.connection.poll().unwrap() {
            let side = done.result.as_ref().map_or_else(|error| error.work.side, |done| done.work.side);
            self.is_broken |= done.result.is_err();
            if side == Side::Send {
                self.free.extend(done.buffer);
                continue;
            }
            let mut bytes = done.received().unwrap_or_default();
            // The server's FIN.
            self.is_broken |= bytes.is_empty();
            while let Some(heard) = self.protocol.hear(&mut bytes).unwrap() {
                if let Heard::Message(message) = heard {
                    messages.push(message);
                }
            }
            if let Some(mut buffer) = done.buffer.filter(|_| self.reads && !self.is_broken) {
                buffer.set_len(CHUNK);
                self.connection.receive(buffer).unwrap();
            }
        }
        self.talk();
        messages
    }

    fn talk(&mut self) {
        self.protocol.pump();
        if self.is_raw {
            self.protocol.taken(self.protocol.to_send());
        }
        while !self.is_broken && (self.protocol.to_send() > 0 || !self.raw.is_empty()) {
            let Some(mut buffer) = self.free.pop() else { return };
            buffer.set_len(CHUNK);
            let said = self.protocol.parts().concat();
            let bytes = if said.is_empty() { self.raw.len() } else { said.len() }.min(CHUNK);
            if said.is_empty() {
                buffer.as_mut_slice()[..bytes].copy_from_slice(&self.raw[..bytes]);
                self.raw.drain(..bytes);
            } else {
                buffer.as_mut_slice()[..bytes].copy_from_slice(&said[..bytes]);
                self.protocol.taken(bytes);
            }
            buffer.set_len(bytes);
            self.connection.send(buffer).unwrap();
        }
    }
}
