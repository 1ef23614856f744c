//! Nothing but tests: run them with `.ci/schemas`.
