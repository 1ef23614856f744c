//! Frames on the software card: between functions, with every error and refusal, without strict-mode reports.

mod by_length;
mod compression;
mod each;
mod ends;
mod errors;
mod fields;
mod frames;
mod geneve_option;
mod header_changes;
mod in_place;
mod large;
mod lro;
mod many;
mod metadata;
mod multi_packet;
mod pace;
mod placing;
mod reformats;
mod refusals;
mod rules;
mod sender;
mod spread;
mod striding;
mod tunnels;
mod wait;
