//! The connection manager of a function that the kernel drives: the kernel's, by `/dev/infiniband/rdma_cm`. It keeps
//! the protocol's state and times; here are the numbers of connections, and what was agreed on.

mod addresses;
mod calls;
mod events;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use mlx5_dv::Device;
use mlx5_dv::clock::Clock;
use mlx5_dv::kernel::rdma_cm::RdmaCm;
use mlx5_dv::objects::{AddressPath, RtrAttributes, RtsAttributes};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::error::ManagerError;
use crate::machine::{Agreed, CallError, Config, ConnectionId, Event, State};
use crate::message::Service;
use crate::path::{CardLimits, attributes, path_to};
pub(crate) use addresses::Addresses;

/// Looks in vain after which a program that polls without sleeping looks less often.
const PATIENT_LOOKS: u32 = 16;
/// How often it looks then: a look is a system call.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The kernel's connection manager. Calls are those of [`ConnectionManager`](crate::ConnectionManager).
#[derive(Debug)]
pub(crate) struct KernelManager {
    file: RdmaCm,
    device: Arc<Device>,
    addresses: Addresses,
    clock: Clock,
    config: Config,
    links: BTreeMap<u32, Link>,
    listeners: HashMap<Service, Listener>,
    /// Who has a number: events tell it.
    last_number: u32,
    deadlines: BTreeSet<(Duration, u32)>,
    events: VecDeque<(ConnectionId, Event)>,
    /// Looks for events in vain since the last one, and the time of the last look.
    looks: u32,
    looked: Duration,
}

/// A connection, or a request.
#[derive(Debug)]
struct Link {
    /// The kernel's number.
    id: u32,
    state: State,
    service: Service,
    /// What this side offered, then what both agree on.
    agreed: Agreed,
    /// Index of the local GID.
    gid_index: u8,
    /// The program's private data, and whether receives are shared: until the request goes out.
    private_data: Vec<u8>,
    srq: bool,
    /// Whether the listener's program must still answer.
    in_backlog: bool,
    deadline: Option<Duration>,
}

/// A listener: an ID of the kernel's for each address.
#[derive(Debug)]
struct Listener {
    number: u32,
    ids: Vec<u32>,
    /// Requests that wait for the program's answer.
    waiting: usize,
}

impl KernelManager {
    pub(crate) fn new(device: &Arc<Device>, config: Config) -> Result<Self, ManagerError> {
        Ok(KernelManager {
            file: RdmaCm::open().map_err(ManagerError::NoKernel)?,
            addresses: Addresses::of(device),
            device: Arc::clone(device),
            clock: device.clock().clone(),
            config,
            links: BTreeMap::new(),
            listeners: HashMap::new(),
            last_number: 0,
            deadlines: BTreeSet::new(),
            events: VecDeque::new(),
            looks: 0,
            looked: Duration::ZERO,
        })
    }

    pub(crate) fn poll(&mut self) -> Result<Option<(ConnectionId, Event)>, ManagerError> {
        if self.events.is_empty() && self.is_time_to_look() {
            self.look()?;
        }
        Ok(self.events.pop_front())
    }

    /// A program that polls between other work is not charged a system call each time.
    fn is_time_to_look(&self) -> bool {
        self.looks < PATIENT_LOOKS || self.clock.now().saturating_sub(self.looked) >= LOOK_EVERY
    }

    /// Takes the kernel's events, and does what is due.
    fn look(&mut self) -> Result<(), ManagerError> {
        self.device.death().map_or(Ok(()), Err)?;
        self.looks = self.looks.saturating_add(1);
        while let Some(event) = self.file.next_event().map_err(|error| refused("to tell its events", error))? {
            self.looks = 0;
            self.on_event(&event);
        }
        self.looked = self.clock.now();
        while let Some((due, number)) = self.deadlines.first().copied().filter(|(due, _)| *due <= self.looked) {
            self.deadlines.remove(&(due, number));
            self.expired(number);
        }
        Ok(())
    }

    pub(crate) fn wait(&mut self, timeout: Duration) -> Result<(ConnectionId, Event), ManagerError> {
        let end = self.clock.now().saturating_add(timeout);
        loop {
            let Some(limit) = self.prepare_sleep()? else {
                if let Some(event) = self.events.pop_front() {
                    return Ok(event);
                }
                continue;
            };
            let now = self.clock.now();
            if now >= end {
                return Err(ManagerError::Timeout(timeout));
            }
            sleep(self.file.as_fd(), limit.min(end - now)).map_err(|error| refused("a wait for events", error))?;
        }
    }

    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }

    pub(crate) fn prepare_sleep(&mut self) -> Result<Option<Duration>, ManagerError> {
        if self.events.is_empty() {
            self.look()?;
            // Who sleeps looks once for each time that it was woken.
            self.looks = 0;
        }
        let due = self.deadlines.first().map_or(Duration::MAX, |(due, _)| due.saturating_sub(self.clock.now()));
        Ok(if self.events.is_empty() { Some(due) } else { None })
    }

    pub(crate) fn attributes(&self, id: ConnectionId) -> Result<(RtrAttributes, RtsAttributes), ManagerError> {
        let link = self.link(id)?;
        let mut path = self.addresses.path(&self.device, &link.agreed.path, link.gid_index)?;
        path.hop_limit = link.agreed.route.hop_limit;
        Ok(attributes(CardLimits::of(&self.device), &link.agreed, path))
    }

    pub(crate) fn path(&self, remote: IpAddr) -> Result<AddressPath, ManagerError> {
        let path = path_to(&self.device, remote)?;
        self.addresses.path(&self.device, &path, self.addresses.index_of(path.local))
    }

    pub(crate) fn state(&self, id: ConnectionId) -> Option<State> {
        self.links.get(&id.0).map(|link| link.state)
    }

    pub(crate) fn agreed(&self, id: ConnectionId) -> Option<Agreed> {
        self.links.get(&id.0).map(|link| link.agreed)
    }

    pub(crate) fn connections(&self) -> usize {
        self.links.len()
    }

    pub(crate) fn ids(&self) -> Vec<ConnectionId> {
        self.links.keys().copied().map(ConnectionId).collect()
    }

    fn link(&self, id: ConnectionId) -> Result<&Link, CallError> {
        self.links.get(&id.0).ok_or(CallError::Unknown(id.0))
    }

    /// A number that nobody has. Errors: [`CallError::Full`].
    fn next_number(&mut self) -> Result<u32, CallError> {
        if self.links.len() >= self.config.connections {
            return Err(CallError::Full { most: self.config.connections });
        }
        loop {
            self.last_number = self.last_number.wrapping_add(1);
            let is_listener = self.listeners.values().any(|listener| listener.number == self.last_number);
            if self.last_number != 0 && !is_listener && !self.links.contains_key(&self.last_number) {
                return Ok(self.last_number);
            }
        }
    }

    /// Sets the time of connection `number` by which something must have come.
    fn set_deadline(&mut self, number: u32, deadline: Option<Duration>) {
        let Some(link) = self.links.get_mut(&number) else { return };
        if let Some(old) = std::mem::replace(&mut link.deadline, deadline) {
            self.deadlines.remove(&(old, number));
        }
        self.deadlines.extend(deadline.map(|deadline| (deadline, number)));
    }

    /// Moves a connection to another state.
    fn now_in(&mut self, number: u32, state: State, deadline: Option<Duration>) {
        self.leave_backlog(number);
        if let Some(link) = self.links.get_mut(&number) {
            link.state = state;
        }
        self.set_deadline(number, deadline);
    }

    fn leave_backlog(&mut self, number: u32) {
        let Some(link) = self.links.get_mut(&number) else { return };
        if std::mem::take(&mut link.in_backlog)
            && let Some(listener) = self.listeners.get_mut(&link.service)
        {
            listener.waiting = listener.waiting.saturating_sub(1);
        }
    }

    fn report(&mut self, number: u32, event: Event) {
        self.events.push_back((ConnectionId(number), event));
    }

    /// Reports the last event of a connection, and removes it.
    fn end(&mut self, number: u32, event: Event) {
        self.report(number, event);
        self.remove(number);
    }

    /// Forgets a connection, here and in the kernel.
    fn remove(&mut self, number: u32) {
        self.leave_backlog(number);
        self.set_deadline(number, None);
        let Some(link) = self.links.remove(&number) else { return };
        self.forget(link.id);
    }

    /// Destroys an ID of the kernel's.
    fn forget(&self, id: u32) {
        if let Err(error) = self.file.destroy_id(id) {
            tracing::warn!(%error, id, "an ID of the kernel's connection manager was not destroyed");
        }
    }

    /// The program or the kernel did not go on in time.
    fn expired(&mut self, number: u32) {
        match self.state(ConnectionId(number)) {
            Some(State::Timewait) => self.end(number, Event::TimewaitExit),
            Some(_) => self.end(number, Event::Unreachable),
            None => {}
        }
    }

    /// By when the program must have answered an event.
    fn patience(&self) -> Option<Duration> {
        Some(self.clock.now() + self.config.patience)
    }
}

/// Sleeps until `fd` is readable, `limit` has passed, or a signal comes.
pub(crate) fn sleep(fd: BorrowedFd<'_>, limit: Duration) -> std::io::Result<()> {
    let limit =
        Timespec { tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX), tv_nsec: limit.subsec_nanos().into() };
    match poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&limit)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The error that the kernel refused something.
pub(crate) fn refused(doing: impl Into<String>, source: std::io::Error) -> ManagerError {
    ManagerError::Kernel { doing: doing.into(), source }
}
