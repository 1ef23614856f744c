//! Link state: up if software wants both port and vport up. Changes cause port events. PRM "Event Types".

use mlx5_prm::eqe::{EventType, PortStateEvent};
use mlx5_prm::layout::Layout;

use super::syndromes::Syndrome;
use crate::engine;
use crate::function::Function;

/// Sub types of a port state event.
const DOWN: u8 = 1;
const ACTIVE: u8 = 4;
/// The function's only port, `local_port` of registers.
pub(super) const PORT: u8 = 1;

/// Updates the link state; sends an event if it changed.
pub(super) fn follow(f: &mut Function) {
    let vport = &f.nic.objects.vport;
    let up = vport.port_up && vport.admin_state != 0;
    if f.nic.port.link_up == up {
        return;
    }
    f.nic.port.link_up = up;
    f.nic.port.counters.physical.link_downs += u32::from(!up);
    let mut event = PortStateEvent::ZERO;
    event.w().port(PORT);
    let mut data = [0; 28];
    data[..PortStateEvent::SIZE].copy_from_slice(event.as_bytes());
    engine::post_event(f, EventType::PortChange, if up { ACTIVE } else { DOWN }, data);
}

/// Refuses a register of another port.
pub(super) fn own_port(port: u8) -> Result<(), Syndrome> {
    if port == PORT { Ok(()) } else { Err(Syndrome::RegisterPort) }
}
