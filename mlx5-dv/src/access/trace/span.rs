//! A `tracing` span for each command.

use std::time::Duration;

use tracing::Span;
use tracing::field::{Empty, display};

use crate::access::RawCommand;
use crate::error::{CommandError, CommandErrorKind};

/// Span of one command, from sending to its result: level DEBUG, target `mlx5_dv::command`, fields `opcode`, `op_mod`,
/// `object`, `status`, `micros`. Without a subscriber it costs one check of a flag.
#[derive(Debug)]
pub(crate) struct CommandSpan(Span);

impl CommandSpan {
    /// Opens the span of `command`, which is about to be sent.
    pub(crate) fn begin(command: &RawCommand) -> Self {
        let (opcode, op_mod) = (command.opcode(), command.op_mod());
        CommandSpan(tracing::debug_span!(
            target: "mlx5_dv::command",
            "command",
            %opcode,
            op_mod,
            object = command.object,
            status = Empty,
            micros = Empty,
        ))
    }

    /// Records the result, and the time that it took.
    pub(crate) fn end<T>(&self, result: &Result<T, CommandError>, elapsed: Duration) {
        if self.0.is_disabled() {
            return;
        }
        match result.as_ref().map_err(|error| &error.kind) {
            Ok(_) => self.0.record("status", "OK"),
            Err(CommandErrorKind::Status { status, .. }) => self.0.record("status", display(status)),
            Err(other) => self.0.record("status", display(other)),
        };
        self.0.record("micros", u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX));
    }
}
