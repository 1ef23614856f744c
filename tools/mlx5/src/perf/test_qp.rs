//! A queue pair under test, and the memory of its messages.

use std::ops::Range;
use std::sync::Arc;

use mlx5_dv::Device;
use mlx5_dv::objects::{AccessFlags, MemoryRegion, Pd, RtrAttributes, RtsAttributes, Uar};
use mlx5_dv::queue::{
    Connected, ConnectionOptions, Endpoint, EndpointSends, Peer, PostError, RemoteAddress, UnreliableEndpoint,
    WorkError, WrFlags,
};

use mlx5_tools::perftest::Keys;

use super::arguments::{ATOMIC, AtomicType, Connection, Operation, Plan, Test};
use crate::output::Failure;

/// Which of the two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Sends first.
    Client,
    /// Answers.
    Server,
}

impl Role {
    /// The role of the other end.
    pub fn other(self) -> Role {
        match self {
            Role::Client => Role::Server,
            Role::Server => Role::Client,
        }
    }
}

/// What the other end must know of a queue pair.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Address {
    peer: Peer,
    /// Start of its memory: the outgoing message, then, one slot further, the incoming one.
    memory: RemoteAddress,
}

impl Address {
    /// The GID of its end.
    pub fn gid(&self) -> [u8; 16] {
        self.peer.gid
    }
}

/// A completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// All messages before this one have completed.
    Sent(u64),
    /// A message was received.
    Received,
}

/// `wr_id` of every receive. The `wr_id` of a send is the number of its message.
const RECEIVE: u64 = u64::MAX;

/// One end of a connection, of either service.
#[derive(Debug)]
enum End {
    Reliable(Endpoint),
    Unreliable(UnreliableEndpoint),
}

/// `$what` of the `$endpoint` in `$end`, of either service.
macro_rules! either {
    ($end:expr, $endpoint:ident => $what:expr) => {
        match $end {
            End::Reliable($endpoint) => $what,
            End::Unreliable($endpoint) => $what,
        }
    };
}

impl End {
    fn new(region: &Arc<MemoryRegion>, uar: &Arc<Uar>, plan: &Plan) -> Result<Self, Failure> {
        let options = options(plan)?;
        Ok(match plan.agreed.connection {
            Connection::Rc => End::Reliable(Endpoint::on_uar(region, uar, options)?),
            Connection::Uc => End::Unreliable(UnreliableEndpoint::of_service(region, uar, options)?),
        })
    }

    fn region(&self) -> &Arc<MemoryRegion> {
        either!(self, endpoint => endpoint.region())
    }

    fn qpn(&self) -> u32 {
        either!(self, endpoint => endpoint.queue_pair().qpn())
    }
}

const NOT_CONNECTED: &str = "the queue pair is not connected";

/// A queue pair, its send and receive memory, and the address of the remote memory.
#[derive(Debug)]
pub struct TestQp {
    endpoint: End,
    operation: Operation,
    atomic_type: AtomicType,
    /// The value that the first atomic finds.
    number: u64,
    /// Offset of outgoing messages in the region.
    out: usize,
    /// Offset of incoming messages in the region.
    arrivals: usize,
    slot: usize,
    /// The other end's memory, once connected.
    remote: RemoteAddress,
    /// The other end's queue pair, once the connection manager has connected this one.
    remote_qpn: Option<u32>,
    /// Data of inline messages.
    payload: Vec<u8>,
}

/// Bytes from one message to the next in memory.
fn slot(plan: &Plan) -> usize {
    plan.agreed.largest().next_multiple_of(plan.slot_unit)
}

/// The queue pairs of one end, over one memory region.
pub fn test_qps(device: &Arc<Device>, plan: &Plan) -> Result<Vec<TestQp>, Failure> {
    let pd = Pd::alloc(device)?;
    let slot = slot(plan);
    let rights = AccessFlags::LOCAL_WRITE | remote_access(plan);
    let region = MemoryRegion::allocate(&pd, 2 * slot * plan.agreed.qps, rights)?;
    // One thread polls all of them.
    let uar = Uar::alloc(device)?;
    (0..plan.agreed.qps).map(|index| TestQp::new(&region, &uar, 2 * slot * index, slot, plan)).collect()
}

/// Checks that the card has room for `count` queue pairs, each with a completion queue, beside what it has already.
pub fn check_count(device: &Device, count: usize) -> Result<(), Failure> {
    let caps = device.caps();
    // Each of the two queues has a umem; others are the driver's own.
    let limits = [
        ("queue pairs", count, "log_max_qp", caps.log_max_qp),
        ("completion queues", count, "log_max_cq", caps.log_max_cq),
        ("umems", 2 * count + 1, "log_max_umem", caps.log_max_umem),
    ];
    for (what, wanted, name, log) in limits {
        let most = 1_usize << log.min(31);
        if wanted > most {
            return Err(format!(
                "-q: {count} queue pairs with a completion queue each need {wanted} {what}, more than the card's {most} \
                 ({name} {log}); without a host both ends are on this card"
            )
            .into());
        }
    }
    Ok(())
}

/// Access that the other end needs.
fn remote_access(plan: &Plan) -> AccessFlags {
    match plan.agreed.operation {
        Operation::Atomic => AccessFlags::REMOTE_ATOMIC,
        _ => AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ,
    }
}

fn options(plan: &Plan) -> Result<ConnectionOptions, Failure> {
    let mut options = ConnectionOptions::default();
    // A latency test has one message in flight; a few slots cover completions not yet polled.
    options.send_depth = if plan.agreed.test == Test::Lat { 4 } else { u32::try_from(plan.tx_depth)? };
    options.recv_depth = if plan.agreed.operation == Operation::Send { plan.rx_depth } else { 0 };
    options.inline_bytes = u16::try_from(plan.inline)?;
    options.events = plan.events;
    options.remote_access = remote_access(plan);
    options.gid_index = plan.gid_index;
    options.service_level = plan.service_level;
    options.path_mtu = Some(plan.path_mtu);
    options.rts.timeout = plan.qp_timeout;
    options.rts.max_rd_atomic = Some(plan.outs);
    Ok(options)
}

impl TestQp {
    fn new(region: &Arc<MemoryRegion>, uar: &Arc<Uar>, out: usize, slot: usize, plan: &Plan) -> Result<Self, Failure> {
        let endpoint = End::new(region, uar, plan)?;
        let nowhere = RemoteAddress { addr: 0, rkey: 0 };
        let payload = vec![0; plan.inline.min(plan.agreed.largest())];
        let (operation, atomic_type) = (plan.agreed.operation, plan.agreed.atomic_type);
        let arrivals = out + slot;
        let (number, remote, remote_qpn) = (0, nowhere, None);
        let mut qp =
            TestQp { endpoint, operation, atomic_type, number, out, arrivals, slot, remote, remote_qpn, payload };
        if operation == Operation::Send {
            (0..plan.rx_depth).try_for_each(|_| qp.receive())?;
        }
        Ok(qp)
    }

    /// The address to send to the other end.
    pub fn address(&self) -> Result<Address, Failure> {
        let peer = either!(&self.endpoint, endpoint => endpoint.local())?;
        Ok(Address { peer, memory: self.endpoint.region().remote_at(self.out) })
    }

    /// Connects to the other end's queue pair.
    pub fn connect(&mut self, to: &Address) -> Result<(), Failure> {
        either!(&mut self.endpoint, endpoint => endpoint.connect(&to.peer))?;
        self.aim_at(to);
        Ok(())
    }

    /// As [`connect`](Self::connect), by what a connection manager says, which knows nothing of memory.
    pub fn connect_by(&mut self, rtr: &RtrAttributes, rts: &RtsAttributes) -> Result<(), Failure> {
        either!(&mut self.endpoint, endpoint => endpoint.connect_by(rtr, rts))?;
        self.remote_qpn = Some(rtr.remote_qpn);
        Ok(())
    }

    /// Reads and atomics target the other end's outgoing message; writes, its incoming slot.
    pub fn aim_at(&mut self, to: &Address) {
        let offset = if self.operation.fetches() { 0 } else { self.slot as u64 };
        self.remote = RemoteAddress { addr: to.memory.addr.wrapping_add(offset), ..to.memory };
    }

    /// What perftest is told of this queue pair: the memory is that which its operation targets.
    pub fn keys(&self, plan: &Plan) -> Result<Keys, Failure> {
        let Peer { qpn, psn, gid, lid, .. } = either!(&self.endpoint, endpoint => endpoint.local())?;
        let target = if self.operation.fetches() { self.out } else { self.arrivals };
        let RemoteAddress { addr, rkey } = self.endpoint.region().remote_at(target);
        Ok(Keys { lid, out_reads: plan.outs.into(), qpn, psn, rkey, vaddr: addr, gid: Some(gid), srqn: 0 })
    }

    /// Connects to perftest's queue pair, unless the connection manager has, and targets its memory.
    pub fn connect_to_keys(&mut self, to: &Keys) -> Result<(), Failure> {
        if self.remote_qpn.is_none() {
            let gid = to.gid.ok_or("the other end has no GID: its port is no Ethernet port")?;
            let peer = Peer { qpn: to.qpn, psn: to.psn, gid, lid: to.lid, mac: None };
            either!(&mut self.endpoint, endpoint => endpoint.connect(&peer))?;
        }
        self.remote = RemoteAddress { addr: to.vaddr, rkey: to.rkey };
        Ok(())
    }

    /// The other end's queue pair, once the connection manager has connected this one.
    pub fn remote_qpn(&self) -> Option<u32> {
        self.remote_qpn
    }

    /// The number of its queue pair.
    pub fn qpn(&self) -> u32 {
        self.endpoint.qpn()
    }

    /// Posts the messages `numbers` of `size` bytes each, and rings once. `signal` chooses those that complete.
    #[inline(always)]
    pub fn post(&mut self, size: usize, numbers: Range<u64>, signal: impl Fn(u64) -> bool) -> Result<(), Failure> {
        let (remote, arrivals, first) = (self.remote, self.arrivals, self.number);
        let (out, inline) = (self.out..self.out + size, self.payload.get(..size));
        let flags = |number| if signal(number) { WrFlags::SIGNALLED } else { WrFlags::empty() };
        match (&mut self.endpoint, self.operation) {
            (End::Reliable(endpoint), Operation::Read) => {
                let mut batch = endpoint.sends().ok_or(NOT_CONNECTED)?;
                for number in numbers {
                    batch.read(number, flags(number), arrivals..arrivals + size, remote)?;
                }
                batch.ring();
            }
            (End::Reliable(endpoint), Operation::Atomic) => {
                let mut batch = endpoint.sends().ok_or(NOT_CONNECTED)?;
                for number in numbers {
                    let flags = flags(number);
                    match self.atomic_type {
                        AtomicType::FetchAdd => batch.fetch_add(number, flags, arrivals, remote, 1)?,
                        // Each expects the value that the one before it stored.
                        AtomicType::CompareSwap => {
                            let found = first.wrapping_add(number);
                            batch.compare_swap(number, flags, arrivals, remote, found, found.wrapping_add(1))?;
                        }
                    }
                }
                batch.ring();
            }
            (end, operation) => {
                let to = (operation != Operation::Send).then_some(remote);
                either!(end, endpoint => {
                    let mut batch = endpoint.sends().ok_or(NOT_CONNECTED)?;
                    for number in numbers {
                        message(&mut batch, (number, flags(number)), (out.clone(), inline), to)?;
                    }
                    batch.ring();
                });
            }
        }
        Ok(())
    }

    /// Posts a receive.
    #[inline(always)]
    pub fn receive(&mut self) -> Result<(), Failure> {
        let range = self.arrivals..self.arrivals + self.slot;
        let receives = either!(&mut self.endpoint, endpoint => endpoint.receives());
        let mut batch = receives.ok_or("the queue pair has no receive queue")?;
        batch.receive(RECEIVE, range)?;
        batch.ring();
        Ok(())
    }

    /// Polls one completion. A completed receive is posted again.
    #[inline(always)]
    pub fn poll(&mut self) -> Result<Option<Event>, Failure> {
        let Some(done) = either!(&mut self.endpoint, endpoint => endpoint.poll())? else { return Ok(None) };
        match (done.ticket, done.result) {
            (_, Err(error)) => Err(failed(error)),
            (RECEIVE, Ok(_)) => {
                self.receive()?;
                Ok(Some(Event::Received))
            }
            (number, Ok(_)) => Ok(Some(Event::Sent(number + 1))),
        }
    }

    /// Sleeps until a completion arrives, at most `limit`.
    pub fn sleep(&mut self, limit: std::time::Duration) -> Result<(), Failure> {
        match either!(&mut self.endpoint, endpoint => endpoint.wait(limit)) {
            Ok(()) | Err(mlx5_dv::Error::Timeout { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes `mark` as the last byte of the next message.
    #[inline(always)]
    pub fn mark(&mut self, size: usize, mark: u8) {
        match self.payload.get_mut(size - 1) {
            Some(last) => *last = mark,
            None => self.endpoint.region().write(self.out + size - 1, &[mark]),
        }
    }

    /// The last byte of the incoming slot.
    #[inline(always)]
    pub fn mark_that_came(&self, size: usize) -> u8 {
        let mut last = [0];
        self.endpoint.region().read(self.arrivals + size - 1, &mut last);
        last[0]
    }

    /// Prepares memory for messages of `size` bytes: fills the outgoing one with a pattern, and zeroes the incoming
    /// slot.
    pub fn prepare(&mut self, size: usize, role: Role) {
        let bytes: Vec<u8> = (0..size).map(|at| pattern(role, size, at)).collect();
        self.number = u64::from_ne_bytes(std::array::from_fn(|at| pattern(role.other(), ATOMIC, at)));
        self.endpoint.region().write(self.out, &bytes);
        self.endpoint.region().fill(self.arrivals, size, 0);
        if let Some(payload) = self.payload.get_mut(..size) {
            payload.copy_from_slice(&bytes);
        }
    }

    /// Checks the result of `count` reads or atomics against the data of the other end, of role `from`.
    pub fn check_fetched(&self, size: usize, from: Role, count: u64) -> Result<(), Failure> {
        if self.operation != Operation::Atomic {
            return self.check(size, from, false);
        }
        // Each atomic adds 1, so the last result accounts for all of them.
        match (self.endpoint.region().found::<u64>(self.arrivals), self.number.wrapping_add(count).wrapping_sub(1)) {
            (found, expected) if found == expected => Ok(()),
            (found, expected) => {
                let qpn = self.endpoint.qpn();
                Err(format!("QP {qpn:#x}: the last of {count} atomics found {found:#x} instead of {expected:#x}")
                    .into())
            }
        }
    }

    /// Checks the incoming slot against the pattern of role `from`. The last byte of a `marked` message is a mark, not
    /// part of the pattern.
    pub fn check(&self, size: usize, from: Role, marked: bool) -> Result<(), Failure> {
        let len = if marked { size - 1 } else { size };
        let mut bytes = vec![0; len];
        self.endpoint.region().read(self.arrivals, &mut bytes);
        match (0..len).find(|at| bytes[*at] != pattern(from, size, *at)) {
            None => Ok(()),
            Some(at) => {
                let (found, expected) = (bytes[at], pattern(from, size, at));
                let qpn = self.endpoint.qpn();
                Err(format!(
                    "QP {qpn:#x}: byte {at} of a message of {size} bytes is {found:#04x} instead of {expected:#04x}"
                )
                .into())
            }
        }
    }
}

/// Writes a message to the batch: a send, or a write to `to`; of the bytes `out` of the region, or of `inline`.
#[inline(always)]
fn message<S: Connected>(
    batch: &mut EndpointSends<'_, S>,
    (number, flags): (u64, WrFlags),
    (out, inline): (Range<usize>, Option<&[u8]>),
    to: Option<RemoteAddress>,
) -> Result<(), PostError> {
    match (to, inline) {
        (Some(to), Some(data)) => batch.write_inline(number, flags, data, to),
        (Some(to), None) => batch.write(number, flags, out, to),
        (None, Some(data)) => batch.send_inline(number, flags, data),
        (None, None) => batch.send(number, flags, out),
    }
}

#[cold]
fn failed(error: WorkError) -> Failure {
    error.into()
}

/// Byte `at` of the test pattern, which differs between ends and sizes, and has no long runs of zeros.
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
