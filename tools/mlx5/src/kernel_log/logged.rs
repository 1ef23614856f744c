//! The commands of a log, for programs that need their bytes.

use std::io;
use std::ops::Range;

use super::line::{self, Direction, What};
use super::pair::Event;
use super::whole::{Outcome, Whole, notes};
use super::{Error, each};

/// A command, as far as it is in the log.
#[derive(Debug)]
pub struct Logged {
    /// The bytes of its input, with zeros for missing ones; empty if the log has no input.
    pub input: Vec<u8>,
    /// Inconsistencies of its entry and blocks, and missing parts.
    pub notes: Vec<String>,
    /// Whether the input is complete.
    pub whole: bool,
    /// Its outcome.
    pub outcome: Outcome,
    /// First and last line of its input, then of its output, from 1.
    lines: Vec<(u64, u64)>,
}

impl Logged {
    /// Its first line, from 1.
    pub fn line(&self) -> u64 {
        self.lines.first().map_or(0, |(first, _)| *first)
    }

    /// The lines of its input, then of its output, from 1; between them may be those of others.
    pub fn lines(&self) -> impl Iterator<Item = Range<usize>> {
        self.lines.iter().map(|(first, last)| *first as usize..*last as usize + 1)
    }

    fn of(whole: &Whole<'_>) -> Logged {
        let mut logged =
            Logged { input: Vec::new(), notes: Vec::new(), whole: false, outcome: whole.outcome(), lines: Vec::new() };
        for (dump, message, way) in whole.messages() {
            logged.lines.push((dump.line, dump.last));
            if way == Direction::Input {
                logged.input = message.data.clone();
                logged.notes = notes(dump, message);
                logged.whole = message.missing.is_empty();
            }
        }
        if logged.input.is_empty() && !whole.header().is_empty() {
            logged.input = whole.header().to_vec();
            logged
                .notes
                .push("its input is not in the log, but for the first bytes, which the output's entry holds".into());
        }
        logged
    }
}

/// Whether a line of a log has bytes of a command.
pub fn has_bytes(line: &str) -> bool {
    matches!(line::recognise(line).what, What::Words { .. })
}

/// The commands in `log`, in order of their ends.
pub fn commands(log: &str) -> Vec<Logged> {
    let mut found = Vec::new();
    let read = each(io::Cursor::new(log), &mut |event| {
        if let Event::Done(command) = event {
            found.push(Logged::of(&Whole::of(command)));
        }
        Ok::<(), Error>(())
    });
    // Reading from memory cannot fail.
    read.map_or(Vec::new(), |_| found)
}
