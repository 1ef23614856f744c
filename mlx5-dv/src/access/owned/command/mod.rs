//! The command queue: all slots in flight at once, each with a deadline. PRM "Command Interface".
//!
//! A command takes a slot, fills its entry and mailboxes, and rings the doorbell. Completion is always read from the
//! entry's ownership bit. In event mode the slot also waits for its event, so the EQ never holds more command events
//! than there are slots. A lost event costs a short delay; a spurious one costs nothing.
//!
//! A slot whose command missed its deadline is *quarantined* with its mailboxes, since firmware may still write them.
//! It is released when firmware replies after all.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mlx5_prm::cmd::{CommandQueueEntry, DeliveryStatus, Opcode};
use mlx5_prm::layout::Layout;

use super::mailbox::{Chain, MailboxPool, block_damage, xor};
use super::registers::Registers;
use crate::access::RawCommand;
use crate::access::check_status;
use crate::access::liveness::{Liveness, Wake};
use crate::access::trace::{CommandRecord, CommandSpan, Direction, Observers};
use crate::clock::Clock;
use crate::deadline::Deadline;
use crate::error::{CommandError, CommandErrorKind, Error};
use crate::lock::lock;
use crate::memory::{DmaBuffer, DmaPool};

/// Bytes that fit into the entry itself, each way.
const INLINE: usize = 16;
/// Revision of the command interface that this driver supports.
const INTERFACE_REV: u16 = 5;
/// Bytes of the ring: one page.
const RING: usize = 4096;
/// How long a polling waiter spins before it starts to sleep.
const SPIN: Duration = Duration::from_micros(50);
/// How long a waiter sleeps for an event before it polls.
const LOST_EVENT: Duration = Duration::from_millis(20);
/// Interval at which a waiter checks that the card is still present.
const PRESENCE: Duration = Duration::from_millis(100);

/// The command queue of one function. Any thread may execute.
#[derive(Debug)]
pub struct CommandQueue {
    registers: Arc<Registers>,
    liveness: Arc<Liveness>,
    mailboxes: MailboxPool,
    ring: DmaBuffer,
    log_stride: u8,
    slots: Mutex<Slots>,
    /// Notified when a slot may be free, when a command may be done, and on death.
    changed: Condvar,
    by_event: AtomicBool,
    verify: AtomicBool,
    timeout: Duration,
    clock: Clock,
    observers: Observers,
}

#[derive(Debug)]
struct Slots {
    states: Vec<Slot>,
    /// Bit mask of slots whose event has arrived.
    signalled: u32,
    last_token: u8,
}

#[derive(Debug)]
enum Slot {
    Free,
    Taken,
    /// Firmware missed the deadline and may still write these chains.
    Quarantined(Chain, Chain),
}

/// Which slots a command may use. One slot is reserved for page requests: a command that waits for pages must not block
/// their delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Any command.
    Ordinary,
    /// Page commands that serve firmware's requests.
    Pages,
}

/// A command in flight.
#[derive(Debug)]
pub struct Pending {
    slot: usize,
    token: u8,
    input: Chain,
    output: Chain,
    out_len: usize,
    opcode: Opcode,
    op_mod: u16,
    object: String,
    /// Its input; empty without observers.
    watched: Vec<u8>,
    sent: Duration,
    span: CommandSpan,
    limit: Duration,
    /// When it was first seen complete.
    seen: Option<Duration>,
}

impl Pending {
    fn error(&self, kind: CommandErrorKind) -> CommandError {
        CommandError { opcode: self.opcode, op_mod: self.op_mod, object: self.object.clone(), kind }
    }
}

impl Wake for CommandQueue {
    fn wake(&self) {
        // Take the lock first: otherwise the wake could fall between a waiter's last check and its sleep.
        drop(self.lock());
        self.changed.notify_all();
    }
}

impl CommandQueue {
    /// Gives firmware the command queue. PRM "Initialization Segment", `cmdq_phy_addr`.
    pub fn start(
        registers: Arc<Registers>,
        pool: Arc<DmaPool>,
        liveness: Arc<Liveness>,
        timeout: Duration,
        clock: Clock,
        observers: Observers,
    ) -> Result<Arc<Self>, Error> {
        let identity = registers.identity()?;
        if identity.cmd_interface_rev != INTERFACE_REV {
            let (given, ours) = (identity.cmd_interface_rev.into(), INTERFACE_REV.into());
            return Err(Error::response("cmd_interface_rev", given, ours..=ours, ""));
        }
        let (log_size, log_stride) = (identity.log_cmdq_size, identity.log_cmdq_stride);
        if log_size > 5 {
            return Err(Error::response("log_cmdq_size", log_size.into(), 0..=5, ""));
        }
        if log_stride < 6 || log_size + log_stride > 12 {
            let detail = format!("the command queue of 2^{log_size} entries must fit into a page");
            return Err(Error::response("log_cmdq_stride", log_stride.into(), 6..=(12 - log_size).into(), detail));
        }
        let ring = pool.allocate(RING)?;
        // SAFETY: the queue keeps the ring's page; the function's owner stops DMA before it drops the queue.
        unsafe { registers.set_command_queue(ring.iova().0) }?;
        let states = (0..1 << log_size).map(|_| Slot::Free).collect();
        let queue = Arc::new(CommandQueue {
            mailboxes: MailboxPool::new(pool),
            slots: Mutex::new(Slots { states, signalled: 0, last_token: 0 }),
            changed: Condvar::new(),
            by_event: AtomicBool::new(false),
            verify: AtomicBool::new(false),
            registers,
            liveness: Arc::clone(&liveness),
            ring,
            log_stride,
            timeout,
            clock,
            observers,
        });
        let waiter: Arc<dyn Wake> = Arc::clone(&queue) as _;
        liveness.watch(Arc::downgrade(&waiter));
        Ok(queue)
    }

    /// Sets event mode (true: waiters sleep until [`completed`](Self::completed) is called) or polling mode (false).
    pub fn set_by_event(&self, by_event: bool) {
        self.by_event.store(by_event, Ordering::Release);
        self.wake();
    }

    /// Sets whether tokens and signatures of replies are checked. Enable it after firmware was told to sign.
    pub fn set_verify(&self, verify: bool) {
        self.verify.store(verify, Ordering::Release);
    }

    /// Called for a command completion event: the commands of `slots`, a bit mask, are done.
    pub fn completed(&self, slots: u32) {
        self.lock().signalled |= slots;
        self.changed.notify_all();
    }

    /// Executes a command and waits for its completion.
    ///
    /// # Safety
    /// As for [`Access::execute`](crate::access::Access::execute).
    pub unsafe fn execute(&self, command: RawCommand) -> Result<Vec<u8>, CommandError> {
        // SAFETY: by this function's contract.
        unsafe { self.execute_within(command, self.timeout) }
    }

    /// Executes a command and waits for its completion, at most `limit`.
    ///
    /// # Safety
    /// As for [`execute`](Self::execute).
    pub unsafe fn execute_within(&self, command: RawCommand, limit: Duration) -> Result<Vec<u8>, CommandError> {
        let deadline = Deadline::after(&self.clock, limit);
        let slots = self.wait_for_slot(&deadline, limit).map_err(|kind| about(&command, kind))?;
        // SAFETY: by this function's contract.
        let mut pending = unsafe { self.send(slots, command, limit) }?;
        loop {
            if let Some(result) = self.finish(&mut pending) {
                return result;
            }
            self.wait_for_reply(&pending);
        }
    }

    /// Sends a command without waiting; `None` when no slot of its class is free.
    ///
    /// # Safety
    /// As for [`execute`](Self::execute).
    pub unsafe fn submit(&self, command: RawCommand, class: Class) -> Option<Result<Pending, CommandError>> {
        if let Err(death) = self.liveness.check() {
            return Some(Err(about(&command, CommandErrorKind::Dead(death))));
        }
        let mut slots = self.lock();
        let slot = self.take(&mut slots, class)?;
        // SAFETY: by this function's contract.
        Some(unsafe { self.send((slots, slot), command, self.timeout) })
    }

    /// The result of `pending` if it is done, timed out or the card is dead; `None` while it is in flight. Must not be
    /// called again after it returned a result.
    pub fn finish(&self, pending: &mut Pending) -> Option<Result<Vec<u8>, CommandError>> {
        if !self.owned_by_hardware(pending.slot) {
            let seen = *pending.seen.get_or_insert_with(|| self.clock.now());
            let event_due = !self.event_seen(&self.lock(), pending.slot) && self.since(seen) < LOST_EVENT;
            let waits = event_due && self.liveness.check().is_ok();
            return (!waits).then(|| {
                let result = self.complete(pending);
                pending.span.end(&result, self.since(pending.sent));
                result
            });
        }
        let kind = match self.liveness.check() {
            Err(death) => CommandErrorKind::Dead(death),
            Ok(()) if self.since(pending.sent) >= pending.limit => CommandErrorKind::Timeout(pending.limit),
            Ok(()) => return None,
        };
        let error = pending.error(kind);
        tracing::warn!(%error, slot = pending.slot, "command slot quarantined");
        let (input, output) = (std::mem::take(&mut pending.input), std::mem::take(&mut pending.output));
        self.lock().states[pending.slot] = Slot::Quarantined(input, output);
        let result = Err(error);
        pending.span.end(&result, self.since(pending.sent));
        Some(result)
    }

    /// Waits for a free ordinary slot and takes it.
    fn wait_for_slot(
        &self,
        deadline: &Deadline,
        limit: Duration,
    ) -> Result<(MutexGuard<'_, Slots>, usize), CommandErrorKind> {
        let mut slots = self.lock();
        loop {
            self.liveness.check().map_err(CommandErrorKind::Dead)?;
            if let Some(slot) = self.take(&mut slots, Class::Ordinary) {
                return Ok((slots, slot));
            }
            let left = deadline.left().unwrap_or(Duration::MAX);
            if left.is_zero() {
                return Err(CommandErrorKind::NoSlot(limit));
            }
            slots = self.wait_changed(slots, left.min(LOST_EVENT));
        }
    }

    /// Takes a free slot, or a quarantined one whose late reply has arrived.
    fn take(&self, slots: &mut Slots, class: Class) -> Option<usize> {
        let last = slots.states.len() - 1;
        let ordinary = 0..last.max(1);
        match class {
            Class::Ordinary => self.take_of(slots, ordinary),
            // If the reserved slot is quarantined, page commands take any slot: firmware must get its pages.
            Class::Pages => self.take_of(slots, last..last + 1).or_else(|| {
                matches!(slots.states[last], Slot::Quarantined(..)).then(|| self.take_of(slots, ordinary)).flatten()
            }),
        }
    }

    fn take_of(&self, slots: &mut Slots, allowed: Range<usize>) -> Option<usize> {
        for slot in allowed {
            if matches!(slots.states[slot], Slot::Quarantined(..)) && !self.owned_by_hardware(slot) {
                if let Slot::Quarantined(input, output) = std::mem::replace(&mut slots.states[slot], Slot::Free) {
                    self.mailboxes.give_back(input);
                    self.mailboxes.give_back(output);
                }
                tracing::info!(slot, "late answer: command slot back in use");
            }
            if matches!(slots.states[slot], Slot::Free) {
                slots.states[slot] = Slot::Taken;
                return Some(slot);
            }
        }
        None
    }

    /// Writes a command to its slot and rings the doorbell.
    ///
    /// # Safety
    /// As for [`execute`](Self::execute).
    unsafe fn send(
        &self,
        (mut slots, slot): (MutexGuard<'_, Slots>, usize),
        command: RawCommand,
        limit: Duration,
    ) -> Result<Pending, CommandError> {
        // An untouched block holds token 0, so 0 is not used.
        slots.last_token = slots.last_token.checked_add(1).unwrap_or(1);
        let token = slots.last_token;
        slots.signalled &= !(1 << slot);
        drop(slots);
        let (input, output) = self.chains(&command, token).map_err(|kind| {
            self.set_free(slot);
            about(&command, kind)
        })?;
        let pending = Pending {
            slot,
            token,
            input,
            output,
            out_len: command.out_len,
            opcode: command.opcode(),
            op_mod: command.op_mod(),
            object: command.object.clone(),
            watched: if self.observers.any() { command.input.clone() } else { vec![] },
            sent: self.clock.now(),
            span: CommandSpan::begin(&command),
            limit,
            seen: None,
        };
        let entry = self.fill(&pending, &command);
        if self.observers.any() {
            let blocks = self.mailboxes.blocks(&pending.input);
            self.observe(&pending, Direction::Input, entry, blocks, command.input.clone(), vec![]);
        }
        // Orders the entry before its doorbell.
        uar::barrier::to_device();
        // If the doorbell write fails, the card is marked dead, and finish() reports it. SAFETY: the slot's entry holds
        // the caller's command; its mailboxes are kept until firmware replies, or forever.
        let _ = unsafe { self.registers.ring_commands(1 << slot) };
        Ok(pending)
    }

    fn chains(&self, command: &RawCommand, token: u8) -> Result<(Chain, Chain), CommandErrorKind> {
        if command.input.len() < INLINE / 2 || command.input.len().max(command.out_len) > u32::MAX as usize {
            return Err(CommandErrorKind::Length(format!("no command has {} bytes of input", command.input.len())));
        }
        let no_memory = |error: Error| match error {
            Error::Dead(death) => CommandErrorKind::Dead(death),
            error => CommandErrorKind::Io {
                doing: "taking memory for its mailboxes".into(),
                source: std::io::Error::other(error),
            },
        };
        let rest = command.input.get(INLINE..).unwrap_or_default();
        let input = self.mailboxes.chain(rest.len(), rest, token).map_err(no_memory)?;
        match self.mailboxes.chain(command.out_len.saturating_sub(INLINE), &[], token) {
            Ok(output) => Ok((input, output)),
            Err(error) => {
                self.mailboxes.give_back(input);
                Err(no_memory(error))
            }
        }
    }

    /// Writes a command's entry: the dword with the ownership bit last.
    fn fill(&self, pending: &Pending, command: &RawCommand) -> CommandQueueEntry {
        let mut inline = [0; INLINE];
        let len = command.input.len().min(INLINE);
        inline[..len].copy_from_slice(&command.input[..len]);
        let mut entry = CommandQueueEntry::default();
        entry
            .w()
            .input_length(command.input.len() as u32)
            .input_mailbox_pointer(pending.input.pointer())
            .command_input_inline_data(&inline)
            .output_mailbox_pointer(pending.output.pointer())
            .output_length(command.out_len as u32)
            .token(pending.token)
            .ownership(true);
        let signature = !xor(entry.as_bytes());
        entry.w().signature(signature);
        let at = self.offset(pending.slot);
        let bytes = entry.as_bytes();
        let (rest, last) = bytes.split_at(CommandQueueEntry::SIZE - 4);
        self.ring.copy_in(at, rest);
        self.ring.store_be32(at + rest.len(), u32::from_be_bytes([last[0], last[1], last[2], last[3]]));
        entry
    }

    /// Reads the reply of a completed command and frees its slot.
    fn complete(&self, pending: &mut Pending) -> Result<Vec<u8>, CommandError> {
        let mut bytes = [0; CommandQueueEntry::SIZE];
        self.ring.copy_out(self.offset(pending.slot), &mut bytes);
        let entry = CommandQueueEntry::read(&bytes).unwrap_or(CommandQueueEntry::ZERO);
        let blocks = self.mailboxes.blocks(&pending.output);
        let mut output = entry.command_output_inline_data().to_vec();
        for block in &blocks {
            output.extend_from_slice(block.mailbox_data());
        }
        output.truncate(pending.out_len);
        let outcome = self.check_reply(pending, &entry, &blocks, &output);
        if self.observers.any() {
            let answers = std::mem::take(&mut pending.watched);
            self.observe(pending, Direction::Output, entry, blocks, output.clone(), answers);
        }
        self.mailboxes.give_back(std::mem::take(&mut pending.input));
        self.mailboxes.give_back(std::mem::take(&mut pending.output));
        self.set_free(pending.slot);
        outcome.map(|()| output).map_err(|kind| pending.error(kind))
    }

    fn check_reply(
        &self,
        pending: &Pending,
        entry: &CommandQueueEntry,
        blocks: &[mlx5_prm::cmd::MailboxBlock],
        output: &[u8],
    ) -> Result<(), CommandErrorKind> {
        if entry.status() != DeliveryStatus::Ok {
            return Err(CommandErrorKind::Delivery(entry.status()));
        }
        if self.verify.load(Ordering::Acquire) {
            if entry.token() != pending.token {
                let (found, sent) = (entry.token(), pending.token);
                return Err(CommandErrorKind::Damaged(format!("its entry carries token {found:#x}, not {sent:#x}")));
            }
            if xor(entry.as_bytes()) != 0xff {
                return Err(CommandErrorKind::Damaged("its entry has a wrong signature".into()));
            }
            let damage = blocks.iter().enumerate().find_map(|(i, block)| block_damage(block, i, pending.token));
            if let Some(damage) = damage {
                return Err(CommandErrorKind::Damaged(damage));
            }
        }
        check_status(output)
    }

    /// Sleeps until the reply may be there: a short time in polling mode, until an event in event mode.
    fn wait_for_reply(&self, pending: &Pending) {
        let elapsed = self.since(pending.sent);
        let by_event = self.by_event.load(Ordering::Acquire);
        if !by_event && elapsed < SPIN && !self.clock.is_virtual() {
            std::hint::spin_loop();
            return;
        }
        let slots = self.lock();
        let done = !self.owned_by_hardware(pending.slot) && self.event_seen(&slots, pending.slot);
        if done || self.liveness.check().is_err() {
            return;
        }
        // In polling mode, sleep for a fraction of the time waited so far: short commands finish quickly, long ones use
        // little CPU.
        let nap = if by_event || self.clock.is_virtual() { LOST_EVENT } else { (elapsed / 8).min(LOST_EVENT) };
        let left = pending.limit.saturating_sub(elapsed);
        drop(self.wait_changed(slots, nap.min(left)));
        let checks = |at: Duration| at.as_nanos() / PRESENCE.as_nanos();
        if checks(self.since(pending.sent)) != checks(elapsed) {
            // Finds a vanished card even if no other thread watches it.
            let _ = self.registers.check_presence();
        }
    }

    #[expect(clippy::disallowed_methods, reason = "for real time")]
    /// Waits for `changed`, at most `limit`; in virtual time, for whatever happens next.
    fn wait_changed<'a>(&'a self, slots: MutexGuard<'a, Slots>, limit: Duration) -> MutexGuard<'a, Slots> {
        if self.clock.is_virtual() {
            drop(slots);
            self.clock.pause(limit);
            return self.lock();
        }
        self.changed.wait_timeout(slots, limit).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Time since `then`.
    fn since(&self, then: Duration) -> Duration {
        self.clock.now().saturating_sub(then)
    }

    fn observe(
        &self,
        pending: &Pending,
        direction: Direction,
        entry: CommandQueueEntry,
        blocks: Vec<mlx5_prm::cmd::MailboxBlock>,
        data: Vec<u8>,
        answers: Vec<u8>,
    ) {
        self.observers.tell(&CommandRecord {
            slot: pending.slot,
            opcode: pending.opcode,
            op_mod: pending.op_mod,
            object: pending.object.clone(),
            direction,
            entry: Some(entry),
            blocks,
            data,
            answers,
            elapsed: self.since(pending.sent),
        });
    }

    /// Whether the event of `slot` has arrived; true in polling mode.
    fn event_seen(&self, slots: &Slots, slot: usize) -> bool {
        slots.signalled & 1 << slot != 0 || !self.by_event.load(Ordering::Acquire)
    }

    fn owned_by_hardware(&self, slot: usize) -> bool {
        self.ring.load_be32(self.offset(slot) + CommandQueueEntry::SIZE - 4) & 1 != 0
    }

    fn offset(&self, slot: usize) -> usize {
        slot << self.log_stride
    }

    fn set_free(&self, slot: usize) {
        self.lock().states[slot] = Slot::Free;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        lock(&self.slots)
    }

    /// Number of slots, and how many of them are quarantined.
    pub fn slots(&self) -> (usize, usize) {
        let slots = self.lock();
        let lost = slots.states.iter().filter(|slot| matches!(slot, Slot::Quarantined(..))).count();
        (slots.states.len(), lost)
    }
}

fn about(command: &RawCommand, kind: CommandErrorKind) -> CommandError {
    CommandError { opcode: command.opcode(), op_mod: command.op_mod(), object: command.object.clone(), kind }
}

#[cfg(test)]
mod tests;
