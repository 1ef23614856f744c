//! One device string to one opened card: where the driver and the software card meet.
//!
//! ```
//! # fn main() -> Result<(), mlx5_dv::Error> {
//! let device = mlx5_open::open("sim")?;
//! assert!(device.port()?.up);
//! # Ok(())
//! # }
//! ```
//!
//! The driver does not know the model and the model does not know the driver; the glue between both, in process, is here:
//! [`function`] makes a driver's [`Function`] of a model's [`FunctionHandle`].
//!
//! And what two programs need that are the ends of one connection: [`meet`], to find each other, and [`watch`], to notice
//! that the other is gone. What all programs on cards are alike in is in [`program`].
#![forbid(unsafe_code)]

mod glue;
pub mod meet;
pub mod program;
pub mod watch;

use std::fmt;
use std::sync::Arc;

use mlx5_dv::access::{Function, owned};
use mlx5_dv::discovery::{DeviceName, DeviceNameError};
use mlx5_dv::{Device, Error, Options};
use mlx5_sim::card::{self, Card, FunctionHandle};
use mlx5_sim::profile::Profile;
use mlx5_sim::strict::Violation;

pub use glue::function;

/// Names of the software cards there are, for messages.
const PROFILES: &str = "connectx5, connectx6dx, connectx7";

/// Opens the device that `name` names, with default options.
///
/// # Errors
/// The name is none, or the device cannot be opened; each error says what would help.
pub fn open(name: &str) -> Result<Arc<Device>, Error> {
    open_with(name, Options::default())
}

/// Opens the device that `name` names.
///
/// # Errors
/// As [`open`].
pub fn open_with(name: &str, options: Options) -> Result<Arc<Device>, Error> {
    let function = match name.parse::<DeviceName>()? {
        DeviceName::Vfio(address) => owned::vfio::open(address)?,
        DeviceName::VfioUser(socket) => owned::vfio_user::open(&socket)?,
        DeviceName::Devx(device) => return Device::open_devx(&device, options),
        DeviceName::Sim(profile) => return Sim::builder().profile(profile_of(name, profile.as_deref())?).open(options),
    };
    Device::open(function, options)
}

fn profile_of(given: &str, profile: Option<&str>) -> Result<Profile, Error> {
    let Some(profile) = profile else { return Ok(Profile::default()) };
    Profile::by_name(profile).ok_or_else(|| {
        let reason = format!("there is no software card {profile:?}, only {PROFILES}");
        Error::DeviceName(DeviceNameError { given: given.into(), reason })
    })
}

/// Software cards in this process, for tests, examples and tools: one card of some functions, each opened by the driver
/// on its own.
pub struct Sim {
    card: Arc<Card>,
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sim({} functions)", self.card.functions())
    }
}

/// What a software card is to be. Ask [`Sim::builder`].
#[derive(Debug)]
pub struct Builder(card::Builder);

impl Builder {
    /// Which card; a ConnectX-5 if not said.
    pub fn profile(self, profile: Profile) -> Self {
        Builder(self.0.profile(profile))
    }

    /// How many functions, joined by a wire; 1 if not said.
    pub fn functions(self, count: usize) -> Self {
        Builder(self.0.functions(count.max(1)))
    }

    /// Whether it records what silicon would swallow in silence; yes if not said.
    pub fn strict(self, on: bool) -> Self {
        Builder(self.0.strict(on))
    }

    /// Whether every doorbell is a message to the model; no if not said.
    pub fn trapped_doorbells(self, on: bool) -> Self {
        Builder(self.0.trapped_doorbells(on))
    }

    /// Powers the card on.
    ///
    /// # Errors
    /// The process is out of memory, descriptors or threads.
    pub fn build(self) -> Result<Sim, Error> {
        let powered = self.0.build();
        let card = powered.map_err(|error| Error::io("powering the software card on", std::io::Error::other(error)))?;
        Ok(Sim { card: Arc::new(card) })
    }

    fn open(self, options: Options) -> Result<Arc<Device>, Error> {
        self.build()?.open_with(0, options)
    }
}

impl Sim {
    /// A card to be built: one function of a ConnectX-5, in strict mode.
    pub fn builder() -> Builder {
        Builder(Card::builder().strict(true))
    }

    /// The model's side of function `index`: its faults, its record of violations, what it holds.
    ///
    /// # Panics
    /// There is no such function.
    pub fn handle(&self, index: usize) -> FunctionHandle {
        self.card.function(index)
    }

    /// Opens function `index`, with default options. The card stays under power as long as the device is open.
    ///
    /// # Errors
    /// As [`Device::open`].
    ///
    /// # Panics
    /// There is no such function.
    pub fn open(&self, index: usize) -> Result<Arc<Device>, Error> {
        self.open_with(index, Options::default())
    }

    /// As [`open`](Self::open), with options of the caller's. Replies are signed and checked: the model can.
    ///
    /// # Errors
    /// As [`Device::open`].
    ///
    /// # Panics
    /// There is no such function.
    pub fn open_with(&self, index: usize, mut options: Options) -> Result<Arc<Device>, Error> {
        options.sign_replies = true;
        Device::open(self.function(index), options)
    }

    /// Function `index` as the driver takes it.
    ///
    /// # Panics
    /// There is no such function.
    pub fn function(&self, index: usize) -> Function {
        let name = if index == 0 { "sim".into() } else { format!("sim function {index}") };
        glue::powered(name, self.card.function(index), Some(Arc::clone(&self.card)))
    }

    /// What the driver did, on any function, that a card would have swallowed in silence; since the last call.
    pub fn violations(&self) -> Vec<Violation> {
        (0..self.card.functions()).flat_map(|index| self.card.function(index).strict().take()).collect()
    }
}
