//! Text in fields of fixed size.

/// Text in a field of fixed size, without the zeros or blanks behind it; bytes that are no UTF-8 are replaced.
pub fn text(field: &[u8]) -> String {
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).trim_end_matches(' ').to_owned()
}

/// Puts `text` into a field, padded with zeros and cut to what fits with one zero behind it.
pub fn put_text(field: &mut [u8], text: &str) {
    let len = text.len().min(field.len().saturating_sub(1));
    field.fill(0);
    field[..len].copy_from_slice(&text.as_bytes()[..len]);
}

/// Puts `text` into a field of ASCII, padded with blanks, as in identify pages.
pub fn put_ascii(field: &mut [u8], text: &str) {
    let len = text.len().min(field.len());
    field.fill(b' ');
    field[..len].copy_from_slice(&text.as_bytes()[..len]);
}
