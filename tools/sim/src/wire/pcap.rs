//! Captures in the classic pcap format, which every dissector reads.

use std::fmt;
use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use super::Frame;

/// Magic number of a capture with nanosecond timestamps.
const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const LINKTYPE_ETHERNET: u32 = 1;
const SNAPLEN: u32 = 65535;

/// Writes frames to a pcap file. After the first failed write it writes no more.
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

    /// Appends a frame, stamped with the time of day.
    pub fn write(&mut self, frame: &Frame) {
        if self.failed.is_some() {
            return;
        }
        self.frame.clear();
        frame.encode(&mut self.frame);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let len = self.frame.len() as u32;
        let mut header = [0; 16];
        header[0..4].copy_from_slice(&(now.as_secs() as u32).to_le_bytes());
        header[4..8].copy_from_slice(&now.subsec_nanos().to_le_bytes());
        header[8..12].copy_from_slice(&len.to_le_bytes());
        header[12..16].copy_from_slice(&len.to_le_bytes());
        if let Err(error) = self.out.write_all(&header).and_then(|()| self.out.write_all(&self.frame)) {
            tracing::warn!(target: "mlx5_sim::wire", "capture ends: {error}");
            self.failed = Some(error);
        }
    }

    /// Sees to it that everything captured so far is written; the error that ended the capture, if one did.
    pub fn flush(&mut self) -> io::Result<()> {
        self.failed.take().map_or_else(|| self.out.flush(), Err)
    }
}
