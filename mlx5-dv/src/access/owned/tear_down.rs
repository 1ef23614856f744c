//! Teardown: undoes the steps of the bring-up, last first. PRM "Driver Teardown".

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

/// How long giving pages back may take at teardown.
const RECLAIM: Duration = Duration::from_secs(10);

impl Drop for Owned {
    fn drop(&mut self) {
        tear_down(self);
    }
}

/// Undoes every step that is done, last first. A step that cannot be undone is reported, and does not keep the others.
fn tear_down(card: &Owned) {
    while let Some(step) = { lock(&card.done).pop() } {
        let about = format!("{step:?}");
        match undo(card, step) {
            Ok(()) => {}
            // Its death has been told.
            Err(error) if error.is_dead() => tracing::debug!(%error, step = about, device = card.name, "teardown"),
            Err(error) => tracing::warn!(%error, step = about, device = card.name, "teardown"),
        }
    }
    card.liveness.close();
}

fn undo(card: &Owned, step: Step) -> Result<(), Error> {
    // A dead card takes no commands, but its interrupts and its bus mastering still have to go.
    let dead = card.liveness.death().is_some();
    match step {
        Step::EventQueues => destroy_event_queues(card, dead)?,
        Step::Interrupts => card.irq.disable().map_err(|error| Error::io("disabling interrupts", error))?,
        Step::EventUar(uar) => card.free_uar(&uar)?,
        // Before any memory is released: from here on no DMA is under way.
        Step::BusMaster => {
            let stopped = card.registers.stop_dma();
            stopped.inspect_err(|_| leak(card)).map_err(|error| Error::io("stopping bus mastering", error))?;
        }
        _ if dead => {}
        Step::L2Entry => port::delete_l2_entry(card)?,
        Step::UnicastList => port::list_address(card, None)?,
        Step::Roce => port::set_roce(card, false)?,
        Step::InitHca => teardown_hca(card)?,
        Step::Pages => take_pages_back(card)?,
        // SAFETY: names no memory, and the function's life is this module's to direct.
        Step::EnableHca => drop(unsafe { card.run_raw(&DisableHcaIn::default(), "") }?),
    }
    Ok(())
}

/// Never gives back what the card may still write.
fn leak(card: &Owned) {
    lock(&card.kept).drain(..).for_each(DmaBuffer::leak);
}

/// Ends events: commands poll again, the thread ends, then its queues do.
fn destroy_event_queues(card: &Owned, dead: bool) -> Result<(), Error> {
    if let Some(commands) = card.commands.get() {
        commands.set_by_event(false);
    }
    let queues = { lock(&card.events).take() }.and_then(Events::stop).unwrap_or_default();
    let mut first = Ok(());
    // The last created first: the asynchronous EQ, which the others' commands may still report to, goes last.
    for queue in queues.into_iter().rev() {
        // SAFETY: ends an EQ of `create_event_queues`', whose memory is `queue`'s.
        let result = if dead { Ok(()) } else { unsafe { card.destroy(ObjectHandle(0), queue.destroy_command()) } };
        if let Err(error) = result {
            // The card may still write this ring. The others are tried all the same.
            lock(&card.kept).push(queue.into_memory());
            first = first.and(Err(error.into()));
        }
    }
    first
}

/// PRM "TEARDOWN_HCA". When firmware does not do it, a reset of the function makes sure that no DMA goes on.
fn teardown_hca(card: &Owned) -> Result<(), Error> {
    // SAFETY: names no memory, and the function's life is this module's to direct.
    let result = unsafe { card.run_raw(&TeardownHcaIn::default(), "") };
    if result.is_err() {
        match card.registers.bar().reset() {
            // Firmware has forgotten the rest, its command queue included.
            Ok(()) => lock(&card.done).retain(|step| matches!(step, Step::BusMaster)),
            Err(error) => tracing::error!(%error, "reset after a failed teardown"),
        }
    }
    result.map(drop).map_err(Error::from)
}

/// Takes every page back, until firmware holds none or time is over.
fn take_pages_back(card: &Owned) -> Result<(), Error> {
    let deadline = Deadline::after(&card.options.clock, RECLAIM);
    for function in card.pages.holders() {
        loop {
            let held = card.pages.held();
            if held == 0 {
                return Ok(());
            }
            // SAFETY: takes memory from firmware; `taken` frees no page that firmware does not name.
            let output = unsafe { card.execute(FirmwarePages::take_command(function, held)) }?;
            if card.pages.taken(&output)? == 0 {
                break;
            }
            if deadline.has_passed() {
                return Err(Error::Timeout { what: "giving pages back".into(), limit: RECLAIM });
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
