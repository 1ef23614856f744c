//! Memory that the card can access.
//!
//! [`HostMemory`] is memory of this process, in the largest available pages; [`DmaBuffer`] is the same memory mapped
//! for the card, at an [`Iova`]. While the card may write memory, nothing here gives out a reference to it: data is
//! copied in and out, or loaded and stored as atomics. Slices are to be had of memory that the card writes only for
//! work requests of its holder: see [`ExclusiveRegion`](crate::objects::ExclusiveRegion). A buffer does not deref:
//!
//! ```compile_fail,E0308
//! fn peek(buffer: &mlx5_dv::memory::DmaBuffer) -> &[u8] {
//!     buffer // the card may write it at any time: no slice of it can exist
//! }
//! ```
//!
//! nor can a device address be used as a pointer:
//!
//! ```compile_fail,E0605
//! fn confuse(iova: mlx5_dv::memory::Iova) -> *const u8 {
//!     iova as *const u8
//! }
//! ```

mod copy;
mod dma;
mod exclusive;
mod host;
mod huge;
mod iova;
mod mapping;
mod owner;
mod pool;
mod range;
mod runs;
mod segment;
mod translation;

pub use dma::{DmaBuffer, Release};
pub use host::HostMemory;
pub use huge::{PageSize, Pages};
pub use iova::{Iova, IovaAllocator};
pub use owner::MemoryOwner;
pub use pool::DmaPool;
pub use range::HostRange;
pub(crate) use segment::MAX_ELEMENT;
pub use segment::{DataSegment, RemoteAddress};
pub(crate) use translation::Translation;
