//! Queue pairs.

use mlx5_prm::values::{PathMtu, QpState, ServiceType};
use mlx5_prm::wqe::SEGMENT;

use super::{Doorbell, PageList, RcState, User};
use crate::dma::{Dma, DmaFault};
use crate::transport::Transport;

/// Where a queue pair's packets go. From `qpc.primary_address_path`.
#[derive(Debug, Clone, Default)]
pub struct AddressPath {
    /// Our GID index.
    pub src_addr_index: u8,
    /// Remote GID, or the remote IP as one.
    pub rgid: [u8; 16],
    /// Remote MAC.
    pub rmac: [u8; 6],
    /// UDP source port.
    pub udp_sport: u16,
    /// IP hop limit.
    pub hop_limit: u8,
    /// IP traffic class.
    pub tclass: u8,
    /// IPv6 flow label.
    pub flow_label: u32,
    /// Ethernet priority.
    pub eth_prio: u8,
    /// Acknowledge timeout: 4.096 us times two to this; 0 for none.
    pub ack_timeout: u8,
    /// Port, from 1.
    pub port: u8,
}

/// The send ring, in WQEBBs of 64 bytes.
#[derive(Debug, Clone)]
pub struct SendRing {
    /// Its memory.
    pub memory: PageList,
    /// log2 of its WQEBBs.
    pub log_size: u32,
}

/// The receive ring.
#[derive(Debug, Clone)]
pub struct RecvRing {
    /// Its memory.
    pub memory: PageList,
    /// log2 of its WQEs.
    pub log_size: u32,
    /// log2 of a WQE's bytes.
    pub log_stride: u32,
}

impl RecvRing {
    /// Bytes of the longest WQE: 64 segments.
    pub const LONGEST: usize = 64 * SEGMENT;

    /// Reads the WQE number `index` into `room`: its bytes.
    pub fn read<'a>(&self, dma: &Dma, index: u16, room: &'a mut [u8; Self::LONGEST]) -> Result<&'a [u8], DmaFault> {
        let place = u64::from(index) & ((1 << self.log_size) - 1);
        let wqe = &mut room[..1 << self.log_stride.min(Self::LONGEST.ilog2())];
        self.memory.read(dma, place << self.log_stride, wqe)?;
        Ok(wqe)
    }
}

/// A queue pair.
#[derive(Debug)]
pub struct Qp {
    /// Its number.
    pub qpn: u32,
    /// Where it is in its life.
    pub state: QpState,
    /// Transport service.
    pub service: ServiceType,
    /// Protection domain.
    pub pd: u32,
    /// UAR page of its doorbell.
    pub uar: u32,
    /// Number software wants in completions; `None`: `qpn`.
    pub user_index: Option<u32>,
    /// The send ring; `None` for a queue pair without one.
    pub send: Option<SendRing>,
    /// The receive ring; `None` for a queue pair without one.
    pub recv: Option<RecvRing>,
    /// The shared queue that it takes its receives from.
    pub srqn: Option<u32>,
    /// XRC domain.
    pub xrcd: u32,
    /// CQ of sends.
    pub cqn_send: u32,
    /// CQ of receives.
    pub cqn_recv: u32,
    /// Dword 0: receives posted. Dword 1: WQEBBs posted.
    pub doorbell: Doorbell,
    /// Where packets go.
    pub path: AddressPath,
    /// Payload of a full packet.
    pub mtu: PathMtu,
    /// The remote queue pair.
    pub remote_qpn: u32,
    /// Retries after a timeout or a sequence error.
    pub retry_count: u8,
    /// Retries after an RNR NAK; 7: without end.
    pub rnr_retry: u8,
    /// RNR NAK timer code that we send.
    pub min_rnr_nak: u8,
    /// log2 of the reads and atomics that we may have under way.
    pub log_sra_max: u8,
    /// log2 of the reads and atomics that the remote may have under way.
    pub log_rra_max: u8,
    /// Remote writes allowed (`rwe`).
    pub remote_write: bool,
    /// Remote reads allowed (`rre`).
    pub remote_read: bool,
    /// Remote atomics allowed (`rae`).
    pub remote_atomic: bool,
    /// Queue counter, 0 for none.
    pub counter_set_id: u8,
    /// The umem its rings lie in.
    pub umem: Option<u32>,
    /// The umem its doorbell record lies in.
    pub doorbell_umem: Option<u32>,
    /// The context as merged so far, for `QUERY_QP`.
    pub context: mlx5_prm::ctx::Qpc,
    /// PSNs, rings' positions, everything the transport keeps. Reset with the queue pair.
    pub rc: RcState,
}

impl Qp {
    /// How its packets travel.
    pub fn transport(&self) -> Transport {
        match self.service {
            ServiceType::Uc => Transport::Uc,
            ServiceType::Ud | ServiceType::Qp1 => Transport::Ud,
            ServiceType::Xrc => Transport::Xrc,
            _ => Transport::Rc,
        }
    }

    /// Who this queue pair is to a key.
    pub(crate) fn user(&self) -> User {
        let every_pd = self.service == ServiceType::RegUmr;
        User { pd: self.pd, qpn: self.qpn, every_pd, is_trusted: self.context.rlky() }
    }
}

/// The number by which every function's general services are reached.
pub(crate) const GSI_QPN: u32 = 1;
/// The number that datagrams to a group go to.
pub(crate) const GROUP_QPN: u32 = 0xff_ffff;
