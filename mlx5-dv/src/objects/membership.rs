//! Multicast groups of queue pairs for datagrams.

use std::fmt;
use std::sync::Arc;

use mlx5_prm::cmd::{AttachToMcgIn, DetachFromMcgIn};
use mlx5_prm::values::ServiceType;

use super::object::Object;
use super::qp::QueuePair;
use super::qp::path::AddressPath;
use crate::device::Hearing;
use crate::error::{CommandError, Error, Invalid};

/// Destination queue pair of datagrams to a group.
pub const MULTICAST_QPN: u32 = 0xff_ffff;

/// A queue pair for datagrams in a multicast group: it receives what is sent to the group's GID, if the Q_Key is its
/// own. Dropping it leaves the group. PRM "ATTACH_TO_MCG".
///
/// An owned function also receives frames to the group's MAC address meanwhile: by its list of these, the e-switch
/// brings frames to a virtual function.
///
/// A sender's destination is [`AddressPath::group`] and [`MULTICAST_QPN`]; it need not be a member. A switch that
/// watches group membership (IGMP, MLD snooping) must also be told of the group. The card does not do that: on `devx:`,
/// join the group with a socket of the kernel's network device; on an owned function, send the report as a frame.
///
/// On `devx:` the kernel accepts the command for this process's own queue pairs, and leaves the group when the process
/// ends.
pub struct Membership {
    gid: [u8; 16],
    object: Object,
    _hearing: Hearing,
    qp: Arc<QueuePair>,
}

impl fmt::Debug for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Membership({:#x} in {:02x?})", self.qp.qpn(), self.gid)
    }
}

impl Membership {
    /// Lets `qp`, of service UD, join the group `gid`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a queue pair of another service, or a GID that is no group's; [`Error::Command`], also if
    /// it is in the group already.
    pub fn join(qp: &Arc<QueuePair>, gid: [u8; 16]) -> Result<Self, Error> {
        qp.must_be(&[ServiceType::Ud], "Membership::join", "QpOptions::datagrams")?;
        let path = AddressPath::group(gid).ok_or_else(|| {
            let what = "the GID of a Membership".into();
            Invalid::Requires { what, requires: "that of a group: ff00::/8 or ::ffff:224.0.0.0/100" }
        })?;
        let hearing = qp.device().hear(&[path.mac])?;
        let mut attach = AttachToMcgIn::default();
        attach.w().qpn(qp.qpn()).multicast_gid(&gid);
        let (object, _) = Object::create(qp.device(), &attach, "a multicast group", |_| {
            let mut end = DetachFromMcgIn::default();
            end.w().qpn(qp.qpn()).multicast_gid(&gid);
            (end, format!("a multicast group of QP {:#x}", qp.qpn()))
        })?;
        Ok(Membership { gid, object, _hearing: hearing, qp: Arc::clone(qp) })
    }

    /// The group.
    pub fn gid(&self) -> [u8; 16] {
        self.gid
    }

    /// The member.
    pub fn queue_pair(&self) -> &Arc<QueuePair> {
        &self.qp
    }

    /// Leaves the group. Errors: firmware's.
    pub fn leave(mut self) -> Result<(), CommandError> {
        self.object.destroy()
    }
}
