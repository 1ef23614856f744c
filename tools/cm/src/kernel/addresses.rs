//! Addresses of the function: those of its network interfaces.

use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};
use std::time::Duration;

use mlx5_dv::Device;
use mlx5_dv::discovery::{DeviceName, RdmaGid, Sysfs};
use mlx5_dv::objects::AddressPath;
use mlx5_neighbours::kernel;

use crate::error::ManagerError;
use crate::machine::Path;
use crate::message::{Gid, address_of, gid_of};
use crate::path::{known_mac, no_gid, path_to};

/// The only port of the kernel's devices that is used.
const PORT: u8 = 1;
/// How long the kernel may take to find a MAC address.
const RESOLUTION: Duration = Duration::from_secs(3);

/// The GIDs of a function, and their network interfaces.
#[derive(Debug)]
pub(crate) struct Addresses(Vec<Local>);

/// A GID.
#[derive(Debug)]
struct Local {
    gid: RdmaGid,
    /// Index of its interface; 0 for one that this process does not see.
    interface: u32,
}

impl Local {
    /// Its address with port `port`. A link-local address is one of an interface.
    fn socket(&self, port: u16) -> SocketAddr {
        with_scope(address_of(self.gid.address.octets()), port, self.interface)
    }
}

impl Addresses {
    pub(crate) fn of(device: &Device) -> Self {
        let Ok(DeviceName::Devx(name)) = device.name().parse() else { return Addresses(Vec::new()) };
        let gids = Sysfs::default().gids(&name, PORT).into_iter().filter(RdmaGid::is_roce_v2);
        Addresses(gids.map(|gid| Local { interface: interface_of(&gid), gid }).collect())
    }

    fn local(&self, gid: Gid) -> Option<&Local> {
        self.0.iter().find(|local| local.gid.address.octets() == gid)
    }

    /// Index of the local GID `gid`.
    pub(super) fn index_of(&self, gid: Gid) -> u8 {
        self.local(gid).and_then(|local| u8::try_from(local.gid.index).ok()).unwrap_or(0)
    }

    /// The addresses to listen on, with port `port`.
    pub(super) fn listened(&self, port: u16) -> Vec<SocketAddr> {
        let mut all: Vec<_> =
            self.0.iter().filter(|local| local.interface != 0).map(|local| local.socket(port)).collect();
        all.sort();
        all.dedup();
        all
    }

    /// The first address of a family.
    pub(crate) fn of_family(&self, ipv4: bool) -> Option<SocketAddr> {
        let mut seen = self.0.iter().filter(|local| local.interface != 0).map(|local| local.socket(0));
        seen.find(|address| address.is_ipv4() == ipv4)
    }

    /// Path to `remote`, and both its ends for the kernel: from the address that the kernel's routes prefer, if it is
    /// the function's, or else from the first of the same kind.
    pub(super) fn ends(
        &self,
        device: &Device,
        remote: SocketAddr,
        port: u16,
    ) -> Result<(Path, [SocketAddr; 2]), ManagerError> {
        let preferred = preferred_source(remote).map(gid_of).filter(|gid| self.local(*gid).is_some());
        let path = match preferred {
            Some(local) => Path { local, remote: gid_of(remote.ip()) },
            None => path_to(device, remote.ip())?,
        };
        let local = self.local(path.local).ok_or_else(|| no_gid(device, remote.ip()))?;
        let scope = match remote {
            SocketAddr::V6(remote) if remote.scope_id() != 0 => remote.scope_id(),
            _ => local.interface,
        };
        Ok((path, [local.socket(port), with_scope(remote.ip().to_canonical(), remote.port(), scope)]))
    }

    /// Address path for `path`, from the GID at `gid_index`. Waits until the kernel has the MAC address.
    pub(super) fn path(&self, device: &Device, path: &Path, gid_index: u8) -> Result<AddressPath, ManagerError> {
        let remote = path.remote_address();
        let mac = match (known_mac(device, path.remote), self.local(path.local)) {
            (Some(mac), _) => mac,
            (None, Some(local)) => kernel::resolve(&local.gid, remote, RESOLUTION)
                .map_err(|source| ManagerError::Neighbour { remote, source })?,
            (None, None) => return Err(no_gid(device, remote)),
        };
        Ok(AddressPath::new(path.remote, mac).gid_index(gid_index))
    }
}

/// `address` with a port, and of interface `interface` if it is link-local.
fn with_scope(address: IpAddr, port: u16, interface: u32) -> SocketAddr {
    match address {
        IpAddr::V6(address) if address.is_unicast_link_local() => SocketAddrV6::new(address, port, 0, interface).into(),
        address => SocketAddr::new(address, port),
    }
}

/// The address that the kernel would send from.
fn preferred_source(remote: SocketAddr) -> Option<IpAddr> {
    let any = if remote.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).ok()?;
    // Sends nothing: it looks for the route.
    socket.connect(remote).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Index of a GID's network interface; 0 if it is not seen.
fn interface_of(gid: &RdmaGid) -> u32 {
    let name = gid.interface.as_deref().unwrap_or_default();
    let index = std::fs::read_to_string(format!("/sys/class/net/{name}/ifindex"));
    index.ok().and_then(|index| index.trim().parse().ok()).unwrap_or(0)
}
