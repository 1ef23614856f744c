//! Event queues that threads of the user's own read.

use std::fmt::Debug;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock};

use mlx5_prm::eqe::{CompletionEvent, EventType};
use mlx5_prm::layout::Layout;

use super::event_queue::EventQueue;
use crate::access::LentEvents;
use crate::access::liveness::{Liveness, Wake};
use crate::access::subscribers::signal;
use crate::error::{Error, Invalid};
use crate::lock::lock;

/// An event queue that nobody reads, and the eventfd of its interrupt.
#[derive(Debug)]
pub struct Idle {
    pub vector: u32,
    pub queue: EventQueue,
    pub interrupt: Arc<Interrupt>,
}

/// The eventfd of an interrupt. A card that dies signals it, too.
#[derive(Debug)]
pub struct Interrupt(pub OwnedFd);

impl Wake for Interrupt {
    fn wake(&self) {
        signal(&self.0);
    }
}

/// The event queues to lend.
#[derive(Debug, Default)]
pub struct Shelf {
    vectors: OnceLock<Range<u32>>,
    /// Those that are not lent now.
    idle: Mutex<Vec<Idle>>,
}

impl Shelf {
    /// Sets the completion vectors of its event queues.
    pub fn is_for(&self, vectors: Range<u32>) {
        let _ = self.vectors.set(vectors);
    }

    /// The completion vectors of its event queues.
    pub fn vectors(&self) -> Range<u32> {
        self.vectors.get().cloned().unwrap_or_default()
    }

    pub fn put(&self, idle: Idle) {
        lock(&self.idle).push(idle);
    }

    /// Takes that of completion vector `vector`. Errors: there is none, or it is lent.
    pub fn take(&self, vector: u32) -> Result<Idle, Invalid> {
        let own = self.vectors();
        if !own.contains(&vector) {
            let limit = u64::from(own.start)..=u64::from(own.end).saturating_sub(1);
            let refused = Invalid::out_of_range("completion vector", vector.into(), limit, "event queues to lend");
            return Err(refused.mend("see Options::own_event_queues"));
        }
        let mut idle = lock(&self.idle);
        let at = idle.iter().position(|idle| idle.vector == vector);
        at.map(|at| idle.swap_remove(at)).ok_or_else(|| {
            let (what, by) = (format!("the event queue of vector {vector}"), "another EventQueue".to_owned());
            Invalid::Taken { what, by, mend: "drop that one first" }
        })
    }

    /// Takes all that are not lent.
    pub fn clear(&self) -> Vec<EventQueue> {
        lock(&self.idle).drain(..).map(|idle| idle.queue).collect()
    }
}

/// An event queue that is lent.
#[derive(Debug)]
pub struct LentEventQueue {
    /// Until it is dropped.
    idle: Option<Idle>,
    shelf: Arc<Shelf>,
    liveness: Arc<Liveness>,
    /// The function, which must not end before the queue is back.
    _card: Arc<dyn Debug + Send + Sync>,
}

impl LentEventQueue {
    /// Lends `idle`, of `shelf`. `card` is what must not end before it is back.
    pub fn new(idle: Idle, shelf: &Arc<Shelf>, liveness: &Arc<Liveness>, card: Arc<dyn Debug + Send + Sync>) -> Self {
        let interrupt: Arc<dyn Wake> = Arc::clone(&idle.interrupt) as _;
        liveness.watch(Arc::downgrade(&interrupt));
        LentEventQueue { idle: Some(idle), shelf: Arc::clone(shelf), liveness: Arc::clone(liveness), _card: card }
    }
}

impl LentEvents for LentEventQueue {
    fn next_completion(&mut self) -> Result<Option<u32>, Error> {
        self.liveness.check()?;
        let Some(idle) = &mut self.idle else { return Ok(None) };
        // At most a ring's worth: a card that writes others without end does not keep the caller. Arming the queue then
        // raises an interrupt for what is left.
        for _ in 0..idle.queue.capacity() {
            let Some(event) = idle.queue.next()? else { return Ok(None) };
            if event.event_type() == EventType::Completion {
                return Ok(CompletionEvent::read(event.event_data()).map(|event| event.cqn()));
            }
            tracing::debug!(event_type = %event.event_type(), "an event that is not for a completion queue");
        }
        Ok(None)
    }

    fn arm(&mut self) -> Result<(), Error> {
        self.liveness.check()?;
        if let Some(idle) = &mut self.idle {
            idle.queue.arm()?;
        }
        Ok(())
    }

    fn capacity(&self) -> usize {
        self.idle.as_ref().map_or(0, |idle| idle.queue.capacity())
    }

    fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        self.idle.as_ref().map(|idle| idle.interrupt.0.as_fd())
    }
}

impl Drop for LentEventQueue {
    fn drop(&mut self) {
        if let Some(mut idle) = self.idle.take() {
            idle.queue.unmap_doorbells();
            self.shelf.put(idle);
        }
    }
}
