//! Decoded layouts as JSON, and bytes as hex.

use std::convert::Infallible;
use std::fmt::Write;

/// Version of the JSON documents that `mlx5` writes. It changes if a key goes or changes its meaning, not if one comes.
pub const VERSION: u32 = 1;

use mlx5_prm::decode::{Dump, Found};
use mlx5_prm::layout::{Element, Kind};
use serde_json::{Value, json};

/// Bytes as hex digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A decoded layout as JSON: its fields, bits that no field covers, and tail. Zero fields are included only if `all`.
/// Nested fields are named `outer.inner`; an array of bytes is one field in hex.
pub fn json_of(dump: &Dump<'_>, all: bool) -> Value {
    let mut fields = Fields::default();
    let _: Result<(), Infallible> = dump.walk(&mut |found| {
        fields.add(&found, all);
        Ok(())
    });
    fields.end_bytes(all);
    let uncovered: Vec<Value> =
        dump.uncovered().map(|found| json!({ "offset": found.offset, "bits": found.bits })).collect();
    json!({
        "layout": dump.info().prm_name(),
        "fields": fields.list,
        "uncovered": uncovered,
        "tail": hex(dump.tail()),
    })
}

/// Fields collected on a walk.
#[derive(Default)]
struct Fields {
    path: Vec<String>,
    list: Vec<Value>,
    /// The current array of bytes: its offset, name and content.
    bytes: Option<(usize, String, Vec<u8>)>,
}

impl Fields {
    fn add(&mut self, found: &Found<'_>, all: bool) {
        self.path.truncate(found.depth);
        // A union with an unknown arm is walked byte by byte, like an array of bytes.
        let of_bytes = matches!(found.field.kind, Kind::Part { element: Element::U8 | Element::Layout(_), .. });
        let is_byte = of_bytes && found.number.is_some();
        self.path.push(match found.index {
            Some(index) if !is_byte => format!("{}[{index}]", found.field.name),
            _ => found.field.name.to_owned(),
        });
        let name = self.path.join(".");
        if self.bytes.as_ref().is_some_and(|(_, of, _)| *of != name) || found.index == Some(0) {
            self.end_bytes(all);
        }
        let Some(number) = found.number else { return };
        if is_byte {
            self.bytes.get_or_insert_with(|| (found.offset, name, Vec::new())).2.push(number as u8);
            return;
        }
        if number == 0 && !all {
            return;
        }
        let bits = match found.field.kind {
            Kind::Bits { hi, lo, .. } => Some([hi, lo]),
            Kind::Part { .. } => None,
        };
        let mut field = json!({ "name": name, "offset": found.offset, "value": number });
        if let Some(bits) = bits {
            field["bits"] = json!(bits);
        }
        if let Some(value_name) = found.value_name() {
            field["value_name"] = json!(value_name);
        }
        self.list.push(field);
    }

    fn end_bytes(&mut self, all: bool) {
        let Some((offset, name, bytes)) = self.bytes.take() else { return };
        if all || bytes.iter().any(|byte| *byte != 0) {
            self.list.push(json!({ "name": name, "offset": offset, "hex": hex(&bytes) }));
        }
    }
}
