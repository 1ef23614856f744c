//! MAC addresses of the other ends, whose lines name a GID alone.

use std::sync::Arc;
use std::time::Duration;

use mlx5_dv::discovery::RdmaGid;
use mlx5_dv::{Device, Mac};
use mlx5_neighbours::{Error, Network, address_of, is_derived, kernel};

/// How long the kernel is waited for at a time: other streams wait, too.
const GLANCE: Duration = Duration::from_millis(1);

/// What is known of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Neighbour {
    /// The MAC address; `None` if the driver derives it.
    Known(Option<Mac>),
    /// It is being resolved: ask again.
    NotYet,
}

/// Finds MAC addresses. It does not block.
pub trait Neighbours: std::fmt::Debug + Send {
    /// The MAC address in packets to `gid`.
    ///
    /// # Errors
    /// There is no way to it.
    fn mac_of(&mut self, gid: [u8; 16]) -> Result<Neighbour, Error>;

    /// Nobody asks for `gid` again.
    fn forget(&mut self, _gid: [u8; 16]) {}
}

/// The kernel's, of a function that it drives. Of one that the program owns nobody knows more than the driver, to
/// which addresses must be link-local or the card's own: see [`OwnedNeighbours`].
#[derive(Debug)]
pub struct KernelNeighbours {
    /// The local GID; `None` for an owned function.
    from: Option<RdmaGid>,
    device: Arc<Device>,
}

impl KernelNeighbours {
    /// Of the GID at `gid_index` of `device`.
    pub fn new(device: &Arc<Device>, gid_index: u8) -> Self {
        KernelNeighbours { from: kernel::gid_at(device, gid_index.into()), device: Arc::clone(device) }
    }
}

impl Neighbours for KernelNeighbours {
    fn mac_of(&mut self, gid: [u8; 16]) -> Result<Neighbour, Error> {
        let Some(from) = &self.from else { return Ok(Neighbour::Known(None)) };
        if is_derived(&self.device, gid) {
            return Ok(Neighbour::Known(None));
        }
        match kernel::resolve(from, address_of(gid), GLANCE) {
            Ok(mac) => Ok(Neighbour::Known(Some(mac))),
            Err(Error::Unresolved { .. }) => Ok(Neighbour::NotYet),
            Err(error) => Err(error),
        }
    }
}

/// Those of a function that the program owns: ARP and neighbour discovery, on a thread of their own. Meanwhile other
/// ends find this one in the same way, also by its link-local address.
#[derive(Debug)]
pub struct OwnedNeighbours {
    device: Arc<Device>,
    found: mlx5_neighbours::Neighbours,
}

impl OwnedNeighbours {
    /// Of `device`, which has the address of `network`.
    ///
    /// # Errors
    /// As for [`mlx5_neighbours::Neighbours::start`].
    pub fn start(device: &Arc<Device>, network: Option<Network>) -> Result<Self, mlx5_dv::Error> {
        let found = mlx5_neighbours::Neighbours::start(device, network)?;
        Ok(OwnedNeighbours { device: Arc::clone(device), found })
    }
}

impl Neighbours for OwnedNeighbours {
    fn mac_of(&mut self, gid: [u8; 16]) -> Result<Neighbour, Error> {
        if is_derived(&self.device, gid) {
            return Ok(Neighbour::Known(None));
        }
        let mac = self.found.look_up(address_of(gid))?;
        Ok(mac.map_or(Neighbour::NotYet, |mac| Neighbour::Known(Some(mac))))
    }

    fn forget(&mut self, gid: [u8; 16]) {
        self.found.forget(address_of(gid));
    }
}
