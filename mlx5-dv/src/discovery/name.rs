//! Device strings: how users name a device.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::PciAddress;

/// A parsed device string.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum DeviceName {
    /// `vfio:0000:3b:00.0`: a function that this process owns.
    Vfio(PciAddress),
    /// `devx:mlx5_0`: a function that the kernel owns.
    Devx(String),
    /// `vfio-user:/run/nic.sock`: a device served at a socket.
    VfioUser(PathBuf),
    /// `sim` or `sim:connectx7`: a software card in this process.
    Sim(Option<String>),
}

/// Why a string is not a device string. The message shows valid ones.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is not a device string: {reason}; {EXPECTED}")]
pub struct DeviceNameError {
    /// The string.
    pub given: String,
    /// What is wrong with it.
    pub reason: String,
}

const EXPECTED: &str = "a device is named like vfio:0000:3b:00.0, devx:mlx5_0, vfio-user:/run/nic.sock or sim";

impl FromStr for DeviceName {
    type Err = DeviceNameError;

    fn from_str(given: &str) -> Result<Self, DeviceNameError> {
        let wrong = |reason: String| DeviceNameError { given: given.into(), reason };
        let (kind, rest) = given.split_once(':').unwrap_or((given, ""));
        match (kind, rest) {
            ("sim", "") if given.contains(':') => Err(wrong("there is no profile after sim:".into())),
            ("sim", "") => Ok(DeviceName::Sim(None)),
            ("sim", profile) => Ok(DeviceName::Sim(Some(profile.into()))),
            ("vfio", "") => Err(wrong("there is no PCI address after vfio:".into())),
            ("vfio", address) => address.parse().map(DeviceName::Vfio).map_err(wrong),
            ("devx", "") => Err(wrong("there is no device name after devx:".into())),
            ("devx", name) if name.contains('/') => Err(wrong(format!("{name:?} is not an RDMA device name"))),
            ("devx", name) => Ok(DeviceName::Devx(name.into())),
            ("vfio-user", "") => Err(wrong("there is no socket path after vfio-user:".into())),
            ("vfio-user", path) => Ok(DeviceName::VfioUser(path.into())),
            _ => Err(wrong(guess(given))),
        }
    }
}

/// What someone who wrote `given` probably meant.
fn guess(given: &str) -> String {
    if given.is_empty() {
        "it is empty".into()
    } else if given.parse::<PciAddress>().is_ok() {
        format!("it is a PCI address, so write vfio:{given}")
    } else if is_rdma_device(given) {
        format!("it is an RDMA device of the kernel's, so write devx:{given}")
    } else if given.contains('/') {
        format!("it is a path, so write vfio-user:{given}")
    } else {
        "its kind is none of vfio, devx, vfio-user and sim".into()
    }
}

/// Whether `name` is an RDMA device here, or is named as kernels and udev (rdma-core's `rdma_rename`) name them:
/// `mlx5_0`, `mlx5_bond_0`, `rocep59s0f0`, `ibp59s0`, `rocex506b4b0300cb1a42`.
fn is_rdma_device(name: &str) -> bool {
    let by_place = ["roce", "ib"].iter().filter_map(|kind| name.strip_prefix(kind)).any(|place| {
        let rest = place.trim_start_matches(['p', 's', 'o', 'x', 'P']);
        rest.len() < place.len() && rest.starts_with(|c: char| c.is_ascii_hexdigit())
    });
    let is_here = || !name.contains('/') && Path::new("/sys/class/infiniband").join(name).exists();
    name.starts_with("mlx5_") || by_place || is_here()
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceName::Vfio(address) => write!(f, "vfio:{address}"),
            DeviceName::Devx(name) => write!(f, "devx:{name}"),
            DeviceName::VfioUser(path) => write!(f, "vfio-user:{}", path.display()),
            DeviceName::Sim(None) => f.write_str("sim"),
            DeviceName::Sim(Some(profile)) => write!(f, "sim:{profile}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_names_read_and_print_the_same() {
        for text in ["vfio:0000:3b:00.0", "devx:mlx5_0", "vfio-user:/run/a:b.sock", "sim", "sim:connectx7"] {
            assert_eq!(text.parse::<DeviceName>().map(|name| name.to_string()), Ok(text.to_owned()));
        }
        assert_eq!("vfio:3b:00.1".parse::<DeviceName>().map(|n| n.to_string()), Ok("vfio:0000:3b:00.1".into()));
    }

    #[test]
    fn wrong_names_say_what_would_be_right() {
        let cases = [
            ("", "it is empty"),
            ("0000:3b:00.0", "write vfio:0000:3b:00.0"),
            ("mlx5_0", "write devx:mlx5_0"),
            ("rocep59s0f0", "write devx:rocep59s0f0"),
            ("roceP1p3s0", "write devx:roceP1p3s0"),
            ("ibs4", "write devx:ibs4"),
            ("rocex506b4b0300cb1a42", "write devx:rocex506b4b0300cb1a42"),
            ("ibverbs", "its kind is none of"),
            ("..", "its kind is none of"),
            ("/run/nic.sock", "write vfio-user:/run/nic.sock"),
            ("eth0", "its kind is none of"),
            ("vfio:", "no PCI address"),
            ("vfio:3b", "3b"),
            ("vfio:0000:3b:20.0", "0000:3b:20.0"),
            ("devx:", "no device name"),
            ("devx:/dev/x", "not an RDMA device name"),
            ("vfio-user:", "no socket path"),
            ("sim:", "no profile"),
        ];
        for (given, expected) in cases {
            let error = given.parse::<DeviceName>().expect_err(given).to_string();
            assert!(error.contains(expected), "{given}: {error}");
            assert!(error.contains("a device is named like"), "{error}");
        }
    }
}
