//! The driver's `Bar`, `DmaSpace` and `Irq` over a function of the software card in the same process.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use memmap2::MmapOptions;
use mlx5_dv::Invalid;
use mlx5_dv::access::{Bar, BarMapping, DmaSpace, Function, HostRange, Irq, pci};
use mlx5_dv::memory::Iova;
use mlx5_sim::bar::UarMemory;
use mlx5_sim::card::{Claim, FunctionHandle};
use mlx5_sim::dma::{Access, Source};
use rustix::event::{EventfdFlags, eventfd};

use crate::places::Places;

/// IOVA range of the software card: above every user-space pointer, so that mixing them up fails.
const ADDRESSES: (u64, u64) = (1 << 52, (1 << 53) - 1);

/// A function of the software card for the driver; `name` is for messages. The card must stay powered meanwhile.
pub fn function(name: impl Into<String>, handle: FunctionHandle) -> Function {
    powered(name.into(), handle, None, None, OnceLock::new())
}

/// Claims a function for an opening that waits up to `patience` for an earlier one to end: another thread may be about
/// to drop its last object.
pub(crate) fn claim(name: &str, handle: &FunctionHandle, patience: Duration) -> Result<Claim, Invalid> {
    handle.claim(patience).ok_or_else(|| Invalid::Taken {
        what: name.into(),
        by: format!("an earlier opening, of which the device or an object still lives after {patience:?}"),
        mend: "drop that first",
    })
}

/// Like [`function`]. The driver keeps `power`, a card, as long as it has the function; its memory has addresses of
/// `places`. Without a `claim` it claims the function when it is used first.
pub(crate) fn powered(
    name: String,
    handle: FunctionHandle,
    power: Option<Arc<dyn Send + Sync>>,
    places: Option<Arc<Places>>,
    claim: OnceLock<Claim>,
) -> Function {
    let power = Power(power);
    let driver = OneDriver { name: name.clone(), claim };
    let bar = Box::new(ModelBar { handle: handle.clone(), driver, power: power.clone() });
    let dma = Box::new(ModelDma { handle: handle.clone(), power: power.clone(), places });
    // SAFETY: all three are of one function. Who holds another handle on it is its hardware, not another driver: it is
    // for tests that pull the card out or look into it.
    unsafe { Function::new(name, bar, dma, Box::new(ModelIrq { handle, _power: power })) }
}

/// Keeps the card powered.
#[derive(Clone)]
struct Power(Option<Arc<dyn Send + Sync>>);

impl fmt::Debug for Power {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Power({})", self.0.is_some())
    }
}

#[derive(Debug)]
struct ModelBar {
    handle: FunctionHandle,
    driver: OneDriver,
    power: Power,
}

/// Sees to it that one driver at a time has a function: two would answer each other's events, and wait for their own.
#[derive(Debug)]
struct OneDriver {
    name: String,
    claim: OnceLock<Claim>,
}

impl OneDriver {
    /// Claims the function before its first use by this driver.
    fn claim(&self, handle: &FunctionHandle) -> io::Result<()> {
        if self.claim.get().is_some() {
            return Ok(());
        }
        let claimed = claim(&self.name, handle, Duration::ZERO);
        let _ = self.claim.set(claimed.map_err(|error| io::Error::new(io::ErrorKind::ResourceBusy, error))?);
        Ok(())
    }
}

// SAFETY: the model's file is mapped where its part lies. `reset` and a cleared bus master end the model's DMA before
// they return.
unsafe impl Bar for ModelBar {
    fn size(&self) -> u64 {
        self.handle.bar_size()
    }

    fn read32(&self, offset: u64) -> io::Result<u32> {
        let mut bytes = [0xff; 4];
        self.handle.bar_read(offset, &mut bytes);
        Ok(u32::from_be_bytes(bytes))
    }

    unsafe fn write32(&self, offset: u64, value: u32) -> io::Result<()> {
        self.handle.bar_write(offset, &value.to_be_bytes());
        Ok(())
    }

    unsafe fn write64(&self, offset: u64, value: u64) -> io::Result<()> {
        self.handle.bar_write(offset, &value.to_be_bytes());
        Ok(())
    }

    fn map(&self, offset: u64, len: usize) -> io::Result<Option<BarMapping>> {
        let UarMemory { file, areas } = self.handle.uar_file().map_err(io::Error::other)?;
        let end = offset.saturating_add(len as u64);
        let mappable = areas.iter().any(|area| area.offset <= offset && end <= area.offset + area.len);
        let Some(file) = file.filter(|_| mappable) else { return Ok(None) };
        let mapping = MmapOptions::new().offset(offset).len(len).map_raw(&file)?;
        BarMapping::of_map(mapping, self.power.clone()).map(Some)
    }

    fn reset(&self) -> io::Result<()> {
        self.driver.claim(&self.handle)?;
        self.handle.reset();
        Ok(())
    }

    fn set_bus_master(&self, enabled: bool) -> io::Result<()> {
        self.driver.claim(&self.handle)?;
        let read = || {
            let mut command = [0; 2];
            self.handle.config_read(pci::COMMAND, &mut command);
            Ok(command)
        };
        pci::set_bus_master(enabled, read, |bytes| {
            self.handle.config_write(pci::COMMAND, &bytes);
            Ok(())
        })
    }
}

#[derive(Debug)]
struct ModelDma {
    handle: FunctionHandle,
    power: Power,
    places: Option<Arc<Places>>,
}

// SAFETY: the model reaches memory by the files, or the range of this process, that it is given here, until it is taken
// back.
unsafe impl DmaSpace for ModelDma {
    unsafe fn map(&self, range: HostRange<'_>, iova: Iova) -> io::Result<()> {
        let source = match range.file() {
            Some((file, offset)) => Source::File { file: File::from(file.try_clone_to_owned()?), offset },
            None => {
                let mem = OpenOptions::new().read(true).write(true).open("/proc/self/mem")?;
                Source::Process { mem: Arc::new(mem), address: range.address().as_ptr() as u64 }
            }
        };
        let access = Access::READ | Access::WRITE;
        self.handle.dma_map(iova.0, range.len() as u64, access, source).map_err(io::Error::other)
    }

    fn unmap(&self, iova: Iova, len: usize) -> io::Result<()> {
        let unmapped = self.handle.dma_unmap(iova.0, len as u64);
        if unmapped == len as u64 || self.power.0.is_none() {
            return Ok(());
        }
        Err(io::Error::other(format!("only {unmapped} of {len} bytes were mapped at {:#x}", iova.0)))
    }

    fn iova_ranges(&self) -> Vec<(u64, u64)> {
        vec![ADDRESSES]
    }

    fn takes_anonymous_memory(&self) -> bool {
        true
    }

    fn key_address(&self, len: usize) -> Option<u64> {
        self.places.as_ref()?.take(len)
    }
}

#[derive(Debug)]
struct ModelIrq {
    handle: FunctionHandle,
    _power: Power,
}

impl Irq for ModelIrq {
    fn vectors(&self) -> u32 {
        self.handle.vectors().into()
    }

    fn enable(&self, count: u32) -> io::Result<Vec<OwnedFd>> {
        let new = |_| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io::Error::from);
        let fds: Vec<OwnedFd> = (0..count).map(new).collect::<io::Result<_>>()?;
        let theirs = fds.iter().map(|fd| fd.try_clone().map(|fd| Some(File::from(fd)))).collect::<io::Result<_>>()?;
        self.handle.set_irqs(0, theirs).map_err(io::Error::other)?;
        Ok(fds)
    }

    fn disable(&self) -> io::Result<()> {
        self.handle.clear_irqs();
        Ok(())
    }
}
