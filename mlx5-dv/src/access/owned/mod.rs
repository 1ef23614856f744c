//! A function that is ours alone.
