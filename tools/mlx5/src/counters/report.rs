//! Samples of counters, and what became of them meanwhile.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;

use regex::Regex;
use serde_json::{Map, Value, json};

/// What counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// The physical port, of all its functions together.
    Port,
    /// The function's vport.
    Vport,
    /// Its queue pairs.
    Queue,
    /// What else the RDMA device counts.
    Hardware,
    /// The InfiniBand standard's.
    Infiniband,
    /// The kernel's network interface.
    Netdev,
    /// The card's PCIe link.
    Pcie,
}

impl Group {
    const ALL: [Group; 7] =
        [Group::Port, Group::Vport, Group::Queue, Group::Hardware, Group::Infiniband, Group::Netdev, Group::Pcie];

    /// Its name, in text and in JSON.
    fn name(self) -> &'static str {
        match self {
            Group::Port => "port",
            Group::Vport => "vport",
            Group::Queue => "queue",
            Group::Hardware => "hardware",
            Group::Infiniband => "infiniband",
            Group::Netdev => "netdev",
            Group::Pcie => "pcie",
        }
    }
}

/// One counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counter {
    /// As Linux shows it.
    pub name: String,
    /// Its value.
    pub value: u64,
    /// Its name in the PRM, where it is another's part.
    pub prm: Option<&'static str>,
}

impl Counter {
    /// A counter without a PRM name of its own.
    pub fn of((name, value): (String, u64)) -> Self {
        Counter { name, value, prm: None }
    }
}

/// The counters of a group, in order, and where they came from.
#[derive(Debug, Clone, Default)]
struct Counters {
    source: String,
    counters: Vec<Counter>,
    /// What of it is not known, and why.
    unknown: BTreeMap<String, String>,
}

/// All counters at one time.
#[derive(Debug, Clone)]
pub struct Sample {
    at: Instant,
    groups: BTreeMap<Group, Counters>,
}

impl Sample {
    /// One that is empty yet.
    pub fn now() -> Self {
        Sample { at: Instant::now(), groups: BTreeMap::new() }
    }

    fn group(&mut self, group: Group) -> &mut Counters {
        self.groups.entry(group).or_default()
    }

    /// Adds the counters of a group.
    pub fn add(&mut self, group: Group, source: &str, counters: Vec<Counter>) {
        self.source(group, source);
        self.group(group).counters.extend(counters);
    }

    /// Adds one.
    pub fn put(&mut self, group: Group, counter: Counter) {
        self.group(group).counters.push(counter);
    }

    /// Where the counters of a group come from.
    pub fn source(&mut self, group: Group, source: &str) {
        self.group(group).source = source.into();
    }

    /// Why a group, or `part` of it, is not known.
    pub fn unknown(&mut self, group: Group, part: &str, reason: String) {
        self.group(group).unknown.insert(part.into(), reason);
    }

    /// Keeps the counters whose `group.name` matches. Returns false if none does.
    pub fn keep(&mut self, pattern: &Regex) -> bool {
        for (group, counters) in &mut self.groups {
            let own = |name: &str| pattern.is_match(&format!("{}.{name}", group.name()));
            counters.counters.retain(|counter| own(&counter.name));
            counters.unknown.retain(|part, _| own(part));
        }
        self.groups.retain(|_, counters| !counters.counters.is_empty() || !counters.unknown.is_empty());
        !self.groups.is_empty()
    }

    /// The names of a group's counters.
    #[cfg(test)]
    pub fn names(&self, group: Group) -> Vec<&str> {
        self.groups.get(&group).into_iter().flat_map(|all| &all.counters).map(|one| one.name.as_str()).collect()
    }

    fn value(&self, group: Group, name: &str) -> Option<u64> {
        let counters = &self.groups.get(&group)?.counters;
        counters.iter().find(|counter| counter.name == name).map(|counter| counter.value)
    }
}

/// A sample, and the one before it if rates are wanted.
pub struct Report<'a> {
    /// The device string.
    pub device: String,
    /// The counters now.
    pub now: &'a Sample,
    /// The counters before.
    pub before: Option<&'a Sample>,
    /// Also print counters that are zero, in text.
    pub zeros: bool,
}

impl Report<'_> {
    /// Seconds between the two samples.
    fn seconds(&self) -> Option<f64> {
        self.before.map(|before| self.now.at.duration_since(before.at).as_secs_f64())
    }

    /// How much a counter grew each second. `None` if it is new, or was set back.
    fn rate(&self, group: Group, counter: &Counter) -> Option<f64> {
        let before = self.before?.value(group, &counter.name)?;
        let grown = counter.value.checked_sub(before)?;
        self.seconds().filter(|seconds| *seconds > 0.0).map(|seconds| grown as f64 / seconds)
    }

    /// As JSON. Each counter has its value, its name in the PRM if that is known, and with two samples its rate.
    pub fn json(&self) -> Value {
        let (mut groups, mut unknown) = (Map::new(), Map::new());
        for (group, counters) in &self.now.groups {
            for (part, reason) in &counters.unknown {
                let key = if part.is_empty() { group.name().into() } else { format!("{}.{part}", group.name()) };
                unknown.insert(key, json!(reason));
            }
            if counters.source.is_empty() {
                continue;
            }
            let all: Map<String, Value> =
                counters.counters.iter().map(|one| (one.name.clone(), self.counter(*group, one))).collect();
            groups.insert(group.name().into(), json!({ "source": counters.source, "counters": all }));
        }
        let mut report = json!({ "device": self.device, "groups": groups, "unknown": unknown });
        if let Some(seconds) = self.seconds() {
            report["seconds"] = json!(seconds);
        }
        report
    }

    fn counter(&self, group: Group, counter: &Counter) -> Value {
        let mut value = json!({ "value": counter.value });
        if let Some(prm) = counter.prm {
            value["prm"] = json!(prm);
        }
        if self.before.is_some() {
            value["per_second"] = json!(self.rate(group, counter));
        }
        value
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.seconds() {
            Some(seconds) => writeln!(f, "{}, rates over {seconds:.1} s", self.device)?,
            None => writeln!(f, "{}", self.device)?,
        }
        let mut hidden = 0;
        for group in Group::ALL {
            let Some(counters) = self.now.groups.get(&group) else { continue };
            let source = if counters.source.is_empty() { String::new() } else { format!(" ({})", counters.source) };
            writeln!(f, "{}{source}", group.name())?;
            for counter in &counters.counters {
                if counter.value == 0 && !self.zeros {
                    hidden += 1;
                    continue;
                }
                let rate = self.rate(group, counter).map_or_else(String::new, |rate| format!("{rate:>16.1}/s"));
                writeln!(f, "  {:<36}{:>20}{rate}", counter.name, counter.value)?;
            }
            for (part, reason) in &counters.unknown {
                let part = if part.is_empty() { String::new() } else { format!("{part} ") };
                writeln!(f, "  {part}not known: {reason}")?;
            }
        }
        if hidden > 0 {
            writeln!(f, "{hidden} counters are zero; `--all` shows them")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn sample(at: Instant, values: &[(&str, u64)]) -> Sample {
        let mut sample = Sample { at, groups: BTreeMap::new() };
        let counters = values.iter().map(|(name, value)| Counter::of(((*name).to_owned(), *value)));
        sample.add(Group::Port, "here", counters.collect());
        sample.unknown(Group::Queue, "", "no queue".into());
        sample
    }

    #[test]
    fn a_rate_is_what_was_added_in_a_second_and_a_counter_set_back_has_none() {
        let start = Instant::now();
        let before = sample(start, &[("up", 10), ("same", 5), ("back", 9)]);
        let now = sample(start + Duration::from_secs(4), &[("up", 20), ("same", 5), ("back", 1), ("new", 3)]);
        let report = Report { device: "sim".into(), now: &now, before: Some(&before), zeros: false };
        let json = report.json();
        assert_eq!(json["seconds"], 4.0);
        let rates = ["up", "same", "back", "new"].map(|name| &json["groups"]["port"]["counters"][name]["per_second"]);
        assert_eq!(rates, [&json!(2.5), &json!(0.0), &Value::Null, &Value::Null]);
        let text = report.to_string();
        assert!(text.contains("2.5/s") && text.contains("not known: no queue"), "{text}");
    }

    #[test]
    fn zeros_are_counted_instead_of_shown_and_what_is_unknown_is_no_zero() {
        let now = sample(Instant::now(), &[("some", 1), ("none", 0)]);
        let report = Report { device: "sim".into(), now: &now, before: None, zeros: false };
        let text = report.to_string();
        assert!(text.contains("some") && !text.contains("none") && text.contains("1 counters are zero"), "{text}");
        assert!(Report { zeros: true, ..report }.to_string().contains("none"));
        let json = Report { device: "sim".into(), now: &now, before: None, zeros: false }.json();
        assert_eq!((&json["groups"]["queue"], &json["unknown"]["queue"]), (&Value::Null, &json!("no queue")));
        assert_eq!(json["seconds"], Value::Null);
    }

    #[test]
    fn a_pattern_selects_by_group_and_name() {
        let mut now = sample(Instant::now(), &[("tx_packets", 1), ("rx_packets", 0)]);
        assert!(now.keep(&Regex::new("port\\.tx_").unwrap()));
        assert_eq!((now.value(Group::Port, "tx_packets"), now.value(Group::Port, "rx_packets")), (Some(1), None));
        assert!(!now.keep(&Regex::new("nothing").unwrap()));
    }
}
