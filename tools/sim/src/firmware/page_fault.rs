//! Answers to page faults. PRM "PAGE_FAULT_RESUME".

use mlx5_prm::cmd::*;

use super::answer::Answer;
use super::syndromes::Syndrome;
use crate::engine;
use crate::function::{Function, PageFault};

/// `PAGE_FAULT_RESUME`. Nothing waits any more if the queue pair ended before.
pub(super) fn resume(f: &mut Function, command: &PageFaultResumeIn) -> Answer<PageFaultResumeOut> {
    let caps = &f.nic.firmware.caps;
    if !caps.general().pg() {
        return Err(Syndrome::CapabilityNotAnnounced.into());
    }
    let info = command.page_fault_info();
    let (of_transport, of_memory) = (info.trans_page_fault_info(), info.mem_page_fault_info());
    let is_of_memory = caps.odp().mem_page_fault();
    let (token, failed) = match is_of_memory {
        true => {
            let high = u64::from(of_memory.fault_token_47_32()) << 32;
            (high | u64::from(of_memory.fault_token_31_0()), of_memory.error())
        }
        false => (of_transport.fault_token().into(), of_transport.error()),
    };
    let faults = &mut f.nic.scheduler.page_faults;
    if !faults.was_given(token) {
        return Err(Syndrome::NoSuchPageFault.into());
    }
    let is_meant = |fault: &PageFault| {
        let (kind, number) = (of_transport.page_fault_type(), of_transport.wq_number());
        is_of_memory || fault.kind == kind && fault.wq_number == number
    };
    let token = token as u32;
    if let Some(fault) = faults.take(token, is_meant) {
        engine::resume(f, token, fault, failed);
    }
    Ok(PageFaultResumeOut::ZERO)
}
