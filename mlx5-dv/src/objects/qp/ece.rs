//! Options of a connection that both ends agree on: Enhanced Connection Establishment (ECE).

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use mlx5_prm::caps::CmdHcaCap;

use crate::caps::{CapPage, Caps};
use crate::error::Error;

/// What CREATE_QP is asked for, to learn what the card offers: version 1 of the options. libmlx5 `mlx5_create_qp`.
const ASK: u32 = 1 << 28;

/// Options of a connection (ECE). Which feature a bit stands for is not public; the upper four bits are a version.
///
/// The ends agree on them as librdmacm does. The active end tells the passive one those that its queue pair is offered
/// ([`QueuePair::ece`](super::QueuePair::ece)). That one moves to RTR with them, as
/// [`ece` of its attributes](super::attributes::RtrAttributes::ece). Firmware drops what this card has not; the rest is
/// the answer, with which the active end moves to RTR. The options mean something only between cards of one vendor:
/// [`VENDOR`](Self::VENDOR) goes with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EceOptions(pub u32);

impl EceOptions {
    /// The vendor whose options these are: its PCI vendor ID.
    pub const VENDOR: u16 = 0x15b3;
}

/// Whether the card has options.
pub(super) fn is_supported(caps: &Caps) -> bool {
    caps.current::<CmdHcaCap>(CapPage::General).is_some_and(|general| general.ece_support())
}

/// `ece` of CREATE_QP.
pub(super) fn asked(caps: &Caps) -> u32 {
    if is_supported(caps) { ASK } else { 0 }
}

/// `ece` of INIT2RTR_QP. Errors: the card has no options.
pub(super) fn wanted(options: Option<EceOptions>, caps: &Caps) -> Result<u32, Error> {
    match options {
        Some(_) if !is_supported(caps) => {
            Err(Error::Unsupported { what: "options of a connection (ECE)".into(), capability: "ece_support" })
        }
        options => Ok(options.unwrap_or_default().0),
    }
}

/// Options of one queue pair.
#[derive(Debug)]
pub(super) struct Ece {
    offered: u32,
    now: AtomicU32,
}

impl Ece {
    /// Of a new queue pair, for which firmware offers `offered`.
    pub(super) fn new(offered: u32) -> Self {
        Ece { offered, now: AtomicU32::new(offered) }
    }

    /// After the queue pair's reset.
    pub(super) fn renew(&self) {
        self.in_use(self.offered);
    }

    /// Those that are offered, or in use.
    pub(super) fn now(&self) -> EceOptions {
        EceOptions(self.now.load(Relaxed))
    }

    /// From now on these are in use.
    pub(super) fn in_use(&self, options: u32) {
        self.now.store(options, Relaxed);
    }
}
