//! Contexts: what the card keeps of each object.

pub(crate) mod adapter;
pub(crate) mod cqc;
pub(crate) mod eqc;
pub(crate) mod mkc;
pub(crate) mod qpc;
pub(crate) mod umem;
pub(crate) mod vport;

pub use adapter::*;
pub use cqc::*;
pub use eqc::*;
pub use mkc::*;
pub use qpc::*;
pub use umem::*;
pub use vport::*;
