//! Event queues that threads of the user's own read.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use super::completion::CompletionQueue;
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

/// The completion queue of a holder of queues, towards an [`EventQueue`]: what a loop does that sleeps on that one, and
/// polls the holder.
#[derive(Debug)]
pub struct EventSource<'a>(pub(super) &'a mut CompletionQueue);

impl EventSource<'_> {
    /// The number that its events have.
    pub fn cqn(&self) -> u32 {
        self.0.cq().cqn()
    }

    /// As [`CompletionQueue::arm`]. Poll once more afterwards.
    ///
    /// # Errors
    /// [`Error::Dead`].
    pub fn arm(&mut self) -> Result<(), Error> {
        self.0.arm(false)
    }

    /// As [`CompletionQueue::count_event`].
    pub fn count_event(&mut self) {
        self.0.count_event();
    }

    /// As [`CompletionQueue::take_events`], for a loop that sleeps on the queue's own eventfd.
    pub fn take_events(&mut self) -> u32 {
        self.0.take_events()
    }
}

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
