//! Checks a command against the capabilities of a card.
//!
//! `table.txt` next to this file lists which capability limits which field: one limit per line, with its public source,
//! in a syntax that its first lines explain. Code checks the rest: capabilities set above their maximum
//! (`set_hca_cap.rs`), and lists that are too short ([`check_lists`]).
//!
//! ```
//! use mlx5_prm::caps::CapPage;
//! use mlx5_prm::cmd::CreateCqIn;
//! use mlx5_prm::ctx::Cqc;
//! use mlx5_prm::layout::Layout;
//! use mlx5_prm::limits;
//!
//! let mut context = Cqc::default();
//! context.w().log_cq_size(25);
//! let mut create = CreateCqIn::default();
//! create.w().cq_context(&context);
//!
//! let card = |_: CapPage, name: &str| (name == "log_max_cq_sz").then_some(22);
//! let broken = limits::check(create.as_bytes(), &card);
//! assert_eq!(broken[0].to_string(), "CREATE_CQ: cq_context.log_cq_size=25 > log_max_cq_sz 22");
//! ```

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

mod card;
mod counts;
mod input;
mod lists;
mod read;
mod rule;
mod set_hca_cap;
#[cfg(test)]
mod tests;

pub use card::{Card, Violation};
pub use counts::count_of;
use input::Numbers;
pub use input::number_at;
pub use lists::check as check_lists;
use read::{Block, Condition, Limit};
use rule::{Field, Operand, Origin, Term};

use crate::caps::CapPage;
use crate::cmd::{self, InputHeader, Opcode};
use crate::flow::FlowTableType;
use crate::layout::Layout;

/// Returns the fields of a command's input that exceed the card's capabilities. Never panics.
pub fn check(input: &[u8], card: &dyn Card) -> Vec<Violation> {
    let Some(header) = InputHeader::read(input) else { return Vec::new() };
    let Some(command) = cmd::find(header.opcode()) else { return Vec::new() };
    // What a shorter input lacks is zero to the card.
    let mut input = input.to_vec();
    input.resize(input.len().max(command.input.size), 0);
    let blocks: Vec<Block> = read::blocks(command.opcode).collect();
    let fields = blocks.iter().flat_map(Block::fields).filter(|field| field.origin == Origin::Input);
    let numbers = Numbers::of(command.input, &input, fields.map(|field| field.name).collect());
    let known = Known { numbers, card };
    let applicable = blocks.iter().filter(|block| block.conditions.iter().all(|condition| known.meets(condition)));
    let limits = applicable.flat_map(|block| &block.limits);
    let mut broken: Vec<_> = limits.filter_map(|limit| known.breaks(command.opcode, limit)).collect();
    broken.extend(set_hca_cap::check(&input, card));
    broken
}

/// The command's fields and the card's capabilities.
struct Known<'a> {
    numbers: Numbers,
    card: &'a dyn Card,
}

impl Known<'_> {
    fn meets(&self, condition: &Condition) -> bool {
        let values = self.values(condition.field);
        match condition.is {
            read::Is::One(texts) => texts.split('|').any(|text| match rule::number(text) {
                Some(wanted) => values.contains(&wanted),
                None => values.iter().any(|value| self.name_of(condition.field, *value) == Some(text)),
            }),
            read::Is::Any(mask) => values.iter().any(|value| value & mask != 0),
        }
    }

    /// The values of a field: none if the command lacks it or the capability is unknown, several in a list.
    fn values(&self, field: Field) -> Vec<u64> {
        match (field.origin, self.capability(field)) {
            (Origin::Input, _) => self.numbers.all(field.name).collect(),
            (_, Some((page, name))) => self.card.current(page, &name).into_iter().collect(),
            (_, None) => Vec::new(),
        }
    }

    /// Page and full name of a capability; `None` for a field of the command, and for flow tables without properties.
    fn capability(&self, field: Field) -> Option<(CapPage, String)> {
        match field.origin {
            Origin::Input => None,
            Origin::Card(page) => Some((page, field.name.into())),
            Origin::FlowTable => {
                let of = |path| self.numbers.all(path).next();
                let kind = of("table_type").or_else(|| of("obj_context.table_type"))?;
                let (page, properties) = read::flow_table_properties(FlowTableType::from_number(kind as u32))?;
                Some((page, format!("{properties}.{}", field.name)))
            }
        }
    }

    /// The PRM's name of a value of the field.
    fn name_of(&self, field: Field, value: u64) -> Option<&'static str> {
        match self.capability(field) {
            Some((page, name)) => input::name_of(input::field_at(page.layout()?, &name)?, value),
            None => self.numbers.name_of(field.name, value),
        }
    }

    /// The violation of a limit, if there is one.
    fn breaks(&self, opcode: Opcode, limit: &Limit) -> Option<Violation> {
        let operand = |term: &Term| {
            let number = *self.values(term.field).first()?;
            let name = self.capability(term.field).map_or_else(|| term.field.name.into(), |(_, name)| name);
            Some(Operand { term: *term, name, number })
        };
        // An unknown capability may be the one that permits the value.
        let right = limit.right.iter().map(operand).collect::<Option<Vec<_>>>()?;
        let mut values = self.values(limit.left.field).into_iter();
        let value = values.find(|value| !limit.rule.holds(limit.left.of(*value), &right))?;
        let left = Operand { term: limit.left, name: limit.left.field.name.into(), number: value };
        let words = limit.rule.words(opcode, &left, &right);
        let names: Vec<&str> = right.iter().map(|one| one.name.as_str()).collect();
        Some(Violation { opcode, field: left.name, capability: names.join(" or "), source: limit.source, words })
    }
}
