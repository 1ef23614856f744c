//! Failures between driver and card, on a software card with its own thread: each ends in bounded time with the right
//! error. Long waits are in `patience.rs`, in virtual time.

use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use mlx5_dv::access::trace::{CommandRecord, Direction};
use mlx5_dv::{CommandErrorKind, Death, Error, Options};
use mlx5_open::Sim;
use mlx5_prm::cmd::{CmdStatus, NopIn, Opcode, QueryAdapterIn};
use mlx5_prm::init_seg::HealthSyndrome;
use mlx5_sim::fault::{Fault, Times};
use mlx5_sim::profile::Profile;
use mlx5_sim::strict::Violation;
use std::sync::{Arc, Mutex};

/// A bounded time, for a busy machine.
const SOON: Duration = Duration::from_secs(10);

fn sim() -> Sim {
    Sim::builder().build().unwrap()
}

/// Options with limits short enough for tests.
fn hasty() -> Options {
    let mut options = Options::default();
    options.command_timeout = Duration::from_millis(300);
    options.firmware_timeout = Duration::from_secs(5);
    options.health_interval = Duration::from_millis(20);
    options.health_patience = Duration::from_millis(400);
    options
}

/// Checks that the function holds no objects.
fn assert_clean(sim: &Sim) {
    let counts = sim.handle(0).counts();
    assert_eq!((counts.eqs, counts.uars, counts.pages_held, counts.dma_ranges), (0, 0, 0, 0), "{counts:?}");
}

/// The card's reports, without those about teardown steps that could not be executed.
fn worse_than_left_behind(sim: &Sim) -> Vec<Violation> {
    let left = ["objects left at TEARDOWN_HCA", "pages not taken back before DISABLE_HCA"];
    sim.violations().into_iter().filter(|violation| !left.contains(&violation.rule)).collect()
}

#[test]
fn every_firmware_status_reaches_the_caller_in_words() {
    let sim = sim();
    let device = sim.open(0).unwrap();
    for status in CmdStatus::ALL.iter().filter(|status| **status != CmdStatus::Ok) {
        let fault = Fault::CommandStatus {
            opcode: Some(Opcode::Nop.number() as u16),
            status: status.number() as u8,
            syndrome: 0x6b2f1c,
        };
        sim.handle(0).faults().inject(fault, Times::Count(1));
        let error = device.execute(&NopIn::default(), "").expect_err("refused");
        assert_eq!(error.status(), Some(*status));
        let text = error.to_string();
        assert!(text.contains(&status.to_string()) && text.contains("syndrome 0x6b2f1c: "), "{text}");
        device.execute(&NopIn::default(), "").unwrap();
    }
}

#[test]
fn a_swallowed_command_times_out_and_the_rest_goes_on() {
    let sim = sim();
    let device = sim.open_with(0, hasty()).unwrap();
    let fault = Fault::CommandSwallowed { opcode: Some(Opcode::Nop.number() as u16) };
    sim.handle(0).faults().inject(fault, Times::Count(1));
    let begin = Instant::now();
    let error = device.execute(&NopIn::default(), "").expect_err("swallowed");
    assert!(matches!(error.kind, CommandErrorKind::Timeout(_)), "{error}");
    assert!(begin.elapsed() < SOON);
    assert_eq!(device.command_slots().1, 1, "its slot is kept from use");
    device.execute(&QueryAdapterIn::default(), "").unwrap();
    assert!(device.death().is_none());
    drop(device);
    assert_clean(&sim);
}

#[test]
fn delivery_errors_and_damaged_replies_are_told_apart() {
    let sim = sim();
    let device = sim.open_with(0, hasty()).unwrap();
    let opcode = Some(Opcode::QueryHcaCap.number() as u16);
    let cases = [
        (Fault::DeliveryStatus { opcode, status: 1 }, "not delivered: SIGNATURE_ERR"),
        (Fault::DeliveryStatus { opcode, status: 2 }, "not delivered: TOKEN_ERR"),
        (Fault::BadToken { opcode }, "the reply is damaged"),
        (Fault::BadSignature { opcode }, "the reply is damaged"),
    ];
    for (fault, expected) in cases {
        sim.handle(0).faults().inject(fault, Times::Count(1));
        let error = device.query_caps().expect_err("spoiled").to_string();
        assert!(error.contains(expected), "{fault:?}: {error}");
        device.query_caps().unwrap();
    }
}

#[test]
fn a_limit_of_for_ever_is_a_limit() {
    let mut options = hasty();
    (options.command_timeout, options.firmware_timeout) = (Duration::MAX, Duration::MAX);
    sim().open_with(0, options).unwrap().execute(&NopIn::default(), "").unwrap();
}

#[test]
fn a_teardown_refused_at_any_step_goes_on_and_the_card_reaches_nothing_that_is_freed() {
    let steps = [
        Opcode::DestroyEq,
        Opcode::DeallocUar,
        Opcode::ModifyNicVportContext,
        Opcode::TeardownHca,
        Opcode::ManagePages,
        Opcode::DisableHca,
    ];
    for opcode in steps {
        let sim = sim();
        let device = sim.open_with(0, hasty()).unwrap();
        let fault = Fault::CommandStatus { opcode: Some(opcode.number() as u16), status: 6, syndrome: 0 };
        sim.handle(0).faults().inject(fault, Times::Count(1));
        drop(device);
        // Steps that were not undone remain; nothing else is wrong.
        let broken = worse_than_left_behind(&sim);
        assert_eq!(broken, [], "{opcode} was refused");
        assert!(sim.open(0).is_ok(), "after {opcode} was refused");
    }
}

#[test]
fn an_eq_that_cannot_be_destroyed_does_not_keep_the_others() {
    let sim = sim();
    let seen = Arc::new(Mutex::new(vec![]));
    let sink = Arc::clone(&seen);
    let observer = move |record: &CommandRecord| {
        if record.direction == Direction::Input && record.opcode == Opcode::DestroyEq {
            sink.lock().unwrap().push(record.object.clone());
        }
    };
    let mut options = hasty().observe(Arc::new(observer));
    options.completion_vectors = 3;
    let device = sim.open_with(0, options).unwrap();
    let fault = Fault::CommandStatus { opcode: Some(Opcode::DestroyEq.number() as u16), status: 6, syndrome: 0 };
    sim.handle(0).faults().inject(fault, Times::Count(1));
    drop(device);
    assert_eq!(seen.lock().unwrap().len(), 5, "three for completions, the asynchronous one, and that of commands");
}

#[test]
fn a_card_without_umems_of_the_driver_s_own_is_refused_by_name() {
    let mut profile = Profile::connectx5();
    profile.general_max.w().umem_uid_0(false);
    profile.general_current.w().umem_uid_0(false);
    let sim = Sim::builder().profile(profile).build().unwrap();
    let error = sim.open(0).expect_err("no umems");
    assert!(matches!(error, Error::Unsupported { capability: "umem_uid_0", .. }), "{error}");
    assert_clean(&sim);
}

#[test]
fn pages_are_given_and_taken_at_any_time() {
    let sim = sim();
    let device = sim.open_with(0, hasty()).unwrap();
    let before = device.firmware_pages();
    let faults = sim.handle(0).faults();
    let until = |pages: usize| {
        let begin = Instant::now();
        while device.firmware_pages() != pages || sim.handle(0).counts().pages_held != pages as u64 {
            assert!(begin.elapsed() < SOON, "{} pages instead of {pages}", device.firmware_pages());
            // Commands continue meanwhile.
            device.execute(&NopIn::default(), "").unwrap();
        }
    };
    faults.inject(Fault::PageRequest { pages: 1300 }, Times::Count(1));
    until(before + 1300);
    faults.inject(Fault::PageRequest { pages: -700 }, Times::Count(1));
    until(before + 600);
    faults.inject(Fault::PageRequest { pages: 1 }, Times::Count(20));
    until(before + 620);
    drop(device);
    assert_clean(&sim);
    assert_eq!(sim.violations(), []);
}

#[test]
fn a_card_that_vanishes_ends_every_wait() {
    let sim = sim();
    // Its commands could wait for a minute.
    let device = sim.open(0).unwrap();
    let events = device.async_events().events;
    let swallow = Fault::CommandSwallowed { opcode: Some(Opcode::Nop.number() as u16) };
    sim.handle(0).faults().inject(swallow, Times::Always);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let waiters: Vec<_> = (0..3).map(|_| scope.spawn(|| device.execute(&NopIn::default(), ""))).collect();
        std::thread::sleep(Duration::from_millis(50));
        sim.handle(0).faults().inject(Fault::SurpriseRemoval, Times::Always);
        for waiter in waiters {
            let error = waiter.join().unwrap().expect_err("gone");
            assert!(matches!(error.kind, CommandErrorKind::Dead(Death::Vanished)), "{error}");
        }
    });
    assert_eq!(events.recv_timeout(SOON), Err(RecvTimeoutError::Disconnected), "listeners are told");
    assert!(matches!(device.death(), Some(Error::Dead(Death::Vanished))));
    drop(device);
    assert!(begin.elapsed() < SOON);
}

#[test]
fn a_card_that_is_not_there_is_not_opened() {
    let sim = sim();
    sim.handle(0).faults().inject(Fault::SurpriseRemoval, Times::Always);
    let begin = Instant::now();
    let error = sim.open(0).expect_err("it is gone");
    assert!(error.is_dead() && error.to_string().contains("all ones"), "{error}");
    assert!(begin.elapsed() < SOON);
}

#[test]
fn a_fatal_health_syndrome_is_a_death() {
    let sim = sim();
    let device = sim.open_with(0, hasty()).unwrap();
    let events = device.async_events().events;
    sim.handle(0).faults().inject(Fault::Health { syndrome: 0x8 }, Times::Always);
    assert_eq!(events.recv_timeout(SOON), Err(RecvTimeoutError::Disconnected));
    let death = device.death().expect("dead");
    assert!(matches!(death, Error::Dead(Death::Health { syndrome: HealthSyndrome::HwFatal, .. })), "{death}");
    assert!(death.to_string().contains("HW_FATAL_ERR"), "{death}");
}

#[test]
fn a_function_turned_off_is_a_death() {
    const CMDQ_ADDR_L_SZ: u64 = 0x14;
    let sim = sim();
    let device = sim.open_with(0, hasty()).unwrap();
    let events = device.async_events().events;
    sim.handle(0).bar_write(CMDQ_ADDR_L_SZ, &(1u32 << 8).to_be_bytes());
    assert_eq!(events.recv_timeout(SOON), Err(RecvTimeoutError::Disconnected));
    assert!(matches!(device.death(), Some(Error::Dead(Death::Disabled))), "{:?}", device.death());
}

#[test]
fn wrong_names_are_refused_with_what_would_be_right() {
    for (name, expected) in [
        ("eth0", "a device is named like"),
        ("0000:3b:00.0", "write vfio:0000:3b:00.0"),
        ("sim:connectx9", "connectx5, connectx6dx, connectx7"),
        ("vfio:ffff:ff:1f.7", "no such PCI function"),
        ("vfio-user:/nonexistent/nic.sock", "mlx5 sim --socket"),
        ("devx:mlx5_none", "cannot open devx:mlx5_none"),
    ] {
        let error = mlx5_open::open(name).expect_err(name).to_string();
        assert!(error.contains(expected), "{name}: {error}");
    }
}
