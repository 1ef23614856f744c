//! Waits that reach their deadline, with the limits of real programs. In virtual time they cost nothing, and their
//! lengths are exact.

use std::sync::mpsc::TryRecvError;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mlx5_dv::access::trace::{CommandRecord, Direction};
use mlx5_dv::{CommandError, CommandErrorKind, Death, Device, Error, Options};
use mlx5_open::virtual_time::World;
use mlx5_prm::cmd::{CmdStatus, NopIn, Opcode};
use mlx5_sim::card::{Card, FunctionHandle, SteppedCard};
use mlx5_sim::fault::{Fault, Times};
use mlx5_sim::strict::Violation;

/// A simulation with one card and one function.
struct Stage {
    world: World,
    card: Arc<SteppedCard>,
}

impl Stage {
    fn new() -> Self {
        let world = World::new(1);
        let card = world.simulated().card(Card::builder().strict(true)).unwrap();
        Stage { world, card }
    }

    fn open(&self, options: Options) -> Result<Arc<Device>, Error> {
        self.world.open_with(&self.card, 0, options)
    }

    fn handle(&self) -> FunctionHandle {
        self.card.function(0)
    }

    fn inject(&self, fault: Fault, times: Times) {
        self.handle().faults().inject(fault, times);
    }

    fn now(&self) -> Duration {
        self.world.clock().now()
    }

    fn pause(&self, time: Duration) {
        let end = self.now() + time;
        while self.now() < end {
            self.world.clock().pause(end - self.now());
        }
    }

    /// Lets time pass until `condition` is true, at most ten minutes. Returns how much passed.
    fn until(&self, condition: impl Fn() -> bool) -> Duration {
        let begin = self.now();
        while !condition() {
            assert!(self.now() - begin < Duration::from_secs(600), "still not so");
            self.world.clock().pause(Duration::from_millis(1));
        }
        self.now() - begin
    }

    /// The card's reports, without those about teardown steps that could not be executed.
    fn worse_than_left_behind(&self) -> Vec<Violation> {
        let left = ["objects left at TEARDOWN_HCA", "pages not taken back before DISABLE_HCA"];
        let all = self.handle().strict().take();
        all.into_iter().filter(|violation| !left.contains(&violation.rule)).collect()
    }
}

fn command_error(error: Error) -> CommandError {
    match error {
        Error::Command(error) => error,
        other => panic!("not a command's error: {other}"),
    }
}

/// Every opcode of a bring-up, once.
fn bring_up_opcodes() -> Vec<Opcode> {
    let seen = Arc::new(Mutex::new(vec![]));
    let sink = Arc::clone(&seen);
    let observer = move |record: &CommandRecord| {
        let mut seen = sink.lock().unwrap();
        if record.direction == Direction::Input && !seen.contains(&record.opcode) {
            seen.push(record.opcode);
        }
    };
    let device = Stage::new().open(Options::default().observe(Arc::new(observer))).unwrap();
    let opcodes = seen.lock().unwrap().clone();
    drop(device);
    opcodes
}

#[test]
fn a_bring_up_refused_at_any_step_is_undone_and_can_be_repeated() {
    for opcode in bring_up_opcodes() {
        let stage = Stage::new();
        let fault = Fault::CommandStatus { opcode: Some(opcode.number() as u16), status: 1, syndrome: 0x1234 };
        stage.inject(fault, Times::Count(1));
        match stage.open(Options::default()) {
            Err(error) => {
                let error = command_error(error);
                assert_eq!((error.opcode, error.status()), (opcode, Some(CmdStatus::InternalError)));
            }
            // Registers may be refused to a function, as may a foreign L2 table entry.
            Ok(device) => {
                assert!([Opcode::AccessReg, Opcode::SetL2TableEntry].contains(&opcode), "{opcode}");
                drop(device);
            }
        }
        let counts = stage.handle().counts();
        assert_eq!((counts.eqs, counts.uars, counts.pages_held, counts.dma_ranges), (0, 0, 0, 0), "{counts:?}");
        assert!(stage.open(Options::default()).is_ok(), "after {opcode} was refused once");
    }
}

#[test]
fn a_bring_up_that_gets_no_answer_at_any_step_ends_and_can_be_repeated() {
    for opcode in bring_up_opcodes() {
        let (stage, options) = (Stage::new(), Options::default());
        let limit = options.command_timeout;
        stage.inject(Fault::CommandSwallowed { opcode: Some(opcode.number() as u16) }, Times::Count(1));
        match stage.open(options) {
            Err(error) => {
                let error = command_error(error);
                assert!(error.opcode == opcode && matches!(error.kind, CommandErrorKind::Timeout(_)), "{error}");
            }
            Ok(device) => {
                assert_eq!(opcode, Opcode::AccessReg);
                drop(device);
            }
        }
        assert!(stage.now() >= limit, "{opcode} was waited for: {:?}", stage.now());
        if let Err(error) = stage.open(Options::default()) {
            panic!("after {opcode} was swallowed once: {error}");
        }
        let broken = stage.worse_than_left_behind();
        assert_eq!(broken, [], "after {opcode} was swallowed once");
    }
}

#[test]
fn a_silent_firmware_fails_the_bring_up_in_time() {
    let (stage, options) = (Stage::new(), Options::default());
    let limit = options.command_timeout;
    stage.inject(Fault::CommandSwallowed { opcode: None }, Times::Always);
    let error = command_error(stage.open(options).expect_err("silent"));
    assert!(matches!(error.kind, CommandErrorKind::Timeout(_)), "{error}");
    assert_eq!(error.opcode, Opcode::EnableHca);
    assert!(stage.now() >= limit && stage.now() < 2 * limit, "{:?}", stage.now());
    stage.handle().faults().clear_all();
    assert!(stage.open(Options::default()).is_ok(), "after a reset it is as new");
}

#[test]
fn a_late_answer_brings_the_slot_back() {
    let (stage, options) = (Stage::new(), Options::default());
    let limit = options.command_timeout;
    let device = stage.open(options).unwrap();
    let late = Fault::CommandLate { opcode: Some(Opcode::Nop.number() as u16), by: 2 * limit };
    stage.inject(late, Times::Count(1));
    let begin = stage.now();
    let error = device.execute(&NopIn::default(), "").expect_err("late");
    assert!(matches!(error.kind, CommandErrorKind::Timeout(_)), "{error}");
    assert!(stage.now() - begin >= limit);
    assert_eq!(device.command_slots().1, 1, "its slot is kept from use");
    stage.until(|| {
        // Other commands continue.
        device.execute(&NopIn::default(), "").unwrap();
        device.command_slots().1 == 0
    });
    assert!(stage.now() - begin >= 2 * limit);
}

#[test]
fn a_lost_command_event_costs_little() {
    let stage = Stage::new();
    let device = stage.open(Options::default()).unwrap();
    stage.inject(Fault::EventLost { event_type: Some(0x0a) }, Times::Always);
    let begin = stage.now();
    for _ in 0..5 {
        device.execute(&NopIn::default(), "").unwrap();
    }
    let took = stage.now() - begin;
    assert!(took <= Duration::from_millis(5 * 21), "20 ms each: {took:?}");
}

#[test]
fn pages_that_lost_their_slot_take_another() {
    let stage = Stage::new();
    let device = stage.open(Options::default()).unwrap();
    let before = device.firmware_pages();
    let swallowed = Fault::CommandSwallowed { opcode: Some(Opcode::ManagePages.number() as u16) };
    stage.inject(swallowed, Times::Count(1));
    stage.inject(Fault::PageRequest { pages: 3 }, Times::Count(1));
    // The first request is abandoned.
    stage.until(|| device.command_slots().1 > 0);
    // Those three may still be taken; the next five use another slot.
    stage.inject(Fault::PageRequest { pages: 5 }, Times::Count(1));
    stage.until(|| device.firmware_pages() == before + 8);
}

#[test]
fn a_health_counter_that_stands_still_is_a_death() {
    let (stage, options) = (Stage::new(), Options::default());
    let patience = options.health_patience;
    let device = stage.open(options).unwrap();
    let events = device.async_events().events;
    stage.pause(Duration::from_secs(600));
    assert!(device.death().is_none(), "the counter moves: {:?}", device.death());
    stage.inject(Fault::HealthCounterStopped, Times::Always);
    let took = stage.until(|| events.try_recv() == Err(TryRecvError::Disconnected));
    assert!(took >= patience && took < 3 * patience, "{took:?}");
    assert!(matches!(device.death(), Some(Error::Dead(Death::CounterStill { .. }))), "{:?}", device.death());
    let error = device.execute(&NopIn::default(), "").expect_err("dead");
    assert!(error.is_dead(), "{error}");
}

#[test]
fn a_syndrome_that_asks_for_no_reset_is_news_and_no_death() {
    let stage = Stage::new();
    let device = stage.open(Options::default()).unwrap();
    stage.inject(Fault::Health { syndrome: 0x10 }, Times::Always);
    stage.pause(Duration::from_secs(600));
    assert!(device.death().is_none(), "too hot, and working: {:?}", device.death());
    device.execute(&NopIn::default(), "").unwrap();
}
