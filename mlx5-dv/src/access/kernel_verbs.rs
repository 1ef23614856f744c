//! The interface to objects that the kernel makes and that processes share.

use std::fmt;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};

use super::device_memory::MemicHandle;
use super::handle::{ObjectHandle, UmemHandle};
use super::kernel_xrc::KernelXrc;
use crate::error::{CommandError, Error};
use crate::memory::HostMemory;

/// What the kernel makes by its own verbs. Handles name such objects in all processes that have the context's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelObjectKind {
    /// A protection domain.
    Pd,
    /// A memory region, of memory of the host or of the card.
    Region,
    /// Memory on the card.
    DeviceMemory,
    /// A rate limit.
    RateLimit,
    /// An XRC domain.
    Xrcd,
    /// A completion queue for shared receive queues of an XRC domain.
    CompletionQueue,
    /// A shared receive queue of an XRC domain.
    SharedReceiveQueue,
    /// A target of extended reliable connections.
    QueuePair,
}

impl fmt::Display for KernelObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KernelObjectKind::Pd => "protection domain",
            KernelObjectKind::Region => "memory region",
            KernelObjectKind::DeviceMemory => "device memory",
            KernelObjectKind::RateLimit => "rate limit",
            KernelObjectKind::Xrcd => "XRC domain",
            KernelObjectKind::CompletionQueue => "CQ",
            KernelObjectKind::SharedReceiveQueue => "SRQ",
            KernelObjectKind::QueuePair => "QP",
        })
    }
}

/// What will be done with memory on demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// The card will read it: bring the pages.
    Prefetch,
    /// The card will write it, too: bring pages that it may write.
    PrefetchWrite,
    /// The card will read it: let it use the pages that are in memory now, and bring no others.
    PrefetchPresent,
}

/// A region that the kernel has registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelRegion {
    /// Its handle.
    pub handle: ObjectHandle,
    /// First address of its keys.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
    /// Key for local work requests.
    pub lkey: u32,
    /// Key for the remote.
    pub rkey: u32,
}

/// The kernel's own objects, on a function that the kernel has. Access rights are `IB_UVERBS_ACCESS_...`.
pub trait KernelVerbs {
    /// XRC domains, and the queues in them.
    fn xrc(&self) -> &dyn KernelXrc;
    /// Another descriptor of the context's file.
    fn context(&self) -> Result<OwnedFd, Error>;
    /// Allocates a protection domain: its handle, and `pd` for contexts.
    fn alloc_pd(&self) -> Result<(ObjectHandle, u32), CommandError>;
    /// `pd` for contexts of a protection domain. Errors: [`Error::Invalid`] for a handle that is none.
    fn query_pd(&self, pd: ObjectHandle) -> Result<u32, Error>;
    /// Registers `memory`'s data in the domain `pd`; `start` is the first address of its keys.
    ///
    /// # Safety
    /// As for [`Access::create`](super::Access::create): who calls keeps the memory until [`destroy`](Self::destroy)
    /// has succeeded, or forever.
    unsafe fn reg_mr(
        &self,
        pd: ObjectHandle,
        memory: &HostMemory,
        start: u64,
        access: u32,
    ) -> Result<KernelRegion, Error>;
    /// Registers all addresses of this process in the domain `pd`, on demand.
    ///
    /// # Safety
    /// `access` gives remotes no rights. Whoever names addresses by the key has that memory until the card is done with
    /// it.
    unsafe fn reg_implicit_mr(&self, pd: ObjectHandle, access: u32) -> Result<KernelRegion, Error>;
    /// Brings pages of a region on demand in the domain `pd`: the addresses of its key `lkey`. `waits`: until they are
    /// there.
    fn advise_mr(
        &self,
        pd: ObjectHandle,
        lkey: u32,
        addresses: Range<u64>,
        advice: Advice,
        waits: bool,
    ) -> Result<(), Error>;
    /// Registers bytes of device memory in the domain `pd`. Its addresses count from 0.
    fn reg_dm_mr(
        &self,
        pd: ObjectHandle,
        memory: &MemicHandle,
        offset: u64,
        len: u64,
        access: u32,
    ) -> Result<KernelRegion, Error>;
    /// Queries a region. Errors: [`Error::Invalid`] for a handle that is none.
    fn query_mr(&self, region: ObjectHandle) -> Result<KernelRegion, Error>;
    /// Queries and maps device memory. Errors: [`Error::Invalid`] for a handle that is none.
    fn query_dm(&self, memory: ObjectHandle) -> Result<MemicHandle, Error>;
    /// Sets a rate limit, `set_pp_rate_limit_context`: its handle, and the index that send queues name. Queues of
    /// others may name it, too, if the rate is the same.
    fn set_rate_limit(&self, context: &[u8]) -> Result<(ObjectHandle, u16), Error>;
    /// Registers whole pages of a dma-buf as a umem, and pins them.
    fn register_dma_buf(&self, file: BorrowedFd<'_>, pages: Range<u64>, writable: bool) -> Result<UmemHandle, Error>;
    /// Destroys an object. On a dead card it is gone, which is a success.
    fn destroy(&self, kind: KernelObjectKind, object: ObjectHandle) -> Result<(), CommandError>;
}
