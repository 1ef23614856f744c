//! Sends that wait for a time: by each clock, until each end that there is, and refused.

use std::time::{Duration, Instant};

use mlx5_prm::cmd::*;
use mlx5_prm::cqe::{Cqe, CqeOpcode, CqeSyndrome, ErrorCqe};
use mlx5_prm::ctx::{QueueState, TimestampFormat};
use mlx5_prm::layout::Layout;
use mlx5_prm::reg::{ClockOperation, MtutcReg};
use mlx5_prm::wqe::{WaitCondition, WaitOpmod, WaitSeg, WqeOpcode};

use super::client::Client;
use super::ethernet::{Rig, move_sq};
use crate::engine;
use crate::firmware::clock;
use crate::profile::Profile;
use crate::strict::rules;

/// `mask` of DPDK's waits by ticks of 1 GHz, and by seconds and nanoseconds.
const TICKS: u64 = (1 << 33) - 1;
const NANOSECONDS: u64 = (1 << 35) - 1;

fn rig(format: TimestampFormat) -> Rig {
    let mut rig = Rig::with(Client::with(Profile::connectx7().with_real_time_clock()), format);
    rig.post_receives(8);
    rig
}

/// The clock of the queue.
fn now(rig: &Rig) -> u64 {
    rig.client.f.nic.timestamp(rig.sqn)
}

fn wait_as(rig: &mut Rig, opmod: WaitOpmod, condition: WaitCondition, value: u64, mask: u64) {
    let mut segment = WaitSeg::default();
    segment.w().operation(condition.number() as u8).value(value).mask(mask);
    rig.post_segments(WqeOpcode::Wait, opmod.number() as u8, segment.as_bytes());
}

fn wait(rig: &mut Rig, value: u64, mask: u64) {
    wait_as(rig, WaitOpmod::Time, WaitCondition::CyclicSmaller, value, mask);
}

/// Opcodes of all that has completed, in order.
fn completed(rig: &mut Rig) -> Vec<CqeOpcode> {
    rig.polls().iter().map(Cqe::opcode).collect()
}

/// Goes to `at`, and does what is due.
fn go_to(rig: &mut Rig, at: Instant) {
    rig.client.f.nic.now = at;
    while engine::run(&mut rig.client.f) {}
}

fn due(rig: &Rig) -> Option<Instant> {
    engine::next_deadline(&rig.client.f)
}

/// The wait, the frame that was sent, and the same received.
const ALL: [CqeOpcode; 3] = [CqeOpcode::Requester, CqeOpcode::Requester, CqeOpcode::ResponderSend];

#[test]
fn a_frame_leaves_with_the_tick_after_the_one_that_is_waited_for() {
    let mut rig = rig(TimestampFormat::FreeRunning);
    let (begin, frame) = (rig.client.f.nic.now, rig.frame(b"later"));
    let time = now(&rig) + 2_000_000;
    wait(&mut rig, time, TICKS);
    rig.send(&frame);
    assert!(completed(&mut rig).is_empty());
    assert_eq!(due(&rig), Some(begin + Duration::from_nanos(2_000_001)));
    go_to(&mut rig, begin + Duration::from_millis(2));
    assert!(completed(&mut rig).is_empty() && now(&rig) == time);
    go_to(&mut rig, begin + Duration::from_nanos(2_000_001));
    assert_eq!(completed(&mut rig), ALL);
    // What is past waits for nothing: half of the range is.
    for past in [0, 1, TICKS / 2 - 2] {
        let time = now(&rig).wrapping_sub(1 + past);
        wait(&mut rig, time, TICKS);
        rig.send(&frame);
        assert_eq!(completed(&mut rig), ALL, "{past}");
    }
    assert_eq!(due(&rig), None);
}

#[test]
fn a_queue_with_real_time_waits_for_that_also_when_it_is_set() {
    let mut rig = rig(TimestampFormat::RealTime);
    let (begin, frame) = (rig.client.f.nic.now, rig.frame(b"later"));
    set(&mut rig, 1_700_000_000);
    wait(&mut rig, 1_700_000_003 << 32 | 500, NANOSECONDS);
    rig.send(&frame);
    let left = due(&rig).unwrap() - begin;
    let wanted = Duration::new(3, 501);
    assert!(left >= wanted && left < wanted + Duration::from_nanos(4), "{left:?}");
    go_to(&mut rig, begin + Duration::new(3, 500));
    assert!(completed(&mut rig).is_empty());
    go_to(&mut rig, begin + left);
    assert_eq!(completed(&mut rig), ALL);

    wait(&mut rig, 1_700_000_006 << 32, NANOSECONDS);
    rig.send(&frame);
    set(&mut rig, 1_700_000_005);
    let begin = rig.client.f.nic.now;
    go_to(&mut rig, begin);
    assert!(completed(&mut rig).is_empty());
    let left = due(&rig).unwrap() - begin;
    assert!(left > Duration::from_secs(1) && left < Duration::new(1, 10), "{left:?}");
    set(&mut rig, 1_700_000_007);
    go_to(&mut rig, begin);
    assert_eq!(completed(&mut rig), ALL, "the clock was set beyond it");
}

/// Sets the real-time clock.
fn set(rig: &mut Rig, seconds: u32) {
    let mut register = MtutcReg::ZERO;
    register.w().operation(ClockOperation::SetTime.number() as u8).utc_sec(seconds);
    clock::mtutc(&mut rig.client.f, &register, true).unwrap();
}

#[test]
fn a_queue_that_waits_is_reset_flushed_and_destroyed() {
    for (to, flushed) in [(Some(QueueState::Rst), 0), (Some(QueueState::Err), 2), (None, 0)] {
        let mut rig = rig(TimestampFormat::FreeRunning);
        let (frame, sqn) = (rig.frame(b"never"), rig.sqn);
        let time = now(&rig) + 1_000_000;
        wait(&mut rig, time, TICKS);
        rig.send(&frame);
        match to {
            Some(state) => _ = rig.client.exec(&move_sq(sqn, QueueState::Rdy, state)).unwrap(),
            None => {
                let mut destroy = DestroySqIn::default();
                destroy.w().sqn(sqn);
                rig.client.exec(&destroy).unwrap();
            }
        }
        assert_eq!(due(&rig), None, "{to:?}");
        let after = rig.client.f.nic.now + Duration::from_secs(1);
        go_to(&mut rig, after);
        let done = rig.polls();
        assert!(done.iter().all(|cqe| syndrome(cqe) == CqeSyndrome::WorkRequestFlushed), "{done:?}");
        assert_eq!(done.len(), flushed, "{to:?}");
        if to == Some(QueueState::Rst) {
            rig.client.write(rig.parents.doorbells + 132, &[0; 4]);
            rig.client.exec(&move_sq(sqn, QueueState::Rst, QueueState::Rdy)).unwrap();
            rig.posted = 0;
            rig.send(&frame);
            assert_eq!(completed(&mut rig), ALL[1..]);
        }
        assert_eq!(rig.client.violations(), [""; 0], "{to:?}");
    }
}

fn syndrome(cqe: &Cqe) -> CqeSyndrome {
    ErrorCqe::read(cqe.as_bytes()).unwrap().syndrome()
}

#[test]
fn waits_that_are_not_announced_or_have_no_end_are_refused() {
    let announced = Profile::connectx7;
    for (profile, opmod, condition, mask) in [
        (Profile::connectx6dx(), WaitOpmod::Time, WaitCondition::CyclicSmaller, TICKS),
        (announced(), WaitOpmod::Data, WaitCondition::CyclicSmaller, TICKS),
        (announced(), WaitOpmod::CqPi, WaitCondition::CyclicSmaller, TICKS),
        (announced(), WaitOpmod::Time, WaitCondition::Equal, TICKS),
        (announced(), WaitOpmod::Time, WaitCondition::CyclicSmaller, 0),
    ] {
        let mut rig = Rig::with(Client::with(profile), TimestampFormat::FreeRunning);
        let time = now(&rig) + 1;
        wait_as(&mut rig, opmod, condition, time, mask);
        let done = rig.polls();
        assert_eq!(done.len(), 1, "{opmod} {condition}");
        assert_eq!((done[0].opcode(), syndrome(&done[0])), (CqeOpcode::RequesterError, CqeSyndrome::LocalQpOperation));
        assert_eq!(rig.client.violations(), [rules::WQE_OPCODE]);
    }
}
