//! Reliable connection: PSNs, acknowledgements, retries.

/// What the transport keeps for one queue pair. Reset with it.
#[derive(Debug, Default)]
pub struct RcState {}
