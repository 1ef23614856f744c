//! Completion queues: polling, arming, sleeping.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use mlx5_prm::cqe::Cqe;
use uar::{Arm, CqRecord};

use crate::deadline::Deadline;
use crate::error::{Error, Invalid};
use crate::objects::{Cq, CqOptions, CqRingParts, DestroyError, Uar};

pub(super) mod compressed;
pub(super) mod decode;
pub(super) mod joined;
mod ring;
mod short;

use decode::{Completion, FrameCompletion, Side, WorkError, decode, decode_frame, decode_plain_frame};
use ring::{CqRing, first_present};

pub use ring::Walk;
pub(in crate::queue) use short::MOST;
pub use short::{Ahead, Lengths, Oldest, Place, Received, Short};

/// A completion queue. Used by one thread: not `Sync`, and all methods take `&mut self`.
///
/// ```compile_fail,E0277
/// fn is_sync<T: Sync>() {}
/// is_sync::<mlx5_dv::queue::CompletionQueue>();
/// ```
///
/// ```
/// fn is_send<T: Send>() {}
/// is_send::<mlx5_dv::queue::CompletionQueue>();
/// ```
pub struct CompletionQueue {
    ring: CqRing,
    /// The eventfd of its events.
    events: Option<OwnedFd>,
    /// Events consumed so far. The card ignores an arm request with an old number.
    taken: u32,
    /// Keeps the ring mapped. Last, so that it is dropped last.
    cq: Arc<Cq>,
    /// Makes the queue `!Sync`.
    _one_thread: std::marker::PhantomData<std::cell::Cell<()>>,
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue").field("cqn", &self.cq.cqn()).field("consumed", &self.ring.consumed).finish()
    }
}

impl CompletionQueue {
    /// Creates a completion queue, and arms it through `uar`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for more entries than `log_max_cq_sz` allows, or an invalid completion vector;
    /// [`Error::Command`], [`Error::Memory`].
    pub fn create(uar: &Arc<Uar>, options: CqOptions) -> Result<Self, Error> {
        let cq = Cq::create(uar, options)?;
        let events = cq.subscribe()?;
        let CqRingParts { ring, record, log_size, shift } = cq.ring_parts()?;
        // SAFETY: the parts state the ring's size; it is page-aligned, and mapped as long as `cq`, which the queue
        // keeps and drops last, or until `resize` replaces it. The object was just created for this queue, so nobody
        // else polls its ring.
        let ring = unsafe { CqRing::new(ring, log_size, shift, CqRecord::new(record)) };
        Ok(CompletionQueue { ring, events, taken: 0, cq, _one_thread: std::marker::PhantomData })
    }

    /// The object, to be passed to queue pairs.
    pub fn cq(&self) -> &Arc<Cq> {
        &self.cq
    }

    /// Resizes the queue to hold `entries` completions, rounded as at creation. Work may continue, and completions that
    /// are not polled are kept. Does nothing if the size does not change.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the card does not support it (`cq_resize`); [`Error::Invalid`] for more than
    /// `log_max_cq_sz` allows, or fewer than are not polled yet; [`Error::Memory`], [`Error::Command`]: nothing has
    /// changed then. [`Error::InvalidResponse`] if the old ring is inconsistent: destroy the queue.
    pub fn resize(&mut self, entries: u32) -> Result<(), Error> {
        let parts = self.cq.resize(entries, self.ring.consumed)?;
        let Some(CqRingParts { ring, record, log_size, shift }) = parts else { return Ok(()) };
        let consumed = self.ring.consumed.wrapping_add(1);
        // SAFETY: as in `create`. The new record replaces the old one, which is dropped here.
        self.ring = unsafe { CqRing::new(ring, log_size, shift, CqRecord::new(record)) };
        self.ring.consumed = consumed;
        self.ring.give_back();
        Ok(())
    }

    /// The next completion; `None` if there is none. A failed work request is `Some(Err(_))`, never `None`.
    ///
    /// Stale completions of a queue pair that was reset or destroyed are skipped: its indices are reused.
    ///
    /// No system call and no allocation; a lock only to skip stale completions.
    #[inline(always)]
    pub fn poll(&mut self) -> Option<Result<Completion, WorkError>> {
        self.poll_entry().map(|cqe| decode(&cqe))
    }

    /// As [`poll`](Self::poll), for those who decode it themselves.
    #[inline(always)]
    pub(in crate::queue) fn poll_entry(&mut self) -> Option<Cqe> {
        let cqe = self.take::<false>()?;
        self.ring.give_back();
        Some(cqe)
    }

    /// A copy of the next entry, which [`pass_entry`](Self::pass_entry) takes. Whoever copies it again before must not
    /// rely on the first copy: a faulty card may have changed it.
    #[inline(always)]
    pub(in crate::queue) fn peek_entry(&mut self) -> Option<Cqe> {
        if !self.ring.is_ready() {
            return None;
        }
        if self.cq.has_former() {
            self.pass_former();
            return self.ring.is_ready().then(|| self.ring.entries.read::<false>(self.ring.consumed));
        }
        Some(self.ring.entries.read::<false>(self.ring.consumed))
    }

    /// Takes the next entry, of which there is a copy.
    #[inline(always)]
    pub(in crate::queue) fn pass_entry(&mut self) {
        self.ring.pass();
    }

    /// As [`poll`](Self::poll), for a queue of Ethernet frames.
    #[inline(always)]
    pub fn poll_frame(&mut self) -> Option<Result<FrameCompletion, WorkError>> {
        Some(decode_frame(&self.poll_frame_entry()?))
    }

    /// As [`poll_frame`](Self::poll_frame), for those who decode it themselves.
    #[inline(always)]
    pub(in crate::queue) fn poll_frame_entry(&mut self) -> Option<Cqe> {
        let cqe = self.take::<true>()?;
        self.ring.give_back();
        Some(cqe)
    }

    /// Iterates over available completions, at most `most`. Cheaper than [`poll`](Self::poll): the consumer index is
    /// written once, when the iterator is dropped.
    ///
    /// ```no_run
    /// # fn f(cq: &mut mlx5_dv::queue::CompletionQueue, sq: &mut mlx5_dv::queue::SendQueue) -> Result<(), Box<dyn std::error::Error>> {
    /// for completion in cq.poll_batch(16) {
    ///     let wr_id = sq.retire(&completion?.work)?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Until then their entries count as used: if work is posted meanwhile, the queue needs `most` more entries
    /// ([`CqOptions::entries`]) so that it cannot overrun.
    #[inline(always)]
    pub fn poll_batch(&mut self, most: usize) -> Completions<'_> {
        Completions { first: self.ring.consumed, left: most, queue: self }
    }

    /// Takes the next entry that is not stale.
    #[inline(always)]
    fn take<const FRAMES: bool>(&mut self) -> Option<Cqe> {
        if !self.ring.is_ready() {
            return None;
        }
        if self.cq.has_former() {
            self.pass_former();
            return self.ring.is_ready().then(|| self.ring.take::<FRAMES>());
        }
        Some(self.ring.take::<FRAMES>())
    }

    /// As [`is_ready`](Self::is_ready), but exact: skips stale completions first.
    fn has_completion(&mut self) -> bool {
        if self.cq.has_former() {
            self.pass_former();
        }
        self.ring.is_ready()
    }

    /// Skips stale completions.
    #[inline(always)]
    fn pass_former(&mut self) {
        self.ring.consumed = first_present(self.ring.entries, self.ring.consumed, &self.cq);
        self.ring.give_back();
    }

    /// Whether [`poll`](Self::poll) would return or skip something.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.ring.is_ready()
    }

    /// Requests one event for the next completion; if `solicited`, for the next solicited completion or error.
    /// Completions that are already present raise no event: poll once more after arming.
    ///
    /// # Errors
    /// [`Error::Dead`] if the card is dead, so no event will arrive. If it dies later, the eventfd becomes readable.
    pub fn arm(&mut self, solicited: bool) -> Result<(), Error> {
        let arm = if solicited { Arm::solicited } else { Arm::next }(self.ring.consumed, self.taken);
        self.ring.record.request(arm);
        self.cq.arm(arm)?;
        // The event of an earlier death may have been consumed together with a completion's.
        self.cq.death().map_or(Ok(()), Err)
    }

    /// The eventfd that becomes readable on an event; `None` for a queue without [`CqOptions::events`]. Callers that
    /// wait for it themselves call [`take_events`](Self::take_events) when it is readable.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.events.as_ref().map(AsFd::as_fd)
    }

    /// Consumes pending events, so that the queue can be armed again. Returns their number.
    pub fn take_events(&mut self) -> u32 {
        let Some(events) = &self.events else { return 0 };
        let mut count = [0u8; 8];
        let count = match rustix::io::read(events, &mut count) {
            Ok(8) => u64::from_ne_bytes(count) as u32,
            _ => 0,
        };
        self.taken = self.taken.wrapping_add(count);
        count
    }

    /// Counts one event of this queue, which an [`EventQueue`](super::EventQueue) has returned, so that the queue can
    /// be armed again.
    pub fn count_event(&mut self) {
        self.taken = self.taken.wrapping_add(1);
    }

    /// Waits until [`poll`](Self::poll) has something: returns at once, or sleeps on the eventfd.
    ///
    /// # Errors
    /// [`Error::Timeout`] after `timeout` ([`Duration::MAX`] means no limit); [`Error::Dead`] if the card is dead;
    /// [`Error::Invalid`] for a queue without [`CqOptions::events`].
    pub fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        let deadline = Deadline::after(self.cq.clock(), timeout);
        while !self.has_completion_or_is_armed("wait")? {
            self.sleep(&deadline)?;
            self.take_events();
            if deadline.has_passed() && !self.has_completion() {
                return Err(self.cq.why_nothing_came(timeout));
            }
        }
        Ok(())
    }

    /// Returns when [`poll`](Self::poll) has something; for tasks of any executor. `readable` returns once
    /// [`fd`](Self::fd), or a duplicate of it, is readable: as the reactor that the executor comes with says. There is
    /// no deadline: the executor's timers have them. A future that is dropped loses nothing. Example
    /// `tokio` shows it.
    ///
    /// # Errors
    /// [`Error::Dead`] when the card is gone; [`Error::Invalid`] for a queue without [`CqOptions::events`];
    /// [`Error::Io`] with an error of `readable`.
    pub async fn ready(&mut self, mut readable: impl AsyncFnMut() -> io::Result<()>) -> Result<(), Error> {
        while !self.has_completion_or_is_armed("ready")? {
            readable().await.map_err(|error| Error::io("waiting for a completion event", error))?;
            self.take_events();
        }
        Ok(())
    }

    /// Whether there is a completion; where there is none, an event is asked for. `call` is who needs it.
    fn has_completion_or_is_armed(&mut self, call: &str) -> Result<bool, Error> {
        if self.has_completion() {
            return Ok(true);
        }
        if self.events.is_none() {
            let what = format!("{call} of CQ {:#x}", self.cq.cqn());
            return Err(Invalid::Requires { what, requires: "CqOptions::events" }.into());
        }
        let armed = self.arm(false);
        // A completion that came before the arm request raises no event.
        if self.has_completion() {
            return Ok(true);
        }
        armed.map(|()| false)
    }

    /// As [`wait`](Self::wait); a queue without events yields until it [is ready](Self::is_ready).
    pub(in crate::queue) fn wait_or_yield(&mut self, timeout: Duration) -> Result<(), Error> {
        if self.events.is_some() {
            return self.wait(timeout);
        }
        let deadline = Deadline::after(self.cq.clock(), timeout);
        while !self.is_ready() {
            if deadline.has_passed() {
                return Err(self.cq.death().unwrap_or_else(|| self.cq.why_nothing_came(timeout)));
            }
            self.give_way(&deadline)?;
        }
        Ok(())
    }

    /// One step of a wait that does not sleep on events: yields to other threads, or lets virtual time pass, at most
    /// until `deadline`. Errors: [`Error::Dead`].
    pub(in crate::queue) fn give_way(&self, deadline: &Deadline) -> Result<(), Error> {
        if let Some(death) = self.cq.death() {
            return Err(death);
        }
        if self.cq.clock().is_virtual() {
            self.cq.clock().pause(deadline.left().unwrap_or(Duration::MAX));
        } else {
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Sleeps until the eventfd is readable or `deadline` passes.
    fn sleep(&self, deadline: &Deadline) -> Result<(), Error> {
        self.fd().map_or(Ok(()), |events| deadline.sleep_on(events, "waiting for a completion event"))
    }

    /// Destroys the queue. Its queue pairs must be destroyed first.
    ///
    /// # Errors
    /// The object, which stays alive, and the cause.
    pub fn destroy(self) -> Result<(), DestroyError<Cq>> {
        let CompletionQueue { ring, events, cq, .. } = self;
        drop((ring, events));
        Cq::destroy(cq)
    }
}

/// So many frames are looked at in a loop that takes only those of one stride each. For fewer it does not pay.
pub(in crate::queue) const MANY: usize = 8;

/// Polling for receives, of which lengths are looked at first.
pub trait PollReceived {
    /// Fills `places` by `take`, which is told what the next completions say after `index` others, of which it was told
    /// before, as far as they are receives that succeeded, and it returns something. There may be more behind them.
    /// Takes none of them, but skips stale ones. Returns how many places are filled. Not for queues whose card joins
    /// segments.
    fn look<P>(&mut self, index: u32, places: &mut [P], take: impl FnMut(Received) -> Option<P>) -> usize;
    /// As [`look`](Self::look) from the next completion on, for frames that are as `short` says. What is beyond the
    /// places that are filled may have changed, too.
    #[inline(always)]
    fn look_short(&mut self, places: &mut [Place], mut short: Short) -> usize {
        self.look(0, places, |received| short.take(received))
    }
    /// The frames that are there, as they are taken.
    type Ahead: Ahead;
    /// The next frames of `oldest`, at most `most`, whose `places` are for [`Ahead::next`]. Takes none of them, but
    /// skips stale ones.
    fn ahead(&mut self, places: &mut [Place; MOST], most: usize, oldest: Oldest<'_>) -> Self::Ahead;
    /// Fills `places` with those of the next frames of `oldest`. Takes none of them, but skips stale ones. Returns
    /// their number, and the strides that are used with them.
    #[inline(always)]
    fn list(&mut self, places: &mut [Place], oldest: Oldest<'_>) -> (usize, u32) {
        if places.len() < MANY { self.list_few(places, oldest) } else { self.list_many(places, oldest) }
    }

    /// As [`list`](Self::list).
    // Its loop needs all registers.
    #[inline(never)]
    fn list_few(&mut self, places: &mut [Place], oldest: Oldest<'_>) -> (usize, u32) {
        let mut run = oldest.run();
        let count = self.look(0, places, |received| run.take(received));
        (count, run.used())
    }

    /// As [`list`](Self::list): first those of one stride each, as most have, which are found with less.
    #[inline(never)]
    fn list_many(&mut self, places: &mut [Place], oldest: Oldest<'_>) -> (usize, u32) {
        let mut run = oldest.run();
        let short = places.len().min(run.most_short());
        let mut count = self.look_short(&mut places[..short], run.short_of_any_length());
        run.pass_short(count as u32);
        if let Some(others @ [_, ..]) = places.get_mut(count..) {
            count += self.look(count as u32, others, |received| run.take(received));
        }
        (count, run.used())
    }
    /// The whole completion, after `index` others, of which [`look`](Self::look) has told.
    fn decode(&self, index: u32) -> FrameCompletion;
    /// Takes the next `count` completions, of which [`look`](Self::look) has told.
    fn pass(&mut self, count: u32);
}

impl PollReceived for CompletionQueue {
    type Ahead = Walk;

    #[inline(always)]
    fn ahead(&mut self, _: &mut [Place; MOST], most: usize, oldest: Oldest<'_>) -> Walk {
        if self.cq.has_former() {
            self.pass_former();
        }
        self.ring.walk(most, oldest.run())
    }

    #[inline(always)]
    fn look<P>(&mut self, index: u32, places: &mut [P], take: impl FnMut(Received) -> Option<P>) -> usize {
        // Those that it was told of are not stale.
        if index == 0 && self.cq.has_former() {
            self.pass_former();
        }
        self.ring.look(index, places, take)
    }

    #[inline(always)]
    fn decode(&self, index: u32) -> FrameCompletion {
        let position = self.ring.consumed.wrapping_add(index);
        decode_plain_frame(&self.ring.entries.read::<true>(position), Side::Receive)
    }

    #[inline(always)]
    fn pass(&mut self, count: u32) {
        self.ring.consumed = self.ring.consumed.wrapping_add(count);
        self.ring.give_back();
    }
}

/// Iterator over completions whose entries are released together: see [`CompletionQueue::poll_batch`].
#[derive(Debug)]
pub struct Completions<'a> {
    queue: &'a mut CompletionQueue,
    /// Consumer index at the start.
    first: u32,
    /// How many more it may return.
    left: usize,
}

impl Iterator for Completions<'_> {
    type Item = Result<Completion, WorkError>;

    // Not by `next_entry`, which costs three instructions more.
    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        self.queue.take::<false>().map(|cqe| decode(&cqe))
    }
}

impl Completions<'_> {
    /// As [`next`](Self::next), for those who decode it themselves.
    #[inline(always)]
    pub(in crate::queue) fn next_entry(&mut self) -> Option<Cqe> {
        self.left = self.left.checked_sub(1)?;
        self.queue.take::<false>()
    }
}

impl Drop for Completions<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.queue.ring.consumed != self.first {
            self.queue.ring.give_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::decode::{Failure, Operation};
    use super::*;
    use crate::queue::fake::Memory;
    use mlx5_prm::cqe::{CqeOpcode, CqeSyndrome};
    use mlx5_prm::layout::Layout;
    use proptest::prelude::*;

    /// A ring, with the card's side simulated by the test.
    struct Card {
        memory: Memory,
        log_size: u32,
        shift: u32,
        produced: u32,
    }

    impl Card {
        fn new(log_size: u32, shift: u32) -> (Card, CqRing) {
            let memory = Memory::new((1 << (log_size + shift)) + 64);
            memory.fill(0, 1 << (log_size + shift), 0xff);
            // SAFETY: both lie in `memory`, which the tests keep longer than the ring.
            let ring = unsafe {
                CqRing::new(memory.at(0), log_size, shift, CqRecord::new(memory.at(1 << (log_size + shift))))
            };
            (Card { memory, log_size, shift, produced: 0 }, ring)
        }

        /// Offset of the 64 bytes of entry `index`.
        fn place(&self, index: u32) -> usize {
            ((index & ((1 << self.log_size) - 1)) as usize) * (1 << self.shift) + (1 << self.shift) - 64
        }

        /// Writes a completion as a card does: its counter is the number of earlier ones.
        fn complete(&mut self, mut cqe: Cqe) {
            cqe.w().owner(self.produced >> self.log_size & 1 != 0).wqe_counter(self.produced as u16);
            self.memory.write(self.place(self.produced), cqe.as_bytes());
            self.produced = self.produced.wrapping_add(1);
        }

        fn consumer_index(&self) -> u32 {
            self.memory.be32(1 << (self.log_size + self.shift))
        }
    }

    /// The next entry, if there is one.
    fn next(ring: &mut CqRing) -> Option<Cqe> {
        let cqe = ring.is_ready().then(|| ring.take::<false>());
        ring.give_back();
        cqe
    }

    fn received() -> Cqe {
        let mut cqe = Cqe::ZERO;
        cqe.w().opcode(CqeOpcode::ResponderSend).qpn(0x43);
        cqe
    }

    #[test]
    fn a_new_ring_is_empty_and_so_is_one_of_zeros_only_by_luck() {
        let (card, mut ring) = Card::new(2, 6);
        assert!(next(&mut ring).is_none());
        // The reason for the 0xff fill: zeros look like a completion of the first lap.
        card.memory.fill(0, 256, 0);
        assert!(next(&mut ring).is_some());
    }

    #[test]
    fn completions_come_in_order_over_many_laps_and_the_record_follows() {
        for shift in [6, 7] {
            let (mut card, mut ring) = Card::new(2, shift);
            for round in 0..50u32 {
                for _ in 0..round % 4 + 1 {
                    card.complete(received());
                }
                for _ in 0..round % 4 + 1 {
                    let before = ring.consumed;
                    assert_eq!(u32::from(next(&mut ring).unwrap().wqe_counter()), before);
                    assert_eq!(card.consumer_index(), ring.consumed);
                }
                assert!(next(&mut ring).is_none(), "a stale entry of the lap before is no completion");
            }
        }
    }

    #[test]
    fn the_owner_bit_flips_where_the_counter_wraps() {
        let (mut card, mut ring) = Card::new(1, 6);
        ring.consumed = u32::MAX - 2;
        card.produced = ring.consumed;
        // The entries of the lap before, as a card leaves them.
        for lap in [ring.consumed.wrapping_sub(2), ring.consumed.wrapping_sub(1)] {
            let mut old = received();
            old.w().owner(lap >> 1 & 1 != 0);
            card.memory.write(card.place(lap), old.as_bytes());
        }
        assert!(next(&mut ring).is_none());
        for _ in 0..5 {
            card.complete(received());
            assert!(next(&mut ring).is_some());
            assert!(next(&mut ring).is_none());
        }
    }

    #[test]
    fn a_deadline_may_be_as_far_as_one_likes() {
        let clock = crate::clock::Clock::system();
        assert!(!Deadline::after(&clock, Duration::MAX).has_passed());
        assert_eq!(Deadline::after(&clock, Duration::MAX).left(), None);
        assert!(Deadline::after(&clock, Duration::ZERO).has_passed());
    }

    #[test]
    fn a_look_at_the_next_entry_says_whose_it_is_and_takes_nothing() {
        let (mut card, mut ring) = Card::new(2, 6);
        card.complete(received());
        assert_eq!((ring.entries.read::<false>(0).qpn(), ring.consumed), (0x43, 0));
        assert!(next(&mut ring).is_some());
    }

    #[test]
    fn an_error_never_looks_like_an_empty_queue() {
        let (mut card, mut ring) = Card::new(2, 6);
        for opcode in 0..16u32 {
            let mut cqe = Cqe::ZERO;
            cqe.w().opcode(CqeOpcode::from_number(opcode));
            card.complete(cqe);
            let entry = next(&mut ring).expect("an entry with our owner bit is a completion");
            assert_eq!(decode(&entry).is_ok(), opcode <= 4);
        }
    }

    #[test]
    fn what_is_decoded_is_the_copy_and_only_the_copy() {
        let (mut card, mut ring) = Card::new(2, 6);
        card.complete(received());
        let mut error = mlx5_prm::cqe::ErrorCqe::ZERO;
        error.w().opcode(CqeOpcode::ResponderError).syndrome(CqeSyndrome::LocalLength).wqe_counter(0xffff);
        // The card rewrites the entry between our two reads: the second read counts, as a whole.
        assert!(ring.is_ready());
        card.memory.write(card.place(0), error.as_bytes());
        let taken = ring.take::<false>();
        let failure = decode(&taken).unwrap_err();
        assert_eq!((failure.failure, failure.work.index), (Failure::Syndrome(CqeSyndrome::LocalLength), 0xffff));

        card.complete(received());
        let invalid = [0xff; 64];
        assert!(ring.is_ready());
        card.memory.write(card.place(1), &invalid);
        let taken = ring.take::<false>();
        assert_eq!(decode(&taken).unwrap_err().failure, Failure::Unexpected(CqeOpcode::Invalid));
    }

    #[test]
    fn of_a_128_byte_entry_the_second_half_counts() {
        let (mut card, mut ring) = Card::new(2, 7);
        card.memory.fill(0, 64, 0);
        assert!(next(&mut ring).is_none(), "the first half is scatter data, not a completion");
        card.complete(received());
        assert_eq!(decode(&next(&mut ring).unwrap()).unwrap().operation, Operation::Received);
    }

    proptest! {
        /// In any interleaving of card and driver, each completion is seen exactly once and in order.
        #[test]
        fn each_completion_is_seen_once(log_size in 0u32..5, turns in prop::collection::vec((any::<bool>(), 0u32..40), 1..60)) {
            let (mut card, mut ring) = Card::new(log_size, 6);
            for (produce, count) in turns {
                for _ in 0..count {
                    if produce && card.produced.wrapping_sub(ring.consumed) < 1 << log_size {
                        card.complete(received());
                    } else if !produce {
                        let expected = (ring.consumed != card.produced).then_some(ring.consumed as u16);
                        prop_assert_eq!(next(&mut ring).map(|cqe| cqe.wqe_counter()), expected);
                    }
                }
            }
        }
    }
}
