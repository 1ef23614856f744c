//! Creation of queue pairs. PRM "CREATE_QP".

use std::sync::{Arc, Mutex};

use mlx5_prm::caps::{CmdHcaCap, RoceCap};
use mlx5_prm::cmd::{CreateQpIn, DestroyQpIn};
use mlx5_prm::ctx::{Qpc, TimestampFormat};
use mlx5_prm::values::{PathMigration, QpState, ServiceType};

use super::QueuePair;
use super::attributes::CONNECTED;
use super::ece::{self, Ece};
use super::options::{Layout, QpOptions};
use super::transition::LOG_ACK_REQ_FREQ;
use crate::caps::{CapPage, Caps};
use crate::device::Device;
use crate::error::{Error, Invalid};
use crate::objects::check::{check_dc, chosen_timestamps, one_device, user_index};
use crate::objects::cq::Cq;
use crate::objects::object::Object;
use crate::objects::pd::Pd;
use crate::objects::ring::RingMemory;
use crate::objects::ring_lease::RingLease;
use crate::objects::uar::Uar;

/// `rq_type` of a queue pair that uses a shared receive queue.
const SHARED_RECEIVE_QUEUE: u8 = 1;
/// `rq_type` of a queue pair without a receive queue.
const NO_RECEIVE_QUEUE: u8 = 3;

impl QueuePair {
    /// Creates a queue pair in RST. It rings through `uar` and completes into `send_cq` and `recv_cq`, which may be the
    /// same.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the options exceed a capability, which the error names, or if the parents belong to
    /// different cards; [`Error::Unsupported`] if the card does not support the service; [`Error::Memory`],
    /// [`Error::Command`].
    pub fn create(
        pd: &Arc<Pd>,
        uar: &Arc<Uar>,
        send_cq: &Arc<Cq>,
        recv_cq: &Arc<Cq>,
        options: QpOptions,
    ) -> Result<Arc<Self>, Error> {
        let device = pd.device();
        one_device("a queue pair's PD, UAR and CQs", device, [uar.device(), send_cq.device(), recv_cq.device()])?;
        send_cq.admit()?;
        recv_cq.admit()?;
        let kind = kind(options.service, device)?;
        if let Some(srq) = &options.srq {
            one_device("a queue pair and its SRQ", device, [srq.device()])?;
            if srq.xrcd().is_some() {
                let what = "a queue pair's SRQ of an XRC domain".into();
                return Err(Invalid::Requires { what, requires: "an XrcTarget, and no QpOptions::srq" }.into());
            }
        }
        if let Some(domain) = &options.xrcd {
            one_device("a queue pair and its XRC domain", device, [domain.device()])?;
        }
        if let Some(counter) = &options.counter {
            one_device("a queue pair and its counter", device, [counter.device()])?;
        }
        let layout = Layout::of(&options, device.caps())?;
        if options.service == ServiceType::Xrc && options.xrcd.is_none() {
            let what = "a queue pair of service XRC".into();
            return Err(Invalid::Requires { what, requires: "QpOptions::xrc_initiator" }.into());
        }
        if layout.len() == 0 && options.srq.is_none() && options.service != ServiceType::Xrc {
            return Err(Invalid::Empty { what: "a queue pair", lacks: "send_wqes and recv_wqes" }.into());
        }
        let memory = RingMemory::new(pd, layout.len(), 0)?;
        let mut context = context(&options, &layout, &memory, device.caps())?;
        context.w().pd(pd.pdn()).uar_page(uar.index()).cqn_snd(send_cq.cqn()).cqn_rcv(recv_cq.cqn());
        // "Fast registration enabled": lists of pages in UMRs. As Linux, which sets it for its own queue pairs alone.
        context.w().fre(device.is_owned());
        let mut create = CreateQpIn::default();
        // Only a queue pair with one remote can agree with it.
        let ece = if CONNECTED.contains(&options.service) { ece::asked(device.caps()) } else { 0 };
        create.w().ece(ece).qpc(&context).wq_umem_valid(true).wq_umem_id(memory.umem_id());
        // SAFETY: the command names only the umem of `memory`, which belongs to this queue pair. It is kept with the
        // object, destroyed after it, and leaked if that fails; firmware keeps a umem that an object uses.
        let created = unsafe {
            Object::create_over_memory(device, &create, kind, |out| {
                let mut end = DestroyQpIn::default();
                end.w().qpn(out.qpn());
                (end, format!("QP {:#x}", out.qpn()))
            })
        };
        let (object, out) = created?;
        Ok(Arc::new(QueuePair {
            qpn: out.qpn(),
            options,
            layout,
            state: Mutex::new(QpState::Rst),
            send_lease: RingLease::default(),
            receive_lease: RingLease::default(),
            ece: Ece::new(out.ece()),
            object,
            memory,
            send_cq: Arc::clone(send_cq),
            recv_cq: Arc::clone(recv_cq),
            uar: Arc::clone(uar),
            pd: Arc::clone(pd),
        }))
    }
}

/// Name of a queue pair of `service`, for error texts. Errors: the card or this driver does not support the service.
fn kind(service: ServiceType, device: &Device) -> Result<&'static str, Error> {
    let caps = device.caps();
    match service {
        ServiceType::Rc => Ok("an RC QP"),
        ServiceType::Uc if caps.current::<CmdHcaCap>(CapPage::General).is_some_and(|general| general.uc()) => {
            Ok("a UC QP")
        }
        ServiceType::Uc => Err(Error::Unsupported { what: "unreliable connections".into(), capability: "uc" }),
        ServiceType::Ud => Ok("a UD QP"),
        ServiceType::Xrc => Ok("an XRC QP"),
        ServiceType::Dci => check_dc(caps).map(|()| "a DCI QP"),
        ServiceType::Qp1 if device.is_owned() => Ok("QP 1"),
        ServiceType::Qp1 => {
            let (what, device) = ("queue pair 1", device.name().into());
            let mend = "connect by its connection manager (/dev/infiniband/rdma_cm), or open the function as vfio:";
            Err(Invalid::WrongAccess { what, device, kernel: true, mend }.into())
        }
        other => {
            let instead = "use ServiceType::Rc, Uc, Ud, Xrc, Dci or Qp1".into();
            Err(Error::NotImplemented { what: format!("a queue pair of service {other}"), instead })
        }
    }
}

/// Timestamp format of a queue pair's completions, which bear real time if that is `wanted`.
fn clock(wanted: bool, caps: &Caps) -> Result<TimestampFormat, Error> {
    let format = caps.current::<RoceCap>(CapPage::Roce).map_or(0, |roce| roce.qp_ts_format());
    chosen_timestamps(wanted, format, "qp_ts_format")
}

/// Context of a queue pair with `options`, whose rings have `layout` in `memory`. The parents are missing.
fn context(options: &QpOptions, layout: &Layout, memory: &RingMemory, caps: &Caps) -> Result<Qpc, Error> {
    let mut context = Qpc::default();
    context
        .w()
        .st(options.service)
        .pm_state(PathMigration::Migrated)
        .user_index(user_index(options.user_index, caps)?)
        .log_ack_req_freq(LOG_ACK_REQ_FREQ)
        .ts_format(clock(options.real_time, caps)?.number() as u8)
        .dbr_umem_valid(true)
        .dbr_umem_id(memory.umem_id())
        .dbr_addr(memory.record_offset());
    match (&options.srq, layout.log_rq_size) {
        // As on Linux, for both ends: each message names its queue.
        _ if options.xrcd.is_some() => context.w().rq_type(SHARED_RECEIVE_QUEUE),
        (Some(srq), _) => context.w().rq_type(SHARED_RECEIVE_QUEUE).srqn_rmpn_xrqn(srq.srqn()),
        (None, Some(log)) => context.w().log_rq_size(log as u8).log_rq_stride((layout.log_rq_stride - 4) as u8),
        (None, None) => context.w().rq_type(NO_RECEIVE_QUEUE),
    };
    if let Some(domain) = &options.xrcd {
        context.w().xrcd(domain.xrcd());
    }
    let of_initiators = [
        ("QpOptions::dci_streams", options.dci_streams.is_some()),
        ("QpOptions::full_handshake", options.full_handshake),
    ];
    if let Some((what, _)) = of_initiators.iter().find(|(_, is_set)| *is_set && options.service != ServiceType::Dci) {
        let what = (*what).into();
        return Err(Invalid::Requires { what, requires: "QpOptions::dc_initiator" }.into());
    }
    context.w().full_handshake(options.full_handshake);
    if let Some(streams) = options.dci_streams {
        streams.check(caps)?;
        context.w().log_num_dci_stream_channels(streams.log_channels);
        context.w().log_num_dci_errored_streams(streams.log_errored);
    }
    match layout.log_sq_size {
        Some(log) => context.w().log_sq_size(log as u8),
        None => context.w().no_sq(true),
    };
    Ok(context)
}

#[cfg(test)]
mod tests {
    use mlx5_prm::layout::Layout as _;

    use super::*;

    fn caps() -> Caps {
        Caps { log_max_qp_sz: 15, max_wqe_sz_sq: 1024, max_wqe_sz_rq: 512, ..Caps::default() }
    }

    #[test]
    fn timestamps_are_free_running_where_the_card_can() {
        use mlx5_prm::ctx::TimestampFormat::{Default, FreeRunning, RealTime};
        let with = |qp_ts_format| {
            let mut roce = RoceCap::default();
            roce.w().qp_ts_format(qp_ts_format);
            let (current, max) = (roce.as_bytes().to_vec(), roce.as_bytes().to_vec());
            Caps { pages: vec![crate::caps::RawPage { page: CapPage::Roce, current, max }], ..caps() }
        };
        let of = |wanted, format| clock(wanted, &with(format)).ok();
        assert_eq!([0, 1, 2].map(|format| of(false, format)), [FreeRunning, Default, FreeRunning].map(Some));
        assert_eq!([0, 1, 2].map(|format| of(true, format)), [None, Some(RealTime), Some(RealTime)]);
        assert_eq!(clock(false, &caps()).unwrap(), FreeRunning, "no RoCE page");
    }
}
