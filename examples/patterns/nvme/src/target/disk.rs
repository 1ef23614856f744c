//! What a namespace stores its blocks in.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use mlx5_files::FileQueue;

use crate::error::TargetError;

/// Alignment that direct I/O asks for.
const DIRECT: usize = 4096;
/// Bytes of zeros written at once.
const ZEROS: usize = 1 << 20;
/// The kernel's O_DIRECT, of `asm-generic/fcntl.h` and of aarch64's.
const O_DIRECT: i32 = if cfg!(target_arch = "aarch64") { 0o200000 } else { 0o40000 };

/// What a disk does with a command's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    Read,
    Write,
    /// Zeros in place of this many bytes.
    Zero(u64),
    Flush,
}

/// Stores the blocks of a namespace. Offsets and lengths are whole blocks inside of it: the target checks before.
pub trait Disk: Send {
    /// Bytes of a logical block: a power of two from 512.
    fn block_size(&self) -> u32;

    /// Logical blocks.
    fn blocks(&self) -> u64;

    /// Whether writes are lost with power until [`flush`](Self::flush).
    fn has_write_cache(&self) -> bool {
        false
    }

    /// Reads from byte `offset` on into `bytes`, which the card sends from there.
    ///
    /// # Errors
    /// The medium's.
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;

    /// Writes `bytes`, where the card put them, from byte `offset` on.
    ///
    /// # Errors
    /// The medium's.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Writes `len` zeros from byte `offset` on.
    ///
    /// # Errors
    /// The medium's.
    fn write_zeroes(&mut self, offset: u64, len: u64) -> io::Result<()>;

    /// Makes all that was written durable.
    ///
    /// # Errors
    /// The medium's.
    fn flush(&mut self) -> io::Result<()>;

    /// A queue of the same bytes, by which the target lets the medium work while it goes on. Default: none; then the
    /// target's thread waits for each call.
    fn queue(&mut self) -> Option<&mut FileQueue> {
        None
    }
}

/// A disk in memory.
#[derive(Debug)]
pub struct RamDisk {
    block_size: u32,
    bytes: Vec<u8>,
}

impl RamDisk {
    /// Zeros: `blocks` blocks of `block_size` bytes.
    ///
    /// # Errors
    /// [`TargetError::Option`]: no blocks, or a size that none has.
    pub fn new(blocks: usize, block_size: u32) -> Result<Self, TargetError> {
        check_block_size(block_size)?;
        check_blocks(blocks as u64)?;
        Ok(RamDisk { block_size, bytes: vec![0; blocks * block_size as usize] })
    }

    fn part(&mut self, offset: u64, len: usize) -> io::Result<&mut [u8]> {
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let range = start..start.saturating_add(len);
        self.bytes.get_mut(range).ok_or_else(|| io::Error::other("outside of the disk"))
    }
}

fn check_block_size(block_size: u32) -> Result<(), TargetError> {
    if block_size.is_power_of_two() && (512..=65536).contains(&block_size) {
        return Ok(());
    }
    let mend = "it must be a power of two from 512 to 65536";
    Err(TargetError::Option { what: "block size", given: block_size.to_string(), mend })
}

fn check_blocks(blocks: u64) -> Result<(), TargetError> {
    if blocks > 0 {
        return Ok(());
    }
    Err(TargetError::Option { what: "number of blocks", given: blocks.to_string(), mend: "it must be 1 or more" })
}

impl Disk for RamDisk {
    fn block_size(&self) -> u32 {
        self.block_size
    }

    fn blocks(&self) -> u64 {
        self.bytes.len() as u64 / u64::from(self.block_size)
    }

    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        bytes.copy_from_slice(self.part(offset, bytes.len())?);
        Ok(())
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.part(offset, bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    fn write_zeroes(&mut self, offset: u64, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).map_err(io::Error::other)?;
        self.part(offset, len)?.fill(0);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Operations of a file at once; others wait.
const DEPTH: u32 = 256;

/// A disk in a file or block device, past the page cache where that is possible. By io_uring it works while the target
/// goes on; where the kernel refuses that, its calls block the target's thread.
#[derive(Debug)]
pub struct FileDisk {
    file: File,
    queue: Option<FileQueue>,
    refusal: Option<io::Error>,
    block_size: u32,
    blocks: u64,
    staging: Staging,
    is_direct: bool,
}

/// Memory that direct I/O takes: a part of a vector that starts at a page.
#[derive(Debug)]
struct Staging {
    bytes: Vec<u8>,
    start: usize,
}

impl Staging {
    fn new() -> Self {
        let bytes = vec![0; ZEROS + DIRECT];
        let start = bytes.as_ptr().align_offset(DIRECT);
        Staging { bytes, start }
    }

    fn get(&mut self, len: usize) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + len]
    }
}

impl FileDisk {
    /// The whole blocks of `block_size` bytes in the file at `path`. O_DIRECT is used where the file system has it.
    ///
    /// # Errors
    /// [`TargetError::Disk`]: it cannot be opened for reading and writing; [`TargetError::Option`]: it has no whole
    /// block.
    pub fn open(path: &Path, block_size: u32) -> Result<Self, TargetError> {
        check_block_size(block_size)?;
        let named = |error| TargetError::Disk { path: path.display().to_string(), error };
        let open = |flags| OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
        let direct = open(O_DIRECT);
        let is_direct = direct.is_ok();
        let mut file = direct.or_else(|_| open(0)).map_err(named)?;
        // By seeking: the metadata of a block device has no length.
        let len = io::Seek::seek(&mut file, io::SeekFrom::End(0)).map_err(named)?;
        let blocks = len / u64::from(block_size);
        check_blocks(blocks)?;
        let queue = file.try_clone().and_then(|file| FileQueue::new(file, DEPTH));
        let (queue, refusal) = match queue {
            Ok(queue) => (Some(queue), None),
            Err(error) => (None, Some(error)),
        };
        Ok(FileDisk { file, queue, refusal, block_size, blocks, staging: Staging::new(), is_direct })
    }

    /// Why reads and writes block the target's thread, if they do: what the kernel said to io_uring.
    pub fn blocks_by(&self) -> Option<&io::Error> {
        self.refusal.as_ref()
    }

    /// Without io_uring, as where the kernel refuses it.
    #[must_use]
    pub fn blocking(mut self) -> Self {
        self.queue = None;
        self
    }

    /// Whether the file takes `bytes` from where they are: direct I/O wants whole pages, which data in capsules is not.
    fn takes(&self, bytes: &[u8]) -> bool {
        !self.is_direct || bytes.as_ptr().addr().is_multiple_of(DIRECT)
    }

    /// Whether the page cache is passed by.
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }
}

impl Disk for FileDisk {
    fn block_size(&self) -> u32 {
        self.block_size
    }

    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn has_write_cache(&self) -> bool {
        true
    }

    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        if self.takes(bytes) {
            return self.file.read_exact_at(bytes, offset);
        }
        for (part, at) in bytes.chunks_mut(ZEROS).zip((offset..).step_by(ZEROS)) {
            let staging = self.staging.get(part.len());
            self.file.read_exact_at(staging, at)?;
            part.copy_from_slice(staging);
        }
        Ok(())
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if self.takes(bytes) {
            return self.file.write_all_at(bytes, offset);
        }
        for (part, at) in bytes.chunks(ZEROS).zip((offset..).step_by(ZEROS)) {
            let staging = self.staging.get(part.len());
            staging.copy_from_slice(part);
            self.file.write_all_at(staging, at)?;
        }
        Ok(())
    }

    fn write_zeroes(&mut self, offset: u64, len: u64) -> io::Result<()> {
        self.staging.get(ZEROS).fill(0);
        let mut at = 0;
        while at < len {
            let part = (len - at).min(ZEROS as u64);
            self.file.write_all_at(self.staging.get(part as usize), offset + at)?;
            at += part;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn queue(&mut self) -> Option<&mut FileQueue> {
        self.queue.as_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_without_blocks_or_with_odd_ones_are_refused() {
        for (blocks, size) in [(0, 512), (1, 0), (1, 500), (1, 1 << 17)] {
            assert!(RamDisk::new(blocks, size).is_err(), "{blocks} blocks of {size}");
        }
        let missing = FileDisk::open(Path::new("/nonexistent/disk"), 512).unwrap_err().to_string();
        assert!(missing.starts_with("/nonexistent/disk: "), "{missing}");
    }
}
