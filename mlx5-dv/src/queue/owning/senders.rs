//! Which buffers others send from.

use crate::lock::{AtomicU32, Ordering};

/// For each buffer of a queue, how many senders have frames of it in flight. The queue does not post it meanwhile.
pub(super) struct Senders(Box<[AtomicU32]>);

impl Senders {
    /// None, for each of `count` buffers.
    pub(super) fn new(count: usize) -> Self {
        Senders((0..count).map(|_| AtomicU32::new(0)).collect())
    }

    /// Number of buffers.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Frames of buffer `index`, which somebody still holds, will be in flight: it is not free before
    /// [`release`](Self::release).
    pub(super) fn hold(&self, index: usize) {
        if let Some(senders) = self.0.get(index) {
            // Whoever posts the buffer has synchronized with who held it.
            senders.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes back a [`hold`](Self::hold).
    pub(super) fn release(&self, index: usize) {
        if let Some(senders) = self.0.get(index) {
            senders.fetch_sub(1, Ordering::Release);
        }
    }

    /// Whether nobody sends from buffer `index`. To be asked by whoever knows that nobody else holds it.
    pub(super) fn is_free(&self, index: usize) -> bool {
        self.0.get(index).is_some_and(|senders| senders.load(Ordering::Acquire) == 0)
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;

    use super::*;

    /// A buffer. Each packet in it has the slab, which the queue has, too. loom finds who reads the bytes while they
    /// are written.
    struct Buffer {
        slab: Arc<()>,
        memory: std::sync::Arc<(UnsafeCell<()>, Senders)>,
    }

    impl Buffer {
        fn new() -> Self {
            Buffer { slab: Arc::new(()), memory: std::sync::Arc::new((UnsafeCell::new(()), Senders::new(1))) }
        }

        /// A thread that sends a packet on, which is gone while its frame is in flight.
        fn sender(&self) -> loom::thread::JoinHandle<()> {
            let (packet, memory) = (Arc::clone(&self.slab), std::sync::Arc::clone(&self.memory));
            loom::thread::spawn(move || {
                let (bytes, senders) = &*memory;
                senders.hold(0);
                drop(packet);
                bytes.with(|_| ());
                senders.release(0);
            })
        }

        /// Posts it, if nobody holds it: a card writes to it then.
        fn post(&mut self) -> bool {
            let (bytes, senders) = &*self.memory;
            let is_free = Arc::get_mut(&mut self.slab).is_some() && senders.is_free(0);
            if is_free {
                bytes.with_mut(|_| ());
            }
            is_free
        }
    }

    #[test]
    fn a_buffer_is_not_posted_while_a_frame_of_it_is_in_flight() {
        loom::model(|| {
            let mut buffer = Buffer::new();
            let sender = buffer.sender();
            buffer.post();
            sender.join().unwrap();
            assert!(buffer.post());
        });
    }

    #[test]
    fn a_buffer_of_two_senders_is_not_posted_before_both_are_done() {
        loom::model(|| {
            let mut buffer = Buffer::new();
            let senders = [buffer.sender(), buffer.sender()];
            buffer.post();
            for sender in senders {
                sender.join().unwrap();
            }
            assert!(buffer.post());
        });
    }
}
