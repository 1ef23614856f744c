//! Hex digits.

/// The digits of a word of hex: whole bytes, with or without `0x`.
pub fn digits(word: &str) -> Option<&str> {
    let digits = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")).unwrap_or(word);
    let whole = !digits.is_empty() && digits.len().is_multiple_of(2);
    (whole && digits.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(digits)
}

/// The bytes of an even number of hex digits.
pub fn pairs(digits: &str) -> impl Iterator<Item = u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or(0) as u8;
    digits.as_bytes().chunks(2).map(move |pair| pair.iter().fold(0, |byte, c| byte << 4 | digit(*c)))
}

/// Whether all characters are hex digits.
pub fn is_hex(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether a character separates words.
pub fn separates(c: char) -> bool {
    c.is_whitespace() || matches!(c, ',' | ';' | ':' | '(' | ')' | '[' | ']' | '"' | '\'')
}
