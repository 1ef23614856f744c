//! Layouts that are, whole or in part, a structure which names its members in another way than the PRM its fields.

mod command;
mod cqe;
mod device;
mod event;
mod ib;
mod own;
mod wqe;

use crate::claims::Header;

/// For a member that is a bit field of C.
pub const BIT_FIELD: &str = "bit field";

/// A C structure that says where fields of a layout lie.
pub struct Counterpart {
    pub layout: &'static str,
    pub header: Header,
    pub c: &'static str,
    /// Whether the whole size is the layout's too.
    pub sized: bool,
    /// Field, or the list after the fixed part; member, empty for a list that the structure does not declare; the bits
    /// of the member it is, as a C expression, or empty for all of them, or [`BIT_FIELD`].
    pub fields: &'static [(&'static str, &'static str, &'static str)],
}

/// Every counterpart.
pub fn all() -> impl Iterator<Item = &'static Counterpart> {
    [wqe::ROWS, cqe::ROWS, event::ROWS, device::ROWS, command::ROWS, ib::ROWS, own::ROWS].into_iter().flatten()
}
