//! Options of queue pairs, and the layout of their rings.

use std::sync::Arc;

use mlx5_prm::caps::CmdHcaCap;
use mlx5_prm::values::ServiceType;
use mlx5_prm::wqe::{SEGMENT, UdAdrsVector, WQEBB};

use crate::caps::{CapPage, Caps};
use crate::error::{Error, Invalid};
use crate::objects::check::{fits, in_range, within};
use crate::objects::queue_counter::QueueCounter;
use crate::objects::ring::WantedSendRing;
use crate::objects::srq::Srq;
use crate::objects::xrcd::Xrcd;
use crate::setters::setters;

/// Streams of a dynamically connected initiator. Each message names one ([`DcTarget::stream`]). The card executes those
/// of one stream in order, and those of several at once; completions come in the order of the send queue. A message
/// that fails puts its stream into error, not the initiator: later ones of the stream are flushed, until
/// [`QueuePair::reset_stream`].
///
/// libmlx5 and UCX rely on that order, too: the last completion frees all of the send queue up to its work request. A
/// card that breaks it is faulty. The completion of an earlier work request is then refused
/// ([`RetireError::NotInFlight`](crate::queue::RetireError::NotInFlight)), and its buffer stays with the queue until
/// that is dropped: to take it back one by one would say that the card has done with a WQE, of which nothing is known.
///
/// [`DcTarget::stream`]: crate::objects::DcTarget::stream
/// [`QueuePair::reset_stream`]: crate::objects::QueuePair::reset_stream
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DciStreams {
    /// Log of the number of streams that the card executes at once; there may be more. PRM
    /// `log_num_dci_stream_channels`.
    pub log_channels: u8,
    /// Log of the number of streams in error at which the initiator is in error, too. PRM
    /// `log_num_dci_errored_streams`.
    pub log_errored: u8,
}

impl DciStreams {
    pub(super) fn check(self, caps: &Caps) -> Result<(), Error> {
        let general: CmdHcaCap = caps.current(CapPage::General).unwrap_or_default();
        let (channels, errored) = (general.log_max_dci_stream_channels(), general.log_max_dci_errored_streams());
        if channels == 0 {
            let (what, capability) = ("streams of DC initiators".into(), "log_max_dci_stream_channels");
            return Err(Error::Unsupported { what, capability });
        }
        let log = |value: u8| u64::from(value);
        in_range("log_channels", log(self.log_channels), 0..=log(channels), "log_max_dci_stream_channels")?;
        in_range("log_errored", log(self.log_errored), 0..=log(errored), "log_max_dci_errored_streams")?;
        Ok(())
    }
}

/// Options of a queue pair.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct QpOptions {
    /// Service: [`ServiceType::Rc`], [`ServiceType::Uc`], [`ServiceType::Ud`], [`ServiceType::Xrc`],
    /// [`ServiceType::Dci`] or, for management datagrams, [`ServiceType::Qp1`]. Default: RC.
    pub service: ServiceType,
    /// Capacity of the send queue, in work requests of the largest kind. Default: 128.
    pub send_wqes: u32,
    /// Capacity of the receive queue. Default: 128.
    pub recv_wqes: u32,
    /// Maximum number of scatter/gather elements of a send work request. Default: 1.
    pub send_sges: u16,
    /// Maximum number of scatter elements of a receive. Default: 1.
    pub recv_sges: u16,
    /// Maximum number of bytes of inline data of a work request. Default: 28, which fits into 64 bytes with a remote
    /// address.
    pub inline_bytes: u16,
    /// Shared receive queue, in place of a receive queue of its own: `recv_wqes` and `recv_sges` are then ignored.
    /// Default: none.
    pub srq: Option<Arc<Srq>>,
    /// XRC domain, for service XRC: see [`xrc_initiator`](Self::xrc_initiator). Default: none.
    pub xrcd: Option<Arc<Xrcd>>,
    /// [`Completion::user_index`](crate::queue::Completion::user_index) of its completions: 24 bits, not all ones.
    /// Default: none.
    pub user_index: Option<u32>,
    /// Streams, of a dynamically connected initiator. Default: none.
    pub dci_streams: Option<DciStreams>,
    /// Whether a dynamically connected initiator opens each connection by a handshake: it sends nothing to a target
    /// until that has answered. This costs a round trip at each change of target, and bears packets that overtake each
    /// other (adaptive routing). No capability announces it; UCX asks cards for it from ConnectX-5 on. Default: no.
    pub full_handshake: bool,
    /// Whether its completions bear the time of the card's real-time clock
    /// ([`RealTime::of`](crate::RealTime::of)), not that of the free-running one. Default: no.
    pub real_time: bool,
    /// Counts what happens to its messages: requests, retries, errors. Any number of queues share one. Default: none.
    pub counter: Option<Arc<QueueCounter>>,
}

setters! {
    QpOptions {
        inline_bytes: u16;
        user_index: Some(u32);
        dci_streams: Some(DciStreams);
        full_handshake = true;
        real_time = true;
    }
}

impl Default for QpOptions {
    fn default() -> Self {
        QpOptions {
            service: ServiceType::Rc,
            send_wqes: 128,
            recv_wqes: 128,
            send_sges: 1,
            recv_sges: 1,
            inline_bytes: 28,
            srq: None,
            xrcd: None,
            user_index: None,
            dci_streams: None,
            full_handshake: false,
            real_time: false,
            counter: None,
        }
    }
}

impl QpOptions {
    /// For an unreliable connection: sets [`service`](Self::service) to [`ServiceType::Uc`].
    pub fn unreliable(mut self) -> Self {
        self.service = ServiceType::Uc;
        self
    }

    /// For datagrams: sets [`service`](Self::service) to [`ServiceType::Ud`].
    pub fn datagrams(mut self) -> Self {
        self.service = ServiceType::Ud;
        self
    }

    /// The sending end (INI) of an extended reliable connection. Its messages name shared receive queues of the
    /// remote's XRC domain. It has no receive queue. `domain` is a local domain.
    pub fn xrc_initiator(mut self, domain: &Arc<Xrcd>) -> Self {
        (self.service, self.xrcd, self.recv_wqes) = (ServiceType::Xrc, Some(Arc::clone(domain)), 0);
        self
    }

    /// Only for [`XrcTarget`](crate::objects::XrcTarget).
    pub(super) fn xrc_target(mut self, domain: &Arc<Xrcd>) -> Self {
        self.send_wqes = 0;
        self.xrc_initiator(domain)
    }

    /// A dynamically connected initiator: reliable messages, each to a target of its own. It has no receive queue; who
    /// receives is a [`Dct`](crate::objects::Dct).
    pub fn dc_initiator(mut self) -> Self {
        (self.service, self.recv_wqes) = (ServiceType::Dci, 0);
        self
    }

    /// Queue pair 1, for general services: management datagrams. Sets [`service`](Self::service) to
    /// [`ServiceType::Qp1`]. A function has only one.
    pub fn general_services(mut self) -> Self {
        self.service = ServiceType::Qp1;
        self
    }

    /// Sets [`send_wqes`](Self::send_wqes) and [`recv_wqes`](Self::recv_wqes).
    pub fn wqes(mut self, send: u32, recv: u32) -> Self {
        (self.send_wqes, self.recv_wqes) = (send, recv);
        self
    }

    /// Sets [`send_sges`](Self::send_sges) and [`recv_sges`](Self::recv_sges).
    pub fn sges(mut self, send: u16, recv: u16) -> Self {
        (self.send_sges, self.recv_sges) = (send, recv);
        self
    }

    /// Sets [`counter`](Self::counter).
    pub fn counter(mut self, counter: &Arc<QueueCounter>) -> Self {
        self.counter = Some(Arc::clone(counter));
        self
    }

    /// Sets [`srq`](Self::srq).
    pub fn srq(mut self, srq: &Arc<Srq>) -> Self {
        self.srq = Some(Arc::clone(srq));
        self
    }
}

impl QpOptions {
    /// Whether a card with `caps` has rings of this size.
    pub(crate) fn check(&self, caps: &Caps) -> Result<(), Invalid> {
        Layout::of(self, caps).map(drop)
    }

    /// How many work requests a queue pair of a card with `caps` can have in flight, each with a completion: its rings
    /// are rounded up, and have room for more short ones than for those of the longest.
    pub(crate) fn most_in_flight(&self, caps: &Caps) -> Result<u32, Invalid> {
        let Layout { log_rq_size, log_sq_size, .. } = Layout::of(self, caps)?;
        Ok([log_rq_size, log_sq_size].into_iter().flatten().map(|log_size| 1 << log_size).sum())
    }
}

/// The rings of a queue pair: receive ring, then send ring. PRM "Work Queue Structure".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    /// Log of the number of receives; `None` without a receive queue.
    pub(super) log_rq_size: Option<u32>,
    /// Log of the size of a receive WQE in bytes.
    pub(super) log_rq_stride: u32,
    /// Log of the number of WQEBBs; `None` without a send queue.
    pub(super) log_sq_size: Option<u32>,
}

/// Services whose queue pairs have no receive queue of their own.
const NO_RECEIVES: &[ServiceType] = &[ServiceType::Xrc, ServiceType::Dci];
/// Maximum number of bytes of inline data: the header's field has ten bits.
const MAX_INLINE: u64 = 1023;

impl Layout {
    pub(super) fn of(options: &QpOptions, caps: &Caps) -> Result<Self, Invalid> {
        Ok(Layout {
            log_rq_size: Self::receive(options, caps)?,
            log_rq_stride: Self::stride(options).trailing_zeros(),
            log_sq_size: Self::send(options, caps)?,
        })
    }

    /// Size of a receive WQE in bytes: its number of segments is a power of two.
    fn stride(options: &QpOptions) -> u64 {
        (SEGMENT as u64 * u64::from(options.recv_sges.max(1))).next_power_of_two()
    }

    fn receive(options: &QpOptions, caps: &Caps) -> Result<Option<u32>, Invalid> {
        if options.recv_wqes == 0 || options.srq.is_some() || NO_RECEIVES.contains(&options.service) {
            return Ok(None);
        }
        let stride = Self::stride(options);
        if stride > u64::from(caps.max_wqe_sz_rq) {
            return Err(Invalid::WqeTooLong {
                what: "recv_sges",
                sges: options.recv_sges,
                inline_bytes: None,
                needed: stride,
                most: caps.max_wqe_sz_rq.into(),
                capability: "max_wqe_sz_rq",
            });
        }
        // The send ring follows, and must start at a multiple of a WQEBB.
        let least = (WQEBB as u64).div_ceil(stride);
        let wqes = u64::from(options.recv_wqes).max(least).next_power_of_two();
        within("recv_wqes", wqes, "log_max_qp_sz", caps.log_max_qp_sz.min(15))?;
        Ok(Some(wqes.trailing_zeros()))
    }

    /// Number of segments of a send WQE before its data: control and destination.
    fn head(options: &QpOptions) -> u64 {
        match options.service {
            ServiceType::Ud | ServiceType::Qp1 => 1 + (size_of::<UdAdrsVector>() / SEGMENT) as u64,
            ServiceType::Dci => 2 + (size_of::<UdAdrsVector>() / SEGMENT) as u64,
            // It also names the shared receive queue.
            ServiceType::Xrc => 3,
            _ => 2,
        }
    }

    fn send(options: &QpOptions, caps: &Caps) -> Result<Option<u32>, Invalid> {
        if options.send_wqes == 0 {
            return Ok(None);
        }
        fits("inline_bytes", options.inline_bytes.into(), 10)?;
        let inline = (u64::from(options.inline_bytes.min(MAX_INLINE as u16)) + 4).div_ceil(SEGMENT as u64);
        let ring = WantedSendRing {
            wqes_name: "send_wqes (in WQEBBs of 64 bytes)",
            wqes: options.send_wqes,
            segments: Self::head(options) + inline.max(options.send_sges.into()),
            sges_name: "send_sges",
            sges: options.send_sges,
            inline_bytes: options.inline_bytes,
        };
        ring.log_size(caps, "log_max_qp_sz", caps.log_max_qp_sz).map(Some)
    }

    pub(super) fn receive_len(&self) -> usize {
        self.log_rq_size.map_or(0, |log_size| 1 << (log_size + self.log_rq_stride))
    }

    pub(super) fn len(&self) -> usize {
        self.receive_len() + self.log_sq_size.map_or(0, |log_size| WQEBB << log_size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caps() -> Caps {
        Caps { log_max_qp_sz: 15, max_wqe_sz_sq: 1024, max_wqe_sz_rq: 512, ..Caps::default() }
    }

    fn layout(options: QpOptions) -> Layout {
        Layout::of(&options, &caps()).unwrap()
    }

    fn refusal(options: QpOptions) -> String {
        Layout::of(&options, &caps()).unwrap_err().to_string()
    }

    #[test]
    fn a_write_with_one_element_takes_one_wqebb() {
        let rings = layout(QpOptions::default().wqes(100, 100));
        assert_eq!((rings.log_sq_size, rings.log_rq_size, rings.log_rq_stride), (Some(7), Some(7), 4));
        assert_eq!((rings.receive_len(), rings.len()), (2048, 2048 + 8192));
    }

    #[test]
    fn the_send_ring_starts_at_a_wqebb_however_small_the_receive_ring() {
        let rings = layout(QpOptions::default().wqes(1, 1));
        assert_eq!((rings.receive_len(), rings.len()), (64, 128));
        assert_eq!(layout(QpOptions::default().wqes(4, 0)).receive_len(), 0);
    }

    #[test]
    fn more_elements_or_inline_data_take_more_room() {
        assert_eq!(layout(QpOptions::default().wqes(16, 1).sges(3, 3)).log_sq_size, Some(5));
        assert_eq!(layout(QpOptions::default().wqes(16, 1).sges(3, 3)).log_rq_stride, 6);
        assert_eq!(layout(QpOptions::default().wqes(16, 1).inline_bytes(29)).log_sq_size, Some(5));
        assert_eq!(layout(QpOptions::default().wqes(16, 1).inline_bytes(28)).log_sq_size, Some(4));
    }

    #[test]
    fn a_datagram_needs_room_for_its_address() {
        assert_eq!(layout(QpOptions::default().datagrams().wqes(16, 1).inline_bytes(0)).log_sq_size, Some(5));
        assert_eq!(layout(QpOptions::default().datagrams().wqes(16, 1).inline_bytes(60)).log_sq_size, Some(5));
        assert_eq!(layout(QpOptions::default().datagrams().wqes(16, 1).inline_bytes(61)).log_sq_size, Some(6));
    }

    #[test]
    fn what_the_card_cannot_do_is_refused_by_name() {
        for (options, names) in [
            (QpOptions::default().wqes(32769, 1), ["send_wqes", "log_max_qp_sz"]),
            (QpOptions::default().wqes(1, 32769), ["recv_wqes", "log_max_qp_sz"]),
            (QpOptions::default().sges(62, 1), ["send_sges", "max_wqe_sz_sq"]),
            (QpOptions::default().sges(1, 33), ["recv_sges", "max_wqe_sz_rq"]),
            (QpOptions::default().inline_bytes(1000), ["inline_bytes", "max_wqe_sz_sq"]),
        ] {
            let text = refusal(options);
            assert!(names.iter().all(|name| text.contains(name)), "{text}");
        }
    }
}
