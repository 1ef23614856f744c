//! Connections on the software card, most of them reliable: data by every operation, events, changes while they work,
//! errors, refusals.

mod atomics;
mod copying;
mod counters;
mod data;
mod device_memory;
mod endpoints;
mod ends;
mod errors;
mod events;
mod exclusive;
mod fast_keys;
mod lives;
mod masked_atomics;
mod modes;
mod modify;
mod owning;
mod parent_domains;
mod queries;
mod refusals;
mod regions;
mod resize;
mod several;
mod sharing;
mod unreliable;
mod windows;
