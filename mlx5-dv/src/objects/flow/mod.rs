//! Steering of received frames: flow tables, their groups, and rules.

pub(super) mod criteria;
pub(super) mod group;
pub(super) mod matcher;
pub(super) mod rule;
pub(super) mod table;
