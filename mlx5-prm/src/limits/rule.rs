//! Rules between a field and its limits, and the messages of violations.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::caps::CapPage;
use crate::cmd::Opcode;

/// A side of a limit: a field, some bits of it, or two to the power of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Term {
    pub(super) field: Field,
    pub(super) power: bool,
    /// Added to the exponent.
    pub(super) plus: u32,
    /// The bits that count; all if there is no mask.
    pub(super) mask: Option<u64>,
}

/// A field, of a command or a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) origin: Origin,
    /// Nested names are `outer.inner`.
    pub(super) name: &'static str,
}

/// Where a field is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// In the command.
    Input,
    /// In a capability page.
    Card(CapPage),
    /// In the properties of flow tables of the command's `table_type`.
    FlowTable,
}

impl Term {
    /// Its value if the field is `number`, saturating.
    pub(super) fn of(self, number: u64) -> u64 {
        let number = number & self.mask.unwrap_or(u64::MAX);
        let sum = number.saturating_add(self.plus.into());
        if !self.power {
            return sum;
        }
        u32::try_from(sum).ok().and_then(|log| 1u64.checked_shl(log)).unwrap_or(u64::MAX)
    }
}

/// Parses a field.
pub(super) fn field(text: &'static str) -> Option<Field> {
    if text.is_empty() || text.contains(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '.')) {
        return None;
    }
    let (first, rest) = text.split_once('.').unwrap_or((text, ""));
    let page = || CapPage::ALL.iter().find(|page| page.prm_name() == Some(first));
    Some(match first {
        "FT" => Field { origin: Origin::FlowTable, name: rest },
        _ if first.starts_with(|c: char| c.is_ascii_uppercase()) => {
            Field { origin: Origin::Card(*page()?), name: rest }
        }
        _ => Field { origin: Origin::Input, name: text },
    })
}

/// Parses a number, decimal or with 0x.
pub(super) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The relation between the two sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// `<=`.
    AtMost,
    /// `>=`.
    AtLeast,
    /// `<`.
    Below,
    /// `counted`.
    Counted,
    /// `needs`.
    Needs,
    /// `in`.
    In,
    /// `within`.
    Within,
}

/// One side of a limit, with its value.
pub(super) struct Operand {
    pub(super) term: Term,
    pub(super) name: String,
    pub(super) number: u64,
}

impl Operand {
    fn value(&self) -> u64 {
        self.term.of(self.number)
    }
}

impl Rule {
    /// Parses a rule.
    pub(super) fn of(text: &str) -> Option<Rule> {
        Some(match text {
            "<=" => Rule::AtMost,
            ">=" => Rule::AtLeast,
            "<" => Rule::Below,
            "counted" => Rule::Counted,
            "needs" => Rule::Needs,
            "in" => Rule::In,
            "within" => Rule::Within,
            _ => return None,
        })
    }

    /// Whether one of `right` permits `left`.
    pub(super) fn holds(self, left: u64, right: &[Operand]) -> bool {
        let mut bounds = right.iter().map(Operand::value);
        match self {
            Rule::AtMost => bounds.any(|bound| left <= bound),
            Rule::AtLeast => bounds.any(|bound| left >= bound),
            Rule::Below | Rule::Counted => bounds.any(|bound| left < bound),
            Rule::Needs => left == 0 || bounds.any(|bound| bound != 0),
            Rule::In => bounds.nth((left / 64) as usize).is_some_and(|bits| bits >> (left % 64) & 1 != 0),
            Rule::Within => bounds.any(|bits| left & !bits == 0),
        }
    }

    /// The message of a violation by `left`.
    pub(super) fn words(self, opcode: Opcode, left: &Operand, right: &[Operand]) -> String {
        let (field, number) = (&left.name, left.number);
        let each = |spell: &dyn Fn(&Operand) -> String| right.iter().map(spell).collect::<Vec<_>>().join(" or ");
        let names = each(&|one| one.name.clone());
        let bits = each(&|one| format!("{} {:#x}", one.name, one.number));
        let whose = if self == Rule::Needs && field == "opcode" {
            return format!("{opcode} needs {names}, which the card does not have");
        } else {
            format!("{opcode}: {field}=")
        };
        match self {
            Rule::AtMost => whose + &compared(left, ">", right),
            Rule::AtLeast => whose + &compared(left, "<", right),
            Rule::Below if right.iter().any(|one| one.term.power) => whose + &compared(left, ">=", right),
            Rule::Below => format!(
                "{whose}{number}, but {}: the largest index is one less",
                each(&|one| format!("{} is {}", one.name, one.number))
            ),
            Rule::Counted => format!("{whose}{number:#x} is not a valid number of {}", each(&bound)),
            Rule::Needs => {
                let names = each(&needed);
                format!("{whose}{number:#x} needs {names}, which the card does not have")
            }
            Rule::In => format!("{whose}{number:#x}, but bit {number} of {bits} is not set"),
            Rule::Within => format!("{whose}{number:#x} has bits that are not in {bits}"),
        }
    }
}

/// Text of what a field needs.
fn needed(of: &Operand) -> String {
    match of.term.mask {
        Some(mask) => format!("bit {} of {}", mask.trailing_zeros(), of.name),
        None => of.name.clone(),
    }
}

/// Text of a comparison.
fn compared(left: &Operand, sign: &str, right: &[Operand]) -> String {
    let bounds = right.iter().map(bound).collect::<Vec<_>>().join(" or ");
    let number = left.number;
    match (left.term.power, right.iter().any(|one| one.term.power)) {
        (true, _) => format!("{number} means {} bytes {sign} {bounds}", left.value()),
        (false, true) => format!("{number:#x} {sign} {bounds}"),
        (false, false) => format!("{number} {sign} {bounds}"),
    }
}

/// Text of a limit, with its value.
fn bound(of: &Operand) -> String {
    let Operand { term, name, number } = of;
    match (term.power, term.plus) {
        (false, _) => format!("{name} {number}"),
        (true, 0) => format!("2^{name}, and {name} is {number}"),
        (true, plus) => format!("2^({name}+{plus}), and {name} is {number}"),
    }
}
