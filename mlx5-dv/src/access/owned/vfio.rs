//! The kernel's VFIO: a function bound to vfio-pci, behind an IOMMU.
//!
//! The kernel offers two interfaces. Newer kernels have a device file per function, with address spaces managed through
//! `/dev/iommu` (iommufd); all kernels have groups and containers. The first is used if this user may open it.
//!
//! Registers are accessed through the device file, not a mapping: after a surprise removal an access then fails with an
//! error, and the process does not get SIGBUS. Only UAR pages are mapped.

use std::fmt;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use iommufd_ioctls::IommuFd;
use memmap2::MmapOptions;
use rustix::event::{EventfdFlags, eventfd};
use vfio_bindings::bindings::vfio::{
    VFIO_IOMMU_INFO_CAPS, VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE, VFIO_PCI_BAR0_REGION_INDEX,
    VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_ERR_IRQ_INDEX, VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_REQ_IRQ_INDEX,
    VFIO_REGION_INFO_FLAG_MMAP,
};
use vfio_ioctls::{VfioContainer, VfioDevice, VfioError, VfioIommufd, VfioOps, VfioRegionInfoCap};
use vmm_sys_util::eventfd::EventFd;
use vmm_sys_util::ioctl::{ioctl, ioctl_with_mut_ptr, ioctl_with_mut_ref};

use crate::access::{Bar, BarMapping, DmaSpace, Function, HostRange, Irq, Notices, pci};
use crate::discovery::{Card, PciAddress, Sysfs};
use crate::error::Error;
use crate::memory::Iova;

/// Address ranges to use if the kernel does not report any: 39 bits, without the interrupt window of x86.
const USUAL_ADDRESSES: [(u64, u64); 2] = [(0x1_0000, 0xfedf_ffff), (0xfef0_0000, (1 << 39) - 1)];

/// `VFIO_DEVICE_RESET`, `VFIO_IOMMU_GET_INFO`, `IOMMU_IOAS_IOVA_RANGES`: `_IO(';', n)`, numbered as in the kernel's
/// vfio.h and iommufd.h.
const VFIO_DEVICE_RESET: libc::c_ulong = request(100 + 11);
const VFIO_IOMMU_GET_INFO: libc::c_ulong = request(100 + 12);
const IOMMU_IOAS_IOVA_RANGES: libc::c_ulong = request(0x84);

const fn request(number: u8) -> libc::c_ulong {
    (b';' as libc::c_ulong) << 8 | number as libc::c_ulong
}

/// Opens the function at `address`.
///
/// # Errors
/// [`Error::Refused`] with the obstacle, and the shell command that removes it.
pub fn open(address: PciAddress) -> Result<Function, Error> {
    let name = format!("vfio:{address}");
    let card = inspect(&name, address)?;
    let group = Arc::new(open_device(&name, &card)?);
    let bar_size = group.device().get_region_size(VFIO_PCI_BAR0_REGION_INDEX);
    let vectors = group.device().get_irq_info(VFIO_PCI_MSIX_IRQ_INDEX).map_or(0, |info| info.count);
    if bar_size == 0 {
        return Err(refuse(&name, "its BAR 0 is empty", None, None));
    }
    let bar = Box::new(VfioBar { vfio: Arc::clone(&group), size: bar_size });
    let dma = Box::new(VfioDma(Arc::clone(&group)));
    // SAFETY: all three belong to the device just opened, which the kernel opens only once at a time.
    Ok(unsafe { Function::new(name, bar, dma, Box::new(VfioIrq { vfio: group, vectors })) })
}

fn refuse(device: &str, reason: &str, fix: Option<String>, source: Option<io::Error>) -> Error {
    Error::Refused { device: device.into(), reason: reason.into(), fix, source }
}

/// Checks for visible obstacles before anything is opened.
fn inspect(name: &str, address: PciAddress) -> Result<Card, Error> {
    let sysfs = Sysfs::default();
    if !sysfs.exists(address) {
        let fix = "name one that `mlx5 list` or `lspci -D -d 15b3:` shows".into();
        return Err(refuse(name, "there is no such PCI function", Some(fix), None));
    }
    let card = sysfs.card(address).map_err(|error| refuse(name, "sysfs cannot be read", None, Some(error)))?;
    let card = card.ok_or_else(|| refuse(name, "it is not a ConnectX: its PCI vendor ID is not 15b3", None, None))?;
    match sysfs.obstacles(&card).into_iter().next() {
        Some(obstacle) => Err(refuse(name, &obstacle.reason, Some(obstacle.fix), None)),
        None => Ok(card),
    }
}

fn open_device(name: &str, card: &Card) -> Result<Vfio, Error> {
    let path = PathBuf::from(format!("/sys/bus/pci/devices/{}", card.address));
    if card.vfio_device.is_some() && Path::new("/dev/iommu").exists() {
        match Vfio::by_device_file(&path) {
            Ok(vfio) => return Ok(vfio),
            // This user may be allowed to open the group, though not the device file.
            Err(error) if card.vfio_group.is_none() => return Err(explain(name, card, error)),
            Err(error) => tracing::debug!(%error, "iommufd refused, trying the group"),
        }
    }
    Vfio::by_group(&path).map_err(|error| explain(name, card, error))
}

/// Turns an error of the kernel into a refusal with a fix.
fn explain(name: &str, card: &Card, error: VfioError) -> Error {
    let group = card.iommu_group.map_or_else(String::new, |group| group.to_string());
    let file = format!("/dev/vfio/{group}");
    let io_error = |error: &io::Error| io::Error::new(error.kind(), error.to_string());
    match error {
        VfioError::OpenContainer(source) if source.kind() == io::ErrorKind::NotFound => {
            refuse(name, "there is no /dev/vfio/vfio", Some("modprobe vfio-pci".into()), Some(source))
        }
        VfioError::OpenContainer(source) => {
            refuse(name, "/dev/vfio/vfio cannot be opened", Some("sudo chmod 666 /dev/vfio/vfio".into()), Some(source))
        }
        VfioError::OpenGroup(ref source, _) | VfioError::OpenDeviceCdev(ref source) => match source.raw_os_error() {
            Some(libc::EBUSY) => {
                let fix = format!("end the process that `sudo fuser {file}` names");
                refuse(name, "another process uses it", Some(fix), Some(io_error(source)))
            }
            Some(libc::EACCES | libc::EPERM) => {
                let fix = format!("sudo chown $USER {file}");
                refuse(name, "this user may not open its device file", Some(fix), Some(io_error(source)))
            }
            _ => refuse(name, "its device file cannot be opened", None, Some(io_error(source))),
        },
        VfioError::GroupViable => {
            let fix =
                format!("bind every function of /sys/kernel/iommu_groups/{group}/devices to vfio-pci, or to nothing");
            refuse(name, "its IOMMU group is not viable", Some(fix), None)
        }
        VfioError::ContainerSetIOMMU(source) if source.errno() == libc::EPERM => {
            let fix = "boot with interrupt remapping on, or, where all guests are trusted: \
                       echo 1 > /sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts";
            refuse(name, "the IOMMU does not protect interrupts", Some(fix.into()), None)
        }
        VfioError::ContainerSetIOMMU(_) | VfioError::VfioExtension | VfioError::VfioType1V2 => {
            let fix = "modprobe vfio_iommu_type1, and turn the IOMMU on (intel_iommu=on)";
            refuse(name, "the kernel has no IOMMU for VFIO", Some(fix.into()), None)
        }
        other => refuse(name, "the kernel's VFIO refused the device", None, Some(io::Error::other(other))),
    }
}

/// The address space that the function is attached to.
#[derive(Clone)]
enum Addresses {
    Container(Arc<VfioContainer>),
    Iommufd(Arc<VfioIommufd>),
}

/// An open function.
struct Vfio {
    /// `None` only while it is being closed.
    device: Option<VfioDevice>,
    addresses: Addresses,
}

impl fmt::Debug for Vfio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.addresses {
            Addresses::Container(_) => "Vfio(group)",
            Addresses::Iommufd(_) => "Vfio(iommufd)",
        })
    }
}

impl Drop for Vfio {
    fn drop(&mut self) {
        // On close the crate looks the group up in sysfs again, and panics if the card was removed. The kernel releases
        // everything with the descriptors anyway.
        let device = self.device.take();
        if catch_unwind(AssertUnwindSafe(|| drop(device))).is_err() {
            tracing::warn!("the function was removed before it was closed");
        }
    }
}

impl Vfio {
    fn by_group(path: &Path) -> Result<Self, VfioError> {
        let container = Arc::new(VfioContainer::new(None)?);
        let device = VfioDevice::new(path, Arc::clone(&container) as Arc<dyn VfioOps>, false)?;
        Ok(Vfio { device: Some(device), addresses: Addresses::Container(container) })
    }

    fn by_device_file(path: &Path) -> Result<Self, VfioError> {
        let iommufd = Arc::new(IommuFd::new().map_err(VfioError::NewVfioIommufd)?);
        let space = Arc::new(VfioIommufd::new(iommufd, None, None)?);
        let device = VfioDevice::new(path, Arc::clone(&space) as Arc<dyn VfioOps>, true)?;
        Ok(Vfio { device: Some(device), addresses: Addresses::Iommufd(space) })
    }

    fn device(&self) -> &VfioDevice {
        match &self.device {
            Some(device) => device,
            None => unreachable!("taken only by drop"),
        }
    }

    /// Reads a region. A failed read gives all ones, as on a PCI bus.
    fn read<const N: usize>(&self, region: u32, offset: u64) -> [u8; N] {
        let mut bytes = [0xff; N];
        self.device().region_read(region, &mut bytes, offset);
        bytes
    }

    /// Writes a region. The crate's own write does not return errors.
    fn write(&self, region: u32, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let device = self.device();
        let inside = offset.checked_add(bytes.len() as u64).is_some_and(|end| end <= device.get_region_size(region));
        if !inside {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        // SAFETY: the device keeps its descriptor open; it is borrowed for this call only.
        let file = unsafe { BorrowedFd::borrow_raw(device.as_raw_fd()) };
        let written = rustix::io::pwrite(file, bytes, device.get_region_offset(region) + offset)?;
        if written == bytes.len() { Ok(()) } else { Err(io::Error::from(io::ErrorKind::WriteZero)) }
    }
}

#[derive(Debug)]
struct VfioBar {
    vfio: Arc<Vfio>,
    size: u64,
}

impl VfioBar {
    /// Whether the kernel allows mapping `[offset, offset + len)` of BAR 0.
    fn mappable(&self, offset: u64, len: u64) -> bool {
        let device = self.vfio.device();
        let Some(end) = offset.checked_add(len).filter(|end| *end <= self.size) else { return false };
        if device.get_region_flags(VFIO_PCI_BAR0_REGION_INDEX) & VFIO_REGION_INFO_FLAG_MMAP == 0 {
            return false;
        }
        let caps = device.get_region_caps(VFIO_PCI_BAR0_REGION_INDEX);
        let mut sparse = caps.iter().filter_map(|cap| match cap {
            VfioRegionInfoCap::SparseMmap(map) => Some(map),
            _ => None,
        });
        match sparse.next() {
            Some(map) => map.areas.iter().any(|area| area.offset <= offset && end <= area.offset + area.size),
            None => true,
        }
    }
}

// SAFETY: the kernel maps the part that is asked for. A reset waits for DMA to end, and without bus mastering the bus
// lets no DMA through.
unsafe impl Bar for VfioBar {
    fn size(&self) -> u64 {
        self.size
    }

    fn read32(&self, offset: u64) -> io::Result<u32> {
        Ok(u32::from_be_bytes(self.vfio.read(VFIO_PCI_BAR0_REGION_INDEX, offset)))
    }

    unsafe fn write32(&self, offset: u64, value: u32) -> io::Result<()> {
        self.vfio.write(VFIO_PCI_BAR0_REGION_INDEX, offset, &value.to_be_bytes())
    }

    unsafe fn write64(&self, offset: u64, value: u64) -> io::Result<()> {
        self.vfio.write(VFIO_PCI_BAR0_REGION_INDEX, offset, &value.to_be_bytes())
    }

    fn map(&self, offset: u64, len: usize) -> io::Result<Option<BarMapping>> {
        if !self.mappable(offset, len as u64) {
            return Ok(None);
        }
        let device = self.vfio.device();
        let at = device.get_region_offset(VFIO_PCI_BAR0_REGION_INDEX) + offset;
        let mapping = MmapOptions::new().offset(at).len(len).map_raw(device.as_raw_fd())?;
        BarMapping::of_map(mapping, Arc::clone(&self.vfio)).map(Some)
    }

    fn reset(&self) -> io::Result<()> {
        // SAFETY: the descriptor is open as long as `vfio` lives, and the request takes no argument.
        let result = unsafe { ioctl(self.vfio.device(), VFIO_DEVICE_RESET) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn set_bus_master(&self, enabled: bool) -> io::Result<()> {
        let read = || Ok(self.vfio.read(VFIO_PCI_CONFIG_REGION_INDEX, pci::COMMAND));
        pci::set_bus_master(enabled, read, |bytes| self.vfio.write(VFIO_PCI_CONFIG_REGION_INDEX, pci::COMMAND, &bytes))
    }
}

#[derive(Debug)]
struct VfioDma(Arc<Vfio>);

// SAFETY: the IOMMU lets the function reach mapped memory until it is unmapped, and nothing else.
unsafe impl DmaSpace for VfioDma {
    unsafe fn map(&self, range: HostRange<'_>, iova: Iova) -> io::Result<()> {
        let address = range.address().as_ptr();
        // SAFETY: by this function's contract the memory stays mapped in this process until it is unmapped here, and
        // nobody holds a reference to what the card writes.
        let result = unsafe {
            match &self.0.addresses {
                Addresses::Container(container) => container.vfio_dma_map(iova.0, range.len(), address),
                Addresses::Iommufd(space) => space.vfio_dma_map(iova.0, range.len(), address),
            }
        };
        result.map_err(os_error)
    }

    fn unmap(&self, iova: Iova, len: usize) -> io::Result<()> {
        let result = match &self.0.addresses {
            Addresses::Container(container) => container.vfio_dma_unmap(iova.0, len),
            Addresses::Iommufd(space) => space.vfio_dma_unmap(iova.0, len),
        };
        result.map_err(os_error)
    }

    fn iova_ranges(&self) -> Vec<(u64, u64)> {
        let ranges = match &self.0.addresses {
            Addresses::Container(container) => container_ranges(container),
            Addresses::Iommufd(space) => iommufd_ranges(space),
        };
        match ranges {
            Ok(ranges) if !ranges.is_empty() => ranges,
            Ok(_) => USUAL_ADDRESSES.to_vec(),
            Err(error) => {
                tracing::debug!(%error, "the kernel does not report its allowed addresses");
                USUAL_ADDRESSES.to_vec()
            }
        }
    }

    fn takes_anonymous_memory(&self) -> bool {
        true
    }

    fn prefers_files(&self) -> bool {
        false
    }
}

/// The system error inside the crate's error.
fn os_error(error: VfioError) -> io::Error {
    match error {
        VfioError::IommuDmaMap(source) | VfioError::IommuDmaUnmap(source) => {
            io::Error::from_raw_os_error(source.errno())
        }
        VfioError::IommufdIoctlError(iommufd_ioctls::IommufdError::IommuIoasMap(source)) => {
            io::Error::from_raw_os_error(source.errno())
        }
        other => io::Error::other(other),
    }
}

/// Address ranges that a container's IOMMU allows. The reply is a header and a chain of capabilities, in host byte
/// order:
///
/// ```text
/// vfio_iommu_type1_info   argsz u32, flags u32, iova_pgsizes u64, cap_offset u32
/// vfio_info_cap_header    id u16, version u16, next u32
///   of IOVA_RANGE         nr_iovas u32, reserved u32, then (start u64, end u64) each
/// ```
fn container_ranges(container: &VfioContainer) -> io::Result<Vec<(u64, u64)>> {
    const HEADER: usize = 24;
    let mut len = HEADER;
    // The kernel reports the size it needs. It can only grow if devices come or go in between.
    for _ in 0..3 {
        let mut reply = vec![0u64; len.div_ceil(8)];
        reply[0] = len as u64;
        // SAFETY: the kernel writes at most `argsz` bytes, the first dword, and `reply` has that many.
        let result = unsafe { ioctl_with_mut_ptr(container, VFIO_IOMMU_GET_INFO, reply.as_mut_ptr()) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        let bytes: Vec<u8> = reply.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let wanted = ne32(&bytes, 0) as usize;
        if wanted > len {
            len = wanted;
            continue;
        }
        return Ok(parse_ranges(&bytes));
    }
    Ok(vec![])
}

fn ne32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

fn ne64(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

fn parse_ranges(bytes: &[u8]) -> Vec<(u64, u64)> {
    const ENTRY: usize = 16;
    if ne32(bytes, 4) & VFIO_IOMMU_INFO_CAPS == 0 {
        return vec![];
    }
    let mut at = ne32(bytes, 16) as usize;
    while at != 0 && at + ENTRY <= bytes.len() {
        if ne32(bytes, at) & 0xffff == VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE {
            let room = (bytes.len() - at) / ENTRY - 1;
            let count = (ne32(bytes, at + 8) as usize).min(room);
            return (1..=count).map(|i| (ne64(bytes, at + i * ENTRY), ne64(bytes, at + i * ENTRY + 8))).collect();
        }
        let next = ne32(bytes, at + 4) as usize;
        if next <= at {
            break;
        }
        at = next;
    }
    vec![]
}

/// Address ranges that an iommufd address space allows. Layout: `iommu_ioas_iova_ranges` in the kernel's iommufd.h.
fn iommufd_ranges(space: &VfioIommufd) -> io::Result<Vec<(u64, u64)>> {
    #[repr(C)]
    struct Ranges {
        size: u32,
        ioas_id: u32,
        num_iovas: u32,
        reserved: u32,
        allowed_iovas: u64,
        out_iova_alignment: u64,
    }
    let mut found = [[0u64; 2]; 64];
    let mut ranges = Ranges {
        size: size_of::<Ranges>() as u32,
        ioas_id: space.ioas().id(),
        num_iovas: found.len() as u32,
        reserved: 0,
        allowed_iovas: found.as_mut_ptr() as u64,
        out_iova_alignment: 0,
    };
    // SAFETY: `ranges` has the kernel's layout; `found`, to which it points, has room for `num_iovas` pairs and
    // outlives the call.
    let result = unsafe { ioctl_with_mut_ref(&**space.iommufd(), IOMMU_IOAS_IOVA_RANGES, &mut ranges) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let count = (ranges.num_iovas as usize).min(found.len());
    Ok(found[..count].iter().map(|[first, last]| (*first, *last)).collect())
}

#[derive(Debug)]
struct VfioIrq {
    vfio: Arc<Vfio>,
    vectors: u32,
}

impl Irq for VfioIrq {
    fn vectors(&self) -> u32 {
        self.vectors
    }

    fn enable(&self, count: u32) -> io::Result<Vec<OwnedFd>> {
        let new = |_| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io::Error::from);
        let fds: Vec<OwnedFd> = (0..count).map(new).collect::<io::Result<_>>()?;
        let theirs: Vec<EventFd> = fds.iter().map(to_event_fd).collect::<io::Result<_>>()?;
        self.vfio.device().enable_msix(theirs.iter().collect()).map_err(io::Error::other)?;
        Ok(fds)
    }

    fn disable(&self) -> io::Result<()> {
        self.vfio.device().disable_msix().map_err(io::Error::other)
    }

    fn notices(&self) -> io::Result<Notices> {
        let wanted_back = self.notice(VFIO_PCI_REQ_IRQ_INDEX)?;
        Ok(Notices { wanted_back, bus_error: self.notice(VFIO_PCI_ERR_IRQ_INDEX)? })
    }
}

impl VfioIrq {
    /// An eventfd for the interrupt `index` of the kernel's own; `None` if the kernel does not have it.
    fn notice(&self, index: u32) -> io::Result<Option<OwnedFd>> {
        let device = self.vfio.device();
        if device.get_irq_info(index).is_none_or(|info| info.count == 0) {
            return Ok(None);
        }
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        device.enable_irq(index, vec![&to_event_fd(&fd)?]).map_err(io::Error::other)?;
        Ok(Some(fd))
    }
}

/// Duplicates an eventfd as the crate's type.
fn to_event_fd(fd: &OwnedFd) -> io::Result<EventFd> {
    let raw: RawFd = fd.try_clone()?.into_raw_fd();
    // SAFETY: `raw` is a duplicate made for this, an eventfd that nobody else owns.
    Ok(unsafe { EventFd::from_raw_fd(raw) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_function_says_where_to_look() {
        let address = PciAddress { domain: 0xffff, bus: 0xff, device: 0x1f, function: 7 };
        let error = open(address).expect_err("there is none").to_string();
        assert!(error.contains("vfio:ffff:ff:1f.7: there is no such PCI function"), "{error}");
        assert!(error.contains("mlx5 list"), "{error}");
    }

    #[test]
    fn every_refusal_of_the_kernel_has_a_sentence() {
        let card = Card {
            address: PciAddress { domain: 0, bus: 0x3b, device: 0, function: 0 },
            device_id: 0x1017,
            model: "ConnectX-5".into(),
            driver: Some("vfio-pci".into()),
            iommu_group: Some(7),
            group_blockers: vec![],
            vfio_group: Some("/dev/vfio/7".into()),
            vfio_device: None,
            numa_node: None,
            rdma_devices: vec![],
            interfaces: vec![],
        };
        let os = |number| io::Error::from_raw_os_error(number);
        let cases = [
            (VfioError::OpenContainer(os(libc::ENOENT)), "modprobe vfio-pci"),
            (VfioError::OpenContainer(os(libc::EACCES)), "chmod 666 /dev/vfio/vfio"),
            (VfioError::OpenGroup(os(libc::EBUSY), "7".into()), "fuser /dev/vfio/7"),
            (VfioError::OpenGroup(os(libc::EACCES), "7".into()), "chown $USER /dev/vfio/7"),
            (VfioError::GroupViable, "iommu_groups/7/devices"),
            (VfioError::ContainerSetIOMMU(vmm_sys_util::errno::Error::new(libc::EPERM)), "allow_unsafe_interrupts"),
            (VfioError::VfioExtension, "intel_iommu=on"),
        ];
        for (error, fix) in cases {
            let text = explain("vfio:0000:3b:00.0", &card, error).to_string();
            assert!(text.contains("to fix it: ") && text.contains(fix), "{text}");
        }
    }

    #[test]
    fn address_ranges_are_read_from_the_chain_of_capabilities() {
        let mut bytes = vec![0; 24 + 8 + 48];
        let put32 =
            |bytes: &mut Vec<u8>, at: usize, value: u32| bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        put32(&mut bytes, 4, VFIO_IOMMU_INFO_CAPS);
        put32(&mut bytes, 16, 24);
        // The requested capability comes second in the chain.
        put32(&mut bytes, 24, 99);
        put32(&mut bytes, 28, 32);
        put32(&mut bytes, 32, VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE);
        put32(&mut bytes, 40, 2);
        for (i, value) in [0u64, 0xfedf_ffff, 0xfef0_0000, 0x7f_ffff_ffff].into_iter().enumerate() {
            bytes[48 + i * 8..56 + i * 8].copy_from_slice(&value.to_ne_bytes());
        }
        assert_eq!(parse_ranges(&bytes), [(0, 0xfedf_ffff), (0xfef0_0000, 0x7f_ffff_ffff)]);
        for len in 0..bytes.len() {
            let _ = parse_ranges(&bytes[..len]);
        }
        put32(&mut bytes, 28, 24);
        assert_eq!(parse_ranges(&bytes), []);
    }
}
