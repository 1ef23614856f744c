//! What send queues send.

use mlx5_prm::values::ServiceType;

use crate::caps::Caps;
use crate::objects::{QueuePair, SendRingOwner};

/// What a send queue sends, and so what its batches offer: [`Messages`], [`UnreliableMessages`],
/// [`Datagrams`](crate::queue::Datagrams) or [`Frames`](crate::queue::ethernet::Frames).
pub trait Service: Send {
    /// What has the ring.
    type Object: SendRingOwner;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Messages {}
    impl Sealed for super::UnreliableMessages {}
}

/// What a queue pair with a remote of its own sends: [`Messages`] or [`UnreliableMessages`].
pub trait Connected: Service<Object = QueuePair> + sealed::Sealed + Sized {
    /// The service of the queue pair.
    const SERVICE: ServiceType;
    #[doc(hidden)]
    fn new(caps: &Caps) -> Self;
}

/// SENDs, RDMA, atomics and what else a reliable connection does.
#[derive(Debug, Clone, Copy)]
pub struct Messages {
    /// Whether the card has atomics.
    pub(super) atomics: bool,
}

impl Service for Messages {
    type Object = QueuePair;
}

impl Connected for Messages {
    const SERVICE: ServiceType = ServiceType::Rc;
    fn new(caps: &Caps) -> Self {
        Messages { atomics: caps.check_atomics().is_ok() }
    }
}

/// SENDs and RDMA WRITEs of an unreliable connection. A message of which a packet is lost never arrives, and neither
/// end is told: a send completes once it is sent. There is no READ and no atomic:
///
/// ```compile_fail,E0599
/// # fn f(sq: &mut mlx5_dv::queue::UnreliableSendQueue, at: mlx5_dv::queue::RemoteAddress) {
/// use mlx5_dv::queue::WrFlags;
/// unsafe { sq.batch().read(1, WrFlags::SIGNALLED, at, &[]) };
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct UnreliableMessages;

impl Service for UnreliableMessages {
    type Object = QueuePair;
}

impl Connected for UnreliableMessages {
    const SERVICE: ServiceType = ServiceType::Uc;
    fn new(_: &Caps) -> Self {
        UnreliableMessages
    }
}
