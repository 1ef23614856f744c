//! Arrays of C, C++ and Go.

use std::sync::LazyLock;

use regex::Regex;

use super::digits::{is_hex, pairs, separates};
use super::error::{Error, Hex, word_error};
use super::line;

static COMMENT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(?s)/\*.*?\*/|//[^\n]*").expect("a regex"));

/// The elements between the braces of a text, if it has any.
pub fn of(text: &str) -> Option<Result<Hex, Error>> {
    let text = COMMENT.replace_all(text, |found: &regex::Captures<'_>| "\n".repeat(found[0].matches('\n').count()));
    let (before, body) = text.split_once('{')?;
    // A brace in a column of characters begins no array.
    if line::begins_a_row(before.rsplit('\n').next().unwrap_or(before)) {
        return None;
    }
    if !["0x", "0X", "0,"].iter().any(|start| body.trim_start().starts_with(start)) {
        return None;
    }
    let body = body.split('}').next().unwrap_or(body);
    let first = 1 + before.matches('\n').count();
    let lines = body.lines().enumerate();
    let words = lines.flat_map(|(at, line)| line.split(separates).map(move |word| (first + at, word)));
    Some(bytes(words.filter(|(_, word)| !word.is_empty())))
}

/// The bytes of elements, which are all as wide as the widest.
fn bytes<'a>(elements: impl Iterator<Item = (usize, &'a str)>) -> Result<Hex, Error> {
    let all: Vec<&str> =
        elements.map(|(line, word)| element(word).ok_or_else(|| word_error(line, word))).collect::<Result<_, _>>()?;
    let width = all.iter().map(|digits| digits.len()).max().ok_or(Error::Empty)?.next_power_of_two().max(2);
    let bytes = all.iter().flat_map(|digits| pairs(&format!("{digits:0>width$}")).collect::<Vec<u8>>()).collect();
    let note = (width > 2).then(|| format!("elements of {} bytes, most significant byte first", width / 2));
    Ok(Hex { bytes, note })
}

/// The hex digits of an element; a plain 0 needs no `0x`.
fn element(word: &str) -> Option<&str> {
    let digits = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X"));
    let digits = digits.or((word == "0").then_some(word))?;
    (!digits.is_empty() && digits.len() <= 16 && is_hex(digits)).then_some(digits)
}
