//! A function as a host of a network: opened with its address, answering for it, resolving the addresses of others.

use std::sync::Arc;
use std::time::Duration;

use mlx5_dv::objects::AddressPath;
use mlx5_dv::{Device, Mac, Options};
use mlx5_neighbours::{Ipv4Cidr, Neighbours, address_of};
use mlx5_open::program;

use crate::pingpong::Failure;

/// Timeout of address resolution.
const PATIENCE: Duration = Duration::from_secs(10);

/// A device, and the stack that answers for its addresses.
#[derive(Debug)]
pub struct Host {
    device: Arc<Device>,
    /// `None` if the kernel answers, or the card cannot.
    neighbours: Option<Neighbours>,
}

impl Host {
    /// Opens the device `name`. `ipv4` becomes GID 1. A function of the kernel has its addresses from the kernel, and
    /// takes none here.
    pub fn open(name: &str, ipv4: Option<Ipv4Cidr>) -> Result<Self, Failure> {
        let mut options = Options::default();
        options.ipv4 = ipv4.map(|network| network.address());
        let device = mlx5_open::open_with(name, options)?;
        if ipv4.is_some() && !device.is_owned() {
            return Err(format!("{name} has its addresses from the kernel: use `ip addr add` instead of --ip").into());
        }
        Ok(Host { device, neighbours: None })
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Starts to answer for the device's addresses, if the kernel does not. Where the card cannot, it warns on stderr:
    /// connections between two drivers like this one need no answers.
    pub fn answer(&mut self, ipv4: Option<Ipv4Cidr>) {
        if !self.device.is_owned() {
            return;
        }
        match Neighbours::start(&self.device, ipv4) {
            Ok(neighbours) => self.neighbours = Some(neighbours),
            Err(error) => eprintln!(
                "ARP and neighbour solicitations for {} stay unanswered: {}",
                self.device.name(),
                program::chain(&error)
            ),
        }
    }

    /// The MAC address of `gid`; `None` if the driver derives it from the GID, or the GID is local.
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
