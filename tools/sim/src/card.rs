//! A card: its functions, and the thread that runs them.
