//! Frames on the software card: from function to function, every error, every refusal, and nothing for strict mode to
//! report.

mod ends;
mod errors;
mod frames;
mod refusals;
