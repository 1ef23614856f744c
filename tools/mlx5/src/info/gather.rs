//! Where each fact comes from, by the way to the card.

use mlx5_dv::discovery::{Card as PciCard, DeviceName, RdmaDevice, RdmaPort, Sysfs};
use mlx5_dv::{CapPage, Device, Error, PortInfo};
use mlx5_prm::reg::AnStatus;
use mlx5_sim::profile::Profile;

use super::facts::{Fact, GidRow, Info, Known};
use crate::caps::limits::limits;
use crate::output::Failure;

/// A card that was opened, and what the system shows of it.
pub struct Card<'a> {
    /// What it was opened by.
    pub name: &'a DeviceName,
    /// The card.
    pub device: &'a Device,
    /// The system.
    pub sysfs: &'a Sysfs,
}

/// The port of the kernel's device that the driver uses.
const PORT: u8 = 1;
const NO_LINK: &str = "the port has no link";

/// Link speed and what it is made of.
struct Speed {
    mbps: Known<u32>,
    lanes: Known<u8>,
    mode: Known<String>,
    auto_negotiation: Known<String>,
}

impl Speed {
    fn unknown(reason: &str) -> Self {
        let reason = || reason.to_owned();
        Speed { mbps: Err(reason()), lanes: Err(reason()), mode: Err(reason()), auto_negotiation: Err(reason()) }
    }
}

impl Card<'_> {
    /// All facts.
    ///
    /// # Errors
    /// The card does not answer.
    pub fn info(&self) -> Result<Info, Failure> {
        let port = self.device.port()?;
        let rdma = self.rdma();
        let limits = limits(|name| self.device.caps().number(CapPage::General, name));
        Ok(Info {
            device: self.name.to_string(),
            card: self.card(rdma.as_ref())?,
            port: self.port(&port, rdma.as_ref().and_then(first_port))?,
            gids: self.gids(rdma.as_ref().and_then(first_port)),
            limits,
        })
    }

    /// The kernel's device, where the kernel keeps the function.
    fn rdma(&self) -> Option<RdmaDevice> {
        match self.name {
            DeviceName::Devx(name) => self.sysfs.rdma_device(name),
            _ => None,
        }
    }

    /// The PCI function, or why the system shows none.
    fn pci(&self, rdma: Option<&RdmaDevice>) -> Known<PciCard> {
        let address = match self.name {
            DeviceName::Vfio(address) => *address,
            DeviceName::Devx(_) => rdma
                .and_then(|rdma| rdma.address)
                .ok_or("the kernel's RDMA device belongs to no PCI function of its own (a subfunction?)")?,
            DeviceName::VfioUser(_) => return Err("a device behind a vfio-user socket has no PCI place here".into()),
            DeviceName::Sim(_) => return Err("the software card is in this process: it has no PCI place".into()),
        };
        let card = self.sysfs.card(address).ok().flatten();
        card.ok_or_else(|| format!("sysfs shows no ConnectX at {address}"))
    }

    fn card(&self, rdma: Option<&RdmaDevice>) -> Result<Vec<Fact>, Failure> {
        let pci = self.pci(rdma);
        let (major, minor, sub) = self.device.caps().fw_version;
        let psid = answer(self.device.adapter())?.map(|adapter| adapter.psid);
        let psid =
            psid.and_then(|psid| if psid.is_empty() { Err("firmware gives no board id".into()) } else { Ok(psid) });
        let place = pci.as_ref().map(|card| card.address).map_err(Clone::clone);
        let pcie = place.clone().and_then(|address| {
            let link = self.sysfs.pcie_link(address).ok_or("sysfs shows no PCIe link of the function")?;
            Ok(format!("{} x{}", link.speed, link.width))
        });
        let of = |fact: fn(&PciCard) -> Known<u32>| pci.as_ref().map_err(Clone::clone).and_then(fact);
        let numa = of(|card| card.numa_node.ok_or("the system names no NUMA node for the function".into()));
        let driver =
            pci.as_ref().map_err(Clone::clone).and_then(|card| card.driver.clone().ok_or("none is bound".into()));
        Ok(vec![
            Fact::word("model", "model", self.model(&pci)),
            Fact::new("pci_device_id", "PCI device id", self.device_id(&pci), |id| format!("15b3:{id:04x}")),
            Fact::word("firmware", "firmware", Ok(format!("{major}.{minor}.{sub:04}"))),
            Fact::word("psid", "board (PSID)", psid),
            Fact::word("pci_address", "PCI place", place.map(|address| address.to_string())),
            Fact::word("pcie_link", "PCIe link", pcie),
            Fact::new("numa_node", "NUMA node", numa, u32::to_string),
            Fact::word("driver", "kernel driver", driver),
            Fact::new("vhca_id", "function (vhca_id)", Ok(self.device.caps().vhca_id), u16::to_string),
        ])
    }

    fn profile(&self) -> Option<Profile> {
        match self.name {
            DeviceName::Sim(None) => Some(Profile::default()),
            DeviceName::Sim(Some(name)) => Profile::by_name(name),
            _ => None,
        }
    }

    fn model(&self, pci: &Known<PciCard>) -> Known<String> {
        match self.profile() {
            Some(profile) => Ok(format!("software card, profile {}", profile.name)),
            None => pci.as_ref().map(|card| card.model.clone()).map_err(Clone::clone),
        }
    }

    fn device_id(&self, pci: &Known<PciCard>) -> Known<u16> {
        match self.profile() {
            Some(profile) => Ok(profile.device_id),
            None => pci.as_ref().map(|card| card.device_id).map_err(Clone::clone),
        }
    }

    fn port(&self, port: &PortInfo, kernel: Option<&RdmaPort>) -> Result<Vec<Fact>, Failure> {
        let layer = if self.device.caps().port_type == 0 { "InfiniBand" } else { "Ethernet" };
        let state = |up: bool| Ok(if up { "up" } else { "down" }.to_owned());
        let speed = self.speed(port, kernel)?;
        let netdev = match kernel {
            Some(kernel) => kernel.interface.clone().ok_or("the kernel shows none in this network namespace".into()),
            None => Err("the kernel has none: this program drives the function".to_owned()),
        };
        let netdev_mtu = netdev.as_ref().map_err(Clone::clone).and_then(|name| {
            let interface = self.sysfs.interface(name).and_then(|interface| interface.mtu);
            interface.ok_or_else(|| format!("{name} is not in this network namespace"))
        });
        let max_mtu = if port.max_mtu == 0 { Err("the kernel passes no register on".into()) } else { Ok(port.max_mtu) };
        let path_mtu = port.path_mtu().ok_or("the MTU leaves no room for any RoCE packet".to_owned());
        let bytes = |count: &u16| format!("{count} bytes");
        Ok(vec![
            Fact::word("state", "link", state(port.up)),
            Fact::word("admin_state", "administratively", state(port.admin_up)),
            Fact::word("link_layer", "link layer", Ok(layer.into())),
            Fact::new("speed_mbps", "speed", speed.mbps, |mbps| format!("{} Gb/s", f64::from(*mbps) / 1000.0)),
            Fact::new("lanes", "lanes", speed.lanes, u8::to_string),
            Fact::word("mode", "mode", speed.mode),
            Fact::word("auto_negotiation", "auto-negotiation", speed.auto_negotiation),
            Fact::word("mac", "MAC address", Ok(self.device.mac().to_string())),
            Fact::new("mtu", "MTU of frames", Ok(port.mtu), bytes),
            Fact::new("max_mtu", "largest MTU", max_mtu, bytes),
            Fact::new("path_mtu", "RoCE path MTU", path_mtu, bytes),
            Fact::word("netdev", "network interface", netdev),
            Fact::new("netdev_mtu", "its MTU", netdev_mtu, |count| format!("{count} bytes")),
        ])
    }

    /// By register where the function is ours; as the kernel says where it keeps the function.
    fn speed(&self, port: &PortInfo, kernel: Option<&RdmaPort>) -> Result<Speed, Failure> {
        if !port.up {
            return Ok(Speed::unknown(NO_LINK));
        }
        let link = match answer(self.device.link())? {
            Ok(Some(link)) => link,
            Ok(None) => {
                return Ok(kernel.map_or(Speed::unknown("the kernel shows no port"), |port| self.kernel_speed(port)));
            }
            Err(reason) => return Ok(Speed::unknown(&reason)),
        };
        let mode = link.mode.ok_or_else(|| "register PTYS names no mode that this program knows".to_owned());
        let auto_negotiation = match link.auto_negotiation {
            AnStatus::Unavailable => Err("register PTYS says that its status is not available".into()),
            status => Ok(status.to_string()),
        };
        Ok(Speed {
            mbps: mode.as_ref().map(|mode| mode.speed_mbps).map_err(Clone::clone),
            lanes: mode.as_ref().map(|mode| mode.lanes).map_err(Clone::clone),
            mode: mode.map(|mode| mode.name.to_owned()),
            auto_negotiation,
        })
    }

    fn kernel_speed(&self, port: &RdmaPort) -> Speed {
        let unread = || "the kernel passes no register on; `ethtool` shows it".to_owned();
        let interface = port.interface.as_ref().and_then(|name| self.sysfs.interface(name));
        // An inactive port's rate is the kernel's guess.
        let rate = port.speed().filter(|_| port.state == "ACTIVE");
        let mbps = interface.and_then(|interface| interface.speed_mbps).or(rate.map(|(mbps, _)| mbps));
        Speed {
            mbps: mbps.ok_or_else(|| "the kernel does not say".to_owned()),
            lanes: rate.map(|(_, lanes)| lanes).ok_or_else(|| "the kernel does not say".to_owned()),
            mode: Err(unread()),
            auto_negotiation: Err(unread()),
        }
    }

    fn gids(&self, kernel: Option<&RdmaPort>) -> Vec<GidRow> {
        if let Some(port) = kernel {
            let row = |gid: &mlx5_dv::discovery::RdmaGid| GidRow {
                index: gid.index,
                address: gid.address,
                ipv4: gid.address.to_ipv4_mapped(),
                kind: gid.kind.clone(),
                mac: gid.mac.map(|mac| mac.to_string()),
                netdev: gid.interface.clone(),
            };
            return port.gids.iter().map(row).collect();
        }
        let row = |gid: &mlx5_dv::Gid| GidRow {
            index: gid.index,
            address: gid.address,
            ipv4: gid.address.to_ipv4_mapped(),
            kind: "RoCE v2".into(),
            mac: Some(gid.mac.to_string()),
            netdev: None,
        };
        self.device.gids().iter().map(row).collect()
    }
}

fn first_port(rdma: &RdmaDevice) -> Option<&RdmaPort> {
    rdma.ports.iter().find(|port| port.number == PORT)
}

/// The answer to a query; firmware's refusal is why it is not known, any other failure ends the program.
fn answer<T>(asked: Result<T, Error>) -> Result<Known<T>, Failure> {
    match asked {
        Ok(answer) => Ok(Ok(answer)),
        Err(Error::Command(error)) if error.status().is_some() => Ok(Err(error.to_string())),
        Err(error) => Err(error.into()),
    }
}
