//! How a field and what bounds it are related, and the sentence where it breaks.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::caps::CapPage;
use crate::cmd::Opcode;

/// A side of a limit: a field, or two to its power.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Term {
    pub(super) field: Field,
    pub(super) power: bool,
    /// What is added before.
    pub(super) plus: u32,
}

/// A field and whose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) origin: Origin,
    /// Nested layouts as `outer.inner`.
    pub(super) name: &'static str,
}

/// Where a field lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// In the command.
    Input,
    /// In a capability page.
    Card(CapPage),
    /// In the properties of the flow tables that the command is about.
    FlowTable,
}

impl Term {
    /// Its value where the field holds `number`; as large as it gets.
    pub(super) fn of(self, number: u64) -> u64 {
        let sum = number.saturating_add(self.plus.into());
        if !self.power {
            return sum;
        }
        u32::try_from(sum).ok().and_then(|log| 1u64.checked_shl(log)).unwrap_or(u64::MAX)
    }
}

/// The field that the table writes so.
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

/// A number, decimal or after 0x.
pub(super) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// How both are related.
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

/// One side of a limit, with its number.
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
    /// The rule that the table writes so.
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

    /// Whether `left` is allowed by one of `right`.
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

    /// What is said of `left` where the rule does not hold.
    pub(super) fn words(self, opcode: Opcode, left: &Operand, right: &[Operand]) -> String {
        let (field, number) = (&left.name, left.number);
        let each = |spell: &dyn Fn(&Operand) -> String| right.iter().map(spell).collect::<Vec<_>>().join(" or ");
        let names = each(&|one| one.name.clone());
        let bits = each(&|one| format!("{} {:#x}", one.name, one.number));
        let whose = if self == Rule::Needs && field == "opcode" {
            return format!("{opcode} needs {names}, which the card does not announce");
        } else {
            format!("{opcode}: {field}=")
        };
        match self {
            Rule::AtMost => whose + &compared(left, ">", right),
            Rule::AtLeast => whose + &compared(left, "<", right),
            Rule::Below if right.iter().any(|one| one.term.power) => whose + &compared(left, ">=", right),
            Rule::Below => format!(
                "{whose}{number}, but {}: the last index is one less",
                each(&|one| format!("{} is {}", one.name, one.number))
            ),
            Rule::Counted => format!("{whose}{number:#x} is no number of {}", each(&bound)),
            Rule::Needs => format!("{whose}{number:#x} needs {names}, which the card does not announce"),
            Rule::In => format!("{whose}{number:#x}, but bit {number} of {bits} is not set"),
            Rule::Within => format!("{whose}{number:#x} has bits that {bits} has not"),
        }
    }
}

/// The field's number, the sign, and what it is on the wrong side of.
fn compared(left: &Operand, sign: &str, right: &[Operand]) -> String {
    let bounds = right.iter().map(bound).collect::<Vec<_>>().join(" or ");
    let number = left.number;
    match (left.term.power, right.iter().any(|one| one.term.power)) {
        (true, _) => format!("{number} means {} bytes {sign} {bounds}", left.value()),
        (false, true) => format!("{number:#x} {sign} {bounds}"),
        (false, false) => format!("{number} {sign} {bounds}"),
    }
}

/// The name of what bounds, and its number.
fn bound(of: &Operand) -> String {
    let Operand { term, name, number } = of;
    match (term.power, term.plus) {
        (false, _) => format!("{name} {number}"),
        (true, 0) => format!("2^{name}, and {name} is {number}"),
        (true, plus) => format!("2^({name}+{plus}), and {name} is {number}"),
    }
}
