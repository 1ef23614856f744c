//! MSI-X: table, pending bits, and the eventfds used instead of messages. PCI Local Bus 3.0, 6.8.2.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Bytes of a table entry: address, data, vector control.
const ENTRY: usize = 16;
/// Byte of an entry whose bit 0 masks it.
const CONTROL: usize = 12;

#[derive(Debug)]
struct Vector {
    entry: [u8; ENTRY],
    pending: bool,
    eventfd: Option<File>,
}

impl Vector {
    fn new() -> Self {
        let mut entry = [0; ENTRY];
        entry[CONTROL] = 1;
        Vector { entry, pending: false, eventfd: None }
    }

    fn masked(&self) -> bool {
        self.entry[CONTROL] & 1 != 0
    }

    /// Signals the eventfd if the vector is unmasked and has one, otherwise sets its pending bit.
    fn deliver(&mut self) {
        let Some(eventfd) = self.eventfd.as_mut().filter(|_| self.entry[CONTROL] & 1 == 0) else { return };
        self.pending = false;
        // A client that never reads can fill the counter. The device must not block then; the client is signaled
        // anyway.
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut room = [PollFd::new(eventfd, PollFlags::OUT)];
        if poll(&mut room, Some(&zero)) == Ok(0) {
            return;
        }
        if let Err(error) = eventfd.write_all(&1u64.to_ne_bytes()) {
            tracing::warn!("interrupt lost: {error}");
        }
    }
}

#[derive(Debug)]
pub(super) struct Msix {
    vectors: Vec<Vector>,
}

impl Msix {
    pub(super) fn new(count: u16) -> Self {
        Msix { vectors: (0..count).map(|_| Vector::new()).collect() }
    }

    pub(super) fn len(&self) -> u16 {
        self.vectors.len() as u16
    }

    pub(super) fn is_pending(&self, vector: u16) -> bool {
        self.vectors.get(usize::from(vector)).is_some_and(|vector| vector.pending)
    }

    pub(super) fn is_connected(&self) -> bool {
        self.vectors.iter().any(|vector| vector.eventfd.is_some())
    }

    /// Triggers a vector. `open`: MSI-X is enabled and the function not masked.
    pub(super) fn raise(&mut self, vector: u16, open: bool) {
        let Some(vector) = self.vectors.get_mut(usize::from(vector)) else {
            tracing::debug!("interrupt on vector {vector}, which does not exist");
            return;
        };
        vector.pending = true;
        if open {
            vector.deliver();
        }
    }

    pub(super) fn deliver_pending(&mut self) {
        self.vectors.iter_mut().filter(|vector| vector.pending && !vector.masked()).for_each(Vector::deliver);
    }

    pub(super) fn connect(&mut self, vector: u16, eventfd: Option<File>) {
        if let Some(vector) = self.vectors.get_mut(usize::from(vector)) {
            vector.entry[CONTROL] = u8::from(eventfd.is_none());
            vector.eventfd = eventfd;
        }
    }

    pub(super) fn disconnect(&mut self) {
        self.vectors.iter_mut().for_each(|vector| *vector = Vector::new());
    }

    pub(super) fn set_masked(&mut self, vector: u16, masked: bool) {
        if let Some(vector) = self.vectors.get_mut(usize::from(vector)) {
            vector.entry[CONTROL] = u8::from(masked);
        }
    }

    /// Resets the table and the pending bits; vectors with an eventfd are unmasked.
    pub(super) fn reset(&mut self) {
        for vector in &mut self.vectors {
            let eventfd = vector.eventfd.take();
            *vector = Vector::new();
            vector.entry[CONTROL] = u8::from(eventfd.is_none());
            vector.eventfd = eventfd;
        }
    }

    pub(super) fn table_read(&self, offset: u64, bytes: &mut [u8]) {
        for (at, byte) in (offset as usize..).zip(bytes) {
            *byte = self.vectors.get(at / ENTRY).map_or(0, |vector| vector.entry[at % ENTRY]);
        }
    }

    pub(super) fn table_write(&mut self, offset: u64, bytes: &[u8]) {
        for (at, byte) in (offset as usize..).zip(bytes) {
            let Some(vector) = self.vectors.get_mut(at / ENTRY) else { return };
            match at % ENTRY {
                CONTROL => vector.entry[CONTROL] = byte & 1,
                // The other bytes of vector control are reserved.
                rest if rest > CONTROL => {}
                data => vector.entry[data] = *byte,
            }
        }
    }

    pub(super) fn pba_read(&self, offset: u64, bytes: &mut [u8]) {
        for (at, byte) in (offset as usize..).zip(bytes) {
            let vectors = self.vectors.iter().skip(at * 8).take(8).enumerate();
            *byte = vectors.fold(0, |bits, (bit, vector)| bits | u8::from(vector.pending) << bit);
        }
    }
}

/// Whether a descriptor is an eventfd.
pub(super) fn is_eventfd(file: &File) -> bool {
    let link = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    std::fs::read_link(link).is_ok_and(|target| target.to_string_lossy().contains("[eventfd]"))
}
