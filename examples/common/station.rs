//! A function as a station of a network: opened with its address, answering for it, knowing the way to others.

use std::sync::Arc;
use std::time::Duration;

use mlx5_dv::objects::AddressPath;
use mlx5_dv::{Device, Mac, Options};
use mlx5_neighbours::{Ipv4Cidr, Neighbours, address_of};
use mlx5_open::program;

use crate::pingpong::Failure;

/// How long nobody may answer for an address before it counts as nobody's.
const PATIENCE: Duration = Duration::from_secs(10);

/// A device, and who answers for its addresses.
#[derive(Debug)]
pub struct Station {
    device: Arc<Device>,
    /// `None` where the kernel does, or nobody can.
    neighbours: Option<Neighbours>,
}

impl Station {
    /// Opens the device `name`. With `ipv4` the address becomes GID 1; a device that the kernel keeps has its addresses of the
    /// kernel, and takes none here.
    pub fn open(name: &str, ipv4: Option<Ipv4Cidr>) -> Result<Self, Failure> {
        let mut options = Options::default();
        options.ipv4 = ipv4.map(|network| network.address());
        let device = mlx5_open::open_with(name, options)?;
        if ipv4.is_some() && !device.is_owned() {
            return Err(
                format!("the kernel keeps {name}, and its addresses: use `ip addr add` in place of --ip").into()
            );
        }
        Ok(Station { device, neighbours: None })
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Answers for the device's addresses from now on, if the kernel does not. A card that cannot do that is said to stderr:
    /// connections between two drivers like this one need no answers.
    pub fn answer(&mut self, ipv4: Option<Ipv4Cidr>) {
        if !self.device.is_owned() {
            return;
        }
        match Neighbours::start(&self.device, ipv4) {
            Ok(neighbours) => self.neighbours = Some(neighbours),
            Err(error) => eprintln!(
                "nobody answers ARP and neighbour solicitations for {}: {}",
                self.device.name(),
                program::chain(&error)
            ),
        }
    }

    /// The MAC address that packets to `gid` carry, where the driver does not find it in the GID itself or among its own.
    pub fn mac_of(&self, gid: [u8; 16]) -> Result<Option<Mac>, Failure> {
        let is_ours = self.device.gids().iter().any(|own| own.address.octets() == gid);
        match &self.neighbours {
            Some(neighbours) if !is_ours && AddressPath::link_local(gid).is_none() => {
                Ok(Some(neighbours.resolve(address_of(gid), PATIENCE)?))
            }
            _ => Ok(None),
        }
    }
}
