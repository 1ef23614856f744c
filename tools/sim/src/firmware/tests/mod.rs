//! The command interface from the driver's side.

mod announced;
mod bring_up;
pub(crate) mod client;
mod delivery;
mod ethernet;
mod ethernet_strict;
mod flow_meters;
mod flow_samplers;
mod garbage;
mod general_objects;
mod keys;
pub(in crate::firmware) mod limits;
mod lro;
mod memic;
mod on_demand;
mod pages;
mod qp_extension;
mod queue_pairs;
mod queues;
mod rate;
mod services;
mod users;
mod vport;
mod wait;
