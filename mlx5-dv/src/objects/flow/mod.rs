//! Steering: flow tables, their groups, rules, what these match and do, and counters.

pub(super) mod actions;
mod conflict;
pub(super) mod counter;
#[cfg(test)]
mod every_field;
mod fields;
pub(super) mod geneve;
pub(super) mod group;
pub(super) mod matcher;
pub(super) mod matching;
pub(super) mod meter;
pub(super) mod modify;
mod numbers;
mod protocols;
pub(super) mod reformat;
pub(super) mod rule;
pub(super) mod rule_set;
pub(super) mod sampler;
pub(super) mod table;
