//! Event queues that threads of the user's own read, and what their events are about.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use super::completion::CompletionQueue;
use super::completion::compressed::CompressedCompletionQueue;
use crate::access::LentEvents;
use crate::deadline::Deadline;
use crate::device::Device;
use crate::error::Error;

/// An event queue of a function that this process owns, for a thread of the user's own: no other thread stands between
/// the card's interrupt and the one that polls, and its doorbells are stores to a mapped page. For programs whose
/// threads sleep on their own queues, each on one descriptor for hundreds of them. PRM "Event Queue".
///
/// [`Options::own_event_queues`](crate::Options::own_event_queues) has them made. Their vectors follow those of
/// [`Options::completion_vectors`](crate::Options::completion_vectors). A completion queue with such a
/// [`vector`](crate::objects::CqOptions::vector), and without [`events`](crate::objects::CqOptions::events), reports to
/// this queue when it was [armed](super::CompletionQueue::arm). No more completion queues may report to it than it has
/// [room](Self::capacity) for.
///
/// ```
/// # use std::time::Duration;
/// # use mlx5_dv::queue::{CompletionQueue, EventQueue};
/// # fn f(events: &mut EventQueue, queues: &mut [CompletionQueue]) -> Result<(), mlx5_dv::Error> {
/// for queue in queues.iter_mut() {
///     queue.arm(false)?; // then poll it once more
/// }
/// let cqn = events.wait(Duration::from_secs(1))?;
/// if let Some(queue) = queues.iter_mut().find(|queue| queue.cq().cqn() == cqn) {
///     queue.count_event();
///     while let Some(completion) = queue.poll() {
///         // ...
/// #       let _ = completion;
///     }
/// }
/// # Ok(())
/// # }
/// ```
///
/// Used by one thread at a time: `Send`, not `Sync`. Dropping it gives it back to the device.
pub struct EventQueue {
    lent: Box<dyn LentEvents>,
    device: Arc<Device>,
    vector: u32,
    _one_thread: PhantomData<Cell<()>>,
}

/// Whatever completions come to, as a thread sees it that sleeps until there are some: a [`CompletionQueue`], or a
/// holder of queues ([`Connection`](super::Connection), [`Hub`](super::Hub) and the others). So one loop serves them
/// all, by an [`EventQueue`], or by epoll on their descriptors.
///
/// ```
/// # use std::time::Duration;
/// # use mlx5_dv::queue::{EventQueue, EventSource};
/// /// Sleeps until one of `sources` may have something to poll.
/// fn sleep(events: &mut EventQueue, sources: &mut [Box<dyn EventSource>]) -> Result<(), mlx5_dv::Error> {
///     let cqn = events.wait(Duration::from_secs(1))?;
///     for source in sources.iter_mut().filter(|source| source.cqn() == cqn) {
///         source.count_event();
///         source.request_event()?; // then poll it
///     }
///     Ok(())
/// }
/// ```
pub trait EventSource {
    /// The number of its completion queue, which its events have.
    fn cqn(&self) -> u32;

    /// As [`CompletionQueue::fd`]: `None` without `events` in its options.
    fn fd(&self) -> Option<BorrowedFd<'_>>;

    /// Requests one event for the next completion, as [`CompletionQueue::arm`]. Poll once more afterwards.
    ///
    /// # Errors
    /// [`Error::Dead`].
    fn request_event(&mut self) -> Result<(), Error>;

    /// As [`CompletionQueue::count_event`], after an event of an [`EventQueue`].
    fn count_event(&mut self);

    /// As [`CompletionQueue::take_events`], when the descriptor is readable.
    fn take_events(&mut self) -> u32;
}

impl EventSource for CompletionQueue {
    fn cqn(&self) -> u32 {
        self.cq().cqn()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd()
    }

    fn request_event(&mut self) -> Result<(), Error> {
        self.arm(false)
    }

    fn count_event(&mut self) {
        self.count_event();
    }

    fn take_events(&mut self) -> u32 {
        self.take_events()
    }
}

/// Implements [`EventSource`] for a holder by one of its fields.
macro_rules! event_source {
    ($holder:ty $(, $generic:ident $(: $bound:path)?)?; $($field:ident).+) => {
        impl $(<$generic $(: $bound)?>)? EventSource for $holder {
            fn cqn(&self) -> u32 {
                EventSource::cqn(&self.$($field).+)
            }

            fn fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
                self.$($field).+.fd()
            }

            fn request_event(&mut self) -> Result<(), crate::error::Error> {
                self.$($field).+.request_event()
            }

            fn count_event(&mut self) {
                self.$($field).+.count_event();
            }

            fn take_events(&mut self) -> u32 {
                self.$($field).+.take_events()
            }
        }
    };
}
pub(super) use event_source;

event_source!(CompressedCompletionQueue; queue);

impl fmt::Debug for EventQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventQueue").field("vector", &self.vector).finish_non_exhaustive()
    }
}

impl EventQueue {
    /// Takes the event queue of completion vector `vector`. There is one for each.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the vector is not one of
    /// [`Options::own_event_queues`](crate::Options::own_event_queues), if its queue was taken already, or on `devx:`,
    /// where the event queues are the kernel's.
    pub fn take(device: &Arc<Device>, vector: u32) -> Result<Self, Error> {
        let lent = Arc::clone(device.access()).lend_event_queue(vector)?;
        Ok(EventQueue { lent, device: Arc::clone(device), vector, _one_thread: PhantomData })
    }

    /// Its completion vector.
    pub fn vector(&self) -> u32 {
        self.vector
    }

    /// Events that it can hold.
    pub fn capacity(&self) -> usize {
        self.lent.capacity()
    }

    /// Returns the number of the completion queue that the next event is about; `None` if there is none. Tell that
    /// queue: [`CompletionQueue::count_event`](super::CompletionQueue::count_event). A number that no queue has any
    /// more is that of one that was destroyed.
    ///
    /// # Errors
    /// [`Error::Dead`].
    pub fn poll(&mut self) -> Result<Option<u32>, Error> {
        self.lent.next_completion()
    }

    /// Requests one interrupt for the next event: [`fd`](Self::fd) becomes readable. An event that is there already
    /// causes it, too.
    ///
    /// # Errors
    /// [`Error::Dead`].
    pub fn arm(&mut self) -> Result<(), Error> {
        self.lent.arm()
    }

    /// The eventfd of its interrupt. It becomes readable when the card dies, too.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.lent.interrupt()
    }

    /// Consumes the interrupts in [`fd`](Self::fd).
    pub fn take_interrupts(&mut self) {
        if let Some(interrupt) = self.fd() {
            // Nothing to read is as good.
            let _ = rustix::io::read(interrupt, &mut [0u8; 8]);
        }
    }

    /// As [`poll`](Self::poll), sleeping until there is an event.
    ///
    /// # Errors
    /// [`Error::Timeout`] after `timeout` ([`Duration::MAX`] means no limit), [`Error::Dead`], [`Error::Io`].
    pub fn wait(&mut self, timeout: Duration) -> Result<u32, Error> {
        let deadline = Deadline::after(self.device.clock(), timeout);
        loop {
            if let Some(cqn) = self.poll()? {
                return Ok(cqn);
            }
            if deadline.has_passed() {
                let what = format!("an event of completion vector {}", self.vector);
                return Err(Error::Timeout { what, limit: timeout });
            }
            self.arm()?;
            if let Some(interrupt) = self.fd() {
                deadline.sleep_on(interrupt, "waiting for an interrupt")?;
            }
            self.take_interrupts();
        }
    }
}
