//! Registered memory that only its buffers reach, so that they are slices.

use std::ops::Range;
use std::sync::Arc;

use super::buffer::Buffer;
use super::memory_region::MemoryRegion;
use super::pd::Pd;
use crate::error::{Error, Invalid};
use crate::memory::HostMemory;

/// Registered memory of which each byte is reached by one [`Buffer`] alone. So a buffer is a slice while no queue has
/// it: a received message is read where the card put it ([`Buffer::as_slice`],
/// [`Done::received`](crate::queue::Done::received)), and a message is built where the card takes it
/// ([`Buffer::as_mut_slice`]).
///
/// ```no_run
/// # use std::time::Duration;
/// # use mlx5_dv::objects::{ExclusiveRegion, Pd};
/// # use mlx5_dv::queue::Connection;
/// # fn f(pd: &std::sync::Arc<Pd>, connection: &mut Connection) -> Result<(), Box<dyn std::error::Error>> {
/// let region = ExclusiveRegion::allocate(pd, 64 * 1024)?;
/// for buffer in region.buffers(4096)? {
///     connection.receive(buffer)?;
/// }
/// let done = connection.wait(Duration::from_secs(1))?;
/// if let Some(message) = done.received() {
///     println!("{}", String::from_utf8_lossy(message));
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Why nobody else reaches the bytes
/// * **Remotes**: its key lets nobody write but this side's work requests, and lets no remote read. A remote that
///   guesses the key is refused by the card.
/// * **This side's work requests** name buffers. Buffers are disjoint, and a queue that has one owns it until the card
///   has completed the work request, or the queue was reset. While a program has a buffer, no queue has it:
///
///   ```compile_fail,E0505
///   # fn f(connection: &mut mlx5_dv::queue::Connection, buffer: mlx5_dv::objects::Buffer) {
///   let message = buffer.as_slice();
///   connection.receive(buffer).unwrap(); // the card may write it from now on
///   println!("{message:?}");
///   # }
///   ```
///
/// * **Work requests that name a region** cannot name this one: an [`Endpoint`](crate::queue::Endpoint), a
///   [`FastWindow`](crate::queue::FastWindow) take a [`MemoryRegion`], which this type keeps to itself
///   ([`Buffer::region`] does not show it either):
///
///   ```compile_fail,E0308
///   # fn f(region: &mlx5_dv::objects::ExclusiveRegion, options: mlx5_dv::queue::ConnectionOptions) {
///   mlx5_dv::queue::Endpoint::new(region, options).unwrap();
///   # }
///   ```
///
/// * **Keys of buffers**: a [`FastKey`](crate::queue::FastKey) takes no buffer of it, as it opens buffers to a remote.
/// * **Other code of this process**: the memory is the driver's own, or an owner's who has no other way to it
///   ([`MemoryOwner`](crate::memory::MemoryOwner)). A file that backs it is not handed out.
/// * **Two slices at once**: who writes borrows the buffer for writing:
///
///   ```compile_fail,E0502
///   # fn f(buffer: &mut mlx5_dv::objects::Buffer) {
///   let message = buffer.as_slice();
///   buffer.as_mut_slice()[0] = 1;
///   println!("{message:?}");
///   # }
///   ```
///
/// Raw posts ([`SendBatch`](crate::queue::SendBatch), [`ReceiveBatch`](crate::queue::ReceiveBatch)) are `unsafe`, and
/// their caller answers for it.
#[derive(Debug)]
pub struct ExclusiveRegion {
    region: Arc<MemoryRegion>,
}

impl ExclusiveRegion {
    /// Allocates and registers at least `len` zeroed bytes, in the largest available pages.
    ///
    /// # Errors
    /// As for [`MemoryRegion::allocate`].
    pub fn allocate(pd: &Arc<Pd>, len: usize) -> Result<Self, Error> {
        if len == 0 {
            return Err(Invalid::Empty { what: "a memory region", lacks: "bytes" }.into());
        }
        let memory = Arc::clone(pd.device().access()).alloc_dma(len)?;
        Ok(ExclusiveRegion { region: MemoryRegion::exclusive(pd, memory)? })
    }

    /// Registers `memory`, the driver's or the user's: any address, any length.
    ///
    /// # Errors
    /// As for [`MemoryRegion::register`]; [`Error::Invalid`] for memory that others may read
    /// ([`HostMemory::is_writable`]).
    pub fn register(pd: &Arc<Pd>, memory: HostMemory) -> Result<Self, Error> {
        let memory = Arc::clone(pd.device().access()).show(memory)?;
        Ok(ExclusiveRegion { region: MemoryRegion::exclusive(pd, memory)? })
    }

    /// Takes the bytes `range` as a buffer. Errors: as for [`MemoryRegion::buffer`].
    pub fn buffer(&self, range: Range<usize>) -> Result<Buffer, Error> {
        self.region.buffer(range)
    }

    /// Divides all of the region into buffers of `len` bytes each; a remainder stays unused. Errors: as for
    /// [`buffer`](Self::buffer).
    pub fn buffers(&self, len: usize) -> Result<Vec<Buffer>, Error> {
        self.region.buffers(len)
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.region.len()
    }

    /// Whether the length is zero: never.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The protection domain.
    pub fn pd(&self) -> &Arc<Pd> {
        self.region.pd()
    }

    /// Whether `buffer` is a part of it.
    pub fn owns(&self, buffer: &Buffer) -> bool {
        buffer.is_part_of(&self.region)
    }
}
