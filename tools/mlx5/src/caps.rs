//! `mlx5 caps`: a card's HCA capabilities by their PRM names.

use std::collections::BTreeMap;
use std::convert::Infallible;

use mlx5_dv::{CapPage, RawPage};
use mlx5_prm::decode::{Found, walk};
use mlx5_prm::layout::Info;
use serde::Serialize;

use crate::{Failure, print, print_json};

/// What to show.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Device: sim, vfio:0000:3b:00.0, vfio-user:/run/nic.sock.
    #[arg(short, long = "device", visible_alias = "ib-dev", default_value = "sim")]
    device: String,
    /// Only what the card could do.
    #[arg(long, conflicts_with = "cur")]
    max: bool,
    /// Only what it does now.
    #[arg(long)]
    cur: bool,
    /// Only capabilities whose name contains this.
    pattern: Option<String>,
}

/// One capability.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Capability {
    #[serde(skip)]
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    max: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    current: Option<u64>,
}

/// Opens the device, prints what it can do.
pub fn run(arguments: &Arguments, json: bool) -> Result<(), Failure> {
    let device = mlx5_open::open(&arguments.device)?;
    let pages: Vec<(CapPage, Vec<Capability>)> =
        device.caps().pages.iter().map(|page| (page.page, capabilities(page, arguments))).collect();
    let shown: usize = pages.iter().map(|(_, list)| list.len()).sum();
    if shown == 0 {
        return Err(match &arguments.pattern {
            Some(pattern) => format!("no capability's name contains `{pattern}`").into(),
            None => "the card gave no capability page".into(),
        });
    }
    if json {
        let by_name: BTreeMap<String, BTreeMap<&str, &Capability>> = pages
            .iter()
            .map(|(page, list)| (name(*page), list.iter().map(|one| (one.name.as_str(), one)).collect()))
            .collect();
        return print_json(&serde_json::json!({ "device": arguments.device, "pages": by_name }));
    }
    let filled = pages.iter().filter(|(_, list)| !list.is_empty());
    print(&filled.map(|(page, list)| page_text(*page, list)).collect::<String>())
}

fn page_text(page: CapPage, list: &[Capability]) -> String {
    let heading = list.first().map(|c| columns(c.max.map(|_| "max".into()), c.current.map(|_| "current".into())));
    let mut text = line(&format!("{} (op_mod {:#x})", name(page), page.number()), &heading.unwrap_or_default());
    let number = |n: u64| if n < 10 { n.to_string() } else { format!("{n} ({n:#x})") };
    for capability in list {
        let values = columns(capability.max.map(number), capability.current.map(number));
        text += &line(&format!("  {}", capability.name), &values);
    }
    text
}

fn line(name: &str, values: &str) -> String {
    format!("{name:<56}{values}\n")
}

fn columns(max: Option<String>, current: Option<String>) -> String {
    match (max, current) {
        (Some(max), Some(current)) => format!("{max:<24}{current}"),
        (one, other) => one.or(other).unwrap_or_default(),
    }
}

/// The PRM's word for a page, in small letters.
fn name(page: CapPage) -> String {
    page.to_string().to_ascii_lowercase()
}

fn capabilities(page: &RawPage, arguments: &Arguments) -> Vec<Capability> {
    let Some(info) = page.page.layout() else { return Vec::new() };
    let max = numbers(info, &page.max);
    let current = numbers(info, &page.current);
    let wanted = |name: &str| arguments.pattern.as_ref().is_none_or(|pattern| name.contains(pattern.as_str()));
    max.into_iter()
        .zip(current)
        .filter(|((name, _), _)| wanted(name))
        .map(|((name, max), (_, current))| Capability {
            name,
            max: (!arguments.cur).then_some(max),
            current: (!arguments.max).then_some(current),
        })
        .collect()
}

/// Every number of the page, nested layouts as `outer.inner`, in the PRM's order.
fn numbers(info: &Info, bytes: &[u8]) -> Vec<(String, u64)> {
    let mut path: Vec<String> = Vec::new();
    let mut numbers = Vec::new();
    let _: Result<(), Infallible> = walk(info, bytes, &mut |found: Found<'_>| {
        path.truncate(found.depth);
        let name = match found.index {
            Some(index) => format!("{}[{index}]", found.field.name),
            None => found.field.name.to_owned(),
        };
        path.push(name);
        if let Some(number) = found.number {
            numbers.push((path.join("."), number));
        }
        Ok(())
    });
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlx5_prm::caps::CmdHcaCap;
    use mlx5_prm::layout::Layout;

    fn page() -> RawPage {
        let (mut max, mut current) = (CmdHcaCap::default(), CmdHcaCap::default());
        let _ = max.w().log_max_qp(18).roce(true);
        let _ = current.w().log_max_qp(17);
        RawPage { page: CapPage::General, max: max.as_bytes().to_vec(), current: current.as_bytes().to_vec() }
    }

    fn arguments(pattern: &str) -> Arguments {
        Arguments { device: "sim".into(), max: false, cur: false, pattern: Some(pattern.into()) }
    }

    #[test]
    fn a_pattern_selects_by_prm_name_and_both_values_are_shown() {
        let found = capabilities(&page(), &arguments("log_max_qp"));
        let qp = found.iter().find(|capability| capability.name == "log_max_qp").expect("the capability");
        assert_eq!((qp.max, qp.current), (Some(18), Some(17)));
        assert!(found.iter().all(|capability| capability.name.contains("log_max_qp")));
    }

    #[test]
    fn max_alone_leaves_the_current_value_out() {
        let found = capabilities(&page(), &Arguments { max: true, ..arguments("log_max_qp") });
        assert!(found.iter().all(|capability| capability.max.is_some() && capability.current.is_none()));
    }
}
