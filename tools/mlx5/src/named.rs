//! Layouts by name, and parsing of hex in common formats.

use mlx5_prm::cqe::{Cqe, ErrorCqe};
use mlx5_prm::decode::{self, Dump};
use mlx5_prm::eqe::Eqe;
use mlx5_prm::layout::{Info, Layout};
use mlx5_prm::registry::LAYOUTS;

/// Why a name or hex is invalid.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// Unknown layout.
    #[error("unknown layout `{name}`; similar names: {nearest} (all: mlx5 decode --list)")]
    Name {
        /// The name.
        name: String,
        /// Similar names.
        nearest: String,
    },
    /// Not hex.
    #[error("line {line}: `{token}` is not hex: give pairs of hex digits, with or without 0x, spaces and offsets")]
    Hex {
        /// The line, from 1.
        line: usize,
        /// The invalid word.
        token: String,
    },
    /// No hex digits.
    #[error("no hex digits: give them as arguments, in a file or on stdin")]
    Empty,
}

/// Every layout, by its PRM name, in alphabetical order.
pub fn all() -> Vec<&'static Info> {
    let mut all = LAYOUTS.to_vec();
    all.sort_by_key(|info| info.prm_name());
    all
}

/// The layout `name`, by its name in the PRM, in the kernel's header or in Rust.
pub fn layout(name: &str) -> Result<&'static Info, Error> {
    let wanted = plain(name);
    // Several layouts may describe one PRM structure: the Rust names are unique.
    let by = |name: fn(&Info) -> &'static str| LAYOUTS.iter().find(|info| plain(name(info)) == wanted);
    let found = by(|info| info.name).or_else(|| by(Info::prm_name));
    found.copied().ok_or_else(|| Error::Name {
        name: name.to_owned(),
        nearest: nearest(&wanted, LAYOUTS.iter().map(|info| info.prm_name())).join(", "),
    })
}

/// The names most similar to `wanted`, best first.
pub fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut names: Vec<&str> = names.collect();
    let distance = |name: &str| (strsim::jaro_winkler(&plain(wanted), &plain(name)) * 1e6) as u64;
    names.sort_by_key(|name| (std::cmp::Reverse(distance(name)), *name));
    names.dedup();
    names.truncate(4);
    names
}

/// A name reduced to what all its spellings share.
fn plain(name: &str) -> String {
    let name = name.trim().to_ascii_lowercase();
    let name = name.strip_prefix("mlx5_").unwrap_or(&name);
    let name = name.strip_prefix("ifc_").unwrap_or(name);
    name.strip_suffix("_bits").unwrap_or(name).replace('_', "")
}

/// Decodes bytes as `info`. Parts whose layout depends on other fields, such as a capability page, are chosen by these.
pub fn decoded<'a>(info: &'static Info, bytes: &'a [u8]) -> Dump<'a> {
    let chosen = match info {
        _ if same(info, &Eqe::INFO) => decode::event(bytes),
        _ if same(info, &Cqe::INFO) || same(info, &ErrorCqe::INFO) => decode::completion(bytes),
        _ => decode::command_input(bytes).filter(|dump| same(dump.info(), info)),
    };
    chosen.unwrap_or(Dump::new(info, bytes))
}

fn same(one: &Info, other: &Info) -> bool {
    one.name == other.name
}

/// Parses hex: pairs or longer words, with or without offsets, `0x`, commas and a column of characters, as common
/// dumpers print it, on several lines or joined into one.
pub fn bytes(text: &str) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let mut with_offsets = false;
    let rows = text.lines().enumerate().flat_map(|(line, text)| rows(text).into_iter().map(move |row| (line, row)));
    for (line, text) in rows {
        let (tokens, offset) = tokens(&text);
        with_offsets |= offset;
        // The last line of `hexdump` and `od` is the length.
        if with_offsets && !offset && tokens.len() == 1 && tokens[0].len() >= 7 {
            continue;
        }
        for token in tokens {
            let digits = token.trim_start_matches("0x").trim_start_matches("0X");
            let wrong = || Error::Hex { line: line + 1, token: token.to_owned() };
            if digits.is_empty() || !digits.len().is_multiple_of(2) || !digits.is_ascii() {
                return Err(wrong());
            }
            for pair in digits.as_bytes().chunks(2) {
                let digit = |byte: u8| char::from(byte).to_digit(16).ok_or_else(wrong);
                bytes.push((digit(pair[0])? << 4 | digit(pair[1])?) as u8);
            }
        }
    }
    if bytes.is_empty() { Err(Error::Empty) } else { Ok(bytes) }
}

/// The rows of a dump in a line: usually one, several if a shell has joined the lines.
fn rows(line: &str) -> Vec<String> {
    let is_offset = |word: &&str| {
        let digits = word.strip_suffix(':').unwrap_or_default();
        digits.len() >= 3 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    if line.split_whitespace().filter(is_offset).count() < 2 {
        return vec![line.to_owned()];
    }
    let mut rows = vec![String::new()];
    for word in line.split_whitespace() {
        if is_offset(&word) {
            rows.push(String::new());
        }
        if let Some(row) = rows.last_mut() {
            *row += &format!("{word} ");
        }
    }
    rows
}

/// The hex words of a line, and whether an offset without a colon preceded them.
fn tokens(line: &str) -> (Vec<&str>, bool) {
    let line = line.split('|').next().unwrap_or_default();
    let pairs = line.trim().split(':').all(|pair| pair.len() == 2);
    let (line, colon) = match line.rsplit_once(": ") {
        Some((_, rest)) if !pairs => (rest, true),
        _ => (line, false),
    };
    // `xxd` separates its column of characters by two blanks.
    let line = match line.trim_start().split_once("  ") {
        Some((bytes, _)) if colon => bytes,
        _ => line,
    };
    let separator = |c: char| c.is_whitespace() || matches!(c, ',' | ';' | ':' | '{' | '}' | '(' | ')');
    let mut tokens: Vec<&str> = line.split(separator).filter(|token| !token.is_empty()).collect();
    // The offset of `hexdump` and `od` is wider than the words after it.
    let offset = match &tokens[..] {
        [first, rest @ ..] => {
            let wider = !rest.is_empty() && rest.iter().all(|token| token.len() < first.len());
            !colon && first.len() >= 7 && !first.starts_with("0x") && wider
        }
        [] => false,
    };
    if offset {
        tokens.remove(0);
    }
    (tokens, offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_is_found_by_each_of_its_names() {
        for name in ["create_cq_in", "CreateCqIn", "mlx5_ifc_create_cq_in_bits", "CREATE_CQ_IN", " create_cq_in "] {
            assert_eq!(layout(name).map(|info| info.name), Ok("CreateCqIn"), "{name}");
        }
        let Err(Error::Name { nearest, .. }) = layout("creat_cq") else { panic!("there is no such layout") };
        assert!(nearest.contains("create_cq_in") && nearest.contains("create_cq_out"), "{nearest}");
    }

    #[test]
    fn every_layout_is_found_by_the_names_it_is_listed_by() {
        for info in all() {
            assert_eq!(layout(info.name).map(|found| found.name), Ok(info.name));
            assert!(layout(info.prm_name()).is_ok_and(|found| found.prm_name() == info.prm_name()), "{}", info.name);
        }
    }

    #[test]
    fn hex_in_the_shapes_of_the_usual_dumpers() {
        let expected: Vec<u8> = (0..20).collect();
        for text in [
            "000102030405060708090a0b0c0d0e0f10111213",
            "00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f 10 11 12 13",
            "0x00010203 0x04050607, 0x08090a0b, 0x0c0d0e0f\n0x10111213",
            "00010203 04050607 08090A0B 0C0D0E0F 10111213",
            "000: 00010203 04050607 08090a0b 0c0d0e0f\r\n010: 10111213\r\n",
            "[  12.3] cmd[0]: 000: 00010203 04050607 08090a0b 0c0d0e0f\n[  12.4] cmd[0]: 010: 10111213",
            "00000000: 0001 0203 0405 0607 0809 0a0b 0c0d 0e0f  ................\n00000010: 1011 1213                                ....",
            "00000000  00 01 02 03 04 05 06 07  08 09 0a 0b 0c 0d 0e 0f  |................|\n00000010  10 11 12 13  |....|\n00000014",
            "0000000 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f\n0000020 10 11 12 13\n0000024",
            "000: 00010203 04050607 08090a0b 0c0d0e0f 010: 10111213",
            "00000000: 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f 00000010: 10 11 12 13",
            "00:01:02:03:04:05:06:07:08:09:0a:0b:0c:0d:0e:0f:10:11:12:13",
            "{ 0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 0x10, 0x11, 0x12, 0x13 };",
        ] {
            assert_eq!(bytes(text), Ok(expected.clone()), "{text}");
        }
    }

    #[test]
    fn what_is_no_hex_is_named() {
        assert_eq!(bytes("00 01\n02 0g"), Err(Error::Hex { line: 2, token: "0g".into() }));
        assert_eq!(bytes("123"), Err(Error::Hex { line: 1, token: "123".into() }));
        assert_eq!(bytes(" \n"), Err(Error::Empty));
        assert!(bytes("é0").is_err());
    }
}
