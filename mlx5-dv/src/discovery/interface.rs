//! Network interfaces and PCIe links in sysfs.

use std::{fs, io};

use super::rdma::{RdmaPort, read};
use super::{PciAddress, Sysfs};
use crate::kernel::ethtool;

/// A network interface of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its name, such as `eth0`.
    pub name: String,
    /// Largest packet in bytes, without the Ethernet header.
    pub mtu: Option<u32>,
    /// Megabits per second; `None` without link.
    pub speed_mbps: Option<u32>,
}

impl Interface {
    /// The counters of the network interface `name` by the names that its driver gives them, as `ethtool -S` shows
    /// them. The driver may ask the card.
    ///
    /// # Errors
    /// There is no such interface in this network namespace, or its driver has no counters (`EOPNOTSUPP`).
    pub fn counters(name: &str) -> io::Result<Vec<(String, u64)>> {
        ethtool::counters(name)
    }
}

/// A function's PCIe link as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PcieLink {
    /// Such as `8.0 GT/s PCIe`.
    pub speed: String,
    /// Lanes.
    pub width: u8,
}

impl Sysfs {
    /// The network interface `name`; `None` if this network namespace does not have it.
    pub fn interface(&self, name: &str) -> Option<Interface> {
        let path = self.path("sys/class/net").join(name);
        let number = |file: &str| read(&path.join(file))?.parse().ok();
        // Without link the kernel fails to read the speed, or reports -1.
        path.exists().then(|| Interface { name: name.into(), mtu: number("mtu"), speed_mbps: number("speed") })
    }

    /// The PCIe link of the function at `address`; `None` if the system does not report one.
    pub fn pcie_link(&self, address: PciAddress) -> Option<PcieLink> {
        let path = self.path("sys/bus/pci/devices").join(address.to_string());
        let text = |file: &str| Some(fs::read_to_string(path.join(file)).ok()?.trim().to_owned());
        let speed = text("current_link_speed").filter(|speed| speed.starts_with(|c: char| c.is_ascii_digit()))?;
        let width = text("current_link_width")?.parse().ok().filter(|width| *width > 0)?;
        Some(PcieLink { speed, width })
    }
}

impl RdmaPort {
    /// [`rate`](Self::rate) as megabits per second and lanes: `100 Gb/sec (4X EDR)`. Without link the kernel prints a
    /// rate, too, but it is meaningless.
    pub fn speed(&self) -> Option<(u32, u8)> {
        let (speed, rest) = self.rate.split_once(" Gb/sec (")?;
        let lanes = rest.split_once('X')?.0.parse().ok()?;
        let speed: f64 = speed.parse().ok()?;
        Some(((speed * 1000.0) as u32, lanes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_without_link_has_no_speed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sys/class/net/eth1");
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("mtu"), "1500\n").unwrap();
        fs::write(path.join("speed"), "-1\n").unwrap();
        let sysfs = Sysfs::at(dir.path());
        assert_eq!(sysfs.interface("eth1"), Some(Interface { name: "eth1".into(), mtu: Some(1500), speed_mbps: None }));
        fs::write(path.join("speed"), "25000\n").unwrap();
        assert_eq!(sysfs.interface("eth1").and_then(|interface| interface.speed_mbps), Some(25000));
        assert_eq!(sysfs.interface("eth2"), None);
    }

    #[test]
    fn a_pcie_link_of_unknown_speed_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sys/bus/pci/devices/0000:3b:00.0");
        fs::create_dir_all(&path).unwrap();
        let (sysfs, address) = (Sysfs::at(dir.path()), "0000:3b:00.0".parse().unwrap());
        assert_eq!(sysfs.pcie_link(address), None);
        fs::write(path.join("current_link_speed"), "Unknown\n").unwrap();
        fs::write(path.join("current_link_width"), "16\n").unwrap();
        assert_eq!(sysfs.pcie_link(address), None);
        fs::write(path.join("current_link_speed"), "16.0 GT/s PCIe\n").unwrap();
        assert_eq!(sysfs.pcie_link(address), Some(PcieLink { speed: "16.0 GT/s PCIe".into(), width: 16 }));
    }

    #[test]
    fn a_rate_is_speed_and_lanes() {
        let speed = |rate: &str| {
            let port = RdmaPort {
                number: 1,
                state: String::new(),
                physical_state: String::new(),
                link_layer: String::new(),
                rate: rate.into(),
                interface: None,
                gids: vec![],
            };
            port.speed()
        };
        assert_eq!(speed("100 Gb/sec (4X EDR)"), Some((100_000, 4)));
        assert_eq!(speed("2.5 Gb/sec (1X SDR)"), Some((2_500, 1)));
        assert_eq!((speed(""), speed("fast")), (None, None));
    }
}
