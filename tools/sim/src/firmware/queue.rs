//! The command queue: slots, ownership, delivery, pending commands. PRM "Command Queue Entry Layout".
//!
//! Slots are independent. A command whose answer is delayed, or that waits for pages that the driver must give by
//! another command, stays [`Pending`] while other slots proceed.

use std::time::Instant;

use mlx5_prm::cmd::{CmdStatus, CommandQueueEntry, DeliveryStatus, InputHeader, OutputHeader};
use mlx5_prm::decode::uncovered;
use mlx5_prm::eqe::{CommandEvent, EventType};
use mlx5_prm::layout::Layout;

use super::answer::Stop;
use super::command;
use super::mailbox::{self, Checks, INLINE, MAX_LEN, xor};
use crate::dma::Purpose;
use crate::engine;
use crate::function::{Function, LOG_SIZE, LOG_STRIDE, Pending, Seen, Slot, Spoil, Wait};
use crate::objects::Objects;

/// `type` of a command queue entry: PCI transport.
const PCI_TRANSPORT: u8 = 7;
/// Minimum length of an output: status and syndrome.
const MIN_OUTPUT: usize = 8;

/// Fetches and executes the commands of these slots, one bit for each.
pub(super) fn ring(f: &mut Function, slots: u32) {
    for number in (0..1 << LOG_SIZE).filter(|number| slots & 1 << number != 0) {
        fetch(f, number);
    }
}

/// When the next delayed answer is due.
pub(super) fn next_deadline(f: &Function) -> Option<Instant> {
    let times = f.nic.firmware.queue.pending.iter().filter_map(|pending| match &pending.wait {
        Wait::Until(time, _) => Some(*time),
        Wait::Pages(_) | Wait::Forever => None,
    });
    times.min()
}

/// Sends delayed answers, and retries commands that waited for pages. Returns true if anything was done.
pub(super) fn tick(f: &mut Function) -> bool {
    let retry = std::mem::take(&mut f.nic.firmware.pages.changed);
    let is_due = |pending: &mut Pending, now: Instant| match &pending.wait {
        Wait::Until(time, _) => *time <= now,
        Wait::Pages(_) => retry,
        Wait::Forever => false,
    };
    let now = f.nic.now;
    // A command that still lacks pages becomes pending again.
    let due: Vec<Pending> = f.nic.firmware.queue.pending.extract_if(.., |pending| is_due(pending, now)).collect();
    let done = !due.is_empty();
    for Pending { slot, wait } in due {
        match wait {
            Wait::Until(_, output) => answer(f, slot, &output, DeliveryStatus::Ok),
            Wait::Pages(input) => carry_out(f, slot, input, None),
            Wait::Forever => {}
        }
    }
    f.nic.firmware.pages.denied = false;
    done
}

fn fetch(f: &mut Function, number: u32) {
    let Some(entry) = read_entry(f, number) else { return };
    if !entry.ownership() || f.nic.firmware.queue.is_pending(number) {
        f.nic.strict.report("command doorbell for a slot that is not hardware's", || {
            format!("slot {number}, function {}", f.nic.index)
        });
        return;
    }
    let mut slot =
        Slot { number, entry, output: Vec::new(), event: takes_commands(&f.nic.objects), spoil: Spoil::default() };
    match deliver(f, &mut slot) {
        Ok(input) => {
            tracing::trace!(target: "mlx5_sim::command", "slot {number} input {input:02x?}");
            let at = f.nic.here();
            if let Some(observer) = &mut f.nic.observer {
                observer.see(at, Seen::Command { slot: number, input: &input, caps: &f.nic.firmware.caps });
            }
            with_faults(f, slot, input);
        }
        Err(status) => {
            tracing::debug!(slot = number, %status, "command not delivered");
            answer(f, slot, &[], status);
        }
    }
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

/// The whole input, if the entry and its mailboxes are valid. PRM "Command Delivery Status".
fn deliver(f: &Function, slot: &mut Slot) -> Result<Vec<u8>, DeliveryStatus> {
    let entry = &slot.entry;
    if entry.r#type() != PCI_TRANSPORT {
        return Err(DeliveryStatus::BadType);
    }
    let signed = f.nic.firmware.caps.general().cmdif_checksum() != 0;
    check_signature(entry, f.nic.firmware.queue.left_signature[slot.number as usize], signed)?;
    if uncovered(&CommandQueueEntry::INFO, entry.as_bytes()).is_some() {
        return Err(DeliveryStatus::ReservedNotClear);
    }
    let (input_len, output_len) = (entry.input_length() as usize, entry.output_length() as usize);
    if !(INLINE..=MAX_LEN).contains(&input_len) {
        return Err(DeliveryStatus::BadInputLength);
    }
    if !(MIN_OUTPUT..=MAX_LEN).contains(&output_len) {
        return Err(DeliveryStatus::BadOutputLength);
    }
    let checks = Checks { token: entry.token(), signed };
    let mut input = entry.command_input_inline_data().to_vec();
    mailbox::read(&f.nic.dma, entry.input_mailbox_pointer(), input_len, &mut input, checks)?;
    slot.output = mailbox::follow(&f.nic.dma, entry.output_mailbox_pointer(), output_len, checks)?;
    Ok(input)
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
        Err(Stop::PagesNeeded) => {
            tracing::debug!("function {}: the command in slot {} waits for pages", f.nic.index, slot.number);
            f.nic.firmware.queue.pending.push(Pending { slot, wait: Wait::Pages(input) });
            return;
        }
    };
    match late {
        Some(time) => f.nic.firmware.queue.pending.push(Pending { slot, wait: Wait::Until(time, output) }),
        None => answer(f, slot, &output, DeliveryStatus::Ok),
    }
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
