//! What safe code can do: everything a data plane needs, and nothing that makes the card write memory that Rust owns.
#![forbid(unsafe_code)]

mod game;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use game::Game;
use mlx5_dv::Options;
use mlx5_dv::access::trace::{CommandRecord, Direction};
use mlx5_dv::memory::HostMemory;
use mlx5_dv::objects::{AccessFlags, MemoryRegion, Pd};
use mlx5_dv::queue::{Connection, ConnectionOptions, Failure, RemoteAddress};
use mlx5_open::Sim;
use mlx5_prm::cmd::{AllocPdIn, CreateMkeyIn, NopIn, Opcode, QueryAdapterIn, QueryHcaCapIn};
use mlx5_prm::cqe::CqeSyndrome;
use mlx5_prm::layout::Layout;

const SOON: Duration = Duration::from_secs(10);

#[test]
fn messages_go_and_come() {
    let mut game = Game::new().unwrap();
    game.play(100).unwrap();
}

#[test]
fn a_card_can_be_asked_and_numbers_be_had() {
    let sim = Sim::builder().build().unwrap();
    let device = sim.open(0).unwrap();
    device.execute(&NopIn::default(), "").unwrap();
    device.execute(&QueryAdapterIn::default(), "").unwrap();
    device.execute(&QueryHcaCapIn::default(), "").unwrap();
    let first = device.execute(&AllocPdIn::default(), "").unwrap().pd();
    assert_ne!(first, device.execute(&AllocPdIn::default(), "").unwrap().pd());
}

/// A safe command's input may contain any bytes; its opcode is always that of its type.
#[test]
fn a_safe_command_s_bytes_do_not_make_it_another() {
    let sim = Sim::builder().build().unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let options = Options::default().observe(Arc::new(move |record: &CommandRecord| {
        if record.direction == Direction::Input {
            log.lock().unwrap().push(record.opcode);
        }
    }));
    let device = sim.open_with(0, options).unwrap();
    let mkey = CreateMkeyIn::default();
    let disguised = QueryAdapterIn::read(mkey.as_bytes()).unwrap();
    seen.lock().unwrap().clear();
    let _ = device.execute(&disguised, "");
    assert_eq!(*seen.lock().unwrap(), [Opcode::QueryAdapter]);
}

/// The device can reach the whole pages around a heap vector; its key covers only the vector.
#[test]
fn a_key_of_a_heap_vector_opens_not_a_byte_beside_it() {
    let sim = Sim::builder().build().unwrap();
    let pd = Pd::alloc(&sim.open(0).unwrap()).unwrap();
    let all = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
    // Small vectors of one size are adjacent.
    let neighbours: Vec<Box<[u8; 40]>> = (0..64).map(|_| Box::new([0x5a; 40])).collect();
    let region = MemoryRegion::register(&pd, HostMemory::from_vec(vec![0x11; 40]).unwrap(), all).unwrap();
    let more: Vec<Box<[u8; 40]>> = (0..64).map(|_| Box::new([0x5a; 40])).collect();
    let source = MemoryRegion::allocate(&pd, 4096, AccessFlags::LOCAL_WRITE).unwrap();
    source.fill(0, 4096, 0xee);
    for (addr, len) in [
        (region.addr() - 1, 1),
        (region.addr() - 48, 48),
        (region.addr() + 40, 1),
        (region.addr() + 39, 2),
        (region.addr() & !0xfff, 64),
    ] {
        let connect = || Connection::new(&pd, ConnectionOptions::default()).unwrap();
        let (mut a, mut b) = (connect(), connect());
        a.connect(&b.local().unwrap()).unwrap();
        b.connect(&a.local().unwrap()).unwrap();
        let remote = RemoteAddress { addr, rkey: region.rkey() };
        a.write(source.buffer(0..len).unwrap(), remote).unwrap();
        let error = a.wait(SOON).unwrap().result.expect_err("outside of the vector");
        assert_eq!(error.failure, Failure::Syndrome(CqeSyndrome::RemoteAccess), "{addr:#x}");
    }
    assert!(neighbours.iter().chain(&more).all(|neighbour| **neighbour == [0x5a; 40]));
    let mut bytes = [0; 40];
    region.read(0, &mut bytes);
    assert_eq!(bytes, [0x11; 40]);
}
