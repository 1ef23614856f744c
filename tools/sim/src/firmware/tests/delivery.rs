//! Invalid entries and mailboxes, and injected faults.

use std::time::Duration;

use mlx5_prm::cmd::*;
use mlx5_prm::layout::Layout;

use super::client::{Client, Failure, sign, sign_block};
use crate::fault::{Fault, Times};
use crate::firmware;

const NOP: [u8; 16] = [0x08, 0x0d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn delivered(client: &mut Client, change: impl FnOnce(&mut CommandQueueEntry)) -> Result<Vec<u8>, Failure> {
    let mut input = QueryHcaCapIn::default();
    input.w().op_mod(1);
    let mut entry = client.entry(input.as_bytes(), 0x1010);
    change(&mut entry);
    sign(&mut entry);
    client.post(0, &entry);
    client.answer(0, 0x1010)
}

fn undelivered(client: &mut Client, change: impl FnOnce(&mut CommandQueueEntry)) -> DeliveryStatus {
    match delivered(client, change) {
        Err(Failure::Undelivered(status)) => status,
        other => panic!("{other:?}"),
    }
}

#[test]
fn sound_entries_are_delivered_signed_or_not() {
    let mut client = Client::up();
    delivered(&mut client, |_| {}).unwrap();
    client.sign = false;
    let entry = client.entry(&NOP, 16);
    client.post(0, &entry);
    client.answer(0, 16).unwrap();
    // A driver that never sets the field posts what firmware left in the slot.
    let mut again = client.slot(0);
    again.w().ownership(true).token(77);
    client.post(0, &again);
    client.answer(0, 16).unwrap();
    assert_eq!(client.violations(), [] as [&str; 0]);
}

#[test]
fn each_delivery_status() {
    let mut client = Client::up();
    let c = &mut client;
    assert_eq!(undelivered(c, |entry| _ = entry.w().r#type(3)), DeliveryStatus::BadType);
    assert_eq!(undelivered(c, |entry| _ = entry.w().input_length(15)), DeliveryStatus::BadInputLength);
    assert_eq!(undelivered(c, |entry| _ = entry.w().input_length(u32::MAX)), DeliveryStatus::BadInputLength);
    assert_eq!(undelivered(c, |entry| _ = entry.w().output_length(7)), DeliveryStatus::BadOutputLength);
    assert_eq!(undelivered(c, |entry| _ = entry.w().output_length(u32::MAX)), DeliveryStatus::BadOutputLength);
    assert_eq!(undelivered(c, |entry| _ = entry.w().output_mailbox_pointer(0)), DeliveryStatus::BadOutputPointer);
    let misaligned = |entry: &mut CommandQueueEntry| {
        let pointer = entry.output_mailbox_pointer();
        entry.w().output_mailbox_pointer(pointer + 256);
    };
    assert_eq!(undelivered(c, misaligned), DeliveryStatus::BadOutputPointer);
    assert_eq!(
        undelivered(c, |entry| _ = entry.w().input_length(17).input_mailbox_pointer(0x100)),
        DeliveryStatus::BadInputPointer
    );
    let other_token = |entry: &mut CommandQueueEntry| {
        let token = entry.token() ^ 1;
        entry.w().token(token);
    };
    assert_eq!(undelivered(c, other_token), DeliveryStatus::TokenError);
    assert_eq!(c.violations(), [] as [&str; 0]);
    assert_eq!(
        undelivered(c, |entry| _ = entry.w().output_mailbox_pointer(0x1000)),
        DeliveryStatus::InternalError,
        "a pointer to nowhere"
    );
    assert_eq!(c.violations().len(), 1, "which is a DMA fault");
}

#[test]
fn reserved_bits_of_the_entry() {
    let mut client = Client::up();
    let mut bytes = client.entry(&NOP, 16).as_bytes().to_vec();
    bytes[1] = 1;
    let mut entry = CommandQueueEntry::read(&bytes).unwrap();
    sign(&mut entry);
    client.post(0, &entry);
    assert_eq!(client.answer(0, 16), Err(Failure::Undelivered(DeliveryStatus::ReservedNotClear)));
}

#[test]
fn wrong_signatures() {
    let mut client = Client::up();
    let mut entry = client.entry(&NOP, 16);
    let wrong = entry.signature() ^ 0x40;
    entry.w().signature(wrong);
    client.post(0, &entry);
    assert_eq!(client.answer(0, 16), Err(Failure::Undelivered(DeliveryStatus::SignatureError)));

    let input = [&NOP[..], &[0; 16]].concat();
    let entry = client.entry(&input, 16);
    let at = entry.input_mailbox_pointer();
    let mut block = MailboxBlock::read(&client.read(at, MailboxBlock::SIZE)).unwrap();
    let wrong = block.signature() ^ 1;
    block.w().signature(wrong);
    client.write(at, block.as_bytes());
    client.post(0, &entry);
    assert_eq!(client.answer(0, 16), Err(Failure::Undelivered(DeliveryStatus::SignatureError)));
}

#[test]
fn a_chain_out_of_order() {
    let mut client = Client::up();
    let input = [&NOP[..], &[0; 600]].concat();
    let entry = client.entry(&input, 16);
    let at = entry.input_mailbox_pointer();
    let mut block = MailboxBlock::read(&client.read(at, MailboxBlock::SIZE)).unwrap();
    block.w().block_number(1);
    sign_block(&mut block);
    client.write(at, block.as_bytes());
    client.post(0, &entry);
    assert_eq!(client.answer(0, 16), Err(Failure::Undelivered(DeliveryStatus::BadBlockNumber)));
}

#[test]
fn signatures_can_be_demanded() {
    let mut client = Client::new();
    client.exec(&EnableHcaIn::default()).unwrap();
    let mut capability = [0; 0x1000];
    let mut caps = client.f.nic.profile.general_current;
    caps.w().cmdif_checksum(3);
    capability[..0x100].copy_from_slice(caps.as_bytes());
    let mut set = SetHcaCapIn::default();
    set.w().capability(&capability);
    client.exec(&set).unwrap();
    client.exec(&QueryIssiIn::default()).unwrap();
    client.sign = false;
    let outcome = client.exec(&QueryIssiIn::default()).map(|_| ());
    assert_eq!(outcome, Err(Failure::Undelivered(DeliveryStatus::SignatureError)));
}

#[test]
fn doorbells_for_nothing_are_recorded() {
    let mut client = Client::up();
    firmware::write_register(&mut client.f, 0x18, 1 << 9);
    assert_eq!(client.violations(), ["command doorbell for a slot that is not hardware's"]);
    let mut client = Client::new();
    client.f.nic.firmware.started = client.f.nic.now;
    firmware::write_register(&mut client.f, 0x18, 1);
    assert_eq!(client.violations(), ["command doorbell while firmware starts"]);
    assert!(client.f.nic.firmware.init_segment(&client.f.nic.profile, client.f.nic.now).initializing());
}

#[test]
fn all_slots_at_once() {
    let mut client = Client::up();
    client.sign = false;
    let entries: Vec<_> = (0..32).map(|_| client.entry(&NOP, 16)).collect();
    for (slot, entry) in entries.iter().enumerate() {
        let queue = client.f.nic.firmware.queue.address;
        client.write(queue + 64 * slot as u64, entry.as_bytes());
    }
    firmware::write_register(&mut client.f, 0x18, u32::MAX);
    for slot in 0..32 {
        client.answer(slot, 16).unwrap();
    }
}

#[test]
fn faults_of_commands() {
    let mut client = Client::up();
    let inject = |client: &Client, fault| _ = client.f.nic.faults.inject(fault, Times::Count(1));
    inject(&client, Fault::CommandStatus { opcode: None, status: 0xf, syndrome: 0x1234 });
    assert_eq!(client.exec_bytes(&NOP, 16), Err(Failure::Refused(CmdStatus::NoResources, 0x1234)));
    inject(&client, Fault::DeliveryStatus { opcode: Some(0x80d), status: 2 });
    assert_eq!(client.exec_bytes(&NOP, 16), Err(Failure::Undelivered(DeliveryStatus::TokenError)));
    inject(&client, Fault::CommandSwallowed { opcode: None });
    assert_eq!(client.exec_bytes(&NOP, 16), Err(Failure::Unanswered));
    let entry = client.entry(&NOP, 16);
    inject(&client, Fault::CommandLate { opcode: None, by: Duration::from_millis(5) });
    client.post(1, &entry);
    assert_eq!(client.answer(1, 16), Err(Failure::Unanswered));
    client.f.nic.now += Duration::from_millis(5);
    client.answer(1, 16).unwrap();
    inject(&client, Fault::BadSignature { opcode: None });
    let entry = client.entry(&NOP, 16);
    client.post(1, &entry);
    assert_ne!(firmware::mailbox::xor(client.slot(1).as_bytes()), 0xff);
}
