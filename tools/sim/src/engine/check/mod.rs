//! What strict mode looks for while queues work.

pub(super) mod consumer_index;
pub(super) mod receives;
pub(super) mod record;
