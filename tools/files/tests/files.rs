//! Buffers that go to a file and come back. Where the kernel refuses io_uring, it has to say so.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mlx5_dv::objects::{AccessFlags, Buffer, ExclusiveRegion, MemoryRegion, Pd};
use mlx5_files::{Done, FileQueue, RefusedReason};

const BYTES: usize = 8192;
const LONG: Duration = Duration::from_secs(60);

/// A queue; `None` where the kernel has none for this process, which is a clear error then.
fn queue(file: File, depth: u32) -> Option<FileQueue> {
    match FileQueue::new(file, depth) {
        Ok(queue) => Some(queue),
        Err(error) => {
            let clear = [ErrorKind::PermissionDenied, ErrorKind::Unsupported].contains(&error.kind());
            assert!(clear, "{error}");
            eprintln!("io_uring is refused here: {error}");
            None
        }
    }
}

fn wait(queue: &mut FileQueue) -> Done {
    let end = Instant::now() + LONG;
    while Instant::now() < end {
        if let Some(done) = queue.poll().unwrap() {
            return done;
        }
        std::thread::yield_now();
    }
    panic!("{queue:?} did nothing for {LONG:?}");
}

fn buffers(count: usize) -> Vec<Buffer> {
    let pd = Pd::alloc(&mlx5_open::open("sim").unwrap()).unwrap();
    ExclusiveRegion::allocate(&pd, count * BYTES).unwrap().buffers(BYTES).unwrap()
}

fn file() -> File {
    tempfile::tempfile().unwrap()
}

#[test]
fn what_was_written_is_read_zeroed_and_flushed() {
    let Some(mut queue) = queue(file(), 8) else { return };
    let mut all = buffers(4);
    for (number, buffer) in all.iter_mut().enumerate() {
        buffer.as_mut_slice().fill(number as u8 + 1);
    }
    for (number, buffer) in all.drain(..).enumerate() {
        queue.write((number * BYTES) as u64, buffer, number as u64).unwrap();
    }
    let mut back: Vec<Done> = (0..4).map(|_| wait(&mut queue)).collect();
    back.sort_by_key(|done| done.user);
    assert!(back.iter().all(|done| done.result.is_ok()), "{back:?}");
    queue.flush(9).unwrap();
    queue.zero(BYTES as u64, BYTES as u64, 10).unwrap();
    for _ in 0..2 {
        let done = wait(&mut queue);
        done.result.unwrap_or_else(|error| panic!("{}: {error}", done.user));
    }
    for (number, done) in back.into_iter().enumerate() {
        let mut buffer = done.buffer.unwrap();
        buffer.as_mut_slice().fill(0xee);
        queue.read((number * BYTES) as u64, buffer, number as u64).unwrap();
    }
    for _ in 0..4 {
        let done = wait(&mut queue);
        done.result.unwrap();
        let expected = if done.user == 1 { 0 } else { done.user as u8 + 1 };
        assert!(done.buffer.unwrap().as_slice().iter().all(|&byte| byte == expected), "block {}", done.user);
    }
    assert_eq!(queue.under_way(), 0);
}

/// A mount namespace with a file system of which `fallocate` is not known, until it is dropped.
struct Ramfs(Child);

impl Ramfs {
    /// `None` where this process may not mount, of which the kernel's word is printed.
    fn mount() -> Option<Self> {
        let script = "mount -t ramfs none /mnt && : >/mnt/disk && echo mounted && cat";
        let mut with = Command::new("unshare");
        with.args(["--map-root-user", "--mount", "sh", "-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut mounted = Ramfs(with.spawn().unwrap());
        let mut said = String::new();
        BufReader::new(mounted.0.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
        (said == "mounted\n").then_some(mounted)
    }

    fn file(&self) -> File {
        let path = format!("/proc/{}/root/mnt/disk", self.0.id());
        OpenOptions::new().read(true).write(true).open(path).unwrap()
    }
}

impl Drop for Ramfs {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn zeros_are_written_where_the_file_system_takes_no_blocks_back() {
    const LEN: usize = 700_000;
    let Some(ramfs) = Ramfs::mount() else { return };
    let file = ramfs.file();
    file.write_all_at(&[7; LEN + 200], 0).unwrap();
    let Some(mut queue) = queue(file.try_clone().unwrap(), 2) else { return };
    queue.zero(100, LEN as u64, 5).unwrap();
    let done = wait(&mut queue);
    done.result.unwrap();
    assert_eq!(done.user, 5);
    let mut found = [0; LEN + 200];
    file.read_exact_at(&mut found, 0).unwrap();
    let zeroed = found.iter().enumerate().all(|(at, &byte)| (byte == 0) == (100..100 + LEN).contains(&at));
    assert!(zeroed, "other bytes, or too few");
    assert_eq!(queue.under_way(), 0);
}

#[test]
fn a_file_that_ends_is_an_error_with_the_buffer() {
    let mut made = file();
    made.write_all(&[7; BYTES / 2]).unwrap();
    let Some(mut queue) = queue(made, 2) else { return };
    queue.read(0, buffers(1).remove(0), 1).unwrap();
    let done = wait(&mut queue);
    assert_eq!(done.result.unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert_eq!(done.buffer.unwrap().as_slice()[..BYTES / 2], [7; BYTES / 2]);
}

#[test]
fn a_file_that_may_not_be_written_is_an_error_with_the_buffer() {
    let named = tempfile::NamedTempFile::new().unwrap();
    let Some(mut queue) = queue(File::open(named.path()).unwrap(), 2) else { return };
    queue.write(0, buffers(1).remove(0), 1).unwrap();
    let done = wait(&mut queue);
    assert!(done.result.is_err() && done.buffer.is_some());
}

#[test]
fn a_full_queue_and_a_shared_buffer_are_refused_with_the_buffer() {
    let Some(mut queue) = queue(file(), 2) else { return };
    let mut all = buffers(3);
    for _ in 0..2 {
        queue.write(0, all.pop().unwrap(), 0).unwrap();
    }
    let refused = queue.write(0, all.pop().unwrap(), 0).unwrap_err();
    assert_eq!(refused.reason, RefusedReason::Full);
    assert!(refused.buffer.is_some());
    wait(&mut queue);
    let pd = refused.buffer.unwrap().pd().clone();
    let shared = MemoryRegion::allocate(&pd, BYTES, AccessFlags::LOCAL_WRITE).unwrap().buffer(0..BYTES).unwrap();
    let refused = queue.write(0, shared, 0).unwrap_err();
    assert_eq!(refused.reason, RefusedReason::Shared);
    assert!(refused.buffer.is_some());
    assert!(FileQueue::new(file(), 0).unwrap_err().to_string().contains("1 to"));
}

#[test]
fn a_queue_that_is_dropped_has_written_what_it_took() {
    let named = tempfile::NamedTempFile::new().unwrap();
    let opened = OpenOptions::new().write(true).read(true).open(named.path()).unwrap();
    let Some(mut queue) = queue(opened, 64) else { return };
    for (number, mut buffer) in buffers(64).into_iter().enumerate() {
        buffer.as_mut_slice().fill(number as u8);
        queue.write((number * BYTES) as u64, buffer, 0).unwrap();
    }
    drop(queue);
    let mut found = Vec::new();
    File::open(named.path()).unwrap().read_to_end(&mut found).unwrap();
    assert_eq!(found.len(), 64 * BYTES);
    assert!(found.chunks(BYTES).enumerate().all(|(number, block)| block.iter().all(|&byte| byte == number as u8)));
}

/// A read of a pipe that nobody writes ends with its cancellation alone.
#[test]
fn a_queue_that_is_dropped_ends_what_would_never_end_and_gives_the_buffers_back() {
    let (reader, _writer) = std::io::pipe().unwrap();
    let Some(mut queue) = queue(File::from(std::os::fd::OwnedFd::from(reader)), 4) else { return };
    let pd = Pd::alloc(&mlx5_open::open("sim").unwrap()).unwrap();
    let region = ExclusiveRegion::allocate(&pd, 2 * BYTES).unwrap();
    for buffer in region.buffers(BYTES).unwrap() {
        queue.read(0, buffer, 0).unwrap();
    }
    assert!(queue.poll().unwrap().is_none());
    queue.set_patience(Duration::ZERO);
    drop((queue, region));
    Pd::destroy(pd).expect("no buffer is leaked");
}

/// A pipe has no positions, so the kernel looks at none.
#[test]
fn offsets_that_no_file_has_are_refused_with_the_buffer() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let Some(mut queue) = queue(File::from(std::os::fd::OwnedFd::from(reader)), 2) else { return };
    let mut all = buffers(1);
    for offset in [u64::MAX, u64::MAX - 100, i64::MAX as u64 - BYTES as u64 + 1] {
        let refused = queue.read(offset, all.pop().unwrap(), 1).unwrap_err();
        assert_eq!(refused.reason, RefusedReason::Offset);
        all.extend(refused.buffer);
    }
    assert_eq!(queue.zero(1, i64::MAX as u64, 1).unwrap_err().reason, RefusedReason::Offset);
    // In two pieces, the second at an offset that is still one.
    queue.read(i64::MAX as u64 - BYTES as u64, all.pop().unwrap(), 1).unwrap();
    writer.write_all(&[7; 100]).unwrap();
    assert!(queue.poll().unwrap().is_none());
    writer.write_all(&[7; BYTES - 100]).unwrap();
    let done = wait(&mut queue);
    assert!(done.result.is_ok() && done.buffer.unwrap().as_slice().iter().all(|&byte| byte == 7));
}
