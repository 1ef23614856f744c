//! Counters of queue pairs. PRM "ALLOC_Q_COUNTER", "QUERY_Q_COUNTER".

use mlx5_prm::cmd::*;

use super::answer::Answer;
use super::pages;
use super::syndromes::Syndrome;
use crate::function::{Context, Function};
use crate::objects::QueueCounter;

/// `ALLOC_Q_COUNTER`.
pub(super) fn alloc(f: &mut Function, _: &AllocQCounterIn) -> Answer<AllocQCounterOut> {
    let most = u32::from(f.nic.firmware.caps.general().max_qp_cnt());
    let number = f.nic.objects.queue_counters.next_number();
    number.filter(|number| *number <= most).ok_or(Syndrome::TooManyCounters)?;
    pages::reserve(f, Context::Counter)?;
    let number = f.nic.objects.queue_counters.insert(QueueCounter::default()).map_err(|_| Syndrome::TooManyCounters)?;
    let mut output = AllocQCounterOut::ZERO;
    // `max_num` is below 256, so the number fits.
    output.w().counter_set_id(number as u8);
    Ok(output)
}

/// `QUERY_Q_COUNTER`.
pub(super) fn query(f: &mut Function, command: &QueryQCounterIn) -> Answer<QueryQCounterOut> {
    if command.other_vport() || command.aggregate() || command.vport_number() != 0 {
        return Err(Syndrome::OtherVport.into());
    }
    let number = u32::from(command.counter_set_id());
    let counter = f.nic.objects.queue_counters.get_mut(number).ok_or(Syndrome::NoSuchCounter)?;
    let mut output = QueryQCounterOut::ZERO;
    output
        .w()
        .out_of_buffer(counter.out_of_buffer)
        .out_of_sequence(counter.out_of_sequence)
        .duplicate_request(counter.duplicate_request)
        .rnr_nak_retry_err(counter.rnr_nak_retry_err)
        .packet_seq_err(counter.packet_seq_err)
        .implied_nak_seq_err(counter.implied_nak_seq_err)
        .local_ack_timeout_err(counter.local_ack_timeout_err)
        .rx_write_requests(counter.rx_write_requests)
        .rx_read_requests(counter.rx_read_requests)
        .rx_atomic_requests(counter.rx_atomic_requests);
    if command.clear() {
        *counter = QueueCounter::default();
    }
    Ok(output)
}

/// `DEALLOC_Q_COUNTER`.
pub(super) fn dealloc(f: &mut Function, command: &DeallocQCounterIn) -> Answer<DeallocQCounterOut> {
    let number = command.counter_set_id();
    f.nic.objects.queue_counters.get(u32::from(number)).ok_or(Syndrome::NoSuchCounter)?;
    let in_queue = f.queues.rqs.iter().any(|(_, rq)| rq.counter_set_id == number);
    let in_queue = in_queue || f.queues.dcts.iter().any(|(_, dct)| dct.context.counter_set_id() == number);
    if in_queue || f.queues.qps.iter().any(|(_, qp)| qp.counter_set_id == number) {
        return Err(Syndrome::CounterInUse.into());
    }
    f.nic.objects.queue_counters.remove(u32::from(number));
    pages::release(f, Context::Counter);
    Ok(DeallocQCounterOut::ZERO)
}
