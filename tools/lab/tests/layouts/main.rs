//! Check of mlx5-prm: every layout and enumeration is compared, by the C compiler, with the Linux kernel's headers,
//! with rdma-core's `mlx5dv.h`, and with declarations in the sources of the kernel's drivers and of libmlx5.
//!
//! Two kernels are used: that of Debian stable's guests, and the newest in its backports. What only one of them has is
//! confirmed by that one, and printed; if both have it, both must agree with us. A structure may have grown: ours
//! follows the newest. Sources are those of the newest kernel and of Debian stable's libmlx5.
//!
//! A layout whose `c_name` is a `mlx5_ifc_*_bits` structure is compared field by field, by name. [`counterparts`] maps
//! fields to members, or to bits of members, of other structures; [`values`] maps constants to C names. [`own`] lists
//! what is cut out of which source. What no header has is listed in [`UNJUDGED`], with the reason; a row there that is
//! no longer needed is an error.

mod absent;
mod c_program;
mod claims;
mod completeness;
mod controls;
mod counterparts;
mod ifc;
mod own;
mod unjudged;
mod values;
mod verdict;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::LazyLock;

use mlx5_prm::layout::Info;
use mlx5_prm::registry::{LAYOUTS, VALUES};

use c_program::{Answers, Source};
use claims::Claim;
use unjudged::{CHANGED, Row, UNJUDGED, UNJUDGED_VALUES, rows};
use verdict::{Verdict, grouped, judge, unaccounted};

/// The answers of all headers to all claims of mlx5-prm.
static ANSWERS: LazyLock<Vec<Answers>> = LazyLock::new(|| {
    let mut claims = claims::of_layouts();
    claims.extend(claims::of_values());
    ask(&claims)
});

fn ask(claims: &[Claim]) -> Vec<Answers> {
    let headers = mlx5_lab::headers().unwrap_or_else(|error| panic!("{error}"));
    Source::all(&headers).map(|source| source.asked(claims)).into()
}

/// The rows of `CHANGED` about layouts, or about enumerations.
fn changed(of_layouts: bool) -> Vec<Row> {
    let is_layout = |what: &str| LAYOUTS.iter().any(|info| what.split('.').next() == Some(info.name));
    CHANGED.iter().copied().filter(|(what, _)| is_layout(what) == of_layouts).collect()
}

/// Prints it even if the test runner captures the output of passing tests.
fn report(line: &str) {
    let _ = writeln!(std::io::stderr(), "\nlayouts: {line}");
}

fn report_comparisons(verdict: &Verdict) {
    let counts: Vec<_> = verdict.comparisons.iter().map(|(name, count)| format!("{name} {count}")).collect();
    report(&format!("comparisons: {}", counts.join(", ")));
    let [older, newest, ..] = &ANSWERS[..] else { return };
    for (title, whats) in [
        (format!("only in {}", older.name), &verdict.gone),
        (format!("only in {}", newest.name), &verdict.since),
        (format!("smaller in {}", older.name), &verdict.grew),
    ] {
        if !whats.is_empty() {
            report(&format!("{title}: {}", grouped(whats)));
        }
    }
}

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn every_layout_lies_as_the_headers_say() {
    let verdict = judge(&claims::of_layouts(), &ANSWERS, &changed(true));
    let fields = |info: &'static Info| {
        info.fields.iter().chain(&info.tail).map(move |field| format!("{}.{}", info.name, field.name))
    };
    let mut all: BTreeSet<_> = LAYOUTS.iter().copied().flat_map(fields).collect();
    all.extend(LAYOUTS.iter().filter(|info| !claims::is_unnamed(info)).map(|info| info.name.to_owned()));

    let mut faults = verdict.faults.clone();
    faults.extend(unaccounted(&all, &verdict.confirmed, &rows(UNJUDGED)));
    for info in LAYOUTS.iter().filter(|info| info.c_name != "none" && !claims::is_ifc(info.c_name)) {
        if !counterparts::all().any(|counterpart| counterpart.layout == info.name && counterpart.c == info.c_name) {
            faults.push(format!("{}: says it is {}, which nothing here compares", info.name, info.c_name));
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));

    let (fields, layouts): (Vec<_>, Vec<_>) = verdict.confirmed.iter().partition(|what| what.contains('.'));
    report(&format!(
        "{} of {} layouts, {} of {} fields agree with the C compiler",
        layouts.len(),
        LAYOUTS.len(),
        fields.len(),
        all.iter().filter(|what| what.contains('.')).count(),
    ));
    report_comparisons(&verdict);
    for (reason, whats) in UNJUDGED {
        println!("not judged, {reason}: {whats}");
    }
}

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn every_named_value_is_the_headers() {
    let verdict = judge(&claims::of_values(), &ANSWERS, &changed(false));
    let named = |name: &'static str, values: &'static [(&'static str, u32)]| {
        values.iter().map(move |(value, _)| format!("{name}.{value}"))
    };
    let all: BTreeSet<_> = VALUES.iter().flat_map(|values| named(values.name, values.named)).collect();

    let mut faults = verdict.faults.clone();
    faults.extend(unaccounted(&all, &verdict.confirmed, &rows(UNJUDGED_VALUES)));
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    report(&format!(
        "{} of {} named values of {} enumerations agree with the C compiler",
        verdict.confirmed.len(),
        all.len(),
        VALUES.len()
    ));
    report_comparisons(&verdict);
    for (reason, whats) in UNJUDGED_VALUES {
        println!("not judged, {reason}: {whats}");
    }
}
