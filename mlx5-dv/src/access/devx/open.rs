//! Opens a context by device name, or imports that of another process: finds the file, checks kernel and card, and
//! suggests a fix where that fails.

use std::fs::OpenOptions;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};

use zerocopy::IntoBytes;

use super::call::Call;
use super::events::open_kernel_channel;
use crate::discovery::{RdmaDevice, Sysfs};
use crate::error::Error;
use crate::kernel::abi::*;
use crate::net::gid_of;

/// A user context on a device. Closing the file destroys everything created in it.
#[derive(Debug)]
pub struct Context {
    /// The uverbs file.
    pub file: OwnedFd,
    /// Number of completion vectors.
    pub vectors: u32,
    /// Key of the null memory region.
    pub null_key: Option<u32>,
    /// Offset of the card's clock on its page, if the kernel shows it.
    pub clock_offset: Option<u64>,
    /// The channel of asynchronous events of the kernel's own objects; `None` if another process has it.
    pub events: Option<OwnedFd>,
}

impl Context {
    fn of(file: OwnedFd, vectors: u32, answer: &AllocContextOut) -> Self {
        let has = |mask| answer.comp_mask & mask != 0;
        Context {
            file,
            vectors,
            null_key: has(MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_DUMP_FILL_MKEY).then_some(answer.dump_fill_mkey),
            clock_offset: has(MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_CORE_CLOCK_OFFSET)
                .then_some(answer.hca_core_clock_offset),
            events: None,
        }
    }
}

/// The error that `device` cannot be opened: the reason, and the command that fixes it.
pub fn refused(device: &str, reason: impl Into<String>, fix: Option<&str>, source: Option<io::Error>) -> Error {
    Error::Refused { device: format!("devx:{device}"), reason: reason.into(), fix: fix.map(str::to_owned), source }
}

/// Finds the RDMA device `name` in sysfs. Fails if it is missing or is not an mlx5 device.
pub fn find(sysfs: &Sysfs, name: &str) -> Result<RdmaDevice, Error> {
    let Some(device) = sysfs.rdma_device(name) else {
        let others = sysfs.rdma_names();
        return Err(match others.is_empty() {
            true => refused(name, "the kernel has no RDMA device", Some("modprobe mlx5_ib"), None),
            false => refused(name, format!("there is no such device, only {}", others.join(", ")), None, None),
        });
    };
    match sysfs.devx_obstacle(&device) {
        Some(obstacle) => Err(refused(name, obstacle.reason, Some(&obstacle.fix), None)),
        None => Ok(device),
    }
}

/// Checks that the kernel has given `address` to the device's network interface: it alone can.
pub fn check_address(device: &RdmaDevice, address: Option<IpAddr>) -> Result<(), Error> {
    let Some(address) = address else { return Ok(()) };
    let mut gids = device.ports.iter().flat_map(|port| &port.gids);
    if gids.any(|gid| gid.address.octets() == gid_of(address)) {
        return Ok(());
    }
    let interface = device.ports.iter().find_map(|port| port.interface.as_deref());
    let interface = interface.unwrap_or("INTERFACE");
    let reason = format!("its addresses are the kernel's, and {address} is none of them");
    Err(refused(&device.name, reason, Some(&format!("ip addr add {address}/PREFIX dev {interface}")), None))
}

/// Opens the file of `device` and creates a DevX context in it.
pub fn open(device: &RdmaDevice) -> Result<Context, Error> {
    let name = &device.name;
    let Some(path) = &device.file else {
        return Err(refused(name, "it has no file in /dev/infiniband", Some("modprobe ib_uverbs"), None));
    };
    let file = OpenOptions::new().read(true).write(true).open(path);
    let file =
        file.map_err(|error| refused(name, format!("{} cannot be opened", path.display()), None, Some(error)))?;
    let file = OwnedFd::from(file);
    let (vectors, answer) = get_context(&file).map_err(|error| no_context(name, error))?;
    // The first channel of a context gets the events.
    let events = open_kernel_channel(file.as_fd());
    let events = events.inspect_err(|error| tracing::debug!(%error, "no events of the kernel's own objects")).ok();
    Ok(Context { events, ..Context::of(file, vectors, &answer) })
}

/// Takes part in the context of `file`, which another process has created; finds its device.
pub fn import(sysfs: &Sysfs, file: OwnedFd) -> Result<(RdmaDevice, Context), Error> {
    let unknown = |source| refused("imported", "the descriptor is no RDMA device's file", None, source);
    let stat = rustix::fs::fstat(&file).map_err(|error| unknown(Some(error.into())))?;
    let is_device = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_char_device();
    let number = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
    let name = if is_device { sysfs.rdma_device_of_file(number) } else { None };
    let name = name.ok_or_else(|| unknown(None))?;
    let device = sysfs.rdma_device(&name).ok_or_else(|| unknown(None))?;
    if let Some(obstacle) = sysfs.interface_obstacle(&device) {
        return Err(refused(&name, obstacle.reason, Some(&obstacle.fix), None));
    }
    let (vectors, answer) = query_context(&file).map_err(|error| not_imported(&name, error))?;
    Ok((device, Context::of(file, vectors, &answer)))
}

/// The error for a context that could not be imported.
fn not_imported(name: &str, error: io::Error) -> Error {
    let reason = match error.raw_os_error() {
        Some(libc::EINVAL) => "the descriptor has no context: its process opened the file and did not create one",
        Some(libc::EPROTONOSUPPORT | libc::ENOTTY | libc::ENOENT) => "the kernel is too old to import a context (5.9)",
        _ => "the kernel refused to import the context",
    };
    refused(name, reason, None, Some(error))
}

/// Queries the context that another process has created: as [`get_context`].
fn query_context(file: &OwnedFd) -> io::Result<(u32, AllocContextOut)> {
    let mut answer = AllocContextOut::default();
    let (mut vectors, mut core) = (0u32, 0u64);
    Call::new(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT)
        .output(UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS, vectors.as_mut_bytes())?
        .output(UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT, core.as_mut_bytes())?
        .output(MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX, answer.as_mut_bytes())?
        .run(file.as_fd())?;
    Ok((vectors, answer))
}

/// Creates the context; returns its number of completion vectors, and the driver's answer.
fn get_context(file: &OwnedFd) -> io::Result<(u32, AllocContextOut)> {
    let wanted = AllocContextIn {
        flags: MLX5_IB_ALLOC_UCTX_DEVX,
        max_cqe_version: 1,
        lib_caps: MLX5_LIB_CAP_4K_UAR | MLX5_LIB_CAP_DYN_UAR,
        ..AllocContextIn::default()
    };
    let mut answer = AllocContextOut::default();
    let (mut vectors, mut core) = (0u32, 0u64);
    Call::new(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT)
        .output(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, vectors.as_mut_bytes())?
        .output(UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, core.as_mut_bytes())?
        .input(UVERBS_ATTR_UHW_IN, wanted.as_bytes())?
        .output(UVERBS_ATTR_UHW_OUT, answer.as_mut_bytes())?
        .run(file.as_fd())?;
    Ok((vectors, answer))
}

/// The error for a kernel that refused to create a context.
fn no_context(name: &str, error: io::Error) -> Error {
    let (reason, fix) = match error.raw_os_error() {
        Some(libc::EINVAL | libc::EOPNOTSUPP) => (
            "the kernel refused a DevX context: the card's firmware has no user contexts (capability log_max_uctx), or the \
             kernel is older than 5.0",
            Some("mlxconfig -d DEVICE set UCTX_EN=1, then reset the card"),
        ),
        Some(libc::EPROTONOSUPPORT | libc::ENOTTY | libc::ENOENT) => {
            ("the kernel's RDMA interface is too old: it cannot create a context", Some("boot Linux 5.7 or newer"))
        }
        Some(libc::EPERM | libc::EACCES) => {
            ("a DevX context needs more privileges", Some("run it as root, or grant it the capability CAP_NET_RAW"))
        }
        Some(libc::EAGAIN) => ("the device is being recovered", Some("wait, and look at `dmesg`")),
        Some(libc::EIO | libc::ENODEV) => ("the kernel removed the device meanwhile", Some("look at `dmesg`")),
        _ => ("the kernel refused a context", None),
    };
    refused(name, reason, fix, Some(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(error: i32) -> String {
        no_context("mlx5_0", io::Error::from_raw_os_error(error)).to_string()
    }

    #[test]
    fn refusals_name_the_device_and_the_fix() {
        assert!(text(libc::EINVAL).contains("devx:mlx5_0") && text(libc::EINVAL).contains("UCTX_EN=1"));
        assert!(text(libc::EPERM).contains("CAP_NET_RAW"));
        assert!(text(libc::EPROTONOSUPPORT).contains("too old"));
    }

    #[test]
    fn what_is_not_there_is_told_apart() {
        let reason = |dir: &tempfile::TempDir, name: &str| find(&Sysfs::at(dir.path()), name).unwrap_err().to_string();
        let empty = tempfile::tempdir().unwrap();
        assert!(reason(&empty, "mlx5_0").contains("modprobe mlx5_ib"));
        std::fs::create_dir_all(empty.path().join("sys/class/infiniband/mlx5_0")).unwrap();
        assert!(reason(&empty, "mlx5_7").contains("only mlx5_0"));
        assert!(reason(&empty, "mlx5_0").contains("it is not an mlx5 device"));
    }

    #[test]
    fn only_an_address_of_its_interface_can_be_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let port = dir.path().join("sys/class/infiniband/mlx5_0/ports/1");
        for (file, text) in [
            ("gids/1", "0000:0000:0000:0000:0000:ffff:0a00:0001\n"),
            ("gid_attrs/types/1", "RoCE v2\n"),
            ("gid_attrs/ndevs/1", "eth0\n"),
        ] {
            let path = port.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let device = Sysfs::at(dir.path()).rdma_device("mlx5_0").expect("a device");
        check_address(&device, None).expect("none is asked for");
        check_address(&device, Some([10, 0, 0, 1].into())).expect("the kernel's");
        let error = check_address(&device, Some([10, 0, 0, 2].into())).unwrap_err().to_string();
        assert!(error.contains("10.0.0.2 is none of them") && error.contains("dev eth0"), "{error}");
    }
}
