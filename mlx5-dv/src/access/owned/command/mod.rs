//! The command queue: all slots in flight at once, each with a deadline. PRM "Command Interface".
//!
//! A command takes a slot, fills its entry and mailboxes, and rings the doorbell. Whether it is done is always read
//! from the entry's ownership bit. Where commands complete by event, its event is waited for too: so the event queue
//! never holds more command events than there are slots, however fast commands follow each other. A lost event costs a
//! little time, and an event too many costs nothing.
//!
//! A slot whose command missed its deadline is *quarantined*, with its mailboxes: firmware may still write them. It
//! comes back into use when firmware answers after all.

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

/// Bytes that travel inside the entry itself, each way.
const INLINE: usize = 16;
/// The command interface this driver speaks.
const INTERFACE_REV: u16 = 5;
/// Bytes of the ring: one page.
const RING: usize = 4096;
/// How long a waiter that polls keeps the processor before it begins to sleep.
const SPIN: Duration = Duration::from_micros(50);
/// How long a waiter sleeps for an event before it looks for itself.
const LOST_EVENT: Duration = Duration::from_millis(20);
/// How often a waiter makes sure that the card is still there.
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
    /// Signalled when a slot may have become free, when a command may be done, and at death.
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
    /// Slots whose event has come, by bit.
    signalled: u32,
    last_token: u8,
}

#[derive(Debug)]
enum Slot {
    Free,
    Taken,
    /// Firmware has not answered in time and may still write these.
    Quarantined(Chain, Chain),
}

/// Which slots a command may take. One is kept for the pages firmware asks for: a command that waits for pages must not
/// keep them from being given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Any command.
    Ordinary,
    /// Pages given or taken at firmware's request.
    Pages,
}

/// A command on its way.
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
    /// Its input, where somebody watches.
    watched: Vec<u8>,
    sent: Duration,
    span: CommandSpan,
    limit: Duration,
    /// When it was first seen to be done.
    seen: Option<Duration>,
}

impl Pending {
    fn error(&self, kind: CommandErrorKind) -> CommandError {
        CommandError { opcode: self.opcode, op_mod: self.op_mod, object: self.object.clone(), kind }
    }
}

impl Wake for CommandQueue {
    fn wake(&self) {
        // Taking the lock keeps the wake from falling between a waiter's last look and its sleep.
        drop(self.lock());
        self.changed.notify_all();
    }
}

impl CommandQueue {
    /// Gives firmware a command queue. PRM "Initialization Segment", `cmdq_phy_addr`.
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
        // SAFETY: the ring's page, which the queue keeps; the function's owner stops DMA before it lets the queue go.
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

    /// Whether waiters sleep until [`completed`](Self::completed) is called (true), or poll (false).
    pub fn set_by_event(&self, by_event: bool) {
        self.by_event.store(by_event, Ordering::Release);
        self.wake();
    }

    /// Whether replies must carry the right token and signatures. To be set once firmware was told to sign.
    pub fn set_verify(&self, verify: bool) {
        self.verify.store(verify, Ordering::Release);
    }

    /// Firmware says by an event that the commands of `slots`, a bit each, are done.
    pub fn completed(&self, slots: u32) {
        self.lock().signalled |= slots;
        self.changed.notify_all();
    }

    /// Executes a command and waits for its end.
    ///
    /// # Safety
    /// As for [`Access::execute`](crate::access::Access::execute).
    pub unsafe fn execute(&self, command: RawCommand) -> Result<Vec<u8>, CommandError> {
        // SAFETY: the caller's promise.
        unsafe { self.execute_within(command, self.timeout) }
    }

    /// Executes a command and waits for its end, `limit` at most.
    ///
    /// # Safety
    /// As for [`execute`](Self::execute).
    pub unsafe fn execute_within(&self, command: RawCommand, limit: Duration) -> Result<Vec<u8>, CommandError> {
        let deadline = Deadline::after(&self.clock, limit);
        let slots = self.wait_for_slot(&deadline, limit).map_err(|kind| about(&command, kind))?;
        // SAFETY: the caller's promise.
        let mut pending = unsafe { self.send(slots, command, limit) }?;
        loop {
            if let Some(result) = self.finish(&mut pending) {
                return result;
            }
            self.wait_for_reply(&pending);
        }
    }

    /// Sends a command without waiting; `None` when no slot of its class is free now.
    ///
    /// # Safety
    /// As for [`execute`](Self::execute).
    pub unsafe fn submit(&self, command: RawCommand, class: Class) -> Option<Result<Pending, CommandError>> {
        if let Err(death) = self.liveness.check() {
            return Some(Err(about(&command, CommandErrorKind::Dead(death))));
        }
        let mut slots = self.lock();
        let slot = self.take(&mut slots, class)?;
        // SAFETY: the caller's promise.
        Some(unsafe { self.send((slots, slot), command, self.timeout) })
    }

    /// The result of `pending` if it is done, timed out or dead; `None` if it is still on its way. To be asked no more
    /// once it gave a result.
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

    /// Waits until a slot of the ordinary class is free, and takes it.
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
            slots = self.rest(slots, left.min(LOST_EVENT));
        }
    }

    /// Takes a free slot, or one whose late answer has come meanwhile.
    fn take(&self, slots: &mut Slots, class: Class) -> Option<usize> {
        let last = slots.states.len() - 1;
        let ordinary = 0..last.max(1);
        match class {
            Class::Ordinary => self.take_of(slots, ordinary),
            // Where pages have lost their own slot they take any: firmware must not starve.
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

    /// Writes a command to the slot that was taken for it, and rings.
    ///
    /// # Safety
    /// As for [`execute`](Self::execute).
    unsafe fn send(
        &self,
        (mut slots, slot): (MutexGuard<'_, Slots>, usize),
        command: RawCommand,
        limit: Duration,
    ) -> Result<Pending, CommandError> {
        // 0 is what an untouched block carries, so it is no token.
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
        // The entry before its doorbell.
        uar::barrier::to_device();
        // A doorbell that cannot be written marked the card dead, which finish() will find. SAFETY: the slot's entry is
        // the caller's command; its mailboxes are kept until firmware answered, or for good.
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

    /// Writes the entry of a command: everything but the ownership first, then the dword that holds it.
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

    /// Reads the reply of a command that is done, and frees its slot.
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
        let outcome = self.judge(pending, &entry, &blocks, &output);
        if self.observers.any() {
            let answers = std::mem::take(&mut pending.watched);
            self.observe(pending, Direction::Output, entry, blocks, output.clone(), answers);
        }
        self.mailboxes.give_back(std::mem::take(&mut pending.input));
        self.mailboxes.give_back(std::mem::take(&mut pending.output));
        self.set_free(pending.slot);
        outcome.map(|()| output).map_err(|kind| pending.error(kind))
    }

    fn judge(
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

    /// Sleeps until the reply may be there: briefly when polling, until an event otherwise.
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
        // Polling sleeps a fraction of what it has waited already: short commands end soon, long ones cost no
        // processor.
        let nap = if by_event || self.clock.is_virtual() { LOST_EVENT } else { (elapsed / 8).min(LOST_EVENT) };
        let left = pending.limit.saturating_sub(elapsed);
        drop(self.rest(slots, nap.min(left)));
        let checks = |at: Duration| at.as_nanos() / PRESENCE.as_nanos();
        if checks(self.since(pending.sent)) != checks(elapsed) {
            // A card that vanished is found here even when no other thread watches it.
            let _ = self.registers.check_presence();
        }
    }

    #[expect(clippy::disallowed_methods, reason = "for real time")]
    /// Waits, `limit` at most, for what `changed` tells; in virtual time, for whatever happens next.
    fn rest<'a>(&'a self, slots: MutexGuard<'a, Slots>, limit: Duration) -> MutexGuard<'a, Slots> {
        if self.clock.is_virtual() {
            drop(slots);
            self.clock.pause(limit);
            return self.lock();
        }
        self.changed.wait_timeout(slots, limit).unwrap_or_else(PoisonError::into_inner).0
    }

    /// How long ago `then` was.
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

    /// Whether the event of `slot` has come, or none is waited for.
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

    /// How many slots there are, and how many of them are quarantined.
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
