//! The other direction: whether mlx5-prm has everything in the newest kernel's `mlx5_ifc.h` and in its drivers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use mlx5_prm::registry::{LAYOUTS, VALUES};

use crate::absent::{ABSENT, COMPLETE_FOR, UNNAMED};
use crate::c_program::enumeration_with;
use crate::claims::Header;
use crate::counterparts;
use crate::ifc::{self, Structure};
use crate::own::{self, OF_DRIVERS};
use crate::report;
use crate::unjudged::Row;
use crate::values::CONSTANTS;

/// `structure`, or `structure.member`, of every name in the header without a layout.
fn missing(structures: &BTreeMap<String, Structure>) -> BTreeSet<String> {
    let known = known();
    let mut missing = BTreeSet::new();
    for (c, structure) in structures {
        let name = prm_name(c);
        match known.get(c.as_str()) {
            None if is_made_of_known(structure, structures, &known) => {}
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

/// Whether a structure only combines others that we have: the head of a general object's command and the object, or a
/// union of capability pages.
fn is_made_of_known(structure: &Structure, structures: &BTreeMap<String, Structure>, known: &Known) -> bool {
    let is_known = |part: &String| {
        known.contains_key(part.as_str())
            || structures.get(part).is_some_and(|inner| is_made_of_known(inner, structures, known))
    };
    let all = structure.members.len() + structure.tails.len();
    all > 0 && all == structure.parts.len() && structure.parts.iter().all(is_known)
}

/// C structures, and their members that we have.
type Known = BTreeMap<&'static str, BTreeSet<&'static str>>;

/// The members of C structures with which our fields are compared.
fn known() -> Known {
    let mut known = Known::new();
    for info in LAYOUTS {
        let names = info.fields.iter().chain(&info.tail).map(|field| field.name);
        // Members of an anonymous union belong to the structure around it.
        known.entry(info.c_name.trim_end_matches('.')).or_default().extend(names);
    }
    // The start of a list is not a member of its own.
    for counterpart in counterparts::all().filter(|counterpart| counterpart.sized || counterpart.fields.len() > 1) {
        known.entry(counterpart.c).or_default().extend(counterpart.fields.iter().map(|(_, member, _)| *member));
    }
    known
}

fn prm_name(c: &str) -> &str {
    c.strip_prefix("mlx5_ifc_").and_then(|name| name.strip_suffix("_bits")).unwrap_or(c)
}

/// Every enumerator of the headers with which our constants are compared, by name.
fn enumerators(include: &Path) -> BTreeSet<String> {
    let read = |name: &str| fs::read_to_string(include.join("linux/mlx5").join(name)).expect(name);
    let headers = ["device.h", "qp.h", "cq.h", "port.h", "mlx5_ifc.h", "mlx5_ifc_fpga.h", "mlx5_ifc_vdpa.h"];
    let driver = read("driver.h");
    let registers = enumeration_with(&driver, "MLX5_REG_PTYS").expect("register numbers in driver.h");
    let texts = headers.map(read).into_iter().chain([registers.to_owned()]);
    texts.flat_map(|text| ifc::enumerators(&text)).collect()
}

/// Enumerators with the prefix of one of our enumerations that it does not have.
fn unnamed(enumerators: BTreeSet<String>) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    let mut prefixes = BTreeSet::new();
    for constants in CONSTANTS.iter().filter(|constants| constants.header == Header::Kernel) {
        let values = VALUES.iter().find(|values| values.name == constants.values).expect(constants.values);
        named.extend(values.named.iter().map(|(name, _)| format!("{}{name}", constants.prefix)));
        let words =
            |text: &str| text.split(|c: char| c != '_' && !c.is_alphanumeric()).map(str::to_owned).collect::<Vec<_>>();
        named.extend(constants.otherwise.iter().flat_map(|(_, c)| words(c)));
        // `MLX5_` alone is a prefix of everything.
        prefixes.extend((constants.prefix.matches('_').count() > 1).then_some(constants.prefix));
    }
    let ours = |name: &String| prefixes.iter().any(|prefix| name.starts_with(prefix));
    enumerators.into_iter().filter(|name| ours(name) && !named.contains(name)).collect()
}

/// Entries of `missing` without a row, and rows without an entry.
fn unexcused(missing: &BTreeSet<String>, excused: &[Row]) -> Vec<String> {
    let covers = |row: &str, name: &str| match row.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == row,
    };
    let left = missing.iter().filter(|name| !excused.iter().any(|(row, _)| covers(row, name))).cloned();
    let idle = excused.iter().filter(|(row, _)| !missing.iter().any(|name| covers(row, name)));
    left.chain(idle.map(|(row, _)| format!("{row}: excused, but there or unknown"))).collect()
}

/// Fails if any are left, unless the kernel is newer than the lists.
fn conclude(release: &str, left: &[String]) {
    if release.starts_with(COMPLETE_FOR) {
        assert!(left.is_empty(), "{} of Linux {release} missing:\n{}", left.len(), left.join("\n"));
    } else if !left.is_empty() {
        report(&format!("Linux {release} is newer than the lists here, and has more: {}", left.join(", ")));
    }
}

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn everything_in_the_newest_header_has_a_layout() {
    let headers = mlx5_lab::headers().unwrap_or_else(|error| panic!("{error}"));
    let kernel = headers.newest_kernel;
    let mut structures = ifc::structures(&kernel.include);
    structures.extend(ifc::parse(&own::cut(&headers.newest_drivers, OF_DRIVERS)));
    let members: usize = structures.values().map(|structure| structure.members.len() + structure.tails.len()).sum();
    let missing = missing(&structures);
    let (gaps, whole): (Vec<_>, Vec<_>) = missing.iter().partition(|name| name.contains('.'));
    report(&format!(
        "of the {} structures and {members} members in Linux {}, {} structures have no layout, and {} members of others \
         no field",
        structures.len(),
        kernel.release,
        whole.len(),
        gaps.len(),
    ));
    conclude(&kernel.release, &unexcused(&missing, ABSENT));
}

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn every_enumerator_of_the_newest_header_has_a_name() {
    let kernel = mlx5_lab::headers().unwrap_or_else(|error| panic!("{error}")).newest_kernel;
    let missing = unnamed(enumerators(&kernel.include));
    report(&format!("{} enumerators in Linux {} that look like ours have no name here", missing.len(), kernel.release));
    conclude(&kernel.release, &unexcused(&missing, UNNAMED));
}

#[test]
fn what_is_missing_is_told_and_so_is_a_needless_excuse() {
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let missing = set(&["a", "b.x", "b.y_1", "b.y_2"]);
    assert_eq!(unexcused(&missing, &[("a", "why"), ("b.x", "why"), ("b.y_*", "why")]), [""; 0]);
    assert_eq!(unexcused(&missing, &[("a", "why"), ("b.y_*", "why")]), ["b.x"]);
    assert_eq!(unexcused(&set(&["a"]), &[("a", "why"), ("c", "why")]), ["c: excused, but there or unknown"]);

    let text =
        "struct mlx5_ifc_cqc_bits { u8 status[0x4]; u8 no_such[0x4]; }; struct mlx5_ifc_no_such_bits { u8 a[0x8]; };";
    assert_eq!(self::missing(&ifc::parse(text)), set(&["cqc.no_such", "no_such"]));
    let enumerators = set(&["MLX5_CMD_OP_CREATE_CQ", "MLX5_CMD_OP_NO_SUCH", "MLX5_ELSE"]);
    assert_eq!(unnamed(enumerators), set(&["MLX5_CMD_OP_NO_SUCH"]));
}
