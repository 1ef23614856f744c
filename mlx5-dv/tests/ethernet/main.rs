//! Frames on the software card: between functions, with every error and refusal, without strict-mode reports.

mod ends;
mod errors;
mod frames;
mod refusals;
mod spread;
