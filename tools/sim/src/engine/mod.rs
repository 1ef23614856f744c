//! Engines: send scheduler, requesters, responders, completion and event writers, timers.

use std::time::Instant;

use mlx5_prm::eqe::EventType;
use mlx5_prm::values::QpState;

use crate::function::Function;
use crate::profile::Profile;
use crate::wire::Frame;

/// What the engines keep for one function.
#[derive(Debug)]
pub struct Engine {}

impl Engine {
    /// Engines at rest.
    pub fn new(_profile: &Profile) -> Self {
        Engine {}
    }
}

/// A send doorbell: the 8 bytes at a doorbell register of UAR page `uar`, as one big-endian number.
pub fn send_doorbell(_f: &mut Function, _uar: u32, _value: u64) {}

/// A CQ doorbell: the 8 bytes at 0x20 of UAR page `uar`, as one big-endian number.
pub fn cq_doorbell(_f: &mut Function, _uar: u32, _value: u64) {}

/// An EQ doorbell: the 4 bytes at 0x40 (`arm`) or 0x48 of UAR page `uar`, as a big-endian number.
pub fn eq_doorbell(_f: &mut Function, _uar: u32, _value: u32, _arm: bool) {}

/// One turn of bounded work. True if anything was done.
pub fn run(_f: &mut Function) -> bool {
    false
}

/// A frame arrived for this function.
pub fn receive(f: &mut Function, frame: Frame) {
    f.port.deliver(frame);
}

/// When [`run`] next has work to do though nothing happens until then.
pub fn next_deadline(_f: &Function) -> Option<Instant> {
    None
}

/// Function level reset: everything under way is forgotten.
pub fn reset(f: &mut Function) {
    f.engine = Engine::new(&f.profile);
}

/// Writes an EQE to the EQ that is subscribed for this type.
pub fn post_event(_f: &mut Function, _event_type: EventType, _sub_type: u8, _data: [u8; 28]) {}

/// Firmware made a queue pair.
pub fn qp_created(_f: &mut Function, _qpn: u32) {}

/// Firmware moved a queue pair to another state.
pub fn qp_state_changed(_f: &mut Function, _qpn: u32, _from: QpState, _to: QpState) {}

/// Firmware destroyed a queue pair.
pub fn qp_destroyed(_f: &mut Function, _qpn: u32) {}

/// Firmware destroyed a completion queue.
pub fn cq_destroyed(_f: &mut Function, _cqn: u32) {}

/// Firmware destroyed an event queue.
pub fn eq_destroyed(_f: &mut Function, _eqn: u32) {}

/// Firmware made a completion queue.
pub fn cq_created(_f: &mut Function, _cqn: u32) {}

/// Firmware made an event queue.
pub fn eq_created(_f: &mut Function, _eqn: u32) {}
