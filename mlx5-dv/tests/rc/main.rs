//! Reliable connections on the software card: data by every operation, events, every error, every refusal.

mod atomics;
mod data;
mod endpoints;
mod ends;
mod errors;
mod events;
mod lives;
mod modes;
mod owning;
mod refusals;
