//! The tables: every object firmware made, by its number.
//!
//! Firmware commands create and destroy them; the engines use them. Numbers are given out as cards do: lowest free
//! first, above a base that leaves the reserved ones out.

mod cq;
mod eq;
mod memory;
mod mkey;
mod qp;
mod table;

pub use cq::{ArmState, Cq, CqStatus};
pub use eq::Eq;
pub use memory::{Doorbell, PageList, Umem};
pub use mkey::{Mkey, MkeyRights, Translation};
pub use qp::{AddressPath, Qp, RecvRing, SendRing};
pub use table::Table;

/// A protection domain.
#[derive(Debug)]
pub struct Pd {
    /// Objects that name it.
    pub users: u32,
}

/// A user access region page.
#[derive(Debug)]
pub struct Uar {
    /// Objects that name it.
    pub users: u32,
}

/// A transport domain.
#[derive(Debug)]
pub struct TransportDomain;

/// A queue counter.
#[derive(Debug, Default)]
pub struct QueueCounter {
    /// Packets dropped or NAKed because no receive was posted.
    pub out_of_buffer: u32,
    /// Packets out of sequence.
    pub out_of_sequence: u32,
    /// Duplicate requests.
    pub duplicate_request: u32,
    /// RNR NAKs sent.
    pub rnr_nak_retry_err: u32,
    /// Sequence error NAKs received.
    pub packet_seq_err: u32,
    /// Acknowledgements that never came.
    pub local_ack_timeout_err: u32,
}

/// All tables of one function.
#[derive(Debug)]
pub struct Objects {
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
    /// By `qpn`.
    pub qps: Table<Qp>,
    /// By `transport_domain`.
    pub transport_domains: Table<TransportDomain>,
    /// By `counter_set_id`.
    pub queue_counters: Table<QueueCounter>,
}

impl Objects {
    /// Empty tables, as after reset.
    pub fn new(profile: &crate::profile::Profile) -> Self {
        use crate::bar;
        let uars = (1u32 << (profile.log_bar_size - bar::LOG_PAGE)) - bar::FIRST_UAR;
        Objects {
            pds: Table::new(1, 1 << 16),
            uars: Table::new(bar::FIRST_UAR, uars),
            umems: Table::new(1, 1 << 16),
            mkeys: Table::new(1, 1 << 20),
            eqs: Table::new(1, 127),
            cqs: Table::new(1, 1 << 20),
            qps: Table::new(64, 1 << 18),
            transport_domains: Table::new(1, 1 << 16),
            queue_counters: Table::new(1, 255),
        }
    }
}
