//! The server: answers each operation.

use std::net::SocketAddr;
use std::sync::Arc;

use clap::Args;
use mlx5_ceph::msgr2::Message;
use mlx5_ceph::wire::{OSD_OP, OsdOp, OsdReply};
use mlx5_ceph::{Event, Messenger, MessengerOptions};
use mlx5_dv::Device;

use super::common::{Contents, Failure, Idle};

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
}

impl Server {
    /// Serves until `is_done`. `bound` is told where it listens.
    pub(super) fn run(
        self,
        device: &Arc<Device>,
        mut options: MessengerOptions,
        empty_turns: u32,
        bind: SocketAddr,
        bound: impl FnOnce(SocketAddr),
        is_done: impl Fn() -> bool,
    ) -> Result<(), Failure> {
        options.is_lossy = self.lossy;
        let mut messenger = Messenger::new(device, options)?;
        let at = messenger.bind(bind)?;
        println!("serving at {at}");
        bound(at);
        let (mut operations, mut bytes, mut idle) = (0u64, 0u64, Idle::new(empty_turns));
        let mut contents = Contents::default();
        while !is_done() {
            let moved = messenger.poll()?;
            while let Some(event) = messenger.next_event() {
                match event {
                    Event::Message(peer, message) if message.header.kind == OSD_OP => {
                        let (tid, reply) = answer(&message, &mut contents)?;
                        messenger.send(peer, Message::new(reply.header(tid), reply.encode(), Arc::default()));
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
            idle.turn(moved);
        }
        Ok(())
    }
}

/// Checks an operation's bytes. Returns its transaction and the answer.
fn answer(message: &Message, contents: &mut Contents) -> Result<(u64, OsdReply), Failure> {
    let op = OsdOp::decode(&message.front)?;
    let data = &message.data;
    if op.bytes as usize != data.len() {
        return Err(format!("an operation of {} bytes came with {}", op.bytes, data.len()).into());
    }
    if !contents.is_right(message.header.tid, data) {
        return Err(format!("operation {}: its bytes came changed", message.header.tid).into());
    }
    Ok((message.header.tid, OsdReply { object: op.object, result: 0 }))
}
