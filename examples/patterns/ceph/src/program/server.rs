//! The server: answers each operation.

use std::net::SocketAddr;

use clap::Args;
use mlx5_ceph::msgr2::Message;
use mlx5_ceph::wire::{Data, OSD_OP, OsdOp, OsdReply};
use mlx5_ceph::{Event, Messenger, MessengerOptions};

use super::common::{CONTENTS, Failure, Idle, content};

#[derive(Debug, Default, Args)]
// The command has the name already.
#[group(skip)]
pub(super) struct Server {
    /// Break the connection of a client after every this many operations: it comes back.
    #[arg(long, default_value_t = 0)]
    kill_every: u64,
    /// Give lossy sessions, as ceph_perf_msgr_server does: clients that lose their connection begin anew.
    #[arg(long)]
    lossy: bool,
    #[command(flatten)]
    idle: Idle,
}

impl Server {
    /// What its messenger needs beyond `options`.
    pub(super) fn options(&self, mut options: MessengerOptions) -> MessengerOptions {
        options.is_lossy = self.lossy;
        options
    }

    /// Serves until `is_done`, by a messenger of its [`options`](Self::options). `bound` is told where it listens.
    pub(super) fn run(
        mut self,
        mut messenger: Messenger,
        bind: SocketAddr,
        bound: impl FnOnce(SocketAddr),
        is_done: impl Fn() -> bool,
    ) -> Result<(), Failure> {
        let at = messenger.bind(bind)?;
        println!("serving at {at}");
        bound(at);
        let (mut operations, mut bytes) = (0u64, 0u64);
        let mut expected = Expected::default();
        while !is_done() {
            let moved = messenger.poll()?;
            while let Some(event) = messenger.next_event() {
                match event {
                    Event::Message(peer, message) if message.header.kind == OSD_OP => {
                        let (tid, reply) = answer(&message, &mut expected)?;
                        let reply = Message::new(reply.header(tid), reply.encode(), Data::default());
                        if let Err(unsent) = messenger.send(peer, reply) {
                            println!("a client reads no answers: {unsent}");
                            messenger.close(peer);
                        }
                        (operations, bytes) = (operations + 1, bytes + message.data.len() as u64);
                        if self.kill_every > 0 && operations.is_multiple_of(self.kill_every) {
                            messenger.kill(peer);
                        }
                    }
                    Event::Connected(_) => println!("a client is there"),
                    Event::Broken(_, trouble) => {
                        let done = messenger.statistics();
                        println!(
                            "a client's connection ended: {trouble}; {operations} operations, {bytes} bytes checked, {} \
                             sessions resumed",
                            done.resumed
                        );
                    }
                    _ => {}
                }
            }
            self.idle.turn(moved, &mut messenger)?;
        }
        // Whoever ends it may do so before the last connection's end is seen.
        println!("in all: {operations} operations, {bytes} bytes checked");
        Ok(())
    }
}

/// What operations bring: those of ceph_perf_msgr_client zeros, and number 0; those of our own bytes that differ by
/// place and operation. Made when it is first asked for: what a shorter operation brings is the start of it.
#[derive(Debug, Default)]
struct Expected {
    zeros: Vec<u8>,
    contents: [Vec<u8>; CONTENTS as usize],
}

impl Expected {
    /// Whether the bytes of operation `tid` came unchanged.
    fn is(&mut self, tid: u64, data: &[u8]) -> bool {
        let (known, made): (_, fn(u64, usize) -> Vec<u8>) = match tid {
            0 => (&mut self.zeros, |_, len| vec![0; len]),
            tid => (&mut self.contents[(tid % CONTENTS) as usize], content),
        };
        if known.len() < data.len() {
            *known = made(tid, data.len());
        }
        known[..data.len()] == *data
    }
}

/// Checks an operation's bytes. Returns its transaction and the answer.
fn answer(message: &Message, expected: &mut Expected) -> Result<(u64, OsdReply), Failure> {
    let op = OsdOp::decode(&message.front)?;
    let data = &message.data;
    if op.bytes as usize != data.len() {
        return Err(format!("an operation of {} bytes came with {}", op.bytes, data.len()).into());
    }
    if !expected.is(message.header.tid, data) {
        return Err(format!("operation {}: its bytes came changed", message.header.tid).into());
    }
    Ok((message.header.tid, OsdReply { object: op.object, result: 0 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_of_any_length_are_compared_and_damage_is_seen() {
        let mut expected = Expected::default();
        for len in [0, 4096, 100, 5000, 0] {
            for tid in [1, 2, 9] {
                assert!(expected.is(tid, &content(tid, len)), "{tid} {len}");
                assert!(expected.is(0, &vec![0; len]));
            }
        }
        let mut damaged = content(3, 300);
        damaged[299] ^= 1;
        assert!(!expected.is(3, &damaged) && !expected.is(0, &[0, 1]));
        assert!(!expected.is(1, &content(2, 100)), "another operation's");
    }
}
