//! Lines into bytes: which words are offsets, in which radix, and in which order the bytes of a word are.

use super::digits::{digits, is_hex, pairs};
use super::error::{Error, Hex, MAX_BYTES, word_error};
use super::line::{Line, Row};

/// How words are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// As the bytes are in memory.
    Memory,
    /// As numbers of a little-endian host.
    Host,
}

/// A row whose offset is known to be one, or to be missing.
struct Placed<'a> {
    row: &'a Row<'a>,
    offset: Option<&'a str>,
    words: &'a [&'a str],
}

/// The bytes of a dump.
pub fn of(lines: &[Line<'_>]) -> Result<Hex, Error> {
    let rows: Vec<&Row<'_>> = lines.iter().filter_map(row).collect();
    let first = rows.first().ok_or(Error::Empty)?;
    if let Some(offset) = first.offset {
        let order = marked_order(offset, &first.words);
        return with_offsets(lines, order, 16, |row| Placed { row, offset: row.offset, words: &row.words });
    }
    if may_have_offsets(&rows) {
        let read = |radix| with_offsets(lines, Order::Host, radix, after_first);
        let (octal, decimal, hexadecimal) = (read(8), read(10), read(16));
        return match (octal, decimal, hexadecimal) {
            (Ok(hex), ..) | (_, Ok(hex), _) | (.., Ok(hex)) => Ok(hex),
            (octal, decimal, hexadecimal) => {
                let error = hexadecimal.and(decimal).and(octal);
                if looks_like_a_dump(&rows) { error } else { without_offsets(lines) }
            }
        };
    }
    without_offsets(lines)
}

/// The order of words after an offset that a colon marks. gdb's words have `0x`; crash's addresses have 16 digits, and
/// so have those of kernels that print addresses.
fn marked_order(offset: &str, words: &[&str]) -> Order {
    let of_gdb = words.first().is_some_and(|word| word.starts_with("0x"));
    if of_gdb || offset.len() == 16 { Order::Host } else { Order::Memory }
}

fn after_first<'a>(row: &'a Row<'a>) -> Placed<'a> {
    match (row.offset, row.words.split_first()) {
        (None, Some((first, words))) => Placed { row, offset: Some(first), words },
        _ => Placed { row, offset: None, words: &row.words },
    }
}

/// Whether the first words can be offsets: wider or narrower than the words after them, or set apart.
fn may_have_offsets(rows: &[&Row<'_>]) -> bool {
    let Some([first, second, ..]) = rows.first().map(|row| &row.words[..]) else { return false };
    let zero = first.bytes().all(|byte| byte == b'0');
    let apart = rows[0].gap || first.len() != second.len();
    let several = rows.len() > 1 || (zero && (rows[0].gap || first.len() >= 6));
    let plain = rows.iter().all(|row| row.words.first().is_some_and(|word| !word.starts_with("0x")));
    first.len() >= 4 && apart && several && plain
}

/// Whether offsets that contradict the bytes are a broken dump rather than data.
fn looks_like_a_dump(rows: &[&Row<'_>]) -> bool {
    let Some(first) = rows.first().and_then(|row| row.words.first()) else { return false };
    first.bytes().all(|byte| byte == b'0') && (first.len() >= 6 || rows[0].gap)
}

fn without_offsets(lines: &[Line<'_>]) -> Result<Hex, Error> {
    let (mut bytes, mut longest) = (Vec::new(), 0);
    for line in lines {
        let row = match line {
            Line::Row(row) => row,
            Line::Repeat { number } => return Err(Error::Repeat { line: *number, missing: "offset after" }),
        };
        for word in row.offset.iter().chain(&row.words) {
            let digits = digits(word).ok_or_else(|| word_error(row.number, word))?;
            longest = longest.max(digits.len());
            bytes.extend(pairs(digits));
        }
        if bytes.len() > MAX_BYTES {
            return Err(Error::TooLong { line: row.number });
        }
    }
    // Words of two bytes may be od's without offsets; dwords are as the PRM and drivers print them.
    let note = (longest == 4).then(|| note(2, Order::Memory));
    Ok(Hex { bytes, note })
}

/// The bytes of rows whose offsets `place` tells.
fn with_offsets<'a>(
    lines: &'a [Line<'a>],
    order: Order,
    radix: u32,
    place: impl Fn(&'a Row<'a>) -> Placed<'a>,
) -> Result<Hex, Error> {
    let mut dump = Dump { bytes: Vec::new(), start: None, last: Vec::new(), repeat: None, widest: 1, order };
    for line in lines {
        match line {
            Line::Repeat { number } if dump.last.is_empty() => {
                return Err(Error::Repeat { line: *number, missing: "line before" });
            }
            Line::Repeat { number } => dump.repeat = Some(*number),
            Line::Row(row) => dump.add(&place(row), radix)?,
        }
    }
    match (dump.repeat, dump.bytes.is_empty()) {
        (Some(line), _) => Err(Error::Repeat { line, missing: "offset after" }),
        (None, true) => Err(Error::Empty),
        (None, false) => {
            // Eight digits are print_hex_dump's, whose wider groups are host numbers, and xxd's, whose groups are not.
            let is_unsure = |row: &Row<'_>| row.offset.is_some_and(|offset| offset.len() == 8);
            let unsure = matches!(dump.widest, 4 | 8) && lines.iter().filter_map(row).any(is_unsure);
            let is_said = dump.widest > 1 && (order == Order::Host || unsure);
            let note = is_said.then(|| note(dump.widest, order));
            Ok(Hex { bytes: dump.bytes, note })
        }
    }
}

/// A dump with offsets, as far as read.
struct Dump {
    bytes: Vec<u8>,
    /// Offset of the first row.
    start: Option<u64>,
    /// Bytes of the last row.
    last: Vec<u8>,
    /// Line of a `*` whose extent is not known yet.
    repeat: Option<usize>,
    /// Bytes of the widest word.
    widest: usize,
    order: Order,
}

impl Dump {
    fn add(&mut self, placed: &Placed<'_>, radix: u32) -> Result<(), Error> {
        let line = placed.row.number;
        let text = placed.offset.ok_or(Error::NoOffset { line })?;
        let number = text.trim_start_matches("0x");
        let number = u64::from_str_radix(number, radix).ok().filter(|_| is_hex(number));
        let number = number.ok_or_else(|| word_error(line, text))?;
        let start = *self.start.get_or_insert(number);
        let offset = number.checked_sub(start);
        let disagrees = |read: usize| Error::Offset { line, offset: offset.unwrap_or(number), read: read as u64 };
        let target =
            offset.and_then(|offset| usize::try_from(offset).ok()).ok_or_else(|| disagrees(self.bytes.len()))?;
        if target > MAX_BYTES {
            return Err(if self.repeat.is_some() { Error::TooLong { line } } else { disagrees(self.bytes.len()) });
        }
        if self.repeat.take().is_some() {
            while self.bytes.len() < target {
                let rest = self.last.len().min(target - self.bytes.len());
                self.bytes.extend_from_slice(&self.last[..rest]);
            }
        }
        // od and hexdump fill the last word; the offset at the end is the length.
        let filled =
            self.bytes.len().checked_sub(target).filter(|filled| placed.words.is_empty() && *filled < self.widest);
        match filled {
            Some(_) => self.bytes.truncate(target),
            None if self.bytes.len() != target => return Err(disagrees(self.bytes.len())),
            None => {}
        }
        self.last.clear();
        for word in placed.words {
            let bytes = self.word(word).ok_or_else(|| word_error(line, word))?;
            self.widest = self.widest.max(bytes.len());
            self.last.extend(bytes);
        }
        self.bytes.extend_from_slice(&self.last);
        Ok(())
    }

    /// The bytes of a word.
    fn word(&self, word: &str) -> Option<Vec<u8>> {
        if self.order == Order::Memory {
            return digits(word).map(|digits| pairs(digits).collect());
        }
        match word.len() {
            3 if is_hex(word) => u8::from_str_radix(word, 8).ok().map(|byte| vec![byte]),
            6 if is_hex(word) => Some(u16::from_str_radix(word, 8).ok()?.to_le_bytes().to_vec()),
            _ => {
                let digits = digits(word).filter(|digits| matches!(digits.len(), 2 | 4 | 8 | 16))?;
                let mut bytes: Vec<u8> = pairs(digits).collect();
                bytes.reverse();
                Some(bytes)
            }
        }
    }
}

fn note(bytes: usize, order: Order) -> String {
    match order {
        Order::Host => format!("words of {bytes} bytes, read as numbers of a little-endian host"),
        Order::Memory => format!("words of {bytes} bytes, read as printed; `od -t x1` leaves no doubt"),
    }
}

fn row<'a, 'b>(line: &'b Line<'a>) -> Option<&'b Row<'a>> {
    match line {
        Line::Row(row) => Some(row),
        Line::Repeat { .. } => None,
    }
}
