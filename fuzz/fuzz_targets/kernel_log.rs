//! An arbitrary kernel log: it is decoded to its end, with the same result however it is read.
//!
//! Input that begins as text is used as the log. Other input selects commands to print, the drivers that print them,
//! and how their lines are interleaved, lost and broken, as random data would never reach the decoding of fields.

#![no_main]

#[path = "../../tools/mlx5/tests/printed/mod.rs"]
mod printed;

use std::io::BufReader;

use libfuzzer_sys::fuzz_target;
use mlx5_prm::cmd::Opcode;
use mlx5_tools::kernel_log::{Options, Summary, commands, decode};
use printed::{Driver, Exchange, lines};

fuzz_target!(|bytes: &[u8]| {
    let (Some(&first), Some(&last)) = (bytes.first(), bytes.last()) else { return };
    let log = match first {
        0..=6 => Script { bytes: &bytes[1..] }.log(first.into()),
        _ => bytes.to_vec(),
    };
    let all = last & 1 != 0;
    let opcodes = if last & 8 != 0 { vec![0x400] } else { Vec::new() };
    as_text(&log, &Options { all, failed: last & 4 != 0, opcodes, ..Options::default() });
    as_json(&log, &Options { all, json: true, ..Options::default() });
});

fn decoded(log: &[u8], options: &Options) -> (Vec<u8>, Summary) {
    let mut out = Vec::new();
    let summary = decode(log, &mut out, options).expect("memory");
    (out, summary)
}

fn as_text(log: &[u8], options: &Options) {
    let (out, _) = decoded(log, options);
    std::str::from_utf8(&out).expect("UTF-8, whatever the log is");
}

/// The same commands as one line each, for programs, and as bytes; in one piece and in many.
fn as_json(log: &[u8], options: &Options) {
    let (out, summary) = decoded(log, options);
    let told: Vec<&[u8]> = out.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
    assert_eq!(told.len() as u64, summary.commands);
    for line in told {
        serde_json::from_slice::<serde_json::Value>(line).expect("JSON");
    }
    let unfinished = log.last().is_some_and(|byte| *byte != b'\n');
    let ends = log.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(summary.lines, ends as u64 + u64::from(unfinished));
    assert!(summary.failed + summary.unanswered <= summary.commands);

    let mut again = Vec::new();
    let in_pieces = decode(BufReader::with_capacity(7, log), &mut again, options).expect("memory");
    assert_eq!((in_pieces, again), (summary, out));
    if let Ok(text) = std::str::from_utf8(log) {
        assert_eq!(commands(text).len() as u64, summary.commands);
    }
}

const DEVICES: [&str; 2] = ["0000:3b:00.0", "mlx5_core.sf.4"];

/// What is printed, and how it is damaged.
struct Script<'a> {
    bytes: &'a [u8],
}

impl Script<'_> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    /// `count` printers and one more, with interleaved lines.
    fn log(mut self, count: usize) -> Vec<u8> {
        let mut printers: Vec<_> = (0..=count).map_while(|number| self.printer(number as u32)).collect();
        let mut log = Vec::new();
        while let Some(fate) = self.next() {
            let at = usize::from(fate & 7) % printers.len().max(1);
            let Some(lines) = printers.get_mut(at) else { break };
            let lines: Vec<String> = lines.drain(..lines.len().min(1 + usize::from(fate >> 6) * 5)).collect();
            lines.iter().for_each(|line| self.befalls(line, fate >> 3 & 7, &mut log));
        }
        let rest = printers.into_iter().flatten();
        rest.for_each(|line| log.extend((line + "\n").into_bytes()));
        log
    }

    /// The lines of one command: driver, opcode, where it runs, lengths, then its bytes; missing ones are zero.
    fn printer(&mut self, number: u32) -> Option<Vec<String>> {
        let driver = Driver::ALL[usize::from(self.next()?) % Driver::ALL.len()];
        let opcode = Opcode::ALL[usize::from(self.next()?) % Opcode::ALL.len()];
        let place = self.next()?;
        let mut input = self.part(16)?;
        input[..2].copy_from_slice(&(opcode.number() as u16).to_be_bytes());
        let output = self.part(8)?;
        let slot = if place & 2 != 0 { number } else { 0 };
        Some(lines(&Exchange::new(opcode, input, output), driver, DEVICES[usize::from(place & 1)], slot))
    }

    fn part(&mut self, least: usize) -> Option<Vec<u8>> {
        let (given, length) = (usize::from(self.next()?), usize::from(self.next()?) * 8);
        let (bytes, rest) = self.bytes.split_at(given.min(self.bytes.len()));
        self.bytes = rest;
        let mut part = bytes.to_vec();
        part.resize(length.max(least), 0);
        Some(part)
    }

    /// Writes a line to the log, possibly damaged.
    fn befalls(&mut self, line: &str, fate: u8, log: &mut Vec<u8>) {
        let cut = |at: u8| line.floor_char_boundary(usize::from(at).min(line.len()));
        match fate {
            0 => log.extend(line.bytes()),
            1 => log.extend(format!("[   12.345678][  T{}] {line}", 1 + line.len() % 2).bytes()),
            2 => return,
            3 => log.extend(format!("{line}\n{line}").bytes()),
            4 => log.extend(&line.as_bytes()[..cut(self.next().unwrap_or(0))]),
            5 => {
                let (start, end) = line.split_at(cut(self.next().unwrap_or(0)));
                log.extend(format!("> {start}\n> {end}").bytes());
            }
            6 => log.extend(format!("usb 1-1: another\n{line}\r").bytes()),
            _ => {
                let at = log.len() + usize::from(self.next().unwrap_or(0)) % (line.len() + 1);
                log.extend(line.bytes());
                log.insert(at, self.next().unwrap_or(0));
            }
        }
        log.push(b'\n');
    }
}
