//! The interface to XRC domains of the kernel's, which processes share by a file, and to the queues in them.

use std::os::fd::{BorrowedFd, OwnedFd};

use super::handle::ObjectHandle;
use crate::error::Error;
use crate::kernel::abi::shared::{ModifyQp, QueryQpResp};

/// A completion queue to create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelCq {
    /// Address of its ring in this process.
    pub ring: u64,
    /// Address of its doorbell record.
    pub record: u64,
    /// Entries: a power of two.
    pub entries: u32,
    /// Bytes of an entry.
    pub entry_size: u32,
    /// Page that it rings through.
    pub uar_page: u32,
    /// Completion vector.
    pub vector: u32,
    /// Whether there is a channel for its events.
    pub events: bool,
}

/// A completion queue that was created.
#[derive(Debug)]
pub struct KernelCqMade {
    /// Its handle.
    pub handle: ObjectHandle,
    /// Its number.
    pub cqn: u32,
    /// The channel of its events. As an eventfd's, a read returns eight bytes, for one event each: the number 1.
    pub events: Option<OwnedFd>,
}

/// A shared receive queue of an XRC domain to create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelSrq {
    /// Its protection domain.
    pub pd: ObjectHandle,
    /// Its XRC domain.
    pub xrcd: ObjectHandle,
    /// Where its receives complete: a queue of the kernel's.
    pub cq: ObjectHandle,
    /// Address of its ring in this process.
    pub ring: u64,
    /// Address of its doorbell record.
    pub record: u64,
    /// WQEs of the ring: a power of two.
    pub wqes: u32,
    /// Elements of a receive.
    pub sges: u32,
    /// User index of its completions, 24 bits; without one it is 0.
    pub user_index: Option<u32>,
}

/// The kernel's XRC domains and the queues in them. They have the kernel's uid, so that DevX commands of one process do
/// not reach them. Completion queues are an exception: commands reach them by their handles.
pub trait KernelXrc {
    /// Opens the domain that `file` names, or creates one of this process's own. `flags`: `O_CREAT`, `O_EXCL`.
    fn open_xrcd(&self, file: Option<BorrowedFd<'_>>, flags: u32) -> Result<ObjectHandle, Error>;
    /// Creates a completion queue.
    ///
    /// # Safety
    /// As for [`Access::create`](super::Access::create): the memory that `cq` names is kept until
    /// [`destroy`](super::KernelVerbs::destroy) has succeeded, or forever.
    unsafe fn create_cq(&self, cq: &KernelCq) -> Result<KernelCqMade, Error>;
    /// Creates a shared receive queue: its handle and its number.
    ///
    /// # Safety
    /// As for [`create_cq`](Self::create_cq).
    unsafe fn create_srq(&self, srq: &KernelSrq) -> Result<(ObjectHandle, u32), Error>;
    /// Requests one event SRQ_RQ_LIMIT of a shared receive queue for when fewer than `limit` receives are left.
    fn set_limit(&self, srq: ObjectHandle, limit: u32) -> Result<(), Error>;
    /// Creates a target: its handle and its number.
    fn create_target(&self, xrcd: ObjectHandle) -> Result<(ObjectHandle, u32), Error>;
    /// Opens a target of the domain that another process has created.
    fn open_target(&self, xrcd: ObjectHandle, qpn: u32) -> Result<ObjectHandle, Error>;
    /// Moves a target to another state.
    fn modify_target(&self, changes: &ModifyQp) -> Result<(), Error>;
    /// Queries a target.
    fn query_target(&self, target: ObjectHandle) -> Result<QueryQpResp, Error>;
}
