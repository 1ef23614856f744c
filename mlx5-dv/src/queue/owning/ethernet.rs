//! A send and a receive queue for frames that own the buffers in flight.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use super::batch::ConnectionReceives;
use super::buffers::Buffers;
use super::frame_batch::FrameBatch;
use super::in_flight::{Done, Group, InFlight, Refused, RefusedReason, Ticket};
use super::listening::Listening;
use super::queues::{Queues, Wait};
use crate::device::Device;
use crate::error::{Error, Invalid};
use crate::net::Mac;
use crate::objects::{
    AnyDoorbell, Buffer, Copying, CqOptions, DoorbellKind, LroOptions, Pd, QueueCounter, Rq, RqOptions, Sq, SqOptions,
    Tir, Tis, TransportDomain, TunnelHeaders, Uar, VlanTag,
};
use crate::queue::completion::CompletionQueue;
use crate::queue::completion::decode::{
    FrameCompletion, Side, decode_frame, decode_plain_frame, side_of_plain_frame, work_at, work_of,
};
use crate::queue::completion::joined::JoinedSegments;
use crate::queue::error::RetireError;
use crate::queue::events::{EventSource, event_source};
use crate::queue::receive::ethernet::EthernetReceiveQueue;
use crate::queue::send::ethernet::{EthernetSendQueue, FrameFlags};
use crate::setters::setters;
use mlx5_prm::cqe::Cqe;

/// Options of an [`EthernetQueue`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EthernetOptions {
    /// Maximum number of frames in flight. Default: 128.
    pub send_depth: u32,
    /// Maximum number of receives posted. Default: 128.
    pub recv_depth: u32,
    /// Maximum number of buffers of a frame that is sent. Default: 1.
    pub send_sges: u16,
    /// Maximum number of buffers of a receive. Default: 1.
    pub recv_sges: u16,
    /// Whether the card strips the VLAN tag of received frames, and tells it by their completions
    /// ([`FrameCompletion::stripped_vlan`]). Default: no.
    pub strip_vlan: bool,
    /// Counts frames that found no receive posted. Default: none.
    pub counter: Option<Arc<QueueCounter>>,
    /// Longest frame of [`send_inline`](EthernetQueue::send_inline) in bytes. Default: 18, which holds headers only.
    pub inline_bytes: u16,
    /// Longest frame in bytes that [`send_each`](FrameBatch::send_each) copies into a work request: the card reads it
    /// with that, and not by a pointer. The ring has room for [`send_depth`](Self::send_depth) frames of this length,
    /// and [`inline_bytes`](Self::inline_bytes) is no less. At most what a work request of the card holds beside
    /// [`send_sges`](Self::send_sges) (`max_wqe_sz_sq`). Default: 0, none is copied.
    pub inline_up_to: u16,
    /// How many queues [`several`](EthernetQueue::several) must make for [`inline_up_to`](Self::inline_up_to) to have
    /// an effect. A copy costs the processor time, and pays where many queues make PCIe the bottleneck. Default: 1.
    pub inline_from_queues: usize,
    /// Whether waits sleep instead of polling. Default: no.
    pub events: bool,
    /// The completion vector of its completion queue. Default: 0.
    pub vector: u32,
    /// The Ethernet priority of its frames, 0 to 7. Default: 0.
    pub priority: u8,
    /// Whether frames that are posted alone are copied to the card. Default: where it pays.
    pub copying: Copying,
    /// Large receive offload: the card joins TCP segments, and [`poll`](EthernetQueue::poll) makes their headers those
    /// of one packet. Every receive must have room for
    /// [`longest_received`](EthernetQueue::longest_received) bytes: a longer frame stops the queue. Default: none.
    pub lro: Option<LroOptions>,
    /// Whether completions bear the time of the card's real-time clock
    /// ([`RealTime::of`](crate::RealTime::of)), not that of the free-running one. Default: no.
    pub real_time: bool,
}

setters! {
    EthernetOptions {
        send_depth: u32;
        recv_depth: u32;
        inline_bytes: u16;
        inline_up_to: u16;
        inline_from_queues: usize;
        events = true;
        vector: u32;
        priority: u8;
        copying: Copying;
        lro: Some(LroOptions);
        real_time = true;
    }
}

impl Default for EthernetOptions {
    fn default() -> Self {
        EthernetOptions {
            send_depth: 128,
            recv_depth: 128,
            send_sges: 1,
            recv_sges: 1,
            strip_vlan: false,
            counter: None,
            inline_bytes: 18,
            inline_up_to: 0,
            inline_from_queues: 1,
            events: false,
            vector: 0,
            priority: 0,
            copying: Copying::default(),
            lro: None,
            real_time: false,
        }
    }
}

impl EthernetOptions {
    /// Longest frame that each of `count` queues copies.
    fn longest_copied(&self, pd: &Pd, count: usize) -> Result<u16, Invalid> {
        let most = SqOptions::most_inline(pd.device().caps(), self.send_sges);
        if self.inline_up_to > most {
            let (given, of) = (self.inline_up_to.into(), "a work request beside its send_sges");
            let refused = Invalid::out_of_range("inline_up_to", given, 0..=most.into(), of);
            return Err(refused.capability("max_wqe_sz_sq"));
        }
        Ok(if count >= self.inline_from_queues { self.inline_up_to } else { 0 })
    }
}

/// Raw Ethernet: a send queue, a receive queue, their completion queue, and the buffers in flight.
///
/// Each frame takes its [`Buffer`], and [`poll`](Self::poll) returns it; what the card says of a received frame, its
/// length first, is in its [`FrameCompletion`]. Several frames go to the card with one doorbell by
/// [`batch`](Self::batch) and [`receives`](Self::receives). Who moves many frames passes vectors of them:
/// [`poll_into`](Self::poll_into), [`FrameBatch::send_each`], [`ConnectionReceives::receive_each`]. No frames are
/// received before [`listen`](Self::listen). On DevX, sending and listening require CAP_NET_RAW.
///
/// A frame that fails moves its queue to ERR: work posted there completes with flush errors, later work is not
/// executed. [`reset`](Self::reset) restarts it. The queue belongs to one thread at a time; posting and polling make no
/// system call, take no lock and allocate nothing. Dropping it with work in flight resets its queues first; if that
/// fails, the buffers are leaked.
#[derive(Debug)]
pub struct EthernetQueue {
    in_flight: InFlight,
    /// What completed together with the last that was polled.
    met: Option<Group<FrameCompletion>>,
    /// Longest frame that [`FrameBatch::send_each`] copies.
    inline_up_to: u16,
    listening: Option<Listening>,
    tir: Arc<Tir>,
    sq: Arc<Sq>,
    rq: Arc<Rq>,
    queues: Queues<EthernetSendQueue<AnyDoorbell>, EthernetReceiveQueue>,
    cq: CompletionQueue,
}

impl EthernetQueue {
    /// Creates queues in RDY with their own UAR page and completion queue: frames may be sent, receives posted.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a card without Ethernet, or for large receive offload or real time on one without;
    /// [`Error::Invalid`] if the options exceed a capability; [`Error::Memory`], [`Error::Command`].
    pub fn new(pd: &Arc<Pd>, options: EthernetOptions) -> Result<Self, Error> {
        Self::in_domain(pd, &TransportDomain::alloc(pd.device())?, 1, options)
    }

    /// As [`new`](Self::new), `count` times, for a [`Spread`](super::spread::Spread): none receives what another sends.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn several(pd: &Arc<Pd>, count: usize, options: &EthernetOptions) -> Result<Vec<Self>, Error> {
        let domain = TransportDomain::alloc(pd.device())?;
        (0..count).map(|_| Self::in_domain(pd, &domain, count, options.clone())).collect()
    }

    /// One of `count` queues.
    fn in_domain(
        pd: &Arc<Pd>,
        domain: &Arc<TransportDomain>,
        count: usize,
        options: EthernetOptions,
    ) -> Result<Self, Error> {
        let inline_up_to = options.longest_copied(pd, count)?;
        let uar = Uar::alloc_for_one_queue(pd.device(), options.copying)?;
        let entries = options.send_depth.saturating_add(options.recv_depth);
        let mut cq_options = CqOptions::default().entries(entries).vector(options.vector);
        cq_options.events = options.events;
        let cq = CompletionQueue::create(&uar, cq_options.beside(pd))?;
        let tis = Tis::create(domain, options.priority)?;
        let mut sq_options = SqOptions::default().wqes(options.send_depth).sges(options.send_sges);
        sq_options.real_time = options.real_time;
        let sq = Sq::create(pd, &uar, &tis, cq.cq(), sq_options.inline_bytes(options.inline_bytes.max(inline_up_to)))?;
        let mut rq_options = RqOptions::default().wqes(options.recv_depth).sges(options.recv_sges);
        (rq_options.strip_vlan, rq_options.counter) = (options.strip_vlan, options.counter);
        rq_options.real_time = options.real_time;
        let rq = Rq::create(pd, cq.cq(), rq_options)?;
        cq.cq().close();
        let tir = Tir::create_with(domain, &rq, options.lro)?;
        let mut queue = EthernetQueue {
            in_flight: InFlight::of_several(
                (options.send_depth, options.send_sges),
                (options.recv_depth, options.recv_sges),
            ),
            met: None,
            inline_up_to,
            listening: None,
            tir,
            sq,
            rq,
            queues: Queues::none(),
            cq,
        };
        queue.start()?;
        Ok(queue)
    }

    /// RST to RDY.
    fn start(&mut self) -> Result<(), Error> {
        self.sq.ready()?;
        self.rq.ready()?;
        self.queues.send = Some(self.sq.send_queue()?);
        self.queues.receive = Some(self.rq.receive_queue()?);
        Ok(())
    }

    /// How its frames ring the doorbell; `None` while it is not started.
    pub fn doorbell_kind(&self) -> Option<DoorbellKind> {
        self.queues.send.as_ref().map(EthernetSendQueue::doorbell_kind)
    }

    /// The card.
    pub fn device(&self) -> &Arc<Device> {
        self.sq.device()
    }

    /// The send queue's object.
    pub fn sq(&self) -> &Arc<Sq> {
        &self.sq
    }

    /// The receive queue's object.
    pub fn rq(&self) -> &Arc<Rq> {
        &self.rq
    }

    /// Bytes of the longest frame that it may receive: of the port's, or of those that the card joins.
    pub fn longest_received(&self) -> usize {
        let joined = self.tir.lro().map_or(0, |lro| lro.frame_bytes as usize);
        self.sq.longest_frame().max(joined)
    }

    /// The TIR, as a destination of flow rules.
    pub fn tir(&self) -> &Arc<Tir> {
        &self.tir
    }

    /// Starts to receive frames to the function's own address, to broadcast, and to `groups`; replaces the previous
    /// set. RoCE packets still go to their queue pairs. For other frames, create flow rules to [`tir`](Self::tir).
    ///
    /// This creates the function's root flow table. On DevX it takes these frames from the kernel's network device (see
    /// [`FlowMatcher`](crate::objects::FlowMatcher)), which then does not receive them: to use both, create rules for
    /// your own frames instead.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the function has a root flow table already, or for an address that is not multicast;
    /// [`Error::Unsupported`], [`Error::Command`]; on DevX, [`Error::Io`].
    pub fn listen(&mut self, groups: &[Mac]) -> Result<(), Error> {
        Listening::replace(&mut self.listening, groups, &self.tir)
    }

    /// As [`listen`](Self::listen), but receives every frame that reaches the port, whoever it is for, and what other
    /// functions of the port send: promiscuous mode.
    ///
    /// # Errors
    /// As there; on DevX [`Error::Invalid`], as the port's mode is the kernel's.
    pub fn listen_to_all(&mut self) -> Result<(), Error> {
        Listening::to_all(&mut self.listening, &self.tir)
    }

    /// Number of frames in flight, and of receives posted.
    pub fn in_flight(&self) -> (usize, usize) {
        self.in_flight.in_flight()
    }

    /// Starts a batch of frames, which go to the card with one doorbell.
    #[inline(always)]
    pub fn batch(&mut self) -> FrameBatch<'_> {
        FrameBatch::new(self.queues.send.as_mut(), &mut self.in_flight, self.sq.inline_mode(), self.inline_up_to)
    }

    /// Starts a batch of receives, which go to the card together.
    #[inline(always)]
    pub fn receives(&mut self) -> ConnectionReceives<'_> {
        ConnectionReceives::new(self.queues.receive.as_mut(), &mut self.in_flight, RefusedReason::NotReset)
    }

    /// Receives one frame into `buffer`. Errors: [`Refused`], with the buffer.
    #[inline]
    pub fn receive(&mut self, buffer: Buffer) -> Result<Ticket, Refused> {
        self.receives().receive(buffer)
    }

    /// Sends the frame in `buffer`. Errors: [`Refused`], with the buffer.
    #[inline]
    pub fn send(&mut self, buffer: Buffer, flags: FrameFlags) -> Result<Ticket, Refused> {
        self.batch().send(buffer, flags)
    }

    /// As [`FrameBatch::send_tagged`].
    pub fn send_tagged(&mut self, buffer: Buffer, flags: FrameFlags, tag: VlanTag) -> Result<Ticket, Refused> {
        self.batch().send_tagged(buffer, flags, tag)
    }

    /// Sends the TCP or UDP packet in `buffer`, whose headers are its first `headers` bytes; the card divides it into
    /// frames of `mss` bytes beside their headers. See
    /// [`SendBatch::send_large`](crate::queue::SendBatch::send_large). Errors: [`Refused`], with the buffer.
    pub fn send_large(&mut self, buffer: Buffer, headers: usize, mss: u16) -> Result<Ticket, Refused> {
        self.batch().send_large(buffer, headers, mss)
    }

    /// As [`FrameBatch::send_in_tunnel`].
    pub fn send_in_tunnel(
        &mut self,
        buffer: Buffer,
        flags: FrameFlags,
        tunnel: &TunnelHeaders,
    ) -> Result<Ticket, Refused> {
        self.batch().send_in_tunnel(buffer, flags, tunnel)
    }

    /// As [`FrameBatch::send_large_in_tunnel`].
    pub fn send_large_in_tunnel(
        &mut self,
        buffer: Buffer,
        flags: FrameFlags,
        tunnel: &TunnelHeaders,
        mss: u16,
    ) -> Result<Ticket, Refused> {
        self.batch().send_large_in_tunnel(buffer, flags, tunnel, mss)
    }

    /// Sends `frame`, which is copied at once. Errors: [`Refused`].
    #[inline]
    pub fn send_inline(&mut self, frame: &[u8], flags: FrameFlags) -> Result<Ticket, Refused> {
        self.batch().send_inline(frame, flags)
    }

    /// The next frame that was sent or received, with its buffer; `None` if there is none.
    ///
    /// # Errors
    /// [`RetireError`] if a completion does not match any work request in flight: the card or the driver is faulty.
    // Inlined, so that what it returns is built where it is used: moving it would cost as much as all the rest.
    #[inline(always)]
    pub fn poll(&mut self) -> Result<Option<Done<FrameCompletion>>, RetireError> {
        if self.met.is_some() {
            return Ok(self.next_met());
        }
        let Some(cqe) = self.cq.poll_frame_entry() else { return Ok(None) };
        let Some(side) = side_of_plain_frame(&cqe) else {
            let met = self.meet_slowly(cqe);
            return self.first_met(met);
        };
        let work = work_at(&cqe, side);
        let wr_id = self.queues.retire(&work)?;
        match self.in_flight.take_alone(side, wr_id) {
            Some((ticket, buffer)) => Ok(Some(Done::of(ticket, buffer, Ok(decode_plain_frame(&cqe, side))))),
            None => {
                let met = self.meet(wr_id, cqe);
                self.first_met(met)
            }
        }
    }

    /// Takes all that is there, up to `most` frames that were received: these go to `received`, and buffers of frames
    /// that were sent to `sent`. Costs less than as many [polls](Self::poll). Allocates nothing where the two have
    /// room. Whatever else completes ends it and is returned: what failed, and what was received into several buffers.
    ///
    /// # Errors
    /// As for [`poll`](Self::poll).
    #[inline(always)]
    pub fn poll_into(
        &mut self,
        received: &mut Vec<ReceivedFrame>,
        sent: &mut Vec<Buffer>,
        most: usize,
    ) -> Result<Option<Done<FrameCompletion>>, RetireError> {
        let end = received.len().saturating_add(most);
        while received.len() < end {
            if self.met.is_none() {
                let Some(cqe) = self.cq.poll_frame_entry() else { return Ok(None) };
                if self.take_plain(cqe, received, sent)? {
                    continue;
                }
            }
            if let Some(other) = self.sort_next(received, sent) {
                return Ok(Some(other));
            }
        }
        Ok(None)
    }

    /// Takes what completes with `cqe`, if these are frames that were sent, or one that was received into one buffer,
    /// and returns `true`. Any other is met.
    #[inline(always)]
    fn take_plain(
        &mut self,
        cqe: Cqe,
        received: &mut Vec<ReceivedFrame>,
        sent: &mut Vec<Buffer>,
    ) -> Result<bool, RetireError> {
        let Some(side) = side_of_plain_frame(&cqe) else { return self.meet_slowly(cqe).map(|()| false) };
        let work = work_at(&cqe, side);
        let wr_id = self.queues.retire(&work)?;
        match side {
            Side::Send => {
                if self.in_flight.take_sent(wr_id, sent).is_some() {
                    return Ok(true);
                }
            }
            Side::Receive => {
                if let Some((_, Some(buffer))) = self.in_flight.take_alone(side, wr_id) {
                    received.push(ReceivedFrame::new(buffer, decode_plain_frame(&cqe, side)));
                    return Ok(true);
                }
            }
        }
        self.meet(wr_id, cqe).map(|()| false)
    }

    /// As [`poll_into`](Self::poll_into), of the next of what was met.
    #[cold]
    #[inline(never)]
    fn sort_next(
        &mut self,
        received: &mut Vec<ReceivedFrame>,
        sent: &mut Vec<Buffer>,
    ) -> Option<Done<FrameCompletion>> {
        let done = with_headers(self.next_met()?);
        let Ok(completion) = done.result else { return Some(done) };
        match completion.work.side {
            Side::Send => sent.extend(done.buffer),
            Side::Receive if !done.is_whole() => return Some(done),
            Side::Receive => received.extend(done.buffer.map(|buffer| ReceivedFrame::new(buffer, completion))),
        }
        None
    }

    /// Meets what completed with `cqe`, whatever that is.
    #[cold]
    #[inline(never)]
    fn meet_slowly(&mut self, cqe: Cqe) -> Result<(), RetireError> {
        let wr_id = self.queues.retire(&work_of(&decode_frame(&cqe)))?;
        self.meet(wr_id, cqe)
    }

    /// Meets what completes with the work request `wr_id`.
    #[cold]
    #[inline(never)]
    fn meet(&mut self, wr_id: u64, cqe: Cqe) -> Result<(), RetireError> {
        self.met = Some(self.in_flight.group(wr_id, decode_frame(&cqe))?);
        Ok(())
    }

    /// The next of what completed together with the last that was polled.
    #[inline(always)]
    fn next_met(&mut self) -> Option<Done<FrameCompletion>> {
        let group = self.met.as_mut()?;
        let done = self.in_flight.next_of(group);
        if group.is_over() {
            self.met = None;
        }
        done
    }

    /// The first of what was met.
    #[cold]
    #[inline(never)]
    fn first_met(&mut self, met: Result<(), RetireError>) -> Result<Option<Done<FrameCompletion>>, RetireError> {
        met.map(|()| self.next_met().map(with_headers))
    }

    /// Waits for the next frame: polls, then sleeps if [`EthernetOptions::events`] is set.
    ///
    /// # Errors
    /// [`Error::Timeout`] ([`Duration::MAX`] means no limit), [`Error::CompletionQueue`] if the completion queue
    /// overran, [`Error::Dead`], [`Error::InvalidResponse`] as for [`poll`](Self::poll).
    pub fn wait(&mut self, timeout: Duration) -> Result<Done<FrameCompletion>, Error> {
        let deadline = self.deadline(timeout);
        self.wait_card(&deadline, timeout)
    }

    /// As [`poll`](Self::poll), but waits for a frame; for tasks of any executor. `readable` and the errors are those
    /// of [`CompletionQueue::ready`](crate::queue::CompletionQueue::ready). The queues need
    /// [`EthernetOptions::events`].
    pub async fn next(
        &mut self,
        mut readable: impl AsyncFnMut() -> io::Result<()>,
    ) -> Result<Done<FrameCompletion>, Error> {
        loop {
            if let Some(done) = self.poll()? {
                return Ok(done);
            }
            self.cq().ready(&mut readable).await?;
        }
    }

    /// The eventfd that becomes readable at an event that [`next`](Self::next) or [`wait`](Self::wait) requested;
    /// `None` without [`EthernetOptions::events`].
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.cq.fd()
    }

    /// Restarts after an error: both queues go through RST to RDY. Work in flight and completions not polled are
    /// discarded; their buffers are returned. The addresses of [`listen`](Self::listen) stay.
    ///
    /// # Errors
    /// [`Error::Command`]: nothing can be posted then, and the buffers stay in flight. The reset can be tried again.
    pub fn reset(&mut self) -> Result<Vec<Buffer>, Error> {
        self.queues.close();
        self.sq.reset()?;
        self.rq.reset()?;
        self.met = None;
        self.start()?;
        Ok(self.in_flight.drain().collect())
    }
}

/// A frame that was received: see [`EthernetQueue::poll_into`].
#[derive(Debug)]
pub struct ReceivedFrame {
    /// The buffer that the frame is in: its length is the frame's.
    pub buffer: Buffer,
    /// What the card found out about it.
    pub completion: FrameCompletion,
}

impl ReceivedFrame {
    #[inline(always)]
    fn new(mut buffer: Buffer, completion: FrameCompletion) -> Self {
        // Only a faulty card reports more.
        buffer.set_len(buffer.capacity().min(completion.byte_len as usize));
        ReceivedFrame { buffer, completion }
    }
}

/// Makes the headers of joined segments, at the start of the frame's first buffer, those of one packet.
#[cold]
fn with_headers(mut done: Done<FrameCompletion>) -> Done<FrameCompletion> {
    let is_start = done.is_start();
    let (Some(buffer), Ok(completion)) = (&mut done.buffer, &done.result) else { return done };
    let Some(joined) = completion.joined().filter(|_| is_start) else { return done };
    let len = completion.byte_len as usize;
    let mut room = [0; JoinedSegments::HEADERS];
    let head = &mut room[..JoinedSegments::HEADERS.min(len).min(buffer.len())];
    buffer.read(0, head);
    if joined.update_headers(head, len) {
        buffer.write(0, head);
    }
    done
}

event_source!(EthernetQueue; cq);

impl Wait for EthernetQueue {
    type Completion = FrameCompletion;

    fn poll_card(&mut self) -> Result<Option<Done<FrameCompletion>>, RetireError> {
        self.poll()
    }

    fn cq(&mut self) -> &mut CompletionQueue {
        &mut self.cq
    }
}

impl Drop for EthernetQueue {
    fn drop(&mut self) {
        self.queues.close();
        if self.in_flight.is_empty() {
            return;
        }
        // The card may write the buffers until the queues are reset. A dead card cannot: its DMA was stopped before its
        // death became known.
        if let Err(error) = self.sq.reset().and_then(|()| self.rq.reset())
            && !error.frees_memory()
        {
            tracing::error!(%error, "queues of frames could not be reset; their buffers in flight are leaked");
            self.in_flight.leak();
        }
    }
}
