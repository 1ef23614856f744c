//! Cards in sysfs.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// PCI vendor ID of Mellanox.
const VENDOR: u32 = 0x15b3;

/// A PCI address: domain, bus, device and function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    /// Domain.
    pub domain: u32,
    /// Bus.
    pub bus: u8,
    /// Device, below 32.
    pub device: u8,
    /// Function, below 8.
    pub function: u8,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.device, self.function)
    }
}

impl FromStr for PciAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (place, function) = text.rsplit_once('.')?;
            let mut parts = place.rsplit(':');
            let hex = |part: Option<&str>, most: u32| {
                let part = part.filter(|part| !part.starts_with('+'))?;
                u32::from_str_radix(part, 16).ok().filter(|number| *number <= most)
            };
            let device = hex(parts.next(), 0x1f)? as u8;
            let bus = hex(parts.next(), 0xff)? as u8;
            let domain = match parts.next() {
                Some(part) => hex(Some(part), u32::MAX)?,
                None => 0,
            };
            let function = hex(Some(function), 7)? as u8;
            parts.next().is_none().then_some(PciAddress { domain, bus, device, function })
        };
        parse().ok_or_else(|| format!("{text:?} is not a PCI address, such as 0000:3b:00.0"))
    }
}

/// A card's PCI function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Card {
    /// Its address.
    pub address: PciAddress,
    /// PCI device ID, such as 0x1017.
    pub device_id: u16,
    /// Model name of the device ID.
    pub model: String,
    /// The kernel driver bound to it, such as `mlx5_core`, `vfio-pci` or `mlx5_vfio_pci`.
    pub driver: Option<String>,
    /// Its IOMMU group.
    pub iommu_group: Option<u32>,
    /// Other functions of that group, bound to drivers that prevent its use by VFIO.
    pub group_blockers: Vec<(PciAddress, String)>,
    /// The group's device file, if it exists: `/dev/vfio/7`.
    pub vfio_group: Option<PathBuf>,
    /// The function's own device file, if it exists: `/dev/vfio/devices/vfio0`.
    pub vfio_device: Option<PathBuf>,
    /// The nearest NUMA node.
    pub numa_node: Option<u32>,
    /// Its RDMA devices in the kernel, such as `mlx5_0`.
    pub rdma_devices: Vec<String>,
    /// Its network interfaces in the kernel.
    pub interfaces: Vec<String>,
}

/// What prevents opening a card, and the shell command that fixes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    /// The obstacle.
    pub reason: String,
    /// The command that removes it.
    pub fix: String,
}

/// Root of the system's files: `/`, or a copy for tests.
#[derive(Debug, Clone)]
pub struct Sysfs {
    root: PathBuf,
}

impl Default for Sysfs {
    fn default() -> Self {
        Sysfs { root: PathBuf::from("/") }
    }
}

impl Sysfs {
    /// Uses `root` as the root directory.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Sysfs { root: root.into() }
    }

    /// All cards by address. Empty without a PCI bus.
    pub fn cards(&self) -> Vec<Card> {
        let names = list(&self.root.join("sys/bus/pci/devices"));
        let mut cards: Vec<Card> = names.iter().filter_map(|name| self.card(name.parse().ok()?).ok()?).collect();
        cards.sort_by_key(|card| card.address);
        cards
    }

    /// Whether a PCI function exists at `address`, of any vendor.
    pub fn exists(&self, address: PciAddress) -> bool {
        self.device(address).exists()
    }

    /// The card at `address`; `None` if the function there is not a ConnectX.
    pub fn card(&self, address: PciAddress) -> io::Result<Option<Card>> {
        let path = self.device(address);
        if hex(&fs::read_to_string(path.join("vendor"))?) != Some(VENDOR) {
            return Ok(None);
        }
        let device_id = hex(&fs::read_to_string(path.join("device"))?).unwrap_or(0) as u16;
        let iommu_group = link_name(&path.join("iommu_group")).and_then(|name| name.parse().ok());
        let group = iommu_group.map(|group: u32| PathBuf::from(format!("/dev/vfio/{group}")));
        let own = self.vfio_device(address).map(|name| PathBuf::from(format!("/dev/vfio/devices/{name}")));
        let numa = fs::read_to_string(path.join("numa_node")).ok();
        Ok(Some(Card {
            address,
            device_id,
            model: model(device_id).into(),
            driver: link_name(&path.join("driver")),
            iommu_group,
            group_blockers: self.blockers(address),
            vfio_group: group.filter(|path| self.in_root(path).exists()),
            vfio_device: own.filter(|path| self.in_root(path).exists()),
            numa_node: numa.and_then(|text| text.trim().parse().ok()),
            rdma_devices: list(&path.join("infiniband")),
            interfaces: list(&path.join("net")),
        }))
    }

    /// What prevents this user from opening `card` with `vfio:`.
    pub fn obstacles(&self, card: &Card) -> Vec<Obstacle> {
        let address = card.address;
        let mut found = vec![];
        if !card.driver.as_deref().is_some_and(|driver| self.is_of_vfio(address, driver)) {
            let reason = match &card.driver {
                Some(driver) => format!("it is bound to {driver}, not to vfio-pci"),
                None => "it is bound to no driver".into(),
            };
            found.push(Obstacle { reason, fix: bind_line(address, card.driver.is_some()) });
        }
        if card.iommu_group.is_none() {
            found.push(Obstacle {
                reason: "it is in no IOMMU group: the IOMMU is off".into(),
                fix: "turn VT-d or AMD-Vi on in the firmware, and boot with intel_iommu=on (Intel)".into(),
            });
        }
        found.extend(card.group_blockers.iter().map(|(other, driver)| Obstacle {
            reason: format!("its IOMMU group is not viable: {other} is in it too, bound to {driver}"),
            fix: format!("echo {other} > /sys/bus/pci/devices/{other}/driver/unbind"),
        }));
        if found.is_empty() {
            found.extend(self.file_obstacle(card));
        }
        found
    }

    /// A problem with the device file of a card that is otherwise ready.
    fn file_obstacle(&self, card: &Card) -> Option<Obstacle> {
        let Some(file) = card.vfio_device.as_ref().or(card.vfio_group.as_ref()) else {
            return Some(Obstacle {
                reason: "it has no device file in /dev/vfio".into(),
                fix: "modprobe vfio-pci".into(),
            });
        };
        (!self.may_open(card)).then(|| Obstacle {
            reason: format!("this user may not open {}", file.display()),
            fix: format!("sudo chown $USER {}", file.display()),
        })
    }

    fn may_open(&self, card: &Card) -> bool {
        let files = [&card.vfio_device, &card.vfio_group];
        files.into_iter().flatten().any(|file| {
            let access = rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK;
            rustix::fs::access(self.in_root(file), access).is_ok()
        })
    }

    fn blockers(&self, address: PciAddress) -> Vec<(PciAddress, String)> {
        let others = list(&self.device(address).join("iommu_group/devices"));
        let others = others.iter().filter_map(|name| name.parse().ok()).filter(|other| *other != address);
        let bound = others.filter_map(|other| Some((other, link_name(&self.device(other).join("driver"))?)));
        // These drivers do no DMA with their device: the kernel considers the group viable.
        let is_harmless =
            |other, driver: &str| matches!(driver, "pcieport" | "pci-stub") || self.is_of_vfio(other, driver);
        bound.filter(|(other, driver)| !is_harmless(*other, driver)).collect()
    }

    /// Whether `driver`, bound to the function, hands it to user space: vfio-pci, or a variant such as mlx5_vfio_pci,
    /// which also migrates virtual functions. Kernels from 6.1 on list the VFIO device; before, the name tells.
    fn is_of_vfio(&self, address: PciAddress, driver: &str) -> bool {
        matches!(driver, "vfio-pci" | "mlx5_vfio_pci") || self.vfio_device(address).is_some()
    }

    /// The name of the function's VFIO device, such as `vfio0`.
    fn vfio_device(&self, address: PciAddress) -> Option<String> {
        list(&self.device(address).join("vfio-dev")).into_iter().find(|name| name.starts_with("vfio"))
    }

    /// `file` of this system, such as `sys/class/net`.
    pub(super) fn path(&self, file: impl AsRef<Path>) -> PathBuf {
        self.root.join(file)
    }

    fn device(&self, address: PciAddress) -> PathBuf {
        self.root.join("sys/bus/pci/devices").join(address.to_string())
    }

    /// The absolute path `path` in this system.
    pub(super) fn in_root(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }
}

/// The shell command that binds a function to vfio-pci.
fn bind_line(address: PciAddress, bound: bool) -> String {
    let device = format!("/sys/bus/pci/devices/{address}");
    let unbind = if bound { format!("echo {address} > {device}/driver/unbind; ") } else { String::new() };
    format!(
        "modprobe vfio-pci; {unbind}echo vfio-pci > {device}/driver_override; echo {address} > /sys/bus/pci/drivers_probe"
    )
}

fn model(device_id: u16) -> &'static str {
    match device_id {
        0x1013 => "ConnectX-4",
        0x1014 => "ConnectX-4 VF",
        0x1015 => "ConnectX-4 Lx",
        0x1016 => "ConnectX-4 Lx VF",
        0x1017 => "ConnectX-5",
        0x1018 => "ConnectX-5 VF",
        0x1019 => "ConnectX-5 Ex",
        0x101a => "ConnectX-5 Ex VF",
        0x101b => "ConnectX-6",
        0x101c => "ConnectX-6 VF",
        0x101d => "ConnectX-6 Dx",
        0x101e => "ConnectX family VF",
        0x101f => "ConnectX-6 Lx",
        0x1021 => "ConnectX-7",
        0x1023 => "ConnectX-8",
        0xa2d2 => "BlueField",
        0xa2d6 => "BlueField-2",
        0xa2dc => "BlueField-3",
        _ => "unknown model",
    }
}

fn hex(text: &str) -> Option<u32> {
    u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()
}

pub(super) fn list(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

pub(super) fn link_name(path: &Path) -> Option<String> {
    Some(fs::read_link(path).ok()?.file_name()?.to_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A system with a card on `driver` in group 7, and a neighbour on `neighbour`.
    fn system(driver: Option<&str>, neighbour: Option<&str>) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        let devices = root.path().join("sys/bus/pci/devices");
        let group = root.path().join("sys/kernel/iommu_groups/7/devices");
        fs::create_dir_all(&group).expect("a directory");
        for (address, driver) in [("0000:3b:00.0", driver), ("0000:3b:00.1", neighbour)] {
            let device = devices.join(address);
            fs::create_dir_all(&device).expect("a directory");
            fs::write(device.join("vendor"), "0x15b3\n").expect("a file");
            fs::write(device.join("device"), "0x101d\n").expect("a file");
            fs::write(device.join("numa_node"), "1\n").expect("a file");
            symlink(root.path().join("sys/kernel/iommu_groups/7"), device.join("iommu_group")).expect("a link");
            symlink(&device, group.join(address)).expect("a link");
            if let Some(driver) = driver {
                symlink(format!("/sys/bus/pci/drivers/{driver}"), device.join("driver")).expect("a link");
            }
        }
        root
    }

    fn first(root: &tempfile::TempDir) -> (Card, Vec<Obstacle>) {
        let sysfs = Sysfs::at(root.path());
        let card = sysfs.cards().remove(0);
        let obstacles = sysfs.obstacles(&card);
        (card, obstacles)
    }

    #[test]
    fn a_card_on_the_kernel_driver_says_how_to_bind_it() {
        let root = system(Some("mlx5_core"), Some("vfio-pci"));
        let (card, obstacles) = first(&root);
        assert_eq!((card.model.as_str(), card.iommu_group, card.numa_node), ("ConnectX-6 Dx", Some(7), Some(1)));
        assert_eq!(obstacles.len(), 1);
        assert!(obstacles[0].reason.contains("mlx5_core"));
        assert!(obstacles[0].fix.contains("echo vfio-pci > /sys/bus/pci/devices/0000:3b:00.0/driver_override"));
    }

    #[test]
    fn a_group_with_a_foreign_driver_is_not_viable() {
        let root = system(Some("vfio-pci"), Some("mlx5_core"));
        let (_, obstacles) = first(&root);
        assert_eq!(obstacles.len(), 1, "{obstacles:?}");
        assert!(obstacles[0].reason.contains("0000:3b:00.1 is in it too, bound to mlx5_core"));
    }

    #[test]
    fn a_bound_card_wants_its_device_file() {
        let root = system(Some("vfio-pci"), None);
        let (_, obstacles) = first(&root);
        assert_eq!(obstacles[0].fix, "modprobe vfio-pci");
        fs::create_dir_all(root.path().join("dev/vfio")).expect("a directory");
        fs::write(root.path().join("dev/vfio/7"), "").expect("a file");
        let (card, obstacles) = first(&root);
        assert_eq!(card.vfio_group, Some(PathBuf::from("/dev/vfio/7")));
        assert_eq!(obstacles, []);
    }

    #[test]
    fn a_variant_of_vfio_pci_is_as_good_for_a_card_and_its_group() {
        let variants = [("mlx5_vfio_pci", None), ("vfio-pci", Some("vfio0")), ("another_vfio_pci", Some("vfio0"))];
        for (driver, listed) in variants {
            let root = system(Some(driver), Some(driver));
            for address in ["0000:3b:00.0", "0000:3b:00.1"] {
                let device = root.path().join("sys/bus/pci/devices").join(address).join("vfio-dev");
                fs::create_dir_all(device.join(listed.unwrap_or_default())).expect("a directory");
            }
            fs::create_dir_all(root.path().join("dev/vfio")).expect("a directory");
            fs::write(root.path().join("dev/vfio/7"), "").expect("a file");
            let (card, obstacles) = first(&root);
            assert_eq!((card.driver.as_deref(), obstacles), (Some(driver), vec![]));
        }
        let root = system(Some("another_vfio_pci"), None);
        assert!(first(&root).1[0].reason.contains("not to vfio-pci"), "a name alone says nothing");
    }

    #[test]
    fn no_pci_bus_is_no_cards() {
        assert_eq!(Sysfs::at("/nonexistent").cards(), []);
    }

    #[test]
    fn addresses_read_as_lspci_writes_them() {
        assert_eq!("0000:3b:00.0".parse::<PciAddress>().map(|a| a.to_string()), Ok("0000:3b:00.0".into()));
        assert_eq!("3b:1f.7".parse::<PciAddress>().map(|a| a.to_string()), Ok("0000:3b:1f.7".into()));
        assert_eq!("10000:e1:00.0".parse::<PciAddress>().map(|a| a.domain), Ok(0x10000));
        for wrong in ["", "3b", "3b:00", "3b:00.8", "3b:20.0", "100:00.0", "0:0:0:0.0", "+3:00.0", "x:y.z"] {
            assert!(wrong.parse::<PciAddress>().is_err(), "{wrong}");
        }
    }
}
