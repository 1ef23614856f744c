//! The work queue context, common to send and receive queues. PRM `wq`.

use mlx5_prm::ctx::{QueueState, Wq, WqEndPadding, WqType};

use super::memory::{self, InUmem, Wanted};
use super::syndromes::Syndrome;
use crate::function::{Capabilities, Function};
use crate::objects::{Doorbell, PageList, Striding};

/// The memory of an Ethernet queue, from its `wq`.
#[derive(Debug)]
pub(super) struct WorkQueue {
    /// The ring's memory.
    pub memory: PageList,
    /// log2 of its entries.
    pub log_size: u32,
    /// log2 of an entry's bytes.
    pub log_stride: u32,
    /// Its strides, if it is a striding receive queue.
    pub striding: Option<Striding>,
    /// Its doorbell record.
    pub doorbell: Doorbell,
    /// The umem its ring lies in.
    pub umem: Option<u32>,
    /// The umem its doorbell record lies in.
    pub doorbell_umem: Option<u32>,
}

/// Checks and reads the `wq` of a new queue. `strides`: allowed entry sizes, as log2. Only a receive queue may be a
/// striding one.
pub(super) fn take(
    f: &Function,
    wq: &Wq,
    strides: std::ops::RangeInclusive<u8>,
    receives: bool,
    list: &[u8],
) -> Result<WorkQueue, Syndrome> {
    let striding = striding(f, wq, receives)?;
    let unannounced = wq.wq_signature()
        // Padding to a cache line changes no data that software may rely on.
        || !matches!(wq.end_padding_mode(), WqEndPadding::None | WqEndPadding::Align)
        || wq.cd_slave()
        || wq.hds_skip_first_sge()
        || wq.log2_hds_buf_size() != 0
        || wq.lwm() != 0
        || wq.log_hairpin_num_packets() != 0
        || wq.log_hairpin_data_sz() != 0
        || wq.shampo_enable();
    if unannounced {
        return Err(Syndrome::WqFeature);
    }
    if wq.log_wq_sz() > f.nic.firmware.capabilities().general().log_max_wq_sz() {
        return Err(Syndrome::WqSize);
    }
    if !strides.contains(&wq.log_wq_stride()) {
        return Err(Syndrome::WqStride);
    }
    let (log_size, log_stride) = (u32::from(wq.log_wq_sz()), u32::from(wq.log_wq_stride()));
    let umem = wq.wq_umem_valid().then(|| InUmem { id: wq.wq_umem_id(), offset: wq.wq_umem_offset() });
    let wanted =
        Wanted { log_page_size: wq.log_wq_pg_sz(), page_offset: wq.page_offset(), bytes: 1 << (log_size + log_stride) };
    let memory = memory::queue(f, wanted, list, umem)?;
    let doorbell_umem = wq.dbr_umem_valid().then(|| wq.dbr_umem_id());
    let doorbell = memory::doorbell(f, wq.dbr_addr(), doorbell_umem)?;
    Ok(WorkQueue { memory, log_size, log_stride, striding, doorbell, umem: umem.map(|place| place.id), doorbell_umem })
}

/// log2 of the bytes of a stride where `log_wqe_stride_size` is 0. PRM `wq`.
const STRIDE_BYTES_BASE: u8 = 6;
/// log2 of the strides of a WQE where `log_wqe_num_of_strides` is 0. PRM `wq`.
const STRIDES_BASE: u8 = 9;
/// `log_wqe_num_of_strides` from here on means fewer: 10 is 2^3, 15 is 2^8. PRM `wq`, `ext_stride_num_range`.
const STRIDES_EXTENDED: u8 = 10;
const STRIDES_EXTENDED_BASE: u8 = 3;
/// log2 of the smallest WQE of a striding queue: its link, and a data segment.
const LINK_AND_DATA: u8 = 5;

/// The strides of a queue; `None` for one that is no striding queue.
fn striding(f: &Function, wq: &Wq, receives: bool) -> Result<Option<Striding>, Syndrome> {
    let caps = f.nic.firmware.capabilities().general();
    let is_linked = match wq.wq_type() {
        WqType::Cyclic => {
            let has_strides =
                wq.log_wqe_num_of_strides() != 0 || wq.log_wqe_stride_size() != 0 || wq.two_byte_shift_en();
            return if has_strides { Err(Syndrome::WqFeature) } else { Ok(None) };
        }
        WqType::LinkedListStridingRq if receives && caps.striding_rq() => true,
        WqType::CyclicStridingRq if receives && caps.striding_rq() => false,
        _ => return Err(Syndrome::WqType),
    };
    if wq.log_wq_stride() < LINK_AND_DATA {
        return Err(Syndrome::WqStride);
    }
    let log_count = match wq.log_wqe_num_of_strides() {
        few @ STRIDES_EXTENDED.. if caps.ext_stride_num_range() => few - STRIDES_EXTENDED + STRIDES_EXTENDED_BASE,
        STRIDES_EXTENDED.. => return Err(Syndrome::WqFeature),
        many => many + STRIDES_BASE,
    };
    let log_bytes = wq.log_wqe_stride_size() + STRIDE_BYTES_BASE;
    if log_bytes + log_count < f.nic.firmware.caps.general_2().log_min_stride_wqe_sz() {
        return Err(Syndrome::StridingWqeSize);
    }
    Ok(Some(Striding {
        log_bytes: log_bytes.into(),
        log_count: log_count.into(),
        shift: if wq.two_byte_shift_en() { 2 } else { 0 },
        is_linked,
        next: 0,
        open: None,
    }))
}

/// log2 of the allowed WQE sizes in bytes, of send and of receive queues.
pub(super) fn send_strides(caps: &Capabilities) -> std::ops::RangeInclusive<u8> {
    caps.general().log_min_stride_sz_sq()..=caps.general().log_max_stride_sz_sq()
}

/// See [`send_strides`].
pub(super) fn receive_strides(caps: &Capabilities) -> std::ops::RangeInclusive<u8> {
    caps.general().log_min_stride_sz_rq()..=caps.general().log_max_stride_sz_rq()
}

/// The state after a modify command, if the queue is in the state that the command gives.
pub(super) fn next_state(now: QueueState, believed: QueueState, wanted: QueueState) -> Result<QueueState, Syndrome> {
    use QueueState::*;
    match (now, wanted) {
        _ if believed != now => Result::Err(Syndrome::QueueState),
        (Err, Rdy) | (Rst, Err) | (_, Unknown(_)) => Result::Err(Syndrome::QueueTransition),
        _ => Ok(wanted),
    }
}
