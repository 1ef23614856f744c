//! Object tables: every object that firmware created, by number.
//!
//! Firmware commands create and destroy objects; the engines use them. Numbers are allocated as on a card: the lowest
//! free one first, above the reserved ones.

mod copied;
mod cq;
mod dct;
mod device_memory;
mod eq;
mod ethernet;
mod l2_table;
mod memory;
mod mkey;
mod multicast;
mod on_demand;
mod port;
mod posts;
mod qp;
mod qp_progress;
mod queue_name;
mod rate;
mod srq;
mod streams;
mod uar;
mod wait;
mod work;

pub(crate) use copied::{CopiedWqe, blocks_of};
pub(crate) use cq::Compression;
pub use cq::{ArmState, Cq, CqSeen, CqStatus};
pub use dct::Dct;
pub use device_memory::{Bytes, DeviceMemory, Quadwords};
pub use eq::Eq;
pub use ethernet::{Dispatch, Lro, Rq, Rqt, SendsThrough, Sq, Tir, Tis};
pub(crate) use ethernet::{Joined, OpenWqe, Striding};
pub use l2_table::L2Table;
pub use memory::{Doorbell, MAX_PAGE_SHIFT, MIN_PAGE_SHIFT, PageList, Umem};
pub(crate) use memory::{TRANSLATIONS, addresses};
pub(crate) use mkey::User;
pub use mkey::{
    Mkey, MkeyRights, NULL_LKEY, OCTWORD, Pattern, REPEAT, RESERVED_LKEY, Translation, keys_of, splice, spliced,
};
pub use multicast::Groups;
pub use on_demand::{ABSENT_KEY, OnDemand};
pub(crate) use on_demand::{Absent, PRESENT, READ as READ_PAGE, WRITE as WRITE_PAGE, page_rights};
pub use port::{GidTable, RoceAddress, Vport};
pub(crate) use port::{layout_of, mac_in};
pub(crate) use posts::Posts;
pub use qp::{AddressPath, Qp, RecvRing, SendRing};
pub(crate) use qp::{GROUP_QPN, GSI_QPN};
pub use qp_progress::RcState;
pub(crate) use qp_progress::{
    AtomicResult, Buffer, Connection, Consumed, FaultyMemory, HeldByQueue, Holder, Message, PendingAck, ReceiveFault,
    Reply, Requester, Responder, SendFault,
};
pub(crate) use queue_name::QueueName;
pub use rate::{Executed, Frames, Pace, Rate, Rates};
pub use srq::{Srq, XrcSrq};
pub(crate) use streams::{Streamed, Streams};
pub use uar::{BLUEFLAME_BUFFER, CQ_DOORBELL, EQ_ARM, EQ_UPDATE, FIRST_UAR, LOG_PAGE, PAGE, SEND_DOORBELL, Uar};
pub use wait::TimeWait;
pub use work::Failure;
pub(crate) use work::{Datagram, List, Piece, ReceiveWork, SendWork, Update};

use std::collections::BTreeSet;

use crate::profile::Profile;
use crate::steering::Steering;
pub use crate::table::{DRIVER, SHARED, Table};

/// A protection domain.
#[derive(Debug)]
pub struct Pd {
    /// Objects that name it.
    pub users: u32,
}

/// A user context: isolates the objects of one process.
#[derive(Debug)]
pub struct UserContext {
    /// Its permissions. PRM `uctx.cap`.
    pub cap: u32,
}

/// A transport domain.
#[derive(Debug)]
pub struct TransportDomain {
    /// TISs and TIRs that name it.
    pub users: u32,
}

/// An XRC domain.
#[derive(Debug, Default)]
pub struct Xrcd {
    /// Objects that name it.
    pub users: u32,
}

/// A queue counter.
#[derive(Debug, Default)]
pub struct QueueCounter {
    /// Packets dropped or NAKed because no receive was posted.
    pub out_of_buffer: u32,
    /// Packets out of sequence.
    pub out_of_sequence: u32,
    /// Duplicate requests.
    pub duplicate_request: u32,
    /// RNR NAKs received.
    pub rnr_nak_retry_err: u32,
    /// Sequence error NAKs received.
    pub packet_seq_err: u32,
    /// Responses that imply the loss of an earlier one.
    pub implied_nak_seq_err: u32,
    /// RDMA write requests executed.
    pub rx_write_requests: u32,
    /// RDMA read requests executed.
    pub rx_read_requests: u32,
    /// Atomic requests executed.
    pub rx_atomic_requests: u32,
    /// ACK timeouts.
    pub local_ack_timeout_err: u32,
}

/// A run of queue pair numbers that no queue pair gets.
#[derive(Debug)]
pub struct ReservedQpns;

/// Tables of queues: an engine borrows one queue and, beside it, the rest of the function.
#[derive(Debug)]
pub struct Queues {
    /// By `qpn`.
    pub qps: Table<Qp>,
    /// By `sqn`; numbers above all queue pairs.
    pub sqs: Table<Sq>,
    /// By `rqn`; numbers above all send queues.
    pub rqs: Table<Rq>,
    /// By `dctn`; numbers above all receive queues.
    pub dcts: Table<Dct>,
    /// Connections of targets, and channels of initiators' streams, hidden from software; numbers above all targets.
    /// They belong to nobody.
    pub connections: Table<Qp>,
    /// Numbers of no queue, above all others. By the upper bits of a number, which are those of its whole run.
    pub reserved: Table<ReservedQpns>,
}

impl Queues {
    /// Empty tables, as after reset, with the sizes that the profile announces.
    pub fn new(profile: &Profile) -> Self {
        let caps = &profile.general_max;
        let first_sq = 1u32 << caps.log_max_qp();
        let first_rq = first_sq + (1 << caps.log_max_sq());
        let first_dct = first_rq + (1 << caps.log_max_rq());
        let first_connection = first_dct + MOST_DCTS;
        let log_run = profile.general_2.log_reserved_qpn_granularity();
        let first_reserved = (first_connection + MOST_CONNECTIONS).div_ceil(1 << log_run);
        let runs = (1u32 << profile.general_2.log_max_num_reserved_qpn()) >> log_run;
        Queues {
            // The reserved queue pair numbers are never allocated.
            qps: Table::new(FIRST_QP, first_sq - FIRST_QP),
            sqs: Table::new(first_sq, 1 << caps.log_max_sq()),
            rqs: Table::new(first_rq, 1 << caps.log_max_rq()),
            dcts: Table::new(first_dct, MOST_DCTS),
            connections: Table::new(first_connection, MOST_CONNECTIONS),
            reserved: Table::new(first_reserved, runs),
        }
    }

    /// The queue pair or connection that the scheduler knows by `number`.
    pub(crate) fn scheduled(&mut self, number: u32) -> Option<&mut Qp> {
        match self.qps.get_mut(number) {
            Some(qp) => Some(qp),
            None => self.connections.get_mut(number),
        }
    }

    /// The queue pair that a packet to `number` is for: an answer to a stream is for its channel.
    pub(crate) fn addressed(&mut self, number: u32) -> Option<&mut Qp> {
        match self.qps.get_mut(number) {
            Some(qp) => Some(qp),
            None => self.connections.get_mut(number).filter(|qp| qp.is_channel()),
        }
    }

    /// Number of queues of all kinds.
    pub fn count(&self) -> usize {
        self.qps.len() + self.sqs.len() + self.rqs.len() + self.dcts.len() + self.reserved.len()
    }

    /// Sets the user context on whose behalf queues are used and created: see [`Table::act_for`].
    pub fn act_for(&mut self, uid: u16) {
        self.qps.act_for(uid);
        self.sqs.act_for(uid);
        self.rqs.act_for(uid);
        self.dcts.act_for(uid);
        self.reserved.act_for(uid);
    }

    /// Number of queues of user context `uid`.
    pub fn owned_by(&self, uid: u16) -> usize {
        self.qps.owned_by(uid)
            + self.sqs.owned_by(uid)
            + self.rqs.owned_by(uid)
            + self.dcts.owned_by(uid)
            + self.reserved.owned_by(uid)
    }
}

/// The other tables of one function.
#[derive(Debug)]
pub struct Objects {
    /// By `uid`.
    pub user_contexts: Table<UserContext>,
    /// The user context of the current command.
    acting: u16,
    /// By `pd`.
    pub pds: Table<Pd>,
    /// By `uar`, which is also the page's index in BAR 0.
    pub uars: Table<Uar>,
    /// Those with users.
    pub used_uars: BTreeSet<u32>,
    /// By `umem_id`.
    pub umems: Table<Umem>,
    /// By `mkey_index`, the upper 24 bits of a key.
    pub mkeys: Table<Mkey>,
    /// By `eq_number`.
    pub eqs: Table<Eq>,
    /// By `cqn`.
    pub cqs: Table<Cq>,
    /// By `srqn`, `rmpn` and `xrc_srqn`.
    pub srqs: Table<Srq>,
    /// By `xrcd`.
    pub xrcds: Table<Xrcd>,
    /// By `transport_domain`.
    pub transport_domains: Table<TransportDomain>,
    /// By `counter_set_id`.
    pub queue_counters: Table<QueueCounter>,
    /// By `tisn`.
    pub tiss: Table<Tis>,
    /// By `tirn`.
    pub tirs: Table<Tir>,
    /// By `rqtn`.
    pub rqts: Table<Rqt>,
    /// Rate limits of send queues.
    pub rates: Rates,
    /// Flow tables and flow counters.
    pub steering: Steering,
    /// Multicast groups.
    pub groups: Groups,
    /// Memory on the card.
    pub device_memory: DeviceMemory,
    /// The GID table.
    pub gids: GidTable,
    /// The function's own vport.
    pub vport: Vport,
    /// The L2 table, where the function manages the e-switch.
    pub l2_table: Option<L2Table>,
}

impl Objects {
    /// Empty tables, as after reset, with the sizes that the profile announces.
    pub fn new(index: usize, profile: &Profile) -> Self {
        let caps = &profile.general_max;
        // Number 0 of each kind is never allocated.
        let table = |first: u32, log_max: u8| (first, (1u32 << log_max) - first);
        // A key whose upper bits are those of a repeat block's `op` would be taken for one.
        let first_mkey = (REPEAT >> 8) + 1;
        let (pd, cq) = (table(1, caps.log_max_pd()), table(1, caps.log_max_cq()));
        let mkey = table(first_mkey, caps.log_max_mkey());
        let td = table(1, caps.log_max_transport_domain());
        let umem = table(1, caps.log_max_umem());
        let memic = &profile.device_memory;
        let uctx = table(1, caps.log_max_uctx().min(15));
        Objects {
            user_contexts: Table::new(uctx.0, uctx.1),
            acting: DRIVER,
            pds: Table::new(pd.0, pd.1),
            used_uars: BTreeSet::new(),
            uars: Table::new(FIRST_UAR, (memic.memic_bar_start_addr() >> LOG_PAGE) as u32 - FIRST_UAR),
            umems: Table::new(umem.0, umem.1),
            mkeys: Table::new(mkey.0, mkey.1),
            eqs: Table::new(1, u32::from(caps.max_num_eqs())),
            cqs: Table::new(cq.0, cq.1),
            srqs: Table::new(1, (1u32 << caps.log_max_srq().max(caps.log_max_rmp())) - 1),
            xrcds: Table::new(1, (1u32 << caps.log_max_xrcd()) - 1),
            transport_domains: Table::new(td.0, td.1),
            queue_counters: Table::new(1, u32::from(caps.max_qp_cnt())),
            tiss: Table::new(1, (1 << caps.log_max_tis()) - 1),
            tirs: Table::new(1, (1 << caps.log_max_tir()) - 1),
            rqts: Table::new(1, (1 << caps.log_max_rqt()) - 1),
            rates: Rates::default(),
            steering: Steering::new(profile),
            groups: Groups::default(),
            device_memory: DeviceMemory::new(memic.memic_bar_start_addr(), memic.memic_bar_size()),
            gids: GidTable::new(profile.roce_max.roce_address_table_size()),
            vport: Vport::new(profile.mac(index), profile.guid(index)),
            l2_table: L2Table::of(caps),
        }
    }

    /// Sets or clears a rate for the user context of the current command. Returns false if it is another's.
    pub fn set_rate(&mut self, index: u16, rate: Option<Rate>) -> bool {
        self.rates.set(index, self.acting, rate)
    }

    /// Whether the user context of the current command may name the rate at `index`.
    pub fn may_use_rate(&self, index: u16) -> bool {
        self.rates.may_use(index, self.acting)
    }

    /// Number of objects of all kinds.
    pub fn count(&self) -> usize {
        self.user_contexts.len()
            + self.pds.len()
            + self.uars.len()
            + self.umems.len()
            + self.mkeys.len()
            + self.eqs.len()
            + self.cqs.len()
            + self.srqs.len()
            + self.xrcds.len()
            + self.transport_domains.len()
            + self.queue_counters.len()
            + self.l2_entries()
            + self.device_memory.parts()
            + self.tiss.len()
            + self.tirs.len()
            + self.rqts.len()
            + self.steering.count()
    }

    /// Sets the user context on whose behalf objects are used and created: see [`Table::act_for`]. Returns the previous
    /// one.
    pub fn act_for(&mut self, uid: u16) -> u16 {
        let before = std::mem::replace(&mut self.acting, uid);
        self.pds.act_for(uid);
        self.uars.act_for(uid);
        self.umems.act_for(uid);
        self.mkeys.act_for(uid);
        self.eqs.act_for(uid);
        self.cqs.act_for(uid);
        self.srqs.act_for(uid);
        self.xrcds.act_for(uid);
        self.transport_domains.act_for(uid);
        self.queue_counters.act_for(uid);
        self.tiss.act_for(uid);
        self.tirs.act_for(uid);
        self.rqts.act_for(uid);
        self.steering.geneve_options.act_for(uid);
        self.steering.meters.act_for(uid);
        self.steering.samplers.act_for(uid);
        before
    }

    /// The user context of the current command; `None` for the driver.
    pub fn acting(&self) -> Option<&UserContext> {
        self.user_contexts.get(self.acting.into())
    }

    /// Number of objects of user context `uid`.
    pub fn owned_by(&self, uid: u16) -> usize {
        self.pds.owned_by(uid)
            + self.uars.owned_by(uid)
            + self.umems.owned_by(uid)
            + self.mkeys.owned_by(uid)
            + self.eqs.owned_by(uid)
            + self.cqs.owned_by(uid)
            + self.srqs.owned_by(uid)
            + self.xrcds.owned_by(uid)
            + self.transport_domains.owned_by(uid)
            + self.queue_counters.owned_by(uid)
            + self.tiss.owned_by(uid)
            + self.tirs.owned_by(uid)
            + self.rqts.owned_by(uid)
            + self.steering.geneve_options.owned_by(uid)
            + self.steering.meters.owned_by(uid)
            + self.steering.samplers.owned_by(uid)
    }

    /// Number of L2 table entries in use.
    pub fn l2_entries(&self) -> usize {
        self.l2_table.as_ref().map_or(0, L2Table::len)
    }
}

/// Maximum number of dynamically connected targets, and of connections with them and channels to them.
const MOST_DCTS: u32 = 1 << 16;
const MOST_CONNECTIONS: u32 = 1 << 20;
/// The first queue pair number allocated; lower ones are reserved.
const FIRST_QP: u32 = 64;
