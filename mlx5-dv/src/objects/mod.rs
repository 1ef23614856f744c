//! Firmware objects, one per file: the control path.
//!
//! # Contract
//! * Calls block until firmware has answered. They may allocate, and may be made from any thread.
//! * An object holds its parents by `Arc`: a queue pair keeps its protection domain, its completion queues and its UAR
//!   page alive. Handles that destroy an object are not `Clone`; share an `Arc`.
//! * `destroy` returns whether it worked; if it failed, the error contains the object:
//!
//! ```compile_fail,E0382
//! fn twice(pd: std::sync::Arc<mlx5_dv::objects::Pd>) {
//!     let _ = mlx5_dv::objects::Pd::destroy(pd);
//!     let _ = mlx5_dv::objects::Pd::destroy(pd); // it is gone
//! }
//! ```
//!
//! * Dropping does the same and logs a failure. It never panics, and never frees memory that the card may still write:
//!   such memory is leaked.
//! * Options are checked against the card's capabilities first; the error names the field and the capability.

mod buffer;
mod check;
mod cq;
mod dct;
mod device_memory;
mod dma_buf_region;
mod doorbell;
mod exclusive_region;
mod flow;
mod implicit_region;
mod imported_region;
mod inline_headers;
mod kernel_object;
mod lro;
mod membership;
mod memory_region;
mod memory_window;
mod mkey;
mod null_region;
mod object;
mod pd;
mod qp;
mod queue_counter;
mod rate_limit;
mod raw_queue;
mod reserved_qpns;
mod ring;
mod ring_lease;
mod rq;
mod rqt;
mod sq;
mod srq;
mod tir;
mod tis;
mod tunnel;
mod uar;
mod umem;
mod umr_key;
mod vxlan_port;
mod xrcd;

pub use mlx5_prm::flow::{L4Type, L4TypeExt};
pub use mlx5_prm::obj::{FlowMeterColor, FlowMeterParameters, SamplerObj};

pub use crate::access::Advice;
pub use buffer::Buffer;
pub use cq::{Compression, Cq, CqModeration, CqOptions, CqeSize};
pub use dct::{DcTarget, Dct, DctOptions, DctStatus};
pub use device_memory::{DeviceMemory, DeviceMemoryRegion, Increment, TestAndSet};
pub use dma_buf_region::DmaBufRegion;
pub(crate) use doorbell::OfOwner;
pub use doorbell::{AnyBlueFlame, AnyDoorbell, DoorbellKind, DoorbellMode, Leased, Trapped};
pub use exclusive_region::ExclusiveRegion;
pub use flow::actions::{FlowActions, FlowDestination, VlanTag};
pub use flow::counter::{Counted, FlowAging, FlowCounter, FlowCounters};
pub use flow::geneve::GeneveOption;
pub use flow::group::{FlowGroup, FlowGroupStatus};
pub use flow::matcher::FlowMatcher;
pub use flow::matching::FlowMatch;
pub use flow::meter::{FlowMeter, FlowMeters, MeterRate};
pub use flow::modify::{HeaderChanges, HeaderField, ModifyHeader};
pub use flow::reformat::{PacketReformat, VxlanTunnel};
pub use flow::rule::{FlowRule, FlowRuleStatus};
pub use flow::rule_set::{FlowRules, FlowRulesOptions};
pub use flow::sampler::FlowSampler;
pub use flow::table::{Direction, FlowTable, FlowTableOptions};
pub use implicit_region::ImplicitRegion;
pub use imported_region::ImportedRegion;
pub use kernel_object::{DeviceMemoryHandle, DeviceMemoryRegionHandle, PdHandle, RegionHandle};
pub use lro::LroOptions;
pub use membership::{MULTICAST_QPN, Membership};
pub use memory_region::{MemoryRegion, RegionChanges};
pub use memory_window::{MemoryWindow, WindowType};
pub use mkey::{AccessFlags, Mkey};
pub use null_region::NullRegion;
pub use object::{DestroyError, DestroyReason};
pub use pd::Pd;
pub use qp::attributes::{InitAttributes, QpChanges, RtrAttributes, RtsAttributes};
pub use qp::datagram::{AddressHandle, DatagramAttributes};
pub use qp::ece::EceOptions;
pub use qp::initiator::InitiatorAttributes;
pub use qp::options::{DciStreams, QpOptions};
pub use qp::path::{AddressPath, InfinibandRoute};
pub use qp::xrc_target::XrcTarget;
pub use qp::{QpStatus, QueuePair};
pub use queue_counter::QueueCounter;
pub use rate_limit::{RateLimit, RateLimitOptions};
pub use raw_queue::QueueStatus;
pub use reserved_qpns::ReservedQpns;
pub use rq::{Rq, RqOptions, Strides};
pub use rqt::Rqt;
pub use sq::{FrameSource, Sq, SqOptions};
pub(crate) use sq::{SourceBytes, SqIdentity};
pub use srq::{Srq, SrqOptions, SrqStatus};
pub use tir::{HashFields, HashFunction, RssOptions, TOEPLITZ_KEY, Tir, Traffic};
pub use tis::{Tis, TisOptions, TransportDomain};
pub use tunnel::{TunnelHeaders, TunnelKind};
pub use uar::{Copying, Uar};
pub use umem::Umem;
pub use umr_key::{KeyLayout, UmrKey, UmrKeyOptions};
pub use vxlan_port::VxlanPort;
pub use xrcd::{OpenXrcd, Xrcd};

pub use ::uar::{BlueFlame, Plain, Shared};

pub(crate) use cq::CqRingParts;
pub(crate) use inline_headers::{ETHERNET, MOST_HEADERS, SERVICE_VLAN, VLAN, headers, most_headers, transport_end};
pub(crate) use qp::datagram::{DATAGRAMS, log_most};
pub(crate) use ring_lease::{ReceivePermit, ReceiveRingOwner, RingPermit, SendLimits, SendPermit, SendRingOwner};
pub(crate) use sq::FrameLimits;
pub(crate) use tunnel::{MOST_TUNNEL_HEADERS, TunnelOffloads};
