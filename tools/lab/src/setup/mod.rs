//! Fetches and unpacks what the lab is made of.

mod aarch64;
mod apt;
mod mirror;
mod sources;
mod tree;

pub(crate) use tree::{Tree, ensure, release_number};
