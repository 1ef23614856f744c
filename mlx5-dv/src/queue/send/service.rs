//! Services of send queues.

use mlx5_prm::caps::{CmdHcaCap, UmrFence};
use mlx5_prm::values::ServiceType;
use mlx5_prm::wqe::SEGMENT;

use super::wqe::WrFlags;
use crate::caps::{CapPage, Caps};
use crate::objects::{QueuePair, SendRingOwner};

/// The service of a send queue, which determines its work requests: [`Messages`], [`UnreliableMessages`],
/// [`Datagrams`](crate::queue::Datagrams) or [`Frames`](crate::queue::ethernet::Frames).
pub trait Service: Send {
    /// The object that owns the ring.
    type Object: SendRingOwner;
    /// Whether its common WQEs have several WQEBBs, so that they may wrap with the ring.
    #[doc(hidden)]
    const SPANS: bool = false;
}

pub(super) mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Messages {}
    impl Sealed for super::UnreliableMessages {}
}

/// A service with work requests that change keys: all but datagrams and frames.
pub trait KeyChanging: Service<Object = QueuePair> + sealed::Sealed + Sized {
    #[doc(hidden)]
    fn key_updates(&self) -> KeyUpdates;
}

/// The service of a connected queue pair: [`Messages`] or [`UnreliableMessages`].
pub trait Connected: KeyChanging {
    /// Service type of the queue pair.
    const SERVICE: ServiceType;
    #[doc(hidden)]
    fn new(caps: &Caps) -> Self;
}

/// How the card changes keys by work requests.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct KeyUpdates {
    /// What the work request behind an update must wait by.
    pub(super) fence: WrFlags,
    /// Segments of the longest WQE.
    pub(super) segments: u8,
}

impl KeyUpdates {
    fn new(caps: &Caps) -> Self {
        let general: CmdHcaCap = caps.current(CapPage::General).unwrap_or_default();
        let fence = match UmrFence::from_number(general.umr_fence().into()) {
            UmrFence::None => WrFlags::empty(),
            UmrFence::Small => WrFlags::SMALL_FENCE,
            _ => WrFlags::STRONG_ORDERING,
        };
        KeyUpdates { fence, segments: longest_wqe(caps) }
    }
}

/// Segments of the longest send WQE: at most what `ds` counts.
pub(super) fn longest_wqe(caps: &Caps) -> u8 {
    (caps.max_wqe_sz_sq / SEGMENT as u16).min(63) as u8
}

/// What the card supports on a reliable service.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reliable {
    /// Whether it supports atomics.
    pub(super) atomics: bool,
    /// Bytes of the masked atomics that it supports, added up.
    pub(super) masked: u16,
    pub(super) updates: KeyUpdates,
}

impl Reliable {
    pub(super) fn new(caps: &Caps) -> Self {
        let (atomics, masked) = (caps.check_atomics().is_ok(), caps.masked_atomics());
        Reliable { atomics, masked, updates: KeyUpdates::new(caps) }
    }
}

/// A reliable connection: SENDs, RDMA, atomics.
#[derive(Debug, Clone, Copy)]
pub struct Messages(pub(super) Reliable);

impl Service for Messages {
    type Object = QueuePair;
}

impl KeyChanging for Messages {
    fn key_updates(&self) -> KeyUpdates {
        self.0.updates
    }
}

impl Connected for Messages {
    const SERVICE: ServiceType = ServiceType::Rc;
    fn new(caps: &Caps) -> Self {
        Messages(Reliable::new(caps))
    }
}

/// An unreliable connection: SENDs and RDMA WRITEs. A message that loses a packet never arrives, and neither end is
/// notified: a send completes once it is sent. READs and atomics do not exist:
///
/// ```compile_fail,E0599
/// # fn f(sq: &mut mlx5_dv::queue::UnreliableSendQueue, at: mlx5_dv::queue::RemoteAddress) {
/// use mlx5_dv::queue::WrFlags;
/// unsafe { sq.batch().read(1, WrFlags::SIGNALLED, at, &[]) };
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct UnreliableMessages(KeyUpdates);

impl Service for UnreliableMessages {
    type Object = QueuePair;
}

impl KeyChanging for UnreliableMessages {
    fn key_updates(&self) -> KeyUpdates {
        self.0
    }
}

impl Connected for UnreliableMessages {
    const SERVICE: ServiceType = ServiceType::Uc;
    fn new(caps: &Caps) -> Self {
        UnreliableMessages(KeyUpdates::new(caps))
    }
}
