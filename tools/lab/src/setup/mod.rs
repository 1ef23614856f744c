//! Fetches and unpacks the packages of the lab.

mod aarch64;
mod apt;
mod kernel;
mod mirror;
mod sources;
mod tree;

pub(crate) use sources::release_number;
pub(crate) use tree::{Tree, ensure};
