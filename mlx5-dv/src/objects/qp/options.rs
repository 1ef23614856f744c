//! What a queue pair is to be, and the rings it gets.

use std::sync::Arc;

use mlx5_prm::values::ServiceType;
use mlx5_prm::wqe::{SEGMENT, UdAdrsVector, WQEBB};

use crate::caps::Caps;
use crate::error::Invalid;
use crate::objects::check::{fits, within};
use crate::objects::ring::WantedSendRing;
use crate::objects::srq::Srq;
use crate::objects::xrcd::Xrcd;

/// What a queue pair is to be.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct QpOptions {
    /// How it reaches others: [`ServiceType::Rc`], [`ServiceType::Uc`], [`ServiceType::Ud`], [`ServiceType::Xrc`], or
    /// [`ServiceType::Qp1`] for management datagrams. Default: RC.
    pub service: ServiceType,
    /// Work requests of the largest kind that the send queue holds at once. Default: 128.
    pub send_wqes: u32,
    /// Receives that the receive queue holds at once. Default: 128.
    pub recv_wqes: u32,
    /// Scatter/gather elements of a send work request, at most. Default: 1.
    pub send_sges: u16,
    /// Scatter elements of a receive, at most. Default: 1.
    pub recv_sges: u16,
    /// Bytes of inline data of a work request, at most. Default: 28, what fits beside a remote address in 64 bytes.
    pub inline_bytes: u16,
    /// The shared receive queue that its receives come from, in place of a receive queue of its own: `recv_wqes` and
    /// `recv_sges` are then not looked at. Default: none.
    pub srq: Option<Arc<Srq>>,
    /// The XRC domain of a queue pair of service XRC: see [`xrc_initiator`](Self::xrc_initiator). Default: none.
    pub xrcd: Option<Arc<Xrcd>>,
    /// What its completions carry as [`Completion::user_index`](crate::queue::Completion::user_index), 24 bits, all
    /// ones excepted. Default: none.
    pub user_index: Option<u32>,
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
        }
    }
}

impl QpOptions {
    /// Of an unreliable connection: sets [`service`](Self::service) to [`ServiceType::Uc`].
    pub fn unreliable(mut self) -> Self {
        self.service = ServiceType::Uc;
        self
    }

    /// Of datagrams: sets [`service`](Self::service) to [`ServiceType::Ud`].
    pub fn datagrams(mut self) -> Self {
        self.service = ServiceType::Ud;
        self
    }

    /// Of an extended reliable connection, the end that sends (INI): its messages name shared receive queues of the
    /// remote's XRC domain. It has no receive queue. `domain` is one of ours.
    pub fn xrc_initiator(mut self, domain: &Arc<Xrcd>) -> Self {
        (self.service, self.xrcd, self.recv_wqes) = (ServiceType::Xrc, Some(Arc::clone(domain)), 0);
        self
    }

    /// Of an extended reliable connection, the end that receives (TGT): it has no queue at all; its messages go to the
    /// shared receive queues of `domain`.
    pub fn xrc_target(mut self, domain: &Arc<Xrcd>) -> Self {
        self.send_wqes = 0;
        self.xrc_initiator(domain)
    }

    /// Queue pair 1, of general services: management datagrams. Sets [`service`](Self::service) to
    /// [`ServiceType::Qp1`]. A function has one.
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

    /// Sets [`inline_bytes`](Self::inline_bytes).
    pub fn inline_bytes(mut self, bytes: u16) -> Self {
        self.inline_bytes = bytes;
        self
    }

    /// Sets [`srq`](Self::srq).
    pub fn srq(mut self, srq: &Arc<Srq>) -> Self {
        self.srq = Some(Arc::clone(srq));
        self
    }

    /// Sets [`user_index`](Self::user_index).
    pub fn user_index(mut self, index: u32) -> Self {
        self.user_index = Some(index);
        self
    }
}

/// The rings a queue pair gets: receive ring first, then send ring. PRM "Work Queue Structure".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    /// log2 of receives; `None` for no receive queue.
    pub(super) log_rq_size: Option<u32>,
    /// log2 of a receive WQE's bytes.
    pub(super) log_rq_stride: u32,
    /// log2 of WQEBBs; `None` for no send queue.
    pub(super) log_sq_size: Option<u32>,
}

/// Bytes of inline data that a header's ten bits can count.
const MAX_INLINE: u64 = 1023;

impl Layout {
    pub(super) fn of(options: &QpOptions, caps: &Caps) -> Result<Self, Invalid> {
        Ok(Layout {
            log_rq_size: Self::receive(options, caps)?,
            log_rq_stride: Self::stride(options).trailing_zeros(),
            log_sq_size: Self::send(options, caps)?,
        })
    }

    /// Bytes of a receive WQE: a power of two of segments.
    fn stride(options: &QpOptions) -> u64 {
        (SEGMENT as u64 * u64::from(options.recv_sges.max(1))).next_power_of_two()
    }

    fn receive(options: &QpOptions, caps: &Caps) -> Result<Option<u32>, Invalid> {
        if options.recv_wqes == 0 || options.srq.is_some() || options.service == ServiceType::Xrc {
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
        // The send ring behind it starts at a WQEBB.
        let least = (WQEBB as u64).div_ceil(stride);
        let wqes = u64::from(options.recv_wqes).max(least).next_power_of_two();
        within("recv_wqes", wqes, "log_max_qp_sz", caps.log_max_qp_sz.min(15))?;
        Ok(Some(wqes.trailing_zeros()))
    }

    /// Segments of a send WQE before its data: control, and where it goes.
    fn head(options: &QpOptions) -> u64 {
        match options.service {
            ServiceType::Ud | ServiceType::Qp1 => 1 + (size_of::<UdAdrsVector>() / SEGMENT) as u64,
            // The shared receive queue too.
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
