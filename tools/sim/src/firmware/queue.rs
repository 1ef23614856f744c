//! The command queue: slots, ownership, delivery, pending commands. PRM "Command Queue Entry Layout".
//!
//! Slots are independent. A command whose answer is delayed, or that waits for pages that the driver must give by
//! another command, stays [`Pending`] while other slots proceed. A turn fetches a bounded number of bytes, or a long
//! command would hold up every function of the card.

use std::time::Instant;

use mlx5_prm::cmd::{CmdStatus, CommandQueueEntry, DeliveryStatus, InputHeader, OutputHeader};
use mlx5_prm::decode::uncovered;
use mlx5_prm::eqe::{CommandEvent, EventType};
use mlx5_prm::layout::Layout;

use super::answer::Stop;
use super::mailbox::{self, Checks, INLINE, MAX_LEN, xor};
use super::{command, pages};
use crate::dma::Purpose;
use crate::engine;
use crate::function::{Fetch, Function, LOG_SIZE, LOG_STRIDE, Pending, Seen, Slot, Spoil, Wait};
use crate::objects::Objects;

/// `type` of a command queue entry: PCI transport.
const PCI_TRANSPORT: u8 = 7;
/// Minimum length of an output: status and syndrome.
const MIN_OUTPUT: usize = 8;

/// Bytes of commands that are fetched and carried out in one turn: a long input takes several turns.
pub(super) const BYTES_A_TURN: usize = 1 << 18;
/// Bytes kept for commands that wait for pages. The others are fetched again.
pub(super) const MOST_KEPT: usize = 1 << 20;

/// The doorbells of these slots were rung, one bit for each. Fetches and executes their commands, as far as this turn
/// has room for them.
pub(super) fn ring(f: &mut Function, slots: u32) {
    for number in (0..1 << LOG_SIZE).filter(|number| slots & 1 << number != 0) {
        if f.nic.firmware.queue.is_due(number) {
            report_unowned(f, number);
        } else {
            f.nic.firmware.queue.rung.push_back(number);
        }
    }
    fetch_rung(f);
}

fn report_unowned(f: &Function, number: u32) {
    f.nic.strict.report("command doorbell for a slot that is not hardware's", || {
        format!("slot {number}, function {}", f.nic.index)
    });
}

/// When the next delayed answer is due.
pub(super) fn next_deadline(f: &Function) -> Option<Instant> {
    let times = f.nic.firmware.queue.pending.iter().filter_map(|pending| match &pending.wait {
        Wait::Until(time, _) => Some(*time),
        Wait::Pages(..) | Wait::Forever => None,
    });
    times.min()
}

/// Sends delayed answers, retries commands that waited for pages, and fetches further ones. Returns true if anything
/// was done.
pub(super) fn tick(f: &mut Function) -> bool {
    f.nic.firmware.queue.spent = 0;
    let retry = std::mem::take(&mut f.nic.firmware.pages.changed);
    let is_due = |pending: &mut Pending, now: Instant| match &pending.wait {
        Wait::Until(time, _) => *time <= now,
        Wait::Pages(..) => retry,
        Wait::Forever => false,
    };
    let now = f.nic.now;
    // A command that still lacks pages becomes pending again.
    let due: Vec<Pending> = f.nic.firmware.queue.pending.extract_if(.., |pending| is_due(pending, now)).collect();
    let done = !due.is_empty() || f.nic.firmware.queue.fetching.is_some() || !f.nic.firmware.queue.rung.is_empty();
    for Pending { slot, wait } in due {
        match wait {
            Wait::Until(_, output) => answer(f, slot, &output, DeliveryStatus::Ok),
            Wait::Pages(bytes, input) => retry_one(f, slot, bytes, input),
            Wait::Forever => {}
        }
    }
    fetch_rung(f);
    let queue = &f.nic.firmware.queue;
    if !f.nic.firmware.pages.changed && !queue.fetching.as_ref().is_some_and(|fetch| fetch.again) {
        f.nic.firmware.pages.denied = false;
    }
    done
}

/// Pages were given or refused: executes a command that waited for them, if that makes a difference to it. Those for
/// which this turn has no room are retried in the next one.
fn retry_one(f: &mut Function, slot: Slot, bytes: u64, input: Option<Vec<u8>>) {
    let is_next = !f.nic.firmware.pages.changed;
    if is_next && let Err(Stop::PagesNeeded(_)) = pages::check_room(f, bytes) {
        f.nic.firmware.queue.pending.push(Pending { slot, wait: Wait::Pages(bytes, input) });
        return;
    }
    let queue = &mut f.nic.firmware.queue;
    match input {
        Some(input) if is_next && queue.spent < BYTES_A_TURN => {
            queue.spent += input.len();
            carry_out(f, slot, input, None);
        }
        None if is_next && queue.fetching.is_none() => {
            queue.fetching = Some(start(slot, true));
            fetch_rung(f);
        }
        input => {
            queue.pending.push(Pending { slot, wait: Wait::Pages(bytes, input) });
            f.nic.firmware.pages.changed = true;
        }
    }
}

/// Fetches and executes commands in the order of their doorbells, until this turn has fetched enough.
fn fetch_rung(f: &mut Function) {
    while f.nic.firmware.queue.spent < BYTES_A_TURN {
        let Some(mut fetch) = f.nic.firmware.queue.fetching.take().or_else(|| next_rung(f)) else { return };
        match deliver(f, &mut fetch) {
            Ok(true) => delivered(f, fetch),
            Ok(false) => f.nic.firmware.queue.fetching = Some(fetch),
            Err(status) => {
                tracing::debug!(slot = fetch.slot.number, %status, "command not delivered");
                answer(f, fetch.slot, &[], status);
            }
        }
    }
}

/// The next command whose doorbell was rung, without its mailboxes.
fn next_rung(f: &mut Function) -> Option<Fetch> {
    loop {
        let number = f.nic.firmware.queue.rung.pop_front()?;
        f.nic.firmware.queue.spent += CommandQueueEntry::SIZE;
        let Some(entry) = read_entry(f, number) else { continue };
        if !entry.ownership() || f.nic.firmware.queue.is_pending(number) {
            report_unowned(f, number);
            continue;
        }
        let event = takes_commands(&f.nic.objects);
        return Some(start(Slot { number, entry, output: Vec::new(), event, spoil: Spoil::default() }, false));
    }
}

fn start(slot: Slot, again: bool) -> Fetch {
    let input = slot.entry.command_input_inline_data().to_vec();
    let next = [slot.entry.input_mailbox_pointer(), slot.entry.output_mailbox_pointer()];
    Fetch { slot, input, next, again }
}

/// A command is here as a whole.
fn delivered(f: &mut Function, fetch: Fetch) {
    let Fetch { slot, input, again, .. } = fetch;
    if again {
        return carry_out(f, slot, input, None);
    }
    tracing::trace!(target: "mlx5_sim::command", "slot {} input {input:02x?}", slot.number);
    let at = f.nic.here();
    if let Some(observer) = &mut f.nic.observer {
        observer.see(at, Seen::Command { slot: slot.number, input: &input, caps: &f.nic.firmware.caps });
    }
    with_faults(f, slot, input);
}

fn read_entry(f: &Function, number: u32) -> Option<CommandQueueEntry> {
    let address = f.nic.firmware.queue.address + (u64::from(number) << LOG_STRIDE);
    let mut bytes = [0; CommandQueueEntry::SIZE];
    // Reads the ownership bit first, with acquire ordering, so that the driver's earlier stores are visible.
    f.nic.dma.load_be32(address + 0x3c).ok()?;
    f.nic.dma.counted(Purpose::Command).read(address, &mut bytes).ok()?;
    CommandQueueEntry::read(&bytes)
}

/// Whether an EQ is subscribed to command completion events.
fn takes_commands(objects: &Objects) -> bool {
    let bit = 1 << EventType::Command.number();
    objects.eqs.iter().any(|(_, eq)| eq.event_mask[0] & bit != 0)
}

/// Reads the mailboxes, if they and the entry are valid. PRM "Command Delivery Status". Returns false if the rest is
/// for the next turn.
fn deliver(f: &mut Function, fetch: &mut Fetch) -> Result<bool, DeliveryStatus> {
    let Fetch { slot, input, next: [next_input, next_output], .. } = fetch;
    let entry = &slot.entry;
    let signed = f.nic.firmware.caps.general().cmdif_checksum() != 0;
    check_entry(f, slot, signed)?;
    let (input_len, output_len) = (entry.input_length() as usize, entry.output_length() as usize);
    let checks = Checks { token: entry.token(), signed };
    let (dma, spent) = (&f.nic.dma, &mut f.nic.firmware.queue.spent);
    while input.len() < input_len || slot.output.len() < mailbox::blocks(output_len) {
        if *spent >= BYTES_A_TURN {
            return Ok(false);
        }
        *spent += mailbox::DATA;
        if input.len() < input_len {
            *next_input = mailbox::read(dma, *next_input, input_len, input, checks)?;
        } else {
            *next_output = mailbox::follow(dma, *next_output, &mut slot.output, checks)?;
        }
    }
    Ok(true)
}

fn check_entry(f: &Function, slot: &Slot, signed: bool) -> Result<(), DeliveryStatus> {
    let entry = &slot.entry;
    if entry.r#type() != PCI_TRANSPORT {
        return Err(DeliveryStatus::BadType);
    }
    check_signature(entry, f.nic.firmware.queue.left_signature[slot.number as usize], signed)?;
    if uncovered(&CommandQueueEntry::INFO, entry.as_bytes()).is_some() {
        return Err(DeliveryStatus::ReservedNotClear);
    }
    if !(INLINE..=MAX_LEN).contains(&(entry.input_length() as usize)) {
        return Err(DeliveryStatus::BadInputLength);
    }
    if !(MIN_OUTPUT..=MAX_LEN).contains(&(entry.output_length() as usize)) {
        return Err(DeliveryStatus::BadOutputLength);
    }
    Ok(())
}

/// Checks an entry's signature. An unsigned entry is accepted unless signatures are enabled (`cmdif_checksum`); so is
/// one that still has the signature of the slot's last answer, because many drivers never write the field.
fn check_signature(entry: &CommandQueueEntry, left: Option<u8>, signed: bool) -> Result<(), DeliveryStatus> {
    if xor(entry.as_bytes()) == 0xff {
        return Ok(());
    }
    if !signed && (entry.signature() == 0 || Some(entry.signature()) == left) {
        return Ok(());
    }
    Err(DeliveryStatus::SignatureError)
}

fn with_faults(f: &mut Function, mut slot: Slot, input: Vec<u8>) {
    let Some(header) = InputHeader::read(&input) else { return };
    let faults = f.nic.faults.command(header.opcode().number() as u16);
    slot.spoil.token = if faults.bad_token { 0x55 } else { 0 };
    slot.spoil.signature = if faults.bad_signature { 0x55 } else { 0 };
    if faults.swallow {
        f.nic.firmware.queue.pending.push(Pending { slot, wait: Wait::Forever });
    } else if let Some(status) = faults.delivery_status {
        answer(f, slot, &[], DeliveryStatus::from_number(u32::from(status) & 0x7f));
    } else if let Some((status, syndrome)) = faults.status {
        let mut output = OutputHeader::ZERO;
        output.w().status(CmdStatus::from_number(u32::from(status))).syndrome(syndrome);
        answer(f, slot, output.as_bytes(), DeliveryStatus::Ok);
    } else {
        let late = faults.late.map(|by| f.nic.now + by);
        carry_out(f, slot, input, late);
    }
}

fn carry_out(f: &mut Function, slot: Slot, input: Vec<u8>, late: Option<Instant>) {
    let output = match command::execute(f, &input, slot.entry.output_length() as usize) {
        Ok(output) => output,
        Err(Stop::Refused(syndrome)) => {
            let mut output = OutputHeader::ZERO;
            output.w().status(syndrome.status()).syndrome(syndrome.number());
            output.as_bytes().to_vec()
        }
        Err(Stop::PagesNeeded(bytes)) => {
            tracing::debug!("function {}: the command in slot {} waits for pages", f.nic.index, slot.number);
            return wait_for_pages(f, slot, bytes, input);
        }
    };
    match late {
        Some(time) => f.nic.firmware.queue.pending.push(Pending { slot, wait: Wait::Until(time, output) }),
        None => answer(f, slot, &output, DeliveryStatus::Ok),
    }
}

/// The command waits for pages, with its input if that is not too much.
fn wait_for_pages(f: &mut Function, mut slot: Slot, bytes: u64, input: Vec<u8>) {
    let pending = &mut f.nic.firmware.queue.pending;
    let kept: usize = pending.iter().map(Pending::kept).sum();
    let input = (kept + input.len() + slot.output_bytes() <= MOST_KEPT).then_some(input);
    if input.is_none() {
        slot.output = Vec::new();
    }
    pending.push(Pending { slot, wait: Wait::Pages(bytes, input) });
}

/// Writes an output: mailboxes first, the ownership bit last. Then sends the completion event, if an EQ is subscribed.
fn answer(f: &mut Function, slot: Slot, output: &[u8], status: DeliveryStatus) {
    tracing::trace!(target: "mlx5_sim::command", "slot {} output {output:02x?}", slot.number);
    f.nic.observe(Seen::Answer { slot: slot.number, output, delivery: status });
    if status == DeliveryStatus::Ok {
        let room = output.len().min(slot.entry.output_length() as usize);
        mailbox::write(&f.nic.dma, &slot.output, &output[..room], slot.spoil);
    }
    let mut entry = slot.entry;
    let mut inline = [0; INLINE];
    let len = output.len().min(INLINE).min(entry.output_length() as usize);
    inline[..len].copy_from_slice(&output[..len]);
    entry.w().command_output_inline_data(&inline).status(status).ownership(false).signature(0);
    let signature = !xor(entry.as_bytes()) ^ slot.spoil.signature;
    entry.w().signature(signature);
    f.nic.firmware.queue.left_signature[slot.number as usize] = Some(signature);
    f.nic.firmware.queue.answered += 1;
    let address = f.nic.firmware.queue.address + (u64::from(slot.number) << LOG_STRIDE);
    if f.nic.dma.counted(Purpose::Command).publish(address + 0x20, &entry.as_bytes()[0x20..]).is_err() {
        return;
    }
    if slot.event {
        let mut event = CommandEvent::ZERO;
        event.w().vector(1 << slot.number);
        let mut data = [0; 28];
        data.copy_from_slice(event.as_bytes());
        engine::post_event(f, EventType::Command, 0, data);
    }
}
