//! A ping-pong of two connections on a software card, on one polling thread.

#[allow(dead_code, reason = "not all users have frames")]
pub mod frames;

use std::fmt;
use std::hint;

use mlx5_dv::objects::{AccessFlags, Buffer, MemoryRegion, Pd};
use mlx5_dv::queue::{Connection, ConnectionOptions, Done, Operation};
use mlx5_open::Sim;

/// Size of a message in bytes: a reply fits into its WQE.
const MESSAGE: usize = 24;
const RECEIVES: usize = 8;

/// Why a run ended early. Needs no memory to report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Foul {
    /// A work request failed.
    Failed,
    /// A work request was not posted.
    Refused,
    /// A completion without a work request in flight.
    Nonsense,
    /// A completion without its buffer, or with the wrong length.
    Wrong,
}

impl fmt::Display for Foul {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl std::error::Error for Foul {}

/// Two connected ends. The client's messages come from memory, the server's replies are inline, so both ways of posting
/// are covered.
pub struct Game {
    client: Connection,
    server: Connection,
    /// The client's message, while it is not in flight.
    message: Option<Buffer>,
    _sim: Sim,
}

impl Game {
    /// Two connected ends on a new card, with receives posted.
    pub fn new() -> Result<Game, Box<dyn std::error::Error>> {
        let sim = Sim::builder().build()?;
        let pd = Pd::alloc(&sim.open(0)?)?;
        let region = MemoryRegion::allocate(&pd, (2 * RECEIVES + 1) * MESSAGE, AccessFlags::LOCAL_WRITE)?;
        let mut buffers = region.buffers(MESSAGE)?;
        let mut end = || -> Result<Connection, Box<dyn std::error::Error>> {
            let mut connection = Connection::new(&pd, ConnectionOptions::default())?;
            for buffer in buffers.drain(..RECEIVES) {
                connection.receive(buffer)?;
            }
            Ok(connection)
        };
        let (mut client, mut server) = (end()?, end()?);
        let (ours, theirs) = (client.local()?, server.local()?);
        server.connect(&ours)?;
        client.connect(&theirs)?;
        Ok(Game { client, server, message: buffers.pop(), _sim: sim })
    }

    /// Exchanges `count` messages and replies, and polls all completions on both sides. Polls without a deadline: the
    /// caller has one for the whole process.
    pub fn play(&mut self, count: u64) -> Result<(), Foul> {
        let mut answered = 0;
        // Completions left of a round trip: send and arrival of the message, send and arrival of the reply.
        let mut due = 0;
        while answered < count || due > 0 {
            if due == 0 {
                let message = self.message.take().ok_or(Foul::Wrong)?;
                self.client.send(message).map_err(|_| Foul::Refused)?;
                due = 4;
            }
            let mut idle = true;
            if let Some(done) = self.client.poll().map_err(|_| Foul::Nonsense)? {
                (due, idle) = (due - 1, false);
                if self.client_done(done)? {
                    answered += 1;
                }
            }
            if let Some(done) = self.server.poll().map_err(|_| Foul::Nonsense)? {
                (due, idle) = (due - 1, false);
                self.server_done(done)?;
            }
            if idle {
                hint::spin_loop();
            }
        }
        Ok(())
    }

    /// Whether it was a reply.
    fn client_done(&mut self, done: Done) -> Result<bool, Foul> {
        let buffer = done.buffer.ok_or(Foul::Wrong)?;
        match done.result.map_err(|_| Foul::Failed)? {
            completion if completion.operation != Operation::Received => {
                self.message = Some(buffer);
                Ok(false)
            }
            completion if completion.byte_len == MESSAGE as u32 => {
                self.client.receive(buffer).map_err(|_| Foul::Refused)?;
                Ok(true)
            }
            _ => Err(Foul::Wrong),
        }
    }

    fn server_done(&mut self, done: Done) -> Result<(), Foul> {
        let completion = done.result.map_err(|_| Foul::Failed)?;
        // A sent reply has no buffer.
        let Some(buffer) = done.buffer else { return Ok(()) };
        if completion.byte_len != MESSAGE as u32 {
            return Err(Foul::Wrong);
        }
        let mut bytes = [0; MESSAGE];
        buffer.read(0, &mut bytes);
        self.server.receive(buffer).map_err(|_| Foul::Refused)?;
        self.server.send_inline(&bytes).map(drop).map_err(|_| Foul::Refused)
    }
}
