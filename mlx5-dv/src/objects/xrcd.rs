//! XRC domains.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use mlx5_prm::caps::CmdHcaCap;
use mlx5_prm::cmd::{AllocXrcdIn, DeallocXrcdIn};

use super::kernel_object::{KernelObject, not_shared};
use super::object::{DestroyError, Object, destroy_sole};
use crate::access::{KernelObjectKind, ObjectHandle};
use crate::caps::CapPage;
use crate::device::Device;
use crate::error::Error;

/// An XRC domain. A target queue pair delivers each message to the shared receive queue of its domain that the message
/// names. IBTA A14.
///
/// On `devx:` it is the kernel's, so that [processes can share it](Self::open).
pub struct Xrcd {
    xrcd: u32,
    /// Names the domain to initiators, which may have any; on a function that this process owns the domain itself.
    object: Object,
    kernel: Option<KernelObject>,
}

impl fmt::Debug for Xrcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Xrcd({:#x})", self.xrcd)
    }
}

/// Whose domain a file is to name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OpenXrcd {
    /// That of the processes that have it open; if there is none, a new one.
    #[default]
    JoinOrMake,
    /// That of the processes that have it open.
    Join,
    /// A new one.
    Make,
}

impl OpenXrcd {
    fn flags(self) -> u32 {
        match self {
            OpenXrcd::JoinOrMake => libc::O_CREAT as u32,
            OpenXrcd::Join => 0,
            OpenXrcd::Make => (libc::O_CREAT | libc::O_EXCL) as u32,
        }
    }
}

impl Xrcd {
    /// Allocates a domain. Errors: [`Error::Unsupported`] on a card without XRC, [`Error::Command`].
    pub fn alloc(device: &Arc<Device>) -> Result<Arc<Self>, Error> {
        Self::new(device, None, OpenXrcd::Make)
    }

    /// Opens the domain that `file` names: of all processes that open the same file, on the same card, while at least
    /// one has it open. Any file will do: it is neither read nor written, and may be closed afterwards. Programs of
    /// libibverbs take part: `ibv_open_xrcd`.
    ///
    /// Then one process connects [targets](super::XrcTarget) for all, and each receives by shared receive queues of its
    /// own.
    ///
    /// # Errors
    /// As for [`alloc`](Self::alloc); [`Error::Invalid`] if there is none to join, if there is one where one is to be
    /// made, or on a function that this process owns.
    pub fn open<F: AsFd>(device: &Arc<Device>, file: F, whose: OpenXrcd) -> Result<Arc<Self>, Error> {
        if device.is_owned() {
            return Err(not_shared(device, "an XRC domain of several processes"));
        }
        Self::new(device, Some(file.as_fd()), whose)
    }

    fn new(device: &Arc<Device>, file: Option<BorrowedFd<'_>>, whose: OpenXrcd) -> Result<Arc<Self>, Error> {
        if !device.caps().current::<CmdHcaCap>(CapPage::General).is_some_and(|general| general.xrc()) {
            return Err(Error::Unsupported { what: "extended reliable connections".into(), capability: "xrc" });
        }
        let kernel = device.access().kernel_verbs().map(|kernel| {
            let handle = kernel.xrc().open_xrcd(file, whose.flags())?;
            Ok::<_, Error>(KernelObject::made(device, KernelObjectKind::Xrcd, handle))
        });
        let kernel = kernel.transpose()?;
        let (object, out) = Object::create(device, &AllocXrcdIn::default(), "", |out| {
            let mut end = DeallocXrcdIn::default();
            end.w().xrcd(out.xrcd());
            (end, format!("XRC domain {:#x}", out.xrcd()))
        })?;
        Ok(Arc::new(Xrcd { xrcd: out.xrcd(), object, kernel }))
    }

    /// `xrcd` for contexts, 24 bits. On `devx:` that of initiators alone: Linux does not tell the domain's own.
    pub fn xrcd(&self) -> u32 {
        self.xrcd
    }

    /// The card.
    pub fn device(&self) -> &Arc<Device> {
        self.object.device()
    }

    /// The kernel's handle, if the domain is the kernel's.
    pub(super) fn kernel_handle(&self) -> Option<ObjectHandle> {
        self.kernel.as_ref().map(KernelObject::handle)
    }

    /// Deallocates the domain; of one that processes share, this process's part ends. Its queues must have been
    /// destroyed. Errors: the domain, which stays alive, and the reason.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, |xrcd| {
            xrcd.kernel.as_mut().map_or(Ok(()), KernelObject::destroy)?;
            xrcd.object.destroy()
        })
    }
}
