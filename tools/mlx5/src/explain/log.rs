//! A log as a whole: each event once, with its function, its times and how often; and what near it names its cause.

use std::collections::HashMap;

use super::host::{self, Explains};
use super::position::LogPosition;
use super::recognise::{Sighting, recognise};
use super::report::{Report, Seen};
use super::spans::{Lines, Spans};
use crate::output::Failure;

/// What has been seen of a log.
#[derive(Debug, Default)]
pub struct Session {
    events: Vec<Report>,
    /// Places in `events`, by what makes two events the same.
    known: HashMap<String, usize>,
    /// Lines that explain failures near them.
    causes: Vec<(LogPosition, Explains, String)>,
    /// Events that were reported already.
    reported: usize,
    /// Lines of earlier bursts.
    lines: usize,
    /// What was recognised but could not be explained, and its line, from 1.
    unexplained: Vec<(usize, Failure)>,
}

/// Lines with causes that are remembered.
const MOST_CAUSES: usize = 64;

impl Session {
    /// Adds text, of which `explain` makes reports; of printed commands those that failed, or `all`. Counts
    /// repeated events.
    pub fn add(&mut self, text: &str, all: bool, explain: impl Fn(Sighting) -> Result<Report, Failure>) {
        let mut found: Vec<(LogPosition, Explains, Report)> = Vec::new();
        let (lines, hosts) = (Lines::of(text), host::find(text));
        let told: Spans =
            hosts.iter().filter(|host| host.explains != Explains::Bus).map(|host| host.range.clone()).collect();
        for (at, sighting) in recognise(&lines, all) {
            if told.contain(at) {
                continue;
            }
            let needs = needs(&sighting);
            let position = self.position(&lines, at);
            match explain(sighting) {
                Ok(report) => found.push((position, needs, report)),
                // A dump that is none, or is cut short, says nothing against the rest of the log.
                Err(failure) => self.unexplained.push((position.line + 1, failure)),
            }
        }
        for host in hosts {
            let position = self.position(&lines, host.range.start);
            if host.explains != Explains::Nothing {
                self.causes.push((position.clone(), host.explains, host.report.what.clone()));
            }
            found.push((position, Explains::Nothing, host.report));
        }
        let forgotten = self.causes.len().saturating_sub(MOST_CAUSES);
        self.causes.drain(..forgotten);
        found.sort_by_key(|(position, ..)| position.line);
        for (position, needs, report) in found {
            self.event(position, needs, report);
        }
        self.lines += text.lines().count();
    }

    /// What could not be explained since the last call, with its line.
    pub fn unexplained(&mut self) -> Vec<(usize, Failure)> {
        std::mem::take(&mut self.unexplained)
    }

    fn position(&self, lines: &Lines<'_>, at: usize) -> LogPosition {
        let position = LogPosition::of(lines, at);
        LogPosition { line: position.line + self.lines, ..position }
    }

    fn event(&mut self, position: LogPosition, needs: Explains, mut report: Report) {
        let key = key(&report, &position);
        if let Some(event) = self.known.get(&key).and_then(|at| self.events.get_mut(*at)) {
            let seen = event.seen.get_or_insert_default();
            seen.times += 1;
            seen.last = position.time.or(seen.last.take());
            return;
        }
        let explains =
            |kind: Explains| kind == Explains::Bus || needs == Explains::Link && is_for_lost_packets(&report);
        let near = self.causes.iter().rev().find(|(cause, kind, _)| {
            needs != Explains::Nothing && explains(*kind) && position.may_be(cause) && position.is_near(cause)
        });
        if let Some((_, _, line)) = near {
            report.causes.insert(0, format!("in this log, just before: {line}"));
        }
        let (first, last) = (position.time.clone(), position.time);
        report.seen = Some(Seen { function: position.function, first, last, times: 1 });
        self.known.insert(key, self.events.len());
        self.events.push(report);
    }

    /// Reports on events that were not reported yet.
    pub fn news(&mut self) -> Vec<Report> {
        let news = self.events[self.reported..].to_vec();
        self.reported = self.events.len();
        news
    }

    /// Reports on all events.
    pub fn into_reports(self) -> Vec<Report> {
        self.events
    }

    /// Whether nothing was recognised.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// A line for each event that came again.
    pub fn repeated(&self) -> String {
        let seen = self.events.iter().filter_map(|report| Some((&report.what, report.seen.as_ref()?)));
        let again = seen.filter(|(_, seen)| seen.times > 1);
        again.map(|(what, seen)| format!("again: {what}: {seen}\n")).collect()
    }
}

/// Whether a completion may have failed because packets were lost: retries ended, or its queue pair was in error.
fn is_for_lost_packets(report: &Report) -> bool {
    let syndrome = report.fields.iter().find(|(name, _)| *name == "syndrome").map(|(_, value)| value);
    syndrome.is_some_and(|syndrome| syndrome.contains("RETRY_EXC_ERR") || syndrome.contains("WR_FLUSH_ERR"))
}

/// What may have caused it: a failed completion can be for lost packets, other failures for the bus.
fn needs(sighting: &Sighting) -> Explains {
    match sighting {
        Sighting::Refused(_) | Sighting::Command(_) => Explains::Nothing,
        Sighting::Failed(_) | Sighting::Wc { .. } | Sighting::Bytes(..) => Explains::Link,
        Sighting::Timeout { .. } | Sighting::Health(_) | Sighting::Words(_) => Explains::Bus,
    }
}

/// What makes two events the same: all but numbers that count.
fn key(report: &Report, position: &LogPosition) -> String {
    const COUNTING: [&str; 3] = ["wqe_counter", "ci", "value"];
    let fields = report.fields.iter().filter(|(name, _)| !COUNTING.contains(name));
    let fields: Vec<String> = fields.map(|(name, value)| format!("{name}={value}")).collect();
    format!("{:?} {} {} {}", position.function, report.what, report.meaning, fields.join(" "))
}
