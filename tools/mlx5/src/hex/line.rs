//! One line of a dump: offset and words, without log prefix and column of characters.

use std::sync::LazyLock;

use regex::Regex;

use super::digits::{digits, is_hex, separates};

/// Content of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line<'a> {
    /// `*`: the line before it repeats.
    Repeat {
        /// The line's number, from 1.
        number: usize,
    },
    /// Words.
    Row(Row<'a>),
}

/// A line with words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row<'a> {
    /// The line's number, from 1.
    pub number: usize,
    /// The offset, where a colon marks it; with `0x` an address.
    pub offset: Option<&'a str>,
    /// The words; without a marked offset the first may be one.
    pub words: Vec<&'a str>,
    /// Whether several blanks follow the first word.
    pub gap: bool,
}

/// An offset or address with its colon, gdb's symbol between them.
static OFFSET: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?:^|\s)(?<offset>(?:0x)?[0-9a-fA-F]{3,16})(?:\s+<[^<>]*>)?:\s+").expect("a regex"));

/// What logs print before a message: priority, date and host, time, caller, the driver's place, a name.
static PREFIX: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(concat!(
        r"^\s*(?:<\d+>)?",
        r"(?:[A-Z][a-z]{2} +\d+ [\d:]{8} \S+ \S+: |\d{4}-\d\d-\d\d[T ]\S+ \S+ \S+: )?",
        r"(?:\[(?:\s*\d+\.\d+|\s*[TC]\d+|[A-Z][a-z]{2} [^\[\]]*)\]\s*)*",
        r"(?:(?:infiniband|mlx5_core) \S+:\s+)?",
        r"(?:\S+:\(pid \d+\):\s*)?",
        r"(?:[A-Za-z_][\w.\[\]-]*:\s+)*",
    ))
    .expect("a regex")
});

/// The lines of a text that hold bytes, and `*`. Headings, which do not begin with hex, are left out
/// where they stand before all bytes.
pub fn lines(text: &str) -> Vec<Line<'_>> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    let several = text.trim().lines().count() > 1;
    for (at, text) in text.lines().enumerate() {
        let Some(line) = line(text, at + 1) else { continue };
        let heading = match &line {
            Line::Row(row) => several && !row.words.first().is_some_and(|word| is_hex(word.trim_start_matches("0x"))),
            Line::Repeat { .. } => false,
        };
        if !(heading && lines.is_empty()) {
            lines.push(line);
        }
    }
    lines
}

fn line(text: &str, number: usize) -> Option<Line<'_>> {
    if let Some((offset, rest)) = marked(text) {
        // xxd, DPDK and kernels separate their column of characters by two blanks or more.
        let rest = rest.split("  ").next().unwrap_or(rest);
        return Some(Line::Row(Row { number, offset: Some(offset), words: words(before_column(rest)), gap: false }));
    }
    let rest = PREFIX.find(text).map_or(text, |prefix| &text[prefix.end()..]);
    if rest.trim() == "*" {
        return Some(Line::Repeat { number });
    }
    let (words, gap) = bare(before_column(rest));
    (!words.is_empty()).then_some(Line::Row(Row { number, offset: None, words, gap }))
}

/// The offset that a colon marks, and what follows it. A log's prefix may hold words that look like one.
fn marked(text: &str) -> Option<(&str, &str)> {
    let mut start = 0;
    while let Some(found) = OFFSET.captures_at(text, start) {
        let (whole, offset) = (found.get(0)?, found.name("offset")?);
        let rest = &text[whole.end()..];
        let again = OFFSET.find(rest).is_some_and(|found| found.start() == 0);
        if !again && rest.split(separates).next().is_some_and(|word| digits(word).is_some()) {
            return Some((offset.as_str(), rest));
        }
        start = offset.end();
    }
    None
}

/// Whether a line begins as a row of a dump does: with a marked offset, or with two words of hex.
pub fn begins_a_row(text: &str) -> bool {
    let mut words = text.split_whitespace();
    let is_word = |word: &str| word.len() > 1 && is_hex(word);
    marked(text).is_some() || words.next().is_some_and(is_word) && words.next().is_some_and(is_word)
}

/// The line without hexdump's, DPDK's and od's column of characters.
fn before_column(line: &str) -> &str {
    let ends = [line.find('|'), line.trim_end().ends_with('<').then(|| line.find("  >")).flatten()];
    &line[..ends.into_iter().flatten().min().unwrap_or(line.len())]
}

fn words(text: &str) -> Vec<&str> {
    text.split(separates).filter(|word| !word.is_empty()).collect()
}

/// The words of a line without a marked offset, and whether several blanks follow the first one.
fn bare(text: &str) -> (Vec<&str>, bool) {
    let text = text.trim();
    let first = text.split_whitespace().next().unwrap_or_default();
    let rest = &text[first.len()..];
    let gap = rest.starts_with("  ");
    // Wireshark separates its column of characters from its pairs by three blanks.
    let of_pairs = rest.split_whitespace().next().is_some_and(|word| word.len() == 2);
    let end = rest.trim_start().find("   ").filter(|_| of_pairs && is_hex(first));
    let end = end.map_or(text.len(), |end| text.len() - rest.trim_start().len() + end);
    let mut all = Vec::new();
    for word in words(&text[..end]).into_iter().filter(|word| *word != "\\") {
        // `\x00\x01` of a string.
        match word.strip_prefix("\\x") {
            Some(escaped) => all.extend(escaped.split("\\x")),
            None => all.push(word),
        }
    }
    (all, gap)
}

/// The lines of a dump that a shell has joined into one.
pub fn joined(text: &str) -> Option<Vec<Line<'_>>> {
    let mut lines = text.trim().lines();
    let (text, None) = (lines.next()?, lines.next()) else { return None };
    let tokens: Vec<&str> = text.split_whitespace().collect();
    let width = tokens.iter().find(|token| is_hex(token)).map_or(0, |token| token.len());
    let by_colon = tokens.iter().filter(|token| marks(token)).count() > 1;
    let begins = |token: &&str| match by_colon {
        true => marks(token),
        false => token.len() == width && is_hex(token),
    };
    let starts: Vec<usize> = (0..tokens.len()).filter(|at| begins(&tokens[*at])).collect();
    let few = by_colon || (width >= 6 && tokens.get(1).is_some_and(|second| second.len() != width));
    if starts.len() < 2 || !few {
        return None;
    }
    let limit = row_bytes(tokens[starts[0]], tokens[starts[1]]).filter(|_| by_colon).unwrap_or(16);
    let mut lines = Vec::new();
    for (at, start) in starts.iter().enumerate() {
        let end = starts.get(at + 1).copied().unwrap_or(tokens.len());
        let number = 1;
        let (words, repeats) = row_words(&tokens[start + 1..end], limit);
        lines.push(Line::Row(match by_colon {
            true => Row { number, offset: Some(tokens[*start].trim_end_matches(':')), words, gap: false },
            false => Row { number, offset: None, words: [&tokens[*start..=*start], &words].concat(), gap: true },
        }));
        lines.extend(repeats.then_some(Line::Repeat { number }));
    }
    Some(lines)
}

fn marks(token: &str) -> bool {
    let offset = token.strip_suffix(':').map(|token| token.trim_start_matches("0x"));
    offset.is_some_and(|offset| offset.len() >= 3 && is_hex(offset))
}

fn row_bytes(one: &str, next: &str) -> Option<usize> {
    let number = |token: &str| usize::from_str_radix(token.trim_end_matches(':').trim_start_matches("0x"), 16).ok();
    number(next)?.checked_sub(number(one)?).filter(|bytes| *bytes > 0)
}

/// The words of a row of `limit` bytes, without the characters after them; and whether `*` follows.
fn row_words<'a>(tokens: &[&'a str], limit: usize) -> (Vec<&'a str>, bool) {
    let mut left = limit;
    let mut words = Vec::new();
    for token in tokens {
        // Octal words have three digits a byte.
        let bytes = match (digits(token), token.len()) {
            (_, 3) => 1,
            (Some(_), 6) => 2,
            (Some(digits), _) => digits.len() / 2,
            (None, _) => break,
        };
        let Some(rest) = left.checked_sub(bytes) else { break };
        left = rest;
        words.push(*token);
    }
    (words, tokens.last() == Some(&"*"))
}
