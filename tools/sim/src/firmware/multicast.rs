//! Multicast groups of queue pairs for datagrams. PRM "ATTACH_TO_MCG", "DETACH_FROM_MCG".

use mlx5_prm::cmd::*;
use mlx5_prm::values::ServiceType;

use super::answer::Answer;
use super::syndromes::Syndrome;
use crate::function::Function;
use crate::transport::packet::is_group;

/// `ATTACH_TO_MCG`.
pub(super) fn attach(f: &mut Function, command: &AttachToMcgIn) -> Answer<AttachToMcgOut> {
    let (qpn, gid) = (command.qpn(), command.multicast_gid());
    let caps = f.nic.firmware.caps.general();
    let qp = f.queues.qps.get(qpn).ok_or(Syndrome::NoSuchQp)?;
    if qp.service != ServiceType::Ud {
        return Err(Syndrome::GroupService.into());
    }
    if !is_group(gid) {
        return Err(Syndrome::GroupAddress.into());
    }
    let groups = &f.nic.objects.groups;
    let members = groups.members(gid);
    if members.contains(&qpn) {
        return Err(Syndrome::GroupMember.into());
    }
    let is_full = members.len() as u64 >= u64::from(caps.max_qp_mcg());
    if is_full || members.is_empty() && groups.count() >= 1 << caps.log_max_mcg() {
        return Err(Syndrome::GroupRoom.into());
    }
    f.nic.objects.groups.attach(*gid, qpn);
    Ok(AttachToMcgOut::ZERO)
}

/// `DETACH_FROM_MCG`.
pub(super) fn detach(f: &mut Function, command: &DetachFromMcgIn) -> Answer<DetachFromMcgOut> {
    f.queues.qps.get(command.qpn()).ok_or(Syndrome::NoSuchQp)?;
    if !f.nic.objects.groups.detach(command.multicast_gid(), command.qpn()) {
        return Err(Syndrome::NotInGroup.into());
    }
    Ok(DetachFromMcgOut::ZERO)
}
