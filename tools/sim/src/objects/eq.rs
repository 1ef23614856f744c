//! Event queues. PRM `eqc`.

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
    /// Subscribed event types: bit n for type n.
    pub event_mask: [u64; 4],
    /// Events written.
    pub producer: u32,
    /// Consumer index, 24 bits.
    pub consumer: u32,
    /// Whether the next event interrupts.
    pub armed: bool,
    /// Software has armed it at least once.
    pub was_armed: bool,
    /// An event was lost because the ring was full.
    pub overrun: bool,
    /// CQs that name it.
    pub users: u32,
    /// The context as it was given, for `QUERY_EQ`.
    pub context: mlx5_prm::ctx::Eqc,
}

impl Eq {
    /// Whether it is subscribed to events, which is not needed for completions.
    pub fn is_asynchronous(&self) -> bool {
        self.event_mask.iter().any(|word| *word != 0)
    }
}
