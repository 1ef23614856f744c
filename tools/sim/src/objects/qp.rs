//! Queue pairs. PRM "Queue Pair Context".

use mlx5_prm::values::{PathMtu, QpState, ServiceType};
use mlx5_prm::wqe::SEGMENT;

use super::{Doorbell, PageList, RcState, User};
use crate::dma::{Counted, DmaFault, Traffic};
use crate::transport::Transport;

/// Addresses of a queue pair's packets, from `qpc.primary_address_path`. PRM "Address Path Structure".
#[derive(Debug, Clone, Default)]
pub struct AddressPath {
    /// Source GID index.
    pub src_addr_index: u8,
    /// Remote GID; an IPv4 address is mapped.
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
    /// Local ACK timeout code: 4.096 us << code; 0: no timeout. IBTA 9.7.6.1.3.
    pub ack_timeout: u8,
    /// Port, from 1.
    pub port: u8,
}

/// The send ring; its unit is a WQEBB of 64 bytes.
#[derive(Debug, Clone)]
pub struct SendRing {
    /// Its memory.
    pub memory: PageList,
    /// log2 of its size in WQEBBs.
    pub log_size: u32,
}

/// The receive ring.
#[derive(Debug, Clone)]
pub struct RecvRing {
    /// Its memory.
    pub memory: PageList,
    /// log2 of its size in WQEs.
    pub log_size: u32,
    /// log2 of a WQE's size in bytes.
    pub log_stride: u32,
    /// Whether software has published more than the 16 bits of its counter that the card knows, as DPDK does.
    pub is_wide: bool,
}

impl RecvRing {
    /// A ring of which nothing was posted.
    pub fn new(memory: PageList, log_size: u32, log_stride: u32) -> Self {
        RecvRing { memory, log_size, log_stride, is_wide: false }
    }

    /// Maximum size of a WQE in bytes: 64 segments.
    pub const LONGEST: usize = 64 * SEGMENT;

    /// Reads WQE number `index` into `room`; returns its bytes.
    pub fn read<'a, 'd>(
        &self,
        dma: impl Into<Counted<'d>>,
        index: u16,
        room: &'a mut [u8; Self::LONGEST],
    ) -> Result<&'a [u8], DmaFault> {
        let place = u64::from(index) & ((1 << self.log_size) - 1);
        let wqe = &mut room[..1 << self.log_stride.min(Self::LONGEST.ilog2())];
        self.memory.read(dma, place << self.log_stride, wqe)?;
        Ok(wqe)
    }
}

/// A queue pair.
#[derive(Debug)]
pub struct Qp {
    /// Its number; of a connection with a target, the target's; of a channel of streams, the initiator's.
    pub qpn: u32,
    /// Number of a connection or channel in [`Queues::connections`](super::Queues::connections).
    pub hidden: Option<u32>,
    /// Its state. IBTA 10.3.1.
    pub state: QpState,
    /// Transport service.
    pub service: ServiceType,
    /// Protection domain.
    pub pd: u32,
    /// UAR page of its doorbell.
    pub uar: u32,
    /// `user_index` of its completions; `None`: `qpn`.
    pub user_index: Option<u32>,
    /// The send ring; `None` for a queue pair without one.
    pub send: Option<SendRing>,
    /// The receive ring; `None` for a queue pair without one.
    pub recv: Option<RecvRing>,
    /// The shared receive queue, if it uses one.
    pub srqn: Option<u32>,
    /// XRC domain.
    pub xrcd: u32,
    /// CQ of send completions.
    pub cqn_send: u32,
    /// CQ of receive completions.
    pub cqn_recv: u32,
    /// Dword 0: receives posted. Dword 1: WQEBBs posted.
    pub doorbell: Doorbell,
    /// Addresses of its packets.
    pub path: AddressPath,
    /// Path MTU: payload bytes of a full packet.
    pub mtu: PathMtu,
    /// Remote QP number.
    pub remote_qpn: u32,
    /// Retry count for timeouts and sequence errors.
    pub retry_count: u8,
    /// Retry count for RNR NAKs; 7: unlimited. IBTA C9-132.
    pub rnr_retry: u8,
    /// RNR NAK timer code that the responder sends. IBTA 9.7.5.2.8.
    pub min_rnr_nak: u8,
    /// log2 of the maximum of outstanding reads and atomics as requester.
    pub log_sra_max: u8,
    /// log2 of the maximum of outstanding reads and atomics as responder.
    pub log_rra_max: u8,
    /// Remote writes allowed (`rwe`).
    pub remote_write: bool,
    /// Remote reads allowed (`rre`).
    pub remote_read: bool,
    /// Remote atomics allowed (`rae`).
    pub remote_atomic: bool,
    /// Queue counter, 0 for none.
    pub counter_set_id: u8,
    /// Options that the two ends agreed on.
    pub ece: u32,
    /// The umem its rings lie in.
    pub umem: Option<u32>,
    /// The umem its doorbell record lies in.
    pub doorbell_umem: Option<u32>,
    /// What its work moved across PCIe.
    pub traffic: Traffic,
    /// The context as merged so far, for `QUERY_QP`.
    pub context: mlx5_prm::ctx::Qpc,
    /// Transport state: PSNs, ring positions. Reset with the queue pair.
    pub rc: RcState,
}

impl Qp {
    /// The transport of its packets.
    pub fn transport(&self) -> Transport {
        match self.service {
            ServiceType::Uc => Transport::Uc,
            ServiceType::Ud | ServiceType::Qp1 => Transport::Ud,
            ServiceType::Xrc => Transport::Xrc,
            ServiceType::Dci | ServiceType::Dct => Transport::Dc,
            _ => Transport::Rc,
        }
    }

    /// Whether it is a channel of an initiator's streams.
    pub(crate) fn is_channel(&self) -> bool {
        self.hidden.is_some() && self.service == ServiceType::Dci
    }

    /// The number by which the scheduler knows it.
    pub(crate) fn scheduled(&self) -> u32 {
        self.hidden.unwrap_or(self.qpn)
    }

    /// Its properties for key checks.
    pub(crate) fn user(&self) -> User {
        let every_pd = self.service == ServiceType::RegUmr;
        let (is_trusted, registers_pages) = (self.context.rlky(), self.context.fre());
        User { pd: self.pd, qpn: self.qpn, every_pd, is_trusted, registers_pages }
    }
}

/// QP number of the general services (GSI) on the wire.
pub(crate) const GSI_QPN: u32 = 1;
/// Destination QP number of multicast datagrams.
pub(crate) const GROUP_QPN: u32 = 0xff_ffff;
