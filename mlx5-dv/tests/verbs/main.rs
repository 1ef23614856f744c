//! `docs/verbs.md` is made from the table in `rows.rs`, and says what is there: each call is compiled, each judge is a
//! function of a lab test, each verb of mlx5's context has one row.
//!
//! After a change of the table: `MLX5_WRITE_DOCS=1 cargo test -p mlx5-dv --test verbs`.

mod rows;
mod table;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use rows::{BESIDE, TABLE};
use table::{Offered, Row, page};

/// The verbs of `mlx5_ctx_common_ops` and of `verbs_context_ops` that mlx5 fills in, by their libibverbs names.
const VERBS: &str = include_str!("verbs.txt");

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in a workspace").to_path_buf()
}

fn rows() -> impl Iterator<Item = &'static Row> {
    TABLE.iter().flat_map(|section| section.rows)
}

/// What is wrong with how `table` names the verbs of `verbs`.
fn unlike<'a>(table: impl Iterator<Item = &'a str>, verbs: &BTreeSet<&'a str>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut faults: Vec<_> = table
        .filter_map(|verb| match (verbs.contains(verb), seen.insert(verb)) {
            (false, _) => Some(format!("{verb} is no verb")),
            (true, false) => Some(format!("{verb} has two rows")),
            (true, true) => None,
        })
        .collect();
    faults.extend(verbs.difference(&seen).map(|verb| format!("{verb} has no row")));
    faults
}

#[test]
fn each_verb_has_one_row() {
    let verbs: BTreeSet<_> = VERBS.lines().collect();
    assert_eq!(verbs.len(), 76);
    let table = rows().flat_map(|row| row.verbs.iter().copied());
    assert_eq!(unlike(table, &verbs), Vec::<String>::new());
}

#[test]
fn a_verb_left_out_named_twice_or_unheard_of_is_noticed() {
    let verbs = BTreeSet::from(["a", "b"]);
    assert_eq!(unlike(["a", "b"].into_iter(), &verbs), Vec::<String>::new());
    assert_eq!(unlike(["a", "a"].into_iter(), &verbs), ["a has two rows", "b has no row"]);
    assert_eq!(unlike(["a", "b", "c"].into_iter(), &verbs), ["c is no verb"]);
}

/// Whether the lab test `PROGRAM::FUNCTION` is there.
fn is_judge(lab: &Path, name: &str) -> bool {
    let Some((program, function)) = name.split_once("::") else { return false };
    let mut files = vec![lab.join(program).with_extension("rs")];
    files.extend(fs::read_dir(lab.join(program)).into_iter().flatten().flatten().map(|entry| entry.path()));
    let texts = files.iter().filter_map(|file| fs::read_to_string(file).ok());
    let wanted = format!("fn {function}(");
    texts.into_iter().any(|text| text.contains(&wanted))
}

#[test]
fn each_judge_is_a_function_of_a_lab_test() {
    let lab = workspace().join("tools/lab/tests");
    let rows = rows().chain(BESIDE);
    let missing: Vec<_> = rows.flat_map(|row| row.judges).filter(|judge| !is_judge(&lab, judge)).collect();
    assert!(missing.is_empty(), "no such function of tools/lab/tests: {missing:?}");
    assert!(is_judge(&lab, "devx::our_driver_runs_beside_the_kernels_own"));
    assert!(!is_judge(&lab, "devx::our_driver_runs") && !is_judge(&lab, "nothing::ever") && !is_judge(&lab, "devx"));
}

#[test]
fn what_is_offered_has_a_call_and_what_is_missing_a_reason() {
    for row in rows().chain(BESIDE) {
        let is_offered = !matches!(row.offered, Offered::No(_));
        assert_eq!(is_offered, !row.calls.is_empty(), "{:?}: calls", row.verbs);
        assert_eq!(is_offered, !row.ways.is_empty(), "{:?}: ways", row.verbs);
        if let Offered::Part(reason) | Offered::No(reason) = row.offered {
            assert!(reason.split(' ').count() > 2, "{:?}: a reason, in words", row.verbs);
        }
    }
}

#[test]
fn the_page_is_that_of_the_table() {
    let path = workspace().join("docs/verbs.md");
    let page = page(TABLE, BESIDE);
    if std::env::var_os("MLX5_WRITE_DOCS").is_some() {
        fs::write(&path, &page).expect("docs/verbs.md can be written");
    }
    let there = fs::read_to_string(&path).expect("docs/verbs.md");
    let differs = there.lines().zip(page.lines()).find(|(there, made)| there != made);
    assert!(
        there == page,
        "docs/verbs.md is not the table of mlx5-dv/tests/verbs/rows.rs, first here: {differs:#?}\n\
         MLX5_WRITE_DOCS=1 cargo test -p mlx5-dv --test verbs writes it"
    );
}
