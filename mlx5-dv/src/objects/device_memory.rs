//! Memory on the card.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use mlx5_prm::caps::DeviceMemCap;
use mlx5_prm::cmd::MemicOperation;
use mlx5_prm::ctx::Mkc;

use super::kernel_object::{DeviceMemoryHandle, DeviceMemoryRegionHandle, not_shared, shared};
use super::mkey::{AccessFlags, Mkey};
use super::object::{DestroyError, destroy_sole};
use super::pd::Pd;
use crate::access::{CardMemory, MemicHandle, ObjectHandle};
use crate::caps::CapPage;
use crate::device::Device;
use crate::error::{CommandError, Error, Invalid};
use crate::lock::lock;
use crate::memory::{DataSegment, RemoteAddress};

/// What is shared, in errors.
const WHAT: &str = "device memory for several processes";
/// Lengths are a multiple of this number of bytes.
const UNIT: u64 = 64;

/// Memory on the card (MEMIC): remotes and work requests reach it without PCIe, this process by loads and stores across
/// PCIe. For counters, locks, and small data that many remotes read. PRM "Device Memory".
///
/// Offsets and lengths of accesses are multiples of 4. Any thread may access it at any time; while the card writes, a
/// read may mix old and new bytes. It has zeros at first. On `devx:` it is the kernel's, and processes which share a
/// context ([`Device::export`]) can share it.
pub struct DeviceMemory {
    /// The addresses of operations, which end before the memory.
    operations: Mutex<Vec<(MemicOperation, Arc<MemicHandle>)>>,
    handle: Option<MemicHandle>,
    /// Whether another process has allocated it, and frees it.
    is_imported: bool,
    len: u32,
    device: Arc<Device>,
}

impl fmt::Debug for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceMemory({} bytes)", self.len)
    }
}

impl DeviceMemory {
    /// Allocates at least `len` bytes: the next multiple of 64.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the card has no such memory (`memic`); [`Error::Invalid`] for 0, more than
    /// `max_memic_size`, or more than is free; [`Error::Command`].
    pub fn alloc(device: &Arc<Device>, len: usize) -> Result<Arc<Self>, Error> {
        let caps: DeviceMemCap = device.caps().current(CapPage::DeviceMemory).unwrap_or_default();
        if !caps.memic() {
            return Err(Error::Unsupported { what: "memory on the card".into(), capability: "memic" });
        }
        let limit = 1..=u64::from(caps.max_memic_size());
        let rounded = (len as u64).checked_next_multiple_of(UNIT).filter(|len| limit.contains(len));
        let len = rounded.and_then(|len| u32::try_from(len).ok()).ok_or_else(|| {
            let refused = Invalid::out_of_range("the length of device memory", len as u64, limit, "this card");
            refused.capability("max_memic_size")
        })?;
        let handle = device.access().card_memory().alloc(len, &caps)?;
        Ok(Self::of(device, handle, false, len))
    }

    /// Maps memory that another process has allocated, which shares `device`'s context. Dropping it leaves the
    /// allocation as it is. (`ibv_import_dm`, `ibv_unimport_dm`.)
    ///
    /// The pages stay this process's until it is dropped, also if the other process frees the memory before.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a handle that is no device memory of this context, or on a function that this process
    /// owns.
    pub fn import(device: &Arc<Device>, handle: DeviceMemoryHandle) -> Result<Arc<Self>, Error> {
        let handle = shared(device, WHAT)?.query_dm(ObjectHandle(handle.0))?;
        let len = handle.len();
        Ok(Self::of(device, handle, true, len))
    }

    fn of(device: &Arc<Device>, handle: MemicHandle, is_imported: bool, len: u32) -> Arc<Self> {
        let (operations, handle) = (Mutex::default(), Some(handle));
        Arc::new(DeviceMemory { operations, handle, is_imported, len, device: Arc::clone(device) })
    }

    /// Addresses that add to numbers in the memory, for any thread and process. (`mlx5dv_dm_map_op_addr`.)
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the card does not do it, or not with 4 bytes (`memic_operations`,
    /// `increment_size_sup`); [`Error::Command`], [`Error::Io`].
    pub fn map_increment(self: &Arc<Self>) -> Result<Increment, Error> {
        let sizes = |caps: &DeviceMemCap| caps.increment_size_sup();
        self.map_operation(MemicOperation::Increment, ("increment_size_sup", sizes)).map(Increment)
    }

    /// Addresses that set numbers in the memory to 1 and tell what they were, for any thread and process.
    /// (`mlx5dv_dm_map_op_addr`.)
    ///
    /// # Errors
    /// As for [`map_increment`](Self::map_increment), with `test_and_set_size_sup`.
    pub fn map_test_and_set(self: &Arc<Self>) -> Result<TestAndSet, Error> {
        let sizes = |caps: &DeviceMemCap| caps.test_and_set_size_sup();
        self.map_operation(MemicOperation::TestAndSet, ("test_and_set_size_sup", sizes)).map(TestAndSet)
    }

    fn map_operation(
        self: &Arc<Self>,
        operation: MemicOperation,
        (capability, sizes): (&'static str, fn(&DeviceMemCap) -> u8),
    ) -> Result<Operation, Error> {
        let caps: DeviceMemCap = self.device.caps().current(CapPage::DeviceMemory).unwrap_or_default();
        let lacks = |what: String, capability| Err(Error::Unsupported { what, capability });
        if caps.memic_operations() >> operation.number() & 1 == 0 {
            return lacks(format!("{operation} by addresses of device memory"), "memic_operations");
        }
        if sizes(&caps) & DWORDS == 0 {
            return lacks(format!("{operation} on 4 bytes of device memory"), capability);
        }
        let mut operations = lock(&self.operations);
        let there = operations.iter().find(|(other, _)| *other == operation);
        let addresses = match there {
            Some((_, addresses)) => Arc::clone(addresses),
            None => {
                let (memory, handle) = self.parts()?;
                let addresses = Arc::new(memory.map_operation(handle, operation)?);
                operations.push((operation, Arc::clone(&addresses)));
                addresses
            }
        };
        Ok(Operation { addresses, memory: Arc::clone(self) })
    }

    /// Names the memory to processes that share the context: `handle` of libibverbs's `ibv_dm`.
    ///
    /// # Errors
    /// [`Error::Invalid`] on a function that this process owns: nobody shares it.
    pub fn handle(&self) -> Result<DeviceMemoryHandle, Error> {
        shared(&self.device, WHAT)?;
        Ok(DeviceMemoryHandle(self.parts()?.1.handle().0))
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the length is zero: never.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The card.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Stores `bytes` at `offset`. A work request that is posted next finds them there.
    ///
    /// # Errors
    /// [`Error::Invalid`] for bytes outside the memory, or not of whole dwords; [`Error::Dead`].
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        let (memory, handle) = self.parts()?;
        memory.write(handle, offset, bytes)
    }

    /// Loads `bytes` from `offset`. What a completed work request has put there is seen.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), Error> {
        let (memory, handle) = self.parts()?;
        memory.read(handle, offset, bytes)
    }

    fn parts(&self) -> Result<(&dyn CardMemory, &MemicHandle), Error> {
        let handle = self.handle.as_ref().ok_or(Invalid::Empty { what: "device memory", lacks: "bytes" })?;
        Ok((self.device.access().card_memory(), handle))
    }

    /// Frees the memory, if it is not imported. On an error it stays alive and is returned.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, DeviceMemory::free)
    }

    fn free(&mut self) -> Result<(), CommandError> {
        if let (Some(handle), false) = (&self.handle, self.is_imported) {
            let memory = self.device.access().card_memory();
            let mut operations = lock(&self.operations);
            while let Some((operation, _)) = operations.last() {
                memory.unmap_operation(handle, *operation)?;
                operations.pop();
            }
            memory.free(handle)?;
        }
        self.handle = None;
        Ok(())
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if let Err(error) = self.free() {
            tracing::error!(%error, "device memory was not freed; it is lost until the card is reset");
        }
    }
}

/// The bit of 4 bytes in the sizes of an operation: they are powers of two.
const DWORDS: u8 = 1 << 2;

/// Addresses that do an operation on device memory.
#[derive(Debug)]
struct Operation {
    addresses: Arc<MemicHandle>,
    memory: Arc<DeviceMemory>,
}

impl Operation {
    fn memory(&self) -> &dyn CardMemory {
        self.memory.device.access().card_memory()
    }
}

/// Adds to numbers of [`DeviceMemory`], each at once: one store across PCIe, and no load. For counters that several
/// threads, processes and remotes share. From [`DeviceMemory::map_increment`].
///
/// Numbers have 4 bytes, big-endian, as ConnectX-7 has them. Offsets are multiples of 4.
#[derive(Debug)]
pub struct Increment(Operation);

impl Increment {
    /// Adds `by` to the number at `offset`, modulo 2^32.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a number outside the memory, or another offset; [`Error::Dead`].
    pub fn add(&self, offset: usize, by: u32) -> Result<(), Error> {
        self.0.memory().write(&self.0.addresses, offset, &by.to_be_bytes())
    }
}

/// Sets numbers of [`DeviceMemory`] to 1 and tells what they were, each at once: one load across PCIe. For locks that
/// several threads, processes and remotes share: who finds 0 has it, and writes 0 to release it. From
/// [`DeviceMemory::map_test_and_set`].
///
/// Numbers are those of [`Increment`].
#[derive(Debug)]
pub struct TestAndSet(Operation);

impl TestAndSet {
    /// Sets the number at `offset` to 1; returns the old one.
    ///
    /// # Errors
    /// As for [`Increment::add`].
    pub fn test_and_set(&self, offset: usize) -> Result<u32, Error> {
        let mut old = [0; 4];
        self.0.memory().read(&self.0.addresses, offset, &mut old)?;
        Ok(u32::from_be_bytes(old))
    }
}

/// Registered [`DeviceMemory`]: work requests and remotes access it by key, at addresses that count from 0.
#[derive(Debug)]
pub struct DeviceMemoryRegion {
    /// First field: destroyed before the memory is freed.
    mkey: Mkey,
    memory: Arc<DeviceMemory>,
    range: Range<usize>,
    access: AccessFlags,
    pd: Arc<Pd>,
}

impl DeviceMemoryRegion {
    /// Registers the bytes `range` of `memory`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an empty range, bytes outside the memory, an invalid combination of access flags, or
    /// another card; [`Error::Command`].
    pub fn register(
        pd: &Arc<Pd>,
        memory: &Arc<DeviceMemory>,
        range: Range<usize>,
        access: AccessFlags,
    ) -> Result<Arc<Self>, Error> {
        if !Arc::ptr_eq(pd.device(), &memory.device) {
            return Err(Invalid::ForeignDevice { what: "device memory and protection domain" }.into());
        }
        if range.is_empty() || range.end > memory.len() {
            let (given, len) = (range.start as u64..range.end as u64, memory.len() as u64);
            return Err(Invalid::OutOfBounds { what: "bytes", given, of: "device memory", len }.into());
        }
        let (_, handle) = memory.parts()?;
        let mkey = Mkey::of_device_memory(pd, handle, range.start as u64..range.end as u64, access)?;
        Ok(Arc::new(DeviceMemoryRegion { mkey, memory: Arc::clone(memory), range, access, pd: Arc::clone(pd) }))
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether the length is zero: never.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// The memory that it is a part of.
    pub fn memory(&self) -> &Arc<DeviceMemory> {
        &self.memory
    }

    /// The protection domain.
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Asks the card for the context of its key: see [`MemoryRegion::query`](super::MemoryRegion::query), also for
    /// errors.
    pub fn query(&self) -> Result<Mkc, Error> {
        self.mkey.query()
    }

    /// Names the region to processes that share the context, for
    /// [`ImportedRegion::import_device_memory`](super::ImportedRegion::import_device_memory).
    ///
    /// # Errors
    /// [`Error::Invalid`] on a function that this process owns: nobody shares it.
    pub fn handle(&self) -> Result<DeviceMemoryRegionHandle, Error> {
        let what = "a memory region for several processes";
        let handle = self.mkey.kernel_handle().ok_or_else(|| not_shared(self.pd.device(), what))?;
        Ok(DeviceMemoryRegionHandle(handle.0))
    }

    /// The access rights.
    pub fn access(&self) -> AccessFlags {
        self.access
    }

    /// The key for local work requests.
    pub fn lkey(&self) -> u32 {
        self.mkey.key()
    }

    /// The key for the remote.
    pub fn rkey(&self) -> u32 {
        self.mkey.key()
    }

    /// Address and key of byte `offset`, for the remote.
    pub fn remote_at(&self, offset: usize) -> RemoteAddress {
        RemoteAddress { addr: offset as u64, rkey: self.rkey() }
    }

    /// The bytes `range` as a scatter/gather element. Panics if they are outside the region.
    #[track_caller]
    pub fn segment(&self, range: Range<usize>) -> DataSegment {
        assert!(range.start <= range.end && range.end <= self.len(), "{range:?} of {} bytes", self.len());
        DataSegment { addr: range.start as u64, len: range.len() as u32, lkey: self.lkey() }
    }

    /// Deregisters it. On an error the region stays alive and is returned.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, |region| region.mkey.destroy())
    }
}
