//! Dynamically connected targets. Initiators are queue pairs:
//! [`QpOptions::dc_initiator`](super::QpOptions::dc_initiator).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mlx5_prm::caps::{AtomicCaps, CmdHcaCap};
use mlx5_prm::cmd::{ArmDctIn, CreateDctIn, DestroyDctIn, DrainDctIn, QueryDctIn};
use mlx5_prm::ctx::{AtomicMode, DctState, Dctc};
use mlx5_prm::values::PathMtu;
use mlx5_prm::wqe::{CtrlSeg, UdAdrsVector};

use super::check::{check_dc, fits, in_range, one_device, pkey_exists, port_exists, user_index};
use super::cq::Cq;
use super::mkey::{AccessFlags, check_access};
use super::object::{DestroyError, Object, destroy_sole};
use super::pd::Pd;
use super::qp::datagram::AddressHandle;
use super::qp::path::AddressPath;
use super::qp::transition::path_mtu;
use super::queue_counter::QueueCounter;
use super::srq::Srq;
use crate::caps::{CapPage, Caps};
use crate::deadline::Deadline;
use crate::device::Device;
use crate::error::{CommandError, Error, Invalid};
use crate::setters::setters;

/// How long a target may take to drain.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is asked.
const PAUSE: Duration = Duration::from_micros(100);

/// Options of a dynamically connected target.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DctOptions {
    /// What initiators must know to reach it.
    pub access_key: u64,
    /// Local port number, from 1. Default: 1.
    pub port: u8,
    /// Index of the P_Key of its packets, as [`InitAttributes::pkey_index`](super::InitAttributes). Default: 0.
    pub pkey_index: u16,
    /// Index of the local GID, at which initiators reach it. Default: 0.
    pub gid_index: u8,
    /// Hop limit (IPv6) or time to live (IPv4) of its responses. Default: 64.
    pub hop_limit: u8,
    /// Traffic class of its responses: DSCP and ECN. Default: 0.
    pub traffic_class: u8,
    /// IPv6 flow label of its responses, 20 bits. Default: 0.
    pub flow_label: u32,
    /// Service level: the Ethernet priority of its responses, 0 to 7. Default: 0.
    pub service_level: u8,
    /// Path MTU, the same as its initiators'. Default: the largest that fits the port's MTU.
    pub path_mtu: Option<PathMtu>,
    /// Access rights of initiators: REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC. Default: the first two.
    pub remote_access: AccessFlags,
    /// RNR NAK timer code sent to an initiator if no receive is posted, 5 bits. Default: 12 (0.64 ms).
    pub min_rnr_timer: u8,
    /// [`Completion::user_index`](crate::queue::Completion::user_index) of its receives: 24 bits, not all ones.
    /// Default: none.
    pub user_index: Option<u32>,
    /// Whether initiators open their connections by a handshake, even those that do not by themselves
    /// ([`QpOptions::full_handshake`](super::QpOptions::full_handshake)). Default: no.
    pub full_handshake: bool,
    /// Counts what happens to its messages. Any number of queues share one. Default: none.
    pub counter: Option<Arc<QueueCounter>>,
}

setters! {
    DctOptions {
        access_key: u64;
        port: u8;
        pkey_index: u16;
        gid_index: u8;
        hop_limit: u8;
        traffic_class: u8;
        flow_label: u32;
        service_level: u8;
        path_mtu: Some(PathMtu);
        remote_access: AccessFlags;
        min_rnr_timer: u8;
        user_index: Some(u32);
        full_handshake = true;
    }
}

impl DctOptions {
    /// For initiators that know `access_key`; everything else is default.
    pub fn new(access_key: u64) -> Self {
        DctOptions {
            access_key,
            port: 1,
            pkey_index: 0,
            gid_index: 0,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
            service_level: 0,
            path_mtu: None,
            remote_access: AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ,
            min_rnr_timer: 12,
            user_index: None,
            full_handshake: false,
            counter: None,
        }
    }

    /// Sets [`counter`](Self::counter).
    pub fn counter(mut self, counter: &Arc<QueueCounter>) -> Self {
        self.counter = Some(Arc::clone(counter));
        self
    }

    /// The context, without its parents.
    fn context(&self, device: &Device) -> Result<Dctc, Error> {
        let caps = device.caps();
        port_exists(self.port, caps)?;
        pkey_exists(self.pkey_index, caps)?;
        if let Some(last) = caps.roce_address_table_size.checked_sub(1) {
            in_range("gid_index", self.gid_index.into(), 0..=last.into(), "roce_address_table_size")?;
        }
        fits("flow_label", self.flow_label, 20)?;
        fits("service_level", self.service_level.into(), 3)?;
        fits("min_rnr_timer", self.min_rnr_timer.into(), 5)?;
        check_access(self.remote_access, caps)?;
        let has = |right| self.remote_access.contains(right);
        let mut context = Dctc::default();
        context
            .w()
            .user_index(user_index(self.user_index, caps)?)
            .rwe(has(AccessFlags::REMOTE_WRITE))
            .rre(has(AccessFlags::REMOTE_READ))
            .rae(has(AccessFlags::REMOTE_ATOMIC))
            .free_ar(self.full_handshake)
            .min_rnr_nak(self.min_rnr_timer)
            .tclass(self.traffic_class)
            .flow_label(self.flow_label)
            .dc_access_key(self.access_key)
            .mtu(path_mtu(device, self.path_mtu)?)
            .port(self.port)
            .pkey_index(self.pkey_index)
            .my_addr_index(self.gid_index)
            .hop_limit(self.hop_limit)
            .eth_prio(self.service_level)
            .dscp(self.traffic_class >> 2);
        if has(AccessFlags::REMOTE_ATOMIC) {
            context.w().atomic_mode(atomic_mode(caps));
        }
        Ok(context)
    }
}

/// `atomic_mode` of a target that takes atomics, as Linux chooses it: up to the longest masked ones.
fn atomic_mode(caps: &Caps) -> AtomicMode {
    let page: AtomicCaps = caps.current(CapPage::Atomic).unwrap_or(AtomicCaps::ZERO);
    match caps.masked_atomics() {
        0 => AtomicMode::IbSpec,
        _ => {
            let longest = u32::from(page.atomic_size_dc() & 0x3f).checked_ilog2().unwrap_or_default();
            AtomicMode::from_number(longest.max(AtomicMode::UpTo8B.number()))
        }
    }
}

/// Status of a target, from the card. PRM "QUERY_DCT".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DctStatus {
    /// Its state.
    pub state: DctState,
    /// Messages with a wrong access key, modulo 2^32.
    pub key_violations: u32,
    /// Payload of a full packet.
    pub path_mtu: PathMtu,
}

/// A dynamically connected target: any initiator that knows its number, address and access key sends to it, without a
/// connection to be made for each. What arrives takes receives of its shared receive queue, in the order of arrival,
/// and completes in its completion queue. PRM "Dynamically Connected Target Context".
///
/// A message with a wrong access key fails at its initiator.
pub struct Dct {
    dctn: u32,
    gid_index: u8,
    access_key: u64,
    object: Object,
    /// Outlives the target, which names it.
    _counter: Option<Arc<QueueCounter>>,
    srq: Arc<Srq>,
    cq: Arc<Cq>,
    pd: Arc<Pd>,
}

impl fmt::Debug for Dct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dct({:#x})", self.dctn)
    }
}

impl Dct {
    /// Creates a target for memory of `pd`, which receives from `srq` and completes into `cq`. It takes messages at
    /// once.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a card without the transport; [`Error::Invalid`] for an option out of range, an `srq`
    /// of an XRC domain, or parents of different cards; [`Error::Command`].
    pub fn create(pd: &Arc<Pd>, srq: &Arc<Srq>, cq: &Arc<Cq>, options: &DctOptions) -> Result<Arc<Self>, Error> {
        let device = pd.device();
        check_dc(device.caps())?;
        one_device("a DCT's PD, SRQ and CQ", device, [srq.device(), cq.device()])?;
        cq.admit()?;
        if srq.xrcd().is_some() {
            let what = "the SRQ of a DCT".into();
            return Err(Invalid::Requires { what, requires: "one of Srq::create" }.into());
        }
        if let Some(counter) = &options.counter {
            one_device("a DCT and its counter", device, [counter.device()])?;
        }
        let mut context = options.context(device)?;
        context.w().counter_set_id(options.counter.as_ref().map_or(0, |counter| counter.id()));
        context.w().pd(pd.pdn()).srqn_xrqn(srq.srqn()).cqn(cq.cqn());
        let mut create = CreateDctIn::default();
        create.w().dct_context_entry(&context);
        // SAFETY: names no memory, only the numbers of parents that this value keeps: what the card writes for it goes
        // to their rings, to receives posted to `srq`, and to regions of `pd` that allow it.
        let created = unsafe {
            Object::create_over_memory(device, &create, "a DCT", |out| {
                let mut end = DestroyDctIn::default();
                end.w().dctn(out.dctn());
                (end, format!("DCT {:#x}", out.dctn()))
            })
        };
        let (object, out) = created?;
        Ok(Arc::new(Dct {
            dctn: out.dctn(),
            gid_index: options.gid_index,
            _counter: options.counter.clone(),
            access_key: options.access_key,
            object,
            srq: Arc::clone(srq),
            cq: Arc::clone(cq),
            pd: Arc::clone(pd),
        }))
    }

    /// `dctn`, 24 bits, for initiators.
    pub fn dctn(&self) -> u32 {
        self.dctn
    }

    /// Its access key.
    pub fn access_key(&self) -> u64 {
        self.access_key
    }

    /// The index of its GID.
    pub fn gid_index(&self) -> u8 {
        self.gid_index
    }

    /// The card.
    pub fn device(&self) -> &Arc<Device> {
        self.pd.device()
    }

    /// The protection domain.
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Its shared receive queue.
    pub fn srq(&self) -> &Arc<Srq> {
        &self.srq
    }

    /// The completion queue of its receives.
    pub fn cq(&self) -> &Arc<Cq> {
        &self.cq
    }

    /// Queries the card. Errors: [`Error::Command`].
    pub fn query(&self) -> Result<DctStatus, Error> {
        let mut query = QueryDctIn::default();
        query.w().dctn(self.dctn);
        let reply = self.object.query(&query)?;
        let context = reply.dct_context_entry();
        Ok(DctStatus {
            state: context.state(),
            key_violations: context.dc_access_key_violation_count(),
            path_mtu: context.mtu(),
        })
    }

    /// Whether the bytes of each message that it receives reach memory in order, as
    /// [`QueuePair::card_data_in_order`](super::QueuePair::card_data_in_order). False on a card that does not tell
    /// (`qp_data_in_order`). Errors: [`Error::Command`].
    pub fn card_data_in_order(&self) -> Result<bool, Error> {
        let general: Option<CmdHcaCap> = self.device().caps().current(CapPage::General);
        if !general.is_some_and(|general| general.qp_data_in_order()) {
            return Ok(false);
        }
        let mut query = QueryDctIn::default();
        query.w().dctn(self.dctn);
        Ok(self.object.query(&query)?.dct_context_entry().data_in_order())
    }

    /// Requests one event DCT_KEY_VIOLATION ([`Device::async_events`]) for the next message with a wrong access key.
    /// Errors: [`Error::Command`].
    pub fn arm_key_violation(&self) -> Result<(), Error> {
        let mut command = ArmDctIn::default();
        command.w().dct_number(self.dctn);
        Ok(self.object.modify(&command)?)
    }

    /// Drains and destroys it; after a success further calls do nothing.
    pub(crate) fn end(&mut self) -> Result<(), CommandError> {
        // The kernel drains its targets by itself.
        if self.object.is_alive() && self.device().is_owned() {
            self.drain()?;
        }
        self.object.destroy()
    }

    fn drain(&self) -> Result<(), CommandError> {
        let (mut drain, mut query) = (DrainDctIn::default(), QueryDctIn::default());
        drain.w().dctn(self.dctn);
        query.w().dctn(self.dctn);
        let state = || Ok::<_, CommandError>(self.object.query(&query)?.dct_context_entry().state());
        if self.device().death().is_some() {
            return Ok(());
        }
        if state()? == DctState::Active {
            self.object.modify(&drain)?;
        }
        // If it does not end, its destruction fails and says so.
        let clock = self.device().clock();
        let deadline = Deadline::after(clock, PATIENCE);
        while state()? != DctState::Drained && !deadline.has_passed() {
            clock.pause(PAUSE);
        }
        Ok(())
    }

    /// Destroys it, once the messages that have arrived are complete; later ones fail at their initiators. Errors: the
    /// target, which stays alive, and the reason.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, Dct::end)
    }
}

impl Drop for Dct {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::error!(%error, "a DCT was not destroyed; it stays with the card until that is reset");
        }
    }
}

/// A dynamically connected target as an initiator addresses it, in the format of the WQE: path, number, access key.
/// Create it once and use it for any number of messages. PRM "Datagram Segment".
#[derive(Debug, Clone, Copy)]
pub struct DcTarget {
    vector: UdAdrsVector,
    /// The stream as it stands in the second eight bytes of a control segment.
    control: u64,
}

impl DcTarget {
    /// The target `dctn`, 24 bits, along `path`. If the path has no UDP source port, one is derived from `dctn` and the
    /// GID. Errors: [`Error::Invalid`] for a value out of range.
    pub fn new(device: &Device, path: &AddressPath, dctn: u32, access_key: u64) -> Result<Self, Error> {
        let mut vector = *AddressHandle::new(device, path, dctn, 0)?.vector();
        vector.w().dc_key(access_key);
        Ok(DcTarget { vector, control: 0 })
    }

    /// The same target by the stream number `stream` of an initiator with [streams](crate::objects::DciStreams). Others
    /// ignore it. Default: 0.
    pub fn stream(mut self, stream: u16) -> Self {
        let mut control = CtrlSeg::ZERO;
        control.w().dci_stream_channel_id(stream);
        let [_, second]: [u64; 2] = zerocopy::transmute!(control);
        self.control = second;
        self
    }

    /// The datagram segment.
    #[inline(always)]
    pub(crate) fn vector(&self) -> &UdAdrsVector {
        &self.vector
    }

    /// Its stream, in the second eight bytes of a control segment.
    #[inline(always)]
    pub(crate) fn stream_in_control(&self) -> u64 {
        self.control
    }
}
