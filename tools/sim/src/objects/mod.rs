//! The tables: every object firmware made, by its number.
//!
//! Firmware commands create and destroy them; the engines use them. Numbers are given out as cards do: lowest free
//! first, above a base that leaves the reserved ones out.

mod cq;
mod device_memory;
mod eq;
mod ethernet;
mod l2_table;
mod memory;
mod mkey;
mod multicast;
mod port;
mod qp;
mod qp_progress;
mod srq;
mod uar;
mod work;

pub use cq::{ArmState, Cq, CqSeen, CqStatus};
pub use device_memory::{Bytes, DeviceMemory};
pub use eq::Eq;
pub use ethernet::{Dispatch, Rq, Rqt, SendsThrough, Sq, Tir, Tis};
pub use l2_table::L2Table;
pub use memory::{Doorbell, MAX_PAGE_SHIFT, MIN_PAGE_SHIFT, PageList, Umem};
pub(crate) use memory::{TRANSLATIONS, addresses};
pub(crate) use mkey::User;
pub use mkey::{Mkey, MkeyRights, OCTWORD, RESERVED_LKEY, Translation, pieces};
pub use multicast::Groups;
pub use port::{GidTable, RoceAddress, Vport};
pub(crate) use port::{layout_of, mac_in};
pub use qp::{AddressPath, Qp, RecvRing, SendRing};
pub(crate) use qp::{GROUP_QPN, GSI_QPN};
pub use qp_progress::RcState;
#[cfg(test)]
pub(crate) use qp_progress::Requester;
pub(crate) use qp_progress::{Answer, Buffer, Consumed, Message, Reply};
pub use srq::{Srq, XrcSrq};
pub use uar::{BLUEFLAME_BUFFER, CQ_DOORBELL, EQ_ARM, EQ_UPDATE, FIRST_UAR, LOG_PAGE, PAGE, SEND_DOORBELL, Uar};
pub use work::Failure;
pub(crate) use work::{Datagram, List, Piece, ReceiveWork, SendWork, Update};

use crate::profile::Profile;
use crate::steering::Steering;
pub use crate::table::{DRIVER, SHARED, Table};

/// A protection domain.
#[derive(Debug)]
pub struct Pd {
    /// Objects that name it.
    pub users: u32,
}

/// A user context: whose objects no other may name.
#[derive(Debug)]
pub struct UserContext {
    /// What it was given to do. PRM `uctx.cap`.
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
    /// Answers that showed that one before them was lost.
    pub implied_nak_seq_err: u32,
    /// Writes taken.
    pub rx_write_requests: u32,
    /// Reads taken.
    pub rx_read_requests: u32,
    /// Atomics taken.
    pub rx_atomic_requests: u32,
    /// Acknowledgements that never came.
    pub local_ack_timeout_err: u32,
}

/// The tables of what does work: an engine borrows one queue of them beside all else of the function.
#[derive(Debug)]
pub struct Queues {
    /// By `qpn`.
    pub qps: Table<Qp>,
    /// By `sqn`; above all queue pairs.
    pub sqs: Table<Sq>,
    /// By `rqn`; above all send queues.
    pub rqs: Table<Rq>,
}

impl Queues {
    /// Empty tables, as after reset, of the sizes that the profile announces.
    pub fn new(profile: &Profile) -> Self {
        let caps = &profile.general_max;
        let first_sq = 1u32 << caps.log_max_qp();
        let first_rq = first_sq + (1 << caps.log_max_sq());
        Queues {
            // The special queue pairs are never given out.
            qps: Table::new(FIRST_QP, first_sq - FIRST_QP),
            sqs: Table::new(first_sq, 1 << caps.log_max_sq()),
            rqs: Table::new(first_rq, 1 << caps.log_max_rq()),
        }
    }

    /// How many queues there are, of all kinds.
    pub fn count(&self) -> usize {
        self.qps.len() + self.sqs.len() + self.rqs.len()
    }

    /// From now on, `uid` is who asks and who makes queues: see [`Table::act_for`].
    pub fn act_for(&mut self, uid: u16) {
        self.qps.act_for(uid);
        self.sqs.act_for(uid);
        self.rqs.act_for(uid);
    }

    /// How many queues are of user context `uid`.
    pub fn owned_by(&self, uid: u16) -> usize {
        self.qps.owned_by(uid) + self.sqs.owned_by(uid) + self.rqs.owned_by(uid)
    }
}

/// All other tables of one function.
#[derive(Debug)]
pub struct Objects {
    /// By `uid`.
    pub user_contexts: Table<UserContext>,
    /// In whose name the command comes that is being carried out.
    acting: u16,
    /// By `pd`.
    pub pds: Table<Pd>,
    /// By `uar`, which is also the page's index in BAR 0.
    pub uars: Table<Uar>,
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
    /// Empty tables, as after reset, of the sizes that the profile announces.
    pub fn new(index: usize, profile: &Profile) -> Self {
        let caps = &profile.general_max;
        // Number 0 of each kind, and the special queue pairs, are never given out.
        let table = |first: u32, log_max: u8| (first, (1u32 << log_max) - first);
        let (pd, mkey, cq) = (table(1, caps.log_max_pd()), table(1, caps.log_max_mkey()), table(1, caps.log_max_cq()));
        let td = table(1, caps.log_max_transport_domain());
        let umem = table(1, caps.log_max_umem());
        let memic = &profile.device_memory;
        let uctx = table(1, caps.log_max_uctx().min(15));
        Objects {
            user_contexts: Table::new(uctx.0, uctx.1),
            acting: DRIVER,
            pds: Table::new(pd.0, pd.1),
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
            steering: Steering::new(profile),
            groups: Groups::default(),
            device_memory: DeviceMemory::new(memic.memic_bar_start_addr(), memic.memic_bar_size()),
            gids: GidTable::new(profile.roce_max.roce_address_table_size()),
            vport: Vport::new(profile.mac(index), profile.guid(index)),
            l2_table: L2Table::of(caps),
        }
    }

    /// How many objects there are, of all kinds.
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

    /// From now on, `uid` is who asks and who makes objects: see [`Table::act_for`]. Who it was before.
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
        before
    }

    /// The user context in whose name the command comes; `None` for the driver's own.
    pub fn acting(&self) -> Option<&UserContext> {
        self.user_contexts.get(self.acting.into())
    }

    /// How many objects are of user context `uid`.
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
    }

    /// How many entries of the L2 table are set.
    pub fn l2_entries(&self) -> usize {
        self.l2_table.as_ref().map_or(0, L2Table::len)
    }
}

/// The first queue pair number given out: those below are the special ones.
const FIRST_QP: u32 = 64;
