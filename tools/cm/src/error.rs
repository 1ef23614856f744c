//! Errors of connection managers.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use mlx5_dv::Error;

use crate::machine::CallError;

/// Error of a [`ConnectionManager`](crate::ConnectionManager)'s call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// The call was refused.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The card or the driver failed.
    #[error(transparent)]
    Device(#[from] Error),
    /// No GID of the function can reach the remote.
    #[error("no GID of the function reaches {remote}: its GIDs are {gids}; {mend}")]
    NoGid {
        /// The remote.
        remote: IpAddr,
        /// The function's GIDs.
        gids: String,
        /// How the function gets one.
        mend: &'static str,
    },
    /// The remote's MAC address is not known.
    #[error("the MAC address of {0} is not known: give the connection manager Neighbours on that network")]
    NoMac(IpAddr),
    /// The kernel does not find the remote's MAC address.
    #[error("the kernel does not find the MAC address of {remote}")]
    Neighbour {
        /// The remote.
        remote: IpAddr,
        /// Why.
        source: mlx5_neighbours::Error,
    },
    /// The network cannot be told of a multicast group's member.
    #[error("the network cannot be told of a member of {group}")]
    Group {
        /// The group.
        group: IpAddr,
        /// Why.
        source: mlx5_neighbours::Error,
    },
    /// The kernel's connection manager cannot be used.
    #[error(
        "{} cannot be opened: `modprobe rdma_ucm`, and see that this user may read and write it",
        mlx5_dv::kernel::rdma_cm::FILE
    )]
    NoKernel(#[source] io::Error),
    /// The kernel's connection manager refused a call.
    #[error("the kernel's connection manager refused {doing}")]
    Kernel {
        /// What was to be done.
        doing: String,
        /// Its error.
        source: io::Error,
    },
    /// The kernel's connection manager does not offer this.
    #[error("the kernel's connection manager, which serves `devx:`, offers no {what}; {mend}")]
    KernelLacks {
        /// What it lacks.
        what: String,
        /// What to do instead.
        mend: &'static str,
    },
    /// No event within the timeout.
    #[error("no event within {} ms", .0.as_millis())]
    Timeout(Duration),
}
