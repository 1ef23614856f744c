//! Names of the `op_mod` of `QUERY_HCA_CAP` and `SET_HCA_CAP`, for dumps.

use super::CapPage;
use crate::layout::{Reading, Value};

/// The `op_mod` of `QUERY_HCA_CAP` and `SET_HCA_CAP`: the page, and in bit 0 whether current or maximum values are
/// meant. [`CapPage::op_mod`] makes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HcaCapOpMod(pub u16);

impl Value for HcaCapOpMod {
    const BITS: u32 = 16;
    const READING: Reading = Reading::Named(|number| name(u16::try_from(number).ok()?));

    fn from_number(number: u64) -> Self {
        HcaCapOpMod(number as u16)
    }

    fn number(self) -> u64 {
        self.0.into()
    }
}

/// `ROCE, current` or `ROCE, maximum`.
fn name(op_mod: u16) -> Option<&'static str> {
    let page = CapPage::from_op_mod(op_mod);
    let at = CapPage::ALL.iter().position(|known| *known == page)?;
    let (text, length) = &NAMES[at][usize::from(op_mod & 1)];
    core::str::from_utf8(text.get(..*length)?).ok()
}

type Name = ([u8; 40], usize);

/// The names of all pages, joined at compile time.
static NAMES: [[Name; 2]; CapPage::ALL.len()] = {
    let mut names = [[([0; 40], 0); 2]; CapPage::ALL.len()];
    let mut i = 0;
    while i < names.len() {
        if let Some(page) = CapPage::ALL[i].prm_name() {
            names[i] = [joined(page, ", maximum"), joined(page, ", current")];
        }
        i += 1;
    }
    names
};

const fn joined(page: &str, which: &str) -> Name {
    let mut text = [0; 40];
    let (page, which) = (page.as_bytes(), which.as_bytes());
    let length = page.len() + which.len();
    let mut i = 0;
    while i < length {
        text[i] = if i < page.len() { page[i] } else { which[i - page.len()] };
        i += 1;
    }
    (text, length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_named_and_which_of_the_two() {
        assert_eq!(name(CapPage::Roce.op_mod(true)), Some("ROCE, current"));
        assert_eq!(name(CapPage::Roce.op_mod(false)), Some("ROCE, maximum"));
        assert_eq!(name(0xfffe), None);
        assert!(
            CapPage::ALL.iter().all(|page| name(page.op_mod(true)).is_some_and(|name| name.ends_with(", current")))
        );
    }
}
