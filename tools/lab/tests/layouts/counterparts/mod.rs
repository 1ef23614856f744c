//! C structures for layouts whose members have other names than the PRM's fields.

mod cm;
mod command;
mod cqe;
mod device;
mod event;
mod ib;
mod own;
mod wqe;

use crate::claims::Header;

/// For a member that is a C bit field.
pub const BIT_FIELD: &str = "bit field";
/// For a field of bits that a macro of `rdma/ibta_vol1_c12.h` names.
pub const CM_FIELD: &str = "CM field";
/// For bytes that a macro of `rdma/ibta_vol1_c12.h` names.
pub const CM_MEMORY: &str = "CM memory";

/// A C structure that defines the positions of a layout's fields.
pub struct Counterpart {
    pub layout: &'static str,
    pub header: Header,
    pub c: &'static str,
    /// Whether the layout has the same size.
    pub sized: bool,
    /// Field, or the list after the fixed part; member, empty for a list that the structure does not declare; the bits
    /// of the member as a C expression, empty for all of them, or [`BIT_FIELD`], [`CM_FIELD`], [`CM_MEMORY`].
    pub fields: &'static [(&'static str, &'static str, &'static str)],
}

/// All counterparts.
pub fn all() -> impl Iterator<Item = &'static Counterpart> {
    [wqe::ROWS, cqe::ROWS, event::ROWS, device::ROWS, command::ROWS, ib::ROWS, cm::ROWS, own::ROWS]
        .into_iter()
        .flatten()
}
