//! `mlx5 caps`: HCA capabilities by their PRM names, and the differences between two cards.

mod diff;
mod features;
pub mod limits;
pub mod set;
mod text;

use regex::Regex;

use crate::output::{Failure, print, print_json};
use crate::pattern;
use set::{Both, CapSet};
use text::text;

/// What to show.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    mlx5 caps -d vfio:0000:3b:00.0 log_max   what matches log_max, and what it means\n  \
    mlx5 caps --json > mine.json             a file that can be used in place of a device\n  \
    mlx5 caps --diff connectx5 mine.json     what differs, and what drivers make of it")]
pub struct Arguments {
    /// Device: sim, vfio:0000:3b:00.0, vfio-user:/run/nic.sock; or a file that `mlx5 caps --json` wrote.
    #[arg(short, long = "device", visible_alias = "ib-dev", default_value = "sim")]
    device: String,
    /// Compare two cards: devices, profiles (connectx5, connectx6dx, connectx7) or saved files.
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with = "device")]
    diff: Option<Vec<String>>,
    /// Only maximum values.
    #[arg(long, conflicts_with = "cur")]
    max: bool,
    /// Only current values.
    #[arg(long)]
    cur: bool,
    /// Only capabilities whose `page.name` matches this regular expression, ignoring case.
    pattern: Option<String>,
}

/// The filter: which capabilities, and which of their values.
struct Wanted {
    pattern: Option<Regex>,
    max: bool,
    current: bool,
}

impl Wanted {
    fn from(arguments: &Arguments) -> Result<Self, Failure> {
        let pattern = arguments.pattern.as_deref().map(pattern::compiled).transpose()?;
        Ok(Wanted { pattern, max: !arguments.cur, current: !arguments.max })
    }

    fn name(&self, page: &str, capability: &str) -> bool {
        self.pattern.as_ref().is_none_or(|pattern| pattern.is_match(&format!("{page}.{capability}")))
    }

    fn value(&self, value: Both) -> Both {
        Both { max: value.max.filter(|_| self.max), current: value.current.filter(|_| self.current) }
    }

    /// Applies the filter.
    fn of(&self, mut set: CapSet) -> CapSet {
        for page in &mut set.pages {
            page.capabilities.retain(|one| self.name(&page.name, &one.name));
            for capability in &mut page.capabilities {
                capability.value = self.value(capability.value);
            }
        }
        if self.pattern.is_some() {
            set.pages.retain(|page| !page.capabilities.is_empty());
            set.absent.retain(|page, _| self.name(page, ""));
        }
        set
    }
}

/// Prints the capabilities of a card, or the differences between two.
pub fn run(arguments: &Arguments, json: bool) -> Result<(), Failure> {
    let wanted = Wanted::from(arguments)?;
    if let Some([a, b]) = arguments.diff.as_deref() {
        let [a, b] = [wanted.of(CapSet::load(a)?), wanted.of(CapSet::load(b)?)];
        check_match(arguments, &[&a, &b])?;
        let diff = diff::Diff::of(a, b);
        return if json { print_json(&diff) } else { print(&diff.to_string()) };
    }
    let set = wanted.of(CapSet::load(&arguments.device)?);
    check_match(arguments, &[&set])?;
    if json { print_json(&set) } else { print(&text(&set)) }
}

/// Refuses a pattern that selects nothing in any of the sets.
fn check_match(arguments: &Arguments, sets: &[&CapSet]) -> Result<(), Failure> {
    let is_empty = sets.iter().all(|set| set.pages.is_empty() && set.absent.is_empty());
    match &arguments.pattern {
        Some(pattern) if is_empty => {
            Err(format!("no capability matches `{pattern}`; without a pattern all are shown").into())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlx5_prm::caps::CmdHcaCap;

    fn wanted(pattern: &str, max: bool) -> Wanted {
        let arguments = Arguments { device: "sim".into(), diff: None, max, cur: false, pattern: Some(pattern.into()) };
        Wanted::from(&arguments).expect("a regular expression")
    }

    fn card() -> CapSet {
        let (mut max, mut current) = (CmdHcaCap::default(), CmdHcaCap::default());
        let _ = max.w().log_max_qp(18).roce(true);
        let _ = current.w().log_max_qp(17);
        set::tests::card("sim", &max, &current)
    }

    #[test]
    fn a_pattern_selects_by_prm_name_and_both_values_are_shown() {
        let found = wanted("^general\\.LOG_max_qp$", false).of(card());
        let [page] = &found.pages[..] else { panic!("one page") };
        let [qp] = &page.capabilities[..] else { panic!("one capability") };
        assert_eq!((qp.name.as_str(), qp.value), ("log_max_qp", Both { max: Some(18), current: Some(17) }));
    }

    #[test]
    fn a_pattern_that_selects_nothing_is_refused() {
        let pattern = Some("log_max_qq".to_owned());
        let arguments = Arguments { device: "sim".into(), diff: None, max: false, cur: false, pattern };
        let none = wanted("log_max_qq", false).of(card());
        assert!(check_match(&arguments, &[&none, &none]).is_err());
        assert!(check_match(&arguments, &[&none, &card()]).is_ok());
    }

    #[test]
    fn max_alone_leaves_the_current_value_out() {
        let found = wanted("log_max_qp", true).of(card());
        assert!(found.pages[0].capabilities.iter().all(|one| one.value.max.is_some() && one.value.current.is_none()));
    }

    #[test]
    fn what_is_no_regular_expression_is_refused() {
        let arguments =
            Arguments { device: "sim".into(), diff: None, max: false, cur: false, pattern: Some("(".into()) };
        assert!(Wanted::from(&arguments).is_err());
    }
}
