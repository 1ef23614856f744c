//! Differences between two cards, and their effect on drivers.

use std::fmt;

use serde::Serialize;

use super::features::{self, Feature};
use super::set::{Both, CapSet};
use super::text::{number, title};

/// All differences.
#[derive(Debug, Serialize)]
pub struct Diff {
    a: Card,
    b: Card,
    /// Pages that only one card has.
    pages: Vec<PageDifference>,
    capabilities: Vec<Difference>,
    /// Driver features that differ as a result.
    features: Vec<Changed>,
}

#[derive(Debug, Serialize)]
struct Card {
    device: String,
    firmware: String,
    software_card: bool,
}

impl fmt::Display for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, firmware {}", self.device, self.firmware)?;
        if self.software_card {
            write!(f, ": the software card, a model whose limits are not a card's")
        } else {
            Ok(())
        }
    }
}

#[derive(Debug, Serialize)]
struct PageDifference {
    page: String,
    /// `a` or `b`.
    only: &'static str,
}

/// A capability that differs; `None` if the card lacks the page or the name.
#[derive(Debug, Serialize)]
struct Difference {
    page: String,
    capability: String,
    a: Option<Both>,
    b: Option<Both>,
}

/// A driver feature that depends on such a capability.
#[derive(Debug, Serialize)]
struct Changed {
    page: String,
    capability: String,
    /// The current value on each card.
    a: u64,
    b: u64,
    #[serde(flatten)]
    feature: Feature,
}

impl Diff {
    /// Compares two cards.
    pub fn of(a: CapSet, b: CapSet) -> Self {
        let only = |one: &CapSet, other: &CapSet, only| -> Vec<PageDifference> {
            let missing = one.pages.iter().filter(|page| other.page(&page.name).is_none());
            missing.map(|page| PageDifference { page: page.name.clone(), only }).collect()
        };
        let mut pages = only(&a, &b, "a");
        pages.extend(only(&b, &a, "b"));
        let capabilities = differences(&a, &b);
        let features = capabilities.iter().flat_map(changed).collect();
        let card = |set: CapSet| Card { device: set.device, firmware: set.firmware, software_card: set.software };
        Diff { a: card(a), b: card(b), pages, capabilities, features }
    }
}

/// The capabilities that differ, over all pages of either card. A missing capability counts as zero.
fn differences(a: &CapSet, b: &CapSet) -> Vec<Difference> {
    let names = |set: &CapSet| -> Vec<(String, String)> {
        let pages = set.pages.iter();
        pages.flat_map(|page| page.capabilities.iter().map(|one| (page.name.clone(), one.name.clone()))).collect()
    };
    let mut all = names(a);
    let known: std::collections::HashSet<_> = all.iter().cloned().collect();
    all.extend(names(b).into_iter().filter(|name| !known.contains(name)));
    let value = |set: &CapSet, page: &str, name: &str| set.page(page).and_then(|page| page.value(name));
    let differs = |a: Option<Both>, b: Option<Both>| match (a, b) {
        (Some(a), Some(b)) => {
            let unequal = |a: Option<u64>, b: Option<u64>| a.zip(b).is_some_and(|(a, b)| a != b);
            unequal(a.max, b.max) || unequal(a.current, b.current)
        }
        (one, other) => one.or(other).is_some_and(|both| [both.max, both.current].iter().flatten().any(|n| *n != 0)),
    };
    all.into_iter()
        .map(|(page, capability)| {
            let (a, b) = (value(a, &page, &capability), value(b, &page, &capability));
            Difference { page, capability, a, b }
        })
        .filter(|difference| differs(difference.a, difference.b))
        .collect()
}

fn changed(difference: &Difference) -> Vec<Changed> {
    let value = |both: Option<Both>| both.and_then(Both::effective).unwrap_or(0);
    let (a, b) = (value(difference.a), value(difference.b));
    if a == b {
        return Vec::new();
    }
    let features = features::of(&difference.page, &difference.capability);
    let (page, capability) = (difference.page.clone(), difference.capability.clone());
    features.map(|feature| Changed { page: page.clone(), capability: capability.clone(), a, b, feature }).collect()
}

impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "A: {}", self.a)?;
        writeln!(f, "B: {}", self.b)?;
        for PageDifference { page, only } in &self.pages {
            writeln!(f, "{}: only {} has this page", title(page), only.to_uppercase())?;
        }
        if self.capabilities.is_empty() {
            return writeln!(f, "no capability differs");
        }
        let mut page = "";
        for difference in &self.capabilities {
            if difference.page != page {
                page = &difference.page;
                writeln!(f, "\n{:<44}{:<18}{:<18}{:<18}B current", title(page), "A max", "A current", "B max")?;
            }
            let text = |value: Option<Both>, of: fn(Both) -> Option<u64>| value.and_then(of).map_or("-".into(), number);
            let [max, current]: [fn(Both) -> Option<u64>; 2] = [|both| both.max, |both| both.current];
            let (a, b) = (difference.a, difference.b);
            let [a_max, a_current, b_max, b_current] = [text(a, max), text(a, current), text(b, max), text(b, current)];
            let line = format!("  {:<42}{a_max:<18}{a_current:<18}{b_max:<18}{b_current}", difference.capability);
            writeln!(f, "{}", line.trim_end())?;
        }
        self.features(f)
    }
}

impl Diff {
    fn features(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.features.is_empty() {
            return writeln!(f, "\nno known driver feature depends on these");
        }
        writeln!(f, "\nEffect on drivers")?;
        for Changed { page, capability, a, b, feature } in &self.features {
            let way = match (a, b) {
                (_, 0) => "only with A".to_owned(),
                (0, _) => "only with B".to_owned(),
                _ => format!("A {a}, B {b}"),
            };
            writeln!(f, "  {page}.{capability}: {way}")?;
            writeln!(f, "      {}: {} [{}]", feature.driver, feature.effect, feature.source)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::set::tests::card;
    use super::*;
    use mlx5_prm::caps::CmdHcaCap;

    fn cards() -> (CapSet, CapSet) {
        let (mut a, mut b) = (CmdHcaCap::default(), CmdHcaCap::default());
        let _ = a.w().log_max_qp(18).cqe_compression(true).log_max_cq(24);
        let _ = b.w().log_max_qp(17).log_max_cq(24);
        (card("a", &a, &a), card("b", &b, &b))
    }

    #[test]
    fn only_what_differs_is_listed_with_both_values() {
        let (a, b) = cards();
        let diff = Diff::of(a, b);
        let names: Vec<_> = diff.capabilities.iter().map(|one| one.capability.as_str()).collect();
        assert_eq!(names, ["log_max_qp", "cqe_compression"]);
        assert_eq!(diff.capabilities[0].a, Some(Both { max: Some(18), current: Some(18) }));
        assert_eq!(diff.capabilities[0].b, Some(Both { max: Some(17), current: Some(17) }));
    }

    #[test]
    fn a_feature_that_one_card_lacks_is_named_with_its_source() {
        let (a, b) = cards();
        let text = Diff::of(a, b).to_string();
        assert!(text.contains("general.cqe_compression: only with A"), "{text}");
        assert!(text.contains("drivers/net/ethernet/mellanox/mlx5/core"), "{text}");
    }

    #[test]
    fn a_page_that_one_has_not_got_is_said_once_and_its_zeros_are_no_difference() {
        let (a, mut b) = cards();
        b.pages.clear();
        let diff = Diff::of(a, b);
        assert_eq!(diff.pages.len(), 1);
        assert_eq!(diff.capabilities.len(), 3, "log_max_qp, cqe_compression, log_max_cq");
    }

    #[test]
    fn a_card_does_not_differ_from_itself() {
        let (a, _) = cards();
        assert!(Diff::of(a.clone(), a).to_string().contains("no capability differs"));
    }
}
