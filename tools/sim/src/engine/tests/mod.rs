mod bench;
mod completions;
mod data;
mod errors;
mod faults;
mod speed;
mod strict;
