//! The other way round: whether mlx5-prm has all that the newest kernel's `mlx5_ifc.h` has.

use std::collections::{BTreeMap, BTreeSet};

use mlx5_prm::registry::LAYOUTS;

use crate::counterparts::COUNTERPARTS;
use crate::ifc::{self, Structure};
use crate::report;

/// `structure`, or `structure.member`, of every name in the header that no layout has.
fn missing(structures: &BTreeMap<String, Structure>) -> BTreeSet<String> {
    let known = known();
    let mut missing = BTreeSet::new();
    for (c, structure) in structures {
        let name = prm_name(c);
        match known.get(c.as_str()) {
            None => _ = missing.insert(name.to_owned()),
            Some(fields) => {
                let all = structure.members.iter().chain(&structure.tails);
                let gaps = all.filter(|member| !fields.contains(member.as_str()));
                missing.extend(gaps.map(|member| format!("{name}.{member}")));
            }
        }
    }
    missing
}

/// The members of C structures that fields of ours are compared with.
fn known() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let mut known: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for info in LAYOUTS {
        let names = info.fields.iter().chain(&info.tail).map(|field| field.name);
        // The arms of a union without a name are members of the structure around it.
        known.entry(info.c_name.trim_end_matches('.')).or_default().extend(names);
    }
    for counterpart in COUNTERPARTS {
        known.entry(counterpart.c).or_default().extend(counterpart.fields.iter().map(|(_, member, _)| *member));
    }
    known
}

fn prm_name(c: &str) -> &str {
    c.strip_prefix("mlx5_ifc_").and_then(|name| name.strip_suffix("_bits")).unwrap_or(c)
}

#[test]
fn everything_in_the_newest_header_has_a_layout() {
    if mlx5_lab::skipped("layouts") {
        return;
    }
    let headers = mlx5_lab::headers().unwrap_or_else(|error| panic!("{error}"));
    let structures = ifc::structures(&headers.newest_kernel.include);
    let members: usize = structures.values().map(|structure| structure.members.len() + structure.tails.len()).sum();
    let missing = missing(&structures);
    let (gaps, whole): (Vec<_>, Vec<_>) = missing.iter().partition(|name| name.contains('.'));
    report(&format!(
        "of the {} structures and {members} members in Linux {}, {} structures have no layout, and {} members of others \
         no field (--nocapture lists them)",
        structures.len(),
        headers.newest_kernel.release,
        whole.len(),
        gaps.len(),
    ));
    for name in &missing {
        println!("no layout: {name}");
    }
}
