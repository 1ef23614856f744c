//! The hot path: send, receive, completion.
