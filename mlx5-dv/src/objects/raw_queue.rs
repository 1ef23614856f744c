//! The common part of send and receive queues for Ethernet frames: state, ring, completion queue.

use std::fmt;
use std::sync::{Arc, Mutex};

use mlx5_prm::caps::{CmdHcaCap, PerProtocolNetworkingOffloadCaps};
use mlx5_prm::ctx::{QueueState, Wq, WqType};

use super::cq::{Cq, Whose};
use super::memory_region::MemoryRegion;
use super::object::Object;
use super::pd::Pd;
use super::ring::RingMemory;
use super::ring_lease::{RingLease, RingPermit};
use crate::caps::{CapPage, Caps};
use crate::error::{CommandError, Error, Invalid};
use crate::lock::lock;

/// Status of a raw Ethernet queue, from the card. PRM "QUERY_SQ", "QUERY_RQ".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueStatus {
    /// The state.
    pub state: QueueState,
    /// Number of work requests that the card has started, modulo 2^16: WQEBBs of a send queue, WQEs of a receive queue.
    pub hw_counter: u32,
    /// Number of posted work requests according to the doorbell record.
    pub sw_counter: u32,
}

impl QueueStatus {
    /// From the state and the WQ context of a query.
    pub(super) fn of(state: QueueState, wq: &Wq) -> Self {
        QueueStatus { state, hw_counter: wq.hw_counter(), sw_counter: wq.sw_counter() }
    }
}

/// The commands that differ between SQ and RQ.
pub(super) struct Commands {
    /// Moves the queue of the given number from one state to another.
    pub(super) modify: fn(&Object, u32, QueueState, QueueState) -> Result<(), CommandError>,
    /// Queries it.
    pub(super) query: fn(&Object, u32) -> Result<QueueStatus, CommandError>,
}

/// A raw Ethernet queue: ring, lease and state.
pub(super) struct RawQueue {
    number: u32,
    commands: Commands,
    state: Mutex<QueueState>,
    lease: RingLease,
    object: Object,
    memory: RingMemory,
    /// What its work requests may name.
    kept: Mutex<Vec<Arc<MemoryRegion>>>,
    cq: Arc<Cq>,
    /// Which of the CQ's completions are its.
    completions: Whose,
}

impl fmt::Debug for RawQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x} in {}", self.number, *lock(&self.state))
    }
}

impl RawQueue {
    /// Wraps `object`, a new queue in RST.
    pub(super) fn new(
        number: u32,
        commands: Commands,
        object: Object,
        memory: RingMemory,
        (cq, completions): (&Arc<Cq>, Whose),
    ) -> Self {
        let (state, lease) = (Mutex::new(QueueState::Rst), RingLease::default());
        let (kept, cq) = (Mutex::default(), Arc::clone(cq));
        RawQueue { number, commands, state, lease, object, memory, kept, cq, completions }
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn cq(&self) -> &Arc<Cq> {
        &self.cq
    }

    /// Keeps `region` until the queue is destroyed.
    pub(super) fn keep(&self, region: &Arc<MemoryRegion>) {
        let mut kept = lock(&self.kept);
        if !kept.iter().any(|kept| Arc::ptr_eq(kept, region)) {
            kept.push(Arc::clone(region));
        }
    }

    fn move_to(&self, from: QueueState, to: QueueState) -> Result<(), Error> {
        Ok((self.commands.modify)(&self.object, self.number, from, to)?)
    }

    /// The error for `call`, which requires state `wanted`; the queue is in `state`, and `first` is the call to get
    /// there.
    fn wrong_state(&self, state: QueueState, call: &'static str, wanted: &'static str, first: &'static str) -> Error {
        Invalid::WrongState { object: self.object.name(), state, call, wanted, first }.into()
    }

    /// RST to RDY.
    pub(super) fn ready(&self) -> Result<(), Error> {
        let mut state = lock(&self.state);
        if *state != QueueState::Rst {
            return Err(self.wrong_state(*state, "ready", "RST", "reset"));
        }
        self.move_to(QueueState::Rst, QueueState::Rdy)?;
        *state = QueueState::Rdy;
        Ok(())
    }

    /// RDY to ERR.
    pub(super) fn to_error(&self) -> Result<(), Error> {
        let mut state = lock(&self.state);
        match self.query()?.state {
            QueueState::Err => {}
            QueueState::Rdy => self.move_to(QueueState::Rdy, QueueState::Err)?,
            now => return Err(self.wrong_state(now, "to_error", "RDY", "ready")),
        }
        *state = QueueState::Err;
        Ok(())
    }

    /// To RST, if no queue is leased.
    pub(super) fn reset(&self) -> Result<(), Error> {
        let mut state = lock(&self.state);
        self.lease.check_released(&self.object.name(), "queue")?;
        // The card may have moved to ERR by itself, and accepts only a transition from its actual state.
        let now = self.query()?.state;
        if now != QueueState::Rst {
            self.move_to(now, QueueState::Rst)?;
        }
        *state = QueueState::Rst;
        self.memory.clear();
        self.cq.forget(self.completions);
        self.lease.renew();
        Ok(())
    }

    /// Changes the queue in RDY by a command of `call`'s.
    pub(super) fn change(
        &self,
        call: &'static str,
        command: impl FnOnce(&Object, u32) -> Result<(), CommandError>,
    ) -> Result<(), Error> {
        let state = lock(&self.state);
        if *state != QueueState::Rdy {
            return Err(self.wrong_state(*state, call, "RDY", "ready"));
        }
        Ok(command(&self.object, self.number)?)
    }

    pub(super) fn query(&self) -> Result<QueueStatus, Error> {
        Ok((self.commands.query)(&self.object, self.number)?)
    }

    /// Leases the ring for `call`, which requires a state in `wanted`; `first` is the call to get there. `make`
    /// allocates everything else before.
    pub(super) fn lease_ring<T>(
        &self,
        call: &'static str,
        wanted: &[QueueState],
        first: &'static str,
        make: impl FnOnce() -> Result<T, Error>,
    ) -> Result<(RingPermit, T), Error> {
        let state = lock(&self.state);
        if !wanted.contains(&state) {
            let wanted = if wanted.contains(&QueueState::Rst) { "RST or RDY" } else { "RDY" };
            return Err(self.wrong_state(*state, call, wanted, first));
        }
        let made = make()?;
        let permit = self.lease.take(&self.memory, 0, &self.object.name(), "queue")?;
        Ok((permit, made))
    }

    pub(super) fn release(&self) {
        self.lease.release();
    }

    pub(super) fn end(&mut self) -> Result<(), CommandError> {
        self.object.destroy()?;
        self.cq.forget(self.completions);
        self.memory.destroy()
    }
}

impl Drop for RawQueue {
    fn drop(&mut self) {
        let name = self.object.name();
        if let Err(error) = self.end() {
            tracing::error!(%error, "{name} was not destroyed; its memory is leaked");
            self.memory.leak();
            std::mem::forget(std::mem::take(&mut *lock(&self.kept)));
        }
    }
}

/// The ring of a raw Ethernet queue in `memory`: `1 << log_size` entries of `1 << log_stride` bytes.
pub(super) fn cyclic(pd: &Pd, memory: &RingMemory, log_size: u32, log_stride: u32) -> Wq {
    memory.wq(WqType::Cyclic, pd.pdn(), log_size, log_stride)
}

/// The capability pages for raw Ethernet queues.
pub(super) fn ethernet_caps(caps: &Caps) -> Result<(CmdHcaCap, PerProtocolNetworkingOffloadCaps), Error> {
    let general = caps.current(CapPage::General).unwrap_or(CmdHcaCap::ZERO);
    match caps.current(CapPage::Ethernet) {
        Some(ethernet) => Ok((general, ethernet)),
        None => {
            let what = "queues of Ethernet frames; use a port of type Ethernet".into();
            Err(Error::Unsupported { what, capability: "eth_net_offloads" })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_ethernet_nothing_is_tried() {
        let text = ethernet_caps(&Caps::default()).unwrap_err().to_string();
        assert!(text.contains("eth_net_offloads"), "{text}");
    }
}
