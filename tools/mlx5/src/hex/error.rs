//! What reading hex results in.

/// Bytes that were read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hex {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The byte order that was assumed, where the text has words of several bytes.
    pub note: Option<String>,
}

/// Why text is not hex.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// A word that is not hex.
    #[error("line {line}: `{word}` is not hex: give pairs of hex digits, or the output of od, hexdump, xxd or gdb")]
    Word {
        /// The line, from 1.
        line: usize,
        /// The word, without control characters.
        word: String,
    },
    /// Offsets disagree with the bytes between them.
    #[error(
        "line {line}: offset {offset:#x} follows {read:#x} bytes: a line is missing, or a second dump begins; \
         give one whole dump"
    )]
    Offset {
        /// The line, from 1.
        line: usize,
        /// Its offset, relative to the first line.
        offset: u64,
        /// Bytes before it.
        read: u64,
    },
    /// A line without offset in a dump with offsets.
    #[error("line {line}: it has no offset, and the lines before it do: give one dump")]
    NoOffset {
        /// The line, from 1.
        line: usize,
    },
    /// `*` without a line before it, or an offset after it.
    #[error("line {line}: `*` stands for repeated lines, but there is no {missing} it: give the whole dump")]
    Repeat {
        /// The line, from 1.
        line: usize,
        /// What is missing.
        missing: &'static str,
    },
    /// More bytes than anything to decode has.
    #[error("line {line}: the dump exceeds {} KiB", MAX_BYTES >> 10)]
    TooLong {
        /// The line, from 1.
        line: usize,
    },
    /// No hex digits.
    #[error("no hex digits: give them as arguments, in a file or on stdin")]
    Empty,
}

/// Maximum number of bytes, which bounds what a `*` may expand to.
pub const MAX_BYTES: usize = 1 << 20;

/// A word for an error message.
pub fn word_error(line: usize, word: &str) -> Error {
    let shown: String = word.chars().take(40).flat_map(char::escape_debug).collect();
    Error::Word { line, word: shown }
}
