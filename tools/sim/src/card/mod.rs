//! A card: its functions, the thread that runs them, and handles for clients.
//!
//! ```
//! use mlx5_sim::card::Card;
//! use mlx5_sim::profile::Profile;
//!
//! # fn main() -> Result<(), mlx5_sim::card::BuildError> {
//! let card = Card::builder().profile(Profile::connectx5()).strict(true).build()?;
//! let function = card.function(0);
//! let mut id = [0; 4];
//! function.config_read(0, &mut id);
//! assert_eq!(id, [0xb3, 0x15, 0x17, 0x10]);
//! # Ok(())
//! # }
//! ```

mod claim;
mod device;
mod face;
mod filter;
mod handle;
mod idle;
mod machine;
mod stepped;
mod switch;

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use thiserror::Error;

use crate::bar::MemoryError;
use crate::fault::Faults;
use crate::function::{Function, Observer};
use crate::profile::Profile;
use crate::strict::Strict;
use crate::wire::{Capture, PcapWriter};
use device::{Device, Message};
use face::Face;
use handle::Link;
use machine::Machine;

pub use claim::Claim;
pub use handle::{Counts, FunctionHandle, FunctionTraffic, QueueTraffic};
pub use stepped::SteppedCard;
pub use switch::Wire;

/// Why a card cannot be built.
#[derive(Debug, Error)]
pub enum BuildError {
    /// No function.
    #[error("a card needs at least one function")]
    NoFunction,
    /// No memory for the UAR pages.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// No thread.
    #[error("cannot start the device thread: {0}")]
    Thread(#[source] std::io::Error),
}

/// Options of a card. Made by [`Card::builder`].
#[derive(Debug)]
pub struct Builder {
    profile: Profile,
    functions: usize,
    wire: Wire,
    capture: Option<PcapWriter>,
    strict: bool,
    trapped_uars: u32,
    write_combining: bool,
    observer: Option<MakeObserver>,
    seed: Option<u64>,
    /// How old the card's world is at power-on, if it has one: stamps of a capture count on from there.
    age: Duration,
}

impl Builder {
    /// The card's profile; default ConnectX-5.
    pub fn profile(mut self, profile: Profile) -> Self {
        self.profile = profile;
        self
    }

    /// Number of functions, all alike and joined by a wire; default 1.
    pub fn functions(mut self, count: usize) -> Self {
        self.functions = count;
        self
    }

    /// The wire that joins its functions, and may lead to other processes; default one without uplink.
    pub fn wire(mut self, wire: Wire) -> Self {
        self.wire = wire;
        self
    }

    /// Records every frame of every port.
    pub fn capture(mut self, capture: PcapWriter) -> Self {
        self.capture = Some(capture);
        self
    }

    /// Strict mode: records errors that a real card would ignore silently; default off.
    pub fn strict(mut self, on: bool) -> Self {
        self.strict = on;
        self
    }

    /// Whether every doorbell is a message, and nothing of BAR 0 can be mapped; default no. Slower, but no doorbell
    /// overwrites another, and their order is exact.
    pub fn trapped_doorbells(mut self, on: bool) -> Self {
        self.trapped_uars = if on { u32::MAX } else { Self::TRAPPED_UARS };
        self
    }

    /// Number of UARs, of those allocated first, whose doorbells are messages; default 1. EQs belong there.
    pub fn trapped_uars(mut self, count: u32) -> Self {
        self.trapped_uars = count;
        self
    }

    /// Whether the card plays the write-combining buffers that an emulated processor lacks; default no. Then every
    /// doorbell is a message, as with [`trapped_doorbells`](Self::trapped_doorbells); the stores of a BlueFlame copy
    /// are joined, and a copy that is whole is executed. Linux finds that write combining works, so that libmlx5 copies
    /// too. A doorbell alone waits up to 200 us for the rest of a copy.
    pub fn write_combining(mut self, on: bool) -> Self {
        self.write_combining = on;
        self
    }

    const TRAPPED_UARS: u32 = 1;

    /// The observer of each function, made by its index; default none.
    pub fn observer(mut self, make: impl FnMut(usize) -> Box<dyn Observer> + Send + 'static) -> Self {
        self.observer = Some(MakeObserver(Box::new(make)));
        self
    }

    /// Seed of the random numbers of fault injection and of flow samplers; each function derives its own. The default
    /// is constant.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Age of the world that the card joins.
    pub(crate) fn age(mut self, age: Duration) -> Self {
        self.age = age;
        self
    }

    /// Offset of the functions' MAC addresses from those of the profile.
    pub(crate) fn count_macs_on(mut self, more: u64) -> Self {
        let base = self.profile.base_mac.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
        let [_, _, mac @ ..] = base.wrapping_add(more).to_be_bytes();
        self.profile.base_mac = mac;
        self
    }

    /// Powers the card on, with a thread that runs it with the wall clock.
    ///
    /// # Errors
    /// The process is out of memory, file descriptors or threads, or the card has no function.
    pub fn build(self) -> Result<Card, BuildError> {
        let time_of_day = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (faces, machine) = self.assemble(Instant::now(), time_of_day)?;
        Card::start(faces, machine)
    }

    /// A card that is powered on `now`, by its clock; `time` is then, by the stamps of a capture.
    fn assemble(self, now: Instant, time: Duration) -> Result<(Vec<Arc<Face>>, Machine), BuildError> {
        let Builder { profile, functions: count, wire, capture, strict, mut observer, seed, .. } = self;
        let trapped_uars = if self.write_combining { u32::MAX } else { self.trapped_uars };
        if count == 0 {
            return Err(BuildError::NoFunction);
        }
        let capture = capture.map(|writer| Capture::new(writer, now, time));
        let mut functions = Vec::with_capacity(count);
        for index in 0..count {
            let strict = if strict { Strict::on() } else { Strict::off() };
            let faults = Faults::new();
            if let Some(seed) = seed {
                faults.seed(seed.wrapping_add(index as u64));
            }
            let mut function = Function::at(index, profile.clone(), strict, faults, now);
            function.share_bar(trapped_uars)?;
            if self.write_combining {
                function.bar.combine_writes();
            }
            if let Some(seed) = seed {
                function.nic.objects.steering.seed(seed.wrapping_add(index as u64));
            }
            function.nic.port.attach_capture(capture.clone());
            function.nic.observer = observer.as_mut().map(|make| (make.0)(index));
            // DMA is disabled until software enables bus mastering.
            function.nic.dma.enable(false);
            functions.push(function);
        }
        Ok((functions.iter().map(Face::of).collect(), Machine::new(functions, wire)))
    }
}

/// Makes an observer for each function.
struct MakeObserver(Box<dyn FnMut(usize) -> Box<dyn Observer> + Send>);

impl fmt::Debug for MakeObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MakeObserver")
    }
}

/// Maximum number of pending requests to the device thread. Further posted writes wait, as on PCI: each may hold up to
/// a megabyte.
const INBOX: usize = 64;

/// A powered card. Dropping it powers it off: the device thread ends, and its functions read all ones.
#[derive(Debug)]
pub struct Card {
    faces: Vec<Arc<Face>>,
    messages: SyncSender<Message>,
    thread: Thread,
    join: Option<JoinHandle<()>>,
}

impl Card {
    /// A builder for one function of a ConnectX-5.
    pub fn builder() -> Builder {
        Builder {
            profile: Profile::default(),
            functions: 1,
            wire: Wire::new(),
            capture: None,
            strict: false,
            trapped_uars: Builder::TRAPPED_UARS,
            write_combining: false,
            observer: None,
            seed: None,
            age: Duration::ZERO,
        }
    }

    fn start(faces: Vec<Arc<Face>>, machine: Machine) -> Result<Card, BuildError> {
        let (messages, inbox) = sync_channel(INBOX);
        let device = Device::new(machine, inbox);
        let join = std::thread::Builder::new()
            .name("mlx5-sim".into())
            .spawn(move || device.run())
            .map_err(BuildError::Thread)?;
        Ok(Card { faces, messages, thread: join.thread().clone(), join: Some(join) })
    }

    /// Number of functions.
    pub fn functions(&self) -> usize {
        self.faces.len()
    }

    /// Whether the device thread has ended: by a panic, as long as the card is powered. Its functions then read all
    /// ones.
    pub fn has_ended(&self) -> bool {
        self.join.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// A handle to function `index`.
    ///
    /// # Panics
    /// There is no such function.
    pub fn function(&self, index: usize) -> FunctionHandle {
        let link = Link::Thread { messages: self.messages.clone(), thread: self.thread.clone() };
        FunctionHandle::new(self.faces[index].clone(), link)
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        let _ = self.messages.send(Message::PowerOff);
        self.thread.unpark();
        if self.join.take().is_some_and(|join| join.join().is_err()) {
            tracing::error!("the device thread panicked");
        }
    }
}

#[cfg(test)]
mod tests;
