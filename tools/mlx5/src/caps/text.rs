//! Capabilities as text.

use mlx5_dv::CapPage;

use super::limits::meaning;
use super::set::{CapSet, Page, page_by_name};

/// The capabilities, page by page.
pub fn text(set: &CapSet) -> String {
    let pages = set.pages.iter().map(page_text);
    let (note, who) = match set.software {
        true => (format!("limits of {}\n", set.owner()), "the model"),
        false => (String::new(), "the card"),
    };
    let absent =
        set.absent.iter().map(|(page, reason)| format!("{}: {who} has no such page ({reason})\n", title(page)));
    std::iter::once(note).chain(pages).chain(absent).collect()
}

fn page_text(page: &Page) -> String {
    let first = page.capabilities.first().map(|one| one.value);
    let heading = first.map(|value| columns(value.max.map(|_| "max".into()), value.current.map(|_| "current".into())));
    let mut text = line(&title(&page.name), &heading.unwrap_or_default());
    for capability in &page.capabilities {
        let value = capability.value;
        let values = columns(value.max.map(number), value.current.map(number));
        let meaning = value.effective().and_then(|effective| meaning(&page.name, &capability.name, effective));
        let values = meaning.map_or(values.clone(), |meaning| format!("{values:<48}{meaning}"));
        text += &line(&format!("  {}", capability.name), &values);
    }
    text
}

/// A page's name and number.
pub fn title(page: &str) -> String {
    match page_by_name(page).map(CapPage::number) {
        Some(number) => format!("{page} (page {number:#x})"),
        None => page.to_owned(),
    }
}

/// A value in decimal, and in hexadecimal if that differs.
pub fn number(n: u64) -> String {
    if n < 10 { n.to_string() } else { format!("{n} ({n:#x})") }
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
