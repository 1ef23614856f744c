//! Opens a card by its device string, on hardware or on the software card.
//!
//! ```
//! # fn main() -> Result<(), mlx5_dv::Error> {
//! let device = mlx5_open::open("sim")?;
//! assert!(device.port()?.up);
//! # Ok(())
//! # }
//! ```
//!
//! Driver and software card do not depend on each other. [`function`] connects them in one process: it makes a driver's
//! [`Function`] from the software card's [`FunctionHandle`].
//!
//! [`virtual_time`] has software cards without threads, on one thread with their drivers, whose runs are the same every
//! time.
//!
//! For the two ends of a connection: [`rendezvous`] exchanges addresses over TCP, and [`watchdog`] notices that the
//! other end is gone. [`program`] is the common frame of programs: logging, errors, exit status. [`board`] tells the
//! software card from others, whose figures are its own.
#![deny(unsafe_code)]

pub mod board;
#[expect(unsafe_code, reason = "the seams of the driver are unsafe traits")]
mod glue;
mod places;
pub mod program;
pub mod rendezvous;
pub mod virtual_time;
pub mod watchdog;

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use mlx5_dv::access::{Function, owned};
use mlx5_dv::discovery::{DeviceName, DeviceNameError};
use mlx5_dv::{Device, Error, Options};
use mlx5_sim::card::{self, Card, Claim, FunctionHandle};
use mlx5_sim::profile::Profile;
use mlx5_sim::strict::Violation;

pub use glue::function;

/// How long an opening of a software card's function waits for the end of an earlier one.
const PATIENCE: Duration = Duration::from_secs(5);

/// Names of the software card's profiles, for error messages.
const PROFILES: &str = "connectx5, connectx6dx, connectx7";

/// Opens the device `name` with default options.
///
/// # Errors
/// The name is invalid, or the device cannot be opened; the error says how to fix it.
pub fn open(name: &str) -> Result<Arc<Device>, Error> {
    open_with(name, Options::default())
}

/// Opens the device `name`.
///
/// # Errors
/// As [`open`].
pub fn open_with(name: &str, options: Options) -> Result<Arc<Device>, Error> {
    let function = match device_name(name)? {
        DeviceName::Vfio(address) => owned::vfio::open(address)?,
        DeviceName::VfioUser(socket) => owned::vfio_user::open(&socket)?,
        DeviceName::Devx(device) => return Device::open_devx(&device, options),
        DeviceName::Sim(profile) => return Sim::builder().profile(profile_of(name, profile.as_deref())?).open(options),
    };
    Device::open(function, options)
}

/// Opens the device `name` with this IP address for its port. A function that the kernel owns has it already.
///
/// # Errors
/// As [`open`]; or the kernel owns the function and its network interface has no such address.
pub fn open_at(name: &str, address: Option<IpAddr>) -> Result<Arc<Device>, Error> {
    let mut options = Options::default();
    options.ip = address;
    open_with(name, options)
}

/// Parses a device string.
///
/// # Errors
/// It is none; the error says what it may have been meant to be.
pub fn device_name(name: &str) -> Result<DeviceName, DeviceNameError> {
    if name.starts_with("connectx") {
        let reason =
            format!("it looks like a software card's profile, of which there are {PROFILES}: write sim:PROFILE");
        return Err(DeviceNameError { given: name.into(), reason });
    }
    name.parse()
}

fn profile_of(given: &str, profile: Option<&str>) -> Result<Profile, Error> {
    let Some(profile) = profile else { return Ok(Profile::default()) };
    Profile::by_name(profile).ok_or_else(|| {
        let reason = format!("unknown software card {profile:?}; known are {PROFILES}");
        Error::DeviceName(DeviceNameError { given: given.into(), reason })
    })
}

/// A software card in this process, for tests, examples and tools. The driver opens each of its functions separately.
pub struct Sim {
    card: Arc<Card>,
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sim({} functions)", self.card.functions())
    }
}

/// Configures a software card. See [`Sim::builder`].
#[derive(Debug)]
pub struct Builder(card::Builder);

impl Builder {
    /// The profile; a ConnectX-5 by default.
    pub fn profile(self, profile: Profile) -> Self {
        Builder(self.0.profile(profile))
    }

    /// The number of functions, joined by a wire; 1 by default.
    pub fn functions(self, count: usize) -> Self {
        Builder(self.0.functions(count.max(1)))
    }

    /// Whether it records violations that hardware would ignore silently; on by default.
    pub fn strict(self, on: bool) -> Self {
        Builder(self.0.strict(on))
    }

    /// Whether every doorbell is a message to the card instead of a store to shared memory; off by default.
    pub fn trapped_doorbells(self, on: bool) -> Self {
        Builder(self.0.trapped_doorbells(on))
    }

    /// Powers the card on.
    ///
    /// # Errors
    /// The process is out of memory, descriptors or threads.
    pub fn build(self) -> Result<Sim, Error> {
        let powered = self.0.build();
        let card = powered.map_err(|error| Error::io("starting the software card", std::io::Error::other(error)))?;
        Ok(Sim { card: Arc::new(card) })
    }

    fn open(self, options: Options) -> Result<Arc<Device>, Error> {
        self.build()?.open_with(0, options)
    }
}

/// The device string of function `index`.
fn name_of(index: usize) -> String {
    if index == 0 { "sim".into() } else { format!("sim function {index}") }
}

impl Sim {
    /// Starts to configure a card; by default one function of a ConnectX-5, in strict mode.
    pub fn builder() -> Builder {
        Builder(Card::builder().strict(true))
    }

    /// The card's side of function `index`: fault injection, recorded violations, object counts.
    ///
    /// # Panics
    /// There is no such function.
    pub fn handle(&self, index: usize) -> FunctionHandle {
        self.card.function(index)
    }

    /// Opens function `index` with default options. The card stays powered as long as the device is open.
    ///
    /// # Errors
    /// As [`Device::open`]; after a few seconds, if an earlier opening of the function is still in use.
    ///
    /// # Panics
    /// There is no such function.
    pub fn open(&self, index: usize) -> Result<Arc<Device>, Error> {
        self.open_with(index, Options::default())
    }

    /// As [`open`](Self::open), with options. Command replies are signed and checked.
    ///
    /// # Errors
    /// As [`Device::open`].
    ///
    /// # Panics
    /// There is no such function.
    pub fn open_with(&self, index: usize, options: Options) -> Result<Arc<Device>, Error> {
        self.open_within(index, options, PATIENCE)
    }

    /// As [`open_with`](Self::open_with); waits for `patience` for the end of an earlier opening.
    fn open_within(&self, index: usize, mut options: Options, patience: Duration) -> Result<Arc<Device>, Error> {
        options.sign_replies = true;
        let handle = self.card.function(index);
        let claim = glue::claim(&name_of(index), &handle, patience)?;
        Device::open(self.powered(index, handle, claim.into()), options)
    }

    fn powered(&self, index: usize, handle: FunctionHandle, claim: OnceLock<Claim>) -> Function {
        glue::powered(name_of(index), handle, Some(self.card.clone()), None, claim)
    }

    /// Function `index` for [`Device::open`], which fails at once if an earlier opening of it is still in use.
    ///
    /// # Panics
    /// There is no such function.
    pub fn function(&self, index: usize) -> Function {
        self.powered(index, self.card.function(index), OnceLock::new())
    }

    /// Violations by the driver on any function since the last call, which hardware would ignore silently.
    pub fn violations(&self) -> Vec<Violation> {
        (0..self.card.functions()).flat_map(|index| self.card.function(index).strict().take()).collect()
    }
}

#[cfg(test)]
mod tests {
    use mlx5_dv::objects::{AccessFlags, MemoryRegion, Pd};

    use super::*;

    #[test]
    fn a_function_in_use_is_named_to_who_opens_it_again() {
        let sim = Sim::builder().functions(2).build().unwrap();
        let pd = Pd::alloc(&sim.open(1).unwrap()).unwrap();
        let again = sim.open_within(1, Options::default(), Duration::from_millis(20));
        let error = again.expect_err("the first opening's object lives").to_string();
        assert!(error.contains("sim function 1 is taken by an earlier opening"), "{error}");
        assert!(error.contains("still lives after 20ms"), "{error}");
        let error = Device::open(sim.function(1), Options::default()).expect_err("this does not wait");
        let cause = std::error::Error::source(&error).expect("a cause").to_string();
        assert!(cause.contains("sim function 1 is taken"), "{error}: {cause}");
        // The first goes on, undisturbed.
        let region = MemoryRegion::allocate(&pd, 4096, AccessFlags::LOCAL_WRITE).unwrap();
        region.write(0, b"still there");
        sim.open(0).expect("another function");
        drop((region, pd));
        sim.open(1).expect("nobody has it");
        assert_eq!(sim.violations(), []);
    }
}
