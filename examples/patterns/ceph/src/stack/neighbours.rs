//! MAC addresses of the other ends, whose lines name a GID alone.

use std::time::Duration;

use mlx5_dv::discovery::RdmaGid;
use mlx5_dv::objects::AddressPath;
use mlx5_dv::{Device, Mac};
use mlx5_neighbours::{Error, address_of, kernel};

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
}

/// The kernel's, of a function that it drives. Of one that the program owns nobody knows more than the driver, to
/// which addresses must be link-local or the card's own.
#[derive(Debug)]
pub struct KernelNeighbours {
    /// The local GID; `None` for an owned function.
    from: Option<RdmaGid>,
    /// The card's own.
    own: Vec<[u8; 16]>,
}

impl KernelNeighbours {
    /// Of the GID at `gid_index` of `device`.
    pub fn new(device: &Device, gid_index: u8) -> Self {
        let from = kernel::gid_at(device, gid_index.into());
        KernelNeighbours { from, own: device.gids().iter().map(|gid| gid.address.octets()).collect() }
    }
}

impl Neighbours for KernelNeighbours {
    fn mac_of(&mut self, gid: [u8; 16]) -> Result<Neighbour, Error> {
        let Some(from) = &self.from else { return Ok(Neighbour::Known(None)) };
        if self.own.contains(&gid) || AddressPath::link_local(gid).is_some() {
            return Ok(Neighbour::Known(None));
        }
        match kernel::resolve(from, address_of(gid), GLANCE) {
            Ok(mac) => Ok(Neighbour::Known(Some(mac))),
            Err(Error::Unresolved { .. }) => Ok(Neighbour::NotYet),
            Err(error) => Err(error),
        }
    }
}
