//! Captures in the classic pcap format.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::Frame;
use crate::lock::lock;

/// Magic number of a capture with nanosecond timestamps.
const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const LINKTYPE_ETHERNET: u32 = 1;
const SNAPLEN: u32 = 65535;

/// Writes frames to a pcap file. Stops after the first write error.
pub struct PcapWriter {
    out: Box<dyn Write + Send>,
    frame: Vec<u8>,
    failed: Option<io::Error>,
}

impl fmt::Debug for PcapWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PcapWriter").field("failed", &self.failed).finish_non_exhaustive()
    }
}

impl PcapWriter {
    /// Starts a capture. Buffer `out` if it is a file.
    pub fn new(mut out: impl Write + Send + 'static) -> io::Result<Self> {
        out.write_all(&MAGIC_NANOSECONDS.to_le_bytes())?;
        out.write_all(&2u16.to_le_bytes())?;
        out.write_all(&4u16.to_le_bytes())?;
        out.write_all(&[0; 8])?; // time zone, accuracy: unused by everyone
        out.write_all(&SNAPLEN.to_le_bytes())?;
        out.write_all(&LINKTYPE_ETHERNET.to_le_bytes())?;
        Ok(PcapWriter { out: Box::new(out), frame: Vec::new(), failed: None })
    }

    /// Appends a frame with the timestamp `time`: since 1970, or since the start of a world.
    pub fn write(&mut self, time: Duration, frame: &Frame) {
        if self.failed.is_some() {
            return;
        }
        self.frame.clear();
        frame.encode(&mut self.frame);
        let len = self.frame.len() as u32;
        let mut header = [0; 16];
        header[0..4].copy_from_slice(&(time.as_secs() as u32).to_le_bytes());
        header[4..8].copy_from_slice(&time.subsec_nanos().to_le_bytes());
        header[8..12].copy_from_slice(&len.to_le_bytes());
        header[12..16].copy_from_slice(&len.to_le_bytes());
        if let Err(error) = self.out.write_all(&header).and_then(|()| self.out.write_all(&self.frame)) {
            tracing::warn!(target: "mlx5_sim::wire", "capture ends: {error}");
            self.failed = Some(error);
        }
    }

    /// Flushes the capture. Returns the error that ended it, if any.
    pub fn flush(&mut self) -> io::Result<()> {
        self.failed.take().map_or_else(|| self.out.flush(), Err)
    }
}

/// A capture that the ports of a card share, by the card's clock.
#[derive(Debug, Clone)]
pub struct Capture {
    writer: Arc<Mutex<PcapWriter>>,
    /// When it began.
    begin: Instant,
    /// The stamp of a frame at that moment.
    first: Duration,
}

impl Capture {
    /// A capture that begins at `begin` of the card's clock. A frame of that moment is stamped with `first`.
    pub fn new(writer: PcapWriter, begin: Instant, first: Duration) -> Self {
        Capture { writer: Arc::new(Mutex::new(writer)), begin, first }
    }

    /// Appends a frame that passes at `now` of the card's clock.
    pub(crate) fn write(&self, now: Instant, frame: &Frame) {
        let time = self.first + now.saturating_duration_since(self.begin);
        lock(&self.writer).write(time, frame);
    }
}
