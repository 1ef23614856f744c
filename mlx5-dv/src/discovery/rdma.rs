//! The kernel's RDMA devices and their ports in sysfs.

use std::fs;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use rustix::fs::Access;

use super::sysfs::{Sysfs, link_name, list};
use super::{Card, Obstacle, PciAddress, RdmaLink};
use crate::kernel::abi;
use crate::net::Mac;

/// The driver of `mlx5_*` devices, on functions and subfunctions.
const DRIVER: &str = "mlx5_core";

/// An RDMA device of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdmaDevice {
    /// Its name, such as `mlx5_0`.
    pub name: String,
    /// Its PCI function, if it has one.
    pub address: Option<PciAddress>,
    /// The driver of that function, such as `mlx5_core`.
    pub driver: Option<String>,
    /// Its device file, such as `/dev/infiniband/uverbs0`; `None` without the module ib_uverbs.
    pub file: Option<PathBuf>,
    /// ABI version of the driver-specific part of the uverbs interface.
    pub abi: Option<u32>,
    /// Its firmware version, such as `16.35.4030`.
    pub firmware: String,
    /// Its board ID (PSID), such as `MT_0000000012`.
    pub board: String,
    /// Its node GUID, as the kernel prints it.
    pub node_guid: String,
    /// Its ports by number.
    pub ports: Vec<RdmaPort>,
}

/// A port of an RDMA device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdmaPort {
    /// Port number, from 1.
    pub number: u8,
    /// Such as `ACTIVE` or `DOWN`.
    pub state: String,
    /// Such as `LinkUp` or `Disabled`.
    pub physical_state: String,
    /// `Ethernet` or `InfiniBand`.
    pub link_layer: String,
    /// Such as `100 Gb/sec (4X EDR)`.
    pub rate: String,
    /// The port's network interface.
    pub interface: Option<String>,
    /// Its valid GIDs by index.
    pub gids: Vec<RdmaGid>,
}

/// An entry of the kernel's GID table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdmaGid {
    /// Index in the table.
    pub index: u16,
    /// The GID.
    pub address: Ipv6Addr,
    /// `RoCE v2`, or `IB/RoCE v1`.
    pub kind: String,
    /// The network interface of the address.
    pub interface: Option<String>,
    /// That interface's MAC address.
    pub mac: Option<Mac>,
    /// That interface's VLAN, if it is one.
    pub vlan: Option<u16>,
}

impl RdmaGid {
    /// Whether it is for RoCE v2 (UDP).
    pub fn is_roce_v2(&self) -> bool {
        self.kind == "RoCE v2"
    }
}

impl RdmaDevice {
    /// Replaces what sysfs says of its ports by what `links` say.
    pub fn refine(&mut self, links: &[RdmaLink]) {
        for link in links.iter().filter(|link| link.device == self.name) {
            let Some(port) = self.ports.iter_mut().find(|port| port.number == link.port) else { continue };
            port.state.clone_from(&link.state);
            port.physical_state.clone_from(&link.physical_state);
            if link.interface.is_some() {
                port.interface.clone_from(&link.interface);
            }
        }
    }
}

impl Sysfs {
    /// Names of all RDMA devices, of any driver.
    pub fn rdma_names(&self) -> Vec<String> {
        list(&self.path("sys/class/infiniband"))
    }

    /// The RDMA device `name`; `None` if it does not exist.
    pub fn rdma_device(&self, name: &str) -> Option<RdmaDevice> {
        let path = self.path("sys/class/infiniband").join(name);
        let text = |file: &str| read(&path.join(file)).unwrap_or_default();
        let mut ports: Vec<u8> = list(&path.join("ports")).iter().filter_map(|port| port.parse().ok()).collect();
        ports.sort_unstable();
        path.exists().then(|| RdmaDevice {
            name: name.into(),
            address: link_name(&path.join("device")).and_then(|address| address.parse().ok()),
            driver: link_name(&path.join("device/driver")),
            file: self.uverbs(name).map(|uverbs| Path::new("/dev/infiniband").join(uverbs)),
            abi: self.uverbs(name).and_then(|uverbs| self.number(&format!("{UVERBS}/{uverbs}/abi_version"))),
            firmware: text("fw_ver"),
            board: text("board_id"),
            node_guid: text("node_guid"),
            ports: ports
                .iter()
                .map(|number| self.port(&path.join("ports").join(number.to_string()), *number))
                .collect(),
        })
    }

    /// The RDMA devices of `card`.
    pub fn rdma_devices(&self, card: &Card) -> Vec<RdmaDevice> {
        card.rdma_devices.iter().filter_map(|name| self.rdma_device(name)).collect()
    }

    /// Name of the RDMA device whose file has these numbers, major and minor; `None` if it is no RDMA device's.
    pub fn rdma_device_of_file(&self, (major, minor): (u32, u32)) -> Option<String> {
        let number = format!("{major}:{minor}");
        let files = list(&self.path(UVERBS)).into_iter().map(|uverbs| self.path(UVERBS).join(uverbs));
        let file = files.into_iter().find(|file| read(&file.join("dev")).as_deref() == Some(&number))?;
        read(&file.join("ibdev"))
    }

    /// What prevents this user from opening `device` with `devx:`.
    pub fn devx_obstacle(&self, device: &RdmaDevice) -> Option<Obstacle> {
        self.interface_obstacle(device).or_else(|| {
            let file = device.file.as_ref()?;
            let (shown, obstacle) = (file.display(), |reason, fix: String| Some(Obstacle { reason, fix }));
            match rustix::fs::access(self.in_root(file), Access::READ_OK | Access::WRITE_OK) {
                Ok(()) => None,
                Err(rustix::io::Errno::NOENT) => obstacle(format!("{shown} is missing"), "udevadm trigger".into()),
                Err(_) => obstacle(format!("this user may not open {shown}"), format!("sudo chmod 666 {shown}")),
            }
        })
    }

    /// What prevents the use of `device` with `devx:`, whoever opens its file.
    pub fn interface_obstacle(&self, device: &RdmaDevice) -> Option<Obstacle> {
        let obstacle = |reason: String, fix: &str| Some(Obstacle { reason, fix: fix.into() });
        if !device.driver.as_deref().is_some_and(|driver| driver.starts_with(DRIVER)) {
            let driver = device.driver.as_deref().unwrap_or("no PCI driver");
            return obstacle(
                format!("it is not an mlx5 device: it belongs to {driver}"),
                "name a device of mlx5_core's",
            );
        }
        if device.file.is_none() {
            return obstacle("it has no file in /dev/infiniband".into(), "modprobe ib_uverbs");
        }
        let (core, own) = (self.uverbs_abi(), device.abi);
        if (core, own) != (Some(abi::IB_USER_VERBS_ABI_VERSION), Some(abi::MLX5_IB_UVERBS_ABI_VERSION)) {
            let shown = |version: Option<u32>| version.map_or("none".into(), |version| version.to_string());
            let reason = format!(
                "the kernel's interface has versions {} and {}, and this driver supports only {} and {}",
                shown(core),
                shown(own),
                abi::IB_USER_VERBS_ABI_VERSION,
                abi::MLX5_IB_UVERBS_ABI_VERSION
            );
            return obstacle(reason, "boot a kernel whose rdma/ib_user_verbs.h has these versions");
        }
        None
    }

    /// Version of the common uverbs interface; `None` without the module ib_uverbs.
    pub fn uverbs_abi(&self) -> Option<u32> {
        self.number(&format!("{UVERBS}/abi_version"))
    }

    /// All counters of port `port` of `device` by name, the standard ones and the device's own. Each is read from the
    /// card.
    pub fn counters(&self, device: &str, port: u8) -> Vec<(String, u64)> {
        let path = self.port_path(device, port);
        ["counters", "hw_counters"].into_iter().flat_map(|dir| numbers(&path.join(dir))).collect()
    }

    /// The counters of port `port` of `device` that the InfiniBand standard defines, by name. The card is asked for
    /// each.
    pub fn standard_counters(&self, device: &str, port: u8) -> Vec<(String, u64)> {
        numbers(&self.port_path(device, port).join("counters"))
    }

    /// The counters of port `port` of `device` that are the device's own, by name: those of `rdma statistic`. The card
    /// is asked for each.
    pub fn hw_counters(&self, device: &str, port: u8) -> Vec<(String, u64)> {
        numbers(&self.port_path(device, port).join("hw_counters"))
    }

    /// The valid GIDs of port `port` of `device`. Reads them again at each call.
    pub fn gids(&self, device: &str, port: u8) -> Vec<RdmaGid> {
        self.gids_at(&self.port_path(device, port))
    }

    fn port_path(&self, device: &str, port: u8) -> PathBuf {
        self.path("sys/class/infiniband").join(device).join("ports").join(port.to_string())
    }

    /// Such as `uverbs0`.
    fn uverbs(&self, device: &str) -> Option<String> {
        let names = list(&self.path(UVERBS)).into_iter();
        names.into_iter().find(|name| read(&self.path(UVERBS).join(name).join("ibdev")).as_deref() == Some(device))
    }

    fn port(&self, path: &Path, number: u8) -> RdmaPort {
        let text = |file: &str| read(&path.join(file)).unwrap_or_default();
        let gids = self.gids_at(path);
        RdmaPort {
            number,
            // `4: ACTIVE`
            state: text("state").rsplit(": ").next().unwrap_or_default().into(),
            physical_state: text("phys_state").rsplit(": ").next().unwrap_or_default().into(),
            link_layer: text("link_layer"),
            rate: text("rate"),
            interface: gids.first().and_then(|gid| gid.interface.clone()),
            gids,
        }
    }

    /// The VLAN of network interface `name`, if it is one. The first line of the kernel's file about it:
    /// `eth1.5  VID: 5  REORDER_HDR: 1  dev->priv_flags: 1021`.
    fn vlan(&self, name: &str) -> Option<u16> {
        let text = read(&self.path("proc/net/vlan").join(name))?;
        let (_, id) = text.lines().next()?.split_once("VID: ")?;
        id.split_whitespace().next()?.parse().ok()
    }

    fn gids_at(&self, port: &Path) -> Vec<RdmaGid> {
        let entry = |index: u16| {
            let text = |dir: &str| read(&port.join(dir).join(index.to_string()));
            let address: Ipv6Addr = text("gids")?.parse().ok()?;
            let interface = text("gid_attrs/ndevs");
            let mac = interface.as_ref().and_then(|name| read(&self.path("sys/class/net").join(name).join("address")));
            let vlan = interface.as_ref().and_then(|name| self.vlan(name));
            let kind = text("gid_attrs/types").unwrap_or_default();
            let set = !address.is_unspecified();
            set.then(|| RdmaGid { index, address, kind, mac: mac.and_then(|mac| mac.parse().ok()), interface, vlan })
        };
        let mut indices: Vec<u16> = list(&port.join("gids")).iter().filter_map(|index| index.parse().ok()).collect();
        indices.sort_unstable();
        indices.into_iter().filter_map(entry).collect()
    }

    fn number(&self, file: &str) -> Option<u32> {
        read(&self.path(file))?.parse().ok()
    }
}

const UVERBS: &str = "sys/class/infiniband_verbs";

/// Content of a file without the newline; `None` if it cannot be read: an unset GID has no type.
pub(super) fn read(file: &Path) -> Option<String> {
    Some(fs::read_to_string(file).ok()?.trim_end().to_owned())
}

/// Files in a directory that contain a number.
fn numbers(dir: &Path) -> Vec<(String, u64)> {
    let number = |name: String| Some((name.clone(), read(&dir.join(&name))?.parse().ok()?));
    list(dir).into_iter().filter_map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A system with one device, as in the lab's guest.
    fn system() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let device = "sys/class/infiniband/mlx5_0";
        write(root, &format!("{device}/fw_ver"), "16.35.4030\n");
        write(root, &format!("{device}/node_guid"), "0200:c5ff:fe00:0001\n");
        let port = format!("{device}/ports/1");
        write(root, &format!("{port}/state"), "4: ACTIVE\n");
        write(root, &format!("{port}/phys_state"), "5: LinkUp\n");
        write(root, &format!("{port}/link_layer"), "Ethernet\n");
        write(root, &format!("{port}/rate"), "100 Gb/sec (4X EDR)\n");
        write(root, &format!("{port}/gids/0"), "fe80:0000:0000:0000:0000:c5ff:fe00:0001\n");
        write(root, &format!("{port}/gids/1"), "0000:0000:0000:0000:0000:0000:0000:0000\n");
        write(root, &format!("{port}/gids/10"), "0000:0000:0000:0000:0000:ffff:0a00:0001\n");
        for (index, interface) in [(0, "eth1"), (10, "eth1.5")] {
            write(root, &format!("{port}/gid_attrs/types/{index}"), "RoCE v2\n");
            write(root, &format!("{port}/gid_attrs/ndevs/{index}"), &format!("{interface}\n"));
        }
        write(root, "proc/net/vlan/config", "VLAN Dev name    | VLAN ID\n");
        let vlan = "eth1.5  VID: 5\t REORDER_HDR: 1  dev->priv_flags: 1021\n         total frames received  0\n";
        write(root, "proc/net/vlan/eth1.5", vlan);
        write(root, &format!("{port}/counters/port_rcv_packets"), "7\n");
        write(root, &format!("{port}/hw_counters/out_of_sequence"), "2\n");
        write(root, "sys/class/net/eth1/address", "02:00:c5:00:00:01\n");
        write(root, "sys/class/infiniband_verbs/abi_version", "6\n");
        write(root, "sys/class/infiniband_verbs/uverbs3/ibdev", "mlx5_0\n");
        write(root, "sys/class/infiniband_verbs/uverbs3/dev", "231:195\n");
        write(root, "sys/class/infiniband_verbs/uverbs3/abi_version", "1\n");
        dir
    }

    #[test]
    fn a_device_is_found_with_its_file_port_and_gids() {
        let dir = system();
        let sysfs = Sysfs::at(dir.path());
        assert_eq!(sysfs.rdma_names(), ["mlx5_0"]);
        let device = sysfs.rdma_device("mlx5_0").unwrap();
        assert_eq!(device.file.as_deref(), Some(Path::new("/dev/infiniband/uverbs3")));
        assert_eq!((device.abi, sysfs.uverbs_abi()), (Some(1), Some(6)));
        assert_eq!(sysfs.rdma_device_of_file((231, 195)).as_deref(), Some("mlx5_0"));
        assert_eq!((sysfs.rdma_device_of_file((231, 19)), sysfs.rdma_device_of_file((1, 3))), (None, None));
        assert_eq!((device.firmware.as_str(), device.node_guid.as_str()), ("16.35.4030", "0200:c5ff:fe00:0001"));
        let [port] = &device.ports[..] else { panic!("one port: {:?}", device.ports) };
        assert_eq!((port.number, port.state.as_str(), port.interface.as_deref()), (1, "ACTIVE", Some("eth1")));
        assert_eq!(port.gids.iter().map(|gid| gid.index).collect::<Vec<_>>(), [0, 10], "unset ones are left out");
        assert!(port.gids.iter().all(RdmaGid::is_roce_v2));
        assert_eq!(port.gids[1].address.to_ipv4_mapped(), Some([10, 0, 0, 1].into()));
        assert_eq!(port.gids[0].mac, Some(Mac([2, 0, 0xc5, 0, 0, 1])));
        assert_eq!((port.gids[0].vlan, port.gids[1].vlan), (None, Some(5)));
        assert_eq!(
            sysfs.counters("mlx5_0", 1),
            [("port_rcv_packets".to_owned(), 7), ("out_of_sequence".to_owned(), 2)]
        );
    }

    #[test]
    fn what_netlink_says_of_a_port_goes_before() {
        let dir = system();
        let mut device = Sysfs::at(dir.path()).rdma_device("mlx5_0").unwrap();
        assert_eq!(device.ports[0].physical_state, "LinkUp");
        let link = |device: &str, port, interface: Option<&str>| RdmaLink {
            device: device.into(),
            port,
            state: "DOWN".into(),
            physical_state: "Disabled".into(),
            interface: interface.map(str::to_owned),
        };
        device.refine(&[link("mlx5_1", 1, Some("eth7")), link("mlx5_0", 2, None)]);
        assert_eq!(device, Sysfs::at(dir.path()).rdma_device("mlx5_0").unwrap(), "others' ports");
        device.refine(&[link("mlx5_0", 1, None)]);
        let port = &device.ports[0];
        assert_eq!((port.state.as_str(), port.physical_state.as_str()), ("DOWN", "Disabled"));
        assert_eq!(port.interface.as_deref(), Some("eth1"), "what netlink does not know stays");
        device.refine(&[link("mlx5_0", 1, Some("eth2"))]);
        assert_eq!(device.ports[0].interface.as_deref(), Some("eth2"));
    }

    #[test]
    fn what_stands_in_the_way_comes_with_what_removes_it() {
        let dir = system();
        let root = dir.path();
        let sysfs = Sysfs::at(root);
        let obstacle = || sysfs.devx_obstacle(&sysfs.rdma_device("mlx5_0").unwrap());
        let reason = || obstacle().map_or("none".into(), |obstacle| format!("{}: {}", obstacle.reason, obstacle.fix));
        let function = root.join("sys/devices/pci0/0000:00:05.0");
        fs::create_dir_all(&function).unwrap();
        std::os::unix::fs::symlink(&function, root.join("sys/class/infiniband/mlx5_0/device")).unwrap();
        std::os::unix::fs::symlink("/sys/bus/pci/drivers/rdma_rxe", function.join("driver")).unwrap();
        assert!(reason().contains("belongs to rdma_rxe"), "{}", reason());
        fs::remove_file(function.join("driver")).unwrap();
        std::os::unix::fs::symlink("/sys/bus/pci/drivers/mlx5_core", function.join("driver")).unwrap();
        assert!(reason().contains("uverbs3 is missing: udevadm"), "{}", reason());
        write(root, "dev/infiniband/uverbs3", "");
        assert_eq!(reason(), "none");
        write(root, "sys/class/infiniband_verbs/abi_version", "7\n");
        assert!(reason().contains("versions 7 and 1"), "{}", reason());
        fs::remove_dir_all(root.join("sys/class/infiniband_verbs")).unwrap();
        assert!(reason().contains("modprobe ib_uverbs"), "{}", reason());
    }

    #[test]
    fn a_device_that_is_not_there_is_none() {
        let dir = system();
        assert_eq!(Sysfs::at(dir.path()).rdma_device("mlx5_1"), None);
        assert!(Sysfs::at("/nowhere").rdma_names().is_empty());
    }

    #[test]
    fn without_ib_uverbs_a_device_has_no_file() {
        let dir = system();
        fs::remove_dir_all(dir.path().join("sys/class/infiniband_verbs")).unwrap();
        let sysfs = Sysfs::at(dir.path());
        let device = sysfs.rdma_device("mlx5_0").unwrap();
        assert_eq!((device.file, device.abi, sysfs.uverbs_abi()), (None, None, None));
    }
}
