mod bench;
mod completions;
mod data;
mod errors;
mod faults;
mod limits;
mod speed;
mod strict;
