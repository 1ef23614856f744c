//! Command tracing: [`Observer`]s are called with each command and each reply.
//!
//! [`KernelDump`] prints them in the format of Linux's mlx5_core with debug messages on (`dyndbg=+p`), so tools for
//! kernel logs can read them. On an owned function the command queue calls the observers: they see bring-up too, and
//! the entries and mailboxes as they are in memory. [`Traced`] wraps any access; its observers see only the data.
//!
//! Each command is a span of `tracing` as well: target `mlx5_dv::command`, level DEBUG, name `command`, with the fields
//! `opcode`, `op_mod`, `object`, `status` and `micros`, the last two once the result is known.

use std::fmt;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mlx5_prm::cmd::{CommandQueueEntry, MailboxBlock, Opcode};
use mlx5_prm::decode;
use mlx5_prm::layout::Layout;

use crate::lock::lock;

mod span;
mod wrap;

pub(crate) use span::CommandSpan;
pub use wrap::Traced;

/// Direction of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To firmware.
    Input,
    /// From firmware.
    Output,
}

/// One direction of a command: input or output.
#[derive(Debug, Clone)]
pub struct CommandRecord {
    /// Command slot; 0 where the access has none.
    pub slot: usize,
    /// The opcode.
    pub opcode: Opcode,
    /// Its `op_mod`.
    pub op_mod: u16,
    /// The object that it concerns, such as `CQ 0x43`; may be empty.
    pub object: String,
    /// Input or output.
    pub direction: Direction,
    /// The slot's entry; `None` where only the data is known.
    pub entry: Option<CommandQueueEntry>,
    /// The mailbox blocks of this direction.
    pub blocks: Vec<MailboxBlock>,
    /// The input or output, assembled from entry and blocks.
    pub data: Vec<u8>,
    /// For an output: the input that it answers, needed to decode it ([`decoded`](CommandRecord::decoded)). Empty for
    /// an input.
    pub answers: Vec<u8>,
    /// Time since the command was sent; zero for an input.
    pub elapsed: Duration,
}

impl CommandRecord {
    /// Decodes the data; `None` for a command without a layout.
    pub fn decoded(&self) -> Option<decode::Dump<'_>> {
        match self.direction {
            Direction::Input => decode::command_input(&self.data),
            Direction::Output => decode::command_output_to(&self.answers, &self.data),
        }
    }
}

/// Is called for every command, on the thread that executes it and without a lock. Must not block for long.
pub trait Observer: Send + Sync {
    /// Called when a command is sent, and when its reply arrives.
    fn command(&self, record: &CommandRecord);
}

impl<F: Fn(&CommandRecord) + Send + Sync> Observer for F {
    fn command(&self, record: &CommandRecord) {
        self(record);
    }
}

/// Observers of one access.
#[derive(Clone, Default)]
pub struct Observers(Vec<Arc<dyn Observer>>);

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Observers({})", self.0.len())
    }
}

impl Observers {
    /// Adds an observer.
    pub fn push(&mut self, observer: Arc<dyn Observer>) {
        self.0.push(observer);
    }

    /// Whether there are observers.
    pub fn any(&self) -> bool {
        !self.0.is_empty()
    }

    /// Calls all observers.
    pub fn tell(&self, record: &CommandRecord) {
        for observer in &self.0 {
            observer.command(record);
        }
    }
}

/// Prints commands in the format of Linux's mlx5_core: the slot's entry, then each block with its trailer.
pub struct KernelDump<W: Write + Send> {
    device: String,
    sink: Mutex<W>,
}

impl<W: Write + Send> KernelDump<W> {
    /// Prints to `sink`. Lines name the device as `device`, such as `0000:3b:00.0`.
    pub fn new(device: impl Into<String>, sink: W) -> Self {
        KernelDump { device: device.into(), sink: Mutex::new(sink) }
    }

    /// Returns the sink.
    pub fn into_inner(self) -> W {
        self.sink.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<W: Write + Send> Observer for KernelDump<W> {
    fn command(&self, record: &CommandRecord) {
        let text = kernel_dump(&self.device, record);
        // One write per dump, so that dumps of several threads do not interleave. A failing sink loses the dump and
        // nothing else.
        let _ = lock(&self.sink).write_all(text.as_bytes());
    }
}

/// Emits the kernel's lines as `tracing` events: level DEBUG, target `mlx5_dv::command`.
#[derive(Debug, Clone)]
pub struct TracingDump {
    device: String,
}

impl TracingDump {
    /// Lines name the device as `device`.
    pub fn new(device: impl Into<String>) -> Self {
        TracingDump { device: device.into() }
    }
}

impl Observer for TracingDump {
    fn command(&self, record: &CommandRecord) {
        if tracing::enabled!(target: "mlx5_dv::command", tracing::Level::DEBUG) {
            for line in kernel_dump(&self.device, record).lines() {
                tracing::debug!(target: "mlx5_dv::command", "{line}");
            }
        }
    }
}

/// Formats a command as the kernel does.
pub fn kernel_dump(device: &str, record: &CommandRecord) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = dump(&mut text, device, record);
    text
}

/// Kernel messages start with function, line and process. The line numbers are those of Linux 6.12: log parsers expect
/// a number there, and do not interpret it.
fn say(out: &mut dyn fmt::Write, device: &str, line: u32, what: fmt::Arguments<'_>) -> fmt::Result {
    let pid = std::process::id();
    writeln!(out, "mlx5_core {device}: dump_command:{line}:(pid {pid}): {what}")
}

fn dump(out: &mut dyn fmt::Write, device: &str, record: &CommandRecord) -> fmt::Result {
    let slot = record.slot;
    let way = match record.direction {
        Direction::Input => "INPUT",
        Direction::Output => "OUTPUT",
    };
    let name = record.opcode.prm_name().unwrap_or("unknown command opcode");
    let number = record.opcode.number();
    let mut offset = 0;
    say(out, device, 879, format_args!("cmd[{slot}]: start dump"))?;
    match &record.entry {
        Some(entry) => {
            say(out, device, 888, format_args!("cmd[{slot}]: dump command {name}({number:#x}) {way}"))?;
            dump_words(out, slot, &mut offset, entry.as_bytes())?;
            writeln!(out)?;
            for block in &record.blocks {
                say(out, device, 913, format_args!("cmd[{slot}]: command block:"))?;
                dump_words(out, slot, &mut offset, block.as_bytes())?;
                writeln!(out)?;
            }
        }
        None => {
            say(out, device, 883, format_args!("cmd[{slot}]: dump command data {name}({number:#x}) {way}"))?;
            dump_words(out, slot, &mut offset, &record.data)?;
            writeln!(out)?;
        }
    }
    say(out, device, 924, format_args!("cmd[{slot}]: end dump"))
}

/// Four dwords a line, the last one zero-padded. The offset continues over the blocks.
fn dump_words(out: &mut dyn fmt::Write, slot: usize, offset: &mut usize, bytes: &[u8]) -> fmt::Result {
    for part in bytes.chunks(16) {
        let mut line = [0; 16];
        line[..part.len()].copy_from_slice(part);
        let word = |i: usize| u32::from_be_bytes([line[i], line[i + 1], line[i + 2], line[i + 3]]);
        let (a, b, c, d) = (word(0), word(4), word(8), word(12));
        writeln!(out, "cmd[{slot}]: {:03x}: {a:08x} {b:08x} {c:08x} {d:08x}", *offset)?;
        *offset += 16;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_alone_looks_like_the_kernels_own_too() {
        let record = CommandRecord {
            slot: 0,
            opcode: Opcode::AllocPd,
            op_mod: 0,
            object: String::new(),
            direction: Direction::Output,
            entry: None,
            blocks: vec![],
            data: vec![0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x21],
            answers: vec![],
            elapsed: Duration::ZERO,
        };
        let text = kernel_dump("0000:08:00.0", &record);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].ends_with("): cmd[0]: dump command data ALLOC_PD(0x800) OUTPUT"));
        assert_eq!(lines[2], "cmd[0]: 000: 00000000 00000000 00000021 00000000");
        assert_eq!((lines[3], lines.len()), ("", 5));
    }

    #[test]
    fn looks_like_the_kernels_own() {
        let mut entry = CommandQueueEntry::default();
        entry.w().input_length(16).token(0x42).ownership(true);
        let record = CommandRecord {
            slot: 3,
            opcode: Opcode::EnableHca,
            op_mod: 0,
            object: String::new(),
            direction: Direction::Input,
            entry: Some(entry),
            blocks: vec![MailboxBlock::ZERO],
            data: vec![],
            answers: vec![],
            elapsed: Duration::ZERO,
        };
        let text = kernel_dump("0000:08:00.0", &record);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("mlx5_core 0000:08:00.0: dump_command:879:(pid "), "{}", lines[0]);
        assert!(lines[0].ends_with("): cmd[3]: start dump"));
        assert!(lines[1].ends_with("): cmd[3]: dump command ENABLE_HCA(0x104) INPUT"));
        assert_eq!(lines[2], "cmd[3]: 000: 07000000 00000010 00000000 00000000");
        assert_eq!(lines[5], "cmd[3]: 030: 00000000 00000000 00000000 42000001");
        assert_eq!(lines[6], "");
        assert!(lines[7].ends_with("cmd[3]: command block:"));
        assert_eq!(lines[8], "cmd[3]: 040: 00000000 00000000 00000000 00000000");
        assert_eq!(lines[8 + 35], "cmd[3]: 270: 00000000 00000000 00000000 00000000");
        assert!(lines.last().is_some_and(|line| line.ends_with("cmd[3]: end dump")));
    }
}
