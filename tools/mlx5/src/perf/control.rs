//! The queue pair on which perftest's ends talk with `-R`: connected by the connection manager, like those under test.
//! One message each way at a time.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mlx5_cm::ConnectionId;
use mlx5_dv::Device;
use mlx5_dv::objects::{AccessFlags, MemoryRegion, Pd, Uar};
use mlx5_dv::queue::{ConnectionOptions, Endpoint, WrFlags};
use mlx5_open::watchdog::{Lost, SILENCE};

use super::arguments::Plan;
use super::managed::Managed;
use super::other_end::OtherEnd;
use crate::output::Failure;

/// Bytes of the longest message, and more.
const LONGEST: usize = 256;
/// Receives that are posted.
const RECEIVES: usize = 4;
/// `wr_id` of sends. That of a receive is its place.
const SEND: u64 = u64::MAX;
/// Empty polls between two looks at the connection manager and the clock.
const LOOK_EVERY: u32 = 1 << 10;

/// This end of it.
#[derive(Debug)]
pub struct Control {
    /// All connections of this end.
    pub managed: Managed,
    device: Arc<Device>,
    endpoint: Endpoint,
    id: ConnectionId,
    /// What came and was not read.
    inbox: VecDeque<Vec<u8>>,
    /// Sends that have not completed.
    sending: u32,
}

impl Control {
    /// Connects to perftest's server, who listens or is going to.
    pub fn call(device: &Arc<Device>, plan: &Plan, remote: SocketAddr) -> Result<Self, Failure> {
        let (mut managed, mut endpoint) = (Managed::new(device, plan.network)?, endpoint(device, plan)?);
        let id = managed.call_aside(plan, &mut endpoint, remote)?;
        Ok(Self::over(device, managed, endpoint, id))
    }

    /// Waits for perftest's client on `port`.
    pub fn be_called(device: &Arc<Device>, plan: &Plan, port: u16) -> Result<Self, Failure> {
        let (mut managed, mut endpoint) = (Managed::listen(device, plan.network, port)?, endpoint(device, plan)?);
        let id = managed.be_called_aside(plan, &mut endpoint)?;
        Ok(Self::over(device, managed, endpoint, id))
    }

    fn over(device: &Arc<Device>, managed: Managed, endpoint: Endpoint, id: ConnectionId) -> Self {
        Control { managed, device: Arc::clone(device), endpoint, id, inbox: VecDeque::new(), sending: 0 }
    }

    /// Sends `bytes`, and waits until they have been received.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let from = RECEIVES * LONGEST;
        self.endpoint.region().write(from, bytes);
        let mut batch = self.endpoint.sends().ok_or("the queue pair is not connected")?;
        batch.send(SEND, WrFlags::SIGNALLED, from..from + bytes.len())?;
        batch.ring();
        self.sending += 1;
        self.until(|control| control.sending == 0)
    }

    /// The next message.
    pub fn read(&mut self) -> Result<Vec<u8>, Failure> {
        self.until(|control| !control.inbox.is_empty())?;
        self.inbox.pop_front().ok_or_else(|| "no message".into())
    }

    /// Tells the other end that it is over.
    pub fn end(mut self) {
        self.managed.leave(self.id);
    }

    fn until(&mut self, is_so: impl Fn(&Self) -> bool) -> Result<(), Failure> {
        let (begin, mut empty) = (Instant::now(), 0_u32);
        while !is_so(self) {
            if self.turn()? {
                continue;
            }
            empty += 1;
            if empty.is_multiple_of(LOOK_EVERY) {
                self.look()?;
                if begin.elapsed() > SILENCE {
                    return Err(Lost::Silent.into());
                }
                // The other end may need this processor.
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        Ok(())
    }

    /// Takes one completion. Returns whether there was one.
    fn turn(&mut self) -> Result<bool, Failure> {
        let Some(done) = self.endpoint.poll()? else { return Ok(false) };
        let completion = done.result?;
        if done.ticket == SEND {
            self.sending -= 1;
            return Ok(true);
        }
        let at = done.ticket as usize * LONGEST;
        let mut bytes = vec![0; (completion.byte_len as usize).min(LONGEST)];
        self.endpoint.region().read(at, &mut bytes);
        self.inbox.push_back(bytes);
        receive(&mut self.endpoint, done.ticket)?;
        Ok(true)
    }

    /// Looks after the connection.
    fn look(&mut self) -> Result<(), Failure> {
        if let Some(death) = self.device.death() {
            return Err(death.into());
        }
        // What was sent before the end is here already.
        if self.managed.has_ended(self.id)? && self.inbox.is_empty() { Err(Lost::Gone.into()) } else { Ok(()) }
    }
}

impl OtherEnd for Control {
    fn has_message(&mut self) -> Result<bool, Failure> {
        while self.turn()? {}
        self.look()?;
        Ok(!self.inbox.is_empty())
    }

    fn stream(&self) -> Option<&TcpStream> {
        None
    }
}

fn endpoint(device: &Arc<Device>, plan: &Plan) -> Result<Endpoint, Failure> {
    let pd = Pd::alloc(device)?;
    let region = MemoryRegion::allocate(&pd, (RECEIVES + 1) * LONGEST, AccessFlags::LOCAL_WRITE)?;
    let mut options = ConnectionOptions::default().send_depth(4).recv_depth(RECEIVES as u32);
    options.gid_index = plan.gid_index;
    let mut endpoint = Endpoint::on_uar(&region, &Uar::alloc(device)?, options)?;
    (0..RECEIVES as u64).try_for_each(|place| receive(&mut endpoint, place))?;
    Ok(endpoint)
}

fn receive(endpoint: &mut Endpoint, place: u64) -> Result<(), Failure> {
    let at = place as usize * LONGEST;
    let mut batch = endpoint.receives().ok_or("the queue pair has no receive queue")?;
    batch.receive(place, at..at + LONGEST)?;
    batch.ring();
    Ok(())
}
