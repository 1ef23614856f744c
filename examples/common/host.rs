//! A function as a host of a network: opened with its address, answering for it, resolving the addresses of others.

use std::sync::Arc;
use std::time::Duration;

use mlx5_dv::{Device, Gid, Mac, Options};
use mlx5_neighbours::{Neighbours, Network, address_of, is_derived, kernel};
use mlx5_open::program;

use crate::pingpong::Failure;

/// Index of the GID of a VLAN: behind those that a port has without.
const VLAN_GID: u16 = 2;
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
    /// Opens the device `name`. The address of `network` becomes GID 1. A function of the kernel's must have it
    /// already.
    pub fn open(name: &str, network: Option<Network>) -> Result<Self, Failure> {
        Self::open_with(name, network, Options::default())
    }

    /// As [`open`](Self::open), with other `options`.
    pub fn open_with(name: &str, network: Option<Network>, mut options: Options) -> Result<Self, Failure> {
        options.ip = network.map(|network| network.address());
        Ok(Host { device: mlx5_open::open_with(name, options)?, neighbours: None })
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Who answers, and tells the network of multicast groups.
    pub fn neighbours(&self) -> Option<&Neighbours> {
        self.neighbours.as_ref()
    }

    /// Gives the port its link-local address in VLAN `id`, too: GID 2. Nobody answers for it there; who calls finds the
    /// MAC address in the GID.
    pub fn join_vlan(&self, id: u16) -> Result<(), Failure> {
        let mac = self.device.mac();
        Ok(self.device.set_gid(Gid::new(VLAN_GID, mac.link_local(), mac).vlan(id))?)
    }

    /// Starts to answer for the device's addresses, if the kernel does not. Where the card cannot, it warns on stderr:
    /// connections between two drivers like this one need no answers.
    pub fn answer(&mut self, network: Option<Network>) {
        if !self.device.is_owned() {
            return;
        }
        match Neighbours::start(&self.device, network) {
            Ok(neighbours) => self.neighbours = Some(neighbours),
            Err(error) => eprintln!(
                "ARP and neighbour solicitations for {} stay unanswered: {}",
                self.device.name(),
                program::chain(&error)
            ),
        }
    }

    /// The MAC address in packets from the GID at `gid_index` to `remote`. `None` if the driver derives it, or if
    /// `remote` is local.
    pub fn mac_of(&self, gid_index: u16, remote: [u8; 16]) -> Result<Option<Mac>, Failure> {
        if is_derived(&self.device, remote) {
            return Ok(None);
        }
        let address = address_of(remote);
        if let Some(neighbours) = &self.neighbours {
            return Ok(Some(neighbours.resolve(address, PATIENCE)?));
        }
        match kernel::gid_at(&self.device, gid_index) {
            Some(gid) => Ok(Some(kernel::resolve(&gid, address, PATIENCE)?)),
            None => Ok(None),
        }
    }
}
