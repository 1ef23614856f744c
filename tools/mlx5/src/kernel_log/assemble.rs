//! Assembles lines into dumps, also when several commands are printed at once.

use super::line::{Direction, Line, What};

/// Maximum size of a dump in bytes; the rest is dropped.
pub const MAX_DUMP: usize = 1 << 20;
/// Maximum number of open dumps: more than a device has command slots.
const MAX_OPEN: usize = 40;
/// Bytes of a command queue entry.
pub(super) const ENTRY: usize = 0x40;
/// Bytes of a mailbox block with its trailer.
pub(super) const BLOCK: usize = 0x240;

/// One direction of a command, as far as it is in the log.
#[derive(Debug, Clone)]
pub struct Dump {
    /// Line number of its heading.
    pub line: u64,
    /// Line number of its last bytes.
    pub last: u64,
    /// The device.
    pub device: Option<String>,
    /// The command slot, if the driver prints it.
    pub slot: Option<u32>,
    /// The driver's name of the command.
    pub name: String,
    /// Opcode.
    pub opcode: u16,
    /// Direction.
    pub direction: Direction,
    /// Whether the bytes are data only, without entry and blocks.
    pub data_only: bool,
    /// Its dwords; `None` for missing ones.
    pub words: Vec<Option<u32>>,
    /// Lines without a device name may belong to another device.
    pub doubtful: bool,
}

impl Dump {
    /// Bytes up to the last known dword.
    pub fn len(&self) -> usize {
        self.words.len() * 4
    }

    /// Whether no dword is known.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Bytes from `start` to `end`, with zeros for missing ones.
    pub fn bytes(&self, start: usize, end: usize) -> Vec<u8> {
        let words = (start / 4..end / 4).map(|at| self.words.get(at).copied().flatten().unwrap_or(0));
        words.flat_map(u32::to_be_bytes).collect()
    }

    /// Whether all dwords from byte `start` to `end` are known.
    pub fn has(&self, start: usize, end: usize) -> bool {
        (start / 4..end / 4).all(|at| self.words.get(at).is_some_and(Option::is_some))
    }

    /// Size of entry and blocks in bytes; `None` if the entry's lengths are unknown, or no entry is printed.
    fn expected(&self) -> Option<usize> {
        let at = match self.direction {
            Direction::Input => 0x4,
            Direction::Output => 0x38,
        };
        let known = !self.data_only && self.has(at, at + 4);
        let length = self.words.get(at / 4).copied().flatten().filter(|_| known)?;
        Some(ENTRY + blocks(length as usize) * BLOCK)
    }

    /// The opcode in the bytes at `offset`, if it lies there.
    fn opcode_at(&self, offset: usize, word: Option<u32>) -> Option<u16> {
        let lies_here = match (self.data_only, self.direction) {
            (false, _) => offset == 0x10,
            (true, direction) => direction == Direction::Input && offset == 0,
        };
        word.filter(|_| lies_here).map(|word| (word >> 16) as u16)
    }
}

/// Number of mailbox blocks for an input or output of `length` bytes, of which 16 are in the entry.
pub(super) fn blocks(length: usize) -> usize {
    length.saturating_sub(16).div_ceil(512)
}

/// An open dump: more lines may follow.
#[derive(Debug)]
struct Open {
    dump: Dump,
    pid: Option<u32>,
    caller: Option<String>,
    /// Line number of the last addition.
    touched: u64,
    /// Whether its lines have offsets.
    with_offsets: Option<bool>,
}

/// Assembles dumps.
#[derive(Debug, Default)]
pub struct Assembler {
    open: Vec<Open>,
    done: Vec<Dump>,
    stray: u64,
}

impl Assembler {
    /// Processes a line with its number.
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

    /// Ends the log.
    pub fn finish(&mut self) {
        self.close(|_| true);
    }

    /// Returns the dumps that will get no more lines.
    pub fn take_done(&mut self) -> Vec<Dump> {
        std::mem::take(&mut self.done)
    }

    /// Number of hex lines that belong to no dump.
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

    /// Adds a hex line to the dump that it continues.
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
        // A driver that does not print the slot does not print the end of dumps either.
        if open.dump.slot.is_none() && open.dump.expected().is_some_and(|expected| open.dump.len() >= expected) {
            self.done.push(self.open.remove(chosen).dump);
        }
    }

    /// Finds the open dump that a hex line continues. Prefers one without a gap. Among several that slot and caller do
    /// not distinguish, it takes the one whose opcode is in the line, else the one that has waited longest, as
    /// concurrent printers alternate.
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

    /// A blank line ends a dump of data only, if the driver does not print `end dump`.
    fn blank(&mut self) {
        let ends = |open: &&Open| open.dump.data_only && open.dump.slot.is_none() && !open.dump.is_empty();
        let last = self.open.iter().filter(ends).map(|open| open.touched).max();
        self.close(|open| ends(&open) && Some(open.touched) == last);
    }
}

/// Whether slot and device of the line match the dump.
fn of_slot(open: &Open, line: &Line<'_>) -> bool {
    line.slot.is_some() && open.dump.slot == line.slot && open.dump.device.as_deref() == line.device
}

/// Whether the process of the line printed the dump, which is then complete. For drivers that do not print the slot.
fn returned(open: &Open, line: &Line<'_>, direction: Direction) -> bool {
    open.dump.slot.is_none()
        && open.dump.direction == direction
        && open.dump.device.as_deref() == line.device
        && open.pid == line.pid
}
