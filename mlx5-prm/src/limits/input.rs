//! Fields of a command's input by name.

use alloc::string::String;
use alloc::vec::Vec;
use core::convert::Infallible;

use crate::decode::{Found, walk};
use crate::layout::{Element, Field, Info, Kind, Reading};

/// The number in the field `path`; nested names are `outer.inner`. `None` if there is no such field, or too few bytes.
pub fn number_at(info: &Info, bytes: &[u8], path: &str) -> Option<u64> {
    let Some((outer, inner)) = path.split_once('.') else { return info.field(path)?.number(bytes) };
    let field = info.field(outer)?;
    match field.kind {
        Kind::Part { element: Element::Layout(part), .. } => number_at(part, bytes.get(field.offset..)?, inner),
        _ => None,
    }
}

/// The row of the field `path`.
pub(super) fn field_at(info: &Info, path: &str) -> Option<&'static Field> {
    let Some((outer, inner)) = path.split_once('.') else { return info.field(path) };
    match info.field(outer)?.kind {
        Kind::Part { element: Element::Layout(part), .. } => field_at(part, inner),
        _ => None,
    }
}

/// The PRM's name of a field's value.
pub(super) fn name_of(field: &Field, value: u64) -> Option<&'static str> {
    match field.kind {
        Kind::Bits { reading: Reading::Named(name), .. } => name(value),
        _ => None,
    }
}

/// The numbers of some fields, also in layouts that other fields choose.
pub(super) struct Numbers(Vec<(&'static str, Field, u64)>);

impl Numbers {
    /// The numbers of the fields `wanted`, for all elements of lists.
    pub(super) fn of(info: &'static Info, bytes: &[u8], wanted: Vec<&'static str>) -> Numbers {
        let (mut found, mut path) = (Vec::new(), Path::default());
        let _: Result<(), Infallible> = walk(info, bytes, &mut |at| {
            let name = path.name(&at);
            let wanted = wanted.iter().find(|wanted| **wanted == name);
            found.extend(wanted.zip(at.number).map(|(name, number)| (*name, *at.field, number)));
            Ok(())
        });
        Numbers(found)
    }

    /// The values of the field, one per element in a list.
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = u64> {
        self.0.iter().filter(move |(found, ..)| *found == name).map(|(.., number)| *number)
    }

    /// The PRM's name of a value of the field.
    pub(super) fn name_of(&self, name: &str, value: u64) -> Option<&'static str> {
        self.0.iter().find(|(found, ..)| *found == name).and_then(|(_, field, _)| name_of(field, value))
    }
}

/// The names of the enclosing layouts on a walk.
#[derive(Default)]
pub(super) struct Path {
    text: String,
    /// End of the name at each depth.
    ends: Vec<usize>,
}

impl Path {
    /// The full name of a field, without indices.
    pub(super) fn name(&mut self, at: &Found<'_>) -> &str {
        self.ends.truncate(at.depth);
        self.text.truncate(self.ends.last().copied().unwrap_or(0));
        if !self.text.is_empty() {
            self.text.push('.');
        }
        self.text.push_str(at.field.name);
        self.ends.push(self.text.len());
        &self.text
    }
}
