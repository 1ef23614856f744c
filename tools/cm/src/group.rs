//! Multicast groups by IP address.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mlx5_dv::kernel::abi::rdma_cm::{event, kind};
use mlx5_dv::kernel::rdma_cm::RdmaCm;
use mlx5_dv::objects::{AddressPath, Membership, QueuePair};
use mlx5_dv::{Device, Error};
use mlx5_neighbours::{Joined, Neighbours};

use crate::error::ManagerError;
use crate::kernel::{Addresses, refused, sleep};
use crate::message::{address_of, gid_of};
use crate::path::no_gid;

/// Q_Key of the datagrams of port space UDP, and so of its groups: `RDMA_UDP_QKEY`.
pub const UDP_QKEY: u32 = 0x0123_4567;

/// A queue pair for datagrams in the multicast group of an IP address, as `rdma_join_multicast` does it. Dropping it
/// leaves the group.
///
/// The card delivers the group's datagrams to the queue pair. On `devx:` the kernel tells the network: its connection
/// manager joins a group of IPv4 (IGMP), and a socket one of IPv6 (MLD), which that connection manager refuses on RoCE
/// v2. On an owned function [`Neighbours`] tells it. It counts where switches watch membership, and for routers.
pub struct Group {
    membership: Membership,
    gid_index: u8,
    /// `None` if nobody tells the network.
    report: Option<Report>,
}

/// Who tells the network: closing it leaves the group.
enum Report {
    Neighbours { _joined: Joined },
    Manager { _file: RdmaCm },
    Socket { _socket: UdpSocket },
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Group({}, {:?}, told: {})", self.address(), self.membership, self.report.is_some())
    }
}

impl Group {
    /// Lets `qp`, of service UD, join the group `address`, from the function's first address of the same family. On
    /// `devx:` the kernel has `patience` to do so. On an owned function `neighbours` tells the network, or nobody.
    ///
    /// # Errors
    /// [`ManagerError::NoGid`]; [`ManagerError::Device`] for an address that is no group's, or a queue pair of another
    /// service; [`ManagerError::Group`] if `neighbours` has ended; on `devx:` [`ManagerError::NoKernel`],
    /// [`ManagerError::Kernel`] and [`ManagerError::Timeout`].
    pub fn join(
        qp: &Arc<QueuePair>,
        address: IpAddr,
        neighbours: Option<&Neighbours>,
        patience: Duration,
    ) -> Result<Self, ManagerError> {
        let device = qp.device();
        let membership = Membership::join(qp, gid_of(address)).map_err(ManagerError::Device)?;
        let report = match address {
            _ if device.is_owned() => {
                let joined = neighbours.map(|neighbours| neighbours.join(address)).transpose();
                let joined = joined.map_err(|source| ManagerError::Group { group: address, source })?;
                joined.map(|joined| Report::Neighbours { _joined: joined })
            }
            IpAddr::V4(address) => Some(Report::Manager { _file: join_by_manager(device, address, patience)? }),
            IpAddr::V6(address) => Some(Report::Socket { _socket: join_by_socket(device, address)? }),
        };
        let is_ipv4 = |gid: &mlx5_dv::Gid| gid.address.to_ipv4_mapped().is_some() == address.is_ipv4();
        let own = device.gids().into_iter().find(is_ipv4).ok_or_else(|| no_gid(device, address))?;
        Ok(Group { membership, gid_index: u8::try_from(own.index).unwrap_or(0), report })
    }

    /// The group's address.
    pub fn address(&self) -> IpAddr {
        address_of(self.membership.gid())
    }

    /// Path of datagrams to the group; their queue pair is [`MULTICAST_QPN`](mlx5_dv::objects::MULTICAST_QPN), their
    /// Q_Key [`UDP_QKEY`].
    pub fn path(&self) -> Option<AddressPath> {
        Some(AddressPath::group(self.membership.gid())?.gid_index(self.gid_index))
    }

    /// Leaves the group.
    ///
    /// # Errors
    /// [`ManagerError::Device`]: firmware's.
    pub fn leave(self) -> Result<(), ManagerError> {
        drop(self.report);
        Ok(self.membership.leave().map_err(Error::from)?)
    }
}

fn join_by_socket(device: &Device, group: Ipv6Addr) -> Result<UdpSocket, ManagerError> {
    let local = Addresses::of(device).of_family(false).ok_or_else(|| no_gid(device, group.into()))?;
    let interface = if let SocketAddr::V6(local) = local { local.scope_id() } else { 0 };
    let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0));
    let joined = socket.and_then(|socket| socket.join_multicast_v6(&group, interface).map(|()| socket));
    joined.map_err(|error| refused(format!("to join {group}"), error))
}

fn join_by_manager(device: &Device, group: Ipv4Addr, patience: Duration) -> Result<RdmaCm, ManagerError> {
    let joining = |error| refused(format!("to join {group}"), error);
    let file = RdmaCm::open().map_err(ManagerError::NoKernel)?;
    let local = Addresses::of(device).of_family(true).ok_or_else(|| no_gid(device, group.into()))?;
    let group = SocketAddr::new(group.into(), 0);
    // Numbers that its events say: of the ID, and of the membership.
    let id = file.create_id(1, kind::PS_UDP, kind::QPT_UD).map_err(joining)?;
    file.bind(id, local).and_then(|()| file.join(id, 2, group)).map_err(joining)?;
    let end = Instant::now() + patience;
    loop {
        match file.next_event().map_err(joining)? {
            Some(told) if told.event == event::MULTICAST_JOIN => return Ok(file),
            Some(told) if told.event == event::MULTICAST_ERROR => {
                return Err(joining(io::Error::from_raw_os_error((told.status as i32).saturating_abs())));
            }
            Some(_) => {}
            None => {
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(ManagerError::Timeout(patience));
                }
                sleep(file.as_fd(), left).map_err(joining)?;
            }
        }
    }
}
