//! The event writer: writes EQEs to their rings, and handles overrun, arming and interrupts. PRM "Event Queue Entry
//! Format".

use mlx5_prm::eqe::{Eqe, EventType, QpEvent};
use mlx5_prm::init_seg::HealthSyndrome;
use mlx5_prm::layout::Layout;

use crate::dma::Purpose;
use crate::function::{Nic, Seen};
use crate::objects::Eq;
use crate::pci::Pci;
use crate::strict::rules;

const EQE: u64 = 64;
/// Bits of a consumer index.
const INDEX: u32 = 0xff_ffff;

/// Writes an event to the EQ that is subscribed to its type. Drops it if no EQ is. PRM "Event Types".
pub(crate) fn post(nic: &mut Nic, event_type: EventType, sub_type: u8, data: &[u8]) {
    let number = event_type.number();
    let Some(word) = (number as usize).checked_div(64).filter(|word| *word < 4) else { return };
    let subscribed = |eq: &Eq| eq.event_mask[word] >> (number % 64) & 1 != 0;
    let found = nic.objects.eqs.iter().find(|(_, eq)| subscribed(eq)).map(|(eqn, _)| eqn);
    if let Some(eqn) = found {
        write(nic, eqn, event_type, sub_type, data);
    }
}

/// Whether an EQ is subscribed to this type.
pub(crate) fn is_wanted(nic: &Nic, event_type: EventType) -> bool {
    let number = event_type.number();
    let word = (number / 64) as usize;
    nic.objects.eqs.iter().any(|(_, eq)| eq.event_mask.get(word).is_some_and(|mask| mask >> (number % 64) & 1 != 0))
}

/// Writes an event of a queue pair.
pub(crate) fn post_qp(nic: &mut Nic, event_type: EventType, qpn: u32) {
    let mut data = QpEvent::ZERO;
    data.w().qp_srq_n(qpn & INDEX);
    post(nic, event_type, 0, data.as_bytes());
}

/// Writes an event of a shared receive queue.
pub(crate) fn post_srq(nic: &mut Nic, event_type: EventType, srqn: u32) {
    // QP number and SRQ number are in the same field position.
    post_qp(nic, event_type, srqn);
}

/// Writes an event to the EQ `eqn`. `data` fills `event_data` from its start.
pub(crate) fn write(nic: &mut Nic, eqn: u32, event_type: EventType, sub_type: u8, data: &[u8]) {
    if nic.faults.event_lost(event_type.number() as u8) {
        return;
    }
    let Some(eq) = nic.objects.eqs.get_mut(eqn) else { return };
    let size = 1 << eq.log_size;
    if eq.producer.wrapping_sub(eq.consumer) & INDEX >= size {
        eq.overrun = true;
        // Fatal where it reports more than completions: what happened to which object is lost.
        if eq.is_asynchronous() {
            nic.firmware.fatal = HealthSyndrome::AsyncEqOverrun;
        }
        return nic
            .strict
            .report(rules::EQ_OVERRUN, || format!("EQ {eqn}: {size} entries, all unconsumed; {event_type} is lost"));
    }
    let eqe = build(eq, event_type, sub_type, data);
    let at = u64::from(eq.producer & (size - 1)) * EQE;
    let Some((iova, _)) = eq.ring.iova(at).filter(|(_, room)| *room >= EQE) else { return };
    if nic.dma.counted(Purpose::Eqe).publish(iova, eqe.as_bytes()).is_err() {
        return;
    }
    eq.producer = eq.producer.wrapping_add(1);
    if std::mem::take(&mut eq.armed) {
        nic.pci.interrupt(eq.vector);
    }
    nic.observe(Seen::Event { eqn, eqe: eqe.as_bytes() });
}

fn build(eq: &Eq, event_type: EventType, sub_type: u8, data: &[u8]) -> Eqe {
    let mut event_data = [0; 28];
    let len = data.len().min(event_data.len());
    event_data[..len].copy_from_slice(&data[..len]);
    let mut eqe = Eqe::ZERO;
    eqe.w()
        .event_type(event_type)
        .event_sub_type(sub_type)
        .event_data(&event_data)
        .owner(eq.producer >> eq.log_size & 1 != 0);
    eqe
}

/// An EQ doorbell: new consumer index, and whether the next event interrupts.
pub(crate) fn doorbell(nic: &mut Nic, uar: u32, value: u32, arm: bool) {
    let eqn = value >> 24;
    let Some(eq) = nic.objects.eqs.get_mut(eqn).filter(|eq| eq.uar == uar) else {
        return nic.strict.report(rules::UNKNOWN_EQ, || format!("EQ {eqn} at UAR page {uar}"));
    };
    let consumer = value & INDEX;
    let step = consumer.wrapping_sub(eq.consumer) & INDEX;
    let ahead = eq.producer.wrapping_sub(eq.consumer) & INDEX;
    if step > ahead {
        return nic.strict.report(rules::EQ_CI, || {
            format!("EQ {eqn}: consumer index {consumer:#x} after {:#x}, producer {:#x}", eq.consumer, eq.producer)
        });
    }
    eq.consumer = consumer;
    if arm {
        eq.was_armed = true;
        arm_or_wake(eq, &mut nic.pci);
    }
}

/// Arms an EQ. If events are pending, it interrupts at once instead.
fn arm_or_wake(eq: &mut Eq, pci: &mut Pci) {
    eq.armed = eq.producer.wrapping_sub(eq.consumer) & INDEX == 0;
    if !eq.armed {
        pci.interrupt(eq.vector);
    }
}

/// EQ doorbells were read from a page that clients map. Doorbells of other EQs may have been overwritten, and no record
/// holds them. So every other EQ that software has ever armed is armed again. At worst that causes one spurious
/// interrupt, which every handler must tolerate.
pub(crate) fn arm_others(nic: &mut Nic, uar: u32, rung: &[u8]) {
    let is_other =
        |eqn: u32, eq: &Eq| eq.uar == uar && eq.was_armed && !rung.iter().any(|rung| u32::from(*rung) == eqn);
    for (eqn, eq) in nic.objects.eqs.iter_mut() {
        if is_other(eqn, eq) && !eq.armed {
            arm_or_wake(eq, &mut nic.pci);
        }
    }
}
