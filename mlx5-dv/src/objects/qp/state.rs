//! Calls that move a queue pair between states, for errors.

use mlx5_prm::values::QpState;

const INIT: &str = "init (port, remote_access)";
const RTR: &str = "ready_to_receive (remote_qpn, rq_psn, path)";
const RTS: &str = "ready_to_send (sq_psn)";
const RESET: &str = "reset";

/// The calls that move a connected queue pair from `state` to the state that `last` leads to.
pub(super) fn way(state: QpState, last: QpState) -> &'static [&'static str] {
    match (state, last) {
        (QpState::Rst, QpState::Init) => &[INIT],
        (QpState::Rst, QpState::Rtr) => &[INIT, RTR],
        (QpState::Rst, QpState::Rts) => &[INIT, RTR, RTS],
        (QpState::Init, QpState::Rtr) => &[RTR],
        (QpState::Init, QpState::Rts) => &[RTR, RTS],
        (QpState::Rtr, QpState::Rts) => &[RTS],
        (_, QpState::Rst) => &[RESET],
        (_, QpState::Init) => &[RESET, INIT],
        (_, QpState::Rtr) => &[RESET, INIT, RTR],
        _ => &[RESET, INIT, RTR, RTS],
    }
}

const ACTIVATE: &str = "activate (qkey)";

/// The calls that activate a queue pair for datagrams.
pub(super) fn datagram_way(state: QpState) -> &'static [&'static str] {
    match state {
        QpState::Rst => &[ACTIVATE],
        _ => &[RESET, ACTIVATE],
    }
}

const INITIATE: &str = "activate_initiator";

/// The calls that activate a dynamically connected initiator.
pub(super) fn initiator_way(state: QpState) -> &'static [&'static str] {
    match state {
        QpState::Rst => &[INITIATE],
        _ => &[RESET, INITIATE],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::StateError;

    #[test]
    fn a_state_error_names_the_state_the_wanted_one_and_the_way_there() {
        let error = StateError {
            qpn: 0x43,
            state: QpState::Init,
            call: "send_queue",
            wanted: "RTS",
            missing_calls: way(QpState::Init, QpState::Rts),
        };
        assert_eq!(
            error.to_string(),
            "QP 0x43 is in INIT, and send_queue needs RTS; first call ready_to_receive (remote_qpn, rq_psn, path), then \
             ready_to_send (sq_psn)"
        );
        assert_eq!(way(QpState::Err, QpState::Init), [RESET, INIT]);
    }
}
