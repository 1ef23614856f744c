//! A queue pair and its memory: what one message takes.

use std::ops::Range;
use std::sync::Arc;

use mlx5_dv::Device;
use mlx5_dv::objects::{AccessFlags, MemoryRegion, Pd};
use mlx5_dv::queue::{ConnectionOptions, Endpoint, EndpointError, Peer, RemoteAddress, WrFlags};

use super::arguments::{ATOMIC, AtomicType, Operation, Plan, Test};
use crate::Failure;

/// Which of the two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Begins.
    Client,
    /// Answers.
    Server,
}

impl Role {
    /// The other one.
    pub fn other(self) -> Role {
        match self {
            Role::Client => Role::Server,
            Role::Server => Role::Client,
        }
    }
}

/// What one end tells the other of a queue pair.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Address {
    qpn: u32,
    psn: u32,
    gid: [u8; 16],
    mac: Option<[u8; 6]>,
    /// Where its memory begins: what goes out, then, a slot further, what comes in.
    addr: u64,
    rkey: u32,
}

/// A completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// All messages up to this one, not included, have left.
    Sent(u64),
    /// A message came.
    Received,
}

/// `wr_id` of a receive; those of sends count messages.
const RECEIVE: u64 = u64::MAX;

/// One queue pair, the memory that its messages leave from and arrive in, and that of the other end.
#[derive(Debug)]
pub struct Lane {
    endpoint: Endpoint,
    operation: Operation,
    atomic_type: AtomicType,
    /// The number that atomics find first.
    number: u64,
    /// Where in the region messages leave from.
    out: usize,
    /// Where in the region messages arrive.
    arrivals: usize,
    slot: usize,
    /// The other end's memory, once it is known.
    remote: RemoteAddress,
    /// What inline messages carry.
    payload: Vec<u8>,
}

/// Distance of two messages in memory: whole pages, so that no two share one.
fn slot(plan: &Plan) -> usize {
    plan.agreed.largest().next_multiple_of(4096)
}

/// The lanes of one end, over one memory region.
pub fn lanes(device: &Arc<Device>, plan: &Plan) -> Result<Vec<Lane>, Failure> {
    let pd = Pd::alloc(device)?;
    let slot = slot(plan);
    let rights = AccessFlags::LOCAL_WRITE | remote_access(plan);
    let region = MemoryRegion::allocate(&pd, 2 * slot * plan.agreed.qps, rights)?;
    (0..plan.agreed.qps).map(|index| Lane::new(&region, 2 * slot * index, slot, plan)).collect()
}

/// What the other end may do.
fn remote_access(plan: &Plan) -> AccessFlags {
    match plan.agreed.operation {
        Operation::Atomic => AccessFlags::REMOTE_ATOMIC,
        _ => AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ,
    }
}

fn options(plan: &Plan) -> Result<ConnectionOptions, Failure> {
    let mut options = ConnectionOptions::default();
    // Of a test of latency the other end sends, too, and neither waits long for its completion.
    options.send_depth = if plan.agreed.test == Test::Lat { 4 } else { u32::try_from(plan.tx_depth)? };
    options.recv_depth = if plan.agreed.operation == Operation::Send { plan.rx_depth } else { 0 };
    options.inline_bytes = u16::try_from(plan.inline)?;
    options.events = plan.events;
    options.remote_access = remote_access(plan);
    options.gid_index = plan.gid_index;
    options.service_level = plan.service_level;
    options.path_mtu = plan.path_mtu;
    options.rts.timeout = plan.qp_timeout;
    options.rts.max_rd_atomic = plan.outs;
    Ok(options)
}

impl Lane {
    fn new(region: &Arc<MemoryRegion>, out: usize, slot: usize, plan: &Plan) -> Result<Self, Failure> {
        let endpoint = Endpoint::new(region, options(plan)?)?;
        let nowhere = RemoteAddress { addr: 0, rkey: 0 };
        let payload = vec![0; plan.inline.min(plan.agreed.largest())];
        let (operation, atomic_type) = (plan.agreed.operation, plan.agreed.atomic_type);
        let arrivals = out + slot;
        let remote = nowhere;
        let mut lane = Lane { endpoint, operation, atomic_type, number: 0, out, arrivals, slot, remote, payload };
        if operation == Operation::Send {
            (0..plan.rx_depth).try_for_each(|_| lane.receive())?;
        }
        Ok(lane)
    }

    /// What to tell the other end.
    pub fn address(&self) -> Result<Address, Failure> {
        let Peer { qpn, psn, gid, mac, .. } = self.endpoint.local()?;
        let memory = self.endpoint.region().remote_at(self.out);
        Ok(Address { qpn, psn, gid, mac: mac.map(|mac| mac.0), addr: memory.addr, rkey: memory.rkey })
    }

    /// Connects to the other end's queue pair.
    pub fn connect(&mut self, to: &Address) -> Result<(), Failure> {
        let mac = to.mac.map(mlx5_dv::Mac);
        self.endpoint.connect(&Peer { qpn: to.qpn, psn: to.psn, gid: to.gid, lid: 0, mac })?;
        // What is fetched is what the other end has to send; all else goes where messages arrive there.
        let offset = if self.operation.fetches() { 0 } else { self.slot as u64 };
        self.remote = RemoteAddress { addr: to.addr.wrapping_add(offset), rkey: to.rkey };
        Ok(())
    }

    /// Posts messages number `numbers`, of `size` bytes each, of which those that `signal` names complete; and rings once.
    #[inline(always)]
    pub fn post(&mut self, size: usize, numbers: Range<u64>, signal: impl Fn(u64) -> bool) -> Result<(), Failure> {
        let (operation, remote, out, arrivals) = (self.operation, self.remote, self.out, self.arrivals);
        let (inline, atomic_type, first) = (self.payload.get(..size), self.atomic_type, self.number);
        let mut batch = self.endpoint.sends().ok_or("the queue pair is not connected")?;
        for number in numbers {
            let flags = if signal(number) { WrFlags::SIGNALLED } else { WrFlags::empty() };
            match (operation, inline) {
                (Operation::Write, Some(data)) => batch.write_inline(number, flags, data, remote)?,
                (Operation::Write, None) => batch.write(number, flags, out..out + size, remote)?,
                (Operation::Send, Some(data)) => batch.send_inline(number, flags, data)?,
                (Operation::Send, None) => batch.send(number, flags, out..out + size)?,
                (Operation::Read, _) => batch.read(number, flags, arrivals..arrivals + size, remote)?,
                (Operation::Atomic, _) => match atomic_type {
                    AtomicType::FetchAdd => batch.fetch_add(number, flags, arrivals, remote, 1)?,
                    // In their order each finds what the one before it left, and swaps.
                    AtomicType::CompareSwap => {
                        let found = first.wrapping_add(number);
                        batch.compare_swap(number, flags, arrivals, remote, found, found.wrapping_add(1))?;
                    }
                },
            }
        }
        batch.ring();
        Ok(())
    }

    /// Posts a receive.
    #[inline(always)]
    pub fn receive(&mut self) -> Result<(), Failure> {
        let range = self.arrivals..self.arrivals + self.slot;
        let mut batch = self.endpoint.receives().ok_or("the queue pair has no receive queue")?;
        batch.receive(RECEIVE, range)?;
        batch.ring();
        Ok(())
    }

    /// The next completion. A receive is posted anew.
    #[inline(always)]
    pub fn poll(&mut self) -> Result<Option<Event>, Failure> {
        match self.endpoint.poll() {
            Ok(None) => Ok(None),
            Ok(Some((RECEIVE, _))) => {
                self.receive()?;
                Ok(Some(Event::Received))
            }
            Ok(Some((number, _))) => Ok(Some(Event::Sent(number + 1))),
            Err(error) => Err(failed(error)),
        }
    }

    /// Sleeps until there is a completion, or the time is over.
    pub fn sleep(&mut self, limit: std::time::Duration) -> Result<(), Failure> {
        match self.endpoint.wait(limit) {
            Ok(()) | Err(mlx5_dv::Error::Timeout { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Marks the next message: its last byte.
    #[inline(always)]
    pub fn mark(&mut self, size: usize, mark: u8) {
        match self.payload.get_mut(size - 1) {
            Some(last) => *last = mark,
            None => self.endpoint.region().write(self.out + size - 1, &[mark]),
        }
    }

    /// The last byte of the message that came.
    #[inline(always)]
    pub fn mark_that_came(&self, size: usize) -> u8 {
        let mut last = [0];
        self.endpoint.region().read(self.arrivals + size - 1, &mut last);
        last[0]
    }

    /// Makes memory ready for messages of `size` bytes: what goes out is known, and nothing has come.
    pub fn prepare(&mut self, size: usize, role: Role) {
        let bytes: Vec<u8> = (0..size).map(|at| pattern(role, size, at)).collect();
        self.number = u64::from_ne_bytes(std::array::from_fn(|at| pattern(role.other(), ATOMIC, at)));
        self.endpoint.region().write(self.out, &bytes);
        self.endpoint.region().fill(self.arrivals, size, 0);
        if let Some(payload) = self.payload.get_mut(..size) {
            payload.copy_from_slice(&bytes);
        }
    }

    /// Whether what came of `count` messages that fetch is what the other end, of role `from`, has.
    pub fn check_fetched(&self, size: usize, from: Role, count: u64) -> Result<(), Failure> {
        if self.operation != Operation::Atomic {
            return self.check(size, from, false);
        }
        let mut bytes = [0; ATOMIC];
        self.endpoint.region().read(self.arrivals, &mut bytes);
        // Each adds 1, so the last one tells of all before it.
        match (u64::from_ne_bytes(bytes), self.number.wrapping_add(count).wrapping_sub(1)) {
            (found, expected) if found == expected => Ok(()),
            (found, expected) => {
                let qpn = self.endpoint.queue_pair().qpn();
                Err(format!("QP {qpn:#x}: the last of {count} atomics found {found:#x} instead of {expected:#x}")
                    .into())
            }
        }
    }

    /// Whether what came is what the other end, of role `from`, has to send; the last byte of `marked` messages is theirs.
    pub fn check(&self, size: usize, from: Role, marked: bool) -> Result<(), Failure> {
        let len = if marked { size - 1 } else { size };
        let mut bytes = vec![0; len];
        self.endpoint.region().read(self.arrivals, &mut bytes);
        match (0..len).find(|at| bytes[*at] != pattern(from, size, *at)) {
            None => Ok(()),
            Some(at) => {
                let (found, expected) = (bytes[at], pattern(from, size, at));
                let qpn = self.endpoint.queue_pair().qpn();
                Err(format!(
                    "QP {qpn:#x}: byte {at} of a message of {size} bytes is {found:#04x} instead of {expected:#04x}"
                )
                .into())
            }
        }
    }
}

#[cold]
fn failed(error: EndpointError) -> Failure {
    error.into()
}

/// Byte `at` of what an end sends: never 0 for long, and another for each end and size.
fn pattern(role: Role, size: usize, at: usize) -> u8 {
    let salt = if role == Role::Client { 0x5a } else { 0xa7 };
    at.wrapping_mul(31).wrapping_add(at >> 8).wrapping_add(size.trailing_zeros() as usize).wrapping_add(salt) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_two_ends_send_differs_in_every_byte() {
        assert!((0..5000).all(|at| pattern(Role::Client, 4096, at) != pattern(Role::Server, 4096, at)));
    }
}
