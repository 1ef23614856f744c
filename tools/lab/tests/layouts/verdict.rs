//! Compares the claims with the headers' answers.

use std::collections::{BTreeMap, BTreeSet};

use crate::c_program::Answers;
use crate::claims::{Claim, Fact, Header};
use crate::unjudged::Row;

/// The result.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Claims that a header confirms.
    pub confirmed: BTreeSet<String>,
    /// Errors, as text.
    pub faults: Vec<String>,
    /// Number of answers of each set of headers.
    pub comparisons: BTreeMap<String, usize>,
    /// What only the older kernel's headers have.
    pub gone: BTreeSet<String>,
    /// What only the newest kernel's headers have.
    pub since: BTreeSet<String>,
    /// What was smaller in the older kernel's headers.
    pub grew: BTreeSet<String>,
}

/// Compares every claim with all answers to it. `changed` lists permitted differences between the two kernels, and
/// between them and libmlx5.
pub fn judge(claims: &[Claim], answers: &[Answers], changed: &[Row]) -> Verdict {
    let mut verdict = Verdict::default();
    let mut needed = BTreeSet::new();
    for claim in claims {
        let asked = answers.iter().filter(|answers| answers.header == claim.header);
        let facts: Vec<_> = asked.map(|answers| (answers.name.as_str(), answers.to(&claim.question))).collect();
        let is_changed = changed.iter().any(|(what, _)| *what == claim.what);
        let fault = match agreement(claim, &facts) {
            Agreement::Unknown if claim.named => Some(format!("{}: no header knows {}", claim.what, claim.question)),
            Agreement::Unknown => continue,
            Agreement::Changed if is_changed => {
                needed.insert(claim.what.as_str());
                None
            }
            Agreement::None if is_changed && claim.header == Header::Provider => {
                needed.insert(claim.what.as_str());
                continue;
            }
            Agreement::Changed | Agreement::None => Some(contradiction(claim, &facts)),
            Agreement::Full => None,
            Agreement::Grew => {
                verdict.grew.insert(claim.what.clone());
                None
            }
        };
        match fault {
            Some(fault) => verdict.faults.push(fault),
            None => verdict.confirm(claim, &facts),
        }
    }
    let idle = changed.iter().filter(|(what, _)| !needed.contains(what));
    verdict.faults.extend(idle.map(|(what, _)| format!("{what}: listed as changed, but is not")));
    verdict
}

/// The answers to one claim: name and answer of each set of headers.
type Facts<'a> = [(&'a str, Option<Fact>)];

impl Verdict {
    fn confirm(&mut self, claim: &Claim, facts: &Facts<'_>) {
        self.confirmed.insert(claim.what.clone());
        for (name, _) in facts.iter().filter(|(_, fact)| fact.is_some()) {
            *self.comparisons.entry((*name).to_owned()).or_default() += 1;
        }
        match (claim.header, facts) {
            (Header::Kernel, [(_, None), _]) => _ = self.since.insert(claim.what.clone()),
            (Header::Kernel, [_, (_, None)]) => _ = self.gone.insert(claim.what.clone()),
            _ => {}
        }
    }
}

fn contradiction(claim: &Claim, facts: &Facts<'_>) -> String {
    let said = facts.iter().map(|(name, fact)| match fact {
        Some(fact) => format!("{name} {fact}"),
        None => format!("{name} nothing"),
    });
    let said = said.collect::<Vec<_>>().join(", ");
    format!("{}: mlx5-prm {}; {said} to {}", claim.what, claim.says, claim.question)
}

/// Result of one claim, by its answers, the newest last.
enum Agreement {
    /// No header knows the name.
    Unknown,
    /// All headers that know the name agree.
    Full,
    /// The newest agrees; it was smaller in an older one.
    Grew,
    /// The newest agrees; it was elsewhere in an older one.
    Changed,
    /// The newest that knows it disagrees.
    None,
}

fn agreement(claim: &Claim, facts: &Facts<'_>) -> Agreement {
    let known: Vec<_> = facts.iter().filter_map(|(_, fact)| *fact).collect();
    let Some((newest, older)) = known.split_last() else { return Agreement::Unknown };
    let smaller = |fact: &Fact| match (fact, claim.says) {
        (Fact::Place(start, bits), Fact::Place(at, now)) => *start == at && *bits < now && claim.may_grow,
        _ => false,
    };
    if *newest != claim.says {
        Agreement::None
    } else if older.iter().all(|fact| *fact == claim.says) {
        Agreement::Full
    } else if older.iter().all(|fact| *fact == claim.says || smaller(fact)) {
        Agreement::Grew
    } else {
        Agreement::Changed
    }
}

/// Claims that are neither confirmed nor excused; and excuses for claims that are confirmed or do not exist.
pub fn unaccounted(all: &BTreeSet<String>, confirmed: &BTreeSet<String>, excused: &[Row]) -> Vec<String> {
    let covers = |excuse: &str, what: &str| {
        what == excuse || what.strip_prefix(excuse).is_some_and(|rest| rest.starts_with('.'))
    };
    let is_excused = |what: &String| excused.iter().any(|(excuse, _)| covers(excuse, what));
    let missing = all.iter().filter(|what| !confirmed.contains(*what) && !is_excused(what));
    let missing = missing.map(|what| format!("{what}: no header has it, and no reason is given"));
    let idle = excused.iter().filter(|(excuse, _)| {
        !all.iter().any(|what| covers(excuse, what)) || confirmed.iter().any(|what| covers(excuse, what))
    });
    missing.chain(idle.map(|(excuse, _)| format!("{excuse}: excused, but confirmed or not there"))).collect()
}

/// `Layout.field`s for messages: a complete layout by its name, otherwise its fields.
pub fn grouped(whats: &BTreeSet<String>) -> String {
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for what in whats {
        let (layout, field) = what.split_once('.').unwrap_or((what, ""));
        groups.entry(layout).or_default().push(field);
    }
    let group = |(layout, fields): (&str, Vec<&str>)| match fields[..] {
        ["", ..] => layout.to_owned(),
        [field] => format!("{layout}.{field}"),
        _ => format!("{layout}.{{{}}}", fields.join(", ")),
    };
    groups.into_iter().map(group).collect::<Vec<_>>().join("; ")
}
