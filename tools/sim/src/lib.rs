//! A software ConnectX.
//!
//! Being built: see the modules.
#![forbid(unsafe_code)]

pub mod bar;
pub mod card;
pub mod dma;
pub mod engine;
pub mod fault;
pub mod firmware;
pub mod function;
pub mod objects;
pub mod pci;
pub mod profile;
pub mod serve;
pub mod strict;
pub mod transport;
pub mod wire;
