//! The work queue context, common to send and receive queues. PRM `wq`.

use mlx5_prm::ctx::{QueueState, Wq, WqEndPadding, WqType};

use super::memory::{self, InUmem, Wanted};
use super::syndromes::Syndrome;
use crate::function::{Capabilities, Function};
use crate::objects::{Doorbell, PageList};

/// The memory of an Ethernet queue, from its `wq`.
#[derive(Debug)]
pub(super) struct WorkQueue {
    /// The ring's memory.
    pub memory: PageList,
    /// log2 of its entries.
    pub log_size: u32,
    /// log2 of an entry's bytes.
    pub log_stride: u32,
    /// Its doorbell record.
    pub doorbell: Doorbell,
    /// The umem its ring lies in.
    pub umem: Option<u32>,
    /// The umem its doorbell record lies in.
    pub doorbell_umem: Option<u32>,
}

/// Checks and reads the `wq` of a new queue. `strides`: allowed entry sizes, as log2.
pub(super) fn take(
    f: &Function,
    wq: &Wq,
    strides: std::ops::RangeInclusive<u8>,
    list: &[u8],
) -> Result<WorkQueue, Syndrome> {
    if wq.wq_type() != WqType::Cyclic {
        return Err(Syndrome::WqType);
    }
    let unannounced = wq.wq_signature()
        // Padding to a cache line changes no data that software may rely on.
        || !matches!(wq.end_padding_mode(), WqEndPadding::None | WqEndPadding::Align)
        || wq.cd_slave()
        || wq.hds_skip_first_sge()
        || wq.log2_hds_buf_size() != 0
        || wq.lwm() != 0
        || wq.log_hairpin_num_packets() != 0
        || wq.log_hairpin_data_sz() != 0
        || wq.log_wqe_num_of_strides() != 0
        || wq.log_wqe_stride_size() != 0
        || wq.two_byte_shift_en()
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
    Ok(WorkQueue { memory, log_size, log_stride, doorbell, umem: umem.map(|place| place.id), doorbell_umem })
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
