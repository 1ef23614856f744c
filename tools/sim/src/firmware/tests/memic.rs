//! Device memory.

use mlx5_prm::caps::DeviceMemCap;
use mlx5_prm::cmd::*;
use mlx5_prm::ctx::{AccessMode, Mkc};
use mlx5_prm::layout::{Be64, Layout};

use super::client::Client;
use crate::bar;
use crate::firmware::syndromes::Syndrome;

const SIZE: u32 = 128 << 10;

/// Start of the device memory, by its capabilities.
fn start(client: &mut Client) -> u64 {
    let mut query = QueryHcaCapIn::default();
    query.w().op_mod(15 << 1 | 1);
    let answer = client.exec(&query).unwrap();
    let caps = DeviceMemCap::read(answer.capability()).unwrap();
    assert!(caps.memic() && caps.memic_bar_size() == SIZE);
    caps.memic_bar_start_addr()
}

fn alloc(at: u64, range: u32, size: u32) -> AllocMemicIn {
    let mut command = AllocMemicIn::default();
    command.w().range_start_addr(at).range_size(range).memic_size(size);
    command
}

fn dealloc(at: u64, size: u32) -> DeallocMemicIn {
    let mut command = DeallocMemicIn::default();
    command.w().memic_start_addr(at).memic_size(size);
    command
}

fn key(pd: u32, at: u64, len: u64) -> WithTail<CreateMkeyIn, Be64> {
    let mut context = Mkc::ZERO;
    context.set_access_mode(AccessMode::Memic);
    context.w().lr(true).lw(true).qpn(0xff_ffff).pd(pd).start_addr(at).len(len);
    let mut command = CreateMkeyIn::default();
    command.w().memory_key_mkey_entry(&context);
    WithTail::new(command, vec![])
}

#[test]
fn a_key_of_memory_on_the_card_may_be_of_no_bytes() {
    let mut c = Client::up();
    let first = start(&mut c);
    let pd = c.exec(&AllocPdIn::default()).unwrap().pd();
    assert_eq!(c.refused(&key(pd, first, 0)), Syndrome::NoSuchMemic);
    c.exec(&alloc(first, 4096, 64)).unwrap();
    let empty = c.exec(&key(pd, first, 0)).unwrap().reply.mkey_index();
    assert_eq!(c.refused(&dealloc(first, 64)), Syndrome::MemicInUse);
    let mut destroy = DestroyMkeyIn::default();
    destroy.w().mkey_index(empty);
    c.exec(&destroy).unwrap();
    c.exec(&dealloc(first, 64)).unwrap();
}

#[test]
fn memory_on_the_card_is_taken_and_given_back() {
    let mut c = Client::up();
    let first = start(&mut c);
    assert_eq!(c.exec(&alloc(first + 4096, 8192, 4160)).unwrap().memic_start_addr(), first + 4096);
    assert_eq!(c.refused(&alloc(first + 8192, 4096, 64)), Syndrome::MemicTaken);
    assert_eq!(c.refused(&alloc(first, 8192, 0)), Syndrome::MemicSize);
    assert_eq!(c.refused(&alloc(first, 8192, 100)), Syndrome::MemicSize);
    assert_eq!(c.refused(&alloc(first, 2 * SIZE, 2 * SIZE)), Syndrome::MemicSize);
    assert_eq!(c.refused(&alloc(first, 4096, 4160)), Syndrome::MemicRange);
    assert_eq!(c.refused(&alloc(first + 64, 4096, 64)), Syndrome::MemicRange);
    assert_eq!(c.refused(&alloc(first - 4096, 4096, 64)), Syndrome::MemicRange);
    assert_eq!(c.refused(&alloc(first + u64::from(SIZE) - 4096, 8192, 64)), Syndrome::MemicRange);
    let mut aligned = alloc(first, 4096, 64);
    aligned.w().log_memic_addr_alignment(7);
    assert_eq!(c.refused(&aligned), Syndrome::MemicAlignment);
    aligned.w().log_memic_addr_alignment(6);
    c.exec(&aligned).unwrap();
    assert_eq!(c.refused(&dealloc(first + 4096, 64)), Syndrome::NoSuchMemic);
    c.exec(&dealloc(first + 4096, 4160)).unwrap();
    assert_eq!(c.refused(&dealloc(first + 4096, 4160)), Syndrome::NoSuchMemic);
    c.exec(&dealloc(first, 64)).unwrap();
    assert_eq!(c.violations(), [] as [&str; 0]);
}

#[test]
fn keys_are_of_memory_that_was_taken_and_keep_it() {
    let mut c = Client::up();
    let first = start(&mut c);
    let pd = c.exec(&AllocPdIn::default()).unwrap().pd();
    assert_eq!(c.refused(&key(pd, first, 64)), Syndrome::NoSuchMemic);
    c.exec(&alloc(first, 4096, 128)).unwrap();
    assert_eq!(c.refused(&key(pd, first + 64, 128)), Syndrome::NoSuchMemic);
    let number = c.exec(&key(pd, first + 64, 64)).unwrap().reply.mkey_index();
    assert_eq!(c.refused(&dealloc(first, 128)), Syndrome::MemicInUse);
    let mut destroy = DestroyMkeyIn::default();
    destroy.w().mkey_index(number);
    c.exec(&destroy).unwrap();
    c.exec(&dealloc(first, 128)).unwrap();
}

#[test]
fn processors_reach_what_was_taken_and_the_next_owner_finds_zeros() {
    let mut c = Client::up();
    let first = start(&mut c);
    let f = &mut c.f;
    let mut found = [1; 8];
    bar::read(f, first, &mut found);
    assert_eq!(found, [0; 8]);
    bar::write(f, first, b"to nobod");
    assert_eq!(c.violations(), [bar::RULE_DEVICE_MEMORY]);
    for _ in 0..2 {
        c.exec(&alloc(first, 4096, 64)).unwrap();
        bar::read(&mut c.f, first + 8, &mut found);
        assert_eq!(found, [0; 8]);
        bar::write(&mut c.f, first + 8, b"remember");
        bar::read(&mut c.f, first + 8, &mut found);
        assert_eq!(found, *b"remember");
        c.exec(&dealloc(first, 64)).unwrap();
    }
}

fn modify(op_mod: ModifyMemicOpMod, at: u64, operation: MemicOperation) -> ModifyMemicIn {
    let mut command = ModifyMemicIn::default();
    command.w().op_mod(op_mod.number() as u16).memic_start_addr(at).memic_operation_type(operation);
    command
}

#[test]
fn an_address_does_its_operation_on_the_memory() {
    use MemicOperation::{Increment, TestAndSet};
    use ModifyMemicOpMod::{Alloc, Dealloc};
    let mut c = Client::up();
    let first = start(&mut c) + 4096;
    assert_eq!(c.refused(&modify(Alloc, first, Increment)), Syndrome::NoSuchMemic);
    c.exec(&alloc(first, 4096, 128)).unwrap();
    assert_eq!(c.refused(&modify(Alloc, first, MemicOperation::Unknown(2))), Syndrome::MemicOperation);
    assert_eq!(c.refused(&modify(Alloc, first, MemicOperation::Unknown(200))), Syndrome::MemicOperation);
    assert_eq!(c.refused(&modify(Dealloc, first, Increment)), Syndrome::NoSuchMemicOperation);
    assert_eq!(c.refused(&modify(ModifyMemicOpMod::Unknown(2), first, Increment)), Syndrome::MemicOpMod);
    let add = c.exec(&modify(Alloc, first, Increment)).unwrap().memic_operation_addr();
    let test = c.exec(&modify(Alloc, first, TestAndSet)).unwrap().memic_operation_addr();
    assert_eq!(c.refused(&modify(Alloc, first, TestAndSet)), Syndrome::MemicOperationThere);

    let f = &mut c.f;
    bar::write(f, first + 8, &[0, 0, 0, 0, 0xff, 0xff, 0xff, 0xfe]);
    for (at, by) in [(0, &[1][..]), (0, &[1]), (8, &[0, 0, 0, 0, 0, 0, 0, 3]), (12, &[0, 0, 0, 1]), (16, &[2, 0])] {
        bar::write(f, add + at, by);
    }
    let mut found = [0; 18];
    bar::read(f, first, &mut found);
    assert_eq!(found, [2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 2, 0]);
    for (at, old, len) in [(0, &[2, 0, 0, 0, 0, 0, 0, 0][..], 1), (8, &[0, 0, 0, 1, 0, 0, 0, 2], 8)] {
        let mut found = [0; 8];
        bar::read(f, test + at, &mut found[..len]);
        assert_eq!(found, old);
        bar::read(f, test + at, &mut found[..len]);
        assert_eq!(found[..len].iter().rev().copied().collect::<Vec<_>>()[..1], [1], "it was set");
    }
    // The wrong way round, too wide, not aligned, past the allocation.
    bar::read(f, add, &mut [0; 4]);
    bar::write(f, test, &[0; 4]);
    bar::write(f, add, &[0; 16]);
    bar::write(f, add + 2, &[0; 4]);
    bar::write(f, add + 128, &[1]);
    assert_eq!(
        c.violations(),
        [bar::RULE_OPERATION, bar::RULE_OPERATION, bar::RULE_OPERATION, bar::RULE_OPERATION, bar::RULE_DEVICE_MEMORY]
    );

    assert_eq!(c.refused(&dealloc(first, 128)), Syndrome::MemicInUse);
    c.exec(&modify(Dealloc, first, Increment)).unwrap();
    c.exec(&modify(Dealloc, first, TestAndSet)).unwrap();
    c.exec(&dealloc(first, 128)).unwrap();
}
