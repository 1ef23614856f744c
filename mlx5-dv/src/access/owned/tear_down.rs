//! Teardown: undoes the steps of the bring-up in reverse order. PRM "Driver Teardown".

use std::time::Duration;

use mlx5_prm::cmd::*;

use super::events::Events;
use super::pages::FirmwarePages;
use super::steps::Step;
use super::{Owned, port};
use crate::access::liveness::StopDma;
use crate::access::{Access, ObjectHandle};
use crate::deadline::Deadline;
use crate::error::Error;
use crate::lock::lock;
use crate::memory::DmaBuffer;

/// Longest time for reclaiming pages at teardown.
const RECLAIM: Duration = Duration::from_secs(10);

impl Drop for Owned {
    fn drop(&mut self) {
        tear_down(self);
    }
}

/// Undoes every completed step in reverse order. A failing step is logged; the others still run.
fn tear_down(card: &Owned) {
    while let Some(step) = { lock(&card.done).pop() } {
        let about = format!("{step:?}");
        match undo(card, step) {
            Ok(()) => {}
            // The death was logged already.
            Err(error) if error.is_dead() => tracing::debug!(%error, step = about, device = card.name, "teardown"),
            Err(error) => tracing::warn!(%error, step = about, device = card.name, "teardown"),
        }
    }
    card.liveness.close();
}

fn undo(card: &Owned, step: Step) -> Result<(), Error> {
    // A dead card takes no commands, but its interrupts and bus mastering must still be disabled.
    let dead = card.liveness.death().is_some();
    match step {
        Step::EventQueues => destroy_event_queues(card, dead)?,
        Step::Interrupts => card.irq.disable().map_err(|error| Error::of_device("disabling interrupts", error))?,
        Step::EventUar(uar) => card.free_uar(uar).map_err(|failed| failed.1)?,
        // Before any memory is freed: after this no DMA is in flight.
        Step::BusMaster => {
            let stopped = card.registers.stop_dma();
            stopped.inspect_err(|_| leak(card)).map_err(|error| Error::of_device("stopping bus mastering", error))?;
        }
        _ if dead => {}
        Step::L2Entry => port::delete_l2_entries(card)?,
        Step::UnicastList => port::list_address(card, None)?,
        Step::Roce => port::set_roce(card, false)?,
        Step::InitHca => teardown_hca(card)?,
        Step::Pages => reclaim_pages(card)?,
        Step::EnableHca => {
            let mut disable = DisableHcaIn::default();
            disable.w().embedded_cpu_function(card.registers.is_embedded_cpu()?);
            // SAFETY: names no memory; this module alone controls the function's life cycle.
            unsafe { card.run_raw(&disable, "") }?;
        }
    }
    Ok(())
}

/// Leaks the memory that the card may still write.
fn leak(card: &Owned) {
    lock(&card.kept).drain(..).for_each(DmaBuffer::leak);
}

/// Ends event handling: commands poll again, the thread stops, then the queues are destroyed.
fn destroy_event_queues(card: &Owned, dead: bool) -> Result<(), Error> {
    if let Some(commands) = card.commands.get() {
        commands.set_by_event(false);
    }
    let mut queues = { lock(&card.events).take() }.and_then(Events::stop).unwrap_or_default();
    // None is lent any more: who has one keeps the card.
    queues.extend(card.shelf.clear());
    let mut first = Ok(());
    // In reverse order of creation: the EQ that reports the completion of these commands goes last.
    for queue in queues.into_iter().rev() {
        // SAFETY: destroys an EQ of `create_event_queues`, whose memory `queue` owns.
        let result = if dead { Ok(()) } else { unsafe { card.destroy(ObjectHandle(0), queue.destroy_command()) } };
        if let Err(error) = result {
            // The card may still write this ring. Continue with the others.
            lock(&card.kept).push(queue.into_memory());
            first = first.and(Err(error.into()));
        }
    }
    first
}

/// PRM "TEARDOWN_HCA". If firmware fails, a reset of the function stops DMA.
fn teardown_hca(card: &Owned) -> Result<(), Error> {
    // SAFETY: names no memory; this module alone controls the function's life cycle.
    let result = unsafe { card.run_raw(&TeardownHcaIn::default(), "") };
    if result.is_err() {
        match card.registers.bar().reset() {
            // Firmware has released everything else, including its command queue.
            Ok(()) => lock(&card.done).retain(|step| matches!(step, Step::BusMaster)),
            Err(error) => tracing::error!(%error, "resetting the function after a failed teardown"),
        }
    }
    result.map(drop).map_err(Error::from)
}

/// Reclaims pages until firmware holds none or the time is over.
fn reclaim_pages(card: &Owned) -> Result<(), Error> {
    let deadline = Deadline::after(&card.options.clock, RECLAIM);
    for owner in card.pages.holders() {
        loop {
            let held = card.pages.held();
            if held == 0 {
                return Ok(());
            }
            // SAFETY: takes memory from firmware; `taken` frees only pages that firmware names.
            let output = unsafe { card.execute(FirmwarePages::take_command(owner, held)) }?;
            if card.pages.taken(&output)? == 0 {
                break;
            }
            if deadline.has_passed() {
                return Err(Error::Timeout { what: "reclaiming firmware's pages".into(), limit: RECLAIM });
            }
        }
    }
    match card.pages.held() {
        0 => Ok(()),
        held => {
            Err(Error::response("the number of pages that firmware keeps after its teardown", held as u64, 0..=0, ""))
        }
    }
}
