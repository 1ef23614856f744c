//! Reads a log line by line: strips colours and invalid UTF-8, and joins lines that mail has broken.

use std::io::{self, BufRead};

use super::line;

/// Maximum length of a line in bytes; the rest is dropped.
pub const MAX_LINE: usize = 4096;

/// The lines of a log.
#[derive(Debug)]
pub struct Lines<R> {
    reader: R,
    number: u64,
    /// A line that ends before the message: the next one continues it.
    broken: Option<String>,
}

impl<R: BufRead> Lines<R> {
    /// The lines of `reader`.
    pub fn new(reader: R) -> Self {
        Lines { reader, number: 0, broken: None }
    }

    /// Number of the last line read, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The first [`MAX_LINE`] bytes of a line.
    fn read(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        let mut any = false;
        loop {
            let buffer = match self.reader.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            if buffer.is_empty() {
                return Ok(any.then_some(line));
            }
            any = true;
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let part = &buffer[..end.unwrap_or(buffer.len())];
            line.extend_from_slice(&part[..part.len().min(MAX_LINE - line.len())]);
            let used = end.map_or(buffer.len(), |end| end + 1);
            self.reader.consume(used);
            if end.is_some() {
                return Ok(Some(line));
            }
        }
    }
}

impl<R: BufRead> Iterator for Lines<R> {
    type Item = io::Result<String>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let bytes = match self.read() {
                Ok(Some(bytes)) => bytes,
                Ok(None) => return self.broken.take().map(Ok),
                Err(error) => return Some(Err(error)),
            };
            self.number += 1;
            let text = cleaned(&String::from_utf8_lossy(&bytes));
            let text = match self.broken.take() {
                Some(start) if unquoted(&text).is_empty() || start.len() > MAX_LINE => return Some(Ok(start)),
                Some(start) if !text.contains("(pid ") => format!("{start} {}", unquoted(&text)),
                _ => text,
            };
            if !line::is_broken(&text) {
                return Some(Ok(text));
            }
            self.broken = Some(text);
        }
    }
}

/// Removes the colour escapes of `dmesg`, and trailing white space.
fn cleaned(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let mut clean = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        clean.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';').get(1..).unwrap_or_default());
    }
    clean.truncate(clean.trim_end().len());
    clean
}

/// Removes quote marks of mail.
fn unquoted(text: &str) -> &str {
    text.trim_start_matches(['>', ' ', '\t'])
}
