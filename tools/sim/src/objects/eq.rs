//! Event queues.

use super::PageList;

/// An event queue.
#[derive(Debug, Default)]
pub struct Eq {
    /// The ring of 64-byte EQEs.
    pub ring: PageList,
    /// log2 of its entries.
    pub log_size: u32,
    /// MSI-X vector.
    pub vector: u16,
    /// UAR page whose EQ doorbells serve it.
    pub uar: u32,
    /// Which event types come here, bit n for type n.
    pub event_mask: [u64; 4],
    /// Events written so far.
    pub producer: u32,
    /// Events software said it consumed, 24 bits.
    pub consumer: u32,
    /// Whether the next event interrupts.
    pub armed: bool,
    /// Software has armed it at some time.
    pub was_armed: bool,
    /// An event was lost because the ring was full.
    pub overrun: bool,
    /// CQs that name it.
    pub users: u32,
    /// The context as it was given, for `QUERY_EQ`.
    pub context: mlx5_prm::ctx::Eqc,
}
