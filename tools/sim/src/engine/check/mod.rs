//! Checks of strict mode while queues run.

pub(super) mod consumer_index;
pub(super) mod key_fence;
pub(super) mod receives;
pub(super) mod record;
