//! What goes into the state machine and comes out of it.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use mlx5_prm::ib::{CmRejectReason, CmSidrStatus, CmTransport, MAD};
use mlx5_prm::values::PathMtu;

use crate::message::{Gid, Service, address_of};

/// Both ends of the way that messages take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Path {
    /// Our GID.
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

/// A connection, or a request for the queue pair of a service: our communication ID. Never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub(crate) u32);

impl ConnectionId {
    /// The number, as it is in messages.
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
    /// Distinguishes this process's communication IDs from those of one before it.
    pub seed: u64,
    /// How long either side may take to answer: 4.096 us times two to this, 5 bits. Default: 18 (1.07 s).
    pub response_timeout: u8,
    /// How long a packet may be under way: 4.096 us times two to this, 5 bits. Default: 14 (67 ms).
    pub packet_lifetime: u8,
    /// How often a message without answer is sent again, 0 to 15. Default: 15.
    pub retries: u8,
    /// The longest delay that an MRA or a request of the remote can ask for, as a code. Default: 21 (8.6 s).
    pub longest_delay: u8,
    /// How long an ended connection is remembered, so that late messages of it are known. Default: 1 s.
    pub timewait: Duration,
    /// How long a program may take to answer an event, before the connection is rejected. Default: 60 s.
    pub patience: Duration,
    /// Connections at most, those in timewait among them. Default: 16384.
    pub connections: usize,
    /// Requests of a listener that wait for an answer of the program, at most. Default: 1024.
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
    /// Time from a message to its answer, at most: to the remote and back, and its processing by `code`.
    pub(crate) fn round_trip(&self, code: u8) -> Duration {
        time_of(code.min(self.longest_delay)) + 2 * time_of(self.packet_lifetime)
    }
}

/// The time that a code of 5 bits means: 4.096 us times two to it.
pub(crate) fn time_of(code: u8) -> Duration {
    Duration::from_nanos(4096 << code.min(31))
}

/// What a side offers or takes, in a REQ and a REP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameters {
    /// Our queue pair, 24 bits.
    pub qpn: u32,
    /// First packet sequence number that the remote sends, 24 bits: what our queue pair's `rq_psn` is. IBTA "Starting
    /// PSN"; Linux's connection manager has it so.
    pub psn: u32,
    /// READs and atomics of the remote that we answer at once, at most. Default: 16.
    pub responder_resources: u8,
    /// READs and atomics that we want under way at once. Default: 16.
    pub initiator_depth: u8,
    /// How often the remote is to send again when we have no receive posted, 0 to 6; 7 for ever. Default: 7.
    pub rnr_retry_count: u8,
    /// Whether our receives come from a shared receive queue. Default: no.
    pub srq: bool,
    /// The program's own: up to 56 bytes in a request, 196 in a reply.
    pub private_data: Vec<u8>,
}

impl Parameters {
    /// Of queue pair `qpn`, whose remote starts at `psn`; all else default.
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

/// What the requester decides for both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// Our port, which the remote is told.
    pub source_port: u16,
    /// The transport. Default: RC.
    pub transport: CmTransport,
    /// Payload of a full packet. Default: 1024 bytes.
    pub path_mtu: PathMtu,
    /// How long to wait for an acknowledgement: 4.096 us times two to this, 5 bits. Default: 14 (67 ms).
    pub local_ack_timeout: u8,
    /// How often to send again then, 0 to 7. Default: 7.
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

/// What a queue pair needs once both sides have agreed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agreed {
    /// Where it is.
    pub path: Path,
    /// Our queue pair; 0 until the program names it.
    pub local_qpn: u32,
    /// The remote queue pair.
    pub remote_qpn: u32,
    /// First packet sequence number that the remote sends.
    pub rq_psn: u32,
    /// First packet sequence number that we send.
    pub sq_psn: u32,
    /// READs and atomics of the remote that we answer at once.
    pub responder_resources: u8,
    /// READs and atomics of ours under way at once.
    pub initiator_depth: u8,
    /// How often to send again when the remote has no receive posted.
    pub rnr_retry_count: u8,
    /// Whether the remote's receives come from a shared receive queue.
    pub srq: bool,
    /// Payload, timeouts and the rest.
    pub route: Route,
}

/// What happens.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A remote asks for a connection: accept or reject it.
    ConnectRequest {
        /// The listener.
        service: Service,
        /// Who asks.
        remote: SocketAddr,
        /// What it offers: its READs and atomics that we are to answer, and those that it answers.
        offer: Agreed,
        /// The remote program's own data, padded with zeros.
        private_data: Vec<u8>,
    },
    /// The remote accepts: connect the queue pair, then say so by [`Machine::ready`](crate::Machine::ready).
    ConnectResponse {
        /// What was agreed on.
        agreed: Agreed,
        /// The remote program's own data, padded with zeros.
        private_data: Vec<u8>,
    },
    /// The remote is ready, too: to the side that accepted.
    Established {
        /// The remote program's own data, padded with zeros.
        private_data: Vec<u8>,
    },
    /// The remote refuses. The last event of the connection.
    Rejected {
        /// Why.
        reason: CmRejectReason,
        /// What belongs to the reason.
        additional: Vec<u8>,
        /// The remote program's own data, padded with zeros.
        private_data: Vec<u8>,
    },
    /// The remote does not answer, or the program did not. The last event of the connection.
    Unreachable,
    /// The connection has ended: no more is sent.
    Disconnected {
        /// Whether the remote confirms it, or asked for it. If not, it did not answer.
        confirmed: bool,
        /// The remote program's own data, padded with zeros.
        private_data: Vec<u8>,
    },
    /// Late packets of an ended connection are gone: its queue pair can be used again. The last event of the
    /// connection.
    TimewaitExit,
    /// A remote asks for the queue pair of a service: answer or refuse.
    ResolveRequest {
        /// The listener.
        service: Service,
        /// Who asks.
        remote: SocketAddr,
        /// The way to it.
        path: Path,
        /// The remote program's own data, padded with zeros.
        private_data: Vec<u8>,
    },
    /// The queue pair of a service. The last event of the request.
    Resolved {
        /// The remote queue pair.
        qpn: u32,
        /// Its Q_Key.
        qkey: u32,
        /// The remote program's own data, padded with zeros.
        private_data: Vec<u8>,
    },
    /// The remote does not tell its queue pair. The last event of the request.
    Unresolved {
        /// Why.
        status: CmSidrStatus,
        /// The remote program's own data, padded with zeros.
        private_data: Vec<u8>,
    },
}

impl Event {
    /// Whether the connection is gone: no event of it follows, and calls no longer know it.
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

/// A management datagram to send, from and to queue pair 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transmit {
    /// Where to.
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
    /// Rejected: requests that come again are rejected again.
    Rejected,
    /// Waits for a SIDR_REP.
    SidrReqSent,
    /// Waits for the program to answer.
    SidrReqReceived,
    /// Answered: requests that come again are answered again.
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
