//! The host itself: its connections to targets.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mlx5_cm::{CmRejectReason, ConnectionId, ConnectionManager, Event, Parameters, Route};
use mlx5_dv::Device;
use mlx5_dv::clock::Clock;
use mlx5_dv::objects::{AccessFlags, Pd, QueuePair};
use mlx5_dv::queue::{Connection, ConnectionOptions};
use mlx5_neighbours::Neighbours;
use zerocopy::{FromBytes, IntoBytes};

use super::queue::{DataPlacement, Queue};
use crate::error::HostError;
use crate::link::Link;
use crate::wire::{COMMAND, CmReject, CmReply, CmRequest, CmStatus};

/// How long a pause is while a call waits for an answer.
pub(super) const PAUSE: Duration = Duration::from_micros(20);
/// Work requests that a command needs at most: a registration, which is as long as two, the capsule, an invalidation.
const REQUESTS: u32 = 4;

/// How long ended connections are waited for. Those that the remote answers are forgotten after a second.
const TIMEWAIT: Duration = Duration::from_secs(3);
/// Queue pairs that a target may take for stale ones, until that is an error.
const MOST_STALE: usize = 16;

/// What to do while a call waits: a test in virtual time polls the other end here.
type Idle = Box<dyn FnMut() + Send>;

/// Who the host is, and how it waits.
#[non_exhaustive]
pub struct HostOptions {
    /// The host's name. Default: one made of `id`.
    pub nqn: Option<String>,
    /// The host's own number. Default: one made of the function's MAC address.
    pub id: Option<[u8; 16]>,
    /// How long a call waits for an answer. Default: 30 s.
    pub timeout: Duration,
    /// Path and retries of its connections.
    pub route: Route,
    /// Called again and again while a call waits. Default: pauses for 20 us.
    pub idle: Option<Idle>,
}

impl Default for HostOptions {
    fn default() -> Self {
        HostOptions { nqn: None, id: None, timeout: Duration::from_secs(30), route: Route::default(), idle: None }
    }
}

impl std::fmt::Debug for HostOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostOptions").field("nqn", &self.nqn).field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// A host on a function whose queue pair 1 it owns, or on one of the kernel's. Belongs to one thread; the
/// [`IoQueue`](super::IoQueue)s of its controllers may go to others.
///
/// Call [`turn`](Self::turn), or `Controller::turn`, several times a second: messages of the connection manager are
/// answered there.
pub struct Host {
    pd: Arc<Pd>,
    manager: ConnectionManager,
    pub(super) clock: Clock,
    links: BTreeMap<ConnectionId, Held>,
    /// Events of connections that a call waits for.
    events: Vec<(ConnectionId, Event)>,
    pub(super) nqn: String,
    pub(super) id: [u8; 16],
    pub(super) timeout: Duration,
    route: Route,
    idle: Option<Idle>,
}

/// A connection, until the connection manager has forgotten it. Its queue pair exists as long, so that no other gets
/// the number: late messages would be taken for that one's.
struct Held {
    link: Arc<Link>,
    _qp: Arc<QueuePair>,
    /// Whether the remote was told that the connection ends.
    told: bool,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Host({}, {} connections)", self.nqn, self.links.len())
    }
}

impl Host {
    /// A host on `device`; `neighbours` finds the MAC addresses of targets, except on `devx:`, where the kernel does.
    ///
    /// # Errors
    /// As for [`ConnectionManager::new`]; [`HostError::Device`].
    pub fn new(device: &Arc<Device>, neighbours: Option<Neighbours>, options: HostOptions) -> Result<Self, HostError> {
        let id = options.id.unwrap_or_else(|| id_of(device));
        Ok(Host {
            pd: Pd::alloc(device)?,
            manager: ConnectionManager::new(device, neighbours)?,
            clock: device.clock().clone(),
            links: BTreeMap::new(),
            events: Vec::new(),
            nqn: options.nqn.unwrap_or_else(|| nqn_of(&id)),
            id,
            timeout: options.timeout,
            route: options.route,
            idle: options.idle,
        })
    }

    /// The protection domain of all its queues: buffers of the program's own are registered here.
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// The host's name.
    pub fn nqn(&self) -> &str {
        &self.nqn
    }

    /// Answers messages of the connection manager, and ends connections whose queues are gone.
    ///
    /// # Errors
    /// [`HostError::Manager`].
    pub fn turn(&mut self) -> Result<(), HostError> {
        while let Some((id, event)) = self.manager.poll()? {
            self.take_event(id, event);
        }
        for (id, held) in self.links.iter_mut().filter(|(_, held)| held.link.is_closed() && !held.told) {
            held.told = true;
            // Fails for one that the remote has ended: nothing is to be told.
            let _ = self.manager.disconnect(*id, &[]);
        }
        Ok(())
    }

    fn take_event(&mut self, id: ConnectionId, event: Event) {
        let Some(held) = self.links.get(&id) else {
            self.events.push((id, event));
            return;
        };
        if event.is_last() || matches!(event, Event::Disconnected { .. }) {
            held.link.end();
        }
        if event.is_last() {
            self.links.remove(&id);
        }
    }

    /// Waits a little, for a call that waits.
    pub(super) fn pause(&mut self) -> Result<(), HostError> {
        self.turn()?;
        match &mut self.idle {
            Some(idle) => idle(),
            None => self.clock.pause(PAUSE),
        }
        Ok(())
    }

    /// The next event of connection `id`; `None` at `deadline`.
    fn event(&mut self, id: ConnectionId, deadline: Duration) -> Result<Option<Event>, HostError> {
        while self.clock.now() < deadline {
            if let Some(at) = self.events.iter().position(|(of, _)| *of == id) {
                return Ok(Some(self.events.swap_remove(at).1));
            }
            self.pause()?;
        }
        Ok(None)
    }

    /// Waits, but not for long, until the connection manager has forgotten the connections that have ended. A target
    /// that gives a new queue pair the number of an old one would be refused otherwise: IBTA 12.9.8.3.1.
    pub(super) fn forget_ended(&mut self) -> Result<(), HostError> {
        self.turn()?;
        let deadline = self.clock.now() + TIMEWAIT;
        let has_ended = |held: &Held| held.told || held.link.has_ended();
        while self.links.values().any(has_ended) && self.clock.now() < deadline {
            self.pause()?;
        }
        Ok(())
    }

    /// A connection for queue `qid` of the target at `remote`, with `depth` commands under way at once.
    pub(super) fn open(
        &mut self,
        (remote, cntlid): (SocketAddr, u16),
        qid: u16,
        depth: u16,
        placement: DataPlacement,
    ) -> Result<Queue, HostError> {
        // A target that still knows a queue pair of this number from before takes the request for a stale one (IBTA
        // 12.9.8.3.1). The refused ones are kept until there is one that it does not know.
        let mut stale = Vec::new();
        loop {
            let link = Link::new();
            let mut queue = self.queue(&link, qid, depth, placement)?;
            match self.try_open((remote, cntlid), &mut queue, &link) {
                Err(HostError::Rejected { reason: CmRejectReason::StaleConn, .. }) if stale.len() < MOST_STALE => {
                    stale.push(queue);
                }
                opened => return opened.map(|()| queue),
            }
        }
    }

    /// A queue without a connection.
    fn queue(&self, link: &Arc<Link>, qid: u16, depth: u16, placement: DataPlacement) -> Result<Queue, HostError> {
        let mut options = ConnectionOptions::default();
        options.send_depth = u32::from(depth) * REQUESTS + 1;
        options.recv_depth = Queue::receives(depth);
        options.inline_bytes = COMMAND as u16;
        options.remote_access = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE;
        let connection = Connection::new(&self.pd, options)?;
        Queue::new(connection, Arc::clone(link), qid, depth, placement)
    }

    /// Connects `queue` to the target at `remote`.
    fn try_open(
        &mut self,
        (remote, cntlid): (SocketAddr, u16),
        queue: &mut Queue,
        link: &Arc<Link>,
    ) -> Result<(), HostError> {
        let depth = queue.depth() as u16;
        let request = CmRequest {
            qid: queue.qid().into(),
            hrqsize: depth.into(),
            hsqsize: (depth - 1).into(),
            cntlid: cntlid.into(),
            ..CmRequest::default()
        };
        let parameters = Parameters::new(queue.qpn(), 0).private_data(request.as_bytes());
        self.events.clear();
        let id = self.manager.connect(remote, self.route, &parameters)?;
        let deadline = self.clock.now() + self.timeout;
        let answer = self.event(id, deadline)?;
        let Some(Event::ConnectResponse { private_data, .. }) = &answer else {
            // One that was rejected is gone.
            let _ = self.manager.destroy(id);
            return Err(refusal(queue.qid(), remote, answer));
        };
        let (rtr, rts) = self.manager.attributes(id)?;
        queue.connect_by(&rtr, &rts)?;
        self.manager.ready(id, &[])?;
        self.links.insert(id, Held { link: Arc::clone(link), _qp: Arc::clone(queue.queue_pair()), told: false });
        check_reply(queue.qid(), depth, private_data)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // What is not disconnected yet is told so once; nobody answers messages any more.
        for id in self.links.keys() {
            let _ = self.manager.disconnect(*id, &[]);
        }
        let _ = self.manager.poll();
    }
}

/// Why there is no connection.
fn refusal(queue: u16, remote: SocketAddr, answer: Option<Event>) -> HostError {
    match answer {
        Some(Event::Rejected { reason, private_data, .. }) => {
            let told = CmReject::read_from_prefix(&private_data).ok().map(|(reject, _)| reject.status.get());
            let status = told.filter(|&number| number != 0).map(CmStatus::from_number);
            HostError::Rejected { queue, remote, reason, status }
        }
        _ => HostError::Unreachable { remote },
    }
}

fn check_reply(queue: u16, depth: u16, private_data: &[u8]) -> Result<(), HostError> {
    let what = match CmReply::read_from_prefix(private_data) {
        Ok((reply, _)) if reply.recfmt.get() != 0 => format!("format {} of its reply's private data", reply.recfmt),
        Ok((reply, _)) if reply.crqsize.get() < depth => {
            format!("{} receives for {depth} commands", reply.crqsize)
        }
        Ok(_) => return Ok(()),
        Err(_) => "a reply without private data".to_owned(),
    };
    Err(HostError::Protocol { queue, what })
}

/// A host number made of the MAC address: the same in each process.
fn id_of(device: &Device) -> [u8; 16] {
    let [a, b, c, d, e, f] = device.mac().0;
    [0x6d, 0x6c, 0x78, 0x35, 0, 0, 0x40, 0, 0x80, 0, a, b, c, d, e, f]
}

/// The name with a UUID, as the specification has it.
fn nqn_of(id: &[u8; 16]) -> String {
    let hex: Vec<String> = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let part = |range: std::ops::Range<usize>| hex[range].concat();
    let uuid = [part(0..4), part(4..6), part(6..8), part(8..10), part(10..16)].join("-");
    format!("nqn.2014-08.org.nvmexpress:uuid:{uuid}")
}
