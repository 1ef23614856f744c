//! Contexts: what the card keeps of each object.

mod adapter;
mod cqc;
mod eqc;
mod mkc;
mod qpc;
mod umem;
mod vport;

pub use adapter::*;
pub use cqc::*;
pub use eqc::*;
pub use mkc::*;
pub use qpc::*;
pub use umem::*;
pub use vport::*;
