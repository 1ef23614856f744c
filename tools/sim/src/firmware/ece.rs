//! ECE (Enhanced Connection Establishment): options that the two ends of a connection agree on. PRM "ece" of the queue
//! pair commands. Public are their way, which Linux and libmlx5 take, and their version in the upper four bits; not the
//! options themselves. The model offers version 1, without any option.
//!
//! CREATE_QP and CREATE_DCT are asked for a version, and answer what the card offers. A state change sets the options
//! that the ends agreed on, less those that the card does not have, and answers the rest. A 0 changes nothing.

use super::syndromes::Syndrome;
use crate::function::Function;

/// Version 1, no options.
const OFFERED: u32 = 1 << 28;

/// What the card has of the options `wanted`.
pub(super) fn reduce(f: &Function, wanted: u32) -> Result<u32, Syndrome> {
    if wanted != 0 && !f.nic.firmware.caps.general().ece_support() {
        return Err(Syndrome::CapabilityNotAnnounced);
    }
    Ok(wanted & OFFERED)
}
