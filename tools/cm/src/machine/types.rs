//! Inputs and outputs of the state machine.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use mlx5_prm::ib::{CmRejectReason, CmSidrStatus, CmTransport, MAD};
use mlx5_prm::values::PathMtu;

use crate::message::{Gid, Service, address_of};

/// Both ends of a path of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Path {
    /// The local GID.
    pub local: Gid,
    /// The remote's GID.
    pub remote: Gid,
}

impl Path {
    /// The remote's address.
    pub fn remote_address(&self) -> IpAddr {
        address_of(self.remote)
    }
}

/// A connection, or a request for the queue pair of a service: the local communication ID, never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub(crate) u32);

impl ConnectionId {
    /// The number in messages.
    pub fn number(self) -> u32 {
        self.0
    }
}

/// Limits and times.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// GUID of the card.
    pub ca_guid: u64,
    /// Distinguishes this process's communication IDs from those of an earlier process.
    pub seed: u64,
    /// Time that either side may take to answer: 4.096 us * 2^n, 5 bits. Default: 18 (1.07 s).
    pub response_timeout: u8,
    /// Maximum lifetime of a packet: 4.096 us * 2^n, 5 bits. Default: 14 (67 ms).
    pub packet_lifetime: u8,
    /// Number of retransmissions of a message without an answer, 0 to 15. Default: 15.
    pub retries: u8,
    /// Longest delay that an MRA or a request of the remote can set, as a code. Default: 21 (8.6 s).
    pub longest_delay: u8,
    /// How long an ended connection is kept, so that its late messages are recognised. Default: 1 s.
    pub timewait: Duration,
    /// Time that the program may take to answer an event, before the connection is rejected. Default: 60 s.
    pub patience: Duration,
    /// Maximum number of connections, including those in timewait. Default: 16384.
    pub connections: usize,
    /// Maximum number of requests of a listener that wait for the program's answer. Default: 1024.
    pub backlog: usize,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            ca_guid: 0,
            seed: 0,
            response_timeout: 18,
            packet_lifetime: 14,
            retries: 15,
            longest_delay: 21,
            timewait: Duration::from_secs(1),
            patience: Duration::from_secs(60),
            connections: 16384,
            backlog: 1024,
        }
    }
}

impl Config {
    /// Maximum time from a message to its answer: the way to the remote and back, and the processing time `code`.
    pub(crate) fn round_trip(&self, code: u8) -> Duration {
        time_of(code.min(self.longest_delay)) + 2 * time_of(self.packet_lifetime)
    }
}

/// Time of a 5-bit code: 4.096 us * 2^code.
pub(crate) fn time_of(code: u8) -> Duration {
    Duration::from_nanos(4096 << code.min(31))
}

/// What one side offers in a REQ or accepts in a REP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameters {
    /// The local queue pair, 24 bits.
    pub qpn: u32,
    /// First PSN that the remote sends, 24 bits: `rq_psn` of the local queue pair. IBTA "Starting PSN", as Linux's
    /// connection manager uses it. On `devx:` the kernel chooses it, and this is 0, or for an answer what
    /// [`attributes`](crate::ConnectionManager::attributes) says.
    pub psn: u32,
    /// Maximum number of the remote's outstanding READs and atomics. Default: 16. The card's own limit counts, too.
    pub responder_resources: u8,
    /// Number of our own outstanding READs and atomics that we want. Default: 16. The card's own limit counts, too.
    pub initiator_depth: u8,
    /// Number of the remote's retries if we have no receive posted, 0 to 6; 7 means no limit. Default: 7.
    pub rnr_retry_count: u8,
    /// Whether our receives come from a shared receive queue. Default: no.
    pub srq: bool,
    /// The program's private data: up to 56 bytes in a request, 196 in a reply.
    pub private_data: Vec<u8>,
}

impl Parameters {
    /// For queue pair `qpn`, whose remote starts at `psn`; everything else is default.
    pub fn new(qpn: u32, psn: u32) -> Self {
        Parameters {
            qpn,
            psn,
            responder_resources: 16,
            initiator_depth: 16,
            rnr_retry_count: 7,
            srq: false,
            private_data: Vec::new(),
        }
    }

    /// Sets [`private_data`](Self::private_data).
    pub fn private_data(mut self, data: &[u8]) -> Self {
        self.private_data = data.to_vec();
        self
    }
}

/// Parameters that the requester sets for both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// The local port that the remote is told.
    pub source_port: u16,
    /// The transport. Default: RC.
    pub transport: CmTransport,
    /// Path MTU. Default: 1024 bytes. The one who asks chooses for both, and does not know the remote's MTU: an owned
    /// function's port takes its largest, while most networks have 1500 bytes, into which 1024 fit.
    pub path_mtu: PathMtu,
    /// Local ACK timeout: 4.096 us * 2^n, 5 bits. Default: 14 (67 ms).
    pub local_ack_timeout: u8,
    /// Number of retries after a timeout, 0 to 7. Default: 7.
    pub retry_count: u8,
    /// Traffic class: DSCP and ECN. Default: 0.
    pub traffic_class: u8,
    /// Hop limit. Default: 64.
    pub hop_limit: u8,
    /// Service level: the Ethernet priority, 0 to 7. Default: 0.
    pub service_level: u8,
}

impl Default for Route {
    fn default() -> Self {
        Route {
            source_port: 0,
            transport: CmTransport::Rc,
            path_mtu: PathMtu::Mtu1024,
            local_ack_timeout: 14,
            retry_count: 7,
            traffic_class: 0,
            hop_limit: 64,
            service_level: 0,
        }
    }
}

/// Parameters of a queue pair that both sides agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agreed {
    /// Path to the remote.
    pub path: Path,
    /// The local queue pair; 0 until the program sets it.
    pub local_qpn: u32,
    /// The remote queue pair.
    pub remote_qpn: u32,
    /// First PSN that the remote sends.
    pub rq_psn: u32,
    /// First PSN that we send.
    pub sq_psn: u32,
    /// Maximum number of the remote's outstanding READs and atomics.
    pub responder_resources: u8,
    /// Maximum number of our outstanding READs and atomics.
    pub initiator_depth: u8,
    /// Number of our retries if the remote has no receive posted.
    pub rnr_retry_count: u8,
    /// Whether the remote's receives come from a shared receive queue.
    pub srq: bool,
    /// Path MTU, timeouts and other parameters.
    pub route: Route,
}

impl Agreed {
    /// Nothing yet, of a connection along `path`.
    pub(crate) fn none(path: Path) -> Self {
        Agreed {
            path,
            local_qpn: 0,
            remote_qpn: 0,
            rq_psn: 0,
            sq_psn: 0,
            responder_resources: 0,
            initiator_depth: 0,
            rnr_retry_count: 0,
            srq: false,
            route: Route::default(),
        }
    }
}

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A remote requests a connection: accept or reject it.
    ConnectRequest {
        /// The listener.
        service: Service,
        /// The address of the requester.
        remote: SocketAddr,
        /// What it offers: the maximum numbers of its outstanding READs and atomics, and of ours.
        offer: Agreed,
        /// Private data of the remote program, padded with zeros.
        private_data: Vec<u8>,
    },
    /// The remote accepts: connect the queue pair, then call [`Machine::ready`](crate::Machine::ready).
    ConnectResponse {
        /// What both sides agreed on.
        agreed: Agreed,
        /// Private data of the remote program, padded with zeros.
        private_data: Vec<u8>,
    },
    /// The remote is ready, too. For the side that accepted.
    Established {
        /// Private data of the remote program, padded with zeros.
        private_data: Vec<u8>,
    },
    /// The remote refuses. The last event of the connection.
    Rejected {
        /// The reason.
        reason: CmRejectReason,
        /// Additional information about the reason.
        additional: Vec<u8>,
        /// Private data of the remote program, padded with zeros.
        private_data: Vec<u8>,
    },
    /// The remote or the program did not answer. The last event of the connection.
    Unreachable,
    /// The connection has ended: nothing more may be sent.
    Disconnected {
        /// Whether the remote confirmed or requested it. If not, it did not answer.
        confirmed: bool,
        /// Private data of the remote program, padded with zeros.
        private_data: Vec<u8>,
    },
    /// An ended connection has no late packets any more: its queue pair can be reused. The last event of the
    /// connection.
    TimewaitExit,
    /// A remote requests the queue pair of a service: answer or refuse.
    ResolveRequest {
        /// The listener.
        service: Service,
        /// The address of the requester.
        remote: SocketAddr,
        /// The path to the remote.
        path: Path,
        /// Private data of the remote program, padded with zeros.
        private_data: Vec<u8>,
    },
    /// The queue pair of a service. The last event of the request.
    Resolved {
        /// The remote queue pair.
        qpn: u32,
        /// Its Q_Key.
        qkey: u32,
        /// Private data of the remote program, padded with zeros.
        private_data: Vec<u8>,
    },
    /// The remote refuses to tell its queue pair. The last event of the request.
    Unresolved {
        /// The reason.
        status: CmSidrStatus,
        /// Private data of the remote program, padded with zeros.
        private_data: Vec<u8>,
    },
}

impl Event {
    /// Whether this is the connection's last event: calls no longer know the connection.
    pub fn is_last(&self) -> bool {
        matches!(
            self,
            Event::Rejected { .. }
                | Event::Unreachable
                | Event::TimewaitExit
                | Event::Resolved { .. }
                | Event::Unresolved { .. }
        )
    }
}

/// What happened, without private data: `rejected: CONSUMER_DEFINED`.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::ConnectRequest { service, remote, .. } => write!(f, "{remote} requests a connection to {service}"),
            Event::ConnectResponse { .. } => f.write_str("accepted"),
            Event::Established { .. } => f.write_str("established"),
            Event::Rejected { reason, .. } => write!(f, "rejected: {reason}"),
            Event::Unreachable => f.write_str("unreachable"),
            Event::Disconnected { confirmed: true, .. } => f.write_str("disconnected"),
            Event::Disconnected { confirmed: false, .. } => f.write_str("disconnected; the remote did not answer"),
            Event::TimewaitExit => f.write_str("timewait has ended"),
            Event::ResolveRequest { service, remote, .. } => {
                write!(f, "{remote} requests the queue pair of {service}")
            }
            Event::Resolved { qpn, .. } => write!(f, "the queue pair is {qpn:#08x}"),
            Event::Unresolved { status, .. } => write!(f, "refused: {status}"),
        }
    }
}

/// A management datagram to send, from and to queue pair 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transmit {
    /// Destination.
    pub path: Path,
    /// The datagram.
    pub mad: Box<[u8; MAD]>,
}

/// State of a connection. IBTA 12.9 "State Transition Diagrams".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Waits for a REP.
    ReqSent,
    /// Waits for the program to accept or reject.
    ReqReceived,
    /// Waits for an RTU.
    RepSent,
    /// Waits for the program's queue pair.
    RepReceived,
    /// Both sides are ready.
    Established,
    /// Waits for a DREP.
    DreqSent,
    /// Ended: late messages are answered.
    Timewait,
    /// Rejected: repeated requests are rejected again.
    Rejected,
    /// Waits for a SIDR_REP.
    SidrReqSent,
    /// Waits for the program to answer.
    SidrReqReceived,
    /// Answered: repeated requests are answered again.
    SidrAnswered,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::ReqSent => "REQ sent",
            State::ReqReceived => "REQ received",
            State::RepSent => "REP sent",
            State::RepReceived => "REP received",
            State::Established => "established",
            State::DreqSent => "DREQ sent",
            State::Timewait => "timewait",
            State::Rejected => "rejected",
            State::SidrReqSent => "SIDR_REQ sent",
            State::SidrReqReceived => "SIDR_REQ received",
            State::SidrAnswered => "SIDR_REP sent",
        })
    }
}
