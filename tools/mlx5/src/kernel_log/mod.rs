//! Decodes the firmware commands that mlx5_core prints to the Linux kernel's log with debug messages enabled.
//!
//! ```
//! use mlx5_tools::kernel_log::{Options, decode};
//!
//! let log = "\
//! [   12.1] mlx5_core 0000:0a:00.1: dump_command:814:(pid 4647): cmd[0]: dump command TEARDOWN_HCA(0x103) INPUT
//! [   12.1] cmd[0]: 000: 07000000 00000010 00000000 00000000
//! [   12.1] cmd[0]: 010: 01030000 00000000 00000001 00000000
//! [   12.1] cmd[0]: 020: 00000000 00000000 00000000 00000000
//! [   12.1] cmd[0]: 030: 00000000 00000000 00000010 3fc50001
//! ";
//! let mut text = Vec::new();
//! let summary = decode(log.as_bytes(), &mut text, &Options::default())?;
//! assert_eq!((summary.commands, summary.problems), (1, 0));
//! assert!(String::from_utf8_lossy(&text).contains("profile = "));
//! # Ok::<(), mlx5_tools::kernel_log::Error>(())
//! ```
//!
//! # What the kernel prints
//! `dump_command` in `drivers/net/ethernet/mellanox/mlx5/core/cmd.c`, by version of the driver:
//!
//! | since | what |
//! | --- | --- |
//! | 3.11 | `dump command NAME(0xOP) INPUT` or `OUTPUT`; the 64 bytes of the command queue entry; before each mailbox block `command block:`, then its 576 bytes. Offsets run on over entry and blocks |
//! | 3.11 | with bit 0 of the module's `debug_mask`: `dump command data NAME(0xOP) INPUT`, then the data alone: 16 bytes of the entry, then those of the blocks |
//! | 3.11 to 4.x | blocks are printed while the *offset* (from 64, by 576) is below the message's length, so that the last one is often left out; seen in 4.12, no longer in 5.13 |
//! | 5.13 | `cmd[SLOT]: ` in front of every line, `start dump` and `end dump` around them; the same in 6.12 and 7.3 |
//!
//! A line of bytes is `OFFSET: DWORD DWORD DWORD DWORD` in all of them, the offset of at least three digits; it names
//! no device. The other lines do, in one of three ways: `DEVICE:FUNCTION:LINE:(pid PID): ` (3.11, and again in some
//! 4.x), that with `mlx5_core DEVICE: ` in front (4.1), or `mlx5_core DEVICE: FUNCTION:LINE:(pid PID): ` (some 4.x, and
//! all from 5.x to 7.3), the device being the PCI function, or `mlx5_core.sf.N` for a subfunction. The dynamic debug
//! flags `f`, `l`, `m` and `t` add prefixes to every line, as do log daemons; all of them are skipped. So are quote
//! marks and line breaks of mail.
//!
//! The entry of the `OUTPUT` dump has the first 16 bytes of the output, next to those of the input.
//!
//! # Contract
//! No input causes a panic. Memory is bounded: lines are cut at [`MAX_LINE`] bytes, dumps at [`MAX_DUMP`], and the
//! number of open dumps is limited. Commands are printed as soon as they are known, so that a live log can be followed.

mod assemble;
mod check;
mod line;
mod logged;
mod options;
mod pair;
mod print;
mod reader;
mod whole;

use std::io::{self, BufRead, Write};

use assemble::Assembler;
pub use assemble::MAX_DUMP;
pub use logged::{Logged, commands, has_bytes};
pub use options::{Options, Summary};
use pair::{Event, Pairs};
use print::Printer;
use reader::Lines;
pub use reader::MAX_LINE;
pub use whole::Outcome;

/// Why decoding stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The log cannot be read.
    #[error("cannot read the log")]
    Read(#[source] io::Error),
    /// The output cannot be written.
    #[error("cannot write")]
    Write(#[source] io::Error),
}

/// Decodes the whole log in `reader` to `writer`.
pub fn decode(reader: impl BufRead, writer: impl Write, options: &Options) -> Result<Summary, Error> {
    let mut printer = Printer::new(writer, options);
    let (lines, stray) = each(reader, &mut |event| printer.print(event).map_err(Error::Write))?;
    let summary = printer.finish().map_err(Error::Write)?;
    Ok(Summary { lines, stray, ..summary })
}

/// Tells what becomes known of each command; returns how many lines there are, and how many of them are stray.
fn each(reader: impl BufRead, tell: &mut impl FnMut(Event<'_>) -> Result<(), Error>) -> Result<(u64, u64), Error> {
    let mut lines = Lines::new(reader);
    let mut assembler = Assembler::default();
    let mut pairs = Pairs::default();
    while let Some(text) = lines.next() {
        assembler.feed(&line::recognise(&text.map_err(Error::Read)?), lines.number());
        assembler.take_done().into_iter().try_for_each(|dump| pairs.add(dump, tell))?;
    }
    assembler.finish();
    assembler.take_done().into_iter().try_for_each(|dump| pairs.add(dump, tell))?;
    pairs.finish(tell)?;
    Ok((lines.number(), assembler.stray()))
}
