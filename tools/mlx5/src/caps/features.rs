//! How drivers use capabilities: the table `features.txt`.

use serde::Serialize;

/// One driver's use of a capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Feature {
    /// The driver.
    pub driver: &'static str,
    /// What the capability enables or limits.
    pub effect: &'static str,
    /// The source of this fact.
    pub source: &'static str,
}

/// The known uses of a capability.
pub fn of(page: &str, capability: &str) -> impl Iterator<Item = Feature> {
    let wanted = format!("{page}.{capability}");
    table().filter(move |(name, _)| *name == wanted).map(|(_, feature)| feature)
}

fn table() -> impl Iterator<Item = (&'static str, Feature)> {
    let lines = include_str!("features.txt").lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| {
        let mut parts = line.split('|').map(str::trim);
        let name = parts.next()?;
        Some((name, Feature { driver: parts.next()?, effect: parts.next()?, source: parts.next()? }))
    })
}

#[cfg(test)]
mod tests {
    use super::super::set::page_by_name;
    use super::*;

    #[test]
    fn every_row_is_whole_and_names_a_capability_of_its_page() {
        let lines = include_str!("features.txt").lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(table().count(), lines, "a row lacks a part");
        assert!(lines > 150);
        for (name, feature) in table() {
            let (page, capability) = name.split_once('.').expect("page.capability");
            let page = page_by_name(page).unwrap_or_else(|| panic!("{name}: no such page"));
            let known = page.layout().is_none_or(|info| info.field(capability).is_some());
            assert!(known, "{name}: no such capability");
            assert!([feature.driver, feature.effect, feature.source].iter().all(|part| !part.is_empty()), "{name}");
        }
    }
}
