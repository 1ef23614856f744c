//! A send and a receive queue of frames that own the buffers they lend the card.

use std::sync::Arc;
use std::time::Duration;

use mlx5_prm::ctx::InlineMode;

use super::in_flight::{Done, InFlight, Refused, RefusedReason, Ticket};
use super::queues::{Queues, Wait};
use crate::device::{Device, check_groups};
use crate::error::Error;
use crate::memory::DataSegment;
use crate::net::Mac;
use crate::objects::{
    AnyDoorbell, Buffer, CqOptions, FlowGroup, FlowMatcher, FlowRule, FlowTable, MOST_HEADERS, Pd, Rq, RqOptions, Sq,
    SqOptions, Tir, Tis, TransportDomain, Uar, headers, to_mac,
};
use crate::queue::completion::CompletionQueue;
use crate::queue::completion::decode::Side;
use crate::queue::error::RetireError;
use crate::queue::receive::ethernet::EthernetReceiveQueue;
use crate::queue::send::ethernet::{EthernetSendQueue, FrameFlags};

/// What an [`EthernetQueue`] is to be.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EthernetOptions {
    /// Frames under way at once. Default: 128.
    pub send_depth: u32,
    /// Receives posted at once. Default: 128.
    pub recv_depth: u32,
    /// Bytes of the longest frame that [`send_inline`](EthernetQueue::send_inline) takes. Default: 18, none to speak
    /// of.
    pub inline_bytes: u16,
    /// Whether waiting sleeps instead of spinning. Default: no.
    pub events: bool,
    /// The completion vector of its completion queue. Default: 0.
    pub vector: u32,
    /// The Ethernet priority of its frames, 0 to 7. Default: 0.
    pub priority: u8,
}

impl Default for EthernetOptions {
    fn default() -> Self {
        EthernetOptions { send_depth: 128, recv_depth: 128, inline_bytes: 18, events: false, vector: 0, priority: 0 }
    }
}

/// Frames in and out: a send queue, a receive queue, their completion queue, and the buffers that are with the card.
///
/// Each frame takes its [`Buffer`], and [`poll`](Self::poll) hands it back; a frame that was received has the length
/// that its completion says ([`Completion::byte_len`](crate::queue::Completion::byte_len)). Nothing is heard until
/// [`listen`](Self::listen). Where the kernel keeps the function, sending and listening are for processes that may
/// (CAP_NET_RAW).
///
/// A frame that fails takes its queue to ERR: what was posted there comes back with flush errors, what is posted later
/// is not carried out; [`reset`](Self::reset) begins anew. Belongs to one thread at a time; posting and polling make no
/// system call, take no lock and allocate nothing. Dropped with work in flight, its queues are reset first; if that
/// fails, the buffers are leaked.
#[derive(Debug)]
pub struct EthernetQueue {
    in_flight: InFlight,
    events: bool,
    listening: Option<Listening>,
    tir: Arc<Tir>,
    sq: Arc<Sq>,
    rq: Arc<Rq>,
    queues: Queues<EthernetSendQueue<AnyDoorbell>, EthernetReceiveQueue>,
}

/// The steering of what is heard. Its rules go first, by their order here.
#[derive(Debug)]
struct Listening {
    _rules: Vec<FlowRule>,
    device: Arc<Device>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        if self.device.is_owned()
            && let Err(error) = self.device.set_multicast(&[])
            && !error.is_dead()
        {
            tracing::warn!(%error, "the function's list of multicast addresses is left as it was");
        }
    }
}

impl EthernetQueue {
    /// Queues in RDY, with a UAR page and a completion queue of their own: frames may be sent, receives posted.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a card without Ethernet; [`Error::Invalid`] where the options exceed a capability;
    /// [`Error::Memory`], [`Error::Command`].
    pub fn new(pd: &Arc<Pd>, options: EthernetOptions) -> Result<Self, Error> {
        let uar = Uar::alloc(pd.device())?;
        let entries = options.send_depth.saturating_add(options.recv_depth);
        let mut cq_options = CqOptions::default().entries(entries).vector(options.vector);
        cq_options.events = options.events;
        let cq = CompletionQueue::create(&uar, cq_options)?;
        let domain = TransportDomain::alloc(pd.device())?;
        let tis = Tis::create(&domain, options.priority)?;
        let sq_options = SqOptions::default().wqes(options.send_depth).inline_bytes(options.inline_bytes);
        let sq = Sq::create(pd, &uar, &tis, cq.cq(), sq_options)?;
        let rq = Rq::create(pd, cq.cq(), RqOptions::default().wqes(options.recv_depth))?;
        let tir = Tir::create(&domain, &rq)?;
        let mut queue = EthernetQueue {
            in_flight: InFlight::new(options.send_depth, options.recv_depth),
            events: options.events,
            listening: None,
            tir,
            sq,
            rq,
            queues: Queues { send: None, receive: None, cq },
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

    /// Where flow rules send frames to reach it.
    pub fn tir(&self) -> &Arc<Tir> {
        &self.tir
    }

    /// Hears, from now on, frames to the function's own address, to everybody, and to `groups`, in place of what it
    /// heard before. RoCE packets still go to their queue pairs. Who wants other frames makes rules of their own to
    /// [`tir`](Self::tir).
    ///
    /// It makes the function's root flow table. Where the kernel keeps the function, it takes those frames from the
    /// kernel's network device instead, as [`FlowMatcher`] says, which then hears nobody: where both are to live, make
    /// rules for what is yours alone.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the function has a root flow table already, or for an address that is no group's;
    /// [`Error::Unsupported`], [`Error::Command`]; where the kernel keeps the function, [`Error::Io`].
    pub fn listen(&mut self, groups: &[Mac]) -> Result<(), Error> {
        check_groups(groups)?;
        self.listening = None;
        let device = Arc::clone(self.device());
        let addresses: Vec<Mac> = [device.mac(), Mac::BROADCAST].iter().chain(groups).copied().collect();
        self.listening = Some(match device.is_owned() {
            true => self.listen_alone(device, addresses)?,
            false => self.listen_beside_kernel(device, addresses)?,
        });
        Ok(())
    }

    fn listen_alone(&self, device: Arc<Device>, addresses: Vec<Mac>) -> Result<Listening, Error> {
        let entries = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
        let table = FlowTable::create(&device, 0, entries)?;
        let group = FlowGroup::create(&table, 0..entries, &to_mac(Mac::BROADCAST))?;
        let rule = |mac: Mac| FlowRule::create(&group, &to_mac(mac), &self.tir);
        let rules = addresses.iter().copied().map(rule).collect::<Result<_, _>>()?;
        let listening = Listening { _rules: rules, device };
        // Everybody's address is a group's: Linux lists it too.
        listening.device.set_multicast(&addresses[1..])?;
        table.set_root()?;
        Ok(listening)
    }

    fn listen_beside_kernel(&self, device: Arc<Device>, addresses: Vec<Mac>) -> Result<Listening, Error> {
        let matcher = FlowMatcher::create(&device, 0, &to_mac(Mac::BROADCAST))?;
        let rule = |mac: Mac| FlowRule::beside_kernel(&matcher, &to_mac(mac), &self.tir);
        let rules = addresses.into_iter().map(rule).collect::<Result<_, _>>()?;
        Ok(Listening { _rules: rules, device })
    }

    /// Frames in flight, and receives posted.
    pub fn in_flight(&self) -> (usize, usize) {
        self.in_flight.in_flight()
    }

    /// Receives one frame into `buffer`. Errors: [`Refused`], with the buffer.
    #[inline]
    pub fn receive(&mut self, buffer: Buffer) -> Result<Ticket, Refused> {
        let posted = self.post_receive(buffer.segment());
        self.in_flight.keep(posted, Side::Receive, Some(buffer))
    }

    fn post_receive(&mut self, segment: DataSegment) -> Result<(), RefusedReason> {
        let wr_id = self.in_flight.next(Side::Receive)?;
        let queue = self.queues.receive.as_mut().ok_or(RefusedReason::NotReset)?;
        let mut batch = queue.batch();
        // SAFETY: `InFlight::keep` puts the buffer, and with it its region, into the table next; it leaves it with the
        // completion, or after the queue was reset.
        unsafe { batch.receive(wr_id, &[segment])? };
        batch.ring();
        Ok(())
    }

    /// Sends the frame in `buffer`. Errors: [`Refused`], with the buffer.
    #[inline]
    pub fn send(&mut self, buffer: Buffer, flags: FrameFlags) -> Result<Ticket, Refused> {
        let posted = self.post_send(&buffer, flags);
        self.in_flight.keep(posted, Side::Send, Some(buffer))
    }

    fn post_send(&mut self, buffer: &Buffer, flags: FrameFlags) -> Result<(), RefusedReason> {
        let wr_id = self.in_flight.next(Side::Send)?;
        let queue = self.queues.send.as_mut().ok_or(RefusedReason::NotReset)?;
        let mode = queue.sq().inline_mode();
        let mut start = [0; MOST_HEADERS];
        let inline = match mode {
            InlineMode::None => 0,
            _ => {
                let known = buffer.len().min(start.len());
                buffer.read(0, &mut start[..known]);
                headers(mode, &start[..known], buffer.len()).min(known)
            }
        };
        let mut rest = buffer.segment();
        (rest.addr, rest.len) = (rest.addr + inline as u64, rest.len - inline as u32);
        let mut batch = queue.batch();
        // SAFETY: as in `post_receive`: the buffer is kept until its completion.
        unsafe { batch.send(wr_id, flags | FrameFlags::SIGNALLED, &start[..inline], &[rest])? };
        batch.ring();
        Ok(())
    }

    /// Sends `frame`, which is copied and free at once. Errors: [`Refused`].
    #[inline]
    pub fn send_inline(&mut self, frame: &[u8], flags: FrameFlags) -> Result<Ticket, Refused> {
        let posted = self.post_inline(frame, flags);
        self.in_flight.keep(posted, Side::Send, None)
    }

    fn post_inline(&mut self, frame: &[u8], flags: FrameFlags) -> Result<(), RefusedReason> {
        let wr_id = self.in_flight.next(Side::Send)?;
        let queue = self.queues.send.as_mut().ok_or(RefusedReason::NotReset)?;
        let mut batch = queue.batch();
        batch.send_inline(wr_id, flags | FrameFlags::SIGNALLED, frame)?;
        batch.ring();
        Ok(())
    }

    /// The next frame that is sent or received, with its buffer; `None` while there is none.
    ///
    /// # Errors
    /// [`RetireError`] where the card names a work request that is not in flight: a card, or a driver, that is broken.
    #[inline]
    pub fn poll(&mut self) -> Result<Option<Done>, RetireError> {
        self.poll_card()
    }

    /// As [`poll`](Self::poll), once there is something: polls, then sleeps if it was made with
    /// [`EthernetOptions::events`].
    ///
    /// # Errors
    /// [`Error::Timeout`] ([`Duration::MAX`] is for ever), [`Error::CompletionQueue`] where the completion queue
    /// overran, [`Error::Dead`], [`Error::InvalidResponse`] as for [`poll`](Self::poll).
    pub fn wait(&mut self, timeout: Duration) -> Result<Done, Error> {
        let deadline = self.deadline(timeout);
        self.wait_card(&deadline, timeout)
    }

    /// Begins anew after an error: both queues through RST to RDY. What was in flight is not carried out, and what
    /// completed and was not polled is forgotten; its buffers are returned. What it [listens](Self::listen) to stays.
    ///
    /// # Errors
    /// [`Error::Command`]; then nothing can be posted, and the buffers are still lent. It may be tried again.
    pub fn reset(&mut self) -> Result<Vec<Buffer>, Error> {
        self.queues.close();
        self.sq.reset()?;
        self.rq.reset()?;
        let buffers = self.in_flight.drain().collect();
        self.start()?;
        Ok(buffers)
    }
}

impl Wait for EthernetQueue {
    #[inline]
    fn poll_card(&mut self) -> Result<Option<Done>, RetireError> {
        let Some((wr_id, result)) = self.queues.poll()? else { return Ok(None) };
        self.in_flight.done(wr_id, result).map(Some)
    }

    fn cq(&mut self) -> &mut CompletionQueue {
        &mut self.queues.cq
    }

    fn sleeps(&self) -> bool {
        self.events
    }
}

impl Drop for EthernetQueue {
    fn drop(&mut self) {
        self.queues.close();
        if self.in_flight.is_empty() {
            return;
        }
        // Until the queues are reset the card may still write the buffers.
        // A dead card has been kept from memory before its death was known.
        if let Err(error) = self.sq.reset().and_then(|()| self.rq.reset())
            && !error.is_dead()
        {
            tracing::error!(%error, "queues of frames could not be reset; their buffers in flight are leaked");
            self.in_flight.leak();
        }
    }
}
