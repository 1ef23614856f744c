//! Facts with their names, as text and as JSON. What is not known comes with the reason.

use std::fmt;

use serde_json::{Map, Value, json};

use crate::caps::limits::Limit;

/// A fact, or why it is not known.
pub type Known<T> = Result<T, String>;

/// One fact.
#[derive(Debug, Clone, PartialEq)]
pub struct Fact {
    /// Its key in JSON.
    key: &'static str,
    /// Its name in text.
    label: &'static str,
    /// Its value in JSON.
    value: Known<Value>,
    /// Its value in text.
    text: String,
}

impl Fact {
    /// A fact whose text is `text` of its value.
    pub fn new<T: Into<Value> + Clone>(
        key: &'static str,
        label: &'static str,
        value: Known<T>,
        text: impl FnOnce(&T) -> String,
    ) -> Self {
        let said = match &value {
            Ok(value) => text(value),
            Err(reason) => format!("not known: {reason}"),
        };
        Fact { key, label, value: value.map(Into::into), text: said }
    }

    /// A fact that is a word.
    pub fn word(key: &'static str, label: &'static str, value: Known<String>) -> Self {
        Fact::new(key, label, value, Clone::clone)
    }
}

/// An entry of the GID table.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct GidRow {
    /// Where in the table.
    pub index: u16,
    /// The GID.
    pub address: std::net::Ipv6Addr,
    /// The IPv4 address that it stands for.
    pub ipv4: Option<std::net::Ipv4Addr>,
    /// `RoCE v2`, `IB/RoCE v1`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The MAC address its packets carry.
    pub mac: Option<String>,
    /// The kernel's network interface that it was made of.
    pub netdev: Option<String>,
}

/// What a card is.
#[derive(Debug, Clone, PartialEq)]
pub struct Info {
    /// The device string.
    pub device: String,
    /// Of the card and its function.
    pub card: Vec<Fact>,
    /// Of its port.
    pub port: Vec<Fact>,
    /// Its GIDs.
    pub gids: Vec<GidRow>,
    /// What it can do at most.
    pub limits: Vec<Limit>,
}

impl Info {
    /// As JSON: null for what is not known, with the reason under `unknown`.
    pub fn json(&self) -> Value {
        let mut unknown = Map::new();
        let mut object = |facts: &[Fact], place: &str| {
            let mut object = Map::new();
            for fact in facts {
                if let Err(reason) = &fact.value {
                    unknown.insert(format!("{place}{}", fact.key), json!(reason));
                }
                object.insert(fact.key.into(), fact.value.clone().unwrap_or(Value::Null));
            }
            object
        };
        let (card, port) = (object(&self.card, ""), object(&self.port, "port."));
        let mut info = json!({ "device": self.device });
        info.as_object_mut().into_iter().for_each(|info| info.extend(card.clone()));
        info["port"] = Value::Object(port);
        info["gids"] = json!(self.gids);
        info["limits"] = json!(self.limits);
        info["unknown"] = Value::Object(unknown);
        info
    }
}

impl fmt::Display for Info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.device)?;
        let facts = |f: &mut fmt::Formatter<'_>, facts: &[Fact]| {
            facts.iter().try_for_each(|fact| line(f, fact.label, &fact.text))
        };
        facts(f, &self.card)?;
        writeln!(f, "port")?;
        facts(f, &self.port)?;
        writeln!(f, "GIDs")?;
        if self.gids.is_empty() {
            writeln!(f, "  none")?;
        }
        for gid in &self.gids {
            let address = gid.ipv4.map_or_else(|| gid.address.to_string(), |ipv4| format!("{} ({ipv4})", gid.address));
            let netdev = gid.netdev.as_deref().unwrap_or_default();
            let mac = gid.mac.as_deref().unwrap_or("-");
            let text = format!("  {:<4}{address:<42}{:<12}{mac:<19}{netdev}", gid.index, gid.kind);
            writeln!(f, "{}", text.trim_end())?;
        }
        writeln!(f, "limits")?;
        self.limits.iter().try_for_each(|limit| {
            let source = format!("{} {}", limit.capability, limit.value);
            writeln!(f, "  {:<64}{source}", limit.text())
        })
    }
}

fn line(f: &mut fmt::Formatter<'_>, label: &str, text: &str) -> fmt::Result {
    writeln!(f, "  {label:<20}{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_null_with_its_reason_and_never_a_value() {
        let fact = Fact::new("numa_node", "NUMA node", Err::<u32, _>("it has no PCI place".into()), u32::to_string);
        let known = Fact::new("mtu", "MTU", Ok(1500), |mtu| format!("{mtu} bytes"));
        let info = Info { device: "sim".into(), card: vec![fact], port: vec![known], gids: vec![], limits: vec![] };
        let json = info.json();
        assert_eq!((&json["numa_node"], &json["unknown"]["numa_node"]), (&Value::Null, &json!("it has no PCI place")));
        assert_eq!((&json["port"]["mtu"], json["unknown"].as_object().map(Map::len)), (&json!(1500), Some(1)));
        let text = info.to_string();
        assert!(text.contains("not known: it has no PCI place") && text.contains("1500 bytes"), "{text}");
    }
}
