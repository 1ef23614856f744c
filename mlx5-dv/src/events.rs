//! Asynchronous events as typed values, with a descriptor to wait on.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use mlx5_prm::eqe::{
    CqErrorEvent, CqErrorSyndrome, DctEvent, EventQueueType, EventType, PortChange, PortStateEvent, QpEvent,
};
use mlx5_prm::layout::Layout;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::access::{Access, AsyncEvent, AsyncEvents};
use crate::deadline::Deadline;
use crate::error::Error;

/// A queue that an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EventQueue {
    /// A queue pair, or a send or receive queue of frames.
    pub kind: EventQueueType,
    /// Its number, 24 bits.
    pub number: u32,
}

/// An asynchronous event: what happened, to whom. (`ibv_async_event`.)
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A port changed: it is up or down, or something of it is another.
    Port {
        /// The port, from 1.
        port: u8,
        /// What changed.
        change: PortChange,
    },
    /// A completion queue stopped: it overran, or the card cannot access it.
    CqError {
        /// Its number.
        cqn: u32,
        /// The cause.
        syndrome: CqErrorSyndrome,
    },
    /// The card cannot go on with a queue: its WQEs or doorbell record are out of reach. The queue is in error.
    QueueFatal(EventQueue),
    /// A queue pair received a request that is invalid. It is in error.
    QueueRequestError(EventQueue),
    /// A queue pair received a request that its rights do not allow. It is in error.
    QueueAccessError(EventQueue),
    /// A queue pair in RTR received its first message.
    CommunicationEstablished(EventQueue),
    /// A send queue is drained, after SQD was asked for.
    SendQueueDrained(EventQueue),
    /// A queue pair changed to its alternate path.
    PathMigrated(EventQueue),
    /// A queue pair could not change to its alternate path.
    PathMigrationFailed(EventQueue),
    /// A queue pair in error takes no more receives of its shared receive queue.
    LastWqeReached(EventQueue),
    /// A shared receive queue has fewer receives left than its limit.
    SrqLimitReached {
        /// Its number.
        srqn: u32,
    },
    /// The card cannot go on with a shared receive queue.
    SrqError {
        /// Its number.
        srqn: u32,
    },
    /// A dynamically connected target has no more initiators, after DRAIN_DCT.
    DctDrained {
        /// Its number.
        dctn: u32,
    },
    /// A message for a dynamically connected target had another access key.
    DctKeyViolation {
        /// Its number.
        dctn: u32,
    },
    /// The system wants the function back: somebody unbinds or unplugs it, and waits until this process has closed it.
    /// The card does not say this; it is told once.
    WantedBack,
    /// Events were lost, since they were not read in time: ask the card for the state of what they may have been about
    /// (such as [`Device::port`](crate::Device::port)). The card does not say this; it is told as soon as it is
    /// known, before events that are yet to be read.
    Lost {
        /// How many.
        count: u64,
    },
    /// Anything else, as the card tells it.
    Other(AsyncEvent),
}

impl From<AsyncEvent> for Event {
    fn from(event: AsyncEvent) -> Self {
        let data = &event.data;
        let queue = || {
            let about = QpEvent::read(data).unwrap_or(QpEvent::ZERO);
            EventQueue { kind: EventQueueType::from_number(about.r#type().into()), number: about.qp_srq_n() }
        };
        let dctn = || DctEvent::read(data).map_or(0, |about| about.dct_number());
        match event.event_type {
            EventType::PortChange => {
                let port = PortStateEvent::read(data).map_or(0, |about| about.port());
                Event::Port { port, change: PortChange::from_number(event.sub_type.into()) }
            }
            EventType::CqError => {
                let about = CqErrorEvent::read(data).unwrap_or(CqErrorEvent::ZERO);
                Event::CqError { cqn: about.cqn(), syndrome: CqErrorSyndrome::from_number(about.syndrome().into()) }
            }
            EventType::WqCatastrophic => Event::QueueFatal(queue()),
            EventType::WqInvalidRequest => Event::QueueRequestError(queue()),
            EventType::WqAccessError => Event::QueueAccessError(queue()),
            EventType::CommunicationEstablished => Event::CommunicationEstablished(queue()),
            EventType::SendQueueDrained => Event::SendQueueDrained(queue()),
            EventType::PathMigrated => Event::PathMigrated(queue()),
            EventType::PathMigrationFailed => Event::PathMigrationFailed(queue()),
            EventType::SrqLastWqe => Event::LastWqeReached(queue()),
            EventType::SrqLimit => Event::SrqLimitReached { srqn: queue().number },
            EventType::SrqCatastrophic => Event::SrqError { srqn: queue().number },
            EventType::DctDrained => Event::DctDrained { dctn: dctn() },
            EventType::DctKeyViolation => Event::DctKeyViolation { dctn: dctn() },
            _ => Event::Other(event),
        }
    }
}

impl fmt::Display for EventQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:#x}", self.kind, self.number)
    }
}

/// One line, which begins with the event's name in the PRM, if it is the card's.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Port { change, .. } => write!(f, "{}: {change}", EventType::PortChange),
            Event::CqError { cqn, syndrome } => write!(f, "{}: CQ {cqn:#x}, {syndrome}", EventType::CqError),
            Event::QueueFatal(queue) => write!(f, "{}: {queue}", EventType::WqCatastrophic),
            Event::QueueRequestError(queue) => write!(f, "{}: {queue}", EventType::WqInvalidRequest),
            Event::QueueAccessError(queue) => write!(f, "{}: {queue}", EventType::WqAccessError),
            Event::CommunicationEstablished(queue) => write!(f, "{}: {queue}", EventType::CommunicationEstablished),
            Event::SendQueueDrained(queue) => write!(f, "{}: {queue}", EventType::SendQueueDrained),
            Event::PathMigrated(queue) => write!(f, "{}: {queue}", EventType::PathMigrated),
            Event::PathMigrationFailed(queue) => write!(f, "{}: {queue}", EventType::PathMigrationFailed),
            Event::LastWqeReached(queue) => write!(f, "{}: {queue}", EventType::SrqLastWqe),
            Event::SrqLimitReached { srqn } => write!(f, "{}: SRQ {srqn:#x}", EventType::SrqLimit),
            Event::SrqError { srqn } => write!(f, "{}: SRQ {srqn:#x}", EventType::SrqCatastrophic),
            Event::DctDrained { dctn } => write!(f, "{}: DCT {dctn:#x}", EventType::DctDrained),
            Event::DctKeyViolation { dctn } => write!(f, "{}: DCT {dctn:#x}", EventType::DctKeyViolation),
            Event::WantedBack => f.write_str("WANTED_BACK: the system waits until this function is closed"),
            Event::Lost { count } => write!(f, "LOST: {count} events, which were not read in time"),
            Event::Other(AsyncEvent { event_type, sub_type, data }) => {
                write!(f, "{event_type}, sub type {sub_type:#x}: {data:02x?}")
            }
        }
    }
}

/// A card's asynchronous events from [`Device::events`](crate::Device::events) on, in order. One that is not read in
/// time loses events beyond some hundreds, which it is told ([`Event::Lost`]).
///
/// To wait for them beside other things, wait until [`fd`](Self::fd) is readable (epoll, or a reactor), then
/// [`poll`](Self::poll) until there is none.
#[derive(Debug)]
pub struct Events {
    events: AsyncEvents,
    /// A semaphore: one for each event, one for all that were lost, and one for the card's death, which is never taken.
    fd: OwnedFd,
    /// Whether [`Event::WantedBack`] was returned.
    was_wanted: Cell<bool>,
    access: Arc<dyn Access>,
}

impl Events {
    pub(crate) fn of(access: &Arc<dyn Access>) -> Result<Self, Error> {
        let failed = |error: rustix::io::Errno| Error::io("creating an eventfd", error.into());
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE;
        let fd = eventfd(0, flags).map_err(failed)?;
        let theirs = rustix::io::dup(&fd).map_err(failed)?;
        let events = access.async_events(Some(theirs));
        Ok(Events { events, fd, was_wanted: Cell::new(false), access: Arc::clone(access) })
    }

    /// The descriptor that is readable while there are events, and for ever once the card is dead.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The next event that has come; `None` if there is none. Errors: [`Error::Dead`] behind the last event of a dead
    /// card.
    pub fn poll(&self) -> Result<Option<Event>, Error> {
        if self.access.is_wanted_back() && !self.was_wanted.replace(true) {
            self.take_count();
            return Ok(Some(Event::WantedBack));
        }
        let count = self.events.take_lost();
        if count > 0 {
            self.take_count();
            return Ok(Some(Event::Lost { count }));
        }
        // A count may be left of an event that was read before its count was there. It is taken, and what came since is
        // looked for again.
        for _ in 0..2 {
            match self.events.events.try_recv() {
                Ok(event) => {
                    self.take_count();
                    return Ok(Some(event.into()));
                }
                Err(mpsc::TryRecvError::Empty) => self.take_count(),
                Err(mpsc::TryRecvError::Disconnected) => return self.access.death().map_or(Ok(None), Err),
            }
        }
        Ok(None)
    }

    fn take_count(&self) {
        let _ = rustix::io::read(&self.fd, &mut [0; 8]);
    }

    /// Waits for the next event.
    ///
    /// # Errors
    /// [`Error::Timeout`] ([`Duration::MAX`] means forever); [`Error::Dead`]; [`Error::Io`].
    pub fn wait(&self, timeout: Duration) -> Result<Event, Error> {
        let deadline = Deadline::after(self.access.clock(), timeout);
        loop {
            if let Some(event) = self.poll()? {
                return Ok(event);
            }
            if deadline.has_passed() {
                return Err(Error::Timeout { what: "an asynchronous event".into(), limit: timeout });
            }
            self.sleep(&deadline)?;
        }
    }

    /// Sleeps until there may be an event, or `deadline` passes.
    fn sleep(&self, deadline: &Deadline) -> Result<(), Error> {
        let clock = self.access.clock();
        if clock.is_virtual() {
            clock.pause(deadline.left().unwrap_or(Duration::MAX));
            return Ok(());
        }
        let left = deadline.left().map(|left| Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        match poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(Error::io("waiting for an asynchronous event", error.into())),
        }
    }

    /// As [`wait`](Self::wait), for tasks of any executor: `readable` returns once [`fd`](Self::fd), or a duplicate of
    /// it, is readable. A future that is dropped loses nothing.
    ///
    /// # Errors
    /// [`Error::Dead`]; [`Error::Io`] with an error of `readable`.
    pub async fn next(&self, mut readable: impl AsyncFnMut() -> io::Result<()>) -> Result<Event, Error> {
        loop {
            if let Some(event) = self.poll()? {
                return Ok(event);
            }
            readable().await.map_err(|error| Error::io("waiting for an asynchronous event", error))?;
        }
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(event_type: EventType, sub_type: u8, data: [u8; 28]) -> Event {
        AsyncEvent { event_type, sub_type, data }.into()
    }

    #[test]
    fn entries_become_what_they_say() {
        let mut about = QpEvent::ZERO;
        about.w().r#type(EventQueueType::Sq.number() as u8).qp_srq_n(0x123);
        let data: [u8; 28] = about.as_bytes().try_into().unwrap();
        let queue = EventQueue { kind: EventQueueType::Sq, number: 0x123 };
        assert_eq!(event(EventType::WqCatastrophic, 0, data), Event::QueueFatal(queue));
        assert_eq!(event(EventType::WqAccessError, 0, data).to_string(), "WQ_ACCESS_ERROR: SQ 0x123");
        assert_eq!(event(EventType::SrqLimit, 0, data), Event::SrqLimitReached { srqn: 0x123 });

        let mut about = PortStateEvent::ZERO;
        about.w().port(1);
        let data: [u8; 28] = about.as_bytes().try_into().unwrap();
        let down = event(EventType::PortChange, PortChange::Down.number() as u8, data);
        assert_eq!(
            (down.to_string().as_str(), &down),
            ("PORT_CHANGE: DOWN", &Event::Port { port: 1, change: PortChange::Down })
        );

        let unknown = AsyncEvent { event_type: EventType::Gpio, sub_type: 3, data };
        assert_eq!(Event::from(unknown.clone()), Event::Other(unknown));
    }
}
