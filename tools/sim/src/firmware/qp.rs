//! Queue pairs: create, query, destroy. PRM "Queue Pair Context". State changes are in [`qp_state`](super::qp_state).

use mlx5_prm::cmd::*;
use mlx5_prm::ctx::{Qpc, TimestampFormat};
use mlx5_prm::values::{PathMigration, PathMtu, QpState, ServiceType};

use super::answer::Answer;
use super::caps::next_below;
use super::ece;
use super::memory::{self, InUmem, Wanted};
use super::syndromes::Syndrome;
use super::{clock, pages, qp_extension, uar};
use crate::engine;
use crate::function::{Context, Function};
use crate::objects::{AddressPath, PageList, Qp, RcState, RecvRing, SendRing};

/// `rq_type`: an ordinary receive queue.
const RQ_REGULAR: u8 = 0;
/// `rq_type`: a shared receive queue.
const RQ_SHARED: u8 = 1;
/// `rq_type`: none.
const RQ_ZERO_SIZE: u8 = 3;
/// log2 of the smallest receive WQE in bytes: `log_rq_stride` is relative to it.
const LOG_MIN_STRIDE: u32 = 4;
/// log2 of a WQEBB's bytes.
const LOG_WQEBB: u32 = 6;
/// `user_index` of a queue pair whose completions have its own number.
const NO_USER_INDEX: u32 = 0xff_ffff;

/// The two rings of a queue pair in one memory area: receive ring, then send ring. PRM "Work Queue Structure".
struct Rings {
    send: Option<u32>,
    recv: Option<(u32, u32)>,
}

impl Rings {
    fn of(context: &Qpc) -> Self {
        let has_recv = context.rq_type() == RQ_REGULAR;
        Rings {
            send: (!context.no_sq()).then(|| u32::from(context.log_sq_size())),
            recv: has_recv
                .then(|| (u32::from(context.log_rq_size()), u32::from(context.log_rq_stride()) + LOG_MIN_STRIDE)),
        }
    }

    fn recv_bytes(&self) -> u64 {
        self.recv.map_or(0, |(log_size, log_stride)| 1 << (log_size + log_stride))
    }

    /// Offset of the send ring, aligned to WQEBBs.
    fn send_offset(&self) -> u64 {
        self.recv_bytes().next_multiple_of(1 << LOG_WQEBB)
    }

    fn bytes(&self) -> u64 {
        self.send.map_or(self.recv_bytes(), |log_size| self.send_offset() + (1 << (log_size + LOG_WQEBB)))
    }

    fn place(&self, memory: &PageList) -> (Option<SendRing>, Option<RecvRing>) {
        let send = self.send.map(|log_size| {
            let mut memory = memory.clone();
            memory.offset += self.send_offset();
            SendRing { memory, log_size }
        });
        let recv = self.recv.map(|(log_size, log_stride)| RecvRing::new(memory.clone(), log_size, log_stride));
        (send, recv)
    }
}

/// `CREATE_QP`.
pub(super) fn create(f: &mut Function, command: &CreateQpIn, list: &[u8]) -> Answer<CreateQpOut> {
    let context = *command.qpc();
    if command.input_qpn() != 0 {
        return Err(Syndrome::InputQpn.into());
    }
    if command.opt_param_mask() != 0 {
        return Err(Syndrome::QpFeature.into());
    }
    let list = qp_extension::at_creation(f, command, list)?;
    let offered = ece::reduce(f, command.ece())?;
    check_features(f, &context)?;
    check_sizes(f, &context)?;
    check_parents(f, &context)?;
    let umem = command.wq_umem_valid().then(|| InUmem { id: command.wq_umem_id(), offset: command.wq_umem_offset() });
    let rings = Rings::of(&context);
    let memory = memory::queue(f, wanted(&context, &rings), list, umem)?;
    let doorbell_umem = context.dbr_umem_valid().then(|| context.dbr_umem_id());
    let doorbell = memory::doorbell(f, context.dbr_addr(), doorbell_umem)?;
    next_below(&f.queues.qps, f.nic.firmware.caps.general().log_max_qp()).ok_or(Syndrome::TooManyQps)?;
    pages::reserve(f, Context::Qp)?;
    let (send, recv) = rings.place(&memory);
    let qp = Qp { send, recv, doorbell, doorbell_umem, umem: umem.map(|place| place.id), ..at_rest(&context) };
    let mut output = insert(f, qp)?;
    output.w().ece(offered);
    Ok(output)
}

fn insert(f: &mut Function, mut qp: Qp) -> Answer<CreateQpOut> {
    let umems = [qp.umem, qp.doorbell_umem];
    let qpn = f.queues.qps.next_number().ok_or(Syndrome::TooManyQps)?;
    qp.qpn = qpn;
    let bears = bears_real_time(f, &qp.context);
    use_parents(f, &qp.context, true);
    f.queues.qps.insert(qp).map_err(|_| Syndrome::TooManyQps)?;
    memory::use_umems(f, umems, true);
    engine::qp_created(f, qpn);
    f.nic.firmware.real_time.enlist(qpn, bears == Some(true));
    let mut output = CreateQpOut::ZERO;
    output.w().qpn(qpn);
    Ok(output)
}

/// The shared receive queue of its receives. XRC messages name theirs themselves; an initiator of DC receives nothing,
/// whatever queue Linux names.
fn shared_queue(context: &Qpc) -> Option<u32> {
    let is_shared = context.rq_type() == RQ_SHARED && !matches!(context.st(), ServiceType::Xrc | ServiceType::Dci);
    is_shared.then(|| context.srqn_rmpn_xrqn())
}

/// A queue pair in RST, made from its context.
fn at_rest(context: &Qpc) -> Qp {
    let mut kept = *context;
    kept.w().state(QpState::Rst);
    Qp {
        qpn: 0,
        hidden: None,
        state: QpState::Rst,
        service: context.st(),
        pd: context.pd(),
        uar: context.uar_page(),
        user_index: (context.user_index() != NO_USER_INDEX).then(|| context.user_index()),
        send: None,
        recv: None,
        srqn: shared_queue(context),
        xrcd: context.xrcd(),
        cqn_send: context.cqn_snd(),
        cqn_recv: context.cqn_rcv(),
        doorbell: Default::default(),
        path: AddressPath::default(),
        mtu: PathMtu::Mtu1024,
        remote_qpn: 0,
        retry_count: 0,
        rnr_retry: 0,
        min_rnr_nak: 0,
        log_sra_max: 0,
        log_rra_max: 0,
        remote_write: false,
        remote_read: false,
        remote_atomic: false,
        counter_set_id: 0,
        ece: 0,
        umem: None,
        doorbell_umem: None,
        traffic: Default::default(),
        context: kept,
        rc: RcState::default(),
    }
}

/// Whether this service is supported.
fn is_announced(f: &Function, service: ServiceType) -> bool {
    let caps = f.nic.firmware.caps.general();
    match service {
        ServiceType::Rc => caps.rc(),
        ServiceType::Uc => caps.uc(),
        ServiceType::Ud | ServiceType::Qp1 => caps.ud(),
        ServiceType::Xrc => caps.xrc(),
        ServiceType::Dci => caps.dct(),
        ServiceType::RegUmr => true,
        _ => false,
    }
}

fn check_features(f: &Function, context: &Qpc) -> Result<(), Syndrome> {
    if !is_announced(f, context.st()) {
        return Err(Syndrome::Service);
    }
    if context.pm_state() != PathMigration::Migrated {
        return Err(Syndrome::Migration);
    }
    if !matches!(context.rq_type(), RQ_REGULAR | RQ_SHARED | RQ_ZERO_SIZE) {
        return Err(Syndrome::RqType);
    }
    if context.no_sq() && context.rq_type() == RQ_ZERO_SIZE {
        return Err(Syndrome::NoQueues);
    }
    let unannounced = context.lag_tx_port_affinity() != 0
        || context.isolate_vl_tc()
        || context.offload_type() != 0
        || context.end_padding_mode() != 0
        || context.wq_signature()
        || context.atomic_like_write_en()
        || context.drain_sigerr()
        || context.ulp_stateless_offload_mode() != 0
        || context.req_e2e_credit_mode() != 0
        || context.cs_req() != 0
        || context.cs_res() != 0
        || context.cd_master()
        || context.cd_slave_send()
        || context.cd_slave_receive()
        || bears_real_time(f, context).is_none()
        || context.deth_sqpn() != 0;
    if unannounced { Err(Syndrome::QpFeature) } else { qp_extension::check_streams(f, context) }
}

/// Whether its completions bear real time; `None` if the function cannot do as the context asks.
fn bears_real_time(f: &Function, context: &Qpc) -> Option<bool> {
    let format = TimestampFormat::from_number(context.ts_format().into());
    clock::bears_real_time(f.nic.firmware.caps.roce().qp_ts_format(), format)
}

fn check_sizes(f: &Function, context: &Qpc) -> Result<(), Syndrome> {
    let caps = f.nic.firmware.caps.general();
    let rings = Rings::of(context);
    let largest = u32::from(caps.log_max_qp_sz());
    if rings.send.is_some_and(|log_size| log_size > largest) {
        return Err(Syndrome::QpSize);
    }
    let Some((log_size, log_stride)) = rings.recv else { return Ok(()) };
    if log_size > largest {
        return Err(Syndrome::QpSize);
    }
    if 1 << log_stride > u32::from(caps.max_wqe_sz_rq()) {
        return Err(Syndrome::RqStride);
    }
    Ok(())
}

fn check_parents(f: &Function, context: &Qpc) -> Result<(), Syndrome> {
    // `REG_UMR` queue pairs update keys of all protection domains, and belong to none.
    if context.st() != ServiceType::RegUmr {
        f.nic.objects.pds.get(context.pd()).ok_or(Syndrome::NoSuchPd)?;
    }
    f.nic.objects.cqs.get(context.cqn_snd()).ok_or(Syndrome::NoSuchCq)?;
    f.nic.objects.cqs.get(context.cqn_rcv()).ok_or(Syndrome::NoSuchCq)?;
    // Without a send queue no UAR page is needed.
    if !context.no_sq() {
        f.nic.objects.uars.get(context.uar_page()).ok_or(Syndrome::NoSuchUar)?;
    }
    if context.st() == ServiceType::Xrc {
        f.nic.objects.xrcds.get(context.xrcd()).ok_or(Syndrome::NoSuchXrcd)?;
    }
    if let Some(srqn) = shared_queue(context) {
        f.nic.objects.srqs.get(srqn).filter(|srq| srq.xrc.is_none()).ok_or(Syndrome::NoSuchSrq)?;
    }
    if context.st() == ServiceType::Qp1 && f.queues.qps.iter().any(|(_, qp)| qp.service == ServiceType::Qp1) {
        return Err(Syndrome::GsiTaken);
    }
    Ok(())
}

fn wanted(context: &Qpc, rings: &Rings) -> Wanted {
    Wanted { log_page_size: context.log_page_size(), page_offset: context.page_offset(), bytes: rings.bytes() }
}

/// Increments or decrements the reference counts of the objects that a queue pair names.
fn use_parents(f: &mut Function, context: &Qpc, more: bool) {
    if let Some(pd) = f.nic.objects.pds.get_mut(context.pd()).filter(|_| context.st() != ServiceType::RegUmr) {
        memory::count(&mut pd.users, more);
    }
    if !context.no_sq() {
        uar::count(f, context.uar_page(), more);
    }
    if let Some(xrcd) = f.nic.objects.xrcds.get_mut(context.xrcd()).filter(|_| context.st() == ServiceType::Xrc) {
        memory::count(&mut xrcd.users, more);
    }
    if let Some(srq) = shared_queue(context).and_then(|srqn| f.nic.objects.srqs.get_mut(srqn)) {
        memory::count(&mut srq.users, more);
    }
    for cqn in [context.cqn_snd(), context.cqn_rcv()] {
        if let Some(cq) = f.nic.objects.cqs.get_mut(cqn) {
            memory::count(&mut cq.users, more);
        }
    }
}

/// `QUERY_QP`: the context, and as many page addresses as fit.
pub(super) fn query(f: &mut Function, command: &QueryQpIn, _: &[u8], room: usize) -> Answer<(QueryQpOut, Vec<u8>)> {
    if command.qpc_ext() && !f.nic.firmware.caps.general().qpc_extension() {
        return Err(Syndrome::QpFeature.into());
    }
    let qp = f.queues.qps.get(command.qpn()).ok_or(Syndrome::NoSuchQp)?;
    let mut context = qp.context;
    context.w().data_in_order(f.nic.firmware.caps.general().qp_data_in_order());
    engine::describe_qp(qp, &mut context);
    let memory = qp.recv.as_ref().map(|ring| &ring.memory).or(qp.send.as_ref().map(|ring| &ring.memory));
    let pages = memory.map_or(&[][..], |memory| &memory.pages);
    let addresses = pages.iter().flat_map(|page| page.to_be_bytes());
    let mut output = QueryQpOut::ZERO;
    let mut first = *output.qp_pas_or_qpc_ext_and_pas();
    // The extension, of which nothing is set, comes before the pages.
    let extension = if command.qpc_ext() { first.len() } else { 0 };
    let addresses: Vec<u8> = std::iter::repeat_n(0, extension).chain(addresses).collect();
    let (head, tail) = addresses.split_at(addresses.len().min(first.len()));
    first[..head.len()].copy_from_slice(head);
    output.w().ece(qp.ece).qpc(&context).qp_pas_or_qpc_ext_and_pas(&first);
    Ok((output, tail[..tail.len().min(room)].to_vec()))
}

/// `DESTROY_QP`, in any state.
pub(super) fn destroy(f: &mut Function, command: &DestroyQpIn) -> Answer<DestroyQpOut> {
    if f.nic.objects.groups.has_member(command.qpn()) {
        return Err(Syndrome::QpInGroup.into());
    }
    let qp = f.queues.qps.remove(command.qpn()).ok_or(Syndrome::NoSuchQp)?;
    use_parents(f, &qp.context, false);
    memory::use_umems(f, [qp.umem, qp.doorbell_umem], false);
    pages::release(f, Context::Qp);
    engine::qp_destroyed(f, qp);
    Ok(DestroyQpOut::ZERO)
}
