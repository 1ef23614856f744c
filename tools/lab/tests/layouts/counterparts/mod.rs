//! Layouts that are, whole or in part, a structure which names its members in another way than the PRM its fields.

mod cqe;
mod device;
mod event;
mod wqe;

use crate::claims::Header;

/// A C structure that says where fields of a layout lie.
pub struct Counterpart {
    pub layout: &'static str,
    pub header: Header,
    pub c: &'static str,
    /// Whether the whole size is the layout's too.
    pub sized: bool,
    /// Field; member; the bits of the member it is, as a C expression, or empty for all of them.
    pub fields: &'static [(&'static str, &'static str, &'static str)],
}

/// Every counterpart.
pub fn all() -> impl Iterator<Item = &'static Counterpart> {
    [wqe::ROWS, cqe::ROWS, event::ROWS, device::ROWS].into_iter().flatten()
}
