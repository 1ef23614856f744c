//! Hundreds of connections on one thread: an echo server and its clients, each a hub, on one card.
//!
//! A session is a connection that sends some messages and checks their echoes; then both ends leave, and the next
//! session joins while the others continue. The server sends back the received buffers themselves.

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use mlx5_dv::objects::Pd;
use mlx5_dv::queue::{ConnectionId, Hub, HubDone, HubOptions, Left, Side};
use mlx5_examples::pingpong::Failure;
use mlx5_open::program;
use mlx5_open::watchdog::Watchdog;

/// Runs sessions of an echo server, many at a time, on one thread.
#[derive(Debug, Parser)]
#[command(name = "hub")]
struct Options {
    /// Device: sim, vfio:0000:3b:00.0, devx:mlx5_0, vfio-user:/run/nic.sock.
    #[arg(short = 'd', long = "ib-dev", default_value = "sim")]
    device: String,
    /// Connections at a time.
    #[arg(short = 'q', long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=8192))]
    connections: u32,
    /// Total number of sessions.
    #[arg(short, long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    sessions: u32,
    /// Messages per session.
    #[arg(short = 'n', long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    messages: u32,
}

/// Context of a client's connection.
struct Session {
    number: u32,
    /// The message in flight.
    message: u32,
    /// The connection on the server.
    server: ConnectionId,
}

struct Echo {
    server: Hub<()>,
    clients: Hub<Session>,
    started: u32,
    ended: u32,
    echoed: u64,
}

fn main() -> ExitCode {
    let options = Options::parse();
    program::run("hub", || run(&options))
}

fn run(options: &Options) -> Result<(), Failure> {
    let device = mlx5_open::open(&options.device)?;
    let pd = Pd::alloc(&device)?;
    let mut hub_options = HubOptions::default();
    hub_options.connections = options.connections;
    let (server, clients) = (Hub::new(&pd, hub_options.clone())?, Hub::new(&pd, hub_options)?);
    let mut echo = Echo { server, clients, started: 0, ended: 0, echoed: 0 };
    let begin = Instant::now();
    let mut watchdog = Watchdog::new(&device);
    while echo.ended < options.sessions {
        while echo.started < options.sessions && echo.clients.len() < options.connections as usize {
            echo.start()?;
        }
        let moved = echo.serve()? | echo.check(options.messages)?;
        watchdog.check(moved)?;
    }
    println!(
        "{} sessions, at most {} at once, {} messages echoed in {:.2} s; all buffers are back: {:?} and {:?}",
        echo.ended,
        options.connections.min(options.sessions),
        echo.echoed,
        begin.elapsed().as_secs_f64(),
        echo.server.buffers(),
        echo.clients.buffers(),
    );
    Ok(())
}

impl Echo {
    /// Connects a new session, and sends its first message.
    fn start(&mut self) -> Result<(), Failure> {
        let (number, server) = (self.started, self.server.join(())?);
        let client = self.clients.join(Session { number, message: 0, server })?;
        self.server.connect(server, &self.clients.local(client)?)?;
        self.clients.connect(client, &self.server.local(server)?)?;
        self.clients.send_inline(client, &text(number, 0))?;
        self.started += 1;
        Ok(())
    }

    /// Sends received messages back. Returns whether there were any.
    fn serve(&mut self) -> Result<bool, Failure> {
        let mut moved = false;
        while let Some(HubDone { connection, done, .. }) = self.server.poll()? {
            moved = true;
            let completion = done.result?;
            match (done.buffer, completion.work.side) {
                (Some(mut buffer), Side::Receive) => {
                    buffer.set_len(completion.byte_len as usize);
                    self.server.send(connection, buffer)?;
                    self.echoed += 1;
                }
                (Some(buffer), Side::Send) => self.server.recycle(buffer)?,
                (None, _) => {}
            }
        }
        Ok(moved)
    }

    /// Checks echoes, and sends the next of `messages` of each session. Returns whether there were any.
    fn check(&mut self, messages: u32) -> Result<bool, Failure> {
        let mut moved = false;
        while let Some(HubDone { connection, context, done }) = self.clients.poll()? {
            moved = true;
            if done.result?.work.side == Side::Send {
                continue;
            }
            // Read where the card put it.
            if done.received() != Some(text(context.number, context.message).as_slice()) {
                return Err(format!("session {}: message {} came back changed", context.number, context.message).into());
            }
            let buffer = done.buffer.ok_or("a received message is in a buffer")?;
            context.message += 1;
            let (number, message, server) = (context.number, context.message, context.server);
            self.clients.recycle(buffer)?;
            if message < messages {
                self.clients.send_inline(connection, &text(number, message))?;
            } else {
                leave(&mut self.clients, connection)?;
                leave(&mut self.server, server)?;
                self.ended += 1;
            }
        }
        Ok(moved)
    }
}

/// Removes a connection, and returns its buffers to the hub.
fn leave<C>(hub: &mut Hub<C>, connection: ConnectionId) -> Result<(), Failure> {
    let Left { done, buffers, .. } = hub.leave(connection)?;
    for buffer in done.into_iter().filter_map(|done| done.buffer).chain(buffers) {
        hub.recycle(buffer)?;
    }
    Ok(())
}

/// Content of message `message` of session `session`.
fn text(session: u32, message: u32) -> Vec<u8> {
    format!("session {session}, {message}").into_bytes()
}
