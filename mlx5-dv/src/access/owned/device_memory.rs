//! Memory on the card (MEMIC): allocation in BAR 0, loads and stores. PRM "Device Memory".
//!
//! The driver manages the pages of the BAR, firmware what is behind them.

use std::sync::Mutex;

use mlx5_prm::caps::DeviceMemCap;
use mlx5_prm::cmd::{AllocMemicIn, CmdStatus, DeallocMemicIn, MemicOperation, ModifyMemicIn, ModifyMemicOpMod};

use super::Owned;
use crate::access::device_memory::DWORD;
use crate::access::{Access, BarMapping, CardMemory, MemicHandle, ObjectHandle, RawCommand};
use crate::error::{CommandError, Error, Invalid};
use crate::lock::lock;
use crate::memory::{Iova, IovaAllocator};

/// The BAR is managed in pages of this size, or the host's if that is larger: so that each allocation can be mapped.
const PAGE: u64 = 4096;

fn page() -> u64 {
    PAGE.max(rustix::param::page_size() as u64)
}

impl Owned {
    fn free_pages(&self, caps: &DeviceMemCap) -> Result<&Mutex<IovaAllocator>, Error> {
        let (first, size) = (caps.memic_bar_start_addr(), u64::from(caps.memic_bar_size()));
        let bar = self.registers.bar().size();
        match first.checked_add(size) {
            Some(end) if end <= bar && size > 0 => {
                Ok(self.card_memory.get_or_init(|| Mutex::new(IovaAllocator::new(vec![(first, end - 1)]))))
            }
            _ => Err(Error::response("memic_bar_start_addr", first, Some(0..=bar), "device memory outside of BAR 0")),
        }
    }

    /// Allocates `len` bytes within the `room` bytes at `first` of the BAR; returns where.
    fn alloc_memic(&self, first: u64, room: u64, len: u32) -> Result<u64, Error> {
        let mut alloc = AllocMemicIn::default();
        alloc.w().range_start_addr(first).range_size(room as u32).memic_size(len);
        // SAFETY: names no memory of this process, but a range of the BAR that belongs to nobody else.
        let out = unsafe { self.run_raw(&alloc, &format!("{len} bytes of device memory")) }?;
        let start = out.memic_start_addr();
        let last = first + room - u64::from(len);
        if !(first..=last).contains(&start) || !start.is_multiple_of(DWORD as u64) {
            let what = "device memory outside of the range that was given";
            return Err(Error::response("memic_start_addr", start, Some(first..=last), what));
        }
        Ok(start)
    }

    /// Tries the free ranges of `room` bytes one after the other: firmware refuses those whose memory is another
    /// function's. All that were tried stay taken; the last one is the allocation.
    fn take_pages(
        &self,
        free: &Mutex<IovaAllocator>,
        room: u64,
        len: u32,
        tried: &mut Vec<Iova>,
    ) -> Result<u64, Error> {
        loop {
            let Some(pages) = lock(free).allocate(room, page()) else {
                let (what, by) = (format!("the card's memory for {len} bytes"), "other allocations".to_owned());
                return Err(Invalid::Taken { what, by, mend: "free some, or take less" }.into());
            };
            tried.push(pages);
            match self.alloc_memic(pages.0, room, len) {
                Err(Error::Command(error)) if error.status() == Some(CmdStatus::NoResources) => {}
                result => return result,
            }
        }
    }

    /// Maps the pages of an allocation, where the BAR can be mapped.
    fn map_memic(&self, first: u64, room: u64, start: u64) -> Option<(BarMapping, usize)> {
        let mapping = self.registers.bar().map(first, room as usize).ok().flatten()?;
        Some((mapping, (start - first) as usize))
    }

    fn load(&self, memory: &MemicHandle, at: usize) -> Result<[u8; DWORD], Error> {
        match memory.load(at) {
            Some(bytes) => Ok(bytes),
            None => Ok(self.registers.read(memory.start() + at as u64)?.to_be_bytes()),
        }
    }

    fn store(&self, memory: &MemicHandle, at: usize, bytes: [u8; DWORD]) -> Result<(), Error> {
        if memory.store(at, bytes).is_none() {
            // SAFETY: the handle's range of the BAR is memory; there is no register.
            unsafe { self.registers.write(memory.start() + at as u64, u32::from_be_bytes(bytes)) }?;
        }
        Ok(())
    }
}

/// The command that makes or ends the addresses of `operation` on `memory`.
fn modify(memory: &MemicHandle, operation: MemicOperation, op_mod: ModifyMemicOpMod) -> ModifyMemicIn {
    let mut modify = ModifyMemicIn::default();
    let op_mod = op_mod.number() as u16;
    modify.w().op_mod(op_mod).memic_start_addr(memory.start()).memic_operation_type(operation);
    modify
}

impl CardMemory for Owned {
    fn alloc(&self, len: u32, caps: &DeviceMemCap) -> Result<MemicHandle, Error> {
        let free = self.free_pages(caps)?;
        let room = u64::from(len).next_multiple_of(page());
        let mut tried = Vec::new();
        let taken = self.take_pages(free, room, len, &mut tried);
        // Without a reply, or with a nonsensical one, the pages may be in use: they stay taken.
        let is_unsure = !matches!(&taken, Ok(_) | Err(Error::Invalid(_)))
            && !matches!(&taken, Err(Error::Command(error)) if error.status().is_some());
        let last = if taken.is_ok() || is_unsure { tried.pop() } else { None };
        tried.into_iter().for_each(|pages| lock(free).free(pages, room));
        let (start, first) = (taken?, last.map_or(0, |pages| pages.0));
        Ok(MemicHandle::new(start, len, (first, room), self.map_memic(first, room, start)))
    }

    fn free(&self, memory: &MemicHandle) -> Result<(), CommandError> {
        let mut dealloc = DeallocMemicIn::default();
        dealloc.w().memic_start_addr(memory.start()).memic_size(memory.len());
        let command = RawCommand::new(&dealloc, format!("{} bytes of device memory", memory.len()));
        // SAFETY: frees what the handle owns; firmware refuses while a key names it.
        unsafe { self.destroy(ObjectHandle(0), command) }?;
        if let Some(free) = self.card_memory.get() {
            let (first, room) = memory.pages();
            lock(free).free(Iova(first), room);
        }
        Ok(())
    }

    fn map_operation(&self, memory: &MemicHandle, operation: MemicOperation) -> Result<MemicHandle, Error> {
        let command = modify(memory, operation, ModifyMemicOpMod::Alloc);
        // SAFETY: names no memory of this process, but an allocation on the card, which the handle owns.
        let out = unsafe { self.run_raw(&command, &format!("{operation} on device memory")) }?;
        let (start, len) = (out.memic_operation_addr(), u64::from(memory.len()));
        let last = self.registers.bar().size().saturating_sub(len);
        if start > last || !start.is_multiple_of(DWORD as u64) {
            let what = "addresses of an operation outside of BAR 0";
            return Err(Error::response("memic_operation_addr", start, Some(0..=last), what));
        }
        let (first, end) = (start - start % page(), (start + len).next_multiple_of(page()));
        Ok(MemicHandle::of_operation(memory, start, self.map_memic(first, end - first, start)))
    }

    fn unmap_operation(&self, memory: &MemicHandle, operation: MemicOperation) -> Result<(), CommandError> {
        let command = RawCommand::new(&modify(memory, operation, ModifyMemicOpMod::Dealloc), operation.to_string());
        // SAFETY: ends what `map_operation` made of the handle's allocation.
        unsafe { self.destroy(ObjectHandle(0), command) }
    }

    fn read(&self, memory: &MemicHandle, offset: usize, bytes: &mut [u8]) -> Result<(), Error> {
        let first = memory.check(offset, bytes.len())?;
        self.liveness.check()?;
        for (at, dword) in (first..).step_by(DWORD).zip(bytes.chunks_exact_mut(DWORD)) {
            dword.copy_from_slice(&self.load(memory, at)?);
        }
        Ok(())
    }

    fn write(&self, memory: &MemicHandle, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        let first = memory.check(offset, bytes.len())?;
        self.liveness.check()?;
        let (dwords, _) = bytes.as_chunks();
        for (at, dword) in (first..).step_by(DWORD).zip(dwords) {
            self.store(memory, at, *dword)?;
        }
        if !memory.is_mapped() && !dwords.is_empty() {
            // Stores by messages could be overtaken by a doorbell on a mapped page. A load passes no store: PCIe 2.4.1.
            self.registers.read(memory.quiet() + first as u64)?;
        }
        uar::barrier::to_device();
        Ok(())
    }
}
