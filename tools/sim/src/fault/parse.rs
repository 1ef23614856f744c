//! Faults from text, for command lines: `loss:1%`, `status:CREATE_CQ:3:0x62bbc6*2`.

use thiserror::Error;

/// Text that names no fault.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no such fault: {0}")]
pub struct ParseFaultError(pub String);
