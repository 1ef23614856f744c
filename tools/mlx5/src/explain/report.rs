//! The report on one recognised item.

use std::fmt;

use serde::Serialize;

use super::syndromes::{Confidence, Known};

/// A report on one item.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// What it is, in one line.
    pub what: String,
    /// Where and when it stands in a log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seen: Option<Seen>,
    /// Its fields, as printed in the input.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "as_map")]
    pub fields: Vec<(&'static str, String)>,
    /// What it means.
    pub meaning: String,
    /// Invalid fields of a command.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub offending: Vec<String>,
    /// Usual causes, most frequent first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<String>,
    /// What to check.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub look_at: Vec<String>,
    /// Public knowledge about vendor-specific numbers in it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub known: Vec<Known>,
    /// Its bytes, decoded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decoded: Option<String>,
}

/// Where and when something stands in a log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Seen {
    /// The function that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// The time of the first, as printed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<String>,
    /// The time of the last, as printed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<String>,
    /// How often.
    pub times: u64,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = (self.times > 1).then(|| format!("{} times", self.times));
        let when = match (&self.first, &self.last) {
            (Some(first), Some(last)) if first != last => Some(format!("from {first} to {last}")),
            (first, _) => first.as_ref().map(|first| format!("at {first}")),
        };
        let parts: Vec<String> = self.function.clone().into_iter().chain(times).chain(when).collect();
        write!(f, "{}", parts.join(", "))
    }
}

/// Fields by name: the text, and the number in it with its name: `TRANSPORT_RETRY_EXC_ERR (0x15)`, `0x15`, `21`.
fn as_map<S: serde::Serializer>(fields: &[(&'static str, String)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(fields.iter().map(|(name, text)| (name, FieldValue::of(text))))
}

/// A field as JSON.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct FieldValue<'a> {
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
}

impl<'a> FieldValue<'a> {
    fn of(text: &'a str) -> Self {
        let named = text.strip_suffix(')').and_then(|text| text.rsplit_once(" (")).and_then(|(name, digits)| {
            let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            Some((name, number(digits)?)).filter(|_| is_name)
        });
        match named {
            Some((name, value)) => FieldValue { text, value: Some(value), name: Some(name) },
            None => FieldValue { text, value: number(text), name: None },
        }
    }
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Owned lines of text.
pub fn lines(all: &[&str]) -> Vec<String> {
    all.iter().map(|one| (*one).to_owned()).collect()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.what)?;
        if let Some(seen) = self.seen.as_ref().map(Seen::to_string).filter(|seen| !seen.is_empty()) {
            writeln!(f, "    {seen}")?;
        }
        if !self.fields.is_empty() {
            let fields: Vec<String> = self.fields.iter().map(|(name, value)| format!("{name} {value}")).collect();
            writeln!(f, "    {}", fields.join(", "))?;
        }
        writeln!(f, "  meaning: {}", self.meaning)?;
        list(f, "at fault", &self.offending)?;
        list(f, "usual causes", &self.causes)?;
        list(f, "look at", &self.look_at)?;
        for known in &self.known {
            known_line(f, known)?;
        }
        if let Some(decoded) = &self.decoded {
            writeln!(f, "  decoded: {}", decoded.trim_end().replace('\n', "\n  "))?;
        }
        Ok(())
    }
}

fn list(f: &mut fmt::Formatter<'_>, title: &str, all: &[String]) -> fmt::Result {
    if all.is_empty() {
        return Ok(());
    }
    writeln!(f, "  {title}:")?;
    all.iter().try_for_each(|one| writeln!(f, "    - {one}"))
}

fn known_line(f: &mut fmt::Formatter<'_>, known: &Known) -> fmt::Result {
    let sure = match known.confidence {
        Confidence::MakersWord => "the maker's word",
        Confidence::ReportedCause => "reported cause",
        Confidence::SeenCauseUnknown => "seen, cause unknown",
    };
    let of = [known.of, known.status].join(" ");
    writeln!(f, "  {:#x} is known in public ({sure}; {}): {}", known.number, of.trim(), known.text)?;
    writeln!(f, "    {}", known.source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_in_a_field_is_told_with_its_name() {
        let of = |text| {
            let FieldValue { value, name, .. } = FieldValue::of(text);
            (value, name)
        };
        assert_eq!(of("TRANSPORT_RETRY_EXC_ERR (0x15)"), (Some(0x15), Some("TRANSPORT_RETRY_EXC_ERR")));
        assert_eq!((of("0x68"), of("12")), ((Some(0x68), None), (Some(12), None)));
        assert_eq!((of("two words (0x1)"), of("words"), of("64 bytes")), ((None, None), (None, None), (None, None)));
    }
}
