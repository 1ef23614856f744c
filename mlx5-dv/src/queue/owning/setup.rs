//! Common parts of all connections: a queue pair, its completion queue, and the path to the remote.

use std::sync::Arc;

use mlx5_prm::values::PathMtu;

use super::buffers::Buffers;
use super::held::HeldBuffers;
use super::in_flight::{InFlight, UNREPORTED_CQES};
use super::polled::Polled;
use crate::clock::Clock;
use crate::device::Device;
use crate::error::{Error, Invalid};
use crate::net::Mac;
use crate::objects::{
    AccessFlags, AddressPath, AnyDoorbell, Buffer, Copying, CqModeration, CqOptions, DoorbellMode, InitAttributes,
    MemoryRegion, Pd, QpOptions, QueueCounter, QueuePair, RtrAttributes, RtsAttributes, Uar,
};
use crate::queue::completion::CompletionQueue;
use crate::queue::receive::ReceiveQueue;
use crate::queue::send::SendQueue;
use crate::queue::send::service::Connected;
use crate::setters::setters;

/// Options of a connection. An unreliable connection ignores `rts` and `min_rnr_timer`.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ConnectionOptions {
    /// Maximum number of outstanding sends, writes, reads and atomics. Default: 128.
    pub send_depth: u32,
    /// Maximum number of posted receives. Default: 128.
    pub recv_depth: u32,
    /// Maximum number of buffers of a send, write or read. Default: 1.
    pub send_sges: u16,
    /// Maximum number of buffers of a receive. Default: 1.
    pub recv_sges: u16,
    /// Maximum number of bytes of the `_inline` calls. Default: 28.
    pub inline_bytes: u16,
    /// Whether waiting sleeps instead of spinning. Default: no.
    pub events: bool,
    /// The completion vector of its completion queue. Default: 0.
    pub vector: u32,
    /// Moderation of its events. Default: none.
    pub moderation: CqModeration,
    /// Index of the local GID. Default: 0.
    pub gid_index: u8,
    /// Service level: the Ethernet priority of its packets, 0 to 7. Default: 0.
    pub service_level: u8,
    /// First PSN to send, 24 bits. Default: derived from the clock.
    pub psn: Option<u32>,
    /// Access rights of the remote. Default: REMOTE_WRITE and REMOTE_READ.
    pub remote_access: AccessFlags,
    /// Traffic class of its packets: DSCP and ECN. Default: 0.
    pub traffic_class: u8,
    /// UDP source port of its packets, from 0xc000. Default: as for [`AddressPath::udp_sport`].
    pub udp_sport: Option<u16>,
    /// As [`RtrAttributes::lag_port`]. Default: the card's choice.
    pub lag_port: Option<u8>,
    /// Path MTU, the same on both sides. Default: the largest that fits the port's MTU.
    pub path_mtu: Option<PathMtu>,
    /// Timeout, retries and depth of reads and atomics; its `sq_psn` is not used.
    pub rts: RtsAttributes,
    /// RNR NAK timer code sent to the remote if no receive is posted, 5 bits. Default: 12 (0.64 ms).
    pub min_rnr_timer: u8,
    /// Whether work requests that are posted alone are copied to the card. Not for queues on a page of the caller's.
    /// Default: where it pays.
    pub copying: Copying,
    /// Whether completions bear the time of the card's real-time clock
    /// ([`RealTime::of`](crate::RealTime::of)), not that of the free-running one. Default: no.
    pub real_time: bool,
    /// Counts what happens to its messages: requests, retries, errors. Any number of queues share one. Default: none.
    pub counter: Option<Arc<QueueCounter>>,
}

setters! {
    ConnectionOptions {
        send_depth: u32;
        recv_depth: u32;
        send_sges: u16;
        recv_sges: u16;
        inline_bytes: u16;
        events = true;
        vector: u32;
        moderation: CqModeration;
        gid_index: u8;
        service_level: u8;
        psn: Some(u32);
        remote_access: AccessFlags;
        traffic_class: u8;
        udp_sport: Some(u16);
        lag_port: Some(u8);
        path_mtu: Some(PathMtu);
        rts: RtsAttributes;
        min_rnr_timer: u8;
        copying: Copying;
        real_time = true;
    }
}

impl Default for ConnectionOptions {
    fn default() -> Self {
        ConnectionOptions {
            send_depth: 128,
            recv_depth: 128,
            send_sges: 1,
            recv_sges: 1,
            inline_bytes: 28,
            events: false,
            vector: 0,
            moderation: CqModeration::default(),
            gid_index: 0,
            service_level: 0,
            psn: None,
            remote_access: AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ,
            traffic_class: 0,
            udp_sport: None,
            lag_port: None,
            path_mtu: None,
            rts: RtsAttributes::new(0),
            min_rnr_timer: 12,
            copying: Copying::default(),
            real_time: false,
            counter: None,
        }
    }
}

/// What one end tells the other to connect, as in libibverbs' pingpong examples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Queue pair number, 24 bits.
    pub qpn: u32,
    /// First PSN that it sends, 24 bits.
    pub psn: u32,
    /// Its GID.
    pub gid: [u8; 16],
    /// Local identifier: 0 on Ethernet.
    pub lid: u16,
    /// Source MAC address of its packets. If `None`, the GID must be link-local or a local one.
    pub mac: Option<Mac>,
}

/// The queues of a connected queue pair, and the options to connect it with.
#[derive(Debug)]
pub(super) struct Link<S: Connected, B: Buffers = InFlight> {
    pub(super) queues: Polled<S, ReceiveQueue, B>,
    options: ConnectionOptions,
    psn: u32,
}

/// The completion queue of `most` work requests that `options` describe, of a queue pair of `pd`.
pub(super) fn completion_queue(
    pd: &Arc<Pd>,
    uar: &Arc<Uar>,
    options: &ConnectionOptions,
    most: u32,
) -> Result<CompletionQueue, Error> {
    let entries = most.saturating_add(UNREPORTED_CQES);
    let mut cq_options = CqOptions::default().entries(entries).vector(options.vector);
    (cq_options.events, cq_options.moderation) = (options.events, options.moderation);
    CompletionQueue::create(uar, cq_options.beside(pd))
}

/// The queue pair of the sends that `options` describe; `qp_options` has the rest.
pub(super) fn qp_options(options: &ConnectionOptions, qp_options: QpOptions) -> QpOptions {
    let mut all = qp_options.wqes(options.send_depth, 0).sges(options.send_sges, 1).inline_bytes(options.inline_bytes);
    (all.real_time, all.counter) = (options.real_time, options.counter.clone());
    all
}

/// The same, with receives of its own.
fn link_options<S: Connected>(options: &ConnectionOptions) -> QpOptions {
    let all = qp_options(options, QpOptions { service: S::SERVICE, ..QpOptions::default() });
    all.wqes(options.send_depth, options.recv_depth).sges(options.send_sges, options.recv_sges)
}

impl<S: Connected> Link<S> {
    /// Creates a queue pair in INIT: receives may be posted.
    pub(super) fn new(pd: &Arc<Pd>, options: ConnectionOptions) -> Result<Self, Error> {
        let uar = Uar::alloc_for_one_queue(pd.device(), options.copying)?;
        let most = options.send_depth.saturating_add(options.recv_depth);
        let in_flight = |options: &ConnectionOptions| {
            InFlight::of_several((options.send_depth, options.send_sges), (options.recv_depth, options.recv_sges))
        };
        Self::on(pd, &uar, options, most, in_flight, "a connection")
    }
}

impl<S: Connected> Link<S, HeldBuffers> {
    /// As [`new`](Self::new), but rings through `uar`, which others may use, too, and has as many work requests in
    /// flight as the rings hold: of `region`, and of buffers beside it.
    pub(super) fn full_on(
        region: &Arc<MemoryRegion>,
        uar: &Arc<Uar>,
        options: ConnectionOptions,
    ) -> Result<Self, Error> {
        let pd = region.pd();
        let most = link_options::<S>(&options).most_in_flight(pd.device().caps())?;
        Self::on(pd, uar, options, most, |_| HeldBuffers::new(region), "an endpoint")
    }
}

impl<S: Connected, B: Buffers> Link<S, B> {
    /// With `most` work requests in flight, whose `buffers` are made once the options are known to be possible.
    fn on(
        pd: &Arc<Pd>,
        uar: &Arc<Uar>,
        options: ConnectionOptions,
        most: u32,
        buffers: impl FnOnce(&ConnectionOptions) -> B,
        what: &'static str,
    ) -> Result<Self, Error> {
        let cq = completion_queue(pd, uar, &options, most)?;
        let qp = QueuePair::create(pd, uar, cq.cq(), cq.cq(), link_options::<S>(&options))?;
        let queues = Polled::new(qp, cq, buffers(&options), what);
        let mut link = Link { queues, options, psn: 0 };
        link.init()?;
        Ok(link)
    }

    /// The queue pair.
    pub(super) fn qp(&self) -> &Arc<QueuePair> {
        &self.queues.work.qp
    }

    /// RST to INIT, with a PSN of a connection of its own.
    fn init(&mut self) -> Result<(), Error> {
        let remote_access = self.options.remote_access;
        self.qp().init(&InitAttributes { remote_access, ..InitAttributes::default() })?;
        self.psn = first_psn(self.qp(), &self.options);
        let receives = self.options.recv_depth > 0;
        self.queues.work.queues.receive = receives.then(|| self.qp().receive_queue()).transpose()?;
        Ok(())
    }

    /// Any state to INIT: nothing is in flight afterwards. Returns the buffers that were, and those of completions not
    /// polled.
    pub(super) fn reset(&mut self) -> Result<Vec<Buffer>, Error> {
        self.queues.work.reset()?;
        self.init()?;
        Ok(self.queues.discarded())
    }

    /// What to tell the remote.
    pub(super) fn local(&self) -> Result<Peer, Error> {
        local(self.qp(), &self.options, self.psn)
    }

    /// Connects to `peer`: INIT to RTR to RTS.
    pub(super) fn connect(&mut self, peer: &Peer) -> Result<(), Error> {
        self.queues.work.queues.send = connect(self.qp(), &self.options, self.psn, peer)?;
        Ok(())
    }

    /// Connects with the given attributes of both transitions.
    pub(super) fn connect_by(&mut self, rtr: &RtrAttributes, rts: &RtsAttributes) -> Result<(), Error> {
        self.queues.work.queues.send = connect_by(self.qp(), &self.options, rtr, rts)?;
        Ok(())
    }
}

/// First PSN that `qp` sends.
pub(super) fn first_psn(qp: &QueuePair, options: &ConnectionOptions) -> u32 {
    options.psn.unwrap_or_else(|| some_psn(qp.device().clock()))
}

/// What to tell the remote about `qp`, whose first PSN is `psn`.
pub(super) fn local(qp: &QueuePair, options: &ConnectionOptions, psn: u32) -> Result<Peer, Error> {
    let index = options.gid_index;
    let gid = qp.device().gids().iter().find(|gid| gid.index == u16::from(index)).copied();
    let gid = gid.ok_or_else(|| {
        let (of, mend) =
            (format!("gid_index {index}"), "the port has no such GID; Device::gids lists those that it has");
        Invalid::Unknown { what: "GID", of, mend }
    })?;
    Ok(Peer { qpn: qp.qpn(), psn, gid: gid.address.octets(), lid: 0, mac: Some(gid.mac) })
}

/// Connects `qp` to `peer`, INIT to RTR to RTS. Returns its send queue, if it has one.
pub(super) fn connect<D: DoorbellMode, S: Connected>(
    qp: &Arc<QueuePair>,
    options: &ConnectionOptions,
    psn: u32,
    peer: &Peer,
) -> Result<Option<SendQueue<D, S>>, Error> {
    to_rts(qp, options, psn, peer)?;
    (options.send_depth > 0).then(|| qp.connected_send_queue("connect", "")).transpose()
}

/// Connects `qp` with the given attributes of both transitions. Returns its send queue, if it has one.
fn connect_by<S: Connected>(
    qp: &Arc<QueuePair>,
    options: &ConnectionOptions,
    rtr: &RtrAttributes,
    rts: &RtsAttributes,
) -> Result<Option<SendQueue<AnyDoorbell, S>>, Error> {
    qp.ready_to_receive(rtr)?;
    qp.ready_to_send(rts)?;
    (options.send_depth > 0).then(|| qp.connected_send_queue("connect_by", "")).transpose()
}

/// Takes `qp` from INIT to RTR to RTS.
pub(super) fn to_rts(qp: &QueuePair, options: &ConnectionOptions, psn: u32, peer: &Peer) -> Result<(), Error> {
    let (rtr, rts) = attributes(qp.device(), options, psn, peer)?;
    qp.ready_to_receive(&rtr)?;
    qp.ready_to_send(&rts)
}

/// Attributes of the transitions from INIT to RTR to RTS that connect a queue pair of `device` to `peer`.
pub(super) fn attributes(
    device: &Device,
    options: &ConnectionOptions,
    psn: u32,
    peer: &Peer,
) -> Result<(RtrAttributes, RtsAttributes), Error> {
    let path = path_to(device, peer)?.gid_index(options.gid_index).service_level(options.service_level);
    let path = AddressPath { udp_sport: options.udp_sport, ..path.traffic_class(options.traffic_class) };
    let mut rtr = RtrAttributes::new(peer.qpn, peer.psn, path);
    (rtr.path_mtu, rtr.lag_port) = (options.path_mtu, options.lag_port);
    rtr.min_rnr_timer = options.min_rnr_timer;
    Ok((rtr, RtsAttributes { sq_psn: psn, ..options.rts }))
}

/// A PSN that differs from one connection to the next, so that late packets of an earlier connection are not accepted.
fn some_psn(clock: &Clock) -> u32 {
    let nonce = clock.nonce();
    (nonce ^ nonce >> 30) as u32 & 0xff_ffff
}

/// The path to `peer`: its MAC address is the one it told, that of a local GID, or the one in a link-local GID.
fn path_to(device: &Device, peer: &Peer) -> Result<AddressPath, Error> {
    let ours = device.gids().iter().find(|gid| gid.address.octets() == peer.gid).map(|gid| gid.mac);
    if let Some(mac) = peer.mac.or(ours) {
        return Ok(AddressPath::new(peer.gid, mac));
    }
    AddressPath::link_local(peer.gid).ok_or_else(|| {
        let gid = std::net::Ipv6Addr::from(peer.gid);
        let mend = "the GID is not link-local; put the address into Peer::mac";
        Invalid::Unknown { what: "MAC address", of: format!("GID {gid}"), mend }.into()
    })
}
