//! From lines to dumps: which bytes belong to which command, when several are printed at once.

use super::line::{Direction, Line, What};

/// The most bytes of a dump that are kept.
pub const MAX_DUMP: usize = 1 << 20;
/// How many dumps may be open at once: more than a device has slots.
const MAX_OPEN: usize = 40;
/// Bytes of a command queue entry.
pub(super) const ENTRY: usize = 0x40;
/// Bytes of a mailbox block with its trailer.
pub(super) const BLOCK: usize = 0x240;

/// One direction of a command, as far as the log has it.
#[derive(Debug, Clone)]
pub struct Dump {
    /// The line that announced it.
    pub line: u64,
    /// The line of its last bytes.
    pub last: u64,
    /// The device.
    pub device: Option<String>,
    /// The command slot, where the driver says.
    pub slot: Option<u32>,
    /// The driver's name of the command.
    pub name: String,
    /// Its number.
    pub opcode: u16,
    /// Which way.
    pub direction: Direction,
    /// The bytes are the data alone, else entry and blocks.
    pub data_only: bool,
    /// Its dwords, those that arrived.
    pub words: Vec<Option<u32>>,
    /// Lines that name no device may be another device's.
    pub doubtful: bool,
}

impl Dump {
    /// Bytes up to the end of the last dword that arrived.
    pub fn len(&self) -> usize {
        self.words.len() * 4
    }

    /// Whether no dword arrived.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Bytes from `start` to `end`, zeros where none arrived.
    pub fn bytes(&self, start: usize, end: usize) -> Vec<u8> {
        let words = (start / 4..end / 4).map(|at| self.words.get(at).copied().flatten().unwrap_or(0));
        words.flat_map(u32::to_be_bytes).collect()
    }

    /// Whether every dword from byte `start` to `end` arrived.
    pub fn has(&self, start: usize, end: usize) -> bool {
        (start / 4..end / 4).all(|at| self.words.get(at).is_some_and(Option::is_some))
    }

    /// How many bytes entry and blocks have; `None` while the entry's lengths are not known, or if no entry is printed.
    fn expected(&self) -> Option<usize> {
        let at = match self.direction {
            Direction::Input => 0x4,
            Direction::Output => 0x38,
        };
        let known = !self.data_only && self.has(at, at + 4);
        let length = self.words.get(at / 4).copied().flatten().filter(|_| known)?;
        Some(ENTRY + blocks(length as usize) * BLOCK)
    }

    /// The opcode among the bytes at `offset`, if that is where it lies.
    fn opcode_at(&self, offset: usize, word: Option<u32>) -> Option<u16> {
        let lies_here = match (self.data_only, self.direction) {
            (false, _) => offset == 0x10,
            (true, direction) => direction == Direction::Input && offset == 0,
        };
        word.filter(|_| lies_here).map(|word| (word >> 16) as u16)
    }
}

/// How many mailbox blocks an input or output of `length` bytes takes, beside the 16 in the entry.
pub(super) fn blocks(length: usize) -> usize {
    length.saturating_sub(16).div_ceil(512)
}

/// A dump that may get more lines.
#[derive(Debug)]
struct Open {
    dump: Dump,
    pid: Option<u32>,
    caller: Option<String>,
    /// When a line was added last.
    touched: u64,
    /// Its lines say where their bytes lie.
    with_offsets: Option<bool>,
}

/// Puts dumps together.
#[derive(Debug, Default)]
pub struct Assembler {
    open: Vec<Open>,
    done: Vec<Dump>,
    stray: u64,
}

impl Assembler {
    /// The next line, and its number.
    pub fn feed(&mut self, line: &Line<'_>, number: u64) {
        match line.what {
            What::Start => self.close(|open| of_slot(open, line)),
            What::Head { .. } => self.begin(line, number),
            What::Words { offset, words } => self.add(line, number, offset, words),
            What::End => self.close(|open| of_slot(open, line)),
            What::Rung => self.close(|open| returned(open, line, Direction::Input)),
            What::Completed => self.close(|open| returned(open, line, Direction::Output)),
            What::Blank => self.blank(),
            What::Block | What::Other => {}
        }
    }

    /// The log is at its end.
    pub fn finish(&mut self) {
        self.close(|_| true);
    }

    /// The dumps that are complete, or will get no more lines.
    pub fn take_done(&mut self) -> Vec<Dump> {
        std::mem::take(&mut self.done)
    }

    /// Lines of bytes that belong to no dump.
    pub fn stray(&self) -> u64 {
        self.stray
    }

    fn close(&mut self, which: impl Fn(&Open) -> bool) {
        self.done.extend(self.open.extract_if(.., |open| which(open)).map(|open| open.dump));
    }

    fn begin(&mut self, line: &Line<'_>, number: u64) {
        let What::Head { name, opcode, direction, data_only } = line.what else { return };
        self.close(|open| of_slot(open, line) || returned(open, line, open.dump.direction));
        if self.open.len() >= MAX_OPEN {
            let oldest = self.open.iter().map(|open| open.touched).min();
            self.close(|open| Some(open.touched) == oldest);
        }
        let dump = Dump {
            line: number,
            last: number,
            device: line.device.map(str::to_owned),
            slot: line.slot,
            name: name.to_owned(),
            opcode,
            direction,
            data_only,
            words: Vec::new(),
            doubtful: false,
        };
        let caller = line.caller.map(str::to_owned);
        self.open.push(Open { dump, pid: line.pid, caller, touched: number, with_offsets: None });
    }

    /// Adds a line of bytes to the dump it continues.
    fn add(&mut self, line: &Line<'_>, number: u64, offset: Option<usize>, words: [Option<u32>; 4]) {
        let Some(chosen) = self.choose(line, offset, words[0]) else {
            self.stray += u64::from(offset.is_some());
            return;
        };
        let open = &mut self.open[chosen];
        let start = offset.unwrap_or(open.dump.len()) / 4;
        open.dump.words.resize(start, None);
        open.dump.words.extend(words);
        while let Some(None) = open.dump.words.last() {
            open.dump.words.pop();
        }
        (open.touched, open.dump.last) = (number, number);
        open.with_offsets = Some(offset.is_some());
        // A driver that does not name the slot does not say either where a dump ends.
        if open.dump.slot.is_none() && open.dump.expected().is_some_and(|expected| open.dump.len() >= expected) {
            self.done.push(self.open.remove(chosen).dump);
        }
    }

    /// Which open dump a line of bytes continues. One that it continues without a gap goes before one that lacks lines
    /// then. Of several, where neither slot nor caller tells, it is the one whose opcode the line holds, or else the one
    /// that has waited longest: printers that run side by side take turns.
    fn choose(&mut self, line: &Line<'_>, offset: Option<usize>, word: Option<u32>) -> Option<usize> {
        let fits = |open: &Open| {
            (line.device.is_none() || line.device == open.dump.device.as_deref())
                && line.slot == open.dump.slot
                && (line.caller.is_none() || open.caller.is_none() || line.caller == open.caller.as_deref())
                && open.with_offsets.is_none_or(|with| with == offset.is_some())
        };
        let gap = |open: &Open| offset.unwrap_or(open.dump.len()).checked_sub(open.dump.len());
        let starts = offset.unwrap_or(0) < MAX_DUMP;
        let fitting =
            self.open.iter().enumerate().filter(|(_, open)| starts && fits(open) && open.dump.len() < MAX_DUMP);
        let mut may: Vec<(usize, usize)> = fitting.filter_map(|(at, open)| Some((at, gap(open)?))).collect();
        let smallest = may.iter().map(|(_, gap)| *gap).min()?;
        may.retain(|(_, gap)| *gap == smallest);
        let doubtful = may.len() > 1 && line.caller.is_none();
        for (at, _) in &may {
            self.open[*at].dump.doubtful |= doubtful;
        }
        let holds_opcode = |open: &Open| {
            let opcode = offset.and_then(|offset| open.dump.opcode_at(offset, word));
            opcode.is_some_and(|opcode| opcode == open.dump.opcode)
        };
        let first = may.iter().min_by_key(|(at, _)| (!holds_opcode(&self.open[*at]), self.open[*at].touched));
        first.map(|(at, _)| *at)
    }

    /// A blank line ends data printed alone by a driver that does not print `end dump`.
    fn blank(&mut self) {
        let ends = |open: &&Open| open.dump.data_only && open.dump.slot.is_none() && !open.dump.is_empty();
        let last = self.open.iter().filter(ends).map(|open| open.touched).max();
        self.close(|open| ends(&open) && Some(open.touched) == last);
    }
}

/// Whether the dump is of the slot and the device that the line names.
fn of_slot(open: &Open, line: &Line<'_>) -> bool {
    line.slot.is_some() && open.dump.slot == line.slot && open.dump.device.as_deref() == line.device
}

/// Whether the process that prints the line has printed the dump, and so is through with it. For drivers that do not name
/// the slot.
fn returned(open: &Open, line: &Line<'_>, direction: Direction) -> bool {
    open.dump.slot.is_none()
        && open.dump.direction == direction
        && open.dump.device.as_deref() == line.device
        && open.pid == line.pid
}
