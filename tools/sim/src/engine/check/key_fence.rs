//! Strict mode: messages wait for the key update before them by a fence. PRM "Control Segment", `fm`; `umr_fence`.

use mlx5_prm::caps::UmrFence;
use mlx5_prm::wqe::{CtrlSeg, Fence, WqeOpcode};

use crate::function::Nic;
use crate::objects::{Qp, SendWork};
use crate::strict::rules;

/// Checks a WQE just fetched, and keeps what the next one needs. `is_last`: none was posted behind it.
///
/// Only the next WQE has to wait: those behind it follow it. It need not if software has seen the update complete,
/// which it cannot if both were posted at once, or the update is not signalled.
pub(crate) fn check(qp: &mut Qp, nic: &Nic, ctrl: &CtrlSeg, work: &SendWork, is_last: bool) {
    let is_message = !matches!(work.opcode, WqeOpcode::Nop | WqeOpcode::Umr);
    if qp.rc.send.needs_key_fence && is_message && ctrl.fm() == Fence::None {
        nic.strict.report(rules::KEY_FENCE, || {
            format!("QP {:#x}, WQE {:#x}: {} right behind a UMR, fm 0", qp.qpn, work.index, work.opcode)
        });
    }
    let orders_itself = UmrFence::from_number(nic.firmware.caps.general().umr_fence().into()) == UmrFence::None;
    let is_unseen = !(is_last && work.is_signalled);
    qp.rc.send.needs_key_fence = work.opcode == WqeOpcode::Umr && is_unseen && !orders_itself;
}
